"""I/O: run directories: what a replay writes while it runs, and reads back.

`run.json` holds the header and, once the run ended, its end; `calls.jsonl` and `scrapes.jsonl` grow by one line per
event and are handed to the operating system line by line, so a crash of the replay loses nothing that had finished;
`calls.parquet` is written from `calls.jsonl` at the end; `trace.aitrace` is a copy of what was played.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar, get_type_hints

import orjson

from aitrace.codec import decode_record, encode_record, fields_from_record, parse_object, record_from_fields
from aitrace.errors import InputError, UsageError
from aitrace.results import RUN_VERSION, CallResult, RunEnd, RunHeader, Scrape
from aitrace.schema import Usage

RUN_FILE = "run.json"
CALLS_FILE = "calls.jsonl"
PARQUET_FILE = "calls.parquet"
SCRAPES_FILE = "scrapes.jsonl"
TRACE_FILE = "trace.aitrace"
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
    """

    def __init__(self, directory: str | Path, header: RunHeader, trace_path: str | Path) -> None:
        self.directory = Path(directory)
        """Where the run is written."""
        self._header = header
        require_unused(self.directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(trace_path, self.directory / TRACE_FILE)
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
        _append(self._calls, encode_record(result))

    def write_scrape(self, scrape: Scrape) -> None:
        """Append one reading; it survives the end of this process from here on."""
        _append(self._scrapes, encode_record(scrape))

    def finish(self, end: RunEnd) -> None:
        """Write `calls.parquet`, then the end into `run.json`."""
        self.close()
        calls, _ = _read_records(self.directory / CALLS_FILE, CallResult)
        _write_parquet(self.directory / PARQUET_FILE, calls)
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


def read_run(directory: str | Path) -> Run:
    """A run directory in memory.

    A last line that was cut is passed over and counted; anything else that cannot be read is an error.

    Raises:
        InputError: The directory is missing, no run, or damaged.
    """
    root = Path(directory)
    if not root.is_dir():
        raise InputError(
            f"{root}: {'is a file' if root.exists() else 'no such directory'}, expected a run directory",
            hint="aitrace replay TRACE --url URL -o DIR writes one",
        )
    header, end = _read_run_file(root)
    calls, calls_lost = _read_records(root / CALLS_FILE, CallResult)
    scrapes, scrapes_lost = _read_records(root / SCRAPES_FILE, Scrape)
    return Run(
        header=header,
        end=end,
        calls=calls,
        scrapes=scrapes,
        trace_path=root / TRACE_FILE,
        lines_lost=calls_lost + scrapes_lost,
    )


def call_columns(calls: Iterable[CallResult]) -> dict[str, list[Any]]:
    """Columns of `calls.parquet`: the fields of `CallResult`, those of its usage as `usage_…`."""
    names = [field.name for field in fields(CallResult) if field.name != "usage"]
    usage_names = [field.name for field in fields(Usage)]
    columns: dict[str, list[Any]] = {name: [] for name in names}
    columns.update({f"usage_{name}": [] for name in usage_names})
    for call in calls:
        for name in names:
            columns[name].append(getattr(call, name))
        for name in usage_names:
            columns[f"usage_{name}"].append(getattr(call.usage, name))
    return columns


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
    data = _bytes_of(path, hint="a run directory holds run.json; aitrace replay writes one")
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


def _object_in(content: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise InputError(f"{place}: {name}: expected an object, got {value!r}")
    return value


def _read_records(path: Path, cls: type[_RecordT]) -> tuple[tuple[_RecordT, ...], int]:
    """Records of a line file, and how many lines at its end were cut (0 or 1)."""
    *lines, rest = _bytes_of(path, hint="the run directory is incomplete").split(b"\n")
    with _hinted(_DAMAGED_LINE_HINT):
        records = [decode_record(cls, line, place=f"{path}:{number}") for number, line in enumerate(lines, 1)]
    return tuple(records), 1 if rest else 0


@contextmanager
def _hinted(hint: str) -> Iterator[None]:
    """Give a next step to errors that have none."""
    try:
        yield
    except InputError as error:
        error.hint = error.hint or hint
        raise


def _bytes_of(path: Path, *, hint: str) -> bytes:
    try:
        return path.read_bytes()
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
    columns = call_columns(calls)
    schema = {name: _polars_type(hints[name], pl) for name in columns}
    frame = pl.DataFrame(columns, schema=schema)

    def write(temporary: Path) -> None:
        frame.write_parquet(temporary)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())

    _replace_file(path, write)


def _polars_type(hint: Any, polars: Any) -> Any:
    """Int64, Boolean or String: all that the fields of a call are, or may be beside None."""
    options = getattr(hint, "__args__", (hint,))
    if int in options:
        return polars.Int64
    return polars.Boolean if bool in options else polars.String
