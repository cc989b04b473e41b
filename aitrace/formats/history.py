"""Pure: what the local histories of harnesses have in common: their calls, and the lines of a trace they become.

A history is the harness's own log of a conversation, not a recording of requests. Each importer (`claude_code`,
`codex`, `opencode`) turns the log of one tree into `HistoryCall`s; here they are put into the order of time, given to
the assembler that recordings use, and completed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aitrace.assembly import Answer, Ask, Assembler
from aitrace.errors import InputError
from aitrace.formats.format import FormatName, Remark, Summary, Tally
from aitrace.formats.unknowns import Unknown
from aitrace.harnesses import DETECTORS
from aitrace.harnesses.detector import Identity
from aitrace.protocols import PARTS_RULES
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import (
    Call,
    CallTimes,
    Header,
    Line,
    Outcome,
    ProtocolName,
    Segment,
    Session,
    ToolCall,
    Update,
    Usage,
)
from aitrace.units import NS_PER_MS, NS_PER_S
from aitrace.updates import updated_call

BLOCK_BYTES = 256
_END_BEFORE_START = "an answer ends before its request; it is taken to end with it"
_SET_BACK = "the clock was set back while the conversation ran; what follows is moved on to where it was"
_STEP_BACK_NS = NS_PER_S
"""Less than this is no step of the clock: lines of one answer are written by several hands."""
_PROTOCOL_OF: dict[FormatName, ProtocolName] = {"claude-code": "anthropic", "codex": "responses"}
"""Histories that keep messages in a protocol's own form."""


@dataclass(slots=True, kw_only=True)
class HistoryReading:
    """What one pass over the input remembers."""

    tally: Tally = field(default_factory=Tally)
    """Counts and remarks."""
    seen: set[str] = field(default_factory=set)
    """Answers met so far; a log that begins with a copy of another one repeats them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCall:
    """One call as a log tells it. Times are ns since 1970."""

    place: str
    """Where it stands in the source."""
    identity: Identity
    """Whose it is."""
    protocol: ProtocolName | None
    """Wire protocol; None if the log does not tell."""
    model: str | None
    """Model asked for."""
    history: Sequence[RequestPart]
    """The conversation; its first `length` parts are the prompt. Calls of one window share it, and it only grows."""
    length: int
    """Parts of the prompt."""
    is_whole: bool
    """Whether the prompt has its system prompt and tools."""
    request_ns: int
    """When the request was made."""
    is_request_told: bool
    """Whether the log holds that time; else it is that of the last input."""
    end_ns: int | None
    """When the answer was complete; None if there was none."""
    outcome: Outcome
    """How it ended."""
    usage: Usage = field(default_factory=Usage)
    """Tokens as reported."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """Tool calls of the answer, times as `request_ns`."""
    tool_ids: tuple[str | None, ...] = ()
    """Ids of `tool_calls`, one for each; empty if they are not known."""
    spawned_by: str | None = None
    """Id of the tool call that started the sub-agent whose call this is; None if not told, or for a main agent."""
    max_output_tokens: int | None = None
    """The request's own limit; None if it is not known."""

    @property
    def parts(self) -> tuple[RequestPart, ...]:
        """The prompt."""
        return tuple(self.history[: self.length])


class HistorySurvey:
    """What the header says of all calls of a conversion."""

    def __init__(self, source: FormatName) -> None:
        self._source = source
        self._calls = 0
        self._without = {
            Unknown.REQUEST_TIMES: 0,
            Unknown.HEADS: 0,
            Unknown.OUTPUT_LIMITS: 0,
            Unknown.MODELS: 0,
        }
        self._answers_without_usage = 0
        self._origin_ns: int | None = None

    @property
    def origin_ns(self) -> int:
        """The first moment of the trace, ns since 1970."""
        return self._origin_ns or 0

    def add(self, call: HistoryCall) -> None:
        """Look at one more call."""
        self._calls += 1
        self._without[Unknown.REQUEST_TIMES] += not call.is_request_told
        self._without[Unknown.HEADS] += not call.is_whole
        self._without[Unknown.OUTPUT_LIMITS] += call.max_output_tokens is None
        self._without[Unknown.MODELS] += call.model is None
        self._answers_without_usage += call.usage.output_tokens is None
        if self._origin_ns is None or call.request_ns < self._origin_ns:
            self._origin_ns = call.request_ns

    def header(self, *, producer: str, attribution: str | None, remarks: Sequence[Remark] = ()) -> Header:
        """The header for all calls seen.

        Args:
            remarks: What was not plain, which may be why there are none.

        Raises:
            InputError: If there are none.
        """
        if self._calls == 0:
            told = "".join(f"; {remark.explanation} (first: {remark.first_place})" for remark in remarks)
            raise InputError(
                f"the input holds no call{told}", hint="check that the right directory or file was named"
            )
        return Header(
            producer=producer,
            clock_unix_ns=self._origin_ns,
            clock_resolution_ns=NS_PER_MS,
            unit="bytes",
            block_size=BLOCK_BYTES,
            source=f"{self._source}-history",
            attribution=attribution,
            normalised=_normalised(self._source),
            unknown=tuple(self._unknown()),
        )

    def _unknown(self) -> Iterator[str]:
        yield Unknown.HISTORY
        yield Unknown.RESOLUTION.format(f"{NS_PER_MS / NS_PER_S:g}")
        yield Unknown.ANSWER_ENDS
        yield Unknown.FIRST_TOKENS.format(self._calls, self._calls)
        yield Unknown.HISTORY_WIRE
        yield Unknown.SIDE_CALLS
        if self._source != "claude-code" or self._without[Unknown.REQUEST_TIMES]:
            yield Unknown.RETRIES
        for sentence, count in self._without.items():
            if count:
                yield sentence.format(count, self._calls)
        if self._answers_without_usage:
            yield Unknown.ANSWER_SIZES.format(self._answers_without_usage, self._calls)


@dataclass(slots=True)
class _Typed:
    """Texts of a person in one history."""

    places: list[int] = field(default_factory=list)
    """Their places, in order."""
    seen: int = 0
    """Parts of the history that were looked at."""


class HistoryImporter:
    """Gives the lines of trees one after the other; ids go on from one to the next."""

    def __init__(
        self, source: FormatName, assembler: Assembler, *, origin_ns: int, reading: HistoryReading
    ) -> None:
        self.reading = reading
        """What this pass over the input remembers."""
        self._source = source
        self._assembler = assembler
        self._origin_ns = origin_ns
        self._blocks = 0
        self._detector = next(detector for detector in DETECTORS if detector.name == source)
        self._typed: dict[int, _Typed] = {}

    def summary(self) -> Summary:
        """Counts of everything written so far."""
        self.reading.tally.counts["blocks"] = self._blocks
        return self.reading.tally.summary(self._source)

    def lines(self, calls: Sequence[HistoryCall]) -> list[Line]:
        """Sessions, segments and whole calls of one tree."""
        lines: list[Line] = []
        self._typed = {}
        index_of_call: dict[int, int] = {}
        call_ids: dict[int, int] = {}
        for number, is_end in moments(calls):
            if is_end:
                updates = self._assembler.end(call_ids[number], self._answer(calls[number]))
                _complete(lines, index_of_call, updates)
                continue
            call_ids[number], begun = self._assembler.begin(self._ask(calls[number]))
            for line in begun:
                if isinstance(line, Call):
                    index_of_call[line.id] = len(lines)
                lines.append(line)
        for line in lines:
            self._count(line)
        self._count_sessions(lines)
        return lines

    def _ask(self, call: HistoryCall) -> Ask:
        return Ask(
            identity=call.identity,
            protocol=call.protocol,
            model=call.model,
            parts=call.parts,
            typed=self._typed_places(call),
            spawned_by=call.spawned_by,
            unseen_start=not call.is_whole,
            max_output_tokens=call.max_output_tokens,
            request_ns=call.request_ns - self._origin_ns,
        )

    def _typed_places(self, call: HistoryCall) -> tuple[int, ...]:
        """Where the prompt has texts of a person. Calls share a history, so each part is looked at once."""
        typed = self._typed.setdefault(id(call.history), _Typed())
        for place in range(typed.seen, call.length):
            part = call.history[place]
            if part.is_users_text and not self._detector.is_synthetic(part):
                typed.places.append(place)
        typed.seen = max(typed.seen, call.length)
        return tuple(typed.places[: bisect_left(typed.places, call.length)])

    def _answer(self, call: HistoryCall) -> Answer:
        request_ns = call.request_ns - self._origin_ns
        end_ns = (call.end_ns or 0) - self._origin_ns
        if end_ns < request_ns:
            self.reading.tally.remark("end_before_start", _END_BEFORE_START, call.place)
            end_ns = request_ns
        tool_calls = call.tool_calls
        if tool_calls is not None:
            tool_calls = tuple(
                replace(tool, end_ns=_within(tool.end_ns, call.request_ns, call.end_ns, self._origin_ns))
                for tool in tool_calls
            )
        return Answer(
            outcome=call.outcome,
            usage=call.usage,
            times=CallTimes(request_ns=request_ns, end_ns=end_ns),
            tool_calls=tool_calls,
            tool_ids=call.tool_ids,
        )

    def _count(self, line: Line) -> None:
        add = self.reading.tally.add
        if isinstance(line, Session):
            add("sessions")
            add("trees", line.parent is None)
        if isinstance(line, Segment):
            add("segments")
            self._blocks = max([self._blocks, *(first + count for first, count in line.blocks)])
        if isinstance(line, Call):
            add("calls")
            add("input_tokens", line.usage.input_tokens or 0)
            add("output_tokens", line.usage.output_tokens or 0)
            add("forks", any(wait.relation == "spawn" for wait in line.after))
            add("retries", line.retry_of is not None)

    def _count_sessions(self, lines: Sequence[Line]) -> None:
        """What can be told only from all calls of a tree."""
        windows: dict[int, int] = {}
        session_of_call = {line.id: line.session for line in lines if isinstance(line, Call)}
        joined: set[int] = set()
        for line in lines:
            if isinstance(line, Call):
                windows[line.session] = max(windows.get(line.session, 0), line.window)
                joined |= {
                    session_of_call[w.call]
                    for w in line.after
                    if w.relation == "join" and w.call in session_of_call
                }
        children = {line.id for line in lines if isinstance(line, Session) and line.parent is not None}
        self.reading.tally.add("resets", sum(windows.values()))
        self.reading.tally.add("joins", len(children & joined))
        self.reading.tally.add("background_children", len(children - joined))


def _normalised(source: FormatName) -> tuple[str, ...]:
    """What prompts of this source are read without, as the header names it."""
    protocol = _PROTOCOL_OF.get(source)
    rules = [rule for rule in PARTS_RULES if protocol is not None and rule.startswith(f"{protocol}/")]
    for detector in DETECTORS:
        if detector.name == source and protocol is not None:
            rules += detector.rules
    return tuple(rules)


def without_steps_back(calls: Iterable[HistoryCall], tally: Tally) -> Iterator[HistoryCall]:
    """The calls of one log, whose order is that in which they were made, on a clock that is not set back.

    Where one ends before the call before it did, it and those after it are moved to begin when that had ended, until
    the log's own times are beyond that again.
    """
    offset_ns, latest_ns = 0, 0
    for call in calls:
        if call.end_ns is not None:
            if call.end_ns >= latest_ns:
                offset_ns = 0
            elif call.end_ns + offset_ns < latest_ns - _STEP_BACK_NS:
                tally.remark("clock_set_back", _SET_BACK, call.place)
                offset_ns = latest_ns - call.request_ns
            latest_ns = max(latest_ns, call.end_ns + offset_ns)
        yield _moved(call, offset_ns) if offset_ns else call


def _moved(call: HistoryCall, offset_ns: int) -> HistoryCall:
    tools = call.tool_calls
    if tools is not None:
        tools = tuple(
            replace(tool, end_ns=None if tool.end_ns is None else tool.end_ns + offset_ns) for tool in tools
        )
    return replace(
        call,
        request_ns=call.request_ns + offset_ns,
        end_ns=None if call.end_ns is None else call.end_ns + offset_ns,
        tool_calls=tools,
    )


def moments(calls: Sequence[HistoryCall]) -> list[tuple[int, bool]]:
    """Begin and end of calls in the order of time: index of the call, and whether it is its end."""
    found: list[tuple[int, int, int, bool]] = []
    for number, call in enumerate(calls):
        found.append((call.request_ns, 1, number, False))
        if call.end_ns is not None:
            # At one moment ends go before beginnings, so that what waited finds what it waited for.
            found.append(
                (max(call.end_ns, call.request_ns), int(call.end_ns <= call.request_ns), number, True)
            )
    return [(number, is_end) for _, _, number, is_end in sorted(found)]


def _complete(lines: list[Line], index_of_call: Mapping[int, int], updates: Sequence[Line]) -> None:
    """Put what became known of calls into their lines."""
    ours = [update for update in updates if isinstance(update, Update) and update.call in index_of_call]
    for update in ours:
        index = index_of_call[update.call]
        known = lines[index]
        lines[index] = updated_call(known, update) if isinstance(known, Call) else known


def _within(at_ns: int | None, start_ns: int, end_ns: int | None, origin_ns: int) -> int | None:
    """A moment of an answer on the trace's clock; None if it lies outside of it."""
    if at_ns is None or end_ns is None or not start_ns <= at_ns <= end_ns:
        return None
    return at_ns - origin_ns
