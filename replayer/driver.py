"""I/O: plays a plan: sleeps until calls are due, sends them, and writes down what became of each.

The scheduler says what is due and is told what happened; this loop performs it. It holds the only TaskGroup of the
program: every call in flight, the metrics reader and the samplers are its tasks, so none of them can get lost.

A stop (Ctrl-C, SIGTERM, the end of the run's duration) sends nothing more and closes the connections of the calls in
flight at once, without a grace period: a call that would have ended in time is as rare as a call that would have run
for minutes is common. Those calls are written as `client_abort` with the times they reached.
"""

import asyncio
import gc
import random
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from aitrace.clock import Clock
from aitrace.observe import Observation, ResponseObserver
from aitrace.quantiles import quantile
from aitrace.results import CallResult, RunEnd, UnsentReason
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.final_sender import FinalSender
from replayer.flight import Flight, sent_result
from replayer.http.transport import Failure, OutgoingRequest
from replayer.planned_results import planned_fields, with_phase
from replayer.planning.planned import PlannedCall, PlannedTree, TreeCalls
from replayer.retry import Failed, Retry, next_try
from replayer.run_parts import WATCH_EVERY_NS, RunParts, Snapshot
from replayer.scheduler import Scheduler, Send
from replayer.stock import BodyStock
from replayer.tally import Tally
from replayer.time_left import Forecast

LAG_EVERY_NS = 50 * NS_PER_MS
_FIRST_BODIES_NS = NS_PER_S
_PLAN_CALL_NS = 40_000
"""What it takes to make a call of a tree that is about to start."""
_LEAVING_POLL_NS = NS_PER_MS
_GC_OBJECTS = 50_000
_BUILD_COST_DECAY = 0.95
_STOPPED = Failure(kind="client_abort", text="the run was stopped")
_CUT = Failure(kind="client_abort", text="the run's duration was over")


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
        self._random = random.Random(parts.seed)
        self._open: dict[int, asyncio.Task[None]] = {}
        self._finals = FinalSender(parts.target, parts.transport, clock)
        self._wake = asyncio.Event()
        self._ring: asyncio.Task[None] | None = None
        self._ring_ns: int | None = None
        self._leaving: list[Flight] = []
        self._build_ns_per_token = 0.0
        self._stopping: UnsentReason | None = None
        self._started_ns = 0
        self._warm_up_end_ns: int | None = None
        """End of the warm-up; None if no time is one, or before the run has started."""
        self._cut_ns: int | None = None
        """When the run is to be cut; None if it is not, or before it has started."""
        self._last_end_ns = 0
        self._lags_ns = array("q")
        self._playing: dict[int, TreeCalls] = {}
        """Trees of which a call was sent and not all have a result, by number: so their calls are not made again."""
        self._calls_left: dict[int, int] = {}
        """Calls without a result, by number of a tree of which one has a result."""
        self._forecast = Forecast(parts.plan)
        self._in_backoff = 0
        """Calls between two tries."""
        self._earlier_tries: Counter[str] = Counter()
        """Tries so far that another one follows, by error kind."""

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
                    background.append(group.create_task(scraper.read_on_the_beat()))
                await self._play_plan(group, background)
                for task in background:
                    task.cancel()
                if self._ring is not None:
                    self._ring.cancel()
            if scraper is not None:
                await scraper.read_until_settled()
        if self._parts.watch is not None:
            self._parts.watch(self._snapshot())
        return self._end(time.process_time_ns() - cpu_before_ns)

    @property
    def adjustments(self) -> Mapping[str, int]:
        """What requests had to be given so far, see `RequestBuilder.counts`."""
        return dict(self._parts.bodies.counts)

    def stop(self) -> None:
        """Send nothing more and abort the calls in flight; `run` then comes to its end."""
        self._end_early("interrupted")

    def _end_early(self, reason: UnsentReason) -> None:
        if self._stopping is not None:
            return
        self._stopping = reason
        self._scheduler.stop(reason)
        for task in self._open.values():
            task.cancel()
        self._finals.stop()
        self._wake.set()

    def _end(self, cpu_ns: int) -> RunEnd:
        unstarted = self._scheduler.unstarted_trees
        return RunEnd(
            ended_ns=self._last_end_ns,
            interrupted=self._stopping == "interrupted",
            cut_ns=self._cut_ns if self._stopping == "duration" else None,
            unstarted_trees=len(unstarted),
            unstarted_sessions=sum(tree.sessions for tree in unstarted),
            unstarted_calls=sum(tree.count for tree in unstarted),
            ran_out_ns=self._scheduler.ran_out_ns,
            sent_calls=self.tally.sent_calls,
            unsent_calls=self.tally.unsent_calls.total(),
            cpu_ns=cpu_ns,
            loop_lag_p99_ns=quantile(self._lags_ns, 0.99) if self._lags_ns else None,
            late_bodies=self._stock.late_builds,
            final_requests=self._finals.sent,
            failed_final_requests=self._finals.sent - self._finals.taken,
        )

    async def _play_plan(self, group: asyncio.TaskGroup, background: list[asyncio.Task[None]]) -> None:
        await self._build_first()
        if self._parts.wait_for_start is not None:
            await self._parts.wait_for_start()
        self._started_ns = self._clock.monotonic_ns()
        self._scheduler.start(self._started_ns)
        if self._plan.cut_ns is not None:
            self._cut_ns = self._started_ns + self._plan.cut_ns
        if self._plan.warm_up_ns is not None:
            self._warm_up_end_ns = self._started_ns + self._plan.warm_up_ns
            if self._parts.scraper is not None:
                reading = self._parts.scraper.read_before(self._warm_up_end_ns)
                background.append(group.create_task(reading))
        while True:
            self._wake.clear()
            now_ns = self._clock.monotonic_ns()
            has_sent = self._send_due(group, now_ns)
            self._write_lost()
            self._finals.send(group)
            if self._scheduler.is_done:
                return
            if has_sent or (self._may_build(now_ns) and self._stock.build_next(now_ns)):
                # Requests leave before anything else is done. One body at a time: between two, answers are read and
                # calls that have become due are sent.
                await self._clock.sleep_until(now_ns)
                continue
            self._set_ring(group, now_ns)
            await self._wake.wait()

    def _send_due(self, group: asyncio.TaskGroup, now_ns: int) -> bool:
        """Send what is due, unless the time of the run is over; tells whether anything was."""
        if self._cut_ns is not None and now_ns >= self._cut_ns:
            self._end_early("duration")
        sends = self._scheduler.take_due(now_ns)
        for send in sends:
            flight = self._flight(send)
            self._leaving.append(flight)
            group.create_task(self._play_call(flight))
        return bool(sends)

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
        expected_ns, upcoming_call = upcoming
        if due_ns is None or expected_ns <= due_ns:
            return True
        needed_ns = (
            upcoming_call.count * _PLAN_CALL_NS
            if isinstance(upcoming_call, PlannedTree)
            else round(upcoming_call.prompt_tokens * self._build_ns_per_token)
        )
        return now_ns + needed_ns <= due_ns

    def _set_ring(self, group: asyncio.TaskGroup, now_ns: int) -> None:
        """See to it that the loop wakes when something is due or a body is to be built."""
        build_ns = self._stock.next_build_ns()
        if build_ns is not None and build_ns <= now_ns:
            # It was put off: until what is leaving has left, or else until the next call has been sent.
            build_ns = now_ns + _LEAVING_POLL_NS if self._leaving else None
        cut_ns = None if self._stopping else self._cut_ns
        times_ns = (self._scheduler.next_due_ns(), build_ns, cut_ns)
        at_ns = min((at_ns for at_ns in times_ns if at_ns is not None), default=None)
        if at_ns is None or (self._ring_ns is not None and self._ring_ns <= at_ns):
            return
        if self._ring is not None:
            self._ring.cancel()
        self._ring_ns = at_ns
        self._ring = group.create_task(self._ring_at(group, at_ns))

    async def _ring_at(self, group: asyncio.TaskGroup, at_ns: int) -> None:
        await self._clock.sleep_until(at_ns)
        self._ring_ns = None
        # At once: the loop of the run only gets its turn after what has arrived meanwhile.
        self._send_due(group, self._clock.monotonic_ns())
        self._wake.set()

    def _flight(self, send: Send) -> Flight:
        dispatched_ns = self._clock.monotonic_ns()
        number = self._plan.trees.number_of(send.index)
        if number not in self._playing:
            self._playing[number] = self._plan.calls_of(self._plan.trees.tree(number))
        return Flight(
            send=send,
            dispatched_ns=dispatched_ns,
            request_id=self._request_id(send.index),
            body=self._stock.take(send.index),
            observer=self._observer(self._plan.call(send.index)),
        )

    def _observer(self, planned: PlannedCall) -> ResponseObserver:
        return ResponseObserver(
            self._parts.target.protocol,
            streamed=planned.streamed,
            keep_text=self._parts.history_is_live,
            signal_headers=self._parts.signal_headers,
        )

    async def _play_call(self, flight: Flight) -> None:
        index = flight.send.index
        if self._stopping:
            self._abandon(flight.send)
            return
        self._scheduler.on_sent(index, flight.dispatched_ns)
        self._stock.on_sent(index, flight.dispatched_ns)
        self._open[index] = asyncio.current_task()  # type: ignore[assignment] # a task is always running here
        try:
            seen = await self._try(flight)
            while (retry := self._next_try(flight, seen)) is not None:
                self._start_over(flight, seen, retry)
                await self._back_off(seen.end_ns + retry.wait_ns)
                flight.dispatched_ns = self._clock.monotonic_ns()
                seen = await self._try(flight)
        except asyncio.CancelledError:
            failure = _CUT if self._stopping == "duration" else _STOPPED
            self._finish(flight, flight.seen(self._clock.monotonic_ns(), failure))
            if not self._stopping:
                raise
        else:
            self._finish(flight, seen)
        finally:
            del self._open[index]

    async def _try(self, flight: Flight) -> Observation:
        request = self._request(self._plan.call(flight.send.index), flight)
        failure = await self._parts.transport.send(request, flight.observer, flight.stamps)
        if self._parts.tokens is not None:
            self._parts.tokens.note(self._plan.call(flight.send.index), flight.observer.kept_headers)
        return flight.seen(self._clock.monotonic_ns(), failure)

    def _next_try(self, flight: Flight, seen: Observation) -> Retry | None:
        """What the call's harness does after this; None if the call is over, for good or ill."""
        profile = self._parts.retries.get(self._plan.call(flight.send.index).session)
        if seen.error is None or profile is None or self._stopping:
            return None
        failed = Failed(
            error=seen.error,
            status=seen.status,
            retry_after_ns=seen.retry_after_ns,
            error_text=seen.error_text,
        )
        return next_try(profile, len(flight.attempts) + 1, failed, self._random)

    def _start_over(self, flight: Flight, seen: Observation, retry: Retry) -> None:
        """Make the call ready for its next try."""
        if seen.error is not None:
            self._earlier_tries[seen.error] += 1
        planned = self._plan.call(flight.send.index)
        if planned.streamed and not retry.stream:
            planned = replace(planned, streamed=False)
            flight.body = self._build(planned)
        flight.start_over(seen, wait_ns=retry.wait_ns, observer=self._observer(planned))

    async def _back_off(self, until_ns: int) -> None:
        self._in_backoff += 1
        try:
            await self._clock.sleep_until(until_ns)
        finally:
            self._in_backoff -= 1

    def _request(self, planned: PlannedCall, flight: Flight) -> OutgoingRequest:
        target = self._parts.target
        return OutgoingRequest(
            url=target.url,
            headers={
                **target.headers,
                "X-Request-Id": flight.request_id,
                **self._parts.ids_of(planned),
                **({} if self._parts.tokens is None else self._parts.tokens.headers(planned)),
            },
            body=flight.body,
        )

    def _finish(self, flight: Flight, seen: Observation) -> None:
        """Tell everybody that a call is over, those first on whom other calls wait."""
        end_ns = seen.end_ns
        index = flight.send.index
        planned = self._plan.call(index)
        fields = planned_fields(planned, flight.request_id, self._started_ns)
        result = sent_result(fields, flight, seen)
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
        self._record_unsent(send.index, self._stopping or "interrupted")
        self._wake.set()

    def _write_lost(self) -> None:
        for index, reason in self._scheduler.unsent():
            self._stock.drop(index, self._clock.monotonic_ns())
            self._record_unsent(index, reason)

    def _record_unsent(self, index: int, reason: UnsentReason) -> None:
        fields = planned_fields(self._plan.call(index), self._request_id(index), self._started_ns)
        self._record(CallResult(**fields, unsent=reason))

    def _request_id(self, index: int) -> str:
        return f"{self._parts.run_id}-{index}"

    def _record(self, result: CallResult) -> None:
        result = with_phase(result, self._clock.monotonic_ns(), self._warm_up_end_ns)
        self.tally.add(result)
        self._parts.write_call(result)
        final = self._parts.final_of(result)
        if final is not None and not self._stopping:
            self._finals.add(final)
        self._count_off(result)

    def _count_off(self, result: CallResult) -> None:
        """Let go of what is kept for a tree, with the result of its last call."""
        number = self._plan.trees.number_of(result.index)
        left = self._calls_left.get(number) or self._plan.trees.tree(number).count
        if left > 1:
            self._calls_left[number] = left - 1
            return
        self._calls_left.pop(number, None)
        self._playing.pop(number, None)
        self._parts.bodies.forget_tree(result.root, result.instance)
        if self._parts.tokens is not None:
            self._parts.tokens.forget_tree(result.root, result.instance)

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
                started_ns=self._started_ns,
            )
            if self._cut_ns is not None:
                left_ns = min(left_ns, max(0, self._cut_ns - now_ns))
        return Snapshot(
            elapsed_ns=now_ns,
            progress=self._scheduler.progress(),
            in_backoff=self._in_backoff,
            earlier_tries=dict(self._earlier_tries),
            tally=self.tally,
            planned_calls=self._plan.call_count,
            planned_trees=len(self._plan.trees),
            planned_sessions=self._plan.sessions,
            left_ns=left_ns,
            is_stopping=self._stopping is not None,
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


@contextmanager
def _frozen_garbage_collector() -> Iterator[None]:
    """Keep the collector off all that exists now: a trace of 100,000 calls in memory takes it long enough to make calls
    late.
    """
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    # Calls leave nearly no cycles behind; at the usual 700 objects, a twelfth of a run's CPU time is looking for them.
    gc.set_threshold(_GC_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
