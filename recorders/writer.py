"""I/O: the process that turns notes into a trace: `python -m recorders.writer OPTIONS < FRAMES`.

    OPTIONS   `RecordOptions` as JSON
    FRAMES    pickled lists of notes, one after the other; their end is the end of the recording

It is a process of its own, so that reading a prompt of a megabyte never holds up the proxy, and so that a proxy that is
killed leaves a finished trace. It says a `WriterReport` as one line of JSON on its standard output.
"""

import os
import pickle
import secrets
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, get_args

import orjson

from aitrace.clock import Clock, SystemClock
from aitrace.codec import encode_line
from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, AitraceError, InputError, UsageError
from aitrace.leak_check import leaks_in_file, raw_lines
from aitrace.schema import Line
from aitrace.store import TraceWriter
from aitrace.units import NS_PER_S
from recorders.notes import Note, Stopped, WriterReport
from recorders.options import RecordOptions
from recorders.recording import Recording
from recorders.repack import repack

WAITING_BYTES = 8 << 20
"""Most bytes of lines that wait for a full disk, as written; calls that begin while more do are not written. In memory
they are seven times as large (measured: 220 MB for 32 MiB)."""
_FLUSH_NS = NS_PER_S
"""Most that a crash of this process loses, and the pause between two tries on a full disk."""
_BATCHES_AHEAD = 16
_NOTES = {kind.__name__: kind for kind in get_args(Note)}


class _NotesOnly(pickle.Unpickler):
    """Reads notes and plain values, nothing that could act."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name != "recorders.notes" or global_name not in _NOTES:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is no note")
        return _NOTES[global_name]


class NoteReader:
    """Reads frames in a thread of its own, a few batches ahead, so that the writer notices when nothing comes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.trouble: str | None = None
        """Why reading stopped before the end; None if it did not."""
        self._stream = stream
        self._batches: SimpleQueue[Sequence[Note] | None] = SimpleQueue()
        self._room = threading.Semaphore(_BATCHES_AHEAD)
        self._thread = threading.Thread(target=self._read, name="aitrace reader", daemon=True)

    def start(self) -> None:
        """Read from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Let what was read so far be all. May be called from a signal handler."""
        self._batches.put(None)

    def batch(self, timeout_s: float) -> Sequence[Note] | None:
        """The next notes; none of them if none came in time, None if no more will come."""
        try:
            batch = self._batches.get(timeout=timeout_s)
        except Empty:
            return ()
        self._room.release()
        return batch

    def _read(self) -> None:
        try:
            while True:
                self._room.acquire()
                self._batches.put(_batch_of_notes(_NotesOnly(self._stream).load()))
        except EOFError:
            pass
        except Exception as error:  # noqa: BLE001 # a damaged pickle may raise anything; what came before it is good
            self.trouble = f"the notes of the proxy cannot be read any further: {error}"
        self._batches.put(None)


def _batch_of_notes(value: Any) -> list[Note]:
    if not isinstance(value, list) or not all(isinstance(note, get_args(Note)) for note in value):
        raise pickle.UnpicklingError("expected a list of notes")
    return value


class LineSink:
    """Writes lines to a trace, and keeps them while the disk is full."""

    def __init__(self, trace: TraceWriter, clock: Clock) -> None:
        self.trouble: str | None = None
        """Why lines cannot be written at present; None if they can."""
        self.failures = 0
        """Times that writing failed."""
        self._trace = trace
        self._clock = clock
        self._flushed_ns = clock.monotonic_ns()
        self._waiting: deque[tuple[Line, int]] = deque()
        self._waiting_bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether more lines may come."""
        return self._waiting_bytes < WAITING_BYTES

    def write(self, lines: Sequence[Line]) -> None:
        """Write these lines, or keep them until there is space again."""
        for line in lines:
            if self.trouble is None:
                self._write(line)
            else:
                size_bytes = len(encode_line(line))
                self._waiting.append((line, size_bytes))
                self._waiting_bytes += size_bytes

    def tick(self) -> None:
        """Put on disk what was written, if it is time."""
        if self._clock.monotonic_ns() - self._flushed_ns >= _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Put on disk what was written and what waits."""
        self._flushed_ns = self._clock.monotonic_ns()
        self.trouble = None
        self._flush()
        while self._waiting and self.trouble is None:
            line, size_bytes = self._waiting.popleft()
            self._waiting_bytes -= size_bytes
            self._write(line)
            if not self._waiting:
                self._flush()

    def _write(self, line: Line) -> None:
        try:
            self._trace.write(line)
        except OSError as error:
            # The trace keeps the line and writes it with its next frame.
            self._fail(error)

    def _flush(self) -> None:
        try:
            self._trace.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.failures += 1
        self.trouble = error.strerror or str(error)


def record(options: RecordOptions, reader: NoteReader, clock: Clock) -> WriterReport:
    """Write one recording, from its first note to the report.

    Raises:
        UsageError: The trace cannot be begun.
    """
    path = Path(options.path)
    if path.exists():
        raise UsageError(f"{path}: exists already", hint="name another file, or remove it")
    here_ns, unix_ns = clock.monotonic_ns(), clock.unix_ns()
    first = _next_batch(reader, None)
    # The proxy may have begun before this process; no time lies before offset 0.
    started_ns = min([here_ns, *(note.at_ns for note in first or ())])
    recording = Recording(
        options,
        secrets.token_bytes(32),
        started_ns,
        unix_ns - (here_ns - started_ns),
        producer=f"aitrace {version('aitrace')} record",
    )
    trace = TraceWriter(path, keep_partial=True)
    sink = LineSink(trace, clock)
    is_whole = False
    try:
        for batch in _batches(first, reader, sink):
            for note in batch:
                sink.write(recording.take(note))
                is_whole = is_whole or isinstance(note, Stopped)
            recording.is_accepting = sink.has_room
        sink.write(recording.stop())
    finally:
        sink.flush()
    trouble = reader.trouble or (None if is_whole else "the proxy went away before the recording ended")
    if recording.first_trouble is not None:
        sys.stderr.write(recording.first_trouble)
        trouble = trouble or f"{recording.notes['writer_errors']} of its notes made the writer fail"
    return _end(options, recording, trace, sink, trouble)


def _next_batch(reader: NoteReader, sink: LineSink | None) -> Sequence[Note] | None:
    """The next notes; None if no more will come. The sink's time is kept meanwhile."""
    batch: Sequence[Note] | None = ()
    while batch is not None and not batch:
        batch = reader.batch(_FLUSH_NS / NS_PER_S)
        if sink is not None:
            sink.tick()
    return batch


def _batches(first: Sequence[Note] | None, reader: NoteReader, sink: LineSink) -> Iterator[Sequence[Note]]:
    batch = first
    while batch is not None:
        yield batch
        batch = _next_batch(reader, sink)


def _end(
    options: RecordOptions, recording: Recording, trace: TraceWriter, sink: LineSink, trouble: str | None
) -> WriterReport:
    """Finish the trace if it is whole and clean, else leave it as `FILE.partial`; without a call there is no file."""
    partial = trace.temporary_path
    leaks = leaks_in_file(partial, recording.names) if options.privacy == "hash" else ()
    lost = sink.trouble
    if leaks:
        partial.chmod(0o600)
    elif lost is None and recording.calls:
        lost = _finish(Path(options.path), trace, recording, sink)
    is_finished = lost is None and not leaks
    calls, sessions, trees = (
        _written(partial) if lost else (recording.calls, recording.sessions, recording.trees)
    )
    if not calls and not leaks:
        partial.unlink(missing_ok=True)  # it would only be in the way of the next try
    end = Path(options.path) if is_finished else partial
    return WriterReport(
        path=str(end),
        calls=calls,
        sessions=sessions,
        trees=trees,
        dropped_calls=recording.dropped_calls + recording.calls - calls,
        unrecorded_calls=recording.unrecorded_calls,
        trace_bytes=end.stat().st_size if end.exists() else 0,
        traffic_bytes=recording.notes["traffic_bytes"],
        leaks=leaks,
        error=trouble if lost is None else f"{partial}: cannot be written: {lost}",
        unreadable_calls=recording.notes["unreadable_requests"],
        failures=recording.failures,
    )


def _finish(path: Path, trace: TraceWriter, recording: Recording, sink: LineSink) -> str | None:
    """Write the footer and give the file its name; what the system says if that cannot be."""
    notes = {**recording.notes, "write_failures": sink.failures}
    try:
        trace.finish(dropped_calls=recording.dropped_calls, notes=notes)
    except OSError as error:
        return error.strerror or str(error)
    # The trace is whole, if larger than it need be.
    with suppress(OSError, InputError):
        repack(path)
    return None


def _written(partial: Path) -> tuple[int, int, int]:
    """Calls, sessions and root sessions that are in the file."""
    calls = sessions = trees = 0
    for _, data in raw_lines(partial):
        calls += data.startswith(b'{"kind":"call"')
        if data.startswith(b'{"kind":"session"'):
            sessions += 1
            trees += b'"parent":' not in data
    return calls, sessions, trees


def main() -> int:
    """Run the writer of one recording; gives its exit code."""
    # Ctrl-C is meant for the client; what it has done until then is to be written.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = RecordOptions(**orjson.loads(sys.argv[1]))
    reader = NoteReader(sys.stdin.buffer)
    signal.signal(signal.SIGTERM, lambda *_: reader.stop())
    reader.start()
    try:
        report = record(options, reader, SystemClock())
        code = EXIT_IN_DOUBT if report.leaks or report.error else EXIT_OK
    except AitraceError as error:
        report, code = WriterReport(path=options.path, error=str(error)), error.exit_code
    # Nobody listens any longer if the proxy was killed.
    with suppress(OSError):
        sys.stdout.buffer.write(orjson.dumps(report) + b"\n")
        sys.stdout.buffer.flush()
        sys.stderr.flush()
    return code


if __name__ == "__main__":
    # The reader may be waiting for its pipe with a lock that an orderly end of the interpreter aborts over.
    os._exit(main())
