"""Pure: reading and writing of JSON bodies, as far as the wire protocols agree."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

import orjson

from aitrace.errors import shown
from aitrace.protocols.protocol import (
    MalformedRequestError,
    MalformedResponseError,
    Request,
    RequestPart,
    RequestSpec,
    WirePart,
    WireProtocol,
)
from aitrace.schema import Role, SegmentType

_ERROR_CHARS = 200
_OPENAI_ERRORS: dict[int, tuple[str, str | None]] = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("not_found_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
    529: ("service_unavailable_error", "server_is_overloaded"),
}


def read_request(
    body: bytes, read_parts: Callable[[dict[str, Any]], Iterable[RequestPart]], *limits: str
) -> Request:
    """The request in a body.

    Args:
        read_parts: Gives the prompt in the decoded body.
        limits: Fields that bound the answer; the first that is set counts.
    """
    try:
        value = expect_object(orjson.loads(body), "body")
    except orjson.JSONDecodeError as error:
        raise MalformedRequestError(f"body: expected a JSON object, got {error}") from error
    return Request(
        model=expect_text(value.get("model"), "model"),
        stream=_optional_flag(value, "stream"),
        max_output_tokens=optional_limit(value, *limits),
        parts=tuple(read_parts(value)),
        body=value,
    )


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object that an answer is; an error in its place is not of the protocol."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedResponseError(f"expected a JSON object, got {error}") from error
    if not isinstance(value, dict):
        raise MalformedResponseError(f"expected a JSON object, got {shown(value)}")
    if value.get("error") is not None:
        raise MalformedResponseError(error_text(body))
    return cast("dict[str, Any]", value)


def read_answer(body: bytes, member: str) -> dict[str, Any]:
    """The JSON object of an answer that has the list `member`."""
    value = read_object(body)
    if not isinstance(value.get(member), list):
        raise MalformedResponseError(f"{member}: expected a list, got {shown(value.get(member))}")
    return value


def expect_object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedRequestError(f"{place}: expected an object, got {shown(value)}")
    return cast("dict[str, Any]", value)


def expect_list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedRequestError(f"{place}: expected a list, got {shown(value)}")
    return value


def expect_text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise MalformedRequestError(f"{place}: expected a string, got {shown(value)}")
    return value


def expect_one_of(value: Any, allowed: Iterable[str], place: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise MalformedRequestError(f"{place}: expected one of {', '.join(allowed)}, got {shown(value)}")
    return value


def _optional_flag(body: Mapping[str, Any], name: str) -> bool:
    """A boolean field; False if it is absent or null."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedRequestError(f"{name}: expected true or false, got {shown(value)}")
    return value is True


def optional_limit(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of these fields that is set, a number of tokens; None if none is."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise MalformedRequestError(f"{name}: expected an integer of at least 0, got {shown(value)}")
        return value
    return None


def objects(value: Any, place: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each object of a list together with its place."""
    for index, item in enumerate(expect_list(value, place)):
        item_place = f"{place}[{index}]"
        yield expect_object(item, item_place), item_place


def blocks(content: Any, place: str) -> Iterator[tuple[dict[str, Any] | str, str]]:
    """Content that may be a string or a list of typed blocks: each piece with its place. Empty strings are none."""
    if isinstance(content, str):
        if content:
            yield content, place
        return
    if not isinstance(content, list):
        raise MalformedRequestError(f"{place}: expected a string or a list, got {shown(content)}")
    for block, block_place in objects(content, place):
        expect_text(block.get("type"), f"{block_place}.type")
        yield block, block_place


def text_part(role: Role, value: Any, place: str, type_: SegmentType | None = None) -> Iterator[RequestPart]:
    """One part for a text, none for an empty one; the texts of `system` have its type."""
    text = expect_text(value, place)
    if text:
        yield RequestPart(role=role, type=type_ or ("system" if role == "system" else "text"), text=text)


def tool_parts(value: Any, place: str) -> Iterator[RequestPart]:
    """One part for each tool definition of a list; none for null."""
    if value is None:
        return
    for tool, tool_place in objects(value, place):
        function = tool.get("function")
        name = (function if isinstance(function, dict) else tool).get("name")
        yield RequestPart(
            role="system",
            type="tool_definition",
            text=sorted_json(without_marks(tool), tool_place),
            tool_name=name if isinstance(name, str) else None,
        )


def result_text(content: Any, place: str) -> str:
    """Text of a tool result: a string, null, the one text of a list, or else the list as JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    pieces = [without_marks(item) for item, _ in objects(content, place)]
    if len(pieces) == 1 and isinstance(pieces[0].get("text"), str):
        return cast("str", pieces[0]["text"])
    return sorted_json(pieces, place)


def optional_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def without_marks(block: dict[str, Any]) -> dict[str, Any]:
    """The block without its cache mark, which clients move about and no model sees."""
    return {name: value for name, value in block.items() if name != "cache_control"}


def sorted_json(value: Any, place: str) -> str:
    """The value as JSON with sorted keys, so that equal values have equal text."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError as error:
        raise MalformedRequestError(f"{place}: expected less nesting, got {error}") from error


def joined_texts(parts: Iterable[WirePart]) -> Iterator[WirePart]:
    """The parts with each run of adjacent texts joined into one."""
    run: list[bytes] = []
    for part in parts:
        if part.kind == "text":
            run.append(part.text)
            continue
        if run:
            yield WirePart(kind="text", text=b"".join(run))
            run = []
        yield part
    if run:
        yield WirePart(kind="text", text=b"".join(run))


def escaped_twice(text: bytes) -> bytes:
    """Escaped JSON string content as content of a string inside a string."""
    return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def write_request(protocol: WireProtocol, spec: RequestSpec) -> bytes:
    """The body that asks for this."""
    before, after = protocol.write_frame(spec)
    prompt = protocol.write_start(spec.tools, spec.system) + protocol.write_messages(spec.messages)
    return before + prompt.removesuffix(b",") + after


def frame(
    head: Mapping[str, Any], extra: Mapping[str, Any], prompt_fields: AbstractSet[str]
) -> tuple[bytes, bytes]:
    """What stands before and after the prompt: head fields, the end of the list of messages, and extra fields.

    An extra field of a head field's name replaces its value.

    Raises:
        ValueError: an extra field would replace a part of the prompt.
    """
    if not extra:
        return orjson.dumps(head)[:-1] + b",", b"]}"
    clash = sorted(prompt_fields & extra.keys())
    if clash:
        raise ValueError(f"extra field {clash[0]!r} is written from the prompt")
    first = {name: extra.get(name, value) for name, value in head.items()}
    last = {name: value for name, value in extra.items() if name not in head}
    return orjson.dumps(first)[:-1] + b",", b"]," + orjson.dumps(last)[1:] if last else b"]}"


def tools_field(tools: Sequence[bytes], write: Callable[[int, bytes], bytes]) -> bytes:
    """The field of the tool definitions, with a comma behind it; empty without any.

    Args:
        write: One definition, from its place and its text.
    """
    return b'"tools":[%b],' % b",".join(map(write, range(len(tools)), tools)) if tools else b""


def ended(items: Iterable[bytes]) -> bytes:
    """Items of a list, each with a comma behind it."""
    return b"".join([item + b"," for item in items])


def error_text(body: bytes) -> str:
    """Message of an error body in the shapes in use; the start of the body if it has none of them."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    return error_message(value) or body[:_ERROR_CHARS].decode(errors="replace")


def error_message(value: Any) -> str | None:
    """Message of a decoded error: nested (both vendors), un-nested (Dynamo), `detail` (FastAPI), or a bare string."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return None
    nested = error_message(value.get("error"))
    if nested:
        return nested
    for name in ("message", "detail", "code", "type"):
        found = value.get(name)
        if isinstance(found, str) and found:
            return found
    return None


def write_openai_error(status: int, message: str) -> bytes:
    """Error body in the shape that the Responses and the Chat API share."""
    other = ("server_error" if status >= 500 else "invalid_request_error", None)
    kind, code = _OPENAI_ERRORS.get(status, other)
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
