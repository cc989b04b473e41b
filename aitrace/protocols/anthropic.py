"""Pure: the Anthropic Messages protocol."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from aitrace.protocols.bodies import (
    blocks,
    ended,
    error_text,
    expect_list,
    expect_one_of,
    expect_text,
    frame,
    joined_texts,
    objects,
    optional_text,
    read_answer,
    read_object,
    read_request,
    result_text,
    sorted_json,
    text_part,
    tool_parts,
    tools_field,
    without_marks,
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
    shaped_index,
    shaped_object,
    shaped_text,
)
from aitrace.schema import ProtocolName, Role, Usage

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_PROMPT_FIELDS = frozenset({"tools", "system", "messages"})
_TEXT_FIELDS = ("text", "thinking", "partial_json")
_QUIET_EVENTS = frozenset({"ping", "message_start", "message_delta", "content_block_stop", "message_stop"})


class AnthropicProtocol:
    """Both directions of `POST /v1/messages`."""

    name: ProtocolName = "anthropic"
    path = "/v1/messages"

    def read_request(self, body: bytes) -> Request:
        return read_request(body, _request_parts, "max_tokens")

    def write_request(self, spec: RequestSpec) -> bytes:
        return write_request(self, spec)

    def write_frame(self, spec: RequestSpec) -> tuple[bytes, bytes]:
        head = {"model": spec.model, "max_tokens": spec.max_output_tokens, "stream": spec.stream}
        return frame(head, spec.extra, _PROMPT_FIELDS)

    def write_start(self, tools: Sequence[bytes], system: bytes) -> bytes:
        return b"".join(
            (
                tools_field(tools, _written_tool),
                b'"system":"%b",' % system if system else b"",
                b'"messages":[',
            )
        )

    def write_messages(self, messages: Sequence[WireMessage], first: int = 0) -> bytes:  # noqa: ARG002 - others number
        return ended(map(_written_message, messages))

    def read_reply(self, body: bytes) -> Reply:
        value = read_answer(body, "content")
        content = [block for block in value["content"] if isinstance(block, dict)]
        tally = _UsageTally()
        tally.add(value.get("usage"))
        return Reply(
            usage=tally.usage(),
            finish=optional_text(value.get("stop_reason")),
            text="".join(
                optional_text(block.get("text")) or "" for block in content if block.get("type") == "text"
            ),
            tool_names=tuple(
                optional_text(block.get("name")) or "" for block in content if block.get("type") == "tool_use"
            ),
        )

    def open_stream(self) -> StreamReader:
        return AnthropicStreamReader()

    def read_error(self, body: bytes) -> str:
        return error_text(body)

    def write_error(self, status: int, message: str) -> bytes:
        kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})


def read_token_count(body: bytes) -> Reply:
    """The answer of `POST /v1/messages/count_tokens`: the size of the prompt, nothing generated.

    Raises:
        MalformedResponseError: it is none.
    """
    tokens = count(read_object(body), "input_tokens")
    if tokens is None:
        raise MalformedResponseError("input_tokens: expected a number of tokens")
    return Reply(usage=Usage(input_tokens=tokens), finish=None, text="", tool_names=())


class AnthropicStreamReader(JsonStreamReader):
    """What one streamed answer has said so far."""

    def __init__(self) -> None:
        super().__init__()
        self._tally = _UsageTally()
        self._open_tools: dict[int, str] = {}

    def _take(self, payload: dict[str, Any]) -> TokenKind | None:
        kind = shaped_text(payload, "type")
        # Dynamo reports usage in every delta, the vendor in `message_delta`.
        if payload.get("usage") is not None:
            self._report(payload["usage"])
        if kind == "content_block_delta":
            return self._delta(shaped_object(payload, "delta"))
        if kind == "content_block_start":
            return self._block_start(payload)
        if kind not in _QUIET_EVENTS:
            raise ShapeError
        if kind == "content_block_stop":
            name = self._open_tools.pop(shaped_index(payload, "index"), None)
            if name is not None:
                self.ended_tools.append(name)
        elif kind == "message_start":
            self._report(shaped_object(payload, "message").get("usage"))
        elif kind == "message_delta":
            self.finish = shaped_text(shaped_object(payload, "delta"), "stop_reason") or self.finish
        elif kind == "message_stop":
            self.done = True
        return None

    def _only_text(self, payload: dict[str, Any]) -> str | None:
        if payload.get("type") != "content_block_delta" or payload.get("usage") is not None:
            return None
        delta = payload["delta"]
        texts = [text for name in _TEXT_FIELDS if isinstance(text := delta.get(name), str) and text]
        return texts[0] if len(texts) == 1 else None

    def _report(self, usage: Any) -> None:
        self._tally.add(usage)
        self.usage = self._tally.usage()

    def _delta(self, delta: dict[str, Any]) -> TokenKind | None:
        match delta.get("type"):
            case "text_delta":
                return self._content(shaped_text(delta, "text"))
            case "thinking_delta":
                # With `display: omitted` the text is empty and an estimate of its tokens is all there is.
                has_token = shaped_text(delta, "thinking") or count(delta, "estimated_tokens")
                return "reasoning" if has_token else None
            case "input_json_delta":
                return "tool_call" if shaped_text(delta, "partial_json") else None
            case _:
                return None

    def _block_start(self, payload: dict[str, Any]) -> TokenKind | None:
        """A block's start is a token only if it brings the block's content with it."""
        block = shaped_object(payload, "content_block")
        match block.get("type"):
            case "tool_use":
                self._open_tools[shaped_index(payload, "index")] = shaped_text(block, "name")
                return "tool_call" if block.get("input") else None
            case "text":
                return self._content(shaped_text(block, "text"))
            case "thinking":
                return "reasoning" if shaped_text(block, "thinking") else None
            case _:
                return None

    def _content(self, text: str) -> TokenKind | None:
        if not text:
            return None
        self.text.append(text)
        return "content"


class _UsageTally:
    """The latest report of each counter.

    The three input counters may be added up only at the end: vLLM puts the total into `message_start` and the
    uncached part into `message_delta`, Dynamo a guess into the first and the truth into the second.
    """

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}

    def add(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        creation = usage.get("cache_creation")
        reports = {
            "input": count(usage, "input_tokens"),
            "read": count(usage, "cache_read_input_tokens"),
            "write": count(usage, "cache_creation_input_tokens"),
            "write_5m": count(creation, "ephemeral_5m_input_tokens"),
            "write_1h": count(creation, "ephemeral_1h_input_tokens"),
            "output": count(usage, "output_tokens"),
            "reasoning": count(usage.get("output_tokens_details"), "thinking_tokens"),
        }
        self._latest.update({name: tokens for name, tokens in reports.items() if tokens is not None})

    def usage(self) -> Usage:
        latest = self._latest
        write_5m, write_1h = latest.get("write_5m"), latest.get("write_1h")
        written = latest.get("write")
        if written is None and (write_5m is not None or write_1h is not None):
            written = (write_5m or 0) + (write_1h or 0)
        if written is not None:
            # The total is the newer report where both differ; what has no lifetime counts as short.
            write_1h = None if write_1h is None else min(write_1h, written)
            write_5m = written - (write_1h or 0)
        uncached = latest.get("input")
        return Usage(
            input_tokens=None if uncached is None else uncached + latest.get("read", 0) + (written or 0),
            cache_read_tokens=latest.get("read"),
            cache_write_5m_tokens=write_5m,
            cache_write_1h_tokens=write_1h,
            output_tokens=latest.get("output"),
            reasoning_tokens=latest.get("reasoning"),
        )


def _request_parts(value: dict[str, Any]) -> Iterator[RequestPart]:
    yield from tool_parts(value.get("tools"), "tools")
    if value.get("system") is not None:
        for block, place in blocks(value["system"], "system"):
            yield from _block_parts("system", block, place)
    messages = expect_list(value.get("messages"), "messages")
    if not messages:
        raise MalformedRequestError("messages: expected at least one message, got []")
    for message, place in objects(messages, "messages"):
        role = _ROLES[expect_one_of(message.get("role"), _ROLES, f"{place}.role")]
        for block, block_place in blocks(message.get("content"), f"{place}.content"):
            yield from _block_parts(role, block, block_place)


def _block_parts(role: Role, block: dict[str, Any] | str, place: str) -> Iterator[RequestPart]:
    if isinstance(block, str):
        yield from text_part(role, block, place)
        return
    kind = str(block["type"])
    if kind == "text":
        yield from text_part(role, block.get("text"), f"{place}.text")
    elif kind == "thinking":
        # With `display: omitted` the signature is all that stands for the thoughts.
        text = expect_text(block.get("thinking", ""), f"{place}.thinking")
        yield from text_part(role, text or block.get("signature", ""), f"{place}.signature", "thinking")
    elif kind == "redacted_thinking":
        yield from text_part(role, block.get("data", ""), f"{place}.data", "thinking")
    elif kind.endswith("tool_use"):
        name = expect_text(block.get("name"), f"{place}.name")
        yield RequestPart(
            role=role,
            type="tool_use",
            text=sorted_json({"input": block.get("input"), "name": name}, f"{place}.input"),
            tool_id=expect_text(block.get("id"), f"{place}.id"),
            tool_name=name,
        )
    elif kind.endswith("tool_result"):
        yield RequestPart(
            role="tool",
            type="tool_result",
            text=_tool_result_text(block, f"{place}.content"),
            tool_id=expect_text(block.get("tool_use_id"), f"{place}.tool_use_id"),
        )
    else:
        text = sorted_json(without_marks(block), place)
        yield RequestPart(role=role, type="image" if kind == "image" else "opaque", text=text)


def _tool_result_text(block: dict[str, Any], place: str) -> str:
    """Results of the vendor's own tools have an object as content, those of the client's a string or a list."""
    content = block.get("content")
    return sorted_json(content, place) if isinstance(content, dict) else result_text(content, place)


def _written_tool(index: int, description: bytes) -> bytes:
    schema = b'"input_schema":{"type":"object","properties":{}}'
    return b'{"name":"tool_%d","description":"%b",%b}' % (index, description, schema)


def _written_message(message: WireMessage) -> bytes:
    role = message.role.encode()
    parts = list(joined_texts(message.parts))
    if [part.kind for part in parts] == ["text"]:
        return b'{"role":"%b","content":"%b"}' % (role, parts[0].text)
    return b'{"role":"%b","content":[%b]}' % (role, b",".join(map(_written_block, parts)))


def _written_block(part: WirePart) -> bytes:
    if part.kind == "text":
        return b'{"type":"text","text":"%b"}' % part.text
    if part.kind == "tool_use":
        return b'{"type":"tool_use","id":%b,"name":%b,"input":{"text":"%b"}}' % (
            orjson.dumps(part.tool_id),
            orjson.dumps(part.tool_name),
            part.text,
        )
    return b'{"type":"tool_result","tool_use_id":%b,"content":"%b"}' % (orjson.dumps(part.tool_id), part.text)
