"""Pure: the log of requests that newer versions of Claude Code keep between the lines of a transcript.

A request is listed as messages kept from an earlier one and messages that follow, each by the hash of its JSON. What
cannot be told from the transcript stands in a line of its own before it, as do system prompt and tools:

    {"type": "api-request-shape", "shapeHash": "85fc…", "shape": {"system": […], "tools": […]}}
    {"type": "api-request-blob", "hash": "b79f…", "message": {"role": "user", "content": […]}}
    {"type": "api-request", "id": "4b6c…", "shapeHash": "85fc…", "keep": 0, "tail": ["b79f…"], "params": {…}}
    {"type": "api-request", "id": "3fe0…", "shapeHash": "85fc…", "base": "4b6c…", "keep": 1, "tail": ["4056…"], …}
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from aitrace.formats.format import Tally, model_from_name
from aitrace.formats.history_fields import count_of, note_odd_message, object_in, parts_from_message
from aitrace.harnesses.claude_code import ClaudeCode
from aitrace.protocols.anthropic import AnthropicProtocol
from aitrace.protocols.protocol import MalformedRequestError, RequestPart

_PROTOCOL = AnthropicProtocol()
_DETECTOR = ClaudeCode()
_STANDS_IN = "a logged request names a message that is in no line; what the lines since the last request say stands for it"
_UNRESOLVED = (
    "a logged request names a message that is in no line; its prompt is built from the lines before it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request of the log."""

    place: str
    """Its line."""
    id: str
    """Its id, which answers refer to."""
    at_ns: int
    """When it was made, ns since 1970."""
    model: str | None
    """Model asked for."""
    max_output_tokens: int | None
    """Its limit on the answer."""
    history: list[RequestPart] | None
    """The conversation, as in `HistoryCall`; None if it could not be put together."""
    length: int
    """Parts of the prompt."""


@dataclass(slots=True, kw_only=True)
class _Chain:
    """The messages of a request that could be put together."""

    shape: str
    """Hash of system prompt and tools."""
    messages: list[str]
    """Hashes of the messages."""
    ends: list[int]
    """Parts of the prompt up to the end of each message; before them, at index 0, those of the shape."""
    history: list[RequestPart]
    """Shared with the requests that it continues."""


class RequestLog:
    """Puts the prompts of one transcript's logged requests together."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._shapes: dict[str, tuple[RequestPart, ...]] = {}
        self._messages: dict[str, tuple[RequestPart, ...]] = {}
        self._results: dict[str, RequestPart] = {}
        self._chains: dict[str, _Chain] = {}

    def add_shape(self, row: Mapping[str, Any], place: str) -> None:
        """System prompt and tools."""
        shape = object_in(row, "shape")
        # The protocol knows no body without a message, so one is put in and taken out again.
        body = {"model": "-", "system": shape.get("system"), "tools": shape.get("tools")}
        body["messages"] = [{"role": "user", "content": "-"}]
        try:
            parts = _DETECTOR.normalised(_PROTOCOL.read_request(orjson.dumps(body)).parts[:-1])
        except (MalformedRequestError, orjson.JSONEncodeError):
            note_odd_message(place, self._tally)
            return
        self._shapes[str(row.get("shapeHash"))] = parts

    def add_blob(self, row: Mapping[str, Any], place: str) -> None:
        """A message of its own line."""
        self._add(str(row.get("hash")), object_in(row, "message"), place)

    def add_message(self, role: str, content: object, place: str) -> None:
        """A message of the transcript; a request may name it without repeating it."""
        found = [content]
        if isinstance(content, str):
            found.append([{"type": "text", "text": content}])
        for value in found:
            message = {"role": role, "content": value}
            name = message_hash(message)
            if name is not None and name not in self._messages:
                self._add(name, message, place)

    def _add(self, name: str, message: Mapping[str, Any], place: str) -> None:
        parts = parts_from_message(_PROTOCOL, "messages", message, place, self._tally)
        self._messages[name] = parts
        for part in parts:
            if part.type == "tool_result" and part.tool_id is not None:
                self._results[part.tool_id] = part

    def request(
        self, row: Mapping[str, Any], at_ns: int, place: str, added: Sequence[RequestPart] = ()
    ) -> LoggedRequest:
        """The request that a line describes.

        Args:
            at_ns: When the line was written.
            added: What the transcript says since the request before.
        """
        params = object_in(row, "params")
        chain = self._chain(row, place, added)
        request_id = str(row.get("id"))
        if chain is None:
            self._tally.remark("unresolved_request", _UNRESOLVED, place)
        else:
            self._chains[request_id] = chain
        return LoggedRequest(
            place=place,
            id=request_id,
            at_ns=at_ns,
            model=model_from_name(params.get("model")),
            max_output_tokens=count_of(params, "max_tokens", place, self._tally),
            history=None if chain is None else chain.history,
            length=0 if chain is None else chain.ends[-1],
        )

    def _chain(self, row: Mapping[str, Any], place: str, added: Sequence[RequestPart]) -> _Chain | None:
        shape, keep, tail = str(row.get("shapeHash")), row.get("keep"), row.get("tail")
        if not isinstance(keep, int) or keep < 0 or not isinstance(tail, list):
            return None
        base = self._chains.get(str(row.get("base"))) if row.get("base") is not None else None
        if shape not in self._shapes or (keep and (base is None or keep > len(base.messages))):
            return None
        if base is None or base.shape != shape:
            kept = base.messages[:keep] if base is not None else []
            chain = _Chain(shape=shape, messages=[], ends=[], history=list(self._shapes[shape]))
            chain.ends.append(len(chain.history))
            tail = [*kept, *tail]
        else:
            chain = _Chain(
                shape=shape,
                messages=base.messages[:keep],
                ends=base.ends[: keep + 1],
                history=base.history,
            )
            if len(chain.history) != chain.ends[-1]:
                chain.history = chain.history[: chain.ends[-1]]
        names = [str(name) for name in tail]
        messages = self._resolved(names, chain)
        if messages is None and chain.messages and added:
            self._tally.remark("substituted_message", _STANDS_IN, place)
            messages = self._substituted(names, added)
        # The base's history is grown only once all messages are known.
        if messages is None:
            return None
        for name, parts in zip(names, messages, strict=True):
            chain.history.extend(parts)
            chain.messages.append(name)
            chain.ends.append(len(chain.history))
        return chain

    def _resolved(self, names: Sequence[str], chain: _Chain) -> list[tuple[RequestPart, ...]] | None:
        before = self._messages.get(chain.messages[-1], ()) if chain.messages else ()
        found: list[tuple[RequestPart, ...]] = []
        for name in names:
            parts = self._messages.get(name)
            if parts is None:
                parts = self._results_of(before)
            if parts is None:
                return None
            self._messages[name] = before = parts
            found.append(parts)
        return found

    def _substituted(
        self, names: Sequence[str], added: Sequence[RequestPart]
    ) -> list[tuple[RequestPart, ...]]:
        """The messages; the first that is not known is all that was added and is in none of the known ones."""
        known = {part for name in names for part in self._messages.get(name, ())}
        rest = tuple(part for part in added if part not in known)
        for name in names:
            if name not in self._messages:
                self._messages[name] = rest
                rest = ()
        return [self._messages[name] for name in names]

    def _results_of(self, calls: Sequence[RequestPart]) -> tuple[RequestPart, ...] | None:
        """The message that answers these tool calls: results that came one by one are sent as one."""
        ids = [part.tool_id for part in calls if part.type == "tool_use" and part.tool_id is not None]
        found = [self._results[tool_id] for tool_id in ids if tool_id in self._results]
        return tuple(found) if ids and len(found) == len(ids) else None


def message_hash(message: Mapping[str, Any]) -> str | None:
    """The name that the log gives to a message; None if it cannot have one."""
    try:
        return hashlib.sha256(orjson.dumps(message, option=orjson.OPT_SORT_KEYS)).hexdigest()
    except orjson.JSONEncodeError:
        return None
