"""Pure: how much got done in an hour, at which concurrency, and how evenly it was shared out.

Jain's index of n values is (Σx)² / (n Σx²): 1 if all are equal, 1/n if one has everything (R. Jain, D. Chiu, W. Hawe,
"A quantitative measure of fairness and discrimination for resource allocation in shared computer systems", 1984).
"""

from collections.abc import Callable

import polars as pl

from aitrace.units import NS_PER_S
from reports.buckets import buckets_of, is_inside
from reports.measures.call_metrics import CALL_DISTRIBUTIONS, sample
from reports.measures.run_metrics import measured_s
from reports.measures.time_metrics import SERIES
from reports.metric import Metric, Number, Row, Sample, defined, ratio
from reports.series import Line
from reports.sessions import IS_PLAYED
from reports.stats import Floats, quantile, shown_quantile
from reports.tables import Facts, once_per_run

TREE_EDGES = (1, 3, 10, 30, 100, 300)
"""First number of calls of each bucket of trees; the last one is open."""
_S_PER_H = 3600.0
_BY_NAME = {metric.name: metric for metric in CALL_DISTRIBUTIONS}
_LINES = {metric.name: metric for metric in SERIES}
_TREE = ("instance", "root")


def jain_index(values: Floats) -> float | None:
    """Jain's index; None of no values, or if all are 0."""
    squares = float((values * values).sum())
    return float(values.sum()) ** 2 / (values.size * squares) if squares else None


def _per_h(table: str) -> Callable[[Facts], float | None]:
    def compute(facts: Facts) -> float | None:
        frame: pl.DataFrame = getattr(facts, table)
        per_s = ratio(frame.filter(IS_PLAYED).height, measured_s(facts))
        return None if per_s is None else per_s * _S_PER_H

    return compute


def _level(name: str, of: Callable[[Line], float | None]) -> Callable[[Facts], float | None]:
    def compute(facts: Facts) -> float | None:
        lines = _LINES[name].compute(facts)
        return of(lines[0]) if lines and lines[0].at_s.size else None

    return compute


def _mean(line: Line) -> float | None:
    """Mean over time, from the first step to the last."""
    lengths_s = line.at_s[1:] - line.at_s[:-1]
    return ratio(float((line.values[:-1] * lengths_s).sum()), float(lengths_s.sum()))


def _largest(line: Line) -> int:
    return int(line.values.max())


@once_per_run
def tree_speeds(facts: Facts) -> pl.DataFrame:
    """One row per complete tree: calls, slowdown, and output tokens per second that its calls took."""
    columns = (*_TREE, "due_ns", "end_ns", "usage_output_tokens")
    calls = facts.calls.select(columns).join(facts.trees.filter(IS_PLAYED), on=list(_TREE), how="semi")
    took_s = (pl.col("end_ns") - pl.col("due_ns")).sum() / NS_PER_S
    tokens = pl.when(pl.col("usage_output_tokens").is_not_null().all()).then(
        pl.col("usage_output_tokens").sum()
    )
    speeds = calls.group_by(*_TREE, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("calls"), pl.when(took_s > 0).then(tokens / took_s).alias("speed")
    )
    expected_s = (pl.col("expected_end_ns") - pl.col("expected_start_ns")) / NS_PER_S
    took = (pl.col("last_end_ns") - pl.col("first_due_ns")) / NS_PER_S
    slowdowns = facts.trees.filter(IS_PLAYED).select(
        *_TREE, pl.when(expected_s > 0).then(took / expected_s).alias("slowdown")
    )
    return speeds.join(slowdowns, on=list(_TREE), how="left", maintain_order="left")


def _tree_speed(facts: Facts) -> Sample:
    return sample(tree_speeds(facts), pl.col("speed"))


def _by_size(facts: Facts) -> list[Row]:
    trees = tree_speeds(facts)
    rows: list[Row] = []
    for low, high in buckets_of(TREE_EDGES):
        inside = trees.filter(is_inside(pl.col("calls"), low, high))
        slowdowns, speeds = (inside[name].drop_nulls().to_numpy() for name in ("slowdown", "speed"))
        rows.append(
            {
                "calls_from": low,
                "calls_to": None if high is None else high - 1,
                "trees": inside.height,
                "slowdown_n": int(slowdowns.size),
                "slowdown_p50_ratio": quantile(slowdowns, 0.5),
                "slowdown_p95_ratio": shown_quantile(slowdowns, 0.95),
                "slowdown_jain_ratio": jain_index(slowdowns),
                "speed_n": int(speeds.size),
                "speed_p50_tokens_per_s": quantile(speeds, 0.5),
                "speed_p95_tokens_per_s": shown_quantile(speeds, 0.95),
                "speed_jain_ratio": jain_index(speeds),
            }
        )
    return [row for row in rows if row["trees"]]


def _slowdowns(facts: Facts) -> Floats:
    return _BY_NAME["session_slowdown_ratio"].compute(facts).values


def _unevenness(values: Floats) -> float | None:
    return ratio(shown_quantile(values, 0.95), quantile(values, 0.5))


_TREES = "trees of which every planned call is complete"
_SESSIONS = "sessions of which every planned call is complete"
_PER_H = "3600 × count / duration_s, from the first measured call due if there was a warm-up"
_ACTIVE = "sessions with an ended call, those of the warm-up included"
_IN_FLIGHT = "sent calls, those of the warm-up included"
_OF_SIZE = (
    "trees; n, p50, p95 and Jain's index of tree_slowdown_ratio and of tree_output_tokens_per_s, per bucket of calls "
    "of a tree"
)

# fmt: off
FAIRNESS_DISTRIBUTIONS: tuple[Metric[Sample], ...] = defined(
    ("tree_output_tokens_per_s", "Output of a tree while its calls go on", "tokens/s",
     "sum of reported output tokens / sum of end − due over its calls", f"{_TREES} and reports output tokens", _tree_speed),
)

FAIRNESS_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("trees_per_h", "Trees (jobs) per hour", "trees/h", _PER_H, _TREES, _per_h("trees")),
    ("sessions_per_h", "Sessions per hour", "sessions/h", _PER_H, _SESSIONS, _per_h("sessions")),
    ("calls_in_flight_mean", "Calls in flight, mean", "calls", "mean over time of calls_in_flight", _IN_FLIGHT,
     _level("calls_in_flight", _mean)),
    ("calls_in_flight_max", "Calls in flight, most", "calls", "largest value of calls_in_flight", _IN_FLIGHT,
     _level("calls_in_flight", _largest)),
    ("sessions_active_mean", "Sessions active, mean", "sessions", "mean over time of sessions_active", _ACTIVE,
     _level("sessions_active", _mean)),
    ("sessions_active_max", "Sessions active, most", "sessions", "largest value of sessions_active", _ACTIVE,
     _level("sessions_active", _largest)),
    ("slowdown_jain_ratio", "Fairness of slowdown (Jain's index)", "", "(Σx)² / (n Σx²) of session_slowdown_ratio",
     "sessions that have one", lambda facts: jain_index(_slowdowns(facts))),
    ("slowdown_p95_over_p50", "Slowdown of sessions, p95 over p50", "×", "p95 / p50 of session_slowdown_ratio",
     "sessions that have one, at least 40", lambda facts: _unevenness(_slowdowns(facts))),
    ("tree_speed_jain_ratio", "Fairness of output between trees (Jain's index)", "",
     "(Σx)² / (n Σx²) of tree_output_tokens_per_s", "trees that have one",
     lambda facts: jain_index(_tree_speed(facts).values)),
    ("tree_speed_p95_over_p50", "Output of trees, p95 over p50", "×", "p95 / p50 of tree_output_tokens_per_s",
     "trees that have one, at least 40", lambda facts: _unevenness(_tree_speed(facts).values)),
)

FAIRNESS_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("trees_by_size", "Fairness between trees, by their size", "trees",
     _OF_SIZE, _TREES, _by_size),
)
# fmt: on
