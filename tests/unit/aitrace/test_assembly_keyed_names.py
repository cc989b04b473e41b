import re

import pytest

from aitrace.assembly.keyed_names import KeyedNames


def test_names_that_harnesses_bring_along_stay():
    names = KeyedNames(b"key")
    assert (names.tool("Bash"), names.agent("Explore")) == ("Bash", "Explore")
    assert names.raw == frozenset()


@pytest.mark.parametrize("name", ["mcp__acme__deploy", "", "näme", "\ud800"])
def test_any_other_name_becomes_sixteen_hexadecimal_digits(name):
    names = KeyedNames(b"key")
    assert re.fullmatch("[0-9a-f]{16}", names.tool(name))
    assert names.tool(name) == names.agent(name)


def test_the_hash_depends_on_the_key():
    assert KeyedNames(b"one").tool("acme") != KeyedNames(b"two").tool("acme")
    assert KeyedNames(b"long" * 50).tool("acme") != KeyedNames(b"long" * 51).tool("acme")


def test_what_is_not_known_stays_so():
    assert (KeyedNames(b"").tool(None), KeyedNames(b"").agent(None)) == (None, None)


def test_made_up_names_and_noted_keys_are_remembered():
    names = KeyedNames(b"key")
    names.tool("acme")
    names.note("ses_1", None, "")
    assert names.raw == {"acme", "ses_1"}
