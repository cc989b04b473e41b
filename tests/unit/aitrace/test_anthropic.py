"""The Messages protocol, with the ways of the vendor, vLLM, Dynamo and llama-server."""

import orjson
import pytest

from aitrace.protocols.anthropic import AnthropicProtocol, read_token_count
from aitrace.protocols.protocol import (
    MalformedRequestError,
    MalformedResponseError,
    RequestSpec,
    WireMessage,
    WirePart,
)
from aitrace.schema import Usage
from aitrace.sse import SseEvent

PROTOCOL = AnthropicProtocol()


def request(**fields):
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    return PROTOCOL.read_request(orjson.dumps(body))


def parts_of(*messages, **fields):
    return [(part.role, part.type, part.text) for part in request(messages=list(messages), **fields).parts]


def complaint(**fields):
    with pytest.raises(MalformedRequestError) as caught:
        request(**fields)
    return str(caught.value)


def event(payload, type_="message"):
    return SseEvent(type_, payload if isinstance(payload, bytes) else orjson.dumps(payload), 0)


def read(*payloads):
    reader = PROTOCOL.open_stream()
    return reader, [reader.read(event(payload)) for payload in payloads]


def start(**usage):
    return {"type": "message_start", "message": {"id": "m", "content": [], "usage": usage}}


def delta(usage=None, **fields):
    payload = {"type": "content_block_delta", "index": 0, "delta": fields}
    return payload if usage is None else {**payload, "usage": usage}


def end(reason="end_turn", **usage):
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


STOP = {"type": "message_stop"}


# Requests


def test_head_fields_are_read():
    seen = request(stream=True, max_tokens=128000, temperature=1)
    assert (seen.model, seen.stream, seen.max_output_tokens) == ("m", True, 128000)
    assert seen.body["temperature"] == 1


def test_absent_stream_and_limit_are_false_and_unknown():
    seen = PROTOCOL.read_request(b'{"model":"m","messages":[{"role":"user","content":"x"}]}')
    assert (seen.stream, seen.max_output_tokens) == (False, None)


def test_order_is_tools_then_system_then_messages():
    seen = parts_of(
        {"role": "user", "content": "hi"},
        {"role": "system", "content": [{"type": "text", "text": "today"}]},
        system=[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        tools=[{"name": "Bash", "input_schema": {"b": 1, "a": 2}, "description": "d"}],
    )
    assert seen == [
        (
            "system",
            "tool_definition",
            '{"description":"d","input_schema":{"a":2,"b":1},"name":"Bash"}',
        ),
        ("system", "system", "one"),
        ("system", "system", "two"),
        ("user", "text", "hi"),
        ("system", "system", "today"),
    ]


def test_a_string_and_a_list_of_one_text_are_the_same_prompt():
    block = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    assert parts_of({"role": "user", "content": block}) == parts_of({"role": "user", "content": "hi"})
    assert parts_of({"role": "user", "content": "hi"}, system="s") == parts_of(
        {"role": "user", "content": "hi"}, system=[{"type": "text", "text": "s"}]
    )


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"a": 1}},
        {"type": "tool_result", "tool_use_id": "t", "content": "out"},
        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
        {"type": "document", "source": {"type": "text", "data": "x"}},
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    ],
)
def test_a_cache_mark_does_not_change_a_block(block):
    marked = {**block, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert parts_of({"role": "user", "content": [marked]}) == parts_of({"role": "user", "content": [block]})


def test_a_cache_mark_does_not_change_a_tool():
    tool = {"name": "Bash", "input_schema": {}}
    marked = {**tool, "cache_control": {"type": "ephemeral"}}
    assert request(tools=[marked]).parts == request(tools=[tool]).parts


def test_a_tool_call_and_its_result_are_joined_by_the_id():
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls", "a": 1}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "out", "is_error": False}
    seen = request(
        messages=[{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    ).parts
    assert [(p.role, p.type, p.tool_id, p.tool_name) for p in seen] == [
        ("assistant", "tool_use", "toolu_1", "Bash"),
        ("tool", "tool_result", "toolu_1", None),
    ]
    assert seen[0].text == '{"input":{"a":1,"command":"ls"},"name":"Bash"}'


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("out", "out"),
        (None, ""),
        ([{"type": "text", "text": "out"}], "out"),
        ([{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}],
         '[{"text":"a","type":"text"},{"text":"b","type":"text"}]'),
        ([{"type": "image", "source": {"b": 1, "a": 2}}], '[{"source":{"a":2,"b":1},"type":"image"}]'),
        ({"type": "error"}, '{"type":"error"}'),
    ],
)  # fmt: skip
def test_tool_results_keep_their_text_or_become_json(content, text):
    block = {"type": "tool_result", "tool_use_id": "t", "content": content}
    assert parts_of({"role": "user", "content": [block]}) == [("tool", "tool_result", text)]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "thinking", "thinking": "hm", "signature": "c2ln"}, ("assistant", "thinking", "hm")),
        ({"type": "thinking", "thinking": "", "signature": "c2ln"}, ("assistant", "thinking", "c2ln")),
        ({"type": "redacted_thinking", "data": "ZGF0YQ"}, ("assistant", "thinking", "ZGF0YQ")),
        ({"type": "image", "source": {}}, ("assistant", "image", '{"source":{},"type":"image"}')),
        ({"type": "new", "b": 1, "a": 2}, ("assistant", "opaque", '{"a":2,"b":1,"type":"new"}')),
        ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
         ("assistant", "tool_use", '{"input":{},"name":"web_search"}')),
        ({"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
         ("tool", "tool_result", "[]")),
    ],
)  # fmt: skip
def test_each_type_of_block_has_a_part(block, part):
    assert parts_of({"role": "assistant", "content": [block]}) == [part]


def test_empty_texts_are_no_parts():
    assert parts_of({"role": "user", "content": ""}, {"role": "user", "content": "x"}, system="") == [
        ("user", "text", "x")
    ]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": None}, "model: expected a string, got None"),
        ({"stream": "yes"}, "stream: expected true or false, got 'yes'"),
        ({"max_tokens": "9"}, "max_tokens: expected an integer of at least 0, got '9'"),
        ({"max_tokens": True}, "max_tokens: expected an integer of at least 0, got True"),
        ({"max_tokens": -1}, "max_tokens: expected an integer of at least 0, got -1"),
        ({"messages": None}, "messages: expected a list, got None"),
        ({"messages": []}, "messages: expected at least one message, got []"),
        ({"messages": ["x"]}, "messages[0]: expected an object, got 'x'"),
        ({"messages": [{"role": "robot"}]},
         "messages[0].role: expected one of user, assistant, system, got 'robot'"),
        ({"messages": [{"role": ["user"]}]},
         "messages[0].role: expected one of user, assistant, system, got ['user']"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": 5}]},
         "messages[1].content: expected a string or a list, got 5"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]},
         "messages[0].content[0].type: expected a string, got None"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]},
         "messages[0].content[0].text: expected a string, got None"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "n"}]}]},
         "messages[0].content[0].id: expected a string, got None"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
         "messages[0].content[0].tool_use_id: expected a string, got None"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                                     "content": [1]}]}]},
         "messages[0].content[0].content[0]: expected an object, got 1"),
        ({"system": 3}, "system: expected a string or a list, got 3"),
        ({"tools": {}}, "tools: expected a list, got {}"),
        ({"tools": [3]}, "tools[0]: expected an object, got 3"),
        ({"model": ["x" * 100]}, "model: expected a string, got ['" + "x" * 58 + "…"),
    ],
)  # fmt: skip
def test_a_malformed_body_is_told_with_the_place(fields, text):
    assert complaint(**fields) == text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_body_that_is_no_json_object_is_malformed(body):
    with pytest.raises(MalformedRequestError, match=r"^body: expected an? (JSON )?object, got "):
        PROTOCOL.read_request(body)


def test_nesting_beyond_what_can_be_written_is_malformed():
    deep = b"[" * 600 + b"]" * 600
    body = b'{"model":"m","messages":[{"role":"user","content":[{"type":"new","x":%b}]}]}' % deep
    with pytest.raises(MalformedRequestError, match=r"messages\[0\]\.content\[0\]: expected less nesting"):
        PROTOCOL.read_request(body)


def test_a_written_body_has_the_vendors_shape():
    spec = RequestSpec(
        model="m",
        tools=[b"says \\n"],
        system=b"sys",
        messages=[
            WireMessage(
                role="user",
                parts=(WirePart(kind="text", text=b"a "), WirePart(kind="text", text=b"\\u00e9")),
            ),
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
        extra={"ignore_eos": True, "stream": False},
    )
    assert orjson.loads(PROTOCOL.write_request(spec)) == {
        "model": "m",
        "max_tokens": 7,
        "stream": False,
        "tools": [
            {
                "name": "tool_0",
                "description": "says \n",
                "input_schema": {"type": "object", "properties": {}},
            }
        ],
        "system": "sys",
        "messages": [
            {"role": "user", "content": "a é"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "b"},
                    {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"text": '"c\n'}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "d"}],
            },
        ],
        "ignore_eos": True,
    }


# Streams


VENDOR = [
    start(
        input_tokens=3,
        cache_read_input_tokens=100,
        cache_creation_input_tokens=20,
        cache_creation={"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5},
        output_tokens=1,
    ),
    {"type": "ping"},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    delta(type="thinking_delta", thinking="hm"),
    delta(type="signature_delta", signature="c2ln"),
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    delta(type="text_delta", text="Hel"),
    delta(type="text_delta", text=""),
    delta(type="text_delta", text="lo"),
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
    },
    delta(type="input_json_delta", partial_json=""),
    delta(type="input_json_delta", partial_json='{"a":1}'),
    {"type": "content_block_stop", "index": 2},
    end("tool_use", output_tokens=42, output_tokens_details={"thinking_tokens": 11}),
    STOP,
]


def test_tokens_are_the_deltas_that_carry_something():
    _, kinds = read(*VENDOR)
    assert [(i, kind) for i, kind in enumerate(kinds) if kind] == [
        (3, "reasoning"),
        (7, "content"),
        (9, "content"),
        (13, "tool_call"),
    ]


def test_a_whole_stream_leaves_text_tools_finish_and_end():
    reader, _ = read(*VENDOR)
    assert ("".join(reader.text), reader.ended_tools) == ("Hello", ["Bash"])
    assert (reader.finish, reader.done, reader.error, reader.unparsed_events) == ("tool_use", True, None, 0)


def test_the_three_input_counters_are_added_up():
    assert read(*VENDOR)[0].usage == Usage(
        input_tokens=123,
        cache_read_tokens=100,
        cache_write_5m_tokens=15,
        cache_write_1h_tokens=5,
        output_tokens=42,
        reasoning_tokens=11,
    )


@pytest.mark.parametrize("stop", range(len(VENDOR)))
def test_a_stream_without_its_last_event_is_not_done(stop):
    reader, _ = read(*VENDOR[:stop])
    assert not reader.done


def test_a_tool_has_ended_with_its_block_and_not_before():
    assert read(*VENDOR[:14])[0].ended_tools == []
    assert read(*VENDOR[:15])[0].ended_tools == ["Bash"]


def test_vllm_reports_the_total_first_and_the_uncached_part_last():
    reader, _ = read(
        start(input_tokens=350, output_tokens=0),
        end(input_tokens=94, cache_read_input_tokens=256, output_tokens=60),
        STOP,
    )
    assert reader.usage == Usage(input_tokens=350, cache_read_tokens=256, output_tokens=60)


def test_dynamo_guesses_first_and_reports_in_every_delta():
    reader, _ = read(
        start(input_tokens=488, output_tokens=0),
        delta({"input_tokens": 94, "cache_read_input_tokens": 256, "output_tokens": 1},
              type="text_delta", text="x"),
        end(input_tokens=94, cache_read_input_tokens=256, output_tokens=2),
        STOP,
        b"[DONE]",
    )  # fmt: skip
    assert reader.usage == Usage(input_tokens=350, cache_read_tokens=256, output_tokens=2)
    assert (reader.done, reader.unparsed_events) == (True, 0)


def test_a_done_mark_is_not_this_protocols_end():
    assert not read(start(), b"[DONE]")[0].done


@pytest.mark.parametrize(
    ("usage", "written_5m", "written_1h"),
    [
        ({"cache_creation_input_tokens": 7}, 7, None),
        ({"cache_creation": {"ephemeral_1h_input_tokens": 7}}, 0, 7),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}}, 3, 4),
        ({"cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 4}}, 5, 4),
        ({"cache_creation_input_tokens": 2, "cache_creation": {"ephemeral_1h_input_tokens": 4}}, 0, 2),
        ({"cache_creation_input_tokens": 0, "cache_creation": None}, 0, None),
    ],
)
def test_cache_writes_are_split_by_lifetime(usage, written_5m, written_1h):
    seen = read(start(input_tokens=10, **usage))[0].usage
    assert (seen.cache_write_5m_tokens, seen.cache_write_1h_tokens) == (written_5m, written_1h)
    assert seen.input_tokens == 10 + written_5m + (written_1h or 0)


def test_null_counters_do_not_undo_a_report():
    reader, _ = read(
        start(input_tokens=5, output_tokens=1),
        end(input_tokens=None, output_tokens=2),
        end(output_tokens="x"),
    )
    assert reader.usage == Usage(input_tokens=5, output_tokens=2)


def test_a_start_without_usage_reports_nothing():
    reader, _ = read({"type": "message_start", "message": {}})
    assert (reader.usage, reader.unparsed_events) == (Usage(), 0)


def test_without_input_tokens_the_total_is_not_known():
    assert read(start(cache_read_input_tokens=5))[0].usage == Usage(cache_read_tokens=5)


def test_thoughts_that_are_not_shown_are_tokens_when_they_are_counted():
    _, kinds = read(
        delta(type="thinking_delta", thinking="", estimated_tokens=50),
        delta(type="thinking_delta", thinking="", estimated_tokens=None),
        delta(type="thinking_delta", thinking="", estimated_tokens=0),
    )
    assert kinds == ["reasoning", None, None]


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ({"type": "text", "text": "x"}, "content"),
        ({"type": "thinking", "thinking": "x"}, "reasoning"),
        ({"type": "tool_use", "name": "n", "input": {"a": 1}}, "tool_call"),
        ({"type": "tool_use", "name": "n", "input": {}}, None),
        ({"type": "server_tool_use", "name": "n", "input": {}}, None),
    ],
)
def test_a_block_start_is_a_token_if_it_brings_content(block, kind):
    assert read({"type": "content_block_start", "index": 0, "content_block": block})[1] == [kind]


def test_only_the_clients_tools_end_as_tools():
    reader, _ = read(
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "server_tool_use", "name": "n"},
        },
        {"type": "content_block_stop", "index": 0},
    )
    assert reader.ended_tools == []


@pytest.mark.parametrize(
    ("payload", "type_", "text"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error",
         "Overloaded (overloaded_error)"),
        ({"error": {"message": "full", "type": "Service Unavailable", "code": 503}}, "message", "full (503)"),
        ({"message": "full", "type": "Overloaded", "code": 529}, "error", "full (529)"),
        ({"error": "broken"}, "message", "broken"),
        ({"type": "error", "error": {"type": "api_error"}}, "message", "api_error"),
        ({"type": "error"}, "message", "error"),
        (b"not json", "error", "not json"),
        (b'"just text"', "error", "just text"),
    ],
)  # fmt: skip
def test_errors_inside_a_stream_are_kept_with_their_code(payload, type_, text):
    reader = PROTOCOL.open_stream()
    assert reader.read(event(payload, type_)) is None
    assert (reader.error, reader.done, reader.unparsed_events) == (text, False, 0)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"\xff",
        b"[1]",
        b"null",
        {"delta": {}},
        {"type": 5},
        {"type": ["ping"]},
        {"type": "response.created"},
        {"type": "content_block_delta", "delta": 5},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_start"},
        {"type": "content_block_start", "index": "a", "content_block": {"type": "tool_use", "name": "n"}},
        {"type": "message_start", "message": None},
        {"type": "message_delta", "delta": []},
        {"type": "message_delta", "delta": {"stop_reason": 5}},
    ],
)
def test_events_of_another_shape_are_counted(payload):
    reader, kinds = read(payload)
    assert (kinds, reader.unparsed_events) == ([None], 1)


# Answers and errors


def test_an_answer_without_stream_is_read():
    body = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "Hel"},
            {"type": "text", "text": "lo"},
            {"type": "tool_use", "name": "Bash", "input": {}},
            5,
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5},
    }
    reply = PROTOCOL.read_reply(orjson.dumps(body))
    assert (reply.text, reply.tool_names, reply.finish) == ("Hello", ("Bash",), "tool_use")
    assert reply.usage == Usage(input_tokens=7, cache_read_tokens=4, output_tokens=5)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html>", "expected a JSON object, got "),
        (b"[]", r"expected a JSON object, got \[\]"),
        (b"{}", "content: expected a list, got None"),
        (b'{"type":"error","error":{"type":"api_error","message":"broken"}}', "^broken$"),
    ],
)
def test_an_answer_of_another_shape_is_malformed(body, text):
    with pytest.raises(MalformedResponseError, match=text):
        PROTOCOL.read_reply(body)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "Overloaded"),
        (b'{"error":{"message":"","type":"api_error"}}', "api_error"),
        (b'{"message":"Service temporarily overloaded","type":"Overloaded","code":529}',
         "Service temporarily overloaded"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"error":"plain"}', "plain"),
        (b"<html>" + b"x" * 300, "<html>" + "x" * 194),
        (b"{}", "{}"),
        (b"[1]", "[1]"),
        (b"\xff", "�"),
        (b"", ""),
    ],
)  # fmt: skip
def test_error_bodies_are_read_in_every_shape_in_use(body, text):
    assert PROTOCOL.read_error(body) == text


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_written_errors_have_the_type_of_their_status(status, kind):
    body = PROTOCOL.write_error(status, 'a "b"')
    assert orjson.loads(body) == {"type": "error", "error": {"type": kind, "message": 'a "b"'}}
    assert PROTOCOL.read_error(body) == 'a "b"'


# Counts of tokens


def test_a_count_of_tokens_is_usage_without_an_answer():
    reply = read_token_count(b'{"input_tokens":42}')
    assert (reply.usage, reply.finish, reply.text) == (Usage(input_tokens=42), None, "")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"input_tokens":"42"}', b'{"error":{"message":"no"}}'])
def test_anything_else_is_no_count(body):
    with pytest.raises(MalformedResponseError):
        read_token_count(body)
