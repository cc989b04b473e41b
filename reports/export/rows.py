"""Pure: calls as rows of a table, for CSV and Parquet: the columns of `calls.parquet`, then the outcome.

A text that a program for tables would take for a formula is preceded by an apostrophe in CSV, and control characters
are written as escapes, so that a row is one line.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import orjson
import polars as pl

from aitrace.results import CallResult, call_columns
from reports.call_lines import CALL_FIELDS, USAGE_SCHEMA
from reports.export.phases import outcome_of_call
from reports.export.source import RunSource

COLUMNS: dict[str, type[pl.DataType]] = {
    **CALL_FIELDS,
    "worker": pl.String,
    **USAGE_SCHEMA,
    "earlier_tries": pl.Int64,
    "backoff_ns": pl.Int64,
    "signals": pl.String,
    "outcome": pl.String,
}
"""Name and type of each column, in order."""

BATCH_CALLS = 10_000
"""Calls in memory at once."""

_FORMULA_STARTS = ("=", "+", "-", "@")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {9: "\\t", 10: "\\n", 13: "\\r"}
_UNPLAIN = re.compile(r"^[=+@-]|[\x00-\x1f\x7f]")
_FLAGS = {True: "true", False: "false", None: None}


def batches(calls: Iterable[CallResult], size: int = BATCH_CALLS) -> Iterator[list[CallResult]]:
    """The calls in lists of at most `size`."""
    rest = iter(calls)
    while batch := list(islice(rest, size)):
        yield batch


def columns(calls: Sequence[CallResult]) -> dict[str, list[Any]]:
    """`COLUMNS` of some calls."""
    values = call_columns(calls)
    values["signals"] = [orjson.dumps(call.signals).decode() if call.signals else None for call in calls]
    values["outcome"] = [outcome_of_call(call) for call in calls]
    return {name: values[name] for name in COLUMNS}


def frames(source: RunSource) -> Iterator[pl.DataFrame]:
    """The calls of a run as frames, one after another."""
    for batch in batches(source.calls()):
        yield pl.DataFrame(columns(batch), schema=COLUMNS)


def csv_chunks(source: RunSource) -> Iterator[bytes]:
    """The run's calls as CSV (RFC 4180 but for its line ends, UTF-8), with a line of names; absent values are empty."""
    yield _csv([tuple(COLUMNS)])
    for batch in batches(source.calls()):
        values = columns(batch)
        yield _csv(zip(*(_written(values[name], kind) for name, kind in COLUMNS.items()), strict=True))


def plain_text(text: str) -> str:
    """A text that is one line and no formula."""
    if _UNPLAIN.search(text) is None:
        return text
    line = text.translate(_CONTROL)
    return "'" + line if line.startswith(_FORMULA_STARTS) else line


def _written(values: list[Any], kind: type[pl.DataType]) -> list[Any]:
    if kind is pl.String:
        return [None if value is None else plain_text(value) for value in values]
    return [_FLAGS[value] for value in values] if kind is pl.Boolean else values


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
