"""I/O: run directories: what a replay writes while it runs, and reads back.

`run.json` holds the header and, once the run ended, its end; `calls.jsonl` and `scrapes.jsonl` grow by one line per
event and are handed to the operating system line by line, so a crash of the replay loses nothing that had finished;
`calls.parquet` is written from `calls.jsonl` at the end; `trace.aitrace` is a copy of what was played.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Any, Self, TypeVar, get_type_hints

import orjson

from aitrace.codec import decode_record, encode_record, fields_from_record, parse_object, record_from_fields
from aitrace.errors import InputError, UsageError
from aitrace.results import RUN_VERSION, CallResult, RunEnd, RunHeader, Scrape, call_columns
from aitrace.schema import Trace, Usage
from aitrace.store import write_trace

RUN_FILE = "run.json"
CALLS_FILE = "calls.jsonl"
PARQUET_FILE = "calls.parquet"
SCRAPES_FILE = "scrapes.jsonl"
TRACE_FILE = "trace.aitrace"
SEARCH_FILE = "search.json"
"""What a search found, in the directory that holds its runs."""
_PART_CALLS = 20_000
_PART_BYTES = 1 << 24
_DAMAGED_RUN_HINT = "copy the run directory again from where it was written, or repeat the replay"
_DAMAGED_LINE_HINT = (
    "only the last line may be cut: copy the run directory again from where it was written, or remove this line to "
    "read the others"
)
_RecordT = TypeVar("_RecordT", CallResult, Scrape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run directory in memory."""

    header: RunHeader
    """What was to be played."""
    end: RunEnd | None
    """How it ended; None if the program did not get to write it."""
    calls: tuple[CallResult, ...]
    """In the order in which they finished."""
    scrapes: tuple[Scrape, ...]
    """In order of time."""
    trace_path: Path
    """The copy of the trace."""
    lines_lost: int
    """Lines at the end of the two line files that were cut, 0 to 2."""


def require_unused(directory: Path) -> None:
    """Check that a run may be written there.

    Raises:
        UsageError: there is something already, or no way to look.
    """
    try:
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory}: is not empty", hint="name a new directory for each run")
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written: {error.strerror}") from error


class RunWriter:
    """Writes a run directory; use as a context manager, so that its files are closed.

    Args:
        directory: Created if need be; must be empty or absent.
        header: Written at once.
        trace_path: Copied into the directory.
        played: Written there in place of the copy; None if the file's trace is played as it is.
    """

    def __init__(
        self, directory: str | Path, header: RunHeader, trace_path: str | Path, *, played: Trace | None = None
    ) -> None:
        self.directory = Path(directory)
        """Where the run is written."""
        self._header = header
        require_unused(self.directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if played is None:
                shutil.copyfile(trace_path, self.directory / TRACE_FILE)
            else:
                write_trace(self.directory / TRACE_FILE, played)
        except OSError as error:
            raise UsageError(
                f"{trace_path}: cannot be copied to {self.directory}: {error.strerror}"
            ) from error
        # Who may not read the trace may not read the copy.
        shutil.copymode(trace_path, self.directory / TRACE_FILE)
        self._write_run_file(None)
        self._calls: IO[bytes] = (self.directory / CALLS_FILE).open("wb", buffering=0)
        self._scrapes: IO[bytes] = (self.directory / SCRAPES_FILE).open("wb", buffering=0)

    def write_call(self, result: CallResult) -> None:
        """Append one call; it survives the end of this process from here on."""
        self.write_call_line(encode_record(result))

    def write_call_line(self, line: bytes) -> None:
        """Append one call that another process has encoded, with its newline."""
        _append(self._calls, line)

    def write_scrape(self, scrape: Scrape) -> None:
        """Append one reading; it survives the end of this process from here on."""
        _append(self._scrapes, encode_record(scrape))

    def finish(self, end: RunEnd) -> None:
        """Write `calls.parquet`, then the end into `run.json`."""
        self.close()
        _write_parquet(self.directory / PARQUET_FILE, RunReader(self.directory).calls())
        self._write_run_file(end)

    def close(self) -> None:
        """Close the files; a run that was not finished stays readable."""
        self._calls.close()
        self._scrapes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_run_file(self, end: RunEnd | None) -> None:
        content: dict[str, Any] = {"header": fields_from_record(self._header)}
        if end is not None:
            content["end"] = fields_from_record(end)
        data = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        _replace_file(self.directory / RUN_FILE, lambda path: path.write_bytes(data))


class RunReader:
    """Reads a run directory line by line, for whoever need not have all of it in memory.

    Raises:
        InputError: The directory is missing, no run, or damaged; also while lines are read.
    """

    def __init__(self, directory: str | Path) -> None:
        self._root = _run_directory(directory)
        self.header, self.end = _read_run_file(self._root)
        """What was to be played, and how it ended; no end if the program did not get to write it."""
        self.trace_path = self._root / TRACE_FILE
        """The copy of the trace."""
        self._cut: set[str] = set()

    @property
    def lines_lost(self) -> int:
        """Files whose last line was cut, of those that were read to their end."""
        return len(self._cut)

    def calls(self) -> Iterator[CallResult]:
        """In the order in which they finished; from the beginning each time."""
        return self._records(CALLS_FILE, CallResult)

    def call_lines(self) -> Iterator[bytes]:
        """The whole lines of the calls, some megabytes of them at a time."""
        with _opened_lines(self._root / CALLS_FILE) as stream:
            while lines := stream.read(_PART_BYTES):
                lines += stream.readline()
                whole = lines[: lines.rfind(b"\n") + 1]
                if len(whole) < len(lines):
                    self._cut.add(CALLS_FILE)
                if whole:
                    yield whole

    def calls_from_lines(self, lines: bytes, first_number: int) -> Iterator[CallResult]:
        """The calls that such lines tell of, each line looked at by itself.

        Args:
            first_number: Number of the first line in the file, from 1.
        """
        with _hinted(_DAMAGED_LINE_HINT):
            for line_number, line in enumerate(lines.splitlines(keepends=True), first_number):
                yield decode_record(CallResult, line, place=f"{self._root / CALLS_FILE}:{line_number}")

    def scrapes(self) -> Iterator[Scrape]:
        """In order of time; from the beginning each time."""
        return self._records(SCRAPES_FILE, Scrape)

    def _records(self, name: str, cls: type[_RecordT]) -> Iterator[_RecordT]:
        path = self._root / name
        with _opened_lines(path) as stream, _hinted(_DAMAGED_LINE_HINT):
            for number, line in enumerate(stream, 1):
                if not line.endswith(b"\n"):
                    self._cut.add(name)
                    return
                yield decode_record(cls, line, place=f"{path}:{number}")


def read_run(directory: str | Path) -> Run:
    """A run directory in memory.

    A last line that was cut is passed over and counted; anything else that cannot be read is an error.

    Raises:
        InputError: The directory is missing, no run, or damaged.
    """
    reader = RunReader(directory)
    calls, scrapes = tuple(reader.calls()), tuple(reader.scrapes())
    return Run(
        header=reader.header,
        end=reader.end,
        calls=calls,
        scrapes=scrapes,
        trace_path=reader.trace_path,
        lines_lost=reader.lines_lost,
    )


def _run_directory(directory: str | Path) -> Path:
    root = Path(directory)
    if not root.is_dir():
        raise InputError(
            f"{root}: {'is a file' if root.exists() else 'no such directory'}, expected a run directory",
            hint="aitrace replay TRACE --url URL -o DIR writes one",
        )
    return root


def _append(stream: IO[bytes], line: bytes) -> None:
    start = stream.tell()
    view = memoryview(line)
    try:
        while view:
            # Unbuffered files may take less than they were given.
            view = view[stream.write(view) :]
    except OSError:
        # Half a line in the middle of a file would make all that follows unreadable.
        stream.truncate(start)
        stream.seek(start)
        raise


def _replace_file(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_run_file(root: Path) -> tuple[RunHeader, RunEnd | None]:
    path = root / RUN_FILE
    with _hinted(_DAMAGED_RUN_HINT):
        return _run_file_content(path)


def _run_file_content(path: Path) -> tuple[RunHeader, RunEnd | None]:
    data = _bytes_of(path, hint=_hint_without_run(path.parent))
    content = parse_object(data, place=str(path))
    header_fields = _object_in(content, "header", str(path))
    version = header_fields.get("version")
    if version != RUN_VERSION:
        newer = type(version) is int and version > RUN_VERSION
        raise InputError(
            f"{path}: header.version: expected {RUN_VERSION}, got {version!r}",
            hint="written by a newer aitrace: use a newer aitrace" if newer else _DAMAGED_RUN_HINT,
        )
    header = record_from_fields(RunHeader, header_fields, place=f"{path}: header")
    if "end" not in content:
        return header, None
    return header, record_from_fields(RunEnd, _object_in(content, "end", str(path)), place=f"{path}: end")


def _hint_without_run(root: Path) -> str:
    """What to do about a directory that is no run: a search, and `replay --ab`, write theirs inside of one."""
    inside = sorted(path.parent for place in ("*", "*/*") for path in root.glob(f"{place}/{RUN_FILE}"))
    if not inside:
        return "a run directory holds run.json; aitrace replay writes one"
    others = f", and {len(inside) - 1} more" if len(inside) > 1 else ""
    ways = sorted({str(path.parent) for path in inside if path.parent != root})
    together = f"; set them side by side with aitrace compare {shlex.join(ways)}" if len(ways) > 1 else ""
    if (root / SEARCH_FILE).exists():
        together = f"; what the search found is in {root / SEARCH_FILE}"
    return f"the runs are inside of it: name one, as {inside[-1]}{others}{together}"


def _object_in(content: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise InputError(f"{place}: {name}: expected an object, got {value!r}")
    return value


@contextmanager
def _hinted(hint: str) -> Iterator[None]:
    """Give a next step to errors that have none."""
    try:
        yield
    except InputError as error:
        error.hint = error.hint or hint
        raise


def _bytes_of(path: Path, *, hint: str) -> bytes:
    with _readable(path, hint=hint):
        return path.read_bytes()


@contextmanager
def _opened_lines(path: Path) -> Iterator[IO[bytes]]:
    with _readable(path, hint="the run directory is incomplete"), path.open("rb") as stream:
        yield stream


@contextmanager
def _readable(path: Path, *, hint: str) -> Iterator[None]:
    """Turn what the system says of a file into an error of the user's."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file", hint=hint) from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}", hint="check its owner and permissions"
        ) from error


def _write_parquet(path: Path, calls: Iterable[CallResult]) -> None:
    # Only a run that ends needs it; reading a trace or showing help does not.
    import polars as pl  # noqa: PLC0415

    hints = {**get_type_hints(CallResult), **{f"usage_{k}": v for k, v in get_type_hints(Usage).items()}}
    hints["signals"] = hints["worker"] = str

    def write_part(part: Path, calls: Sequence[CallResult]) -> Path:
        columns = call_columns(calls)
        columns["signals"] = [orjson.dumps(call.signals).decode() if call.signals else None for call in calls]
        schema = {name: _polars_type(hints.get(name, int), pl) for name in columns}
        pl.DataFrame(columns, schema=schema).write_parquet(part)
        return part

    def write(temporary: Path) -> None:
        with TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as folder:
            parts = [write_part(Path(folder, str(number)), part) for number, part in enumerate(_parts(calls))]
            # A long run's calls need not be in memory together.
            pl.scan_parquet(parts, glob=False).sink_parquet(temporary)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())

    _replace_file(path, write)


def _parts(calls: Iterable[CallResult]) -> Iterator[tuple[CallResult, ...]]:
    """The calls by so many at a time; one part at least."""
    rest = iter(calls)
    part = tuple(islice(rest, _PART_CALLS))
    yield part
    while part := tuple(islice(rest, _PART_CALLS)):
        yield part


def _polars_type(hint: Any, polars: Any) -> Any:
    """Int64, Boolean or String: all that the fields of a call are, or may be beside None."""
    options = getattr(hint, "__args__", (hint,))
    if int in options:
        return polars.Int64
    return polars.Boolean if bool in options else polars.String
