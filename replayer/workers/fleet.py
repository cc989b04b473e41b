"""I/O: plays a plan in several processes: starts them, has them begin at one time, and gathers what they say.

Each worker (`replayer.workers.worker`) plays whole trees with a loop and connections of its own. A worker that dies
costs the calls it had not ended: those in flight are written as `client_abort`, the others as not sent, and the run
goes on.
"""

import asyncio
import pickle
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from aitrace.results import CallResult, RunEnd, WorkerEnd
from aitrace.units import NS_PER_MS
from replayer.job import Job
from replayer.planned_results import planned_fields, with_phase
from replayer.planning.planned import PlannedCall, PlannedTree, PlannedTrees
from replayer.run_clock import RunClock
from replayer.run_parts import WATCH_EVERY_NS, RunParts, Snapshot
from replayer.tally import Tally
from replayer.workers.worker import Assignment
from replayer.workers.worker_wire import (
    STOP,
    Done,
    Ready,
    Sending,
    State,
    message_from_line,
    play_line,
    sum_of,
)

_START_NS = 50 * NS_PER_MS
"""From the moment when all are ready to the start: time for all to hear of it."""
_MAX_LINE_BYTES = 1 << 22
_LOST = "the process that had sent it was lost"


@dataclass(slots=True, kw_only=True)
class _Worker:
    """What is known of one of them."""

    process: Process
    trees: PlannedTrees
    """Its part of the plan."""
    results: dict[int, set[int]] = field(default_factory=dict)
    """Calls with a result, of each tree of which not all calls have one, by number of the tree."""
    over: set[int] = field(default_factory=set)
    """Numbers of the trees of which all calls have a result."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: dict[int, int] = field(default_factory=dict)
    """When it was heard of each call in flight that it was about to be sent."""
    sent: int = 0
    started: set[int] = field(default_factory=set)
    """Numbers of the trees of which something was sent."""
    state: State | None = None
    done: Done | None = None
    is_over: bool = False

    def unresolved(self) -> Iterator[tuple[PlannedTree, Sequence[int]]]:
        """Trees of which not all calls have a result, and the calls that have none."""
        for tree in self.trees:
            if tree.number in self.over:
                continue
            calls: Sequence[int] = range(tree.first, tree.first + tree.count)
            if tree.number in self.results:
                calls = [call for call in calls if call not in self.results[tree.number]]
            yield tree, calls

    def note_result(self, call: int) -> None:
        """A call has a result."""
        number = self.trees.number_of(call)
        results = self.results.setdefault(number, set())
        results.add(call)
        if len(results) == self.trees.tree(number).count:
            del self.results[number]
            self.over.add(number)

    def tell(self, line: bytes) -> None:
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(line)


class Fleet:
    """One playing of a plan by several processes; the counterpart of `replayer.driver.Driver`."""

    def __init__(
        self, job: Job, parts: RunParts, workers: int, clock: RunClock, *, write_line: Callable[[bytes], None]
    ) -> None:
        """Take on a run.

        Args:
            job: What each process is told.
            parts: Of them, the plan and what takes results, readings and the state of the run; the rest is made anew by
                each process from its job.
            workers: How many processes there are.
            write_line: Takes each result that a process tells, as the line of calls.jsonl that it is.
        """
        self.tally = Tally()
        """Counts over the results so far."""
        self.adjustments: dict[str, int] = {}
        """What requests had to be given, see `RequestBuilder.counts`; complete at the end."""
        self._job = job
        self._parts = parts
        self._count = workers
        self._clock = clock
        self._write_line = write_line
        self._workers: list[_Worker] = []
        self._is_stopped = False
        self._started_ns = 0
        self._warm_up_end_ns: int | None = None
        """End of the warm-up; None if no time is one, or before the run has started."""
        self._has_started = asyncio.Event()
        self._last_end_ns = 0

    async def run(self) -> RunEnd:
        """Play the plan to its end, or until `stop`."""
        cpu_before_ns = time.process_time_ns()
        scraper = self._parts.scraper
        for part in range(self._count):
            self._workers.append(await self._start(part))
        try:
            if scraper is not None:
                await scraper.read_all()
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(self._show())]
                if scraper is not None:
                    background.append(group.create_task(scraper.read_on_the_beat()))
                hearing = [group.create_task(self._hear(worker)) for worker in self._workers]
                await self._begin()
                if scraper is not None and self._warm_up_end_ns is not None:
                    background.append(group.create_task(scraper.read_before(self._warm_up_end_ns)))
                await asyncio.wait(hearing)
                for task in background:
                    task.cancel()
        finally:
            for worker in self._workers:
                await _end_process(worker.process)
        if scraper is not None:
            await scraper.read_until_settled()
        self._look()
        return self._end(time.process_time_ns() - cpu_before_ns)

    def stop(self) -> None:
        """Have all workers send nothing more and abort their calls in flight; `run` then comes to its end."""
        self._is_stopped = True
        for worker in self._workers:
            worker.tell(STOP)

    async def _start(self, part: int) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "replayer.workers.worker",
            stdin=PIPE,
            stdout=PIPE,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,
        )
        worker = _Worker(process=process, trees=self._parts.plan.trees[part :: self._count])
        assignment = Assignment(job=self._job, part=part, parts=self._count, zero_ns=self._clock.zero_ns)
        worker.tell(pickle.dumps(assignment))
        return worker

    async def _begin(self) -> None:
        for worker in self._workers:
            await worker.ready.wait()
        self._started_ns = self._clock.monotonic_ns() + _START_NS
        if self._parts.plan.warm_up_ns is not None:
            self._warm_up_end_ns = self._started_ns + self._parts.plan.warm_up_ns
        self._has_started.set()
        for worker in self._workers:
            worker.tell(STOP if self._is_stopped else play_line(self._started_ns))

    async def _hear(self, worker: _Worker) -> None:
        """Take in what a worker says, until it says no more."""
        assert worker.process.stdout is not None  # noqa: S101 - it was started with a pipe
        while (line := await worker.process.stdout.readline()).endswith(b"\n"):
            self._take(worker, line)
        worker.is_over = True
        worker.ready.set()
        if worker.done is None:
            await self._has_started.wait()  # planned times and the warm-up count from then
            self._write_lost(worker)

    def _take(self, worker: _Worker, line: bytes) -> None:
        match message_from_line(line):
            case CallResult() as result:
                worker.note_result(result.index)
                worker.in_flight.pop(result.index, None)
                self._write_line(line[1:])
                self._add(result)
            case Sending(number=number):
                if number not in worker.in_flight:
                    worker.in_flight[number] = self._clock.monotonic_ns()
                    worker.sent += 1
                    worker.started.add(worker.trees.number_of(number))
            case Ready():
                worker.ready.set()
            case State() as state:
                worker.state = state
            case Done() as done:
                worker.done = done
                for name, count in done.adjustments.items():
                    self.adjustments[name] = self.adjustments.get(name, 0) + count

    def _write_lost(self, worker: _Worker) -> None:
        """Write what became of the calls of a worker that is gone: in flight, never sent, or never needed."""
        for tree, calls in worker.unresolved():
            if self._is_spare(worker, tree):
                continue
            planned = self._parts.plan.calls_of(tree)
            for index in calls:
                self._record_lost(planned.call(index), worker.in_flight.get(index))

    def _is_spare(self, worker: _Worker, tree: PlannedTree) -> bool:
        """Whether a tree was held in store and not started."""
        return self._parts.plan.is_spare and tree.number not in worker.started

    def _record_lost(self, planned: PlannedCall, sent_ns: int | None) -> None:
        """Write what became of a call; it was in flight if it was heard to be sent."""
        fields = planned_fields(planned, f"{self._job.run_id}-{planned.index}", self._started_ns)
        now_ns = self._clock.monotonic_ns()
        if sent_ns is None:
            lost = CallResult(**fields, unsent="worker_lost")
        else:
            lost = CallResult(**fields, error="client_abort", error_text=_LOST, end_ns=now_ns)
        result = with_phase(lost, now_ns if sent_ns is None else sent_ns, self._warm_up_end_ns)
        self._parts.write_call(result)
        self._add(result)

    def _add(self, result: CallResult) -> None:
        self.tally.add(result)
        self._last_end_ns = max(self._last_end_ns, result.end_ns or 0)

    async def _show(self) -> None:
        while True:
            self._look()
            await self._clock.sleep_until(self._clock.monotonic_ns() + WATCH_EVERY_NS)

    def _look(self) -> None:
        if self._parts.watch is None:
            return
        plan = self._parts.plan
        states = [worker.state for worker in self._workers if worker.state is not None]
        left_ns = [state.left_ns for state in states if state.left_ns is not None]
        self._parts.watch(
            Snapshot(
                elapsed_ns=self._clock.monotonic_ns(),
                progress=sum_of([state.progress for state in states]),
                in_backoff=sum(state.in_backoff for state in states),
                earlier_tries=sum((Counter(state.earlier_tries) for state in states), Counter()),
                tally=self.tally,
                planned_calls=plan.call_count,
                planned_trees=len(plan.trees),
                planned_sessions=plan.sessions,
                left_ns=max(left_ns, default=None),
                is_stopping=self._is_stopped,
            )
        )

    def _end(self, own_cpu_ns: int) -> RunEnd:
        ends = [worker.done.end for worker in self._workers if worker.done is not None]
        spare = [
            tree
            for worker in self._workers
            if worker.done is None
            for tree, _ in worker.unresolved()
            if self._is_spare(worker, tree)
        ]
        return RunEnd(
            ended_ns=self._last_end_ns,
            interrupted=self._is_stopped,
            cut_ns=max((end.cut_ns for end in ends if end.cut_ns is not None), default=None),
            unstarted_trees=sum(end.unstarted_trees for end in ends) + len(spare),
            unstarted_sessions=sum(end.unstarted_sessions for end in ends)
            + sum(tree.sessions for tree in spare),
            unstarted_calls=sum(end.unstarted_calls for end in ends) + sum(tree.count for tree in spare),
            ran_out_ns=min((end.ran_out_ns for end in ends if end.ran_out_ns is not None), default=None),
            sent_calls=self.tally.sent_calls,
            unsent_calls=self.tally.unsent_calls.total(),
            final_requests=sum(end.final_requests for end in ends),
            failed_final_requests=sum(end.failed_final_requests for end in ends),
            cpu_ns=own_cpu_ns + sum(end.cpu_ns for end in ends),
            loop_lag_p99_ns=max(
                (end.loop_lag_p99_ns for end in ends if end.loop_lag_p99_ns is not None), default=None
            ),
            late_bodies=sum(end.late_bodies for end in ends),
            workers=tuple(_worker_end(worker) for worker in self._workers),
        )


def _worker_end(worker: _Worker) -> WorkerEnd:
    if worker.done is None:
        return WorkerEnd(sent_calls=worker.sent, cpu_ns=None, loop_lag_p99_ns=None, lost=True)
    end = worker.done.end
    return WorkerEnd(
        sent_calls=end.sent_calls,
        cpu_ns=end.cpu_ns,
        loop_lag_p99_ns=end.loop_lag_p99_ns,
        late_bodies=end.late_bodies,
    )


async def _end_process(process: Process) -> None:
    """Let a worker go: without its stdin it ends by itself."""
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()
