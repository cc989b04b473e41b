"""Pure: the values of one run, or of what was recorded, by call, session and tree, ready to be set beside others.

They are those of the report's definitions, see `reports/metrics.py`; only the keys are added.
"""

from dataclasses import dataclass, replace

import polars as pl

from aitrace.outcomes import REFUSED
from aitrace.schema import Call, Trace
from aitrace.units import NS_PER_MS, NS_PER_S
from reports.cache.metrics import cache_population
from reports.gaps import with_gaps
from reports.measures.admission import measured_tries
from reports.measures.run_metrics import IS_LOST
from reports.metrics import DISTRIBUTIONS
from reports.sessions import IS_COMPLETE, IS_CUT
from reports.stats import Ints
from reports.tables import Facts

KEYS = {
    "call": ("instance", "root", "session", "call"),
    "session": ("instance", "root", "session"),
    "tree": ("instance", "root"),
}
"""What tells calls, sessions and trees apart, by level."""
_OF_CALLS = {
    "ttft": "ttft_service_ms",
    "user_ttft": "ttft_user_ms",
    "headers": "headers_ms",
    "itl": "itl_ms",
    "stall": "longest_stall_ms",
    "speed": "output_speed_tokens_per_s",
    "call": "call_duration_ms",
}
_KEY_SHIFT = 32
_METRICS = {metric.name: metric for metric in DISTRIBUTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """What one run has of each measure; null where there is no value."""

    calls: pl.DataFrame
    """Keys, `due_ns`, and per basis of calls `NAME_value`, of a share `NAME_part` and `NAME_whole`."""
    sessions: pl.DataFrame
    """The same of sessions."""
    trees: pl.DataFrame
    """The same of trees."""

    def of_level(self, level: str) -> pl.DataFrame:
        """The frame of a level."""
        return {"call": self.calls, "session": self.sessions, "tree": self.trees}[level]


def values_of_run(facts: Facts) -> RunValues:
    """The measured calls of a run, their sessions and trees."""
    return RunValues(
        calls=_calls(facts),
        sessions=_with_values(
            facts.sessions.select(*KEYS["session"], _due(), *_lost()),
            ("instance", "session"),
            {
                "session": _keyed(facts, "session_duration_s", "session"),
                "backoff": _keyed(facts, "session_backoff_s", "session"),
            },
        ),
        trees=_with_values(
            facts.trees.select(*KEYS["tree"], _due()),
            ("instance", "root"),
            {"tree": _keyed(facts, "tree_duration_s", "root")},
        ),
    )


def values_recorded(facts: Facts, trace: Trace) -> RunValues:
    """What was recorded of the calls that a run played, under the run's keys.

    Durations of sessions are left out where the run's gaps are not those that were recorded.
    """
    rows = facts.calls.select(*KEYS["call"], "due_ns")
    recorded = pl.DataFrame(
        [_recorded(trace.calls[call]) for call in rows["call"].to_list()],
        schema=dict.fromkeys(_RECORDED, pl.Float64),
        orient="row",
    )
    sessions = facts.sessions.select(*KEYS["session"], _due())
    is_to_scale = facts.header.time_scale == 1 and not facts.header.options.get("gap_caps_ns")
    durations = {"session": _keyed(facts, "session_recorded_s", "session")} if is_to_scale else {}
    return RunValues(
        calls=rows.hstack(recorded),
        sessions=_with_values(sessions, ("instance", "session"), durations),
        trees=facts.trees.select(*KEYS["tree"], _due()),
    )


def _calls(facts: Facts) -> pl.DataFrame:
    rows = facts.calls.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    # A sample names the session of each value; with the rows' numbers in their place it names the row.
    numbered = replace(
        facts,
        calls=rows.with_columns(pl.lit(0, pl.Int64).alias("instance"), session="row"),
    )
    frame = rows.select(
        "row",
        "index",
        *KEYS["call"],
        "due_ns",
        pl.lit(with_gaps(facts.calls.select("index"), facts)["played_gap_s"]).alias("gap_value"),
        pl.when(~IS_CUT)
        .then(IS_COMPLETE.fill_null(value=False))
        .cast(pl.Float64)
        .alias("complete_calls_part"),
        pl.when(~IS_CUT).then(1.0).alias("complete_calls_whole"),
    )
    for name, metric in _OF_CALLS.items():
        sample = _METRICS[metric].compute(numbered)
        frame = frame.join(
            pl.DataFrame(
                {"row": sample.sessions, f"{name}_value": sample.values}, schema_overrides={"row": pl.Int64}
            ),
            on="row",
            how="left",
        )
    return (
        frame.join(_cached(numbered), on="row", how="left")
        .join(_refused(facts), on="index", how="left")
        .drop("row", "index")
    )


def _due() -> pl.Expr:
    return pl.col("first_due_ns").alias("due_ns")


def _cached(numbered: Facts) -> pl.DataFrame:
    reporting = cache_population(numbered).filter(pl.col("usage_cache_read_tokens").is_not_null())
    return reporting.select(
        "row",
        pl.col("usage_cache_read_tokens").cast(pl.Float64).alias("hit_ratio_part"),
        pl.col("input_tokens").cast(pl.Float64).alias("hit_ratio_whole"),
    )


def _refused(facts: Facts) -> pl.DataFrame:
    return (
        measured_tries(facts)
        .group_by("index")
        .agg(
            pl.col("outcome").is_in(REFUSED).sum().cast(pl.Float64).alias("refused_tries_part"),
            pl.len().cast(pl.Float64).alias("refused_tries_whole"),
        )
    )


def _lost() -> tuple[pl.Expr, pl.Expr]:
    is_known = IS_LOST | (pl.col("cut_calls") == 0)
    return (
        pl.when(is_known).then(IS_LOST.cast(pl.Float64)).alias("lost_sessions_part"),
        pl.when(is_known).then(1.0).alias("lost_sessions_whole"),
    )


def _keyed(facts: Facts, metric: str, member: str) -> pl.DataFrame:
    """Values of a metric of sessions or trees, with the keys that its sample's names hold."""
    sample = _METRICS[metric].compute(facts)
    names: Ints = sample.sessions.astype("int64")
    return pl.DataFrame(
        {
            "instance": names >> _KEY_SHIFT,
            member: names & ((1 << _KEY_SHIFT) - 1),
            "value": sample.values,
        }
    )


def _with_values(frame: pl.DataFrame, on: tuple[str, str], values: dict[str, pl.DataFrame]) -> pl.DataFrame:
    for name, keyed in values.items():
        frame = frame.join(keyed.rename({"value": f"{name}_value"}), on=list(on), how="left")
    return frame


_RECORDED = (
    "ttft_value", "headers_value", "itl_value", "speed_value", "call_value", "gap_value", "hit_ratio_part",
    "hit_ratio_whole",
)  # fmt: skip


def _recorded(call: Call) -> tuple[float | None, ...]:
    times, usage = call.times, call.usage
    is_complete = call.outcome.error is None
    tokens = usage.output_tokens if is_complete else None
    streamed = _between(times.first_token_ns, times.last_token_ns) if tokens and tokens >= 2 else None
    answered = _between(times.request_ns, times.last_token_ns)
    reports_cache = is_complete and usage.cache_read_tokens is not None and usage.input_tokens is not None
    return (
        _scaled(_between(times.request_ns, times.first_token_ns), NS_PER_MS),
        _scaled(_between(times.request_ns, times.headers_ns), NS_PER_MS),
        None if streamed is None or tokens is None else streamed / NS_PER_MS / (tokens - 1),
        tokens / (answered / NS_PER_S) if tokens and answered else None,
        _scaled(_between(times.request_ns, times.end_ns), NS_PER_MS) if is_complete else None,
        _scaled(_recorded_gap_ns(call), NS_PER_S),
        usage.cache_read_tokens if reports_cache else None,
        usage.input_tokens if reports_cache else None,
    )


def _recorded_gap_ns(call: Call) -> int | None:
    """The shortest of the gaps to what it waited for, which is the one that a plan keeps; None if none is known."""
    gaps_ns = [wait.gap_ns for wait in call.after if wait.gap_ns is not None and wait.gap_ns >= 0]
    return min(gaps_ns, default=None)


def _between(start_ns: int | None, end_ns: int | None) -> int | None:
    return None if start_ns is None or end_ns is None else end_ns - start_ns


def _scaled(length_ns: int | None, unit_ns: float) -> float | None:
    return None if length_ns is None else length_ns / unit_ns
