"""Pure: the rules that a trace must keep beyond the form of its lines; docs/format.md states them.

`ReferenceRules` are those that the in-memory model rests on (ids, references, counts): `aitrace.store.read_trace`
refuses a file that breaks one. `TraceRules` are all of them, for `aitrace check`. Both take lines one by one and
remember a few integers per call, so the size of a trace does not matter. After a finding they go on as if the ids
of the file were right, so that one lost line is one finding and not thousands.

A call must keep the rules as its line says it and after each of its updates, since a recording may break off between
any two lines. Its request, and its end once it is known, stay as they are; so a gap is judged when both of its times
are there, which may be long after the line that states it.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal, NamedTuple, cast

from aitrace.schema import (
    Call,
    CallTimes,
    Dependency,
    Events,
    Footer,
    Header,
    Line,
    Prompt,
    Segment,
    Session,
    ToolCall,
    Update,
    Usage,
)

Severity = Literal["error", "warning"]

MAX_SEGMENT_BLOCKS = 2**20
"""Most blocks of one segment: a line of 80 bytes must not make a reader list more."""

_GAP_TOLERANCE_NS = 1
_NO_END = -(2**63)
"""Stands for an end that is not known, in an array."""
_COUNTERS = tuple(field.name for field in fields(Usage))
_WIRE_COUNTS = ("connection", "connect_ns", "request_bytes", "response_bytes")
_TIME_PATHS = (
    ("request_ns", "forwarded_ns"),
    # An endpoint may refuse a request before it has all of it, so headers need not follow the forwarding.
    (
        "request_ns",
        "headers_ns",
        "first_byte_ns",
        "first_event_ns",
        "first_token_ns",
        "first_visible_ns",
        "last_token_ns",
        "end_ns",
    ),
)
"""Points of a call that must not run backwards where they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a trace."""

    severity: Severity
    """`error`: the trace breaks a rule; `warning`: it may be used, but something is odd or missing."""
    line: int
    """Number of the line, from 1."""
    rule: str
    """Name of the rule, as in docs/format.md."""
    message: str
    """Field and what is wrong with it."""


class _CallFacts(NamedTuple):
    """What later lines need of a call."""

    session: int
    """Session it belongs to."""
    prompt_length: int
    """Segments of its whole prompt."""
    request_ns: int
    """Start."""
    end_ns: int | None
    """End; None if not known."""
    attempt: int
    """1 for a first try."""
    line: int
    """Number of its line, from 1."""


class _CallTable:
    """Facts of calls by id; in one array as long as ids are dense, since a trace may have millions."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._count = 0
        self._others: dict[int, _CallFacts] = {}

    def get(self, call: int | None) -> _CallFacts | None:
        """What is known of a call; None if nothing is."""
        if call is None or not 0 <= call < self._count:
            return None if call is None else self._others.get(call)
        start = call * _FACTS
        facts = _CallFacts._make(self._numbers[start : start + _FACTS])
        return facts._replace(end_ns=None) if facts.end_ns == _NO_END else facts

    def __getitem__(self, call: int) -> _CallFacts:
        facts = self.get(call)
        if facts is None:
            raise KeyError(call)
        return facts

    def __setitem__(self, call: int, facts: _CallFacts) -> None:
        if not 0 <= call <= self._count:
            self._others[call] = facts
            return
        known = facts if facts.end_ns is not None else facts._replace(end_ns=_NO_END)
        numbers = array("q", cast("tuple[int, ...]", known))
        if call < self._count:
            self._numbers[call * _FACTS : (call + 1) * _FACTS] = numbers
            return
        self._numbers.extend(numbers)
        self._count += 1
        self._others.pop(call, None)


_FACTS = len(_CallFacts._fields)


class _Wait(NamedTuple):
    """A gap whose trigger had no time when it was stated."""

    line: int
    """Line that states it."""
    place: int
    """Index in the call's `after`."""
    request_ns: int
    """Start of the call that waited."""
    gap_ns: int
    """What the line states."""


class _Answer(NamedTuple):
    """What must lie within a call whose end is not known yet."""

    tool_calls: tuple[ToolCall, ...] | None
    """As in `Call`."""
    events: Events | None
    """As in `Call`."""


class _Ids:
    """Ids of one kind of line: dense, in order of appearance."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        """Kind of line, for messages."""
        self.count = 0
        """Lines seen, whatever their ids."""
        self._next = 0
        self._gaps: list[range] = []

    def add(self, new: int) -> str | None:
        """Take the id of a new line; what is wrong with it, if anything."""
        self.count += 1
        expected = self._next
        if new == expected:
            self._next += 1
            return None
        if new > expected:
            self._gaps.append(range(expected, new))
            self._next = new + 1
        return f"{self.kind}.id: expected {expected}, got {new}"

    def problem_of(self, reference: int) -> str | None:
        """Why nothing that was written before has this id; None if something has."""
        if reference < 0:
            return "is no id"
        if reference >= self._next:
            return "comes later or never"
        if any(reference in gap for gap in self._gaps):
            return "is not in the file"
        return None


class ReferenceRules:
    """Ids are dense, references go to earlier lines, prompts can be resolved, the footer counts what is there."""

    def __init__(self) -> None:
        self.header: Header | None = None
        """None before it was seen."""
        self.roots: dict[int, int] = {}
        """Root of each session seen so far, by its id."""
        self.calls = _CallTable()
        """Calls seen so far, by id."""
        self.footer: Footer | None = None
        """None before it was seen."""
        self._session_ids = _Ids("session")
        self._segment_ids = _Ids("segment")
        self._call_ids = _Ids("call")
        self._next_block = 0

    def check(self, number: int, line: Line) -> list[Finding]:
        """What is wrong with the next line; `number` is its place in the file, from 1."""
        return [
            Finding(severity="error", line=number, rule=rule, message=message)
            for rule, message in self._problems(number, line)
        ]

    def _problems(self, number: int, line: Line) -> Iterator[tuple[str, str]]:
        match line:
            case Header():
                self.header = line
                if line.block_size < 1:
                    yield "header", f"header.block_size: expected at least 1, got {line.block_size}"
            case Session():
                yield from self._session_problems(line)
            case Segment():
                yield from self._segment_problems(line)
            case Call():
                yield from self._call_problems(number, line)
            case Update():
                yield from self._update_problems(line)
            case Footer():
                yield from self._footer_problems(line)

    def _session_problems(self, session: Session) -> Iterator[tuple[str, str]]:
        parent = session.parent
        if parent is None and session.root != session.id:
            yield "tree", f"session.root: a session without parent is its own root, got {session.root}"
        if parent is not None:
            problem = self._session_ids.problem_of(parent)
            root = self.roots.get(parent)
            if problem is not None:
                yield "reference", f"session.parent: session {parent} {problem}"
            elif root is not None and root != session.root:
                yield (
                    "tree",
                    f"session.root: expected {root}, the root of its parent, got {session.root}",
                )
        yield from _id_problem(self._session_ids.add(session.id))
        self.roots[session.id] = session.root

    def _segment_problems(self, segment: Segment) -> Iterator[tuple[str, str]]:
        yield from _id_problem(self._segment_ids.add(segment.id))
        if segment.size < 0:
            yield "blocks", f"segment.size: expected at least 0, got {segment.size}"
        for first, count in segment.blocks:
            if first < 0 or count < 1:
                yield (
                    "blocks",
                    f"segment.blocks: expected a first id from 0 and a count from 1, got {first}, {count}",
                )
            elif first > self._next_block:
                yield "blocks", f"segment.blocks: a new block has id {self._next_block}, got {first}"
            self._next_block = max(self._next_block, first + max(count, 0))
        if self.header is None or self.header.block_size < 1:
            return
        held = sum(count for _, count in segment.blocks)
        if held > MAX_SEGMENT_BLOCKS:
            yield "blocks", f"segment.blocks: expected at most {MAX_SEGMENT_BLOCKS} blocks, got {held}"
        needed = -(-segment.size // self.header.block_size)
        if held != needed and segment.size >= 0:
            yield (
                "blocks",
                f"segment.blocks: size {segment.size} in blocks of {self.header.block_size} makes {needed}, got {held}",
            )

    def _call_problems(self, number: int, call: Call) -> Iterator[tuple[str, str]]:
        problem = self._session_ids.problem_of(call.session)
        if problem is not None:
            yield "reference", f"call.session: session {call.session} {problem}"
        yield from self._prompt_problems(call.prompt)
        if call.retry_of is not None:
            problem = self._earlier_call_problem(call, call.retry_of)
            if problem is not None:
                yield "reference", f"call.retry_of: call {call.id} repeats {problem}"
        for index, dependency in enumerate(call.after):
            problem = self._earlier_call_problem(call, dependency.call)
            if problem is not None:
                yield "reference", f"call.after.{index}.call: call {call.id} waits for {problem}"
        yield from _id_problem(self._call_ids.add(call.id))
        base = self.calls.get(call.prompt.base)
        kept = min(max(call.prompt.keep, 0), base.prompt_length) if base else 0
        self.calls[call.id] = _CallFacts(
            session=call.session,
            prompt_length=kept + len(call.prompt.add),
            request_ns=call.times.request_ns,
            end_ns=call.times.end_ns,
            attempt=call.attempt,
            line=number,
        )

    def _update_problems(self, update: Update) -> Iterator[tuple[str, str]]:
        problem = self._call_ids.problem_of(update.call)
        if problem is not None:
            yield "reference", f"update.call: call {update.call} {problem}"
        facts = self.calls.get(update.call)
        if facts is not None and facts.end_ns is None and update.times is not None:
            self.calls[update.call] = facts._replace(end_ns=update.times.end_ns)

    def _prompt_problems(self, prompt: Prompt) -> Iterator[tuple[str, str]]:
        if prompt.base is None:
            if prompt.keep != 0:
                yield "prompt", f"call.prompt.keep: expected 0 without a base, got {prompt.keep}"
        else:
            problem = self._call_ids.problem_of(prompt.base)
            base = self.calls.get(prompt.base)
            if problem is not None:
                yield "reference", f"call.prompt.base: call {prompt.base} {problem}"
            elif base is not None and not 0 <= prompt.keep <= base.prompt_length:
                yield (
                    "prompt",
                    f"call.prompt.keep: expected 0 to {base.prompt_length}, the length of the base, got {prompt.keep}",
                )
        for segment in prompt.add:
            problem = self._segment_ids.problem_of(segment)
            if problem is not None:
                yield "reference", f"call.prompt.add: segment {segment} {problem}"

    def _earlier_call_problem(self, call: Call, other: int) -> str | None:
        if other == call.id:
            return "itself"
        problem = self._call_ids.problem_of(other)
        return None if problem is None else f"call {other}, which {problem}"

    def _footer_problems(self, footer: Footer) -> Iterator[tuple[str, str]]:
        self.footer = footer
        counted = (
            ("sessions", footer.sessions, self._session_ids.count),
            ("segments", footer.segments, self._segment_ids.count),
            ("calls", footer.calls, self._call_ids.count),
            ("blocks", footer.blocks, self._next_block),
        )
        for name, stated, found in counted:
            if stated != found:
                yield "footer", f"footer.{name}: says {stated}, the file has {found}"

    @property
    def call_count(self) -> int:
        """Call lines seen."""
        return self._call_ids.count


class TraceRules:
    """All rules; feed every line to `check` and ask `finish` at the end."""

    def __init__(self) -> None:
        self._references = ReferenceRules()
        self._last_line = 0
        # By the call: what waits for its end to be judged, and whether its own end is still out.
        self._waits: dict[int, list[_Wait]] = {}
        self._answers: dict[int, _Answer] = {}
        self._unrecorded: set[int] = set()

    @property
    def header(self) -> Header | None:
        """The header; None before it was seen."""
        return self._references.header

    def check(self, number: int, line: Line) -> list[Finding]:
        """What is wrong with the next line; `number` is its place in the file, from 1."""
        self._last_line = number
        before = self._references.calls.get(line.call) if isinstance(line, Update) else None
        findings = self._references.check(number, line)
        match line:
            case Segment():
                problems = self._segment_problems(line)
            case Call():
                problems = self._call_problems(number, line)
            case Update():
                problems = self._update_problems(line, before)
            case Footer():
                problems = _negative("footer", "footer", (("dropped_calls", line.dropped_calls),))
            case _:
                return findings
        findings.extend(
            Finding(severity="error", line=number, rule=rule, message=message) for rule, message in problems
        )
        if isinstance(line, Update):
            findings.extend(self._late_gap_findings(line.call))
        if isinstance(line, (Call, Update)) and line.usage is not None:
            findings.extend(
                Finding(severity="warning", line=number, rule="usage", message=message)
                for message in _usage_contradictions(_owner(line), line.usage)
            )
        return findings

    def finish(self) -> list[Finding]:
        """What is missing from a file that ends here."""
        calls = self._references.calls
        missing = [
            (calls[call].line, "unrecorded", f"call.outcome: how call {call} ended is not in the file")
            for call in sorted(self._unrecorded)
        ]
        if self._references.footer is None:
            message = "the file has no footer: its writer did not end cleanly"
            missing.append((self._last_line, "no-footer", message))
        if self._references.call_count == 0:
            missing.append((self._last_line, "no-calls", "the file holds no call"))
        return [
            Finding(severity="warning", line=line, rule=rule, message=message)
            for line, rule, message in missing
        ]

    def _segment_problems(self, segment: Segment) -> Iterator[tuple[str, str]]:
        header = self._references.header
        if segment.text is not None and header is not None and header.privacy == "hash":
            yield "privacy", "segment.text: the header says that the file holds no text"

    def _call_problems(self, number: int, call: Call) -> Iterator[tuple[str, str]]:
        yield from _answer_problems(call)
        yield from self._span_problems(call, call.id, _Answer(tool_calls=call.tool_calls, events=call.events))
        yield from self._retry_problems(call)
        for index, dependency in enumerate(call.after):
            yield from self._dependency_problems(number, call, index, dependency)
        yield from _negative(
            "range",
            "call",
            (("turn", call.turn), ("window", call.window), ("tool_results", call.tool_results)),
        )
        self._note_outcome(call, call.id)

    def _update_problems(self, update: Update, before: _CallFacts | None) -> Iterator[tuple[str, str]]:
        yield from _answer_problems(update)
        if before is None:
            return  # reported as a reference
        times = update.times
        if times is not None and times.request_ns != before.request_ns:
            yield (
                "times",
                f"update.times.request_ns: the call's is {before.request_ns}, got {times.request_ns}",
            )
        if times is not None and before.end_ns is not None and times.end_ns != before.end_ns:
            yield "times", f"update.times.end_ns: the call's is {before.end_ns} already, got {times.end_ns}"
        earlier = self._answers.pop(update.call, _Answer(tool_calls=None, events=None))
        merged = _Answer(
            tool_calls=earlier.tool_calls if update.tool_calls is None else update.tool_calls,
            events=earlier.events if update.events is None else update.events,
        )
        yield from self._span_problems(update, update.call, merged)
        self._note_outcome(update, update.call)

    def _span_problems(self, line: Call | Update, call: int, answer: _Answer) -> Iterator[tuple[str, str]]:
        """What lies outside of the call, as far as its end is known by now."""
        facts = self._references.calls[call]
        if facts.end_ns is None and (answer.tool_calls or answer.events):
            self._answers[call] = answer
        yield from _tool_time_problems(_owner(line), answer.tool_calls or (), facts)
        if answer.events is not None:
            yield from _event_problems(_owner(line), answer.events, facts)

    def _note_outcome(self, line: Call | Update, call: int) -> None:
        if line.outcome is not None and line.outcome.error == "unrecorded":
            self._unrecorded.add(call)
        elif line.outcome is not None:
            self._unrecorded.discard(call)

    def _late_gap_findings(self, call: int) -> list[Finding]:
        """Wrong gaps from the end of a call, stated before that was known."""
        facts = self._references.calls.get(call)
        if facts is None or facts.end_ns is None:
            return []
        problems = [
            (wait.line, problem)
            for wait in self._waits.pop(call, ())
            for problem in _gap_problems(wait.place, wait.gap_ns, wait.request_ns - facts.end_ns)
        ]
        return [
            Finding(severity="error", line=line, rule=rule, message=message)
            for line, (rule, message) in problems
        ]

    def _retry_problems(self, call: Call) -> Iterator[tuple[str, str]]:
        if (call.attempt == 1) != (call.retry_of is None) or call.attempt < 1:
            yield (
                "retry",
                f"call.attempt: {call.attempt} with retry_of {call.retry_of}; only a retry is beyond 1",
            )
            return
        other = self._references.calls.get(call.retry_of)
        if other is None or call.retry_of == call.id:
            return
        if other.session != call.session:
            yield (
                "retry",
                f"call.retry_of: call {call.retry_of} is of session {other.session}, not {call.session}",
            )
        if other.attempt + 1 != call.attempt:
            yield (
                "retry",
                f"call.attempt: expected {other.attempt + 1} after the attempt it repeats, got {call.attempt}",
            )

    def _dependency_problems(
        self, number: int, call: Call, index: int, wait: Dependency
    ) -> Iterator[tuple[str, str]]:
        other = self._references.calls.get(wait.call)
        if other is None or wait.call >= call.id:
            return
        if wait.relation in ("sequence", "retry") and other.session != call.session:
            yield (
                "dependency",
                f"call.after.{index}: {wait.relation} of call {wait.call}, which is of session {other.session}",
            )
        if wait.relation == "retry" and wait.call != call.retry_of:
            yield (
                "dependency",
                f"call.after.{index}: retry of call {wait.call}, but retry_of is {call.retry_of}",
            )
        if not self._same_tree(call.session, other.session):
            yield (
                "dependency",
                f"call.after.{index}: {wait.relation} of call {wait.call}, which is of another tree",
            )
        trigger_ns = other.end_ns if wait.trigger == "completion" else other.request_ns
        request_ns = call.times.request_ns
        if wait.gap_ns is None:
            return
        if trigger_ns is None:
            late = _Wait(line=number, place=index, request_ns=request_ns, gap_ns=wait.gap_ns)
            self._waits.setdefault(wait.call, []).append(late)
            return
        yield from _gap_problems(index, wait.gap_ns, request_ns - trigger_ns)

    def _same_tree(self, one: int, other: int) -> bool:
        roots = self._references.roots
        if one not in roots or other not in roots:
            return True  # reported as a reference
        return roots[one] == roots[other]


def _id_problem(message: str | None) -> Iterator[tuple[str, str]]:
    if message is not None:
        yield "id", message


def _negative(rule: str, owner: str, values: Iterable[tuple[str, int | None]]) -> Iterator[tuple[str, str]]:
    for name, value in values:
        if value is not None and value < 0:
            yield rule, f"{owner}.{name}: expected at least 0, got {value}"


def _owner(line: Call | Update) -> str:
    """Kind of the line, for messages."""
    return "call" if isinstance(line, Call) else "update"


def _gap_problems(index: int, gap_ns: int, expected_ns: int) -> Iterator[tuple[str, str]]:
    if abs(gap_ns - expected_ns) > _GAP_TOLERANCE_NS:
        yield (
            "gap",
            f"call.after.{index}.gap_ns: the times of both calls make {expected_ns}, got {gap_ns}",
        )


def _answer_problems(line: Call | Update) -> Iterator[tuple[str, str]]:
    """What is wrong with the answer within one line, whatever other lines say of the call."""
    owner = _owner(line)
    if line.times is not None:
        yield from _time_problems(owner, line.times)
    if line.usage is not None:
        usage = line.usage
        yield from _negative("usage", f"{owner}.usage", ((name, getattr(usage, name)) for name in _COUNTERS))
    durations = ((f"tool_calls.{i}.duration_ns", t.duration_ns) for i, t in enumerate(line.tool_calls or ()))
    yield from _negative("range", owner, durations)
    if line.wire is not None:
        wire = line.wire
        yield from _negative("range", f"{owner}.wire", ((name, getattr(wire, name)) for name in _WIRE_COUNTS))
    if line.outcome is not None:
        retry_after_ns, status = line.outcome.retry_after_ns, line.outcome.status
        yield from _negative("range", f"{owner}.outcome", (("retry_after_ns", retry_after_ns),))
        if status is not None and not 100 <= status <= 999:
            yield "range", f"{owner}.outcome.status: expected 100 to 999, got {status}"


def _time_problems(owner: str, times: CallTimes) -> Iterator[tuple[str, str]]:
    for path in _TIME_PATHS:
        known = [(name, at_ns) for name in path if (at_ns := getattr(times, name)) is not None]
        for (earlier, earlier_ns), (later, later_ns) in pairwise(known):
            if later_ns < earlier_ns:
                yield "times", f"{owner}.times.{later}: {later_ns} lies before {earlier} {earlier_ns}"


def _tool_time_problems(
    owner: str, tool_calls: Iterable[ToolCall], times: _CallFacts
) -> Iterator[tuple[str, str]]:
    for index, tool_call in enumerate(tool_calls):
        at_ns = tool_call.end_ns
        if at_ns is None:
            continue
        if at_ns < times.request_ns or (times.end_ns is not None and at_ns > times.end_ns):
            span = f"{times.request_ns} to {times.end_ns}"
            yield (
                "times",
                f"{owner}.tool_calls.{index}.end_ns: {at_ns} lies outside of the call, {span}",
            )


def _event_problems(owner: str, events: Events, times: _CallFacts) -> Iterator[tuple[str, str]]:
    moments, sizes = len(events.at_ns), len(events.size_bytes)
    if sizes != moments:
        yield (
            "events",
            f"{owner}.events.size_bytes: expected {moments} sizes, one for each time, got {sizes}",
        )
    if any(later < earlier for earlier, later in pairwise(events.at_ns)):
        yield "events", f"{owner}.events.at_ns: runs backwards"
    if events.at_ns and events.at_ns[0] < times.request_ns:
        yield (
            "events",
            f"{owner}.events.at_ns: begins at {events.at_ns[0]}, before request_ns {times.request_ns}",
        )
    if events.at_ns and times.end_ns is not None and events.at_ns[-1] > times.end_ns:
        yield "events", f"{owner}.events.at_ns: ends at {events.at_ns[-1]}, after end_ns {times.end_ns}"
    yield from _negative("events", f"{owner}.events", (("size_bytes", min(events.size_bytes, default=None)),))


def _usage_contradictions(owner: str, usage: Usage) -> Iterator[str]:
    """What an endpoint reported that cannot be; a fact about the endpoint, so the trace itself is not wrong."""
    read, total = usage.cache_read_tokens, usage.input_tokens
    if read is not None and total is not None and read > total:
        yield f"{owner}.usage.cache_read_tokens: {read} of {total} input tokens"
    reasoning, output = usage.reasoning_tokens, usage.output_tokens
    if reasoning is not None and output is not None and reasoning > output:
        yield f"{owner}.usage.reasoning_tokens: {reasoning} of {output} output tokens"
