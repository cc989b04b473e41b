import pytest
from hypothesis import given
from hypothesis import strategies as st

from aitrace.harnesses.detector import RequestFacts
from aitrace.harnesses.marks import (
    Rule,
    SyntheticText,
    first_key,
    first_system_text,
    header,
    is_aside,
    key_in,
    last_user_message,
    last_user_text,
    list_in,
    object_in,
    version_after,
)
from aitrace.protocols.protocol import RequestPart

NOTES = SyntheticText(tags=("note", "note-2"), starts=("[stopped",), seen="1.0")
USER = RequestPart(role="user", type="text", text="hello")
ANSWER = RequestPart(role="assistant", type="text", text="hi")
SYSTEM = RequestPart(role="system", type="system", text="You are")
TOOL = RequestPart(role="system", type="tool_definition", text="{}", tool_name="Bash")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize("key", ["a", "ses_1:2/3", "x" * 256])
def test_a_key_is_printable_ascii(key):
    assert key_in({"id": key}, "id") == key


@pytest.mark.parametrize(
    "value", ["", "x" * 257, "a\nb", "é", "\udcff", 1, None, ["a"], {"a": "b"}, True, b"a"]
)
def test_anything_else_is_no_key(value):
    assert key_in({"id": value}, "id") is None


@pytest.mark.parametrize("owner", [None, "id", 1, ["id"]])
def test_only_objects_have_fields(owner):
    assert key_in(owner, "id") is None
    assert object_in(owner, "id") == {}
    assert list_in(owner, "id") == []


def test_the_first_rule_that_finds_a_key_counts():
    rules = [Rule(name=f"t/{field}", field=field, seen=None) for field in ("a", "b", "c")]
    assert first_key({"c": "3", "b": "2", "a": ""}, rules) == ("2", "t/b")
    assert first_key({}, rules) is None


@pytest.mark.parametrize("value", [{"a": 1}, '{"a":1}'])
def test_an_object_may_be_json_in_a_string(value):
    assert object_in({"meta": value}, "meta") == {"a": 1}


@pytest.mark.parametrize("value", ["{", "[1]", "7", "", "\udcff", "[" * 5000, 7, None, [1]])
def test_what_holds_no_object_is_an_empty_one(value):
    assert object_in({"meta": value}, "meta") == {}


def test_a_list_is_taken_as_it_is():
    assert list_in({"tools": [1]}, "tools") == [1]
    assert list_in({"tools": {"a": 1}}, "tools") == []


def test_a_header_that_is_no_text_was_not_sent():
    assert header(RequestFacts(path="/", headers={"a": 1}, body={}), "a") == ""
    assert header(RequestFacts(path="/", headers={"a": "b"}, body={}), "a") == "b"
    assert header(RequestFacts(path="/", headers={}, body={}), "a") == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("tool/2.1.332 (external, cli)", "2.1.332"),
        ("tool/1.2", "1.2"),
        ("tool/0.171.0-alpha.3 (Linux)", "0.171.0-alpha.3"),
        ("tool/2.1.332.4b7", "2.1.332"),
        ("tool/1", None),
        ("tool/new", None),
        ("other/1.2.3", None),
        ("", None),
    ],
)
def test_a_version_holds_nothing_but_numbers_and_the_word_for_an_early_one(text, version):
    assert version_after(text, "tool/") == version


@pytest.mark.parametrize(
    "text",
    [
        "<note>one</note>",
        " <note>one</note>\n",
        '<note kind="x">one</note>',
        "<note>one</note>\n<note-2>two</note-2>",
        "<note>never closed",
        "<note>one</note> [stopped by user]",
        "[stopped by user] and what came then",
    ],
)
def test_a_text_of_nothing_but_notes_is_synthetic(text):
    assert NOTES.covers(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "<note>one</note> hello",
        "<notes>one</notes>",
        "hello <note>one</note>",
        "<other>x</other>",
    ],
)
def test_a_text_with_words_of_a_person_is_not(text):
    assert not NOTES.covers(text)


def test_a_harness_writes_all_system_texts_and_such_of_the_user():
    note = f"<{NOTES.tags[0]}>x</{NOTES.tags[0]}>"
    parts = [
        RequestPart(role=role, type=kind, text=note)
        for role, kind in (("system", "text"), ("user", "text"), ("user", "image"), ("assistant", "text"))
    ]
    assert [NOTES.is_in(part) for part in parts] == [True, True, False, False]
    assert not NOTES.is_in(RequestPart(role="user", type="text", text="hello"))


def test_the_last_text_is_the_users_or_none():
    assert last_user_text((ANSWER, USER)) == "hello"
    assert last_user_text((USER, ANSWER)) == ""
    assert last_user_text(()) == ""


def test_the_last_message_of_the_user_is_found_wherever_it_is():
    assert last_user_message((USER, ANSWER, USER, USER, ANSWER)) == ("hello", "hello")
    assert last_user_message((ANSWER,)) == ()
    assert last_user_message(()) == ()


def test_the_first_system_text_is_no_tool():
    assert first_system_text((TOOL, SYSTEM, USER)) == "You are"
    assert first_system_text((TOOL, USER)) == ""


@pytest.mark.parametrize(
    ("body", "parts", "expected"),
    [
        ({}, (SYSTEM, USER), True),
        ({"tools": []}, (USER,), True),
        ({"tools": [{}]}, (SYSTEM, USER), False),
        ({}, (TOOL, SYSTEM, USER), False),
        ({}, (SYSTEM, USER, ANSWER, USER), False),
        ({}, (), False),
    ],
)
def test_an_aside_has_neither_tools_nor_answers(body, parts, expected):
    assert is_aside(RequestFacts(path="/", headers={}, body=body, parts=parts)) is expected


@given(values, st.text())
def test_no_value_makes_reading_fail(value, text):
    owner = {"id": value}
    assert key_in(owner, "id") is None or isinstance(value, str)
    assert isinstance(object_in(owner, "id"), dict)
    assert isinstance(list_in(owner, "id"), list)
    assert NOTES.covers(text) in (True, False)
    assert version_after(text, ".*?") is None or any(char.isdigit() for char in text)
