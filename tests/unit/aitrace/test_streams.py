"""Rules of the shared stream state that no single protocol's tests state; the adapters' own tests cover the rest."""

import orjson
import pytest

from aitrace.protocols import PROTOCOLS
from aitrace.protocols.streams import (
    ShapeError,
    count,
    described_error,
    is_error,
    newer_usage,
    shaped_index,
    shaped_text,
)
from aitrace.schema import Usage
from aitrace.sse import SseEvent


def test_the_latest_report_of_each_counter_wins():
    merged = newer_usage(
        Usage(input_tokens=350, output_tokens=1), Usage(input_tokens=94, cache_read_tokens=256)
    )
    assert merged == Usage(input_tokens=94, cache_read_tokens=256, output_tokens=1)


def test_a_report_of_zero_is_a_report():
    assert newer_usage(Usage(cache_read_tokens=5), Usage(cache_read_tokens=0)).cache_read_tokens == 0


@pytest.mark.parametrize("payload", [{"type": "error"}, {"error": {"code": 503}}, {"error": "full"}])
def test_errors_are_known_by_type_or_member(payload):
    assert is_error(payload)


@pytest.mark.parametrize("payload", [{"error": None}, {"type": "message"}, [], None, "error"])
def test_other_payloads_are_no_errors(payload):
    assert not is_error(payload)


def test_an_error_is_told_with_its_code_since_no_status_came_with_it():
    assert described_error({"error": {"message": "full", "code": 503}}) == "full (503)"
    assert described_error({"error": {"message": "full", "type": "full"}}) == "full"
    assert described_error({"error": {}}) is None


@pytest.mark.parametrize("value", [True, -1, "5", None, 1.5])
def test_a_counter_that_is_no_count_is_not_reported(value):
    assert count({"n": value}, "n") is None


def test_a_counter_beyond_what_a_trace_can_hold_is_not_reported():
    assert count({"n": 2**38}, "n") == 2**38
    assert count({"n": 2**38 + 1}, "n") is None


def test_the_first_counter_that_is_reported_counts():
    assert count({"a": None, "b": 0, "c": 3}, "a", "b", "c") == 0
    assert count(None, "a") is None


def test_absent_fields_have_their_neutral_value_and_wrong_ones_none():
    assert (shaped_text({}, "text"), shaped_index({"index": None}, "index")) == ("", 0)
    with pytest.raises(ShapeError):
        shaped_text({"text": 5}, "text")


def chat(delta):
    return {"choices": [{"index": 0, "delta": delta}]}


def anthropic(kind, field, text):
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: text}}


ALIKE = [
    ("chat", [chat({"content": text}) for text in ("a", " b", " c", " d")], "content", "a b c d"),
    ("chat", [chat({"reasoning": text}) for text in ("a", " b", " c", " d")], "reasoning", ""),
    (
        "chat",
        [chat({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}) for text in ("a", " b", " c")],
        "tool_call",
        "",
    ),
    ("anthropic", [anthropic("text_delta", "text", text) for text in ("a", " b", " c")], "content", "a b c"),
    ("anthropic", [anthropic("thinking_delta", "thinking", text) for text in "abc"], "reasoning", ""),
    (
        "anthropic",
        [{**anthropic("text_delta", "text", text), "usage": {"output_tokens": 5}} for text in "abc"],
        "content",
        "abc",
    ),
]


@pytest.mark.parametrize(("protocol", "payloads", "kind", "text"), ALIKE)
def test_deltas_that_differ_in_their_text_only_are_read_alike(protocol, payloads, kind, text):
    reader = PROTOCOLS[protocol].open_stream()
    kinds = [reader.read(SseEvent("message", orjson.dumps(payload), 0)) for payload in payloads]
    assert kinds == [kind] * len(payloads)
    assert "".join(reader.text) == text


def test_the_start_of_a_tool_call_is_no_example_for_what_follows():
    reader = PROTOCOLS["chat"].open_stream()
    for index, name in enumerate(("Read", "Edit", "Bash")):
        start = chat({"tool_calls": [{"index": index, "function": {"name": name, "arguments": ""}}]})
        assert reader.read(SseEvent("message", orjson.dumps(start), 0)) == "tool_call"
    reader.read(SseEvent("message", b"[DONE]", 0))
    assert reader.ended_tools == ["Read", "Edit", "Bash"]


def test_an_error_event_is_one_even_if_it_looks_like_the_delta_before():
    reader = PROTOCOLS["chat"].open_stream()
    for text in ("a", "b", "c"):
        reader.read(SseEvent("message", orjson.dumps(chat({"content": text})), 0))
    assert reader.read(SseEvent("error", orjson.dumps(chat({"content": "d"})), 0)) is None
    assert reader.error is not None
