"""I/O: a clock that jumps, for the event loop; builders of small valid traces and runs, for tests of any kind.

    builder = TraceBuilder(unit="tokens", block_size=64)
    main = builder.session(harness="claude-code")
    system = builder.segment(1000, role="system", type="system")
    first = builder.call(main, [system, builder.segment(200)])
    child = builder.session(parent=main, agent="Explore")
    inner = builder.call(child, [builder.segment(900, like=system)])
    builder.call(main, [builder.segment(300, type="tool_result", role="tool")], after=[first, inner])
    trace = builder.trace()

A call without options continues the prompt of the one before it in its session, starts one second after everything
it waits for, and takes one second.
"""

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from aitrace.results import Calibration, CallResult, RunEnd, RunHeader
from aitrace.schema import (
    Call,
    CallClass,
    CallTimes,
    Dependency,
    Events,
    Footer,
    GapCause,
    Header,
    Line,
    Outcome,
    Prompt,
    ProtocolName,
    Relation,
    Role,
    Segment,
    SegmentType,
    Session,
    ToolCall,
    Trace,
    Update,
    Usage,
    Wire,
)
from aitrace.units import NS_PER_S
from aitrace.validate import Finding, TraceRules

_SETTLE_TURNS = 50


class ManualClock:
    """A clock that stands still until it is moved, or until everything that runs is asleep on it.

    `sleep_until` lets all other tasks of the event loop run as far as they get without waiting for the outside, then
    jumps to the earliest time that somebody sleeps for. So a day of gaps takes no time, in the right order. It knows
    nothing of sockets: code that waits for one is not asleep on this clock.
    """

    def __init__(self, start_ns: int = 0, *, unix_ns: int = 1_700_000_000 * NS_PER_S) -> None:
        self._now_ns = start_ns
        self._unix_offset_ns = unix_ns - start_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = 0
        self._quiet_turns = 0
        self._pumping = False

    def monotonic_ns(self) -> int:
        return self._now_ns

    def unix_ns(self) -> int:
        return self._now_ns + self._unix_offset_ns

    def advance(self, by_ns: int) -> None:
        """Move the clock forward; sleepers whose time has come go on."""
        self._now_ns += by_ns
        self._wake()

    async def sleep_until(self, at_ns: int) -> None:
        loop = asyncio.get_running_loop()
        self._order += 1
        self._quiet_turns = 0
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (at_ns, self._order, future))
        if not self._pumping:
            self._pumping = True
            loop.call_soon(self._pump, loop)
        await future

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        self._quiet_turns += 1
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)  # cancelled
        if self._sleepers and self._quiet_turns >= _SETTLE_TURNS:
            self._now_ns = max(self._now_ns, self._sleepers[0][0])
            self._quiet_turns = 0
        self._wake()
        self._pumping = bool(self._sleepers)
        if self._pumping:
            loop.call_soon(self._pump, loop)

    def _wake(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self._now_ns:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)


class CallOptions(TypedDict, total=False):
    """What of a call may differ from the builder's defaults."""

    base: int | None
    """Call whose prompt is continued; by default the one before in the session."""
    keep: int
    """Segments kept of it; by default all."""
    unseen_start: bool
    """Whether more came before the first segment; by default as in the call that is continued."""
    at_ns: int
    """Start; by default one second after everything it waits for."""
    duration_ns: int
    """Start to end; by default one second."""
    ttft_ns: int
    """Start to first token; by default a quarter of the duration."""
    output_tokens: int
    """Length of the answer; by default 100."""
    after: Sequence[int | Dependency]
    """Calls waited for; by default the one before in the session, else the last one of the parent."""
    cause: GapCause
    """What filled the gaps; by default not known."""
    call_class: CallClass
    protocol: ProtocolName | None
    model: str | None
    turn: int | None
    window: int
    streamed: bool | None
    max_output_tokens: int | None
    usage: Usage
    tool_calls: tuple[ToolCall, ...] | None
    tool_results: int | None
    outcome: Outcome
    attempt: int
    retry_of: int | None
    times: CallTimes
    events: Events | None
    wire: Wire | None


class TraceBuilder:
    """Builds a trace line by line; ids are given out in order, so the result is valid by construction."""

    def __init__(self, **header: Any) -> None:
        options: Any = {"producer": "aitrace 0", "unit": "tokens", "block_size": 64, **header}
        self._header = Header(**options)
        self._sessions: list[Session] = []
        self._segments: list[Segment] = []
        self._calls: list[Call] = []
        self._prompts: list[tuple[int, ...]] = []
        self._next_block = 0
        self._last_call: dict[int, int] = {}

    def session(
        self,
        parent: int | None = None,
        *,
        harness: str | None = None,
        agent: str | None = None,
        label: str | None = None,
        harness_version: str | None = None,
        evidence: Sequence[str] = (),
    ) -> int:
        """A new session; a root unless it has a parent."""
        new = len(self._sessions)
        root = new if parent is None else self._sessions[parent].root
        self._sessions.append(
            Session(
                id=new,
                parent=parent,
                root=root,
                harness=harness,
                agent=agent,
                harness_version=harness_version,
                evidence=tuple(evidence),
                label=label,
            )
        )
        return new

    def segment(
        self,
        size: int,
        role: Role = "user",
        type: SegmentType = "text",  # noqa: A002 - named as the field it fills
        *,
        like: int | None = None,
        text: str | None = None,
    ) -> int:
        """A new segment.

        Args:
            size: In the trace's unit.
            like: Segment that this one begins like: they share the blocks that are full in both, and all if they
                have the same size.
        """
        block_size = self._header.block_size
        count = -(-size // block_size)
        shared: tuple[tuple[int, int], ...] = ()
        if like is not None:
            other = self._segments[like]
            same = count if other.size == size else min(size, other.size) // block_size
            shared = _leading_blocks(other.blocks, same)
        fresh = count - sum(n for _, n in shared)
        blocks = shared + (((self._next_block, fresh),) if fresh else ())
        self._next_block += fresh
        new = len(self._segments)
        self._segments.append(Segment(id=new, role=role, type=type, size=size, blocks=blocks, text=text))
        return new

    def call(self, session: int, add: Sequence[int] = (), **options: Unpack[CallOptions]) -> int:
        """A new call of `session` whose prompt adds the segments `add`."""
        fields: dict[str, Any] = dict(options)
        new = len(self._calls)
        base = fields.pop("base", self._last_call.get(session))
        kept = () if base is None else self._prompts[base]
        keep = fields.pop("keep", len(kept))
        is_after_unseen = base is not None and keep > 0 and self._calls[base].prompt.unseen_start
        unseen_start = fields.pop("unseen_start", is_after_unseen)
        prompt = Prompt(base=base, keep=keep, add=tuple(add), unseen_start=unseen_start)
        waits = fields.pop("after", self._default_waits(session))
        at_ns = fields.pop("at_ns", None)
        cause = fields.pop("cause", "unknown")
        if at_ns is None:
            at_ns = max((self._end_ns(wait) + NS_PER_S for wait in waits), default=0)
        times = _times(at_ns, fields.pop("duration_ns", NS_PER_S), fields.pop("ttft_ns", None))
        times = fields.pop("times", times)
        segments = kept[:keep] + prompt.add
        usage = self._usage(segments, fields.pop("output_tokens", 100))
        call = Call(
            id=new,
            session=session,
            prompt=prompt,
            times=times,
            after=tuple(self._dependency(session, wait, times.request_ns, cause) for wait in waits),
            **{"usage": usage, "protocol": "chat", "model": "model-a", "streamed": True, **fields},
        )
        self._calls.append(call)
        self._prompts.append(segments)
        self._last_call[session] = new
        return new

    def trace(self) -> Trace:
        """Everything so far, with a footer."""
        return Trace(
            header=self._header,
            sessions=tuple(self._sessions),
            segments=tuple(self._segments),
            calls=tuple(self._calls),
            footer=Footer(
                sessions=len(self._sessions),
                segments=len(self._segments),
                calls=len(self._calls),
                blocks=self._next_block,
            ),
        )

    def _default_waits(self, session: int) -> Sequence[int | Dependency]:
        last = self._last_call.get(session)
        parent = self._sessions[session].parent
        if last is None and parent is not None:
            last = self._last_call.get(parent)
        return () if last is None else (last,)

    def _end_ns(self, wait: int | Dependency) -> int:
        times = self._calls[wait if isinstance(wait, int) else wait.call].times
        return times.request_ns if times.end_ns is None else times.end_ns

    def _dependency(self, session: int, wait: int | Dependency, at_ns: int, cause: GapCause) -> Dependency:
        if isinstance(wait, Dependency):
            return wait
        other = self._calls[wait]
        end_ns = other.times.end_ns
        return Dependency(
            call=wait,
            relation=self._relation(session, other.session),
            gap_ns=None if end_ns is None else at_ns - end_ns,
            cause=cause,
        )

    def _relation(self, session: int, other: int) -> Relation:
        if session == other:
            return "sequence"
        return "spawn" if self._sessions[session].parent == other else "join"

    def _usage(self, segments: Sequence[int], output_tokens: int) -> Usage:
        size = sum(self._segments[i].size for i in segments)
        tokens = size if self._header.unit == "tokens" else -(-size // 4)
        return Usage(input_tokens=tokens, output_tokens=output_tokens)


def _times(at_ns: int, duration_ns: int, ttft_ns: int | None) -> CallTimes:
    first_ns = at_ns + (duration_ns // 4 if ttft_ns is None else ttft_ns)
    end_ns = at_ns + duration_ns
    return CallTimes(request_ns=at_ns, first_token_ns=first_ns, last_token_ns=end_ns, end_ns=end_ns)


def _leading_blocks(blocks: Sequence[tuple[int, int]], count: int) -> tuple[tuple[int, int], ...]:
    taken: list[tuple[int, int]] = []
    for first, length in blocks:
        part = min(length, count)
        if part:
            taken.append((first, part))
        count -= part
    return tuple(taken)


def make_trace(sessions: int = 1, calls: int = 3, **header: Any) -> Trace:
    """A trace of independent root sessions that start one second apart and share their system prompt.

    Every session has `calls` calls; each but the first adds an answer of 100 and a tool result of 300 to the prompt.
    """
    builder = TraceBuilder(**header)
    system = builder.segment(1000, role="system", type="system")
    for number in range(sessions):
        session = builder.session(harness="claude-code")
        builder.call(session, [system, builder.segment(200)], at_ns=number * NS_PER_S)
        for _ in range(calls - 1):
            answer = builder.segment(100, role="assistant", type="tool_use")
            result = builder.segment(300, role="tool", type="tool_result")
            builder.call(session, [answer, result], cause="tool")
    return builder.trace()


def make_segment(id: int, size: int, first_block: int, **fields: Any) -> Segment:  # noqa: A002 - the field's name
    """One segment of new blocks of 64, from `first_block` on."""
    defaults: dict[str, Any] = {"role": "user", "type": "text", "blocks": ((first_block, -(-size // 64)),)}
    return Segment(id=id, size=size, **{**defaults, **fields})


def make_call(id: int, session: int = 0, **fields: Any) -> Call:  # noqa: A002 - the field's name
    """One call that starts at 10 s times its id and takes one second; its prompt is empty unless given."""
    defaults: dict[str, Any] = {"prompt": Prompt(), "times": _times(id * 10 * NS_PER_S, NS_PER_S, None)}
    return Call(id=id, session=session, **{**defaults, **fields})


def make_update(call: int, **fields: Any) -> Update:
    """What `make_call(call)` gives, as the update of a call whose line tells only its start; any field may be given."""
    defaults: dict[str, Any] = {
        "times": _times(call * 10 * NS_PER_S, NS_PER_S, None),
        "outcome": Outcome(status=200),
    }
    return Update(call=call, **{**defaults, **fields})


def recorded_lines(trace: Trace) -> list[Line]:
    """The trace as a recorder writes it while the calls run: each call as far as its request tells it, then an update.

    Updates come in the order in which calls end. Read again, the lines give the same trace.
    """
    lines: list[Line] = [trace.header, *trace.sessions, *trace.segments]
    ends = sorted(trace.calls, key=_end_or_last)
    for call in trace.calls:
        while ends and ends[0].id < call.id and _end_or_last(ends[0]) <= call.times.request_ns:
            lines.append(_update_of(ends.pop(0)))
        lines.append(_begun(call))
    lines += map(_update_of, ends)
    return lines if trace.footer is None else [*lines, trace.footer]


def _end_or_last(call: Call) -> int:
    return call.times.request_ns if call.times.end_ns is None else call.times.end_ns


def _begun(call: Call) -> Call:
    return replace(
        call,
        usage=Usage(),
        tool_calls=None,
        outcome=Outcome(error="unrecorded", ended_by="recorder"),
        times=CallTimes(request_ns=call.times.request_ns),
        events=None,
    )


def _update_of(call: Call) -> Update:
    return Update(
        call=call.id,
        usage=call.usage,
        tool_calls=call.tool_calls,
        outcome=call.outcome,
        times=call.times,
        events=call.events,
        wire=call.wire,
    )


def make_run_header(**fields: Any) -> RunHeader:
    """The header of a run of one call; any field may be given."""
    header = RunHeader(
        producer="aitrace 0",
        started_unix_ns=1_700_000_000 * NS_PER_S,
        url="http://127.0.0.1:8000",
        protocol="chat",
        model="model-a",
        trace="small.aitrace",
        options={},
        open_loop=True,
        time_scale=1.0,
        seed=0,
        share_system=False,
        history="recorded",
        calibration=Calibration(
            tokens_per_word=1.0, request_overhead_tokens=0.0, source="given", output_forced=True
        ),
        planned_trees=1,
        planned_sessions=1,
        planned_calls=1,
    )
    return replace(header, **fields)


def make_run_end(**fields: Any) -> RunEnd:
    """The end of a run of one call that went well; any field may be given."""
    end = RunEnd(
        ended_ns=2 * NS_PER_S,
        interrupted=False,
        sent_calls=1,
        unsent_calls=0,
        cpu_ns=NS_PER_S // 100,
        loop_lag_p99_ns=100_000,
    )
    return replace(end, **fields)


def make_call_result(index: int = 0, at_ns: int = 0, **fields: Any) -> CallResult:
    """A call that was due, sent at `at_ns`, gave its first token after 250 ms and ended after one second."""
    end_ns = at_ns + NS_PER_S
    first_ns = at_ns + NS_PER_S // 4
    result = CallResult(
        index=index,
        call=index,
        session=0,
        instance=1,
        root=0,
        call_class="main",
        turn_index=index,
        request_id=f"request-{index}",
        gap_ns=None if index == 0 else NS_PER_S,
        gap_cause=None if index == 0 else "tool",
        prompt_tokens=1000,
        output_tokens=100,
        planned_ns=at_ns,
        due_ns=at_ns,
        dispatched_ns=at_ns,
        connected_ns=at_ns,
        sent_ns=at_ns,
        uploaded_ns=at_ns,
        headers_ns=first_ns,
        first_byte_ns=first_ns,
        first_event_ns=first_ns,
        first_token_ns=first_ns,
        first_visible_ns=first_ns,
        last_token_ns=end_ns,
        end_ns=end_ns,
        new_connection=index == 0,
        status=200,
        finish="stop",
        usage=Usage(input_tokens=1000, output_tokens=100),
    )
    return replace(result, **fields)


def find_problems(lines: Iterable[tuple[int, Line]]) -> Iterator[Finding]:
    """Everything that is wrong with the numbered lines of a trace, in their order."""
    rules = TraceRules()
    for number, line in lines:
        yield from rules.check(number, line)
    yield from rules.finish()
