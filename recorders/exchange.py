"""Pure: one call as it goes over the wire: what was asked, and how the answer came and ended."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from aitrace.assembly import Answer
from aitrace.harnesses.routes import Route
from aitrace.no_text import is_encoding, is_finish
from aitrace.observe import Observation, ResponseObserver
from aitrace.protocols import PROTOCOLS
from aitrace.protocols.anthropic import read_token_count
from aitrace.protocols.protocol import Reply, Request
from aitrace.protocols.responses import ResponsesStreamReader
from aitrace.schema import CallTimes, EndedBy, ErrorKind, Outcome, Wire
from recorders.chains import ResponseChains, WholePrompt
from recorders.content_coding import ContentDecoder, codings, decoded_body
from recorders.notes import Asked, How

_ERRORS: dict[How, ErrorKind | None] = {
    "complete": None,
    "client": "client_abort",
    "server": "cut",
    "connect": "connect",
    "unrecorded": "unrecorded",
}


_STATUSES = range(100, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A request that was read."""

    route: Route
    """Where it went."""
    path: str
    """Path without the query; for a message of a WebSocket that of the handshake."""
    headers: Mapping[str, str]
    """Headers by lower-case name; for a message of a WebSocket those of the handshake."""
    request: Request
    """What was asked."""
    prompt: WholePrompt
    """Its prompt with the history that it continues."""
    request_ns: int
    """When it was complete, on the trace's clock."""
    wire: Wire
    """How it was carried."""

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is to come in events: on a WebSocket it always does."""
        return self.request.stream or self.wire.transport == "websocket"

    @property
    def may_be_continued(self) -> bool:
        """Whether a later request may name the answer to this one instead of repeating the history."""
        is_kept = self.wire.transport == "websocket" or self.request.body.get("store") is not False
        return self.route.protocol == "responses" and is_kept


def read_http_request(asked: Asked, route: Route, request_ns: int, chains: ResponseChains) -> Requested:
    """The request in a body.

    Raises:
        ContentCodingError: The body cannot be decoded.
        MalformedRequestError: It is not of the protocol.
    """
    encoding = asked.headers.get("content-encoding")
    request = PROTOCOLS[route.protocol].read_request(decoded_body(asked.body, encoding))
    return Requested(
        route=route,
        path=asked.path,
        headers=asked.headers,
        request=request,
        prompt=chains.whole_prompt(request),
        request_ns=request_ns,
        wire=Wire(
            transport=asked.transport,
            connection=asked.connection,
            request_bytes=len(asked.body),
            request_encoding=_encoding_name(encoding),
        ),
    )


class _ReplyReader:
    """Reads an answer that is one JSON body.

    Not a method of the call: a call that refers to itself would keep a prompt of megabytes until Python looks for cycles.
    """

    def __init__(self, route: Route, *, is_kept: bool) -> None:
        self.body = b""
        """The answer, if a later request may continue it; empty before it was read."""
        self._route = route
        self._is_kept = is_kept

    def read(self, body: bytes) -> Reply:
        if self._route.is_count_tokens:
            return read_token_count(body)
        reply = PROTOCOLS[self._route.protocol].read_reply(body)
        self.body = body if self._is_kept else b""
        return reply


class WatchedCall:
    """A call under way. All times are on the trace's clock."""

    def __init__(self, requested: Requested) -> None:
        self.requested = requested
        """What was asked."""
        self.call_id: int | None = None
        """The call's id in the trace; None if it is not written."""
        self._replies = _ReplyReader(requested.route, is_kept=requested.may_be_continued)
        self._observer = ResponseObserver(
            PROTOCOLS[requested.route.protocol],
            streamed=requested.is_streamed,
            keep_timeline=True,
            read_reply=self._replies.read,
        )
        self._decoder = ContentDecoder(None)
        self._wire = requested.wire
        self._response_bytes = 0
        self._messages = 0
        self._forwarded_ns: int | None = None
        self._first_byte_ns: int | None = None
        self._last_byte_ns: int | None = None

    @property
    def is_undecodable(self) -> bool:
        """Whether the answer's body cannot be decoded to its end."""
        return self._decoder.error is not None

    @property
    def unparsed(self) -> int:
        """Events of the answer that could not be read."""
        return self._observer.reader.unparsed_events

    @property
    def answered_ns(self) -> int | None:
        """When the last byte came of a stream whose protocol's own end was seen; None before that."""
        return self._last_byte_ns if self._observer.reader.done else None

    def on_connected(self, connect_ns: int, at_ns: int) -> None:
        """The request goes on to the endpoint."""
        self._wire = replace(self._wire, connect_ns=connect_ns)
        self._forwarded_ns = at_ns

    def on_headers(self, status: int, headers: Mapping[str, str], at_ns: int) -> None:
        """Status and headers of the answer came. Behind its first byte they are of no use: it was read without them."""
        if self._first_byte_ns is not None:
            return
        encoding = headers.get("content-encoding")
        self._decoder = ContentDecoder(encoding)
        self._wire = replace(self._wire, response_encoding=_encoding_name(encoding))
        self._observer.on_headers(status, headers, at_ns)

    def on_chunk(self, data: bytes, at_ns: int) -> None:
        """A piece of the answer's body came, as on the wire."""
        self._count(len(data), at_ns)
        self._observer.on_chunk(self._decoder.feed(data), at_ns)

    def on_message(self, data: bytes, at_ns: int) -> bool:
        """A message of the answer came over a WebSocket; tells whether it is the last."""
        self._count(len(data), at_ns)
        self._messages += 1
        self._observer.on_event(data, at_ns)
        reader = self._observer.reader
        if reader.error is not None and not reader.done and self._messages == 1:
            self._take_refusal(data, at_ns)
        return reader.done or reader.error is not None

    def on_end(self, how: How, at_ns: int) -> Answer:
        """The call is over; for one that was lost, `at_ns` is when it was."""
        error = _ERRORS[how]
        if how == "complete":
            self._decoder.finish()
            error = "unrecorded" if self.is_undecodable else None
        seen = self._observer.on_end(at_ns, error)
        is_lost = seen.error == "unrecorded"
        finish = seen.finish
        return Answer(
            outcome=Outcome(
                # A server can write any number there.
                status=seen.status if seen.status in _STATUSES else None,
                error=seen.error,
                # A word of the protocol; anything else might be anything.
                finish=finish if finish is not None and is_finish(finish) else None,
                retry_after_ns=seen.retry_after_ns,
                ended_by=_ended_by(how, seen.error),
            ),
            usage=seen.usage,
            times=self._times(seen, how, at_ns),
            tool_calls=None if is_lost and not seen.tool_calls else seen.tool_calls,
            events=seen.timeline,
            wire=replace(self._wire, response_bytes=self._sent_bytes()),
        )

    def continued_by(self) -> tuple[str, list[dict[str, Any]]] | None:
        """Id and items of the answer, if a later request may continue it; to be asked after `on_end`."""
        if not self.requested.may_be_continued:
            return None
        reader = self._observer.reader
        if isinstance(reader, ResponsesStreamReader) and reader.response_id is not None:
            return reader.response_id, reader.output
        if not self._replies.body:
            return None
        value = orjson.loads(self._replies.body)
        items = [item for item in value["output"] if isinstance(item, dict)]
        return (value["id"], items) if isinstance(value.get("id"), str) else None

    def _take_refusal(self, data: bytes, at_ns: int) -> None:
        """An error instead of an answer may carry the status and headers that it would have had over HTTP."""
        message = orjson.loads(data)
        status, headers = message.get("status"), message.get("headers")
        if not isinstance(status, int) or not 400 <= status <= 599:
            return
        texts = headers.items() if isinstance(headers, dict) else ()
        self._observer.on_headers(status, {name: str(value) for name, value in texts}, at_ns)

    def _count(self, size_bytes: int, at_ns: int) -> None:
        if not size_bytes:
            return
        self._response_bytes += size_bytes
        self._last_byte_ns = at_ns
        if self._first_byte_ns is None:
            self._first_byte_ns = at_ns

    def _sent_bytes(self) -> int | None:
        """Bytes of the body; not known on a WebSocket, whose messages come to us decompressed."""
        return None if self._wire.transport == "websocket" else self._response_bytes

    def _times(self, seen: Observation, how: How, at_ns: int) -> CallTimes:
        end_ns: int | None = at_ns
        if how == "unrecorded":
            # The protocol's own end was seen, or nobody knows when it was.
            end_ns = self._last_byte_ns if seen.error is None else None
        times = CallTimes(
            request_ns=self.requested.request_ns,
            forwarded_ns=self._forwarded_ns,
            headers_ns=seen.headers_ns,
            # The observer sees bytes only once they are decoded.
            first_byte_ns=self._first_byte_ns,
            end_ns=end_ns,
        )
        if self.requested.route.is_count_tokens:
            return times
        if seen.timeline is None and seen.error is None and end_ns is not None:
            # A whole answer is there when its last byte is, which is before we hear that the exchange is over.
            visible_ns = None if seen.first_visible_ns is None else end_ns
            return replace(times, first_token_ns=end_ns, first_visible_ns=visible_ns, last_token_ns=end_ns)
        return replace(
            times,
            first_event_ns=seen.first_event_ns,
            first_token_ns=seen.first_token_ns,
            first_visible_ns=seen.first_visible_ns,
            last_token_ns=seen.last_token_ns,
        )


def _ended_by(how: How, error: ErrorKind | None) -> EndedBy:
    if error == "unrecorded":
        return "recorder"
    return "client" if how == "client" else "server"


def _encoding_name(encoding: str | None) -> str | None:
    """The codings as a trace names them; None if there are none, or one that we do not know."""
    name = ", ".join(codings(encoding))
    return name if is_encoding(name) else None
