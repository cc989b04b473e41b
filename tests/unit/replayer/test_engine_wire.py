"""Streams and bodies of the three protocols, read back by an independent few lines of SSE and JSON."""

import orjson
import pytest

from replayer.engine.answers import Answer
from replayer.engine.wire_anthropic import AnthropicWriter
from replayer.engine.wire_chat import ChatWriter
from replayer.engine.wire_responses import ResponsesWriter

WRITERS = [AnthropicWriter, ResponsesWriter, ChatWriter]
WORDS = tuple(b"w%d" % i for i in range(9))


@pytest.mark.parametrize(
    ("writer", "answer", "expected"),
    [
        (AnthropicWriter, {}, "end_turn"),
        (AnthropicWriter, {"is_cut": True}, "max_tokens"),
        (AnthropicWriter, {"tool_call_tokens": 2, "tool_name": "Read"}, "tool_use"),
        (ChatWriter, {}, "stop"),
        (ChatWriter, {"is_cut": True}, "length"),
        (ChatWriter, {"tool_call_tokens": 2, "tool_name": "Read"}, "tool_calls"),
        (ResponsesWriter, {}, "completed"),
        (ResponsesWriter, {"is_cut": True}, "incomplete"),
        (ResponsesWriter, {"tool_call_tokens": 2, "tool_name": "Read"}, "completed"),
    ],
)
def test_a_whole_answer_ends_for_the_reason_in_the_protocols_word(writer, answer, expected, plan):
    body = orjson.loads(writer(plan(Answer(words=WORDS, **answer))).whole())
    found = body.get("stop_reason") or body.get("status") or body["choices"][0]["finish_reason"]
    assert expected == found


@pytest.mark.parametrize("writer", WRITERS)
def test_a_stream_adds_up_to_the_whole_answer(writer, plan, stream):
    answer = Answer(words=WORDS, reasoning_tokens=3, tool_call_tokens=3, tool_name="Read")
    whole = writer(plan(answer))
    whole.cached_tokens = 32
    assert gathered(stream(writer(plan(answer)), 2, 4, 7)) == taken_apart(orjson.loads(whole.whole()))


def gathered(found: list[tuple[str | None, dict]]) -> tuple[str, str, dict]:
    """Reasoning, text and arguments from deltas of any of the protocols."""
    reasoning = text = arguments = ""
    for kind, value in found:
        if kind is None:
            delta = value["choices"][0]["delta"] if value["choices"] else {}
            reasoning += delta.get("reasoning_content", "")
            text += delta.get("content", "")
            arguments += "".join(call["function"]["arguments"] for call in delta.get("tool_calls", ()))
        elif kind == "content_block_delta":
            reasoning += value["delta"].get("thinking", "")
            text += value["delta"].get("text", "")
            arguments += value["delta"].get("partial_json", "")
        elif kind.endswith(".delta"):
            reasoning += value["delta"] if "reasoning" in kind else ""
            text += value["delta"] if "output_text" in kind else ""
            arguments += value["delta"] if "arguments" in kind else ""
    return reasoning, text, orjson.loads(arguments)


def taken_apart(body: dict) -> tuple[str, str, dict]:
    """The same from the whole body."""
    if "choices" in body:
        message = body["choices"][0]["message"]
        arguments = orjson.loads(message["tool_calls"][0]["function"]["arguments"])
        return message["reasoning_content"], message["content"], arguments
    if "output" in body:
        reasoning, message, call = body["output"]
        return reasoning["content"][0]["text"], message["content"][0]["text"], orjson.loads(call["arguments"])
    thinking, text, call = body["content"]
    return thinking["thinking"], text["text"], call["input"]


@pytest.mark.parametrize(
    ("writer", "status", "kind", "place"),
    [
        (AnthropicWriter, 500, "error", "error"),
        (AnthropicWriter, 529, "error", "error"),
        (ResponsesWriter, 500, "response.failed", "response"),
        (ChatWriter, 500, None, "error"),
    ],
)
def test_a_failure_is_the_protocols_own_error(writer, status, kind, place, plan, events):
    found_kind, value = events(writer(plan(Answer(words=WORDS))).fail(status, "no"))[-1]
    assert kind == found_kind
    assert "no" in str(value[place])


def test_an_overloaded_engine_says_so(plan, events):
    _, anthropic = events(AnthropicWriter(plan(Answer(words=WORDS))).fail(529, "no"))[0]
    _, responses = events(ResponsesWriter(plan(Answer(words=WORDS))).fail(503, "no"))[0]
    assert anthropic["error"]["type"] == "overloaded_error"
    assert responses["response"]["error"]["code"] == "server_is_overloaded"


@pytest.mark.parametrize("writer", WRITERS)
def test_an_end_without_tokens_closes_no_block(writer, plan, events):
    found = events(writer(plan(Answer(words=WORDS))).end())
    assert not [name for name, _ in found if name in ("content_block_stop", "response.output_item.done")]
