"""The Chat Completions protocol, with the ways of OpenCode, vLLM, Dynamo, SGLang and llama-server."""

import orjson
import pytest

from aitrace.protocols.chat import ChatProtocol
from aitrace.protocols.protocol import (
    MalformedRequestError,
    MalformedResponseError,
    RequestSpec,
    WireMessage,
    WirePart,
)
from aitrace.schema import Usage
from aitrace.sse import SseEvent

PROTOCOL = ChatProtocol()
HI = {"role": "user", "content": "hi"}


def request(**fields):
    return PROTOCOL.read_request(orjson.dumps({"model": "m", "messages": [HI], **fields}))


def parts_of(*messages, **fields):
    return [(part.role, part.type, part.text) for part in request(messages=list(messages), **fields).parts]


def event(payload, type_="message"):
    return SseEvent(type_, payload if isinstance(payload, bytes) else orjson.dumps(payload), 0)


def read(*payloads):
    reader = PROTOCOL.open_stream()
    return reader, [reader.read(event(payload)) for payload in payloads]


def chunk(finish=None, usage=None, **delta):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], "usage": usage}


def call(index=0, name=None, arguments=None):
    function = {"name": name, "arguments": arguments}
    return {"index": index, "function": {key: text for key, text in function.items() if text is not None}}


def usage(prompt, completion, **details):
    return {
        "choices": [],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **details},
    }


DONE = b"[DONE]"


# Requests


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
    ],
)
def test_the_newer_of_the_two_limits_counts(fields, limit):
    assert request(**fields).max_output_tokens == limit


def test_order_is_tools_then_messages():
    seen = parts_of(
        {"role": "system", "content": "sys"},
        {"role": "developer", "content": [{"type": "text", "text": "dev"}]},
        HI,
        tools=[{"type": "function", "function": {"parameters": {"b": 1, "a": 2}, "name": "bash"}}],
    )
    assert seen == [
        (
            "system",
            "tool_definition",
            '{"function":{"name":"bash","parameters":{"a":2,"b":1}},"type":"function"}',
        ),
        ("system", "system", "sys"),
        ("system", "system", "dev"),
        ("user", "text", "hi"),
    ]


def test_a_tool_is_known_by_the_name_of_its_function():
    assert request(tools=[{"type": "function", "function": {"name": "bash"}}]).parts[0].tool_name == "bash"
    assert request(tools=[{"type": "odd", "function": 5}]).parts[0].tool_name is None


def test_an_assistant_message_is_thoughts_then_text_then_calls():
    seen = request(
        messages=[
            {
                "role": "assistant",
                "content": "ok",
                "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "bash", "arguments": '{"b":1}'},
                    },
                    {"id": "c2", "type": "custom", "custom": {"name": "exec", "input": "ls"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "out"},
            {"role": "function", "name": "old", "content": [{"type": "text", "text": "out"}]},
        ]
    ).parts
    assert [(p.role, p.type, p.text, p.tool_id, p.tool_name) for p in seen] == [
        ("assistant", "thinking", "hm", None, None),
        ("assistant", "text", "ok", None, None),
        ("assistant", "tool_use", '{"arguments":"{\\"b\\":1}","name":"bash"}', "c1", "bash"),
        ("assistant", "tool_use", '{"input":"ls","name":"exec"}', "c2", "exec"),
        ("tool", "tool_result", "out", "c1", None),
        ("tool", "tool_result", "out", "old", None),
    ]


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"role": "assistant", "content": None}, []),
        ({"role": "assistant", "content": ""}, []),
        ({"role": "assistant", "reasoning": "hm", "refusal": "no"},
         [("assistant", "thinking", "hm"), ("assistant", "text", "no")]),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
         [("assistant", "text", "no")]),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
         [("user", "image", '{"image_url":{"url":"u"},"type":"image_url"}')]),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
         [("user", "opaque", '{"input_audio":{},"type":"input_audio"}')]),
    ],
)  # fmt: skip
def test_each_kind_of_message_has_its_parts(message, parts):
    assert parts_of(message) == parts


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"messages": []}, "messages: expected at least one message, got []"),
        ({"messages": [HI, HI, {"role": "user", "content": 5}]},
         "messages[2].content: expected a string or a list, got 5"),
        ({"messages": [{"role": "user", "content": None}]},
         "messages[0].content: expected a string or a list, got None"),
        ({"messages": [{"role": "bot", "content": "x"}]},
         "messages[0].role: expected one of system, developer, user, assistant, tool, function, got 'bot'"),
        ({"messages": [{"role": "tool", "content": "x"}]},
         "messages[0].tool_call_id: expected a string, got None"),
        ({"messages": [{"role": "assistant", "reasoning": 5}]},
         "messages[0].reasoning: expected a string, got 5"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]},
         "messages[0].tool_calls: expected a list, got {}"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]},
         "messages[0].tool_calls[0].function: expected an object, got None"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "n"}}]}]},
         "messages[0].tool_calls[0].function.arguments: expected a string, got None"),
        ({"messages": [{"role": "assistant",
                        "tool_calls": [{"function": {"name": "n", "arguments": ""}}]}]},
         "messages[0].tool_calls[0].id: expected a string, got None"),
    ],
)  # fmt: skip
def test_a_malformed_body_is_told_with_the_place(fields, text):
    with pytest.raises(MalformedRequestError) as caught:
        request(**fields)
    assert str(caught.value) == text


def written(*messages, **fields):
    spec = RequestSpec(model="m", messages=messages, max_output_tokens=7, **fields)
    return orjson.loads(PROTOCOL.write_request(spec))


def test_a_written_body_has_the_vendors_shape():
    body = written(
        WireMessage(role="user", parts=(WirePart(kind="text", text=b"a"),)),
        tools=[b"d"],
        system=b"sys",
        extra={"min_tokens": 7},
    )
    function = {
        "name": "tool_0",
        "description": "d",
        "parameters": {"type": "object", "properties": {}},
    }
    assert body == {
        "model": "m",
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": function}],
        "messages": [{"role": "system", "content": "sys"}, {"role": "user", "content": "a"}],
        "min_tokens": 7,
    }
    assert list(body) == [
        "model",
        "max_tokens",
        "stream",
        "stream_options",
        "tools",
        "messages",
        "min_tokens",
    ]


def test_usage_is_asked_for_only_in_streams():
    user = WireMessage(role="user", parts=(WirePart(kind="text", text=b"a"),))
    assert "stream_options" not in written(user, stream=False)


def test_calls_and_results_are_written_as_messages_of_their_own_roles():
    def use(number):
        return WirePart(kind="tool_use", text=b'\\"x\\n', tool_id=f"c{number}", tool_name="bash")

    text = WirePart(kind="text", text=b"t")
    result = WirePart(kind="tool_result", text=b"r", tool_id="c1")
    messages = written(
        WireMessage(role="assistant", parts=(text, use(1), use(2), text)),
        WireMessage(role="assistant", parts=(use(3),)),
        WireMessage(role="user", parts=(result, text, result)),
    )["messages"]
    arguments = [c["function"].pop("arguments") for m in messages for c in m.get("tool_calls", [])]
    assert [orjson.loads(text) for text in arguments] == [{"text": '"x\n'}] * 3

    def calls(*numbers):
        return [{"id": f"c{n}", "type": "function", "function": {"name": "bash"}} for n in numbers]

    assert messages == [
        {"role": "assistant", "content": "t", "tool_calls": calls(1, 2)},
        {"role": "assistant", "content": "t"},
        {"role": "assistant", "content": None, "tool_calls": calls(3)},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        {"role": "user", "content": "t"},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
    ]


def test_an_extra_field_may_replace_a_head_field_but_not_the_prompt():
    user = WireMessage(role="user", parts=(WirePart(kind="text", text=b"a"),))
    assert written(user, extra={"stream_options": None})["stream_options"] is None
    with pytest.raises(ValueError, match="extra field 'messages' is written from the prompt"):
        written(user, extra={"messages": []})


# Streams


LLAMA = [
    chunk(role="assistant", content=None),
    chunk(reasoning_content="hm"),
    chunk(content="Hel"),
    chunk(content="lo"),
    chunk(tool_calls=[call(0, "bash", "{")]),
    chunk(tool_calls=[call(0, None, '"a":1}')]),
    chunk(tool_calls=[call(1, "read", "{}")]),
    chunk("tool_calls"),
    usage(350, 60, prompt_tokens_details={"cached_tokens": 256}),
    DONE,
]


def test_tokens_are_the_deltas_that_carry_something():
    assert read(*LLAMA)[1] == [
        None,
        "reasoning",
        "content",
        "content",
        "tool_call",
        "tool_call",
        "tool_call",
        None,
        None,
        None,
    ]


def test_a_whole_stream_leaves_text_tools_finish_and_end():
    reader, _ = read(*LLAMA)
    assert ("".join(reader.text), reader.ended_tools) == ("Hello", ["bash", "read"])
    assert (reader.finish, reader.done, reader.error, reader.unparsed_events) == ("tool_calls", True, None, 0)
    assert reader.usage == Usage(input_tokens=350, cache_read_tokens=256, output_tokens=60)


@pytest.mark.parametrize("stop", range(len(LLAMA)))
def test_a_stream_without_its_done_mark_is_not_done(stop):
    assert not read(*LLAMA[:stop])[0].done


@pytest.mark.parametrize(("stop", "tools"), [(6, []), (7, ["bash"]), (8, ["bash", "read"])])
def test_a_tool_has_ended_when_the_next_begins_or_the_answer_finishes(stop, tools):
    assert read(*LLAMA[:stop])[0].ended_tools == tools


def test_a_done_mark_ends_tools_too():
    assert read(chunk(tool_calls=[call(0, "bash", "{}")]), DONE)[0].ended_tools == ["bash"]


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"role": "assistant"}, None),
        ({"role": "assistant", "content": ""}, None),
        ({"role": "assistant", "content": None}, None),
        ({}, None),
        ({"role": "assistant", "content": "x"}, "content"),
        ({"content": "x", "reasoning": "y"}, "content"),
        ({"refusal": "no"}, "content"),
        ({"reasoning": "y"}, "reasoning"),
        ({"reasoning": "y", "tool_calls": [call(0, "n")]}, "reasoning"),
        ({"reasoning_content": ""}, None),
        ({"tool_calls": []}, None),
        ({"tool_calls": [call(0, "bash", '{"a":1}')]}, "tool_call"),
        ({"tool_calls": [call(0, "bash", "")]}, "tool_call"),
        ({"tool_calls": [call(0, None, "")]}, None),
        ({"tool_calls": [{"index": None}]}, None),
        ({"tool_calls": [call(0, None, ""), call(1, "n", "")]}, "tool_call"),
    ],
)
def test_a_delta_is_a_token_if_it_carries_something(delta, kind):
    reader, kinds = read(chunk(**delta))
    assert (kinds, reader.unparsed_events) == ([kind], 0)


def test_the_finish_reason_may_ride_on_the_last_text():
    reader, kinds = read(chunk("stop", content="x"))
    assert (kinds, reader.finish) == (["content"], "stop")


def test_progress_chunks_of_llama_server_are_no_tokens():
    progress = {"choices": [{"index": 0, "finish_reason": None}], "prompt_progress": {"processed": 64}}
    reader, kinds = read(progress)
    assert (kinds, reader.unparsed_events) == ([None], 0)


def test_the_latest_usage_counts_and_missing_counters_stay():
    reader, _ = read(
        chunk(content="x", usage={"prompt_tokens": 9, "completion_tokens": 1}),
        usage(
            10,
            5,
            prompt_tokens_details={"created_cache_tokens": 3},
            completion_tokens_details={"reasoning_tokens": 2},
        ),
        chunk(usage={"completion_tokens": True, "prompt_tokens": -1, "prompt_tokens_details": 5}),
        chunk(usage=5),
    )
    assert reader.usage == Usage(
        input_tokens=10, cache_write_5m_tokens=3, output_tokens=5, reasoning_tokens=2
    )


@pytest.mark.parametrize("done", [[], [DONE]])
def test_vllm_refuses_inside_a_stream_of_status_200(done):
    reader, _ = read({"error": {"message": "full", "type": "Service Unavailable", "code": 503}}, *done)
    assert (reader.error, reader.finish) == ("full (503)", None)


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        {},
        {"choices": 5},
        {"choices": [5]},
        {"choices": [{"delta": 5}]},
        {"type": "message_start"},
        chunk(content=5),
        chunk(reasoning=5),
        chunk(finish=5),
        chunk(tool_calls=5),
        chunk(tool_calls=[5]),
        chunk(tool_calls=[{"index": "a"}]),
        chunk(tool_calls=[{"function": 5}]),
        chunk(tool_calls=[{"function": {"name": 5}}]),
    ],
)
def test_events_of_another_shape_are_counted(payload):
    reader, kinds = read(payload)
    assert (kinds, reader.unparsed_events) == ([None], 1)


# Answers and errors


def test_an_answer_without_stream_is_read():
    message = {
        "content": "Hello",
        "tool_calls": [{"function": {"name": "bash"}}, {"function": {}}, {"function": 5}, 5],
    }
    body = {
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    reply = PROTOCOL.read_reply(orjson.dumps(body))
    assert (reply.text, reply.tool_names, reply.finish) == ("Hello", ("bash", ""), "stop")
    assert reply.usage == Usage(input_tokens=3, output_tokens=4)


@pytest.mark.parametrize(
    ("message", "text"), [({"content": None}, ""), ({"refusal": "no"}, "no"), ({"tool_calls": 5}, "")]
)
def test_an_answer_may_have_no_text(message, text):
    assert PROTOCOL.read_reply(orjson.dumps({"choices": [{"message": message}]})).text == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{}", "choices: expected a list, got None"),
        (b'{"choices":[]}', r"choices\[0\].message: expected an object"),
        (b'{"choices":[{"message":5}]}', r"choices\[0\].message: expected an object"),
        (b'{"error":{"message":"broken"}}', "^broken$"),
    ],
)
def test_an_answer_of_another_shape_is_malformed(body, text):
    with pytest.raises(MalformedResponseError, match=text):
        PROTOCOL.read_reply(body)


def test_written_errors_are_read_back():
    body = PROTOCOL.write_error(429, "full")
    assert orjson.loads(body)["error"]["code"] == "rate_limit_exceeded"
    assert PROTOCOL.read_error(body) == "full"
