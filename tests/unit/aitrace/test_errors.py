import pytest

from aitrace.errors import EndpointError, InputError, UsageError, shown


@pytest.mark.parametrize(("kind", "code"), [(UsageError, 2), (InputError, 3), (EndpointError, 4)])
def test_each_kind_of_error_has_the_exit_code_that_the_readme_lists(kind, code):
    assert kind("what is wrong").exit_code == code


def test_a_hint_is_apart_from_the_sentence():
    error = InputError("empty file", hint="record again")
    assert (str(error), error.hint) == ("empty file", "record again")


def test_without_a_next_step_there_is_no_hint():
    assert UsageError("what is wrong").hint is None


def test_a_bad_value_is_shown_up_to_a_bound():
    assert [shown(None), shown("a"), shown([1, "b"])] == ["None", "'a'", "[1, 'b']"]
    assert shown("x" * 1000) == "'" + "x" * 59 + "…"
