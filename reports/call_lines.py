"""Pure: lines of `calls.jsonl` as polars frames, many at once: a row per call, and a row per try.

`rows_from_lines` takes what `aitrace.codec.decode_record` takes and, beyond it, another value where a text should stand,
which counts as its text, and a null where a field with a default could be left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl

from aitrace.codec import encode_record
from aitrace.results import NO_COLUMNS, Attempt, CallResult
from aitrace.schema import MAX_COUNT, Usage
from aitrace.signals import WORKER_SIGNALS
from reports.tries import tries_of

_Schema = dict[str, Any]


def _type_of(hint: Any) -> Any:
    """Fields are integers, flags or texts, or None beside them."""
    types = get_args(hint) or (hint,)
    return pl.Int64 if int in types else pl.Boolean if bool in types else pl.String


def _schema_of(record: type, without: Sequence[str] = ()) -> _Schema:
    hints = get_type_hints(record)
    return {field.name: _type_of(hints[field.name]) for field in fields(record) if field.name not in without}


LEFT_OUT = (
    "first_byte_ns",
    "first_event_ns",
    "stale_connections",
    "request_bytes",
    "response_bytes",
    "token_events",
    "finish",
)
"""Fields of a call that no number is made of; they are checked and passed over."""
CALL_FIELDS = _schema_of(CallResult, NO_COLUMNS)
"""Type of each field of `CallResult` that is a column under its own name."""
_USAGE_FIELDS = _schema_of(Usage)
_ATTEMPT_FIELDS = _schema_of(Attempt, NO_COLUMNS)

USAGE_SCHEMA: _Schema = {f"usage_{name}": kind for name, kind in _USAGE_FIELDS.items()}
"""One column per field of `Usage`, in its order."""

CALL_SCHEMA: _Schema = {
    **_schema_of(CallResult, (*NO_COLUMNS, *LEFT_OUT)),
    "backoff_ns": pl.Int64,
    "worker": pl.String,
}
"""One column per field of `CallResult` but `LEFT_OUT`, the waits after its earlier tries together, and who computed its
prompt, see `aitrace.signals.worker_of`; `usage` follows as `USAGE_SCHEMA`."""

_LINE_SCHEMA: _Schema = {
    **CALL_FIELDS,
    "usage": pl.Struct(_USAGE_FIELDS),
    "signals": pl.Struct(dict.fromkeys(WORKER_SIGNALS, pl.String)),
    "attempts": pl.List(pl.Struct(_ATTEMPT_FIELDS)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRows:
    """What some lines say."""

    calls: pl.DataFrame
    """One row per call: `CALL_SCHEMA`, `USAGE_SCHEMA`."""
    tries: pl.DataFrame
    """One row per try of those that were dispatched: parts of what `reports.tries.tries_frame` makes."""


def rows_from_calls(calls: Iterable[CallResult]) -> CallRows:
    """The rows of calls, in the order given."""
    rows = rows_from_lines(b"".join(map(encode_record, calls)))
    if rows is None:
        raise ValueError("calls that can be written can be read")
    return rows


def rows_from_lines(lines: bytes) -> CallRows | None:
    """The rows of whole lines; None if a line is not one of a call, or only a look at each can tell."""
    if not lines:
        return _rows(pl.DataFrame(schema=_LINE_SCHEMA))
    try:
        frame = pl.read_ndjson(lines, schema=_LINE_SCHEMA)
    except pl.exceptions.PolarsError:
        return None
    # Empty lines are passed over.
    if frame.height != lines.count(b"\n") or not _are_fit(frame, CallResult, CALL_FIELDS):
        return None
    usage = frame["usage"].struct.unnest()
    if any(usage.select(pl.all().abs().max() > MAX_COUNT).row(0)):
        return None
    attempts = frame["attempts"].drop_nulls().explode(empty_as_null=False)
    if attempts.len() and not _are_fit(attempts.struct.unnest(), Attempt, _ATTEMPT_FIELDS):
        return None
    return _rows(frame)


def _are_fit(frame: pl.DataFrame, record: type, names: Iterable[str]) -> bool:
    """Whether what must be there is, and words are of their closed sets."""
    hints = get_type_hints(record)
    must = [field.name for field in fields(record) if field.default is MISSING and field.name in names]
    nulls = frame.null_count().row(0, named=True)
    if any(nulls[name] for name in must if NoneType not in get_args(hints[name])):
        return False
    words = {name: _words(hints[name]) for name in names}
    return all(
        set(frame[name].unique().drop_nulls().to_list()) <= allowed
        for name, allowed in words.items()
        if allowed is not None
    )


def _words(hint: Any) -> set[str] | None:
    """The closed set of a field; None if any text or number will do."""
    for option in (hint, *get_args(hint)):
        if get_origin(option) is Literal:
            return set(get_args(option))
    return None


def _rows(frame: pl.DataFrame) -> CallRows:
    defaults = {field.name: field.default for field in fields(CallResult) if field.name in CALL_FIELDS}
    filled = frame.with_columns(
        pl.col(name).fill_null(default)
        for name, default in defaults.items()
        if default is not MISSING and default is not None
    )
    tries = tries_of(filled)
    waits_ns = np.zeros(frame.height, np.int64)
    waited = tries.drop_nulls("wait_ns")
    np.add.at(waits_ns, waited["row"].to_numpy(), waited["wait_ns"].to_numpy())
    calls = filled.select(
        *(name for name in CALL_FIELDS if name not in LEFT_OUT),
        pl.Series("backoff_ns", waits_ns),
        pl.coalesce(pl.col("signals").struct.field(name) for name in WORKER_SIGNALS).alias("worker"),
        *(pl.col("usage").struct.field(name).alias(f"usage_{name}") for name in _USAGE_FIELDS),
    )
    # Columns that were read have room to grow, which adds up over the parts of a run.
    return CallRows(calls=calls.shrink_to_fit(), tries=tries.drop("row").shrink_to_fit())
