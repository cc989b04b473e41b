"""Pure: calls of a run grouped into sessions and trees, and how long these should have taken.

The expected time of a session is what it would take if every answer took its recorded time and every gap were the
scaled one; the plan says it call by call (`planned_ns`).
"""

import numpy as np
import polars as pl

from aitrace.columns import CALL_CLASSES, NOT_KNOWN, call_columns
from aitrace.schema import Trace

IS_SENT = pl.col("sent_ns").is_not_null()
IS_FAILED = pl.col("error").is_not_null()
IS_STOPPED = (pl.col("error") == "client_abort").fill_null(value=False)
IS_COMPLETE = IS_SENT & ~IS_FAILED & pl.col("end_ns").is_not_null() & pl.col("unsent").is_null()

IS_CUT = IS_STOPPED | pl.col("unsent").is_in(["interrupted", "duration", "worker_lost"]).fill_null(
    value=False
)
"""Of calls: the end of the run, or of the process that played it, cut it off, in flight or before it was sent."""

IS_FATAL = IS_FAILED & ~IS_STOPPED & (pl.col("call_class") != "auxiliary")
"""Of calls: a session does not go on after it."""

IS_PLAYED = pl.col("is_whole") & (pl.col("complete_calls") == pl.col("calls"))
"""Of sessions and trees: every planned call is complete."""


def planned_counts(trace: Trace | None) -> dict[int, int]:
    """Calls that a playing of each tree should have, by root session; empty without a trace.

    A replay sends neither the attempts that a later one replaces nor calls that only count tokens.
    """
    if trace is None:
        return {}
    calls = call_columns(trace)
    is_sent = (calls.retry_of == NOT_KNOWN) & (calls.call_class != CALL_CLASSES.index("count_tokens"))
    roots, place = np.unique(calls.root, return_inverse=True)
    return dict(zip(roots.tolist(), np.bincount(place[is_sent], minlength=len(roots)).tolist(), strict=True))


def grouped(calls: pl.DataFrame, by: list[str], missing: pl.Expr) -> pl.DataFrame:
    """Sessions or trees, in order of appearance: counts of calls, and begin and end in the run, expected, recorded.

    `expected_end_ns` is when the last call would have ended if every answer had taken its recorded time. It and
    `recorded_end_ns` are null if that is not known of the call that began last.

    Args:
        missing: Whether planned calls of a group may have left no row, because the run was cut.
    """
    recorded_ns = pl.col("recorded_end_ns") - pl.col("recorded_start_ns")
    expected_end_ns = pl.col("expected_start_ns") + recorded_ns
    return calls.group_by(by, maintain_order=True).agg(
        (~missing).all().alias("is_whole"),
        pl.len().cast(pl.Int64).alias("calls"),
        IS_SENT.sum().cast(pl.Int64).alias("sent_calls"),
        IS_COMPLETE.sum().cast(pl.Int64).alias("complete_calls"),
        IS_FAILED.sum().cast(pl.Int64).alias("failed_calls"),
        IS_STOPPED.sum().cast(pl.Int64).alias("stopped_calls"),
        IS_FATAL.sum().cast(pl.Int64).alias("fatal_calls"),
        (pl.col("unsent") == "session_lost").fill_null(value=False).sum().cast(pl.Int64).alias("lost_calls"),
        IS_CUT.sum().cast(pl.Int64).alias("cut_calls"),
        (pl.col("phase") == "warm_up").sum().cast(pl.Int64).alias("warm_up_calls"),
        pl.col("due_ns").min().alias("first_due_ns"),
        pl.col("end_ns").max().alias("last_end_ns"),
        pl.col("expected_start_ns").min(),
        _latest(expected_end_ns, by="expected_start_ns").alias("expected_end_ns"),
        pl.col("recorded_start_ns").min(),
        _latest(pl.col("recorded_end_ns"), by="recorded_start_ns").alias("recorded_end_ns"),
    )


def _latest(ends_ns: pl.Expr, *, by: str) -> pl.Expr:
    """Largest of the ends; null if a start is not known, or the end of the call that began last."""
    is_known = ends_ns.sort_by(by).last().is_not_null() & pl.col(by).is_not_null().all()
    return pl.when(is_known).then(ends_ns.max())
