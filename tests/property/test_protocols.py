"""The wire protocols: what is written is read back, and nothing that comes from outside raises."""

from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.observe import ResponseObserver
from aitrace.protocols import PROTOCOLS
from aitrace.protocols.protocol import (
    MalformedRequestError,
    MalformedResponseError,
    RequestSpec,
    WireMessage,
    WirePart,
)
from aitrace.sse import SseEvent

by_protocol = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


# What is written is read back.

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


def escaped(text):
    return orjson.dumps(text)[1:-1]


def texts():
    return TEXTS.map(lambda text: WirePart(kind="text", text=escaped(text)))


def uses():
    return st.builds(
        lambda text, tool_id, name: WirePart(
            kind="tool_use", text=escaped(text), tool_id=tool_id, tool_name=name
        ),
        TEXTS,
        IDS,
        IDS,
    )


def results():
    return st.builds(
        lambda text, tool_id: WirePart(kind="tool_result", text=escaped(text), tool_id=tool_id), TEXTS, IDS
    )


def messages_of(role, kinds):
    parts = st.lists(kinds, min_size=1, max_size=5).map(tuple)
    return parts.map(lambda parts: WireMessage(role=role, parts=parts))


MESSAGES = messages_of("user", texts() | results()) | messages_of("assistant", texts() | uses())
SPECS = st.builds(
    RequestSpec,
    model=TEXTS,
    tools=st.lists(TEXTS.map(escaped), max_size=3),
    system=st.just(b"") | TEXTS.map(escaped),
    messages=st.lists(MESSAGES, min_size=1, max_size=5),
    max_output_tokens=st.integers(1, 10**6),
    stream=st.booleans(),
    extra=st.dictionaries(st.sampled_from(["ignore_eos", "min_tokens", "seed"]), st.integers(0, 9)),
)


def plain(escaped_text):
    return orjson.loads(b'"' + escaped_text + b'"')


def expected_parts(spec):
    """Role, type, text and id of each part, worked out from the spec alone; adjacent texts are one."""
    parts = [("system", "tool_definition", plain(tool), None) for tool in spec.tools]
    if spec.system:
        parts.append(("system", "system", plain(spec.system), None))
    for message in spec.messages:
        is_open = False
        for part in message.parts:
            text = plain(part.text)
            if part.kind == "text" and is_open:
                role, type_, before, _ = parts.pop()
                parts.append((role, type_, before + text, None))
            elif part.kind == "text":
                parts.append((message.role, "text", text, None))
            elif part.kind == "tool_use":
                parts.append(("assistant", "tool_use", (part.tool_name, text), part.tool_id))
            else:
                parts.append(("tool", "tool_result", text, part.tool_id))
            is_open = part.kind == "text"
    return parts


def seen_part(part):
    """The same of a part that was read, with what the protocol wraps around texts taken off."""
    text = part.text
    if part.type == "tool_definition":
        tool = orjson.loads(text)
        text = tool.get("function", tool)["description"]
    elif part.type == "tool_use":
        call = orjson.loads(text)
        arguments = call["input"] if "input" in call else orjson.loads(call["arguments"])
        text = (call["name"], arguments["text"])
    return part.role, part.type, text, part.tool_id


@by_protocol
@settings(max_examples=60)
@given(spec=SPECS)
def test_what_is_written_is_read_back(protocol, spec):
    request = protocol.read_request(protocol.write_request(spec))
    assert [seen_part(part) for part in request.parts] == expected_parts(spec)
    assert (request.model, request.stream) == (spec.model, spec.stream)
    assert request.max_output_tokens == spec.max_output_tokens
    assert {name: request.body[name] for name in spec.extra} == spec.extra


@by_protocol
@settings(max_examples=50)
@given(spec=SPECS, more=MESSAGES)
def test_a_longer_conversation_starts_with_the_bytes_of_the_shorter(protocol, spec, more):
    def written(messages):
        return protocol.write_request(
            RequestSpec(
                model=spec.model,
                tools=spec.tools,
                system=spec.system,
                messages=messages,
                max_output_tokens=spec.max_output_tokens,
            )
        )

    before, after = written(spec.messages), written([*spec.messages, more])
    assert after.startswith(before.removesuffix(b"]}") + b",")


# Nothing that comes from outside raises. Words of the protocols make random JSON look like theirs.

WORDS = st.sampled_from(
    [
        "type", "message", "messages", "content", "role", "user", "assistant", "tool", "model", "input",
        "text", "delta", "text_delta", "content_block_delta", "content_block_start", "content_block",
        "content_block_stop", "index", "message_start", "message_delta", "message_stop", "usage", "tool_use",
        "response.output_text.delta", "response.output_item.done", "response.completed", "response", "item",
        "output", "output_index", "function_call", "choices", "finish_reason", "tool_calls", "function",
        "name", "arguments", "error", "id", "call_id", "input_tokens", "cache_creation", "stop_reason",
        "prompt_tokens_details", "system", "tools", "thinking", "reasoning", "summary", "tool_result",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)
TYPES = st.fixed_dictionaries({"type": WORDS})
EVENT_JSON = st.builds(lambda head, rest: {**rest, **head}, TYPES, st.dictionaries(WORDS, JSON)) | JSON
EVENT_DATA = EVENT_JSON.map(orjson.dumps) | st.binary(max_size=30) | st.just(b"[DONE]")


@by_protocol
@settings(max_examples=100)
@given(data=st.lists(EVENT_DATA, max_size=5), type_=st.sampled_from(["message", "error", "ping"]))
def test_no_event_raises(protocol, data, type_):
    reader = protocol.open_stream()
    for one in data:
        assert reader.read(SseEvent(type_, one, 0)) in (None, "content", "reasoning", "tool_call")
    assert 0 <= reader.unparsed_events <= len(data)


def edited(body, path, value):
    """The body with what stands at the path replaced; the path picks by position, wrapping around."""
    if not path or not isinstance(body, (dict, list)) or not body:
        return value
    keys = list(body) if isinstance(body, dict) else list(range(len(body)))
    key = keys[path[0] % len(keys)]
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[key] = edited(body[key], path[1:], value)
    return copy


@by_protocol
@settings(max_examples=100)
@given(spec=SPECS, path=st.lists(st.integers(0, 20), max_size=6), value=JSON)
def test_a_request_with_one_value_replaced_is_read_or_malformed(protocol, spec, path, value):
    body = edited(orjson.loads(protocol.write_request(spec)), path, value)
    complaint = ""
    try:
        protocol.read_request(orjson.dumps(body))
    except MalformedRequestError as error:
        complaint = str(error)
    assert complaint == "" or ": expected " in complaint


@by_protocol
@settings(max_examples=80)
@given(body=JSON.map(orjson.dumps) | st.binary(max_size=50))
def test_random_bodies_raise_only_the_protocols_errors(protocol, body):
    assert isinstance(protocol.read_error(body), str)
    for read, error in (
        (protocol.read_request, MalformedRequestError),
        (protocol.read_reply, MalformedResponseError),
    ):
        try:
            read(body)
        except error:
            continue


REPLIES = {
    "anthropic": {
        "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "name": "n"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": 1}},
    },
    "responses": {
        "output": [
            {"type": "message", "content": [{"text": "x"}]},
            {"type": "function_call", "name": "n"},
        ],
        "status": "completed",
        "incomplete_details": {"reason": "r"},
        "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}},
    },
    "chat": {
        "choices": [
            {
                "message": {"content": "x", "tool_calls": [{"function": {"name": "n"}}]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
    },
}


@by_protocol
@settings(max_examples=80)
@given(path=st.lists(st.integers(0, 20), max_size=6), value=JSON)
def test_an_answer_with_one_value_replaced_is_read_or_malformed(protocol, path, value):
    body = orjson.dumps(edited(REPLIES[protocol.name], path, value))
    try:
        reply = protocol.read_reply(body)
    except MalformedResponseError:
        return
    assert isinstance(reply.text, str)
    assert all(isinstance(name, str) for name in reply.tool_names)


# An observer sees the same whatever the cuts.


def observed(protocol, chunks, *, at_ns=7):
    observer = ResponseObserver(protocol, streamed=True, keep_timeline=True, keep_text=True)
    observer.on_headers(200, {"content-type": "text/event-stream"}, 1)
    for one in chunks:
        observer.on_chunk(one, at_ns)
    return observer.on_end(9)


@by_protocol
@settings(max_examples=60)
@given(
    data=st.lists(EVENT_DATA, max_size=5),
    junk=st.binary(max_size=20),
    cuts=st.lists(st.integers(0, 2000), max_size=20),
)
def test_an_observation_does_not_depend_on_the_cuts(protocol, data, junk, cuts):
    stream = b"".join(b"data: " + one + b"\r\n\r\n" for one in data) + junk
    points = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    whole = observed(protocol, [stream])
    assert observed(protocol, [stream[a:b] for a, b in pairwise(points)]) == whole
    assert whole.response_bytes == len(stream)
