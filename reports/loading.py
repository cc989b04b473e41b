"""I/O: the facts of a run directory, in memory that grows by some hundred bytes with each call."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from aitrace.errors import InputError
from aitrace.runstore import RunReader
from aitrace.schema import Trace
from aitrace.stored_trace import stored_trace
from reports.call_lines import CallRows, rows_from_calls, rows_from_lines
from reports.tables import Facts, facts_from_rows

_PARTS_AT_ONCE = 2


@contextmanager
def facts_of_run(directory: str | Path, *, warn: Callable[[InputError], None]) -> Iterator[Facts]:
    """The facts of a run; their trace is decoded as far as it is asked for, and can be only as long as this lasts.

    Args:
        warn: Called with the reason if there is a trace and it cannot be read.

    Raises:
        InputError: The directory is missing, no run, or damaged.
        UsageError: There is no room to unpack the trace.
    """
    reader = RunReader(directory)
    with ExitStack() as stack:
        trace = _trace_at(reader.trace_path, stack, warn)
        facts = facts_from_rows(reader.header, reader.end, _rows(reader), reader.scrapes(), trace)
        yield replace(facts, lines_lost=reader.lines_lost)


def _rows(reader: RunReader) -> Iterator[CallRows]:
    # A run without a call has its columns all the same.
    yield rows_from_calls(())
    number = 1
    for lines, rows in _read_lines(reader.call_lines()):
        part = rows_from_calls(reader.calls_from_lines(lines, number)) if rows is None else rows
        number += part.calls.height
        yield part


def _read_lines(parts: Iterator[bytes]) -> Iterator[tuple[bytes, CallRows | None]]:
    """The lines and their rows; some parts are read at once, outside of Python."""
    waiting: deque[tuple[bytes, Future[CallRows | None]]] = deque()
    with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
        for lines in parts:
            waiting.append((lines, pool.submit(rows_from_lines, lines)))
            if len(waiting) > _PARTS_AT_ONCE:
                first, found = waiting.popleft()
                yield first, found.result()
        for lines, found in waiting:
            yield lines, found.result()


def _trace_at(path: Path, stack: ExitStack, warn: Callable[[InputError], None]) -> Trace | None:
    """The trace that was played; None if the directory no longer holds it in a form that can be read."""
    if not path.exists():
        return None
    try:
        return stack.enter_context(stored_trace(path)).trace
    except InputError as error:
        warn(error)
        return None
