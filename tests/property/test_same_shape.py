"""Streams read with and without decoding every event: what they say must be the same."""

from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.protocols import PROTOCOLS
from aitrace.sse import SseEvent, SseParser
from replayer.engine.answers import Answer
from replayer.engine.wire import ReplyPlan
from replayer.engine.wire_anthropic import AnthropicWriter
from replayer.engine.wire_chat import ChatWriter
from replayer.engine.wire_responses import ResponsesWriter

WRITERS = {"anthropic": AnthropicWriter, "chat": ChatWriter, "responses": ResponsesWriter}
WORDS = [b"w%d" % number for number in range(12)]
ODD = st.sampled_from(
    [
        b"",
        b"a",
        b" b",
        b'"',
        b"\\",
        b"\\n",
        b"\n",
        b"\xc3\xa9",
        b"\xff",
        b"\x01",
        b"0",
        b"}",
        b":",
        b"content",
    ]
)
TEXTS = st.sampled_from(["a", " b", "", "x y", '"', "\n", "é", "content", "delta", "7", "\u200d", "text"])
SMALL = st.integers(0, 2)


def chat_events():
    call = st.fixed_dictionaries(
        {},
        optional={
            "index": SMALL,
            "function": st.fixed_dictionaries({}, optional={"name": TEXTS, "arguments": TEXTS}),
        },
    )
    delta = st.fixed_dictionaries(
        {},
        optional={
            "content": TEXTS,
            "reasoning": TEXTS,
            "refusal": TEXTS,
            "tool_calls": st.lists(call, max_size=2),
        },
    )
    choice = st.fixed_dictionaries(
        {"delta": delta}, optional={"finish_reason": st.sampled_from([None, "", "stop"])}
    )
    usage = st.none() | st.fixed_dictionaries({"completion_tokens": SMALL})
    return st.fixed_dictionaries(
        {"choices": st.lists(choice, max_size=2)}, optional={"created": SMALL, "usage": usage}
    )


def anthropic_events():
    delta = st.fixed_dictionaries(
        {"type": st.sampled_from(["text_delta", "thinking_delta", "input_json_delta"])},
        optional={"text": TEXTS, "thinking": TEXTS, "partial_json": TEXTS, "estimated_tokens": SMALL},
    )
    block = st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "tool_use"])},
        optional={"text": TEXTS, "name": TEXTS, "input": st.just({"text": "a"})},
    )
    kinds = st.sampled_from(
        ["content_block_delta", "content_block_delta", "content_block_start", "content_block_stop"]
    )
    usage = st.fixed_dictionaries({"output_tokens": SMALL})
    return st.fixed_dictionaries(
        {"type": kinds, "index": SMALL, "delta": delta, "content_block": block}, optional={"usage": usage}
    )


def responses_events():
    item = st.fixed_dictionaries(
        {"type": st.sampled_from(["message", "function_call"])},
        optional={
            "name": TEXTS,
            "delta": TEXTS,
            "content": st.lists(st.fixed_dictionaries({"text": TEXTS}), max_size=1),
        },
    )
    kinds = st.sampled_from(
        ["response.output_text.delta", "response.function_call_arguments.delta", "response.output_item.done"]
    )
    return st.fixed_dictionaries(
        {"type": kinds, "sequence_number": SMALL},
        optional={"delta": TEXTS, "item": item, "output_index": SMALL},
    )


EVENTS = {"chat": chat_events(), "anthropic": anthropic_events(), "responses": responses_events()}


@st.composite
def streams(draw, events):
    """Events, many of them the one before with a few bytes changed."""
    stream = [orjson.dumps(draw(events))]
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            stream.append(orjson.dumps(draw(events)))
            continue
        before = stream[-1]
        first = draw(st.integers(0, len(before)))
        stream.append(before[:first] + draw(ODD) + before[first + draw(SMALL) :])
    return stream


def said(protocol, stream, *, decode_all):
    reader = PROTOCOLS[protocol].open_stream()
    kinds = []
    for type_, data in stream:
        if decode_all:
            reader._shape = None
        kinds.append(reader.read(SseEvent(type_, data, 0)))
    state = {
        name: getattr(reader, name, None)
        for name in (
            "usage",
            "finish",
            "done",
            "error",
            "text",
            "ended_tools",
            "unparsed_events",
            "output",
            "response_id",
        )
    }
    return kinds, state


def has_shapes(protocol, stream):
    """How many events were known by their bytes."""
    reader = PROTOCOLS[protocol].open_stream()
    known = 0
    for type_, data in stream:
        known += reader._shape is not None and reader._shape.text_in(data) is not None
        reader.read(SseEvent(type_, data, 0))
    return known


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=400)
@given(data=st.data(), type_=st.sampled_from(["message", "message", "error"]))
def test_a_stream_says_the_same_as_if_every_event_were_decoded(protocol, data, type_):
    stream = [("message", event) for event in data.draw(streams(EVENTS[protocol]))]
    stream[-1] = (type_, stream[-1][1])
    assert said(protocol, stream, decode_all=False) == said(protocol, stream, decode_all=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=60)
@given(
    reasoning=st.integers(0, 4),
    tool=st.integers(0, 4),
    cuts=st.lists(st.integers(1, 11), max_size=11, unique=True),
)
def test_so_does_a_stream_of_the_engine_and_most_of_its_deltas_are_known_by_their_bytes(
    protocol, reasoning, tool, cuts
):
    answer = Answer(words=tuple(WORDS), reasoning_tokens=reasoning, tool_call_tokens=tool, tool_name="Read")
    plan = ReplyPlan(id="1", model="m", created_unix_s=1, prompt_tokens=9, answer=answer)
    writer = WRITERS[protocol](plan)
    points = [0, *sorted(cuts), len(WORDS)]
    pieces = [writer.prelude(), writer.begin()]
    pieces += [writer.tokens(first, end) for first, end in pairwise(points)]
    parser = SseParser()
    stream = [(event.type, event.data) for event in parser.feed(b"".join([*pieces, writer.end()]))]
    assert said(protocol, stream, decode_all=False) == said(protocol, stream, decode_all=True)
    assert has_shapes(protocol, stream) >= len(cuts) - 6
