"""Streams of Responses, read back by an independent few lines of SSE and JSON."""

import orjson
import pytest

from replayer.engine.answers import Answer
from replayer.engine.wire_responses import ResponsesWriter

WORDS = tuple(b"w%d" % i for i in range(9))


def types(found: list[tuple[str | None, dict]]) -> list[str]:
    return [value["type"] for _, value in found]


def test_a_responses_stream_of_text(plan, stream):
    found = stream(ResponsesWriter(plan(Answer(words=WORDS[:3]))), 1)
    assert [name for name, _ in found] == types(found)
    assert types(found) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [v["delta"] for _, v in found if v["type"] == "response.output_text.delta"] == ["w0", " w1 w2"]


def test_responses_usage_tells_cached_and_reasoning_tokens(plan, stream):
    answer = Answer(words=WORDS, reasoning_tokens=4)
    usage = stream(ResponsesWriter(plan(answer)))[-1][1]["response"]["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (50, 32)
    assert (usage["output_tokens"], usage["output_tokens_details"]["reasoning_tokens"]) == (9, 4)
    assert usage["total_tokens"] == 59


@pytest.mark.parametrize("cuts", [(), (2, 4, 7), tuple(range(1, 9))])
def test_responses_events_are_numbered_without_gaps(cuts, plan, stream):
    answer = Answer(words=WORDS, reasoning_tokens=3, tool_call_tokens=3, tool_name="Read")
    found = stream(ResponsesWriter(plan(answer)), *cuts)
    assert list(range(len(found))) == [value["sequence_number"] for _, value in found]


def test_a_responses_stream_of_all_three_kinds(plan, stream):
    answer = Answer(words=WORDS, reasoning_tokens=3, tool_call_tokens=3, tool_name="Read")
    found = stream(ResponsesWriter(plan(answer)), 2, 4, 7)
    done = [value["item"] for _, value in found if value["type"] == "response.output_item.done"]
    arguments = "".join(v["delta"] for _, v in found if v["type"] == "response.function_call_arguments.delta")
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert done == found[-1][1]["response"]["output"]
    assert arguments == done[2]["arguments"]
    assert orjson.loads(arguments) == {"text": "w6 w7 w8"}


def test_a_responses_answer_cut_by_the_limit_is_incomplete_in_its_last_item(plan, stream):
    answer = Answer(words=WORDS, reasoning_tokens=3, is_cut=True)
    kind, value = stream(ResponsesWriter(plan(answer)))[-1]
    assert kind == "response.incomplete"
    assert value["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in value["response"]["output"]] == ["completed", "incomplete"]
