import orjson
import pytest

from aitrace.errors import InputError
from aitrace.formats.format import (
    Tally,
    agent_kind_from_name,
    block_ids,
    finish_from_name,
    history_of_row,
    label_from_name,
    model_from_name,
    ns_from_number,
    optional_whole_number,
    sniffed_format,
    whole_number,
)


def test_a_place_may_have_a_name_that_is_no_text():
    tally = Tally()
    tally.remark("odd", "odd", "a\udcff.jsonl:1")
    assert orjson.dumps(tally.remarks[0].first_place) == b'"a\\\\udcff.jsonl:1"'


def test_a_format_is_told_by_its_keys():
    assert sniffed_format({"requests": [], "block_size": 64}, "a") == "weka"
    assert sniffed_format({"timestamp": 0, "input_length": 1}, "a") == "mooncake"


@pytest.mark.parametrize("document", [None, [], "requests", {}, {"timestamp": 0}])
def test_an_unknown_format_is_refused_with_its_place(document):
    with pytest.raises(InputError, match=r"a\.json: not a known trace format") as caught:
        sniffed_format(document, "a.json")
    assert "--from" in caught.value.hint


def test_a_history_is_told_by_the_fields_of_its_lines():
    rows = [
        {"type": "user", "sessionId": "s"},
        {"type": "session_meta", "timestamp": "2026-03-04T10:00:00Z", "payload": {}},
        {"type": "summary", "summary": "x"},
        {"sessionId": "s", "display": "typed"},
        {"type": "session_meta", "payload": {}},
    ]
    assert [history_of_row(row) for row in rows] == ["claude-code", "codex", None, None, None]


@pytest.mark.parametrize(
    "name", ["trace_0015", "agent_001", "trace_12_s3", "8712b46f", "f4b1d2aa-0b1c-4c1d-8a0a-00000000000f"]
)
def test_numbered_names_are_kept(name):
    assert label_from_name(name) == name


@pytest.mark.parametrize("name", [None, 7, "", "jane@example.org", "fix-login", "abc", "x" * 40, "f" * 65])
def test_names_that_may_say_more_are_dropped(name):
    assert label_from_name(name) is None


def test_agent_kinds_that_somebody_named_are_custom():
    names = ("Explore", "general-purpose", "acme-payroll", "fix Jane's bug")
    assert [agent_kind_from_name(name) for name in names] == [
        "Explore",
        "general-purpose",
        "custom",
        "custom",
    ]
    assert [agent_kind_from_name(name) for name in (None, "", 7)] == [None] * 3


def test_models_and_ends_are_names_not_prose():
    assert model_from_name("anthropic/claude-opus-4-5") == "anthropic/claude-opus-4-5"
    assert [model_from_name(name) for name in (None, "", "my model", "/home/jane")] == [None] * 4
    assert [finish_from_name(name) for name in ("end_turn", "", "it was done")] == ["end_turn", None, None]


def test_whole_numbers_may_be_written_as_floats():
    assert whole_number({"in": 7.0}, "in", "p") == 7
    assert optional_whole_number({"in": None}, "in", "p") is None
    assert optional_whole_number({"in": 3}, "in", "p") == 3


@pytest.mark.parametrize("value", [None, -1, 1.5, "7", True, [], 2**40 + 1])
def test_what_is_no_whole_number_is_refused_with_place_and_value(value):
    with pytest.raises(InputError) as caught:
        whole_number({"in": value}, "in", "a.json: requests[3]")
    assert (
        str(caught.value)
        == f"a.json: requests[3]: 'in' is {value!r}, expected a whole number from 0 to {2**40}"
    )


def test_times_are_rounded_to_ns():
    assert ns_from_number(0.1 + 0.2, per_unit_ns=1_000_000_000, name="t", place="p") == 300_000_000


@pytest.mark.parametrize("value", [None, -0.5, "1", False, 1e300, 2**62 + 1])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(InputError, match=r"p: 't' is .* expected a number from 0"):
        ns_from_number(value, per_unit_ns=1, name="t", place="p")


def test_block_ids_may_be_missing_but_not_something_else():
    assert block_ids({}, "p") == ()
    assert block_ids({"hash_ids": [3, 1]}, "p") == (3, 1)
    for value in ("12", [1, "2"], [1.0], [True]):
        with pytest.raises(InputError, match="p: 'hash_ids' is not a list of whole numbers"):
            block_ids({"hash_ids": value}, "p")


def test_a_tally_counts_and_keeps_the_first_place_of_each_remark():
    tally = Tally()
    tally.add("calls")
    tally.add("calls", 2)
    tally.remark("odd", "it is odd", "first")
    tally.remark("odd", "it is odd", "second")
    summary = tally.summary("weka")
    assert (summary.calls, summary.trees) == (3, 0)
    assert [(r.kind, r.count, r.first_place) for r in summary.remarks] == [("odd", 2, "first")]
