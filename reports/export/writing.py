"""I/O: exports to a file or to stdout, whole or not at all."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from polars.io.plugins import register_io_source

from reports.export.rows import COLUMNS, frames
from reports.export.source import RunSource


def write_parquet(source: RunSource, path: Path) -> None:
    """Write the calls of a run as Parquet, some at a time."""

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,  # noqa: ARG001 - the signature is polars'
        n_rows: int | None,  # noqa: ARG001 - same
        batch_size: int | None,  # noqa: ARG001 - same
    ) -> Iterator[pl.DataFrame]:
        for frame in frames(source):
            yield frame if with_columns is None else frame.select(with_columns)

    register_io_source(read, schema=COLUMNS).sink_parquet(path)


def write_chunks(chunks: Iterable[bytes], path: Path) -> None:
    """Write bytes to a file, as they come."""
    with path.open("wb") as stream:
        stream.writelines(chunks)


def write_stdout(write: Callable[[Path], None]) -> None:
    """Write to stdout, but nothing before all of it is there."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "export"
        write(path)
        with path.open("rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
        sys.stdout.buffer.flush()
