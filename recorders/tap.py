"""I/O: hands notes to the writer's process without ever making the proxy wait.

`put` appends to a queue and returns. A thread empties it four times a second, pickles what was there and sends it
to the writer's standard input; it is the only one that blocks when the writer is slow. What the queue has no room for
is dropped, and its exchange with it: half an answer with a hole in it would look like an answer.
"""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from traceback import format_exception
from typing import IO

import orjson

from aitrace.store import partial_path
from recorders.notes import Answered, Asked, Chunk, Connected, Ended, Message, Note, Stopped, WriterReport
from recorders.options import RecordOptions

Step = Asked | Connected | Answered | Chunk | Message | Ended
"""A note of an exchange."""
_PAUSE_S = 0.25
"""Between two looks at the queue. Waking up costs more CPU than handing over a chunk; a crash loses this much."""
_BATCH_BYTES = 256 << 10
"""Small notes are pickled together, and the event loop waits for the interpreter meanwhile."""
_NOTE_BYTES = 200
"""What a note takes besides its data."""
_NICENESS = 5
"""Of the writer: where cores are short, the session goes first."""
_KEPT_LINES = 20
_TICK_S = 0.25
_LAG_STEP_US = 100


class Tap:
    """The way of the notes out of the proxy.

    Args:
        options: What the recording is to be.
        command: Starts the writer; it gets the options as one more argument and the notes on its standard input, and
            says its report on its standard output.
        patience_s: Most seconds to wait at the end for the writer to take what is left, and again for it to finish.
    """

    def __init__(
        self, options: RecordOptions, *, command: Sequence[str] = (), patience_s: float = 30.0
    ) -> None:
        self.options = options
        """What the recording is to be."""
        # -P: the folder in which somebody codes is no place to import from.
        self._command = (*command,) or (sys.executable, "-P", "-m", "recorders.writer")
        self._patience_s = patience_s
        self._queue: deque[Note] = deque()
        self._put_bytes = 0
        self._taken_bytes = 0
        self._high_water_bytes = 0
        self._open: set[int] = set()
        self._lost: set[int] = set()
        self._asked = 0
        self._dropped = 0
        self._unrecorded = 0
        self._faults = 0
        self._first_fault: list[str] = []
        self._stopping = threading.Event()
        self._writer: subprocess.Popen[bytes] | None = None
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self._writer_errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._threads: list[threading.Thread] = []
        self._failure: str | None = None
        self.report: WriterReport | None = None
        """What became of the recording; None until it has stopped."""

    @property
    def counts(self) -> dict[str, int]:
        """What the queue held and what was lost, by name with unit."""
        return {
            "queue_high_water_bytes": self._high_water_bytes,
            "dropped_exchanges": self._dropped,
            "unrecorded_exchanges": self._unrecorded,
            "addon_errors": self._faults,
        }

    @property
    def is_running(self) -> bool:
        """Whether it has been started, with or without success."""
        return self._writer is not None or self._failure is not None

    @property
    def complaints(self) -> tuple[str, ...]:
        """What somebody who repairs the recorder wants to see: the last lines of the writer's standard error, and the
        traceback of our first exception in the proxy.
        """
        return (*self._writer_errors, *self._first_fault)

    def start(self) -> None:
        """Start the writer. If it does not start, everything is lost from here on, and the report says so."""
        # A pipe would take a third more of the proxy's CPU for a body of 1 MB: it copies page by page.
        ours, theirs = socket.socketpair()
        try:
            self._writer = subprocess.Popen(
                [*self._command, orjson.dumps(self.options).decode()],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the client; the writer has to outlive it
            )
        except OSError as error:
            ours.close()
            self._give_up(f"the writer did not start: {error}")
            return
        finally:
            theirs.close()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._writer.pid, _NICENESS)
        for thread in (
            threading.Thread(target=_listen, args=(self._writer.stdout, self._said), daemon=True),
            threading.Thread(target=_listen, args=(self._writer.stderr, self._writer_errors), daemon=True),
            threading.Thread(target=self._feed, args=(ours,), daemon=True),
        ):
            thread.start()
            self._threads.append(thread)

    def put(self, note: Step) -> None:
        """Hand over a note, or drop it and the rest of its exchange. Never blocks."""
        number = note.exchange
        if number in self._lost:
            return
        is_start, is_over = isinstance(note, Asked), isinstance(note, Ended)
        size = _size(note)
        waiting = self._put_bytes - self._taken_bytes + size
        # An end takes next to nothing, and there is one for each start that found room.
        if self._failure is not None or (waiting > self.options.queue_bytes and not is_over):
            self.lose(number, note.at_ns, "the writer did not keep up")
            return
        if is_start:
            self._asked += 1
            self._open.add(number)
        elif is_over:
            self._open.discard(number)
        self._high_water_bytes = max(self._high_water_bytes, waiting)
        self._put_bytes += size
        self._queue.append(note)

    def lose(self, number: int, at_ns: int, why: str) -> None:
        """Give up an exchange: what else comes of it is dropped. Never blocks."""
        if number in self._lost:
            return
        self._lost.add(number)
        if number not in self._open:
            self._dropped += 1
            return
        self._open.discard(number)
        self._unrecorded += 1
        if self._failure is None:
            self._put_bytes += _NOTE_BYTES
            self._queue.append(Ended(number, at_ns, "unrecorded", why))

    def fail(self, error: Exception, number: int | None, at_ns: int) -> None:
        """Count an exception of ours, and give up the exchange in which it happened, if it was in one."""
        self._faults += 1
        self._first_fault = self._first_fault or "".join(format_exception(error)).splitlines()
        if number is not None:
            self.lose(number, at_ns, f"{type(error).__name__} in the recorder")

    def stop(self, at_ns: int, counts: Mapping[str, int]) -> WriterReport:
        """The writer's report, or one in its place if it has none to give. Waits for the writer, within bounds.

        Args:
            counts: Counts to put into the footer beside those of the queue.
        """
        if self.report is None:
            self._queue.append(Stopped(at_ns, {**self.counts, **counts}))
            self._stopping.set()
            said = None if self._writer is None else self._wait(self._writer)
            self.report = said or self._own_report()
        return self.report

    def hurry(self, limit_s: float) -> None:
        """Hand over what waits, for a process that is about to end without `stop`. May be called from a signal's handler."""
        # A thread of its own: the handler may have come in the middle of `stop`, which holds the event's lock.
        threading.Thread(target=self._stopping.set, daemon=True).start()
        for thread in self._threads[2:]:
            thread.join(limit_s)

    def _wait(self, writer: subprocess.Popen[bytes]) -> WriterReport | None:
        """What the writer says in the end; None if it says nothing."""
        *listeners, feeder = self._threads
        feeder.join(self._patience_s)
        if feeder.is_alive():
            self._kill(writer, "the writer did not take what it was sent")
        try:
            writer.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            self._kill(writer, "the writer did not finish")
        for listener in listeners:
            listener.join(self._patience_s)
        report = _report_from(self._said[-1]) if self._said else None
        if report is None:
            self._failure = self._failure or f"the writer ended with status {writer.returncode}"
        elif self._failure is not None:
            # It heard nothing of what was lost after it had gone.
            lost = report.dropped_calls + self._dropped
            return replace(report, dropped_calls=lost, error=report.error or self._failure)
        return report

    def _kill(self, writer: subprocess.Popen[bytes], why: str) -> None:
        self._failure = f"{why} within {self._patience_s:g} s and was killed"
        writer.kill()
        with suppress(subprocess.TimeoutExpired):  # a dead disk can hold even a killed process
            writer.wait(self._patience_s)

    def _own_report(self) -> WriterReport:
        """What can be said of a recording whose writer says nothing: none of it is in a finished trace."""
        partial = partial_path(Path(self.options.path))
        size = partial.stat().st_size if partial.exists() else 0
        if not size:
            partial.unlink(missing_ok=True)  # it would only be in the way of the next try
        last = f" ({self._writer_errors[-1]})" if self._writer_errors else ""
        kept = f"; {partial} holds what it had written" if size else "; nothing was written"
        return WriterReport(
            path=str(partial),
            dropped_calls=self._asked + self._dropped,
            trace_bytes=size,
            error=f"{self._failure or 'the writer was not started'}{last}{kept}",
        )

    def _give_up(self, why: str) -> None:
        self._failure = self._failure or why
        self._queue.clear()

    def _feed(self, end: socket.socket) -> None:
        try:
            with end:
                while not self._stopping.wait(_PAUSE_S):
                    self._drain(_Sending(end))
                self._drain(_Sending(end))
        except ConnectionError:
            self._give_up("the writer ended before the recording did")
        except Exception as error:  # noqa: BLE001  # whatever it is, the session goes on; the report says it
            self._give_up(f"notes could not be handed to the writer: {error}")

    def _drain(self, stream: "_Sending") -> None:
        while self._queue:
            batch: list[Note] = []
            size = 0
            while self._queue and size < _BATCH_BYTES:
                note = self._queue.popleft()
                batch.append(note)
                size += _size(note)
            # Not `dumps`: it would copy every body once more, which takes longer than the rest together.
            pickle.dump(batch, stream, protocol=5)
            self._taken_bytes += size


class _Sending:
    """A socket that can be written to like a file."""

    def __init__(self, end: socket.socket) -> None:
        self.write = end.sendall


class LoopLag:
    """How late an event loop runs what is due: four samples a second."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._worst_us = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sample from now on."""
        due_s = loop.time() + _TICK_S
        self._handle = loop.call_at(due_s, self._tick, loop, due_s)

    def stop(self) -> None:
        """Sample no more."""
        if self._handle is not None:
            self._handle.cancel()

    def add(self, late_us: int) -> None:
        """Count one sample."""
        self._worst_us = max(self._worst_us, late_us)
        self._steps[late_us // _LAG_STEP_US] += 1

    @property
    def counts(self) -> dict[str, int]:
        """The worst lateness, and one that 99 % of the samples stay below, to the next 100 µs."""
        left = self._steps.total() * 99 / 100
        p99_us = 0
        for step, samples in sorted(self._steps.items()):
            if left <= 0:
                break
            left -= samples
            p99_us = (step + 1) * _LAG_STEP_US
        return {"loop_lag_p99_us": min(p99_us, self._worst_us), "loop_lag_max_us": self._worst_us}

    def _tick(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        self.add(round((loop.time() - due_s) * 1_000_000))
        self.start(loop)


def _size(note: Note) -> int:
    """About what a note takes in memory."""
    if isinstance(note, (Chunk, Message)):
        return _NOTE_BYTES + len(note.data)
    return _NOTE_BYTES + len(note.body) if isinstance(note, Asked) else _NOTE_BYTES


def _listen(pipe: IO[bytes], lines: deque[str]) -> None:
    with pipe:
        lines.extend(line.decode(errors="replace").rstrip() for line in pipe)


def _report_from(line: str) -> WriterReport | None:
    with suppress(orjson.JSONDecodeError, TypeError, KeyError):
        fields = orjson.loads(line)
        return WriterReport(**{**fields, "leaks": tuple(fields["leaks"])})
    return None
