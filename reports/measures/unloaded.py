"""Pure: what sessions would have taken of an endpoint that did nothing else.

The speed of the idle endpoint is that of calls which had it for themselves: no other call was in flight between their
sending and their end. If a run at the same endpoint without load is given, all its calls count: agents of one tree
work beside each other, so few calls of a tree played alone are alone. Their TTFT is fitted as base + prompt tokens
that were not cached × time per token (least squares), their decoding is the median ITL.

A session would then have taken its gaps, and of each call the TTFT for the tokens that were not cached in the run and
the ITL for each further output token; no lateness, no backoff, no earlier tries. Time spent on waiting for other agents
shrinks as the time does of those sub-agents of the tree that have an estimate. What load evicts from the cache stays
evicted: the estimate is of waiting and of shared steps, not of lost cache.
"""

from dataclasses import dataclass

import polars as pl

from aitrace.quantiles import min_count
from aitrace.units import NS_PER_S
from reports.measures.call_metrics import CALL_VALUES, sample
from reports.measures.latency_metrics import UNCACHED
from reports.measures.session_shares import SESSION, call_parts
from reports.metric import Metric, Number, Sample, defined
from reports.sessions import IS_COMPLETE
from reports.stats import Floats, quantile
from reports.tables import Facts, kept, once_per_run

MIN_CALLS = min_count(0.9)
"""Calls that had the endpoint for themselves that a fit needs."""
_MS_PER_S = 1000.0
_GAPS = ("tool_gap", "user_gap", "other_gap")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSpeed:
    """How fast an endpoint is that does nothing else."""

    calls: int
    """Calls it was taken from."""
    base_ms: float
    """TTFT of a prompt that is cached as a whole, ms."""
    ms_per_token: float
    """TTFT that each prompt token adds that is not cached, ms."""
    itl_ms: float
    """Time of each output token after the first, ms."""


@once_per_run
def lone_calls(facts: Facts) -> pl.DataFrame:
    """Complete calls, measured or not, with TTFT, ITL and uncached tokens, that no other try overlapped."""
    sent = kept(facts.tries, pl.col("sent_ns").is_not_null(), "index", "is_last", "sent_ns", "end_ns")
    tries = sent.sort("sent_ns", "end_ns", nulls_last=True)
    before, after = pl.col("end_ns").cum_max().shift(1), pl.col("sent_ns").shift(-1)
    has_unknown_before = pl.col("end_ns").is_null().cum_sum().shift(1).fill_null(0) > 0
    lone = tries.filter(
        pl.col("is_last")
        & ~has_unknown_before
        & (before <= pl.col("sent_ns")).fill_null(value=True)
        & (after >= pl.col("end_ns")).fill_null(value=True)
    )
    return _timed(facts.every_call.lazy().join(lone.lazy().select("index"), on="index", how="semi"))


@once_per_run
def _all_calls(facts: Facts) -> pl.DataFrame:
    return _timed(facts.every_call.lazy())


def _timed(calls: pl.LazyFrame) -> pl.DataFrame:
    """Of complete calls TTFT, ITL and uncached tokens, where all are known."""
    timed = calls.filter(IS_COMPLETE).select(
        UNCACHED.cast(pl.Float64).alias("uncached_tokens"),
        CALL_VALUES["ttft_service_ms"].alias("ttft_ms"),
        CALL_VALUES["itl_ms"].alias("itl_ms"),
    )
    return timed.drop_nulls().collect()


def unloaded_calls(facts: Facts) -> pl.DataFrame:
    """The calls that the speed of the idle endpoint is told from."""
    return lone_calls(facts) if facts.unloaded is None else _all_calls(facts.unloaded)


def idle_speed(facts: Facts) -> IdleSpeed | None:
    """The speed of the idle endpoint; None with fewer than `MIN_CALLS` calls to take it from."""
    calls = unloaded_calls(facts)
    if calls.height < MIN_CALLS:
        return None
    base_ms, ms_per_token = _line(calls["uncached_tokens"].to_numpy(), calls["ttft_ms"].to_numpy())
    return IdleSpeed(
        calls=calls.height,
        base_ms=base_ms,
        ms_per_token=ms_per_token,
        itl_ms=quantile(calls["itl_ms"].to_numpy(), 0.5) or 0.0,
    )


def _line(tokens: Floats, ttft_ms: Floats) -> tuple[float, float]:
    """Base and slope by least squares, neither below 0."""
    off = tokens - tokens.mean()
    spread = float((off * off).sum())
    slope = float((off * ttft_ms).sum()) / spread if spread else 0.0
    if slope <= 0:
        return float(ttft_ms.mean()), 0.0
    base = float(ttft_ms.mean() - slope * tokens.mean())
    if base < 0:
        return 0.0, float((tokens * ttft_ms).sum() / (tokens * tokens).sum())
    return base, slope


@once_per_run
def unloaded_sessions(facts: Facts) -> pl.DataFrame:
    """One row per complete session: `duration_s`, and `unloaded_s`, null where it cannot be told."""
    speed = idle_speed(facts)
    output = pl.coalesce("usage_output_tokens", "output_tokens").clip(lower_bound=1)
    answer_ms = (
        pl.lit(None, dtype=pl.Float64)
        if speed is None
        else speed.base_ms + speed.ms_per_token * UNCACHED + speed.itl_ms * (output - 1)
    )
    gaps_ns = sum((pl.col(f"{gap}_ns") for gap in _GAPS), pl.lit(0))
    answers_s = answer_ms * pl.col("visible_ratio") / _MS_PER_S
    sessions = (
        call_parts(facts)
        .group_by(*SESSION, maintain_order=True)
        .agg(
            ((pl.col("end_ns").max() - pl.col("due_ns").min()) / NS_PER_S).alias("duration_s"),
            (pl.col("agents_ns").sum() / NS_PER_S).alias("agents_s"),
            pl.when(answers_s.is_not_null().all())
            .then(answers_s.sum() + gaps_ns.sum() / NS_PER_S)
            .alias("own_s"),
        )
    )
    waited_s = pl.when(pl.col("agents_s") > 0).then(pl.col("agents_s") * _shrinks()).otherwise(0.0)
    return sessions.with_columns((pl.col("own_s") + waited_s).alias("unloaded_s"))


def _shrinks() -> pl.Expr:
    """Estimate over time taken of the sub-agents of a tree that have an estimate; null if none of them has one, 1 without
    sub-agents.
    """
    tree = ("instance", "root")
    is_agent = pl.col("session") != pl.col("root")
    is_told = is_agent & pl.col("own_s").is_not_null()
    of_told = pl.when(is_told)
    taken_s = of_told.then(pl.col("duration_s") - pl.col("agents_s")).sum().over(tree)
    unloaded_s = of_told.then(pl.col("own_s")).sum().over(tree)
    is_known = is_told.any().over(tree) | ~is_agent.any().over(tree)
    return pl.when(taken_s > 0).then(unloaded_s / taken_s).when(is_known).then(1.0)


def _unloaded_s(facts: Facts) -> Sample:
    return sample(unloaded_sessions(facts), pl.col("unloaded_s"))


def _slowdown(facts: Facts) -> Sample:
    took = pl.when(pl.col("unloaded_s") > 0).then(pl.col("duration_s") / pl.col("unloaded_s"))
    return sample(unloaded_sessions(facts), took)


def _base_ms(facts: Facts) -> float | None:
    speed = idle_speed(facts)
    return None if speed is None else speed.base_ms


def _prefill_tokens_per_s(facts: Facts) -> float | None:
    speed = idle_speed(facts)
    return None if speed is None or not speed.ms_per_token else _MS_PER_S / speed.ms_per_token


def _itl_ms(facts: Facts) -> float | None:
    speed = idle_speed(facts)
    return None if speed is None else speed.itl_ms


_LONE = (
    "complete calls, measured or not, that report prompt, cached and at least 2 output tokens: all of the run given by "
    "--unloaded; without one those of the run that no other try overlapped from sent to end"
)
_ESTIMATED = (
    "sessions of which every planned call is complete and reports prompt and cached tokens; those that waited for "
    "sub-agents, if one of their tree has an estimate"
)
_FITTED = f"{_LONE}; with at least {MIN_CALLS} of them"
_ESTIMATE = (
    "gaps + sum over calls of unloaded_base_ms + uncached tokens / unloaded_prefill_tokens_per_s + (output tokens − 1) × "
    "unloaded_itl_ms, + time waited for other agents × the same estimate over time taken of the tree's sub-agents that "
    "have one"
)

# fmt: off
UNLOADED_DISTRIBUTIONS: tuple[Metric[Sample], ...] = defined(
    ("session_unloaded_s", "Session, unloaded (estimate)", "s",
     _ESTIMATE,
     _ESTIMATED, _unloaded_s),
    ("session_unloaded_slowdown_ratio", "Session slowdown, run/unloaded (estimate)", "",
     "session_duration_s / session_unloaded_s", _ESTIMATED, _slowdown),
)

UNLOADED_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("unloaded_calls", "Calls without load", "calls", "count", _LONE,
     lambda facts: unloaded_calls(facts).height),
    ("unloaded_base_ms", "TTFT of the idle endpoint, prompt cached", "ms",
     "least squares of ttft_service_ms on uncached tokens: value at 0, not below 0", _FITTED, _base_ms),
    ("unloaded_prefill_tokens_per_s", "Prefill of the idle endpoint", "tokens/s",
     "1 / slope of the same line, where it is above 0", _FITTED, _prefill_tokens_per_s),
    ("unloaded_itl_ms", "ITL of the idle endpoint", "ms", "median of itl_ms", _FITTED, _itl_ms),
)
# fmt: on
