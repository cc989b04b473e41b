"""I/O: plays a plan: sleeps until calls are due, sends them, and writes down what became of each.

The scheduler says what is due and is told what happened; this loop performs it. It holds the only TaskGroup of the
program: every call in flight, the metrics reader and the samplers are its tasks, so none of them can get lost.

A stop (Ctrl-C, SIGTERM) sends nothing more and closes the connections of the calls in flight at once, without a
grace period: a call that would have ended in time is as rare as a call that would have run for minutes is common.
Those calls are written as `client_abort` with the times they reached.
"""

import asyncio
import gc
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from aitrace.clock import Clock
from aitrace.observe import Observation, ResponseObserver
from aitrace.protocols.protocol import WireProtocol
from aitrace.quantiles import quantile
from aitrace.results import CallResult, RunEnd, UnsentReason
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.plan import Plan, PlannedCall
from replayer.scheduler import Progress, Scheduler, Send
from replayer.scraper import Scraper
from replayer.stock import BodyStock
from replayer.tally import Tally
from replayer.time_left import Forecast
from replayer.transport import Failure, OutgoingRequest, Stamps, Transport

LAG_EVERY_NS = 50 * NS_PER_MS
WATCH_EVERY_NS = NS_PER_S
_FIRST_BODIES_NS = NS_PER_S
_LEAVING_POLL_NS = NS_PER_MS
_LEAVING_LIMIT_NS = 5 * NS_PER_MS
_BUILD_COST_DECAY = 0.95


class RunClock:
    """A clock whose times are ns since the start of the run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._zero_ns = clock.monotonic_ns()
        self.started_unix_ns = clock.unix_ns()
        """Wall time of 0."""

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns() - self._zero_ns

    def unix_ns(self) -> int:
        return self._clock.unix_ns()

    async def sleep_until(self, at_ns: int) -> None:
        await self._clock.sleep_until(at_ns + self._zero_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where calls go, and as what."""

    url: str
    """Full URL of generation requests."""
    protocol: WireProtocol
    """How requests are written and answers are read."""
    model: str
    """Model to ask for."""
    output_forced: bool
    """Whether requests carry the fields that force the length of an answer."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request; they hold the API key, so they are never shown."""


class BodySource(Protocol):
    """What writes the bodies of requests; `replayer.requests.RequestBuilder` is one."""

    def build(self, planned: PlannedCall, *, model: str, output_forced: bool) -> bytes: ...

    def note_answer(self, index: int, text: str) -> None: ...

    def forget_tree(self, root: int, instance: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run is made of."""

    plan: Plan
    """What to send."""
    target: Target
    """Where to."""
    bodies: BodySource
    """Writes the requests."""
    transport: Transport
    """Carries them."""
    write_call: Callable[[CallResult], None]
    """Takes each result the moment it is known."""
    run_id: str
    """Start of every request and session id; another one for every run."""
    history_is_live: bool = False
    """Whether the endpoint's answers go into later prompts."""
    scraper: Scraper | None = None
    """Reads the engine's metrics; None for no reading."""
    watch: Callable[["Snapshot"], None] | None = None
    """Is shown the state of the run every second and at its end; None if nobody looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of a run, for a live view."""

    elapsed_ns: int
    """Since the start, ns."""
    progress: Progress
    """The scheduler's counts."""
    tally: Tally
    """Counts over the results so far; read it, it goes on changing."""
    planned_calls: int
    """Calls of the plan."""
    planned_trees: int
    """Trees of the plan."""
    planned_sessions: int
    """Sessions of the plan."""
    left_ns: int | None
    """About how long the run will go on; None if nothing can be said."""
    is_stopping: bool
    """Whether the run was asked to stop."""


class Driver:
    """One playing of a plan. `run` plays it, `stop` ends it early."""

    def __init__(self, parts: RunParts, clock: Clock) -> None:
        """Take on the parts.

        Args:
            clock: Its 0 is the start of the run; results carry its times.
        """
        self.tally = Tally()
        """Counts over the results so far."""
        self._parts = parts
        self._plan = parts.plan
        self._clock = clock
        self._scheduler = Scheduler(parts.plan)
        self._stock = BodyStock(parts.plan, self._build, needs_answers=parts.history_is_live)
        self._open: dict[int, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._ring: asyncio.Task[None] | None = None
        self._ring_ns: int | None = None
        self._leaving: list[_Flight] = []
        self._build_ns_per_token = 0.0
        self._stopping = False
        self._started_ns = 0
        self._last_end_ns = 0
        self._lags_ns = array("q")
        self._calls_left = Counter((call.root, call.instance) for call in parts.plan.calls)
        self._forecast = Forecast(parts.plan)

    async def run(self) -> RunEnd:
        """Play the plan to its end, or until `stop`."""
        cpu_before_ns = time.process_time_ns()
        scraper = self._parts.scraper
        with _frozen_garbage_collector():
            if scraper is not None:
                await scraper.read_all()
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(self._sample_lag())]
                if self._parts.watch is not None:
                    background.append(group.create_task(self._show(self._parts.watch)))
                if scraper is not None:
                    background.append(group.create_task(scraper.read_every_second()))
                await self._play_plan(group)
                for task in background:
                    task.cancel()
                if self._ring is not None:
                    self._ring.cancel()
            if scraper is not None:
                await scraper.read_until_settled()
        if self._parts.watch is not None:
            self._parts.watch(self._snapshot())
        return self._end(time.process_time_ns() - cpu_before_ns)

    def stop(self) -> None:
        """Send nothing more and abort the calls in flight; `run` then comes to its end."""
        self._stopping = True
        self._scheduler.stop()
        for task in self._open.values():
            task.cancel()
        self._wake.set()

    def _end(self, cpu_ns: int) -> RunEnd:
        return RunEnd(
            ended_ns=self._last_end_ns,
            interrupted=self._stopping,
            sent_calls=self.tally.sent_calls,
            unsent_calls=self.tally.unsent_calls.total(),
            cpu_ns=cpu_ns,
            loop_lag_p99_ns=quantile(self._lags_ns, 0.99) if self._lags_ns else None,
            late_bodies=self._stock.late_builds,
        )

    async def _play_plan(self, group: asyncio.TaskGroup) -> None:
        await self._build_first()
        self._started_ns = self._clock.monotonic_ns()
        self._scheduler.start(self._started_ns)
        while True:
            self._wake.clear()
            now_ns = self._clock.monotonic_ns()
            for send in self._scheduler.take_due(now_ns):
                flight = self._flight(send)
                self._leaving.append(flight)
                group.create_task(self._play_call(flight))
            self._write_lost()
            if self._scheduler.is_done:
                return
            if self._may_build(now_ns) and self._stock.build_next(now_ns):
                # One body at a time: between two, answers are read and calls that have become due are sent.
                await self._clock.sleep_until(now_ns)
                continue
            self._set_ring(group, now_ns)
            await self._wake.wait()

    async def _build_first(self) -> None:
        """Build what is due at the start or soon after, while no call is waiting for it yet."""
        now_ns = self._clock.monotonic_ns()
        self._stock.start(now_ns)
        while not self._stopping:
            upcoming = self._stock.next_call(now_ns)
            if upcoming is None or upcoming[0] > now_ns + _FIRST_BODIES_NS:
                return
            self._stock.build_next(now_ns)
            await self._clock.sleep_until(now_ns)

    def _may_build(self, now_ns: int) -> bool:
        """Whether a body can be built now without holding up a call that is due before it is needed."""
        self._leaving = [flight for flight in self._leaving if flight.is_leaving(now_ns)]
        upcoming = self._stock.next_call(now_ns)
        if upcoming is None or self._leaving:
            return False
        due_ns = self._scheduler.next_due_ns()
        expected_ns, call = upcoming
        if due_ns is None or expected_ns <= due_ns:
            return True
        return now_ns + round(call.prompt_tokens * self._build_ns_per_token) <= due_ns

    def _set_ring(self, group: asyncio.TaskGroup, now_ns: int) -> None:
        """See to it that the loop wakes when something is due or a body is to be built."""
        build_ns = self._stock.next_build_ns()
        if build_ns is not None and build_ns <= now_ns:
            # It was put off: until what is leaving has left, or else until the next call has been sent.
            build_ns = now_ns + _LEAVING_POLL_NS if self._leaving else None
        times_ns = (self._scheduler.next_due_ns(), build_ns)
        at_ns = min((at_ns for at_ns in times_ns if at_ns is not None), default=None)
        if at_ns is None or (self._ring_ns is not None and self._ring_ns <= at_ns):
            return
        if self._ring is not None:
            self._ring.cancel()
        self._ring_ns = at_ns
        self._ring = group.create_task(self._ring_at(at_ns))

    async def _ring_at(self, at_ns: int) -> None:
        await self._clock.sleep_until(at_ns)
        self._ring_ns = None
        self._wake.set()

    def _flight(self, send: Send) -> "_Flight":
        observer = ResponseObserver(
            self._parts.target.protocol,
            streamed=self._plan.calls[send.index].streamed,
            keep_text=self._parts.history_is_live,
        )
        dispatched_ns = self._clock.monotonic_ns()
        return _Flight(
            send=send,
            dispatched_ns=dispatched_ns,
            request_id=self._request_id(send.index),
            body=self._stock.take(send.index),
            observer=observer,
        )

    async def _play_call(self, flight: "_Flight") -> None:
        index = flight.send.index
        if self._stopping:
            self._abandon(flight.send)
            return
        self._scheduler.on_sent(index, flight.dispatched_ns)
        self._stock.on_sent(index, flight.dispatched_ns)
        self._open[index] = asyncio.current_task()  # type: ignore[assignment] # a task is always running here
        request = self._request(self._plan.calls[index], flight)
        try:
            failure = await self._parts.transport.send(request, flight.observer, flight.stamps)
        except asyncio.CancelledError:
            self._finish(flight, Failure(kind="client_abort", text="the run was stopped"))
            if not self._stopping:
                raise
        else:
            self._finish(flight, failure)
        finally:
            del self._open[index]

    def _request(self, planned: PlannedCall, flight: "_Flight") -> OutgoingRequest:
        target = self._parts.target
        return OutgoingRequest(
            url=target.url,
            headers={
                **target.headers,
                "X-Request-Id": flight.request_id,
                "X-Session-ID": f"{self._parts.run_id}-{planned.instance}-{planned.session}",
            },
            body=flight.body,
        )

    def _finish(self, flight: "_Flight", failure: Failure | None) -> None:
        """Tell everybody that a call is over, those first on whom other calls wait."""
        end_ns = self._clock.monotonic_ns()
        kind, text = (None, None) if failure is None else (failure.kind, failure.text)
        seen = flight.observer.on_end(end_ns, kind, text)
        index = flight.send.index
        planned = self._plan.calls[index]
        result = _sent_result(_planned_result(planned, flight.request_id, self._started_ns), flight, seen)
        if seen.text is not None:
            self._parts.bodies.note_answer(index, seen.text)
        self._scheduler.on_end(
            index,
            end_ns,
            ok=result.error is None,
            first_token_ns=seen.first_token_ns,
            last_token_ns=seen.last_token_ns,
        )
        self._stock.on_end(index, end_ns)
        self._last_end_ns = max(self._last_end_ns, end_ns)
        self._wake.set()
        self._record(result)

    def _abandon(self, send: Send) -> None:
        """Give up a call that was handed out when the run was stopped, before anything was sent."""
        now_ns = self._clock.monotonic_ns()
        self._scheduler.on_end(send.index, now_ns, ok=False)
        self._stock.drop(send.index, now_ns)
        self._record_unsent(send.index, "interrupted")
        self._wake.set()

    def _write_lost(self) -> None:
        for index, reason in self._scheduler.unsent():
            self._stock.drop(index, self._clock.monotonic_ns())
            self._record_unsent(index, reason)

    def _record_unsent(self, index: int, reason: UnsentReason) -> None:
        result = _planned_result(self._plan.calls[index], self._request_id(index), self._started_ns)
        self._record(replace(result, unsent=reason))

    def _request_id(self, index: int) -> str:
        return f"{self._parts.run_id}-{index}"

    def _record(self, result: CallResult) -> None:
        self.tally.add(result)
        self._parts.write_call(result)
        tree = (result.root, result.instance)
        self._calls_left[tree] -= 1
        if self._calls_left[tree] == 0:
            self._parts.bodies.forget_tree(*tree)

    def _build(self, planned: PlannedCall) -> bytes:
        target = self._parts.target
        began_ns = self._clock.monotonic_ns()
        body = self._parts.bodies.build(planned, model=target.model, output_forced=target.output_forced)
        ns_per_token = (self._clock.monotonic_ns() - began_ns) / max(1, planned.prompt_tokens)
        # New text costs ten times what kept text does; the dear builds of late are what a guess has to allow for.
        self._build_ns_per_token = max(ns_per_token, _BUILD_COST_DECAY * self._build_ns_per_token)
        return body

    def _snapshot(self) -> Snapshot:
        now_ns = self._clock.monotonic_ns()
        call_ns = None if self._stopping else self.tally.mean_call_ns
        left_ns = None
        if call_ns is not None:
            left_ns = self._forecast.left_ns(
                now_ns,
                self._scheduler.open_calls(),
                started_trees=self._scheduler.started_trees,
                call_ns=call_ns,
            )
        return Snapshot(
            elapsed_ns=now_ns,
            progress=self._scheduler.progress(),
            tally=self.tally,
            planned_calls=len(self._plan.calls),
            planned_trees=len(self._plan.trees),
            planned_sessions=self._plan.sessions,
            left_ns=left_ns,
            is_stopping=self._stopping,
        )

    async def _show(self, watch: Callable[[Snapshot], None]) -> None:
        while True:
            watch(self._snapshot())
            await self._clock.sleep_until(self._clock.monotonic_ns() + WATCH_EVERY_NS)

    async def _sample_lag(self) -> None:
        """Note how late the loop wakes a timer: what it does to this one it does to calls and answers."""
        while True:
            at_ns = self._clock.monotonic_ns() + LAG_EVERY_NS
            await self._clock.sleep_until(at_ns)
            self._lags_ns.append(max(0, self._clock.monotonic_ns() - at_ns))


@dataclass(slots=True, kw_only=True)
class _Flight:
    """A call between its dispatch and its result."""

    send: Send
    dispatched_ns: int
    request_id: str
    body: bytes
    observer: ResponseObserver
    stamps: Stamps = field(default_factory=Stamps)

    def is_leaving(self, now_ns: int) -> bool:
        """Whether its request is about to be handed to the socket; not if that takes long, as opening a connection."""
        return self.stamps.sent_ns is None and now_ns - self.dispatched_ns < _LEAVING_LIMIT_NS


@contextmanager
def _frozen_garbage_collector() -> Iterator[None]:
    """Keep the collector off all that exists now: a plan of 100,000 calls takes it long enough to make calls late."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _planned_result(planned: PlannedCall, request_id: str, started_ns: int) -> CallResult:
    """What is known of a call before it is sent."""
    return CallResult(
        index=planned.index,
        call=planned.call,
        session=planned.session,
        instance=planned.instance,
        root=planned.root,
        call_class=planned.call_class,
        turn_index=planned.turn_index,
        request_id=request_id,
        gap_ns=planned.gap_ns,
        gap_cause=planned.gap_cause,
        prompt_tokens=planned.prompt_tokens,
        output_tokens=planned.output_tokens,
        planned_ns=None if planned.planned_ns is None else started_ns + planned.planned_ns,
    )


def _sent_result(planned: CallResult, flight: _Flight, seen: Observation) -> CallResult:
    """The result of a call that was dispatched."""
    stamps = flight.stamps
    has_events = seen.first_event_ns is not None
    return replace(
        planned,
        due_ns=flight.send.due_ns,
        dispatched_ns=flight.dispatched_ns,
        connected_ns=stamps.connected_ns,
        sent_ns=stamps.sent_ns,
        uploaded_ns=stamps.uploaded_ns,
        headers_ns=seen.headers_ns,
        first_byte_ns=seen.first_byte_ns,
        first_event_ns=seen.first_event_ns,
        first_token_ns=seen.first_token_ns,
        first_visible_ns=seen.first_visible_ns,
        last_token_ns=seen.last_token_ns,
        end_ns=seen.end_ns,
        new_connection=stamps.new_connection,
        stale_connections=stamps.stale_connections,
        request_bytes=len(flight.body),
        response_bytes=seen.response_bytes,
        events=seen.events if has_events else None,
        token_events=seen.token_events if has_events else None,
        longest_stall_ns=seen.longest_stall_ns if seen.token_events > 1 else None,
        unparsed_events=seen.unparsed_events + seen.unparsed_lines,
        status=seen.status,
        error=seen.error,
        error_text=seen.error_text,
        finish=seen.finish,
        retry_after_ns=seen.retry_after_ns,
        usage=seen.usage,
    )
