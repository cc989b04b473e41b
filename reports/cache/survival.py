"""Pure: whether the prefix of a session survives the time in which nobody uses it: the survival curve with intervals.

A call that goes on with a session waits for the end of the prefix that the session had sent before. How long that had not
been used, by any call of the run, is its idle time: after a tool that is the gap; while sub-agents work it is their whole
time, and where one of them carries the same prefix it is less. The prefix survived if the endpoint reports at least
90 % of it as cached, or all of it but one block.
"""

import numpy as np
import polars as pl

from aitrace.quantiles import MIN_CLUSTERS
from aitrace.units import NS_PER_S
from reports.buckets import buckets_of, is_inside
from reports.cache.losses import losses
from reports.cache.metrics import CONTINUING, KIND_OF_CALL
from reports.cache.pieces import run_reuse
from reports.metric import Metric, Number, Row, defined, ratio
from reports.stats import Interval, wilson
from reports.tables import Facts, once_per_run

SURVIVED_RATIO = 0.9
"""Share of a session's own prefix that must have been cached."""
MIN_CALLS = 10
"""Calls of one bucket of all calls, unless there are fewer in all."""
_PER_DECADE = 4
_ALL = "all"


@once_per_run
def returning_calls(facts: Facts) -> pl.DataFrame | None:
    """Calls whose session had sent a prefix of them: kind, idle time, own prefix and what was kept of it.

    None without a trace, or where no call reports cached tokens.
    """
    reuse, found = run_reuse(facts), losses(facts)
    if reuse is None or found is None:
        return None
    own = pl.col("bound_session_tokens")
    calls = reuse.calls.filter((pl.col("turn_index") > 0) & (own > 0)).with_columns(
        KIND_OF_CALL.alias("kind")
    )
    # The piece in which the own prefix ends; sums of shares of a prompt are not exact to the last digit.
    ends = (
        reuse.pieces.join(calls.select("row", "bound_session_tokens"), on="row")
        .filter(pl.col("end_tokens") > own - 0.01)
        .group_by("row")
        .agg(pl.col("age_ns").sort_by("start_tokens").first())
    )
    kept = pl.min_horizontal(pl.col("usage_cache_read_tokens"), own)
    spared = pl.max_horizontal(own - SURVIVED_RATIO * own, pl.lit(found.block_tokens))
    return calls.join(ends, on="row", maintain_order="left").select(
        "instance",
        "session",
        "kind",
        idle_s=pl.col("age_ns") / NS_PER_S,
        own_tokens=own,
        kept_tokens=kept.cast(pl.Float64),
        survived=own - kept <= spared,
    )


@once_per_run
def survival_rows(facts: Facts) -> list[Row]:
    """Rows of `cache_survival`: all calls first, then by what filled the gap, each from short to long."""
    calls = returning_calls(facts)
    if calls is None or calls.is_empty():
        return []
    borders = _borders(calls)
    rows = []
    for kind in (_ALL, *CONTINUING):
        of_kind = calls if kind == _ALL else calls.filter(pl.col("kind") == kind)
        for low, high in buckets_of(borders):
            inside = of_kind.filter(is_inside(pl.col("idle_s"), low, high))
            if inside.height:
                rows.append({"kind": kind, "idle_from_s": low, "idle_to_s": high, **_survival(inside)})
    return rows


def _borders(calls: pl.DataFrame) -> list[float]:
    """Borders of buckets, four to a decade, joined until each has enough calls of enough sessions; the last is open."""
    idle = calls["idle_s"].to_numpy()
    above = idle[idle > 0]
    if not above.size:
        return [0.0]
    steps = np.arange(
        np.floor(np.log10(above.min()) * _PER_DECADE), np.ceil(np.log10(above.max()) * _PER_DECADE) + 1
    )
    edges = [float(f"{10 ** (step / _PER_DECADE):.3g}") for step in steps.tolist()]
    borders = [0.0]
    for edge in edges[1:]:
        inside = calls.filter(is_inside(pl.col("idle_s"), borders[-1], edge))
        if _is_enough(inside) and _is_enough(calls.filter(pl.col("idle_s") >= edge)):
            borders.append(edge)
    return borders


def _is_enough(calls: pl.DataFrame) -> bool:
    return calls.height >= MIN_CALLS and calls.select("instance", "session").n_unique() >= MIN_CLUSTERS


def _survival(calls: pl.DataFrame) -> Row:
    survived = int(calls["survived"].sum())
    interval = survival_interval(calls)
    sessions = calls.select("instance", "session").n_unique()
    idle = calls["idle_s"].to_numpy()
    return {
        "idle_p50_s": float(np.quantile(idle, 0.5, method="inverted_cdf")),
        "calls": calls.height,
        "sessions": sessions,
        "survived_calls": survived,
        "survived_ratio": survived / calls.height,
        "survived_low_ratio": None if interval is None else interval.low,
        "survived_high_ratio": None if interval is None else interval.high,
        "own_tokens": round(calls["own_tokens"].sum()),
        "kept_tokens_ratio": ratio(float(calls["kept_tokens"].sum()), float(calls["own_tokens"].sum())),
    }


def survival_interval(calls: pl.DataFrame) -> Interval | None:
    """95 % interval of the share that survived, by Wilson's score of so many calls as the sessions are worth.

    Calls of a session are alike, so their number is divided by the design effect: the variance of the share between
    sessions over that of as many independent calls. Where it cannot be told a session counts as one call.
    """
    by_session = calls.group_by("instance", "session", maintain_order=True).agg(
        pl.col("survived").sum(), pl.len().alias("calls")
    )
    count, clusters = calls.height, by_session.height
    share = float(by_session["survived"].sum()) / count
    worth = float(clusters)
    if 0 < share < 1 and clusters >= MIN_CLUSTERS:
        rests = by_session["survived"].to_numpy() - share * by_session["calls"].to_numpy()
        variance = float((rests**2).sum()) * clusters / (clusters - 1) / count**2
        worth = min(float(count), share * (1 - share) / variance) if variance > 0 else float(count)
    return wilson(share * worth, worth)


def half_lost_s(rows: list[Row]) -> float | None:
    """The idle time from which on less than half survive: where the curve crosses one half for the last time.

    None if it is not below one half at its end; 0 if it is nowhere above.
    """
    points = [(float(row["idle_p50_s"] or 0), float(row["survived_ratio"] or 0)) for row in rows]
    if not points or points[-1][1] >= 0.5:
        return None
    above = [place for place, (_, share) in enumerate(points) if share >= 0.5]
    if not above:
        return 0.0
    (early, high), (late, low) = points[above[-1]], points[above[-1] + 1]
    part = (high - 0.5) / (high - low)
    return early + part * (late - early) if early <= 0 else float(early * (late / early) ** part)


def all_rows(rows: list[Row]) -> list[Row]:
    """Those of all calls, whatever filled the gap."""
    return [row for row in rows if row["kind"] == _ALL]


def _half(facts: Facts) -> float | None:
    return half_lost_s(all_rows(survival_rows(facts)))


def _share(facts: Facts) -> float | None:
    calls = returning_calls(facts)
    return None if calls is None else ratio(int(calls["survived"].sum()), calls.height)


_POPULATION = (
    "as cache_calls, of a run with its trace whose calls report cached tokens; calls that begin with what their session "
    "had sent before"
)

SURVIVAL_NUMBERS: tuple[Metric[Number], ...] = defined(
    (
        "cache_survived_ratio",
        "Prefixes that survived",
        "",
        "calls with at least 90 % of the session's own prefix cached, or all but a block / calls",
        _POPULATION,
        _share,
    ),
    (
        "cache_half_lost_s",
        "Idle time after which half are lost",
        "s",
        "where the curve of cache_survival falls below one half for good; 0 if it is never above, none if it ends above",
        _POPULATION,
        _half,
    ),
)

SURVIVAL_TABLES: tuple[Metric[list[Row]], ...] = defined(
    (
        "cache_survival",
        "Prefixes that survived, by the time they were idle",
        "",
        (
            "calls whose own prefix survived / calls, per bucket of the time since it was last in use; interval by Wilson's "
            "score, calls divided by the design effect of sessions; kept tokens over own tokens"
        ),
        _POPULATION,
        survival_rows,
    ),
)
