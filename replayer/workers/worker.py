"""I/O: one of several processes that play a run, `python -m replayer.workers.worker`, started by the fleet.

It reads its job from stdin, builds its first requests, says that it is ready and begins at the time it is told. What
becomes of its calls goes to stdout as it is known. When stdin ends, its parent is gone or has had enough: it stops.
"""

import asyncio
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import uvloop

from aitrace.clock import SystemClock
from aitrace.stored_trace import trace_in_spool
from replayer.driver import Driver
from replayer.http.transport import Failure, OutgoingRequest, ResponseSink, Stamps, Transport
from replayer.job import Job, open_transport, parts_of, raise_file_limit
from replayer.planning.plan import build_plan
from replayer.planning.shards import shard_of
from replayer.run_clock import RunClock
from replayer.run_parts import Snapshot
from replayer.workers.worker_wire import (
    STOP,
    Done,
    Message,
    Ready,
    Sending,
    State,
    line_from_message,
    start_from_line,
)

_STDIN, _STDOUT = 0, 1
_READ_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a worker is told first."""

    job: Job
    """The run."""
    part: int
    """Which part of the plan it plays, from 0."""
    parts: int
    """How many parts there are."""
    zero_ns: int
    """Monotonic time of the start of the run, from which all its times count."""


class _TellingTransport:
    """Tells of each request that is about to be sent, so that a parent knows what a lost worker had in flight."""

    def __init__(self, inner: Transport, tell: Callable[[Message], None]) -> None:
        self._inner = inner
        self._tell = tell

    async def send(self, request: OutgoingRequest, sink: ResponseSink, stamps: Stamps) -> Failure | None:
        number = request.headers["X-Request-Id"].rpartition("-")[2]
        if number.isdecimal():  # else it is no call of the plan
            self._tell(Sending(number=int(number)))
        return await self._inner.send(request, sink, stamps)


class _Orders:
    """What the parent says on stdin after the assignment: when to play, and to stop; its end is a stop too."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.start_ns: asyncio.Future[int | None] = loop.create_future()
        """When to play; None if it is to stop before."""
        self.on_stop: Callable[[], None] | None = None
        self._rest = b""
        os.set_blocking(_STDIN, False)
        loop.add_reader(_STDIN, self._read)

    def _read(self) -> None:
        try:
            data = os.read(_STDIN, _READ_BYTES)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            start_ns = start_from_line(line)
            if start_ns is not None and not self.start_ns.done():
                self.start_ns.set_result(start_ns)
        if not data or STOP in (line + b"\n" for line in lines):
            self._stop(is_end=not data)

    def _stop(self, *, is_end: bool) -> None:
        if is_end:
            asyncio.get_running_loop().remove_reader(_STDIN)
        if not self.start_ns.done():
            self.start_ns.set_result(None)
        if self.on_stop is not None:
            self.on_stop()


class _Outbox(asyncio.BaseProtocol):
    """Messages to the parent. They wait in memory if it is busy, so that no call waits for it."""

    def __init__(self) -> None:
        self.is_closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pipe: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.is_closed.done():
            self.is_closed.set_result(None)

    def tell(self, message: Message) -> None:
        if self._pipe is not None and not self._pipe.is_closing():
            self._pipe.write(line_from_message(message))

    async def close(self) -> None:
        """Close the pipe once everything is in it."""
        if self._pipe is not None:
            self._pipe.close()
        await self.is_closed


def _state(snapshot: Snapshot) -> State:
    return State(
        progress=snapshot.progress,
        in_backoff=snapshot.in_backoff,
        earlier_tries=dict(snapshot.earlier_tries),
        left_ns=snapshot.left_ns,
    )


async def _work(assignment: Assignment) -> None:
    job = assignment.job
    trace = trace_in_spool(job.spool)
    plan = shard_of(build_plan(trace, job.load), assignment.part, assignment.parts)
    clock = RunClock(SystemClock(), zero_ns=assignment.zero_ns)
    loop = asyncio.get_running_loop()
    _, outbox = await loop.connect_write_pipe(_Outbox, os.fdopen(_STDOUT, "wb", buffering=0))
    orders = _Orders()

    async def wait_for_start() -> None:
        outbox.tell(Ready())
        start_ns = await orders.start_ns
        if start_ns is not None:
            await clock.sleep_until(start_ns)

    async with open_transport(job, clock) as transport:
        telling = _TellingTransport(transport, outbox.tell)
        parts = parts_of(job, plan, trace, telling, outbox.tell)
        driver = Driver(
            replace(
                parts,
                seed=parts.seed + assignment.part,
                wait_for_start=wait_for_start,
                watch=lambda state: outbox.tell(_state(state)),
            ),
            clock,
        )
        orders.on_stop = driver.stop
        end = await driver.run()
    outbox.tell(Done(end=end, adjustments=dict(parts.bodies.counts)))
    await outbox.close()


def main() -> None:
    """Work, as the process that `replayer.workers.fleet` has started."""
    # Ctrl-C on a terminal reaches all processes; it is the parent that says what becomes of a run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise_file_limit()
    with open(_STDIN, "rb", buffering=0, closefd=False) as stdin:
        assignment: Assignment = pickle.load(stdin)  # noqa: S301 - from the process that started this one
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(assignment))


if __name__ == "__main__":
    main()
