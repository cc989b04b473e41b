"""Pure: the state of a streamed answer, as far as the wire protocols agree."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

import orjson

from aitrace.protocols.bodies import error_message
from aitrace.protocols.protocol import TokenKind
from aitrace.protocols.same_shape import Shape, shape_of
from aitrace.schema import MAX_COUNT, Usage
from aitrace.sse import SseEvent

DONE = b"[DONE]"
# Anthropic's three counters are added up.
_MAX_REPORTED = MAX_COUNT // 4
_VAIN_SHAPES = 8
"""After so many in a row that no event followed, a stream's events are taken to be all different."""
_COUNTERS = tuple(field.name for field in fields(Usage))
_NO_USAGE = Usage()


class ShapeError(Exception):
    """An event whose JSON is not of the protocol."""


class JsonStreamReader(ABC):
    """A `StreamReader` of events that carry JSON; a protocol adds `_take`, `_only_text` and, if it has one, its end mark.

    Events that are like the one before but for the text of their delta are not decoded.
    """

    def __init__(self) -> None:
        self.usage = _NO_USAGE
        self.finish: str | None = None
        self.done = False
        self.error: str | None = None
        self.text: list[str] = []
        self.ended_tools: list[str] = []
        self.unparsed_events = 0
        self._shape: Shape | None = None
        self._shape_kind: TokenKind | None = None
        self._shape_is_used = False
        self._vain_shapes = 0

    def read(self, event: SseEvent) -> TokenKind | None:
        """Take in one event; tells what kind of token it carried, None for anything else."""
        if self._shape is not None and event.type != "error":
            text = self._shape.text_in(event.data)
            if text is not None:
                self._shape_is_used = True
                if self._shape_kind == "content":
                    self.text.append(text)
                return self._shape_kind
        return self._decode(event)

    def _decode(self, event: SseEvent) -> TokenKind | None:
        known, self._shape = self._shape, None
        if event.data == DONE:
            self._take_end_mark()
            return None
        try:
            payload = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            payload = None
        if event.type == "error" or is_error(payload):
            self.error = described_error(payload) or event.data[:200].decode(errors="replace")
            return None
        if not isinstance(payload, dict):
            self.unparsed_events += 1
            return None
        try:
            kind = self._take(payload)
        except ShapeError:
            self.unparsed_events += 1
            return None
        # The first delta of a kind is rarely like the others, and a short answer has no others.
        if kind is not None and kind == self._shape_kind and self._vain_shapes < _VAIN_SHAPES:
            self._vain_shapes = 0 if known is None or self._shape_is_used else self._vain_shapes + 1
            self._shape_is_used = False
            text = self._only_text(payload)
            self._shape = shape_of(event.data, text) if text else None
        self._shape_kind = kind
        return kind

    @abstractmethod
    def _take(self, payload: dict[str, Any]) -> TokenKind | None:
        """Take in the payload of one event.

        Raises:
            ShapeError: it is not of the protocol.
        """

    @abstractmethod
    def _only_text(self, payload: dict[str, Any]) -> str | None:
        """The text of a delta that was taken in, if another one with another text would change nothing but the text.

        None for events that open, end or report something, and for those that carry more than one text.
        """

    def _take_end_mark(self) -> None:  # noqa: B027 # most protocols have none
        """`[DONE]` came. Dynamo sends it after the other protocols' own end too, where it says nothing."""


def is_error(payload: Any) -> bool:
    """Whether this is an error object, as vLLM puts them into streams of status 200 in all three protocols."""
    if not isinstance(payload, dict):
        return False
    return payload.get("type") == "error" or bool(payload.get("error"))


def described_error(payload: Any) -> str | None:
    """Message of an error object and, since no status came with it, its code or type; None if it has no message."""
    message = error_message(payload)
    if message is None or not isinstance(payload, dict):
        return message
    error = payload.get("error")
    details = error if isinstance(error, dict) else payload
    marks = [details.get("code"), details.get("type")]
    mark = next(
        (str(mark) for mark in marks if isinstance(mark, (str, int)) and mark not in ("", "error")), None
    )
    return message if mark is None or mark == message else f"{message} ({mark})"


def shaped_object(owner: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object in this field."""
    value = owner.get(name)
    if not isinstance(value, dict):
        raise ShapeError
    return cast("dict[str, Any]", value)


def shaped_text(owner: Mapping[str, Any], name: str) -> str:
    """The string in this field; empty if it is absent or null."""
    value = owner.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ShapeError
    return value


def shaped_index(owner: Mapping[str, Any], name: str) -> int:
    """The number in this field; 0 if it is absent or null."""
    value = owner.get(name)
    if value is None:
        return 0
    if not isinstance(value, int):
        raise ShapeError
    return value


def count(owner: Any, *names: str) -> int | None:
    """The first of these counters that the object reports as a number of at least 0; None if none is.

    More than a trace can hold once a protocol's counters are added up is no number of tokens.
    """
    if not isinstance(owner, dict):
        return None
    for name in names:
        value = owner.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_REPORTED:
            return value
    return None


def newer_usage(old: Usage, new: Usage) -> Usage:
    """Each counter's latest report; a counter that the new report lacks keeps its old one."""
    if old is _NO_USAGE:
        return new
    reports = {name: getattr(new, name) for name in _COUNTERS}
    return replace(old, **{name: tokens for name, tokens in reports.items() if tokens is not None})
