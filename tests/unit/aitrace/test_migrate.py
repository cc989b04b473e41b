import pytest

from aitrace.errors import InputError
from aitrace.migrate import STEPS, migrate_fields, version_from_header
from aitrace.schema import FORMAT_VERSION

MADE_UP_STEPS = {
    1: lambda fields: {**fields, "path": [*fields.get("path", []), 1]},
    2: lambda fields: {**fields, "path": [*fields.get("path", []), 2]},
}


def test_there_is_a_step_from_every_version_to_the_current_one():
    assert list(range(1, FORMAT_VERSION)) == sorted(STEPS)


def test_a_line_of_the_current_version_is_left_alone():
    fields = {"kind": "header", "version": FORMAT_VERSION}
    assert fields is migrate_fields(fields, FORMAT_VERSION)


@pytest.mark.parametrize(("version", "path"), [(1, [1, 2]), (2, [2])])
def test_steps_are_taken_in_order_from_the_version_of_the_file(version, path):
    fields = migrate_fields({"kind": "call"}, version, steps=MADE_UP_STEPS, current=3)
    assert {"kind": "call", "path": path} == fields


def test_a_header_states_the_version_it_was_brought_to():
    fields = migrate_fields({"kind": "header", "version": 2}, 2, steps=MADE_UP_STEPS, current=3)
    assert fields["version"] == 3


@pytest.mark.parametrize("version", [1, 2, 3])
def test_known_versions_are_read(version):
    assert version == version_from_header({"version": version}, place="x:1", current=3)


def test_a_newer_version_says_to_use_a_newer_program():
    with pytest.raises(
        InputError, match=r"^x:1: written by a newer aitrace \(trace format 4, .* up to 3\)$"
    ) as e:
        version_from_header({"version": 4}, place="x:1", current=3)
    assert e.value.hint == "use a newer aitrace"


@pytest.mark.parametrize("fields", [{}, {"version": None}])
def test_a_missing_version_is_refused(fields):
    with pytest.raises(InputError, match=r"^x:1: header.version: missing$"):
        version_from_header(fields, place="x:1")


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, [1]])
def test_what_is_no_version_is_refused(version):
    with pytest.raises(InputError, match=r"^x:1: header.version: expected an integer from 1, got"):
        version_from_header({"version": version}, place="x:1")
