"""I/O: trace files: JSON lines in zstd frames, appended live, readable after a crash.

A file under construction is `<path>.partial` (a recorder's, which survives a crash) or `<path>.tmp` (a converter's,
which does not); it gets its name when the footer is written. Every frame holds whole lines and is complete on disk
before the next begins, so a cut tail costs at most the lines of one frame.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson
import zstandard

from aitrace.codec import encode_line, line_from_fields, parse_object
from aitrace.errors import InputError, UsageError
from aitrace.migrate import migrate_fields, version_from_header
from aitrace.schema import Call, Footer, Header, Line, Segment, Session, Trace, Update
from aitrace.updates import updated_call
from aitrace.validate import ReferenceRules

_FRAME_LINES = 2000
_FRAME_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_ZERO_TAIL_BYTES = 64
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CONVERT_HINT = "aitrace convert FILE -o NEW.aitrace reads the formats of other tools"
_MISSING_HINT = (
    "check the path; aitrace convert FILE -o NEW.aitrace makes a trace from a file of another tool"
)
_NOTHING_HINT = "whatever wrote it stopped too early, or it was cut: write it anew, or copy it again"
_DIRECTORY_HINT = "name a file in it; of a run directory that is trace.aitrace"
_CHECK_HINT = "aitrace check FILE lists what is wrong"
_HEADER_HINT = "docs/format.md, section 1.4, lists the fields of a header"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """What a reader found at the end of a file."""

    lines: int
    """Whole lines read."""
    bytes_lost: int
    """Bytes that gave no whole line: of a line that was cut, of a frame that gave none, and all behind a damaged
    frame."""
    cut: bool
    """Whether the file ends within a frame or a line."""
    clean_end: bool
    """Whether the last line is a footer and nothing was cut."""
    damage: InputError | None = None
    """What is wrong at the line at which reading stopped; None if it went to the end."""
    lines_lost: int = 0
    """Lines that could be told apart behind the damage, but not used, the damaged one included."""


class DamagedTraceError(InputError):
    """A trace that cannot be read beyond a place before its end."""

    def __init__(self, name: str, good_lines: int, reason: str) -> None:
        super().__init__(
            f"{name}:{good_lines + 1}: damaged after {good_lines} good lines: {reason}",
            hint=_CHECK_HINT.replace("FILE", name),
        )
        self.line = good_lines + 1
        """The first line that cannot be read, from 1."""


def partial_path(path: Path) -> Path:
    """What a trace is called until it may have its own name."""
    return path.with_name(f"{path.name}.partial")


class TraceWriter:
    """Writes a trace; use as a context manager.

    Leaving the block without an exception ends the trace (`finish`); leaving it with one removes what was written,
    unless `keep_partial`. The first line must be the header.

    Args:
        path: Where the finished trace is to be; replaced if it exists.
        keep_partial: For recorders: lines are kept in `<path>.partial` whatever happens, and one that an earlier
            recording left is not written over.
    """

    def __init__(self, path: str | Path, *, keep_partial: bool = False) -> None:
        self._path = Path(path)
        self._keep_partial = keep_partial
        self._temporary = (
            partial_path(self._path) if keep_partial else self._path.with_name(f"{self._path.name}.tmp")
        )
        self._descriptor: int | None = None
        self._written_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True)
        self._counts = {Session: 0, Segment: 0, Call: 0}
        self._blocks = 0
        self._footer: Footer | None = None
        self._finished = False

    @property
    def temporary_path(self) -> Path:
        """The file that lines go to until `finish`."""
        return self._temporary

    def write(self, line: Line) -> None:
        """Append a line; it is on disk after the next `flush`, or when a frame is full.

        Raises:
            OSError: A full frame could not be written. The line is kept and written with the next try.
        """
        if self._descriptor is None:
            self._open(line)
        if isinstance(line, Segment):
            self._blocks = max([self._blocks, *(first + count for first, count in line.blocks)])
        if not isinstance(line, (Header, Update, Footer)):
            self._counts[type(line)] += 1
        data = encode_line(line)
        self._pending.append(data)
        self._pending_bytes += len(data)
        if len(self._pending) >= _FRAME_LINES or self._pending_bytes >= _FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """Close the frame: what was written so far survives the end of this process.

        Raises:
            OSError: The frame could not be written (disk full). The file is as it was before, the lines are kept.
        """
        if self._descriptor is None or not self._pending:
            return
        frame = self._compressor.compress(b"".join(self._pending))
        try:
            _write_all(self._descriptor, frame)
        except OSError:
            # Half a frame in the middle of a file would make all that follows unreadable.
            os.ftruncate(self._descriptor, self._written_bytes)
            os.lseek(self._descriptor, self._written_bytes, os.SEEK_SET)
            raise
        self._written_bytes += len(frame)
        self._pending.clear()
        self._pending_bytes = 0

    def finish(self, *, dropped_calls: int = 0, notes: dict[str, int] | None = None) -> Footer:
        """Write the footer and give the file its name.

        Args:
            dropped_calls: Calls seen but not written.
            notes: Other counts, by name with unit.

        Raises:
            OSError: The disk is full, or the like; may be tried again.
        """
        if self._footer is None:
            self._footer = Footer(
                sessions=self._counts[Session],
                segments=self._counts[Segment],
                calls=self._counts[Call],
                blocks=self._blocks,
                dropped_calls=dropped_calls,
                notes=notes or {},
            )
            self.write(self._footer)
        self.flush()
        if self._descriptor is not None:
            os.fsync(self._descriptor)
        self._close()
        self._temporary.replace(self._path)
        self._finished = True
        return self._footer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished:
            return
        try:
            if kind is None:
                self.finish()
        finally:
            if not self._finished:
                self._abandon()

    def _open(self, line: Line) -> None:
        if not isinstance(line, Header):
            raise TypeError(f"the first line of a trace is its header, got {type(line).__name__}")
        # Text of prompts is nobody else's business.
        mode = 0o600 if line.privacy == "content" else 0o666
        flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if self._keep_partial else os.O_TRUNC)
        if not self._keep_partial:
            self._temporary.unlink(missing_ok=True)
        try:
            self._descriptor = os.open(self._temporary, flags, mode)
        except FileExistsError as error:
            raise UsageError(
                f"{self._temporary}: left by a recording that did not end",
                hint="it is a readable trace: rename it, or remove it",
            ) from error
        except OSError as error:
            raise UsageError(f"{self._path}: cannot be written: {error.strerror}") from error

    def _abandon(self) -> None:
        if self._keep_partial:
            # The exception that ends the block is the one to see, not that of a full disk.
            with suppress(OSError):
                self.flush()
        opened = self._descriptor is not None
        self._close()
        if opened and not self._keep_partial:
            self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class TraceReader:
    """Reads a trace line by line; `report` tells how it ended once all lines were taken.

    Takes zstd frames and plain JSON lines.

    Args:
        path: The file; `-` is standard input.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = "stdin" if str(path) == "-" else str(path)
        """As errors call it: the path, or `stdin`."""
        self._path = path
        self._version = 0
        self._number = 0
        self._lines = 0
        self._bytes_lost = 0
        self._ended = False
        self._cut = False

    @property
    def report(self) -> ReadReport:
        """How the file ended; what was read so far, if lines are left."""
        return ReadReport(
            lines=self._lines,
            bytes_lost=self._bytes_lost,
            cut=self._cut,
            clean_end=self._ended and not self._cut,
        )

    @property
    def header_seen(self) -> bool:
        """Whether the header was decoded."""
        return self._version > 0

    @property
    def version(self) -> int:
        """Version of the format that the lines are in; 0 before the header was decoded."""
        return self._version

    def place(self, number: int) -> str:
        """Where line `number` (from 1) stands, for the text of errors."""
        return f"{self.name}:{number}"

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Number (from 1) and bytes of each whole line, undecoded.

        Raises:
            InputError: The file cannot be opened, is not a trace, or is damaged before its end.
        """
        with _opened(self._path) as stream:
            begun: list[bytes] = []
            for text in self._texts(stream):
                head, *others = text.split(b"\n")
                begun.append(head)
                if others:
                    *whole, rest = b"".join(begun), *others
                    yield from self._whole(whole)
                    begun = [rest]
            rest = b"".join(begun)
        if rest.strip():
            yield from self._unended(rest)
        if self._lines == 0:
            raise InputError(f"{self.name}: holds no whole line of a trace", hint=_NOTHING_HINT)

    def _whole(self, lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        for data in lines:
            self._number += 1
            if data and not data.isspace():
                self._lines += 1
                yield self._number, data

    def _unended(self, rest: bytes) -> Iterator[tuple[int, bytes]]:
        """The last line, if it is whole but for its newline (files that went through an editor)."""
        try:
            orjson.loads(rest)
        except orjson.JSONDecodeError:
            self._lose(len(rest))
        else:
            yield from self._whole([rest])

    @property
    def check_hint(self) -> str:
        """The next step for whoever met something wrong in the file."""
        return _CHECK_HINT.replace("FILE", self.name)

    def decode(self, number: int, data: bytes) -> Line:
        """The line that `data` is; the header must be decoded first, since it tells the version.

        Raises:
            InputError: It is damaged, or does not belong there.
        """
        try:
            return self._decode(self.place(number), data)
        except InputError as error:
            error.hint = error.hint or (self.check_hint if self.header_seen else _HEADER_HINT)
            raise

    def _decode(self, place: str, data: bytes) -> Line:
        if self._version == 0:
            return self._decode_header(place, data)
        fields = migrate_fields(parse_object(data, place=place), self._version)
        line = line_from_fields(fields, place=place)
        if isinstance(line, Header):
            raise InputError(f"{place}: a second header", hint="one file holds one trace")
        if self._ended:
            raise InputError(f"{place}: a line after the footer")
        self._ended = isinstance(line, Footer)
        return line

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        """Number (from 1) and content of each whole line.

        Raises:
            InputError: As `raw_lines`; or a line is damaged.
        """
        for number, data in self.raw_lines():
            yield number, self.decode(number, data)

    def _decode_header(self, place: str, data: bytes) -> Line:
        try:
            fields = parse_object(data, place=place)
        except InputError as error:
            raise _not_a_trace(self.name, "its first line is not a JSON object") from error
        if fields.get("kind") != "header":
            raise _not_a_trace(self.name, "its first line is not a header")
        version = version_from_header(fields, place=place)
        line = line_from_fields(migrate_fields(fields, version), place=place)
        self._version = version
        return line

    def _texts(self, stream: IO[bytes]) -> Iterator[bytes]:
        """The file's text in pieces of any size."""
        start = stream.read(_READ_BYTES)
        if not start:
            raise InputError(f"{self.name}: is empty", hint=_NOTHING_HINT)
        if start.startswith(_ZSTD_MAGIC) or _ZSTD_MAGIC.startswith(start):
            yield from self._frames(start, stream)
            return
        if not start.lstrip().startswith(b"{"):
            raise _not_a_trace(self.name, "it holds neither zstd frames nor JSON lines")
        while start:
            yield start
            start = stream.read(_READ_BYTES)

    def _frames(self, data: bytes, stream: IO[bytes]) -> Iterator[bytes]:
        """Text of zstd frames one after the other; the last may be cut.

        A frame's text is held back until its checksum has been compared: what it says before is not to be trusted.
        """
        context = zstandard.ZstdDecompressor()
        while data:
            if len(data) < len(_ZSTD_MAGIC):
                data += stream.read(_READ_BYTES)
            if not data.startswith(_ZSTD_MAGIC) and not _ZSTD_MAGIC.startswith(data):
                self._end_with_zeros(data, stream, "what follows is not a zstd frame")
                return
            frame = context.decompressobj()
            frame_bytes = 0
            texts: list[bytes] = []
            while data and not frame.eof:
                try:
                    texts.append(frame.decompress(data))
                except zstandard.ZstdError as error:
                    self._end_with_zeros(data, stream, f"a damaged frame, {error}", frame_bytes)
                    break
                frame_bytes += len(data)
                data = frame.unused_data if frame.eof else stream.read(_READ_BYTES)
            yield from texts
            if not frame.eof:
                if not data:
                    self._lose(0 if any(texts) else frame_bytes)
                return
            data = data or stream.read(_READ_BYTES)

    def _end_with_zeros(self, data: bytes, stream: IO[bytes], reason: str, frame_bytes: int = 0) -> None:
        """Accept a tail of zeros, as file systems leave them after a loss of power, as a cut tail.

        Args:
            data: What was read last.
            frame_bytes: Bytes of the same frame before it.

        Raises:
            DamagedTraceError: There is something else.
        """
        zeros = len(data) - len(data.rstrip(b"\0"))
        lost = len(data)
        only_zeros = True
        while data := stream.read(_READ_BYTES):
            lost += len(data)
            zeros += len(data)
            only_zeros = only_zeros and not data.strip(b"\0")
        if only_zeros and (zeros == lost or zeros >= _ZERO_TAIL_BYTES):
            self._lose(lost)
            return
        self._bytes_lost += frame_bytes + lost
        raise DamagedTraceError(self.name, self._number, reason)

    def _lose(self, lost_bytes: int) -> None:
        self._cut = True
        self._bytes_lost += lost_bytes


def read_trace(path: str | Path) -> Trace:
    """A whole trace in memory, its calls with their updates; its footer is None if the file has no clean end.

    Raises:
        InputError: The file is missing, not a trace, damaged before its end, or its lines refer to what is not there.
    """
    trace, report = read_trace_reported(path)
    if report.damage is not None:
        raise with_inspect_hint(report.damage, path)
    return trace


def with_inspect_hint(damage: InputError, path: str | Path) -> InputError:
    """What is wrong with a trace of which some calls are good."""
    damage.hint = f"{damage.hint}; aitrace inspect {path} shows what is good before it"
    return damage


def read_trace_reported(path: str | Path) -> tuple[Trace, ReadReport]:
    """A trace as far as it is good, its calls with their updates, and how its file ended.

    Raises:
        InputError: As `read_trace`, if there is no good call.
    """
    reader = TraceReader(path)
    rules = ReferenceRules()
    lines: dict[type, list[Any]] = {Header: [], Session: [], Segment: [], Call: [], Footer: []}
    good_lines = 0
    rows = reader.raw_lines()
    report: ReadReport | None = None
    try:
        for number, data in rows:
            line = reader.decode(number, data)
            demand_rules(reader, rules, number, line)
            if isinstance(line, Update):
                lines[Call][line.call] = updated_call(lines[Call][line.call], line)
            else:
                lines[type(line)].append(line)
            good_lines += 1
    except InputError as error:
        if not lines[Call]:
            raise
        report = _damage_report(reader, rows, error, good_lines=good_lines)
    report = report or reader.report
    trace = Trace(
        header=lines[Header][0],
        sessions=tuple(lines[Session]),
        segments=tuple(lines[Segment]),
        calls=tuple(lines[Call]),
        footer=lines[Footer][0] if report.clean_end else None,
    )
    return trace, report


def demand_rules(reader: TraceReader, rules: ReferenceRules, number: int, line: Line) -> None:
    """Check the next line of what is read against the rules of `read_trace`.

    Raises:
        InputError: It breaks one.
    """
    for finding in rules.check(number, line):
        raise InputError(f"{reader.place(finding.line)}: {finding.message}", hint=reader.check_hint)


def _damage_report(
    reader: TraceReader, rows: Iterator[tuple[int, bytes]], damage: InputError, *, good_lines: int
) -> ReadReport:
    """The report on a trace that is good up to some line; counts what is left of it in `rows`."""
    # Of a damaged frame no line can be told apart, and `rows` has ended with it.
    lines_lost = 0 if isinstance(damage, DamagedTraceError) else 1
    with suppress(DamagedTraceError):
        for _ in rows:
            lines_lost += 1
    return replace(reader.report, lines=good_lines, clean_end=False, damage=damage, lines_lost=lines_lost)


def write_trace(path: str | Path, trace: Trace) -> Footer:
    """Write a whole trace: its sessions, then its segments, then its calls; the footer is counted anew."""
    with TraceWriter(path) as writer:
        writer.write(trace.header)
        for lines in (trace.sessions, trace.segments, trace.calls):
            for line in lines:
                writer.write(line)
        old = trace.footer
        return writer.finish(
            dropped_calls=old.dropped_calls if old else 0, notes=dict(old.notes) if old else None
        )


def _opened(path: str | Path) -> AbstractContextManager[IO[bytes]]:
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(path).open("rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file", hint=_MISSING_HINT) from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a directory, expected a trace file", hint=_DIRECTORY_HINT) from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}", hint="check its owner and permissions"
        ) from error


def _not_a_trace(name: str, reason: str) -> InputError:
    return InputError(f"{name}: not an aitrace trace: {reason}", hint=_CONVERT_HINT.replace("FILE", name))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
