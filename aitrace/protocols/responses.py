"""Pure: the OpenAI Responses protocol."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from aitrace.protocols.bodies import (
    blocks,
    ended,
    error_text,
    escaped_twice,
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
    described_error,
    newer_usage,
    shaped_index,
    shaped_object,
    shaped_text,
)
from aitrace.schema import ProtocolName, Role, Usage

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}
_PROMPT_FIELDS = frozenset({"tools", "instructions", "input"})
_TOKENS: dict[str, TokenKind] = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "content",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool_call",
    "response.custom_tool_call_input.delta": "tool_call",
}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_CLIENT_TOOLS = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Calls that the client runs; the vendor's own searches are no tool calls to a session."""
_VOLATILE = frozenset({"id", "status", "internal_chat_message_metadata_passthrough"})
"""Fields of an item that no model sees."""
_OTHER_EVENTS = ("response.", "codex.", "keepalive", "ping")


class ResponsesProtocol:
    """Both directions of `POST /v1/responses`."""

    name: ProtocolName = "responses"
    path = "/v1/responses"

    def read_request(self, body: bytes) -> Request:
        """The request in a body, or in a `response.create` message of a WebSocket.

        Raises:
            MalformedRequestError: with the field and what was expected there.
        """
        return read_request(body, _request_parts, "max_output_tokens")

    def write_request(self, spec: RequestSpec) -> bytes:
        return write_request(self, spec)

    def write_frame(self, spec: RequestSpec) -> tuple[bytes, bytes]:
        head = {
            "model": spec.model,
            "max_output_tokens": spec.max_output_tokens,
            "stream": spec.stream,
            "store": False,
        }
        return frame(head, spec.extra, _PROMPT_FIELDS)

    def write_start(self, tools: Sequence[bytes], system: bytes) -> bytes:
        return b"".join(
            (
                tools_field(tools, _written_tool),
                b'"instructions":"%b",' % system if system else b"",
                b'"input":[',
            )
        )

    def write_messages(self, messages: Sequence[WireMessage], first: int = 0) -> bytes:
        return ended(
            item for index, message in enumerate(messages, first) for item in _written_items(index, message)
        )

    def read_reply(self, body: bytes) -> Reply:
        value = read_answer(body, "output")
        if value.get("status") == "failed":
            raise MalformedResponseError("status: expected an answer, got 'failed'")
        items = [item for item in value["output"] if isinstance(item, dict)]
        return Reply(
            usage=_usage(value.get("usage")),
            finish=_finish(value),
            text="".join(_message_text(item) for item in items if item.get("type") == "message"),
            tool_names=tuple(
                _tool_name(item) for item in items if optional_text(item.get("type")) in _CLIENT_TOOLS
            ),
        )

    def open_stream(self) -> StreamReader:
        return ResponsesStreamReader()

    def read_error(self, body: bytes) -> str:
        return error_text(body)

    def write_error(self, status: int, message: str) -> bytes:
        return write_openai_error(status, message)


class ResponsesStreamReader(JsonStreamReader):
    """What one streamed answer has said so far."""

    def __init__(self) -> None:
        super().__init__()
        self.response_id: str | None = None
        """What a later request may continue; None until a whole or incomplete answer ended."""
        self.output: list[dict[str, Any]] = []
        """Items of the answer, in order: those that ended, or else those that its end lists."""
        self._started: set[int | str] = set()

    def _take(self, payload: dict[str, Any]) -> TokenKind | None:
        kind = shaped_text(payload, "type")
        carried = _TOKENS.get(kind)
        if carried is not None:
            return self._delta(carried, payload)
        if kind == "response.output_item.done":
            return self._item_done(payload)
        if kind in _ENDS:
            self._end(shaped_object(payload, "response"), is_failed=kind == "response.failed")
        elif not kind.startswith(_OTHER_EVENTS):
            raise ShapeError
        return None

    def _only_text(self, payload: dict[str, Any]) -> str | None:
        return payload["delta"] if payload.get("type") in _TOKENS else None

    def _delta(self, carried: TokenKind, payload: dict[str, Any]) -> TokenKind | None:
        delta = shaped_text(payload, "delta")
        if not delta:
            return None
        self._started.add(_item_key(payload, payload.get("item_id")))
        if carried == "content":
            self.text.append(delta)
        return carried

    def _item_done(self, payload: dict[str, Any]) -> TokenKind | None:
        """An item's end is a token only if no delta brought its content before."""
        item = shaped_object(payload, "item")
        kind = shaped_text(item, "type")
        self.output.append(item)
        is_new = _item_key(payload, item.get("id")) not in self._started
        if kind in _CLIENT_TOOLS:
            self.ended_tools.append(_tool_name(item))
            return "tool_call" if is_new else None
        if not is_new:
            return None
        if kind == "message" and (text := _message_text(item)):
            self.text.append(text)
            return "content"
        return "reasoning" if kind == "reasoning" and _reasoning_text(item) else None

    def _end(self, response: dict[str, Any], *, is_failed: bool) -> None:
        self.done = True
        self.usage = newer_usage(self.usage, _usage(response.get("usage")))
        self.finish = _finish(response)
        if is_failed:
            self.error = described_error(response.get("error")) or "response.failed"
            return
        self.response_id = optional_text(response.get("id"))
        if not self.output and isinstance(response.get("output"), list):
            self.output = [item for item in response["output"] if isinstance(item, dict)]


def _item_key(payload: dict[str, Any], item_id: Any) -> int | str:
    """What tells an item of the answer from the others: its place, or its id in llama-server's events."""
    if "output_index" not in payload and isinstance(item_id, str):
        return item_id
    return shaped_index(payload, "output_index")


def head_size(body: Mapping[str, Any]) -> int:
    """How many parts of a request's prompt are tools and instructions, which each request states anew."""
    tools = body.get("tools")
    return (len(tools) if isinstance(tools, list) else 0) + bool(body.get("instructions"))


def parts_from_output(items: Iterable[Mapping[str, Any]]) -> tuple[RequestPart, ...]:
    """The items of an answer as they are read from the prompt of a request that holds them.

    Raises:
        MalformedRequestError: an item is not of the protocol.
    """
    return tuple(
        part for index, item in enumerate(items) for part in _item_parts(dict(item), f"output[{index}]")
    )


def _request_parts(value: dict[str, Any]) -> Iterator[RequestPart]:
    yield from tool_parts(value.get("tools"), "tools")
    yield from text_part("system", value.get("instructions") or "", "instructions")
    prompt = value.get("input")
    if isinstance(prompt, str):
        yield from text_part("user", prompt, "input")
    elif prompt is not None or "previous_response_id" not in value:
        for item, place in objects(prompt, "input"):
            yield from _item_parts(item, place)


def _item_parts(item: dict[str, Any], place: str) -> Iterator[RequestPart]:
    kind = expect_text(item.get("type", "message"), f"{place}.type")
    if kind == "message":
        role = _ROLES[expect_one_of(item.get("role"), _ROLES, f"{place}.role")]
        yield from _content_parts(role, item, place)
    elif kind == "agent_message":
        yield from _content_parts("user", item, place)
    elif kind == "additional_tools":
        yield from tool_parts(item.get("tools"), f"{place}.tools")
    elif kind == "reasoning":
        # Codex sends the thoughts back encrypted: then the cipher text is all that stands for them.
        text = _reasoning_text(item) or optional_text(item.get("encrypted_content")) or ""
        yield from text_part("assistant", text, place, "thinking")
    elif kind in ("function_call", "custom_tool_call"):
        yield _call_part(item, "arguments" if kind == "function_call" else "input", place)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield RequestPart(
            role="tool",
            type="tool_result",
            text=result_text(item.get("output"), f"{place}.output"),
            tool_id=expect_text(item.get("call_id"), f"{place}.call_id"),
        )
    else:
        yield _other_part(kind, item, place)


def _content_parts(role: Role, item: dict[str, Any], place: str) -> Iterator[RequestPart]:
    for block, block_place in blocks(item.get("content"), f"{place}.content"):
        if isinstance(block, str):
            yield from text_part(role, block, block_place)
            continue
        kind = block["type"]
        if kind in ("input_text", "output_text", "text"):
            yield from text_part(role, block.get("text"), f"{block_place}.text")
        elif kind == "refusal":
            yield from text_part(role, block.get("refusal"), f"{block_place}.refusal")
        elif kind == "encrypted_content":
            yield from text_part(role, block.get("encrypted_content"), f"{block_place}.encrypted_content")
        else:
            text = sorted_json(block, block_place)
            yield RequestPart(role=role, type="image" if kind == "input_image" else "opaque", text=text)


def _call_part(item: dict[str, Any], field: str, place: str) -> RequestPart:
    name = expect_text(item.get("name"), f"{place}.name")
    arguments = expect_text(item.get(field), f"{place}.{field}")
    return RequestPart(
        role="assistant",
        type="tool_use",
        text=sorted_json({field: arguments, "name": name}, place),
        tool_id=expect_text(item.get("call_id"), f"{place}.call_id"),
        tool_name=name,
    )


def _other_part(kind: str, item: dict[str, Any], place: str) -> RequestPart:
    """An item of another type: calls and their outputs are told by the end of its name."""
    text = sorted_json({name: value for name, value in item.items() if name not in _VOLATILE}, place)
    tool_id = optional_text(item.get("call_id"))
    if kind.endswith("_call"):
        return RequestPart(
            role="assistant", type="tool_use", text=text, tool_id=tool_id, tool_name=_tool_name(item)
        )
    if kind.endswith("_output"):
        return RequestPart(role="tool", type="tool_result", text=text, tool_id=tool_id)
    return RequestPart(role="user", type="opaque", text=text)


def _written_tool(index: int, description: bytes) -> bytes:
    schema = b'"parameters":{"type":"object","properties":{}}'
    return b'{"type":"function","name":"tool_%d","description":"%b",%b}' % (index, description, schema)


def _written_items(index: int, message: WireMessage) -> Iterator[bytes]:
    for number, part in enumerate(joined_texts(message.parts)):
        if part.kind == "tool_use":
            yield _written_call(part)
        elif part.kind == "tool_result":
            call_id = orjson.dumps(part.tool_id)
            yield b'{"type":"function_call_output","call_id":%b,"output":"%b"}' % (call_id, part.text)
        elif message.role == "user":
            content = b'[{"type":"input_text","text":"%b"}]' % part.text
            yield b'{"type":"message","role":"user","content":%b}' % content
        else:
            # Dynamo and vLLM take an answer of the model back only with all fields it was given with.
            content = b'[{"type":"output_text","text":"%b","annotations":[]}]' % part.text
            yield (
                b'{"type":"message","id":"msg_%d_%d","status":"completed","role":"assistant","content":%b}'
                % (index, number, content)
            )


def _written_call(part: WirePart) -> bytes:
    return b'{"type":"function_call","call_id":%b,"name":%b,"arguments":"{\\"text\\":\\"%b\\"}"}' % (
        orjson.dumps(part.tool_id),
        orjson.dumps(part.tool_name),
        escaped_twice(part.text),
    )


def _usage(usage: Any) -> Usage:
    details = usage.get("input_tokens_details") if isinstance(usage, dict) else None
    output_details = usage.get("output_tokens_details") if isinstance(usage, dict) else None
    return Usage(
        input_tokens=count(usage, "input_tokens"),
        cache_read_tokens=count(details, "cached_tokens"),
        cache_write_5m_tokens=count(details, "cache_write_tokens"),
        output_tokens=count(usage, "output_tokens"),
        reasoning_tokens=count(output_details, "reasoning_tokens"),
    )


def _finish(response: Mapping[str, Any]) -> str | None:
    """Why it is incomplete, else its status: vLLM calls a cut answer completed and tells the reason beside it."""
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return optional_text(reason) or optional_text(response.get("status"))


def _tool_name(item: Mapping[str, Any]) -> str:
    return optional_text(item.get("name")) or optional_text(item.get("type")) or ""


def _message_text(item: Mapping[str, Any]) -> str:
    return _texts(item.get("content"), "text", "refusal")


def _reasoning_text(item: Mapping[str, Any]) -> str:
    return _texts(item.get("content"), "text") or _texts(item.get("summary"), "text")


def _texts(content: Any, *names: str) -> str:
    """The strings in these fields of a list's objects, joined; empty if it is no list."""
    if not isinstance(content, list):
        return ""
    pieces = [block.get(name) for block in content if isinstance(block, dict) for name in names]
    return "".join(piece for piece in pieces if isinstance(piece, str))
