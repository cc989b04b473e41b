"""Pure: the tries of a run as a polars frame: one row for every time a call was sent, or was about to be."""

from typing import Any

import polars as pl

from aitrace.outcomes import outcome_of
from aitrace.results import Attempt

_OF_CALL = ("index", "instance", "root", "session", "turn_index", "phase", "gap_ns")
_OF_END = ("sent_ns", "headers_ns", "first_token_ns", "end_ns", "status")
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
_ROW = "row"
_FIRST_SENT = "first_sent_ns"


def tries_of(calls: pl.DataFrame) -> pl.DataFrame:
    """One row per try of the calls that were dispatched, in the order given: `TRY_SCHEMA` without its last column, the row
    of the call as `row`, and when its first try was sent as `first_sent_ns`.

    Args:
        calls: Fields of `CallResult`, with `attempts` as lists.
    """
    dispatched = calls.with_row_index(_ROW).filter(pl.col("unsent").is_null())
    retried = dispatched.filter(pl.col("attempts").list.len() > 0)
    last = dispatched.select(
        _ROW,
        *_OF_CALL,
        (pl.col("attempts").list.len().fill_null(0) + 1).cast(pl.Int64).alias("number"),
        pl.lit(value=True).alias("is_last"),
        *_OF_END,
        "error",
        "error_text",
        pl.lit(None, pl.Int64).alias("wait_ns"),
    )
    if retried.is_empty():
        return _with_outcomes(last.with_columns(pl.col("sent_ns").alias(_FIRST_SENT)))
    tries = pl.concat([_earlier(retried), last]).sort(_ROW, "number")
    return _with_outcomes(tries.with_columns(pl.col("sent_ns").min().over(_ROW).alias(_FIRST_SENT)))


def tries_frame(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """All tries of a run, from those of parts of its calls."""
    tries = pl.concat(parts)
    first_sent_ns, first_token_ns = pl.col(_FIRST_SENT), pl.col("first_token_ns").min().over(*_SESSION)
    return tries.with_columns(
        pl.when(first_sent_ns.is_not_null())
        .then((first_token_ns >= first_sent_ns).fill_null(value=True))
        .alias("is_first_call")
    ).drop(_FIRST_SENT)


def _earlier(retried: pl.DataFrame) -> pl.DataFrame:
    """The tries that were followed by another one."""
    was_never_sent = pl.col("sent_ns").is_null() & pl.col("end_ns").is_not_null()
    attempts = (
        retried.select(
            _ROW,
            *_OF_CALL,
            pl.when(was_never_sent).then(pl.col("end_ns")).alias("cut_ns"),
            pl.col("attempts").list.len().alias("tries"),
            "attempts",
        )
        .explode("attempts")
        .unnest("attempts")
    )
    number = pl.int_range(pl.len()).over(_ROW) + 1
    # The last wait of a call that the end of the run cut: what had passed of it.
    cut_wait_ns = pl.when(number == pl.col("tries")).then(pl.col("cut_ns") - pl.col("end_ns"))
    return attempts.select(
        _ROW,
        *_OF_CALL,
        number.alias("number"),
        pl.lit(value=False).alias("is_last"),
        *_OF_END,
        "error",
        "error_text",
        pl.min_horizontal("wait_ns", cut_wait_ns).alias("wait_ns"),
    )


def _with_outcomes(tries: pl.DataFrame) -> pl.DataFrame:
    """`outcome` in place of the error, from `aitrace.outcomes`, which is asked once for each kind of end."""
    of_end = {
        "error": pl.col("error"),
        "text": pl.when(pl.col("error") == "error_event").then(pl.col("error_text")),
        "has_headers": pl.col("headers_ns").is_not_null(),
        "has_token": pl.col("first_token_ns").is_not_null(),
    }
    ends = tries.select(**of_end)
    kinds = ends.filter(pl.col("error").is_not_null()).unique()
    outcomes = pl.Series("outcome", [_outcome(**kind) for kind in kinds.to_dicts()], pl.String)
    found = ends.join(
        kinds.with_columns(outcomes), on=list(of_end), how="left", nulls_equal=True, maintain_order="left"
    )
    columns = tries.with_columns(found["outcome"].fill_null("complete"))
    plain = [name for name in TRY_SCHEMA if name != "is_first_call"]
    return columns.select(_ROW, *plain, _FIRST_SENT)


def _outcome(*, error: Any, text: str | None, has_headers: bool, has_token: bool) -> str:
    end = Attempt(
        error=error,
        error_text=text,
        headers_ns=0 if has_headers else None,
        first_token_ns=0 if has_token else None,
        end_ns=0,
        wait_ns=0,
    )
    return outcome_of(end)
