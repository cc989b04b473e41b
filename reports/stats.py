"""Pure: quantiles, and confidence intervals by bootstrap over sessions.

A quantile here is the inverted CDF: the smallest value of the sample that at least the share q of the sample does
not exceed. It is always a value that was measured; nothing is interpolated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aitrace.quantiles import min_count

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIN_CLUSTERS = 5
"""Fewer sessions than this give no interval: resampling them says little about sessions not seen."""
_Z95 = 1.959964
_CELLS_PER_CHUNK = 4_000_000
_FIRST_REACH = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval."""

    low: float
    """Lower end, in the unit of the values."""
    high: float
    """Upper end, in the unit of the values."""


def quantile(values: Floats, q: float) -> float | None:
    """Inverted CDF at q, whatever the size of the sample; None for an empty one."""
    if values.size == 0:
        return None
    return float(np.quantile(values, q, method="inverted_cdf"))


def shown_quantiles(values: Floats, qs: Sequence[float]) -> list[float | None]:
    """`shown_quantile` at each q, from one pass over the values."""
    if values.size == 0:
        return [None] * len(qs)
    found = np.quantile(values, qs, method="inverted_cdf").tolist()
    return [value if values.size >= min_count(q) else None for q, value in zip(qs, found, strict=True)]


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
    sizes = np.bincount(members)
    estimates = np.empty((draws, len(qs)))
    chunk = max(1, _CELLS_PER_CHUNK // names.size)
    for start in range(0, draws, chunk):
        drawn = _times_drawn(rng, names.size, min(chunk, draws - start))
        totals = drawn @ sizes
        for column, q in enumerate(qs):
            ranks = np.ceil(q * totals - 1e-9).astype(np.int64).clip(min=1)
            middle = round(q * values.size)
            estimates[start : start + chunk, column] = ordered[_places(members, drawn, ranks, middle)]
    return tuple(
        _interval(estimates[:, column]) if values.size >= min_count(q) else None
        for column, q in enumerate(qs)
    )


def _times_drawn(rng: np.random.Generator, clusters: int, draws: int) -> Ints:
    """How often each cluster is in each draw of so many clusters with replacement."""
    drawn = rng.integers(0, clusters, size=(draws, clusters)) + np.arange(draws)[:, None] * clusters
    return np.bincount(drawn.ravel(), minlength=draws * clusters).reshape(draws, clusters)


def _places(members: Ints, drawn: Ints, ranks: Ints, middle: int) -> Ints:
    """Of each draw, the place of the first value up to which so many were drawn.

    Only values around the expected place are counted one by one; where that was not enough, more are.

    Args:
        members: Cluster of each value, in order of the values.
        drawn: How often each cluster was, a row per draw.
        middle: About where the places are.
    """
    reach = _FIRST_REACH
    places = np.zeros(len(ranks), np.int64)
    asked = np.arange(len(ranks))
    while asked.size:
        low, high = max(0, middle - reach), min(members.size, middle + reach)
        before = drawn[asked] @ np.bincount(members[:low], minlength=drawn.shape[1])
        rows = max(1, _CELLS_PER_CHUNK // (high - low))
        for part in np.split(np.arange(asked.size), range(rows, asked.size, rows)):
            inside = drawn[asked[part]][:, members[low:high]].cumsum(axis=1)
            found = inside + before[part, None] >= ranks[asked[part], None]
            places[asked[part]] = low + found.argmax(axis=1)
            # What lies outside is looked for again.
            is_out = (before[part] >= ranks[asked[part]]) | ~found[:, -1]
            places[asked[part][is_out]] = -1
        asked = asked[places[asked] < 0]
        reach *= 8
    return places


def wilson(hits: float, count: float) -> Interval | None:
    """95 % interval of a share by Wilson's score; None of nothing. Counts of what is not independent may be fractions."""
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


def _interval(estimates: Floats) -> Interval:
    low, high = np.quantile(estimates, [0.025, 0.975], method="inverted_cdf")
    return Interval(low=float(low), high=float(high))
