"""The Responses protocol, with the ways of Codex, OpenCode, the vendor, vLLM, Dynamo and llama-server."""

import orjson
import pytest

from aitrace.protocols.protocol import (
    MalformedRequestError,
    MalformedResponseError,
    RequestSpec,
    WireMessage,
    WirePart,
)
from aitrace.protocols.responses import ResponsesProtocol, head_size, parts_from_output
from aitrace.schema import Usage
from aitrace.sse import SseEvent

PROTOCOL = ResponsesProtocol()


def request(**fields):
    return PROTOCOL.read_request(orjson.dumps({"model": "m", "input": "hi", **fields}))


def parts_of(*items, **fields):
    return [(part.role, part.type, part.text) for part in request(input=list(items), **fields).parts]


def event(payload, type_="message"):
    return SseEvent(type_, payload if isinstance(payload, bytes) else orjson.dumps(payload), 0)


def read(*payloads):
    reader = PROTOCOL.open_stream()
    return reader, [reader.read(event(payload)) for payload in payloads]


def of(kind, **fields):
    return {"type": f"response.{kind}", "sequence_number": 0, **fields}


def item_done(index=0, **item):
    return of("output_item.done", output_index=index, item=item)


def completed(kind="completed", **response):
    return of(kind, response={"id": "r", "status": kind, "output": [], **response})


USAGE = {
    "input_tokens": 120,
    "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 8},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 12},
}


# Requests


def test_head_fields_are_read():
    seen = request(stream=True, max_output_tokens=8192, store=False)
    assert (seen.model, seen.stream, seen.max_output_tokens) == ("m", True, 8192)
    assert seen.body["store"] is False


def test_a_string_is_what_the_user_says():
    assert [(p.role, p.type, p.text) for p in request().parts] == [("user", "text", "hi")]


def test_order_is_tools_then_instructions_then_items():
    seen = parts_of(
        {"role": "system", "content": "sys"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "dev"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        instructions="base",
        tools=[
            {"type": "function", "name": "bash", "parameters": {"b": 1, "a": 2}},
            {"type": "web_search"},
        ],
    )
    assert seen == [
        ("system", "tool_definition", '{"name":"bash","parameters":{"a":2,"b":1},"type":"function"}'),
        ("system", "tool_definition", '{"type":"web_search"}'),
        ("system", "system", "base"),
        ("system", "system", "sys"),
        ("system", "system", "dev"),
        ("user", "text", "hi"),
    ]


def test_tools_may_come_as_an_item():
    tools = [{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]
    seen = request(input=[{"type": "additional_tools", "role": "developer", "tools": tools}]).parts
    assert [(p.role, p.type, p.tool_name) for p in seen] == [("system", "tool_definition", "functions")]


@pytest.mark.parametrize(
    ("call", "output", "text"),
    [
        ({"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c", "name": "exec",
          "namespace": "n", "arguments": '{"b":1}'},
         {"type": "function_call_output", "id": "fco_1", "call_id": "c", "output": "out"},
         '{"arguments":"{\\"b\\":1}","name":"exec"}'),
        ({"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "ls"},
         {"type": "custom_tool_call_output", "call_id": "c",
          "output": [{"type": "input_text", "text": "out"}]},
         '{"input":"ls","name":"exec"}'),
    ],
)  # fmt: skip
def test_a_tool_call_and_its_output_are_joined_by_the_call_id(call, output, text):
    seen = request(input=[call, output]).parts
    assert [(p.role, p.type, p.text, p.tool_id, p.tool_name) for p in seen] == [
        ("assistant", "tool_use", text, "c", "exec"),
        ("tool", "tool_result", "out", "c", None),
    ]


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        ({"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []},
                                           {"type": "refusal", "refusal": "no"}]},
         [("assistant", "text", "a"), ("assistant", "text", "no")]),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
         [("user", "image", '{"image_url":"u","type":"input_image"}')]),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
         [("user", "opaque", '{"file_id":"f","type":"input_file"}')]),
        ({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "s"}],
          "content": None, "encrypted_content": "ZW5j"},
         [("assistant", "thinking", "s")]),
        ({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
         [("assistant", "thinking", "r")]),
        ({"type": "reasoning", "summary": [], "encrypted_content": "ZW5j"},
         [("assistant", "thinking", "ZW5j")]),
        ({"type": "reasoning", "summary": []}, []),
        ({"type": "agent_message", "author": "/main", "content": [
            {"type": "input_text", "text": "do"},
            {"type": "encrypted_content", "encrypted_content": "ZW5j"}]},
         [("user", "text", "do"), ("user", "text", "ZW5j")]),
        ({"type": "web_search_call", "id": "ws_1", "status": "completed", "query": "q"},
         [("assistant", "tool_use", '{"query":"q","type":"web_search_call"}')]),
        ({"type": "local_shell_call_output", "call_id": "c", "output": "o"},
         [("tool", "tool_result", '{"call_id":"c","output":"o","type":"local_shell_call_output"}')]),
        ({"type": "compaction", "id": "cmp", "encrypted_content": "ZW5j",
          "internal_chat_message_metadata_passthrough": {"turn_id": "t"}},
         [("user", "opaque", '{"encrypted_content":"ZW5j","type":"compaction"}')]),
    ],
)  # fmt: skip
def test_each_type_of_item_has_its_parts(item, parts):
    assert parts_of(item) == parts


def test_a_continued_answer_may_have_no_input():
    assert request(input=None, previous_response_id="r").parts == ()
    assert request(input=[], previous_response_id="r").parts == ()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": 5}, "model: expected a string, got 5"),
        ({"input": None}, "input: expected a list, got None"),
        ({"input": 5}, "input: expected a list, got 5"),
        ({"input": [5]}, "input[0]: expected an object, got 5"),
        ({"input": [{"content": "x"}]},
         "input[0].role: expected one of user, assistant, system, developer, tool, got None"),
        ({"input": [{"type": 5}]}, "input[0].type: expected a string, got 5"),
        ({"input": [{"role": "user", "content": 5}]},
         "input[0].content: expected a string or a list, got 5"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]},
         "input[0].content[0].text: expected a string, got 5"),
        ({"input": [{"type": "function_call", "name": "n", "call_id": "c"}]},
         "input[0].arguments: expected a string, got None"),
        ({"input": [{"type": "function_call", "name": "n", "arguments": "{}"}]},
         "input[0].call_id: expected a string, got None"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "input": ""}]},
         "input[0].name: expected a string, got None"),
        ({"input": [{"type": "function_call_output", "output": ""}]},
         "input[0].call_id: expected a string, got None"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]},
         "input[0].output: expected a list, got 5"),
        ({"input": [{"type": "additional_tools", "tools": 5}]},
         "input[0].tools: expected a list, got 5"),
        ({"instructions": 5}, "instructions: expected a string, got 5"),
        ({"max_output_tokens": 1.5}, "max_output_tokens: expected an integer of at least 0, got 1.5"),
    ],
)  # fmt: skip
def test_a_malformed_body_is_told_with_the_place(fields, text):
    with pytest.raises(MalformedRequestError) as caught:
        request(**fields)
    assert str(caught.value) == text


def test_a_written_body_has_the_vendors_shape():
    spec = RequestSpec(
        model="m",
        tools=[b"d"],
        system=b"sys",
        messages=[
            WireMessage(role="user", parts=(WirePart(kind="text", text=b"a"),)),
            WireMessage(
                role="assistant",
                parts=(
                    WirePart(kind="text", text=b"b"),
                    WirePart(kind="tool_use", text=b'\\"c\\n', tool_id="t1", tool_name="Bash"),
                ),
            ),
            WireMessage(role="user", parts=(WirePart(kind="tool_result", text=b"d", tool_id="t1"),)),
        ],
        max_output_tokens=7,
    )
    body = orjson.loads(PROTOCOL.write_request(spec))
    call = body["input"].pop(2)
    assert orjson.loads(call.pop("arguments")) == {"text": '"c\n'}
    assert call == {"type": "function_call", "call_id": "t1", "name": "Bash"}
    assert body == {
        "model": "m",
        "max_output_tokens": 7,
        "stream": True,
        "store": False,
        "tools": [
            {
                "type": "function",
                "name": "tool_0",
                "description": "d",
                "parameters": {"type": "object", "properties": {}},
            }
        ],
        "instructions": "sys",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {
                "type": "message",
                "id": "msg_1_0",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "b", "annotations": []}],
            },
            {"type": "function_call_output", "call_id": "t1", "output": "d"},
        ],
    }


# Streams


VENDOR = [
    of("created", response={"status": "in_progress", "error": None}),
    of("in_progress", response={"status": "in_progress"}),
    of("output_item.added", output_index=0, item={"type": "reasoning", "summary": []}),
    of("reasoning_summary_text.delta", output_index=0, delta="hm"),
    of("reasoning_text.delta", output_index=0, delta="hm"),
    item_done(0, type="reasoning", summary=[{"type": "summary_text", "text": "hm"}]),
    of("output_item.added", output_index=1, item={"type": "message", "content": []}),
    of("content_part.added", output_index=1, part={"type": "output_text", "text": ""}),
    of("output_text.delta", output_index=1, delta="Hel"),
    of("output_text.delta", output_index=1, delta=""),
    of("output_text.delta", output_index=1, delta="lo"),
    of("output_text.done", output_index=1, text="Hello"),
    item_done(1, type="message", content=[{"type": "output_text", "text": "Hello"}]),
    of("output_item.added", output_index=2, item={"type": "function_call", "name": "exec"}),
    of("function_call_arguments.delta", output_index=2, delta="{}"),
    of("function_call_arguments.done", output_index=2, arguments="{}"),
    item_done(2, type="function_call", name="exec", arguments="{}"),
    of("custom_tool_call_input.delta", output_index=3, delta="ls"),
    item_done(3, type="custom_tool_call", name="shell", input="ls"),
    completed(usage=USAGE),
]


def test_tokens_are_the_deltas_that_carry_something():
    _, kinds = read(*VENDOR)
    assert [(i, kind) for i, kind in enumerate(kinds) if kind] == [
        (3, "reasoning"),
        (4, "reasoning"),
        (8, "content"),
        (10, "content"),
        (14, "tool_call"),
        (17, "tool_call"),
    ]


def test_a_whole_stream_leaves_text_tools_finish_and_end():
    reader, _ = read(*VENDOR)
    assert ("".join(reader.text), reader.ended_tools) == ("Hello", ["exec", "shell"])
    assert (reader.finish, reader.done, reader.error, reader.unparsed_events) == ("completed", True, None, 0)


def test_usage_comes_with_the_end():
    assert read(*VENDOR)[0].usage == Usage(
        input_tokens=120,
        cache_read_tokens=100,
        cache_write_5m_tokens=8,
        output_tokens=30,
        reasoning_tokens=12,
    )


@pytest.mark.parametrize("stop", range(len(VENDOR)))
def test_a_stream_without_its_last_event_is_not_done(stop):
    assert not read(*VENDOR[:stop])[0].done


@pytest.mark.parametrize("kind", ["incomplete", "completed"])
def test_the_reason_of_an_incomplete_answer_is_its_finish(kind):
    """vLLM calls an answer that ran into its limit completed."""
    reader, _ = read(completed(kind, incomplete_details={"reason": "max_output_tokens"}), b"[DONE]")
    assert (reader.finish, reader.done, reader.unparsed_events) == ("max_output_tokens", True, 0)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({"code": "server_is_overloaded", "message": "full"}, "full (server_is_overloaded)"),
        (None, "response.failed"),
    ],
)
def test_a_failed_answer_is_done_and_an_error(error, text):
    reader, _ = read(completed("failed", error=error, usage={"input_tokens": 9}))
    assert (reader.finish, reader.done, reader.error) == ("failed", True, text)
    assert reader.usage == Usage(input_tokens=9)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"type": "error", "code": "x", "message": "broken"}, "broken (x)"),
        ({"error": {"message": "full", "code": 503}}, "full (503)"),
    ],
)
def test_errors_inside_a_stream_are_kept_with_their_code(payload, text):
    reader, _ = read(payload)
    assert (reader.error, reader.done) == (text, False)


@pytest.mark.parametrize(
    ("item", "kind", "tools", "text"),
    [
        ({"type": "function_call", "name": "exec", "arguments": "{}"}, "tool_call", ["exec"], []),
        ({"type": "local_shell_call"}, "tool_call", ["local_shell_call"], []),
        ({"type": "message", "content": [{"type": "output_text", "text": "x"}]}, "content", [], ["x"]),
        ({"type": "message", "content": []}, None, [], []),
        ({"type": "message", "content": None}, None, [], []),
        ({"type": "reasoning", "summary": [{"text": "x"}]}, "reasoning", [], []),
        ({"type": "reasoning", "summary": [], "encrypted_content": "ZW5j"}, None, [], []),
        ({"type": "web_search_call", "id": "ws"}, None, [], []),
    ],
)
def test_an_item_that_comes_as_a_whole_is_one_token(item, kind, tools, text):
    reader, kinds = read(item_done(**item))
    assert (kinds, reader.ended_tools, reader.text) == ([kind], tools, text)


def test_items_without_a_place_are_told_by_their_id():
    """llama-server gives no `output_index`."""
    call = {"type": "function_call", "name": "exec", "arguments": "{}"}
    reader, kinds = read(
        of("function_call_arguments.delta", item_id="fc_1", delta="{}"),
        of("output_item.done", item={**call, "id": "fc_1"}),
        of("output_item.done", item={**call, "id": "fc_2"}),
    )
    assert (kinds, reader.ended_tools) == (["tool_call", None, "tool_call"], ["exec", "exec"])


def test_events_that_say_nothing_about_tokens_are_no_error():
    reader, kinds = read(of("rate_limits"), {"type": "codex.rate_limits"}, {"type": "keepalive"})
    assert (kinds, reader.unparsed_events) == ([None, None, None], 0)


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        {},
        {"type": 5},
        {"type": "message_start"},
        {"choices": []},
        of("output_text.delta", delta=5),
        of("output_text.delta", delta="x", output_index="a"),
        of("output_item.done", item=None),
        of("output_item.done", item={"type": ["message"]}),
        of("completed"),
    ],
)
def test_events_of_another_shape_are_counted(payload):
    reader, kinds = read(payload)
    assert (kinds, reader.unparsed_events, reader.done) == ([None], 1, False)


# Answers and errors


def test_an_answer_without_stream_is_read():
    body = {
        "status": "completed",
        "error": None,
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": "Hel"}, {"text": "lo"}, 5]},
            {"type": "function_call", "name": "exec"},
            {"type": ["odd"]},
            5,
        ],
        "usage": USAGE,
    }
    reply = PROTOCOL.read_reply(orjson.dumps(body))
    assert (reply.text, reply.tool_names, reply.finish) == ("Hello", ("exec",), "completed")
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens) == (120, 100)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"content":[]}', "output: expected a list, got None"),
        (b'{"output":[],"status":"failed"}', "status: expected an answer, got 'failed'"),
        (b'{"output":[],"status":"failed","error":{"message":"broken"}}', "^broken$"),
    ],
)
def test_an_answer_of_another_shape_is_malformed(body, text):
    with pytest.raises(MalformedResponseError, match=text):
        PROTOCOL.read_reply(body)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "authentication_error", "invalid_api_key"),
        (404, "not_found_error", "not_found"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (500, "server_error", None),
        (503, "service_unavailable_error", "server_is_overloaded"),
    ],
)
def test_written_errors_have_the_type_of_their_status(status, kind, code):
    body = PROTOCOL.write_error(status, "full")
    assert orjson.loads(body) == {
        "error": {"message": "full", "type": kind, "param": None, "code": code},
    }
    assert PROTOCOL.read_error(body) == "full"


# Answers that may be continued

ANSWER = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vj"},
    {"type": "message", "id": "m_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c",
        "name": "exec",
        "arguments": "{}",
        "status": "done",
    },
]


def test_a_whole_answer_leaves_its_id_and_items():
    reader, _ = read(*(item_done(i, **item) for i, item in enumerate(ANSWER)), completed())
    assert (reader.response_id, reader.output) == ("r", ANSWER)


def test_items_that_only_the_end_lists_are_the_answer():
    reader, _ = read(completed("incomplete", output=[*ANSWER, "?"]))
    assert (reader.response_id, reader.output) == ("r", ANSWER)
    assert read(completed(output=None))[0].output == []


@pytest.mark.parametrize("payloads", [[item_done(0, **ANSWER[1])], [completed("failed")]])
def test_a_cut_or_failed_answer_has_no_id(payloads):
    assert read(*payloads)[0].response_id is None


def test_items_of_an_answer_are_the_parts_of_a_prompt_that_holds_them():
    assert parts_from_output(ANSWER) == request(input=ANSWER).parts
    with pytest.raises(MalformedRequestError, match=r"output\[0\].call_id"):
        parts_from_output([{"type": "function_call", "name": "exec", "arguments": "{}"}])


@pytest.mark.parametrize(
    "head",
    [{}, {"tools": None, "instructions": ""}, {"tools": [{"name": "a"}, {"name": "b"}], "instructions": "x"}],
)
def test_the_head_of_a_prompt_is_what_comes_before_its_input(head):
    assert head_size(request(**head).body) == len(request(**head).parts) - 1
