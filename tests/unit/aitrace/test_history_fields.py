import pytest

from aitrace.formats.format import Tally
from aitrace.formats.history_fields import (
    all_parts,
    count_of,
    duration_from_ms,
    line_ns,
    ns_from_iso,
    ns_from_ms,
    object_in,
    outcome_from_status,
    parts_from_message,
    text_from_json,
    text_in,
    version_from_name,
)
from aitrace.protocols.anthropic import AnthropicProtocol
from aitrace.protocols.protocol import RequestPart

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
    assert ns_from_iso(text) == expected


@pytest.mark.parametrize(
    "value",
    [None, 7, "", "yesterday", "1969-07-20T20:17:00Z", "2101-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"],
)
def test_an_absurd_time_is_none(value):
    assert ns_from_iso(value) is None


def test_milliseconds_since_1970_may_have_fractions():
    assert ns_from_ms(1_772_618_400_000.5) == MARCH_NS + 500_000


@pytest.mark.parametrize(
    "value", [None, True, "1772618400000", -1, 1_772_618_400, float("nan"), float("inf"), 2**60]
)
def test_absurd_milliseconds_are_none(value):
    assert ns_from_ms(value) is None


def test_a_line_without_a_time_has_that_of_the_one_before_and_is_noted():
    tally = Tally()
    assert [
        line_ns(7, 3, "a:1", tally),
        line_ns(None, 3, "a:2", tally),
        line_ns(None, None, "a:3", tally),
    ] == [
        7,
        3,
        None,
    ]
    assert [(r.kind, r.count, r.first_place) for r in tally.remarks] == [("odd_time", 2, "a:2")]


def test_a_length_that_is_none_is_not_known():
    assert [duration_from_ms(value) for value in (2.5, 0, None, True, -1, "3", 2**41)] == [2_500_000, 0] + [
        None
    ] * 5


def test_a_count_is_there_or_not_known():
    tally = Tally()
    assert count_of({"n": 3}, "n", "p", tally) == 3
    assert [count_of(values, "n", "p", tally) for values in ({}, {"n": None}, None, [])] == [None] * 4


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", 2**40])
def test_an_absurd_count_is_not_known_and_noted(value):
    tally = Tally()
    assert count_of({"n": value}, "n", "p", tally) is None
    assert [(r.kind, r.first_place) for r in tally.remarks] == [("odd_value", "p")]


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
    names = (
        "2.1.332",
        "0.171.0-alpha.1",
        "",
        "latest, said Jane",
        None,
        "2.0-JaneDoe",
        "0.0.0-20260101-a1b2c3",
    )
    assert [version_from_name(name) for name in names] == ["2.1.332", "0.171.0-alpha.1", *[None] * 5]


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


def test_equal_values_have_equal_text():
    tally = Tally()
    assert text_from_json({"a": 1, "b": 2}, "p", tally) == text_from_json({"b": 2, "a": 1}, "p", tally)
    assert all_parts([RequestPart(role="user", type="text", text=text) for text in "ab"]) == "a\nb"
    assert tally.remarks == ()


@pytest.mark.parametrize(("depth", "is_told"), [(300, True), (100_000, False)])
def test_what_is_nested_too_deep_is_noted(depth, is_told):
    deep = []
    for _ in range(depth):
        deep = [deep]
    tally = Tally()
    assert (text_from_json(deep, "p", tally) != "") == is_told
    assert [r.kind for r in tally.remarks] == ["odd_message"]
