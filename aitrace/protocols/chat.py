"""Pure: the OpenAI Chat Completions protocol, with the additions of vLLM, llama-server, SGLang and Dynamo."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from aitrace.protocols.bodies import (
    blocks,
    ended,
    error_text,
    escaped_twice,
    expect_list,
    expect_object,
    expect_one_of,
    expect_text,
    frame,
    joined_texts,
    objects,
    optional_text,
    read_answer,
    read_request,
    result_text,
    sorted_json,
    text_part,
    tool_parts,
    tools_field,
    write_openai_error,
    write_request,
)
from aitrace.protocols.protocol import (
    MalformedRequestError,
    MalformedResponseError,
    Reply,
    Request,
    RequestPart,
    RequestSpec,
    StreamReader,
    TokenKind,
    WireMessage,
    WirePart,
)
from aitrace.protocols.streams import (
    JsonStreamReader,
    ShapeError,
    count,
    newer_usage,
    shaped_index,
    shaped_object,
    shaped_text,
)
from aitrace.schema import ProtocolName, Role, Usage

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_PROMPT_FIELDS = frozenset({"tools", "messages"})
_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""llama-server, SGLang and older vLLM send the first, newer vLLM the second."""


_TEXT_FIELDS = ("content", "refusal", *_REASONING_FIELDS)


class ChatProtocol:
    """Both directions of `POST /v1/chat/completions`."""

    name: ProtocolName = "chat"
    path = "/v1/chat/completions"

    def read_request(self, body: bytes) -> Request:
        return read_request(body, _request_parts, "max_completion_tokens", "max_tokens")

    def write_request(self, spec: RequestSpec) -> bytes:
        return write_request(self, spec)

    def write_frame(self, spec: RequestSpec) -> tuple[bytes, bytes]:
        head: dict[str, Any] = {
            "model": spec.model,
            "max_tokens": spec.max_output_tokens,
            "stream": spec.stream,
        }
        if spec.stream:
            head["stream_options"] = {"include_usage": True}
        return frame(head, spec.extra, _PROMPT_FIELDS)

    def write_start(self, tools: Sequence[bytes], system: bytes) -> bytes:
        return b"".join(
            (
                tools_field(tools, _written_tool),
                b'"messages":[',
                b'{"role":"system","content":"%b"},' % system if system else b"",
            )
        )

    def write_messages(self, messages: Sequence[WireMessage], first: int = 0) -> bytes:  # noqa: ARG002 - others number
        return ended(written for message in messages for written in _written_messages(message))

    def read_reply(self, body: bytes) -> Reply:
        value = read_answer(body, "choices")
        choices = [choice for choice in value["choices"] if isinstance(choice, dict)]
        message = choices[0].get("message") if choices else None
        if not isinstance(message, dict):
            raise MalformedResponseError("choices[0].message: expected an object")
        calls = message.get("tool_calls")
        functions = [
            call["function"]
            for call in (calls if isinstance(calls, list) else [])
            if isinstance(call, dict) and isinstance(call.get("function"), dict)
        ]
        return Reply(
            usage=_usage(value.get("usage")),
            finish=optional_text(choices[0].get("finish_reason")),
            text=optional_text(message.get("content")) or optional_text(message.get("refusal")) or "",
            tool_names=tuple(optional_text(function.get("name")) or "" for function in functions),
        )

    def open_stream(self) -> StreamReader:
        return ChatStreamReader()

    def read_error(self, body: bytes) -> str:
        return error_text(body)

    def write_error(self, status: int, message: str) -> bytes:
        return write_openai_error(status, message)


class ChatStreamReader(JsonStreamReader):
    """What one streamed answer has said so far.

    `done` is `[DONE]`; a stream that gave its finish reason and then ended cleanly is whole without it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open_tools: dict[int, str] = {}

    def _take(self, payload: dict[str, Any]) -> TokenKind | None:
        choices = payload.get("choices")
        if not isinstance(choices, list):
            raise ShapeError
        if payload.get("usage") is not None:
            self.usage = newer_usage(self.usage, _usage(payload["usage"]))
        found = [self._choice(choice) for choice in choices]
        return next((kind for kind in found if kind is not None), None)

    def _only_text(self, payload: dict[str, Any]) -> str | None:
        choices = payload["choices"]
        if len(choices) != 1 or choices[0].get("finish_reason") or payload.get("usage") is not None:
            return None
        delta = choices[0]["delta"]
        texts = [delta.get(name) for name in _TEXT_FIELDS]
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            if function.get("name"):
                return None  # the start of a tool call
            texts.append(function.get("arguments"))
        carried = [text for text in texts if text]
        return carried[0] if len(carried) == 1 else None

    def _take_end_mark(self) -> None:
        self._end_tools()
        self.done = True

    def _choice(self, choice: Any) -> TokenKind | None:
        if not isinstance(choice, dict):
            raise ShapeError
        # llama-server's `prompt_progress` chunks and some last chunks have no delta at all.
        kind = self._delta(shaped_object(choice, "delta")) if choice.get("delta") is not None else None
        reason = shaped_text(choice, "finish_reason")
        if reason:
            self.finish = reason
            self._end_tools()
        return kind

    def _delta(self, delta: dict[str, Any]) -> TokenKind | None:
        """What a delta carries; the most visible kind if it carries several."""
        content = shaped_text(delta, "content") or shaped_text(delta, "refusal")
        is_reasoning = any(shaped_text(delta, name) for name in _REASONING_FIELDS)
        is_tool_call = self._tool_calls(delta.get("tool_calls"))
        if content:
            self.text.append(content)
            return "content"
        if is_reasoning:
            return "reasoning"
        return "tool_call" if is_tool_call else None

    def _tool_calls(self, calls: Any) -> bool:
        """Whether the delta brings a name or a piece of the arguments."""
        if calls is None:
            return False
        if not isinstance(calls, list):
            raise ShapeError
        has_token = False
        for call in calls:
            if not isinstance(call, dict):
                raise ShapeError
            index = shaped_index(call, "index")
            function = shaped_object(call, "function") if call.get("function") is not None else {}
            name = shaped_text(function, "name")
            arguments = shaped_text(function, "arguments")
            if index not in self._open_tools:
                self._end_tools()
                self._open_tools[index] = name
            has_token = has_token or bool(name or arguments)
        return has_token

    def _end_tools(self) -> None:
        self.ended_tools += self._open_tools.values()
        self._open_tools.clear()


def _request_parts(value: dict[str, Any]) -> Iterator[RequestPart]:
    yield from tool_parts(value.get("tools"), "tools")
    messages = expect_list(value.get("messages"), "messages")
    if not messages:
        raise MalformedRequestError("messages: expected at least one message, got []")
    for message, place in objects(messages, "messages"):
        role = _ROLES[expect_one_of(message.get("role"), _ROLES, f"{place}.role")]
        if role == "tool":
            yield _result_part(message, place)
            continue
        for name in _REASONING_FIELDS:
            yield from text_part(role, message.get(name) or "", f"{place}.{name}", "thinking")
        if message.get("content") is not None or role != "assistant":
            yield from _content_parts(role, message, place)
        yield from text_part(role, message.get("refusal") or "", f"{place}.refusal")
        if message.get("tool_calls") is not None:
            for call, call_place in objects(message["tool_calls"], f"{place}.tool_calls"):
                yield _call_part(call, call_place)


def _result_part(message: dict[str, Any], place: str) -> RequestPart:
    """A tool's result; messages of the older role `function` name the function and have no id."""
    name = optional_text(message.get("name"))
    tool_id = message.get("tool_call_id", name)
    return RequestPart(
        role="tool",
        type="tool_result",
        text=result_text(message.get("content"), f"{place}.content"),
        tool_id=expect_text(tool_id, f"{place}.tool_call_id"),
    )


def _content_parts(role: Role, message: dict[str, Any], place: str) -> Iterator[RequestPart]:
    for block, block_place in blocks(message.get("content"), f"{place}.content"):
        if isinstance(block, str):
            yield from text_part(role, block, block_place)
            continue
        kind = block["type"]
        if kind == "text":
            yield from text_part(role, block.get("text"), f"{block_place}.text")
        elif kind == "refusal":
            yield from text_part(role, block.get("refusal"), f"{block_place}.refusal")
        else:
            text = sorted_json(block, block_place)
            yield RequestPart(role=role, type="image" if kind == "image_url" else "opaque", text=text)


def _call_part(call: dict[str, Any], place: str) -> RequestPart:
    """A tool call; a custom tool's call has its free text under another name."""
    kind = "custom" if call.get("type") == "custom" else "function"
    field = "input" if kind == "custom" else "arguments"
    function = expect_object(call.get(kind), f"{place}.{kind}")
    name = expect_text(function.get("name"), f"{place}.{kind}.name")
    arguments = expect_text(function.get(field), f"{place}.{kind}.{field}")
    return RequestPart(
        role="assistant",
        type="tool_use",
        text=sorted_json({field: arguments, "name": name}, place),
        tool_id=expect_text(call.get("id"), f"{place}.id"),
        tool_name=name,
    )


def _written_tool(index: int, description: bytes) -> bytes:
    schema = b'"parameters":{"type":"object","properties":{}}'
    function = b'{"name":"tool_%d","description":"%b",%b}' % (index, description, schema)
    return b'{"type":"function","function":%b}' % function


def _written_messages(message: WireMessage) -> Iterator[bytes]:
    """The messages that say this; one for each result, and one for each text with the calls that follow it."""
    text: bytes | None = None
    calls: list[bytes] = []
    for part in joined_texts(message.parts):
        if part.kind == "tool_use":
            calls.append(_written_call(part))
            continue
        if text is not None or calls:
            yield _written_message(message.role, text, calls)
            text, calls = None, []
        if part.kind == "text":
            text = part.text
        else:
            tool_id = orjson.dumps(part.tool_id)
            yield b'{"role":"tool","tool_call_id":%b,"content":"%b"}' % (tool_id, part.text)
    if text is not None or calls:
        yield _written_message(message.role, text, calls)


def _written_message(role: str, text: bytes | None, calls: list[bytes]) -> bytes:
    content = b"null" if text is None else b'"' + text + b'"'
    tool_calls = b',"tool_calls":[' + b",".join(calls) + b"]" if calls else b""
    return b'{"role":"%b","content":%b%b}' % (role.encode(), content, tool_calls)


def _written_call(part: WirePart) -> bytes:
    function = b'{"name":%b,"arguments":"{\\"text\\":\\"%b\\"}"}' % (
        orjson.dumps(part.tool_name),
        escaped_twice(part.text),
    )
    return b'{"id":%b,"type":"function","function":%b}' % (orjson.dumps(part.tool_id), function)


def _usage(usage: Any) -> Usage:
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    output_details = usage.get("completion_tokens_details") if isinstance(usage, Mapping) else None
    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        cache_read_tokens=count(details, "cached_tokens"),
        cache_write_5m_tokens=count(details, "created_cache_tokens", "cache_write_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        reasoning_tokens=count(output_details, "reasoning_tokens"),
    )
