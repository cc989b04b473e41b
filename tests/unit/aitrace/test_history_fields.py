import pytest

from aitrace.errors import InputError
from aitrace.formats.format import Tally
from aitrace.formats.history_fields import (
    all_parts,
    count_of,
    duration_from_ms,
    ns_from_iso,
    ns_from_ms,
    object_in,
    outcome_from_status,
    parts_from_message,
    text_in,
    tool_use_part,
    version_from_name,
)
from aitrace.protocols.anthropic import AnthropicProtocol

MARCH_NS = 1_772_618_400 * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-04T10:00:00.000Z", MARCH_NS),
        ("2026-03-04T11:00:00.125+01:00", MARCH_NS + 125_000_000),
        ("2026-03-04T10:00:00.000001", MARCH_NS + 1000),
    ],
)
def test_a_time_is_read_to_the_microsecond(text, expected):
    assert ns_from_iso(text, "timestamp", "p") == expected


@pytest.mark.parametrize(
    "value",
    [None, 7, "", "yesterday", "1969-07-20T20:17:00Z", "2101-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"],
)
def test_an_absurd_time_is_refused_with_its_place(value):
    with pytest.raises(InputError, match=r"a\.jsonl:7: 'timestamp' is "):
        ns_from_iso(value, "timestamp", "a.jsonl:7")


def test_milliseconds_since_1970_may_have_fractions():
    assert ns_from_ms(1_772_618_400_000.5, "t", "p") == MARCH_NS + 500_000


@pytest.mark.parametrize(
    "value", [None, True, "1772618400000", -1, 1_772_618_400, float("nan"), float("inf"), 2**60]
)
def test_absurd_milliseconds_are_refused(value):
    with pytest.raises(InputError, match="p: 't' is "):
        ns_from_ms(value, "t", "p")


def test_a_length_that_is_none_is_not_known():
    assert [duration_from_ms(value) for value in (2.5, 0, None, True, -1, "3", 2**41)] == [2_500_000, 0] + [
        None
    ] * 5


def test_a_count_is_there_or_not_known():
    assert count_of({"n": 3}, "n", "p") == 3
    assert [count_of(values, "n", "p") for values in ({}, {"n": None}, None, [])] == [None] * 4


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", 2**40 + 1])
def test_an_absurd_count_is_refused(value):
    with pytest.raises(InputError, match=r"p: 'n' is .* expected a whole number"):
        count_of({"n": value}, "n", "p")


def test_fields_of_another_shape_count_as_missing():
    assert (object_in({"a": {"b": 1}}, "a"), object_in({"a": [1]}, "a"), object_in(None, "a")) == (
        {"b": 1},
        {},
        {},
    )
    assert [text_in(values, "a") for values in ({"a": "x"}, {"a": ""}, {"a": 1}, "a")] == [
        "x",
        None,
        None,
        None,
    ]


def test_a_version_is_no_prose():
    names = ("2.1.332", "0.171.0-alpha.1", "", "latest, said Jane", None)
    assert [version_from_name(name) for name in names] == ["2.1.332", "0.171.0-alpha.1", None, None, None]


def test_a_failed_attempt_is_told_by_its_status():
    assert [outcome_from_status(s).error for s in (429, 503, 529, 500, 401, None, 200, True)] == [
        *["refused"] * 3,
        *["http_error"] * 2,
        *["connect"] * 3,
    ]
    assert outcome_from_status(529).status == 529


def test_a_message_is_read_as_the_protocol_reads_it():
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
    }
    parts = parts_from_message(AnthropicProtocol(), "messages", message, "p", Tally())
    assert [(part.role, part.type, part.text) for part in parts] == [("user", "text", "hi")]


def test_a_message_out_of_shape_is_opaque_and_noted():
    tally = Tally()
    odd = {"role": "user", "content": 7}
    parts = parts_from_message(AnthropicProtocol(), "messages", odd, "a.jsonl:3", tally)
    assert [part.type for part in parts] == ["opaque"]
    assert [(r.kind, r.first_place) for r in tally.summary("codex").remarks] == [("odd_message", "a.jsonl:3")]


def test_equal_tool_calls_have_equal_text():
    one, other = tool_use_part("bash", {"a": 1, "b": 2}, "x"), tool_use_part("bash", {"b": 2, "a": 1}, "y")
    assert (one.text == other.text, one.tool_id, one.tool_name) == (True, "x", "bash")
    assert all_parts([one, other]) == f"{one.text}\n{other.text}"
