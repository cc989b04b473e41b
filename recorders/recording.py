"""Pure: the notes of a recording, in the order in which they were made, to the lines of its trace."""

import traceback
from collections import Counter
from collections.abc import Iterator

from aitrace.assembly import Ask, Assembler
from aitrace.harnesses import DETECTORS, identify
from aitrace.harnesses.detector import Detector, RequestFacts
from aitrace.harnesses.routes import recorded_route
from aitrace.no_text import is_model
from aitrace.protocols import PARTS_RULES
from aitrace.protocols.protocol import MalformedRequestError, RequestPart
from aitrace.schema import Call, Header, Line, Segment, Session
from recorders.chains import ResponseChains
from recorders.content_coding import ContentCodingError
from recorders.exchange import Requested, WatchedCall, read_http_request
from recorders.notes import Answered, Asked, Chunk, Connected, Ended, How, Message, Note, Stopped
from recorders.options import RecordOptions
from recorders.websocket import ResponsesSocket

_COUNTS = (
    "traffic_bytes",
    "parse_errors",
    "undecodable_bodies",
    "unreadable_requests",
    "unchained_messages",
    "writer_errors",
)
_NO_FAILURES = ("client_abort", "unrecorded")


class Recording:
    """Turns notes into lines; whatever happens to one exchange costs only that exchange.

    Args:
        options: What the recording is to be.
        key: Random bytes; key of all hashes.
        started_ns: Monotonic time of offset 0.
        unix_ns: Wall time of offset 0.
        producer: Program and version, for the header.
    """

    def __init__(
        self, options: RecordOptions, key: bytes, started_ns: int, unix_ns: int, *, producer: str
    ) -> None:
        self.is_accepting = True
        """Whether calls that begin are written; if not, they are counted as dropped."""
        self.dropped_calls = 0
        """Calls seen but not written."""
        self.first_trouble: str | None = None
        """Traceback of the first exception that a note caused; None if there was none."""
        self._options = options
        self._started_ns = started_ns
        self._header: Header | None = Header(
            producer=producer,
            created_unix_ns=unix_ns,
            clock_unix_ns=unix_ns,
            unit="bytes",
            block_size=options.block_size,
            privacy=options.privacy,
            source="recorder",
            capture=options.capture,
            normalised=(*PARTS_RULES, *(rule for detector in DETECTORS for rule in detector.rules)),
        )
        self._assembler = Assembler(
            key, block_size=options.block_size, keep_text=options.privacy == "content"
        )
        self._chains = ResponseChains()
        self._open: dict[int, WatchedCall | ResponsesSocket] = {}
        self._counts: Counter[str] = Counter(dict.fromkeys(_COUNTS, 0))
        self._rows = _RowCounter()
        self._is_broken = False
        self._ended = 0
        self._errors: Counter[str] = Counter()
        self._last_ns = 0

    @property
    def names(self) -> frozenset[str]:
        """Raw keys and names seen: what must not be found in a file without text."""
        return self._assembler.names

    @property
    def notes(self) -> dict[str, int]:
        """Counts for the footer, by name with unit."""
        return dict(self._counts)

    @property
    def calls(self) -> int:
        """Calls that were given out."""
        return self._rows.next_ids[Call]

    @property
    def sessions(self) -> int:
        """Sessions that were given out."""
        return self._rows.next_ids[Session]

    @property
    def trees(self) -> int:
        """Root sessions that were given out."""
        return self._rows.trees

    @property
    def unrecorded_calls(self) -> int:
        """Calls given out whose end is not known."""
        return self.calls - self._ended

    @property
    def failures(self) -> dict[str, int]:
        """Calls that the endpoint, or the way to it, let down, by kind of error."""
        return {kind: number for kind, number in self._errors.items() if kind not in _NO_FAILURES}

    def take(self, note: Note) -> list[Line]:
        """The lines to write now."""
        lines = self._header_line()
        try:
            # Two threads of a proxy may hand over their notes in another order than they read the clock.
            self._last_ns = max(self._last_ns, note.at_ns - self._started_ns)
            lines += self._take(note)
        except Exception:  # noqa: BLE001  # one odd exchange must not cost the recording; counted, and shown at the end
            self._give_up(note)
        return lines

    def stop(self) -> list[Line]:
        """No more notes come: what is known of the calls that are still open."""
        lines = self._header_line()
        while self._open:
            number = next(iter(self._open))
            lines += self.take(Ended(number, self._last_ns + self._started_ns, "unrecorded", "stopped"))
            self._open.pop(number, None)
        return lines

    def _header_line(self) -> list[Line]:
        header, self._header = self._header, None
        return [] if header is None else [header]

    def _give_up(self, note: Note) -> None:
        self._counts["writer_errors"] += 1
        self.first_trouble = self.first_trouble or traceback.format_exc()
        if isinstance(note, Asked) or (isinstance(note, Message) and note.from_client):
            self.dropped_calls += 1
        # A connection with many calls goes on; of a call we would miss the middle.
        if not isinstance(note, (Message, Stopped)):
            self._open.pop(note.exchange, None)

    def _take(self, note: Note) -> list[Line]:
        at_ns = self._last_ns
        match note:
            case Chunk():
                self._counts["traffic_bytes"] += len(note.data)
                call = self._open.get(note.exchange)
                if isinstance(call, WatchedCall):
                    call.on_chunk(note.data, at_ns)
            case Message():
                self._counts["traffic_bytes"] += len(note.data)
                socket = self._open.get(note.exchange)
                if isinstance(socket, ResponsesSocket):
                    return self._take_message(socket, note, at_ns)
            case Asked():
                self._counts["traffic_bytes"] += len(note.body)
                return self._take_request(note, at_ns)
            case Connected():
                call = self._open.get(note.exchange)
                # The calls on a socket begin when it is open, so none of them waits for it.
                if isinstance(call, WatchedCall):
                    call.on_connected(note.connect_ns, at_ns)
            case Answered():
                call = self._open.get(note.exchange)
                if isinstance(call, WatchedCall):
                    call.on_headers(note.status, note.headers, at_ns)
            case Ended():
                return self._take_end(note, at_ns)
            case _:
                self._counts.update(note.counts)
                self.dropped_calls += note.counts.get("dropped_exchanges", 0)
                return self.stop()
        return []

    def _take_request(self, asked: Asked, at_ns: int) -> list[Line]:
        route = recorded_route(asked.method, asked.path)
        if route is None:
            return []
        if asked.transport == "websocket":
            self._open[asked.exchange] = ResponsesSocket(asked, route, self._chains)
            return []
        if self._is_dropped():
            return []
        settled = self._settle()
        try:
            requested = read_http_request(asked, route, at_ns, self._chains)
        except (ContentCodingError, MalformedRequestError) as error:
            self._counts["undecodable_bodies"] += isinstance(error, ContentCodingError)
            self._refuse()
            return settled
        call = WatchedCall(requested)
        lines = self._begin(call)
        self._open[asked.exchange] = call
        return settled + lines

    def _settle(self) -> list[Line]:
        """Ends the calls whose answer is whole though the exchange is not over.

        A client goes on as soon as it has read the protocol's own end, which may be before the proxy has seen the end
        of the body; its next request must find the answer that it builds on.
        """
        lines: list[Line] = []
        for number, call in list(self._open.items()):
            if isinstance(call, WatchedCall) and call.answered_ns is not None:
                del self._open[number]
                lines += self._end(call, "server", call.answered_ns)
        return lines

    def _take_message(self, socket: ResponsesSocket, message: Message, at_ns: int) -> list[Line]:
        if not message.from_client:
            ended = socket.on_server_message(message.data, at_ns)
            return [] if ended is None else self._end(ended, "complete", at_ns)
        try:
            begun = socket.on_client_message(message.data, at_ns)
        except MalformedRequestError:
            self._refuse()
            return []
        # Its answer is watched all the same: later requests may continue it.
        if begun is None or self._is_dropped():
            return []
        return self._begin(begun)

    def _take_end(self, ended: Ended, at_ns: int) -> list[Line]:
        watched = self._open.pop(ended.exchange, None)
        if watched is None:
            return []
        if isinstance(watched, WatchedCall):
            return self._end(watched, ended.how, at_ns)
        # A connection that was closed whole left an answer that was not.
        how: How = "server" if ended.how == "complete" else ended.how
        return [line for call in watched.close() for line in self._end(call, how, at_ns)]

    def _is_dropped(self) -> bool:
        """Whether the call that begins now is not to be written."""
        is_dropped = self._is_broken or not self.is_accepting
        self.dropped_calls += is_dropped
        return is_dropped

    def _refuse(self) -> None:
        """A request that cannot be read has no prompt, so there is no call to write."""
        self._counts["unreadable_requests"] += 1
        self.dropped_calls += 1

    def _begin(self, call: WatchedCall) -> list[Line]:
        requested = call.requested
        self._counts["unchained_messages"] += requested.prompt.is_unchained
        call_id, lines = self._assembler.begin(self._ask(requested))
        try:
            self._rows.add(lines)
        except LookupError:
            # Whatever came after a missing line could not be read.
            self._is_broken = True
            raise
        call.call_id = call_id
        return lines

    def _ask(self, requested: Requested) -> Ask:
        request, prompt = requested.request, requested.prompt
        facts = RequestFacts(
            path=requested.path, headers=requested.headers, body=request.body, parts=prompt.parts
        )
        detector, identity = identify(facts)
        parts = prompt.parts if detector is None else detector.normalised(prompt.parts)
        is_written = self._options.privacy == "content" or is_model(request.model)
        return Ask(
            identity=identity,
            # Two programs share no session.
            scope=requested.headers.get("user-agent", ""),
            protocol=requested.route.protocol,
            # A path of somebody's disk serves as a model's name too.
            model=request.model if is_written else None,
            parts=parts,
            typed=None if detector is None else tuple(_typed_places(detector, parts)),
            result_durations={} if detector is None else dict(_result_durations(detector, parts)),
            unseen_start=prompt.unseen_start,
            max_output_tokens=request.max_output_tokens,
            streamed=requested.is_streamed,
            request_ns=requested.request_ns,
            wire=requested.wire,
        )

    def _end(self, call: WatchedCall, how: How, at_ns: int) -> list[Line]:
        answer = call.on_end(how, at_ns)
        self._counts["parse_errors"] += call.unparsed
        self._counts["undecodable_bodies"] += call.is_undecodable
        continued = call.continued_by()
        if continued is not None:
            requested = call.requested
            self._chains.remember(requested.wire.connection or 0, requested.prompt, *continued)
        if call.call_id is None:
            return []
        lines = self._assembler.end(call.call_id, answer)
        self._ended += answer.outcome.error != "unrecorded"
        if answer.outcome.error is not None:
            self._errors[answer.outcome.error] += 1
        return lines


class _RowCounter:
    """Sees to it that no line refers to one that was not given out."""

    def __init__(self) -> None:
        self.next_ids: dict[type[Line], int] = {Session: 0, Segment: 0, Call: 0}
        self.trees = 0

    def add(self, lines: list[Line]) -> None:
        """Count these lines.

        Raises:
            LookupError: A line before one of these is missing.
        """
        for line in lines:
            if isinstance(line, (Session, Segment, Call)):
                if line.id != self.next_ids[type(line)] or not self._is_complete(line):
                    raise LookupError(f"{type(line).__name__} {line.id}: a line before it is missing")
                self.next_ids[type(line)] += 1
                self.trees += isinstance(line, Session) and line.parent is None

    def _is_complete(self, line: Session | Segment | Call) -> bool:
        if isinstance(line, Session):
            return (line.parent or 0) <= line.id
        if isinstance(line, Segment):
            return True
        has_segments = max(line.prompt.add, default=-1) < self.next_ids[Segment]
        return has_segments and line.session < self.next_ids[Session]


def _typed_places(detector: Detector, parts: tuple[RequestPart, ...]) -> Iterator[int]:
    for place, part in enumerate(parts):
        if part.is_users_text and not detector.is_synthetic(part):
            yield place


def _result_durations(detector: Detector, parts: tuple[RequestPart, ...]) -> Iterator[tuple[str, int]]:
    for part in parts:
        if part.type == "tool_result" and part.tool_id is not None:
            duration_ns = detector.tool_duration_ns(part)
            if duration_ns is not None:
                yield part.tool_id, duration_ns
