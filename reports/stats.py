"""Pure: quantiles, the sample sizes they need, and confidence intervals by bootstrap over sessions.

A quantile here is the inverted CDF: the smallest value of the sample that at least the share q of the sample does
not exceed. It is always a value that was measured; nothing is interpolated.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIN_CLUSTERS = 5
"""Fewer sessions than this give no interval: resampling them says little about sessions not seen."""
_VALUES_ABOVE = 2
_Z95 = 1.959964
_CELLS_PER_CHUNK = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval."""

    low: float
    """Lower end, in the unit of the values."""
    high: float
    """Upper end, in the unit of the values."""


def min_count(q: float) -> int:
    """Values a sample must have before its quantile q is shown.

    Two values must lie beyond an upper quantile, so p90 needs 20, p95 40 and p99 200; the median and what lies below
    it need one.
    """
    if q <= 0.5:
        return 1
    # Rounded before the ceiling: 2 / (1 - 0.99) is a little more than 200 in binary.
    return math.ceil(round(_VALUES_ABOVE / (1 - q), 6))


def quantile(values: Floats, q: float) -> float | None:
    """Inverted CDF at q, whatever the size of the sample; None for an empty one."""
    if values.size == 0:
        return None
    return float(np.quantile(values, q, method="inverted_cdf"))


def shown_quantile(values: Floats, q: float) -> float | None:
    """Inverted CDF at q; None if the sample is smaller than `min_count(q)`."""
    return quantile(values, q) if values.size >= min_count(q) else None


def ecdf(values: Floats, *, points: int) -> tuple[Floats, Floats]:
    """Values and the share of the sample that does not exceed each, thinned to at most `points` steps.

    The first and the last value are always kept.
    """
    ordered = np.sort(values)
    shares = np.arange(1, ordered.size + 1) / max(ordered.size, 1)
    if ordered.size <= points:
        return ordered, shares
    kept = np.unique(np.linspace(0, ordered.size - 1, points).round().astype(np.int64))
    return ordered[kept], shares[kept]


def cluster_bootstrap(
    values: Floats, clusters: Ints, qs: tuple[float, ...], *, seed: int, draws: int = 500
) -> tuple[Interval | None, ...]:
    """95 % percentile intervals of quantiles, resampling whole clusters with replacement.

    Calls of one session are correlated, so the session is what is drawn; a drawn session brings all its calls.

    Args:
        clusters: Cluster of each value; any integers.
        qs: Quantiles wanted, 0 to 1.

    Returns:
        One interval per quantile; None for all of them with fewer than `MIN_CLUSTERS` clusters, and for a quantile
        that the sample is too small to show.
    """
    names, members = np.unique(clusters, return_inverse=True)
    if names.size < MIN_CLUSTERS:
        return (None,) * len(qs)
    order = np.argsort(values, kind="stable")
    ordered, members = values[order], members[order]
    rng = np.random.default_rng(seed)
    even = np.full(names.size, 1 / names.size)
    estimates: list[Floats] = []
    chunk = max(1, _CELLS_PER_CHUNK // values.size)
    for start in range(0, draws, chunk):
        times_drawn = rng.multinomial(names.size, even, size=min(chunk, draws - start))
        estimates.append(_weighted_quantiles(ordered, times_drawn[:, members], qs))
    per_draw = np.concatenate(estimates)
    return tuple(
        _interval(per_draw[:, column]) if values.size >= min_count(q) else None for column, q in enumerate(qs)
    )


def wilson(hits: int, count: int) -> Interval | None:
    """95 % interval of a share by Wilson's score; None of nothing."""
    if count == 0:
        return None
    share, square = hits / count, _Z95 * _Z95 / count
    middle = share + square / 2
    reach = _Z95 * math.sqrt((share * (1 - share) + square / 4) / count)
    return Interval(
        low=max(0.0, (middle - reach) / (1 + square)), high=min(1.0, (middle + reach) / (1 + square))
    )


def rank_correlation(left: Floats, right: Floats) -> float | None:
    """Spearman's ρ, equal values at the mean of their ranks; None with fewer than 3 pairs, or if a side is constant."""
    if left.size < 3:
        return None
    low, high = _ranks(left), _ranks(right)
    if low.std() == 0 or high.std() == 0:
        return None
    return float(((low - low.mean()) * (high - high.mean())).mean() / (low.std() * high.std()))


def _ranks(values: Floats) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    means: Floats = (ends - (counts - 1) / 2).astype(np.float64)
    return means[places]


def _weighted_quantiles(ordered: Floats, weights: Ints, qs: tuple[float, ...]) -> Floats:
    """Inverted CDF of each row of weights over the sorted values."""
    cumulated = weights.cumsum(axis=1)
    totals = cumulated[:, -1]
    columns = [
        ordered[(cumulated >= np.ceil(q * totals - 1e-9).clip(min=1)[:, None]).argmax(axis=1)] for q in qs
    ]
    return np.stack(columns, axis=1)


def _interval(estimates: Floats) -> Interval:
    low, high = np.quantile(estimates, [0.025, 0.975], method="inverted_cdf")
    return Interval(low=float(low), high=float(high))
