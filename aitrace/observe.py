"""Pure: what one HTTP exchange shows about a call, from its headers and body chunks and the times they came.

Used on both sides of the wire: by the replayer for its own calls, by the recorder for those of others. Bodies must be
handed in decoded (no content-encoding).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import orjson

from aitrace.protocols.protocol import MalformedResponseError, Reply, StreamReader, WireProtocol
from aitrace.protocols.streams import described_error, is_error
from aitrace.schema import ErrorKind, Events, ToolCall, Usage
from aitrace.signals import Signals, body_signals, bounded, header_signals, may_hold_signals
from aitrace.sse import MAX_EVENT_BYTES, SseEvent, SseParser
from aitrace.units import NS_PER_S

REFUSALS = frozenset({429, 503, 529})
"""Statuses that say "no room"."""
_ANSWERS = frozenset({None, 101, 200})
_ERROR_CHARS = 200
_TRAILING_CODE = re.compile(r" \([\w.-]{1,48}\)\Z")
_ERROR_BODY_BYTES = 65_536
_MAX_BODY_BYTES = MAX_EVENT_BYTES
_MAX_WAIT_S = 1_000_000_000
_GZIP_MARK = b"\x1f\x8b"
_COMPRESSED = "a compressed body, which was not asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One exchange as seen from outside; times are ns on the clock of whoever called, None = did not happen."""

    status: int | None
    """HTTP status; None if no headers came."""
    error: ErrorKind | None
    """None = a complete answer."""
    error_text: str | None
    """What the endpoint or the caller said about the error, at most 200 characters, a code in brackets at the
    end included; None if nothing or no error."""
    finish: str | None
    """Finish reason in the protocol's own word; None if none was given."""
    retry_after_ns: int | None
    """Wait asked for by `Retry-After`; None if the header was absent, unreadable (also: above 31 years), or a date
    without a `Date` header to count from."""
    usage: Usage
    """Tokens as reported."""
    headers_ns: int | None
    """Status and headers."""
    first_byte_ns: int | None
    """First byte of the body."""
    first_event_ns: int | None
    """First event of any type; None for an answer that is no stream."""
    first_token_ns: int | None
    """First content, reasoning or tool-call delta; the end for a whole answer that is no stream."""
    first_visible_ns: int | None
    """First delta of answer text; the end for a whole answer with text that is no stream."""
    last_token_ns: int | None
    """Last content, reasoning or tool-call delta; the end for a whole answer that is no stream."""
    end_ns: int
    """The exchange was over."""
    events: int
    """Events of the stream, of any type."""
    token_events: int
    """Events that carried a token or several."""
    unparsed_events: int
    """Events that could not be read."""
    unparsed_lines: int
    """Lines of the stream that are no field of an event."""
    longest_stall_ns: int | None
    """Longest silence after the first token: between two token events, or from the last one to the end. None if no
    token was streamed."""
    response_bytes: int
    """Bytes of the body."""
    tool_calls: tuple[ToolCall, ...]
    """Tool calls that were complete, with the names on the wire; `end_ns` is None if the answer was no stream."""
    timeline: Events | None
    """When each event came and the bytes of its data; None if not asked for or no stream."""
    text: str | None
    """Answer text without reasoning and tool calls; None if not asked for."""
    signals: Signals = field(default_factory=dict)
    """How it was served, by servers and routers, see `aitrace.signals`; empty if not asked for."""


class ResponseObserver:
    """Watches one response. Call `on_headers`, then `on_chunk` for each piece, and `on_end` once.

    Answers that come as messages of a WebSocket have no headers; `on_event` takes each message.

    Args:
        protocol: Wire protocol of the answer.
        streamed: Whether the request asked for a stream; the answer's content type decides where it tells.
        keep_timeline: Whether to keep time and size of each event.
        keep_text: Whether to keep the answer's text.
        read_reply: What reads an answer that is no stream; None for the protocol's own `read_reply`.
        signal_headers: Response headers to keep, in lower case, and with any of them the signals in the answer; None
            for neither.

    Examples:
        >>> from aitrace.protocols import PROTOCOLS
        >>> observer = ResponseObserver(PROTOCOLS["chat"], streamed=True)
        >>> observer.on_headers(429, {"Retry-After": "3"}, 100)
        >>> observer.on_end(200).error
        'refused'
    """

    def __init__(
        self,
        protocol: WireProtocol,
        *,
        streamed: bool,
        keep_timeline: bool = False,
        keep_text: bool = False,
        read_reply: Callable[[bytes], Reply] | None = None,
        signal_headers: frozenset[str] | None = None,
    ) -> None:
        self._protocol = protocol
        self._is_stream = streamed
        self._keep_timeline = keep_timeline
        self._keep_text = keep_text
        self._read_reply = read_reply or protocol.read_reply
        self.kept_headers: Signals = {}
        """Headers among `signal_headers` that came, in full."""
        self._signal_headers = signal_headers
        self._signals: Signals = {}
        self._location: str | None = None
        self.reader: StreamReader = protocol.open_stream()
        """What the events have said so far."""
        self._parser = SseParser()
        self._body: list[bytes] = []
        self._status: int | None = None
        self._retry_after_ns: int | None = None
        self._headers_ns: int | None = None
        self._first_byte_ns: int | None = None
        self._first_event_ns: int | None = None
        self._first_token_ns: int | None = None
        self._first_visible_ns: int | None = None
        self._last_token_ns: int | None = None
        self._longest_stall_ns = 0
        self._token_events = 0
        self._events = 0
        self._response_bytes = 0
        self._tools: list[ToolCall] = []
        self._at_ns: list[int] = []
        self._size_bytes: list[int] = []

    @property
    def is_spoilt(self) -> bool:
        """Whether nothing that still comes can be read: an event, or a body in one piece, has no end."""
        return self._parser.is_overlong or (not self._is_stream and self._response_bytes > _MAX_BODY_BYTES)

    def on_headers(self, status: int, headers: Mapping[str, str], at_ns: int) -> None:
        """Status and headers came; header names in any case."""
        known = {name.lower(): value for name, value in headers.items()}
        self._status = status
        self._headers_ns = at_ns
        self._retry_after_ns = retry_after_ns(
            known.get("retry-after"), known.get("date"), known.get("retry-after-ms")
        )
        self._location = known.get("location")
        if self._signal_headers is not None and not self._signal_headers.isdisjoint(known):
            self.kept_headers = header_signals(known, self._signal_headers)
        self._is_stream = _is_stream(status, known.get("content-type", ""), fallback=self._is_stream)

    def on_chunk(self, data: bytes, at_ns: int) -> None:
        """A piece of the body came, of any size."""
        if not data:
            return
        self._count_bytes(len(data), at_ns)
        if self._is_stream:
            for event in self._parser.feed(data):
                self._take(event, at_ns)
        elif self._response_bytes - len(data) < (
            _ERROR_BODY_BYTES if self._is_error_status() else _MAX_BODY_BYTES
        ):
            self._body.append(data)

    def on_event(self, data: bytes, at_ns: int) -> None:
        """A message came that is one event."""
        self._count_bytes(len(data), at_ns)
        self._take(SseEvent("message", data, len(data)), at_ns)

    def on_end(
        self, at_ns: int, error: ErrorKind | None = None, error_text: str | None = None
    ) -> Observation:
        """The exchange is over; `error` is what the caller saw go wrong.

        What the endpoint said comes first: an error status or event, and also the protocol's own end, since clients
        close the connection once they have it.
        """
        if self._is_stream:
            self._parser.close()
            found, text = self._stream_error(error, error_text)
            return self._observation(at_ns, found, text)
        if self._is_error_status():
            return self._observation(at_ns, *self._status_error(error_text))
        return self._whole_observation(at_ns, error, error_text)

    def _count_bytes(self, size_bytes: int, at_ns: int) -> None:
        self._response_bytes += size_bytes
        if self._first_byte_ns is None:
            self._first_byte_ns = at_ns

    def _take(self, event: SseEvent, at_ns: int) -> None:
        self._events += 1
        if self._first_event_ns is None:
            self._first_event_ns = at_ns
        if self._keep_timeline:
            self._at_ns.append(at_ns)
            self._size_bytes.append(len(event.data))
        if self._signal_headers is not None and may_hold_signals(event.data):
            self._signals |= body_signals(event.data)
        reader = self.reader
        kind = reader.read(event)
        if kind is not None:
            self._take_token(at_ns, is_visible=kind == "content")
        if len(reader.ended_tools) > len(self._tools):
            for name in reader.ended_tools[len(self._tools) :]:
                self._tools.append(ToolCall(name=name or None, end_ns=at_ns))

    def _take_token(self, at_ns: int, *, is_visible: bool) -> None:
        self._token_events += 1
        if self._last_token_ns is None:
            self._first_token_ns = at_ns
        else:
            self._longest_stall_ns = max(self._longest_stall_ns, at_ns - self._last_token_ns)
        self._last_token_ns = at_ns
        if is_visible and self._first_visible_ns is None:
            self._first_visible_ns = at_ns

    def _is_error_status(self) -> bool:
        return self._status is not None and self._status >= 300

    def _status_error(self, error_text: str | None) -> tuple[ErrorKind, str | None]:
        if self._status is not None and self._status < 400 and self._location is not None:
            return "http_error", f"redirected to {_shown_url(self._location)}"
        body = b"".join(self._body)
        text = self._protocol.read_error(body) if body else error_text
        if body.startswith(_GZIP_MARK):
            text = _COMPRESSED
        return ("refused" if self._status in REFUSALS else "http_error"), text

    def _stream_error(self, error: ErrorKind | None, text: str | None) -> tuple[ErrorKind | None, str | None]:
        reader = self.reader
        if reader.error is not None:
            return "error_event", reader.error
        # The chat protocol's servers do not all send [DONE]; a clean end after the finish reason is one too.
        is_clean = error is None and reader.finish is not None and self._protocol.name == "chat"
        if reader.done or is_clean:
            return None, None
        if self._parser.is_overlong:
            return "malformed", f"an event of more than {MAX_EVENT_BYTES >> 20} MiB"
        if error is not None:
            return error, text
        # Another protocol's `[DONE]` is passed over in each, and makes no answer of what nothing else could be read of.
        strays = 1 if reader.unparsed_events and not self._token_events else 0
        if self._events > reader.unparsed_events + strays:
            return "cut", text or "the stream ended before the answer did"
        said = text or _said_in(self._parser.unparsed_sample) or self._said_of_nothing()
        return self._kind_of_nothing(), said

    def _kind_of_nothing(self) -> ErrorKind:
        """What an answer is of which nothing could be read: cut before its first byte, or none of this protocol."""
        return "cut" if self._response_bytes == 0 and self._status in _ANSWERS else "malformed"

    def _said_of_nothing(self) -> str:
        """What there was instead of an answer of this protocol."""
        if self._events:
            count = "1 event" if self._events == 1 else f"{self._events:,} events"
            return f"{count}, none of the {self._protocol.name} protocol"
        return "an empty answer" if self._response_bytes == 0 else "a body that is no stream of events"

    def _whole_observation(self, at_ns: int, error: ErrorKind | None, error_text: str | None) -> Observation:
        """Of an answer that is one JSON body."""
        body = b"".join(self._body)
        if self._signal_headers is not None and may_hold_signals(body):
            self._signals |= body_signals(body)
        try:
            reply = self._read_reply(body)
        except MalformedResponseError as malformed:
            if self.is_spoilt:
                text = f"a body of more than {_MAX_BODY_BYTES >> 20} MiB"
                return self._observation(at_ns, "malformed", text)
            said = _error_said(body)
            if said is not None:
                return self._observation(at_ns, "error_event", said)
            if error is None:
                text = _COMPRESSED if body.startswith(_GZIP_MARK) else str(malformed)
                return self._observation(at_ns, self._kind_of_nothing(), text)
            return self._observation(at_ns, error, error_text)
        return self._observation(at_ns, None, None, reply)

    def _observation(
        self, at_ns: int, error: ErrorKind | None, error_text: str | None, reply: Reply | None = None
    ) -> Observation:
        reader = self.reader
        if reply is None:
            tools = tuple(self._tools)
        else:
            tools = tuple(ToolCall(name=name or None) for name in reply.tool_names)
        whole_ns = None if reply is None else at_ns
        stall_ns = None
        if self._last_token_ns is not None:
            stall_ns = max(self._longest_stall_ns, at_ns - self._last_token_ns)
        text = timeline = None
        if self._keep_text:
            text = "".join(reader.text) if reply is None else reply.text
        if self._keep_timeline and self._is_stream:
            timeline = Events(at_ns=tuple(self._at_ns), size_bytes=tuple(self._size_bytes))
        signals = self.kept_headers | self._signals
        return Observation(
            status=self._status,
            error=error,
            error_text=_shortened(error_text) if error_text else None,
            finish=reader.finish if reply is None else reply.finish,
            retry_after_ns=self._retry_after_ns,
            usage=reader.usage if reply is None else reply.usage,
            headers_ns=self._headers_ns,
            first_byte_ns=self._first_byte_ns,
            first_event_ns=self._first_event_ns,
            first_token_ns=self._first_token_ns if reply is None else whole_ns,
            first_visible_ns=self._first_visible_ns if not (reply and reply.text) else whole_ns,
            last_token_ns=self._last_token_ns if reply is None else whole_ns,
            end_ns=at_ns,
            events=self._events,
            token_events=self._token_events,
            unparsed_events=reader.unparsed_events,
            unparsed_lines=self._parser.unparsed_lines,
            longest_stall_ns=stall_ns,
            response_bytes=self._response_bytes,
            tool_calls=tools,
            timeline=timeline,
            text=text,
            signals=bounded(signals) if signals else signals,
        )


def _said_in(sample: bytes) -> str:
    """What a piece of a body that could not be read says."""
    return _COMPRESSED if sample.startswith(_GZIP_MARK) else sample.decode(errors="replace")


def _error_said(body: bytes) -> str | None:
    """What an error object says that came where an answer was due; None if the body is none."""
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return described_error(payload) or "an error without a message" if is_error(payload) else None


def _shown_url(location: str) -> str:
    """A URL without what may be a secret: credentials, query and fragment."""
    try:
        parts = urlsplit(location)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "a URL that cannot be read"
    return f"{parts.scheme}://{host}{parts.path}" if host else parts.path


def _shortened(text: str) -> str:
    """At most 200 characters; a code in brackets at the end, as errors inside a stream have, is kept."""
    if len(text) <= _ERROR_CHARS:
        return text
    mark = _TRAILING_CODE.search(text)
    end = mark[0] if mark else ""
    return text[: _ERROR_CHARS - len(end)] + end


def retry_after_ns(value: str | None, date: str | None, value_ms: str | None = None) -> int | None:
    """The wait in a `Retry-After` header, at least 0.

    Given in seconds, or as a date to be counted from the response's own `Date`; None if it is neither. A readable
    `Retry-After-Ms` comes first, as in the clients of the vendors that send it.
    """
    if value_ms is not None:
        wait_ns = retry_after_ns(value_ms, None)
        if wait_ns is not None:
            return wait_ns // 1000
    if value is None:
        return None
    try:
        wait_s = float(value)
    except ValueError:
        until, now = _http_date(value), _http_date(date)
        if until is None or now is None:
            return None
        wait_s = (until - now).total_seconds()
    return round(max(0.0, wait_s) * NS_PER_S) if wait_s < _MAX_WAIT_S else None


def _http_date(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _is_stream(status: int, content_type: str, *, fallback: bool) -> bool:
    """Whether a body is a stream of events; errors by status are bodies whatever they are labelled."""
    if status >= 300:
        return False
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == "text/event-stream":
        return True
    if media_type == "application/json" or media_type.endswith("+json"):
        return False
    return fallback
