"""Streams of Anthropic Messages, read back by an independent few lines of SSE and JSON."""

import orjson

from replayer.engine.answers import Answer
from replayer.engine.wire_anthropic import AnthropicWriter

WORDS = tuple(b"w%d" % i for i in range(9))


def types(found: list[tuple[str | None, dict]]) -> list[str]:
    return [value["type"] for _, value in found]


def test_an_anthropic_stream_of_text(plan, stream):
    found = stream(AnthropicWriter(plan(Answer(words=WORDS[:3]))), 1)
    assert [name for name, _ in found] == types(found)
    assert types(found) == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [value["delta"] for _, value in found if value["type"] == "content_block_delta"] == [
        {"type": "text_delta", "text": "w0"},
        {"type": "text_delta", "text": " w1 w2"},
    ]
    assert found[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


def test_anthropic_usage_counts_cached_tokens_apart(plan, stream):
    found = stream(AnthropicWriter(plan(Answer(words=WORDS[:3]))))
    expected = {"input_tokens": 18, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 32}
    assert expected | {"output_tokens": 0} == found[0][1]["message"]["usage"]
    assert expected | {"output_tokens": 3} == found[-2][1]["usage"]


def test_an_anthropic_stream_of_all_three_kinds(plan, stream):
    answer = Answer(words=WORDS, reasoning_tokens=3, tool_call_tokens=3, tool_name="Read")
    found = stream(AnthropicWriter(plan(answer)), 2, 4, 7)
    starts = [
        (v["index"], v["content_block"]["type"]) for _, v in found if v["type"] == "content_block_start"
    ]
    stops = [v["index"] for _, v in found if v["type"] == "content_block_stop"]
    arguments = "".join(
        v["delta"].get("partial_json", "") for _, v in found if v["type"] == "content_block_delta"
    )
    assert starts == [(0, "thinking"), (1, "text"), (2, "tool_use")]
    assert stops == [0, 1, 2]
    assert orjson.loads(arguments) == {"text": "w6 w7 w8"}
    assert found[-2][1]["delta"]["stop_reason"] == "tool_use"
