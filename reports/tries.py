"""Pure: the tries of a run as a polars frame: one row for every time a call was sent, or was about to be."""

from collections.abc import Iterable, Iterator

import polars as pl

from aitrace.outcomes import outcome_of
from aitrace.results import Attempt, CallResult, waits_ns

TRY_SCHEMA: dict[str, type[pl.DataType]] = {
    "index": pl.Int64,
    "instance": pl.Int64,
    "root": pl.Int64,
    "session": pl.Int64,
    "turn_index": pl.Int64,
    "phase": pl.String,
    "gap_ns": pl.Int64,
    "number": pl.Int64,
    "is_last": pl.Boolean,
    "sent_ns": pl.Int64,
    "headers_ns": pl.Int64,
    "first_token_ns": pl.Int64,
    "end_ns": pl.Int64,
    "status": pl.Int64,
    "outcome": pl.String,
    "wait_ns": pl.Int64,
    "is_first_call": pl.Boolean,
}
"""`number` counts the tries of a call from 1; `wait_ns` is the harness's wait after a try, as far as the end of the
run let it, null for the last one.
`is_first_call`: no call of the session had a token yet when the call was first sent; null if that was never."""

_SESSION = ("instance", "session")


def tries_frame(calls: Iterable[CallResult]) -> pl.DataFrame:
    """One row per try of the calls that were dispatched, in the order given."""
    plain = {name: kind for name, kind in TRY_SCHEMA.items() if name != "is_first_call"}
    rows = [row for call in calls if call.unsent is None for row in _tries(call)]
    tries = pl.DataFrame(rows, schema=plain, orient="row")
    first_sent_ns = pl.col("sent_ns").min().over("index", *_SESSION)
    first_token_ns = pl.col("first_token_ns").min().over(*_SESSION)
    return tries.with_columns(
        pl.when(first_sent_ns.is_not_null())
        .then((first_token_ns >= first_sent_ns).fill_null(value=True))
        .alias("is_first_call")
    )


def _tries(call: CallResult) -> Iterator[tuple[int | str | bool | None, ...]]:
    of_call = (
        call.index,
        call.instance,
        call.root,
        call.session,
        call.turn_index,
        call.phase,
        call.gap_ns,
    )
    waits: list[int | None] = [*waits_ns(call), None]
    ends: tuple[CallResult | Attempt, ...] = (*call.attempts, call)
    for number, (end, wait_ns) in enumerate(zip(ends, waits, strict=True), 1):
        yield (
            *of_call,
            number,
            end is call,
            end.sent_ns,
            end.headers_ns,
            end.first_token_ns,
            end.end_ns,
            end.status,
            outcome_of(end),
            wait_ns,
        )
