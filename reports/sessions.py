"""Pure: calls of a run grouped into sessions and trees, and how long these should have taken.

The expected time of a session is what it would take if every answer took its recorded time and every gap were the
scaled one. A plan with known starts says it call by call (`planned_ns`); where lanes start the trees it is worked out
here, from the start of the tree.
"""

from collections.abc import Sequence

import polars as pl

from aitrace.results import CallResult
from aitrace.schema import Dependency, Trace

IS_SENT = pl.col("sent_ns").is_not_null()
IS_FAILED = pl.col("error").is_not_null()
IS_COMPLETE = IS_SENT & ~IS_FAILED & pl.col("end_ns").is_not_null() & pl.col("unsent").is_null()

_Starts = dict[tuple[int, int], int | None]


def expected_starts_ns(calls: Sequence[CallResult], trace: Trace) -> list[int | None]:
    """When each call would start if every answer took its recorded time.

    `planned_ns` where the plan knew it; else the latest trigger among the calls waited for plus the gap, counted from
    the start of the tree. None if a recorded duration that matters is not known.
    """
    starts_ns: _Starts = {}
    for call in sorted(calls, key=lambda call: call.index):
        planned_ns = call.planned_ns
        starts_ns[call.instance, call.call] = (
            _start_ns(call, trace, starts_ns) if planned_ns is None else planned_ns
        )
    return [starts_ns[call.instance, call.call] for call in calls]


def _start_ns(call: CallResult, trace: Trace, starts_ns: _Starts) -> int | None:
    if call.gap_ns is None:
        return 0
    triggers_ns = [
        _trigger_ns(dependency, trace, starts_ns[call.instance, dependency.call])
        for dependency in trace.calls[call.call].after
        if (call.instance, dependency.call) in starts_ns
    ]
    known_ns = [at_ns for at_ns in triggers_ns if at_ns is not None]
    if not known_ns or len(known_ns) < len(triggers_ns):
        return None
    return max(known_ns) + call.gap_ns


def _trigger_ns(dependency: Dependency, trace: Trace, start_ns: int | None) -> int | None:
    times = trace.calls[dependency.call].times
    if start_ns is None or dependency.trigger == "dispatch":
        return start_ns
    return None if times.end_ns is None else start_ns + times.end_ns - times.request_ns


def planned_counts(trace: Trace | None) -> dict[int, int]:
    """Calls that a playing of each tree should have, by root session; empty without a trace.

    A replay sends neither the attempts that a later one replaces nor calls that only count tokens.
    """
    of_tree: dict[int, int] = {}
    if trace is None:
        return of_tree
    for call in trace.calls:
        root = trace.sessions[call.session].root
        is_sent = call.retry_of is None and call.call_class != "count_tokens"
        of_tree[root] = of_tree.get(root, 0) + is_sent
    return of_tree


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
        (pl.col("unsent") == "session_lost").fill_null(value=False).sum().cast(pl.Int64).alias("lost_calls"),
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
