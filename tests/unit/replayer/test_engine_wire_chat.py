"""Streams of Chat Completions, read back by an independent few lines of SSE and JSON."""

import orjson

from replayer.engine.answers import Answer
from replayer.engine.wire_chat import ChatWriter

WORDS = tuple(b"w%d" % i for i in range(9))


def test_a_chat_stream_of_text_with_usage(plan, stream):
    found = stream(ChatWriter(plan(Answer(words=WORDS[:3]))), 1)
    deltas = [value["choices"][0]["delta"] for _, value in found[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "w0"}, {"content": " w1 w2"}, {}]
    assert [value["choices"][0]["finish_reason"] for _, value in found[:-1]] == [None, None, None, "stop"]
    assert (
        found[-1][1]["choices"],
        found[-1][1]["usage"]["prompt_tokens_details"],
    ) == ([], {"cached_tokens": 32})
    assert {"chat.completion.chunk"} == {value["object"] for _, value in found}


def test_a_chat_stream_without_usage_has_no_such_field(plan, stream):
    writer = ChatWriter(plan(Answer(words=WORDS[:3]), include_usage=False))
    assert all("usage" not in value for _, value in stream(writer))


def test_a_chat_stream_ends_with_its_mark(plan):
    assert ChatWriter(plan(Answer(words=WORDS[:1]))).end().endswith(b"data: [DONE]\n\n")


def test_a_chat_stream_of_all_three_kinds(plan, stream):
    answer = Answer(words=WORDS, reasoning_tokens=3, tool_call_tokens=3, tool_name="Read")
    found = stream(ChatWriter(plan(answer)), 2, 4, 7)
    deltas = [value["choices"][0]["delta"] for _, value in found[:-1]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "w0 w1 w2"
    assert "".join(delta.get("content", "") for delta in deltas) == "w3 w4 w5"
    assert (calls[0]["id"], calls[0]["function"]["name"]) == ("call_ab", "Read")
    assert orjson.loads("".join(call["function"]["arguments"] for call in calls)) == {"text": "w6 w7 w8"}
