"""I/O: traces that need not fit into memory: checked in one pass, and spooled to a temporary directory.

The spool holds the lines as they are in the file, unpacked, and arrays that tell where each one is and what a plan
must know of all of them (`aitrace.columns`). Other processes open it without reading the trace again. Only its user can
read it. It goes when its owner is done with it; what one left that was killed goes when the next one is made.
"""

import fcntl
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import orjson

from aitrace.columns import CallColumns, ColumnBuilder, Growing, SegmentColumns
from aitrace.errors import InputError, UsageError
from aitrace.line_batch import LineBatch, batch_of, keeps_rules
from aitrace.migrate import migrate_fields
from aitrace.schema import FORMAT_VERSION, Call, Footer, Header, Line, Session, Trace
from aitrace.store import TraceReader, demand_rules, with_inspect_hint
from aitrace.stored_lines import Places, StoredCalls, StoredSegments, UpdatePlaces
from aitrace.validate import ReferenceRules

_PREFIX = "aitrace-spool-"
_OWNER_FILE = "owner"
_LINES_FILE = "lines"
_ARRAYS_FILE = "arrays"
_HEAD_FILE = "head"
_BATCH_LINES = 2000
_BATCH_BYTES = 1 << 22
_ALIGNMENT_BYTES = 8
_ROOM_HINT = "a trace is unpacked there while it is used: set TMPDIR to a directory with more room"

_NumberedLine = tuple[int, bytes]
_Array = npt.NDArray[Any]
_ColumnsT = TypeVar("_ColumnsT", CallColumns, SegmentColumns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrace:
    """A trace and where its spool is."""

    trace: Trace
    """Its segments and calls are decoded when they are asked for."""
    spool: Path
    """Directory that `trace_in_spool` of another process takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """What of a trace is decoded at once, and where its arrays are."""

    version: int
    """Version of the format that the lines are in."""
    header: Header
    """As in `Trace`."""
    sessions: tuple[Session, ...]
    """As in `Trace`."""
    footer: Footer | None
    """As in `Trace`."""
    arrays: Mapping[str, tuple[str, int, int]]
    """Type, first byte and length of each array."""


@contextmanager
def stored_trace(path: str | Path) -> Iterator[StoredTrace]:
    """A trace in a spool of its own, with the rules checked that `aitrace.store.read_trace` demands.

    Args:
        path: The file; `-` is standard input.

    Raises:
        InputError: As `read_trace`.
        UsageError: There is no room for the spool.
    """
    with _spool() as directory:
        try:
            _fill(directory, path)
        except OSError as error:
            raise UsageError(f"{directory}: cannot be written: {error.strerror}", hint=_ROOM_HINT) from error
        trace, descriptor = _opened(directory)
        try:
            yield StoredTrace(trace=trace, spool=directory)
        finally:
            os.close(descriptor)


def trace_in_spool(directory: Path) -> Trace:
    """The trace that another process has stored and still holds; whoever asks keeps it to its end."""
    trace, _ = _opened(directory)
    return trace


@contextmanager
def _spool() -> Iterator[Path]:
    """A new directory that nobody else can look into, removed at the end."""
    try:
        _remove_orphans()
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise UsageError(f"no temporary directory can be made: {error}", hint=_ROOM_HINT) from error
    descriptor = os.open(directory / f"{_OWNER_FILE}.new", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Only with the lock may it have the name by which others judge whether somebody still needs the spool.
        (directory / f"{_OWNER_FILE}.new").rename(directory / _OWNER_FILE)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def _remove_orphans() -> None:
    """Remove the spools of processes that had no chance to do so."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Somebody else's, in use, or gone by now.
        with suppress(OSError):
            descriptor = os.open(directory / _OWNER_FILE, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def _fill(directory: Path, path: str | Path) -> None:
    reader = TraceReader(path)
    with _private_file(directory / _LINES_FILE) as lines:
        writer = _SpoolWriter(reader, lines)
        try:
            for batch in _batches(reader.raw_lines()):
                writer.add(batch)
        except InputError as error:
            if writer.good_calls:
                error = with_inspect_hint(error, path)
            raise
    arrays = writer.arrays()
    with _private_file(directory / _ARRAYS_FILE) as stream:
        places = {name: _write_array(stream, values) for name, values in arrays.items()}
    head = _Head(
        version=reader.version,
        header=writer.header,
        sessions=tuple(writer.sessions),
        footer=writer.footer if reader.report.clean_end else None,
        arrays=places,
    )
    with _private_file(directory / _HEAD_FILE) as stream:
        pickle.dump(head, stream)


def _private_file(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")


def _batches(rows: Iterator[_NumberedLine]) -> Iterator[list[_NumberedLine]]:
    """The lines in parts; those before a damaged place come out before the error does."""
    batch: list[_NumberedLine] = []
    size_bytes = 0
    try:
        for row in rows:
            batch.append(row)
            size_bytes += len(row[1])
            if len(batch) >= _BATCH_LINES or size_bytes >= _BATCH_BYTES:
                yield batch
                batch, size_bytes = [], 0
    except InputError:
        yield batch
        raise
    yield batch


class _SpoolWriter:
    """Checks the lines of a trace, writes them down and notes where they are and what is in them.

    From the first batch on of which `keeps_rules` says no, each line is checked on its own: that tells what is wrong,
    and takes what is only rare.
    """

    def __init__(self, reader: TraceReader, lines: IO[bytes]) -> None:
        self.header: Header
        """Known from the first batch on."""
        self.sessions: list[Session] = []
        """Those so far."""
        self.footer: Footer | None = None
        """None before it was seen."""
        self.good_calls = 0
        """Calls that were found good, whether the lines after them are or not."""
        self._reader = reader
        self._lines = lines
        self._written_bytes = 0
        self._columns = ColumnBuilder()
        self._places = {kind: (Growing(), Growing()) for kind in ("segment", "call", "update")}
        self._updated = Growing()
        self._rules: ReferenceRules | None = None

    def add(self, rows: Sequence[_NumberedLine]) -> None:
        """Take on the next lines.

        Raises:
            InputError: One of them cannot be decoded or breaks a rule.
        """
        if rows and not self._reader.header_seen:
            (number, data), *rows = rows
            self._take_header(number, data)
        if not rows:
            return
        batch = self._checked(rows)
        self._note_places(batch, [len(data) + 1 for _, data in rows])
        self._updated.extend([update["call"] for update in batch.lines["update"]])
        batch.add_to(self._columns)
        self.good_calls = len(self._columns.prompt_length)
        self._lines.writelines(data + b"\n" for _, data in rows)

    def arrays(self) -> dict[str, _Array]:
        """All arrays by name; updates in the order of their calls."""
        call_columns, segment_columns = self._columns.call_columns(), self._columns.segment_columns()
        order = np.argsort(self._updated.values, kind="stable")
        arrays: dict[str, _Array] = {"update.call": self._updated.values[order]}
        for kind, (offsets, lengths) in self._places.items():
            rows = order if kind == "update" else slice(None)
            arrays[f"{kind}.offset"], arrays[f"{kind}.length"] = offsets.values[rows], lengths.values[rows]
        for prefix, columns in (("calls", call_columns), ("segments", segment_columns)):
            arrays |= {f"{prefix}.{field.name}": getattr(columns, field.name) for field in fields(columns)}
        return arrays

    def _take_header(self, number: int, data: bytes) -> None:
        header = self._reader.decode(number, data)
        demand_rules(self._reader, ReferenceRules(), number, header)
        self.header = cast("Header", header)

    def _checked(self, rows: Sequence[_NumberedLine]) -> LineBatch:
        batch = self._batch(rows)
        if (
            self._rules is None
            and self.footer is None
            and batch is not None
            and keeps_rules(batch, self._columns, self.header.block_size)
        ):
            for place in (*batch.places["session"], *batch.places["footer"]):
                self._keep(self._reader.decode(*rows[place]))
            return batch
        self._check_each(rows)
        return cast("LineBatch", batch)

    def _batch(self, rows: Sequence[_NumberedLine]) -> LineBatch | None:
        try:
            lines = [orjson.loads(data) for _, data in rows]
        except orjson.JSONDecodeError:
            return None
        if self._reader.version != FORMAT_VERSION:
            lines = [migrate_fields(line, self._reader.version) for line in lines if type(line) is dict]
        return batch_of(lines) if len(lines) == len(rows) else None

    def _check_each(self, rows: Sequence[_NumberedLine]) -> None:
        if self._rules is None and self.footer is None:
            self._rules = self._rules_so_far()
        for number, data in rows:
            # After a footer this raises.
            line = self._reader.decode(number, data)
            if self._rules is not None:
                demand_rules(self._reader, self._rules, number, line)
            self._keep(line)
            self.good_calls += isinstance(line, Call)

    def _rules_so_far(self) -> ReferenceRules:
        """The rules as they would be if each line so far had been checked on its own."""
        rules = ReferenceRules()
        rules.check(1, self.header)
        self._lines.seek(0)
        for number, data in enumerate(self._lines, 2):
            rules.check(number, self._reader.decode(number, data))
        return rules

    def _keep(self, line: Line) -> None:
        if isinstance(line, Session):
            self.sessions.append(line)
        elif isinstance(line, Footer):
            self.footer = line

    def _note_places(self, batch: LineBatch, lengths: Sequence[int]) -> None:
        ends = self._written_bytes + np.cumsum(lengths)
        for kind, (offsets, all_lengths) in self._places.items():
            own = batch.places[kind]
            offsets.extend((ends - lengths)[own])
            all_lengths.extend([lengths[place] for place in own])
        self._written_bytes = int(ends[-1])


def _write_array(stream: IO[bytes], values: _Array) -> tuple[str, int, int]:
    """Type, first byte and length of what is written."""
    stream.write(bytes(-stream.tell() % _ALIGNMENT_BYTES))
    place = (values.dtype.str, stream.tell(), len(values))
    stream.write(np.ascontiguousarray(values).data)
    return place


def _opened(directory: Path) -> tuple[Trace, int]:
    """The trace in a spool, and the descriptor through which it reads its lines."""
    head: _Head = pickle.loads((directory / _HEAD_FILE).read_bytes())  # noqa: S301 - written by `_fill`
    mapped = np.asarray(np.memmap(directory / _ARRAYS_FILE, np.uint8, mode="r"))
    arrays = {
        name: mapped[first : first + count * np.dtype(kind).itemsize].view(kind)
        for name, (kind, first, count) in head.arrays.items()
    }
    descriptor = os.open(directory / _LINES_FILE, os.O_RDONLY)

    def read(offset: int, length: int) -> bytes:
        return os.pread(descriptor, length, offset)

    def places(kind: str) -> Places:
        return Places(offset=arrays[f"{kind}.offset"], length=arrays[f"{kind}.length"])

    updates = UpdatePlaces(call=arrays["update.call"], places=places("update"))
    segment_columns = _columns(SegmentColumns, "segments", arrays)
    call_columns = _columns(CallColumns, "calls", arrays)
    trace = Trace(
        header=head.header,
        sessions=head.sessions,
        segments=StoredSegments(read, places("segment"), head.version, segment_columns),
        calls=StoredCalls(read, places("call"), head.version, call_columns, updates=updates),
        footer=head.footer,
    )
    return trace, descriptor


def _columns(cls: type[_ColumnsT], prefix: str, arrays: Mapping[str, _Array]) -> _ColumnsT:
    return cls(**{field.name: arrays[f"{prefix}.{field.name}"] for field in fields(cls)})
