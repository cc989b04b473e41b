"""Pure: quantiles, and confidence intervals by bootstrap over sessions.

A quantile here is the inverted CDF: the smallest value of the sample that at least the share q of the sample does
not exceed. It is always a value that was measured; nothing is interpolated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aitrace.quantiles import MIN_CLUSTERS, min_count

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.int32] | npt.NDArray[np.int64]

_Z95 = 1.959964
_CELLS_PER_CHUNK = 4_000_000
_BIN_VALUES = 64
_MOST_BINS = 512
_MOST_CELLS = 10_000_000


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
    rng = np.random.default_rng(seed)
    chunk = max(1, _CELLS_PER_CHUNK // names.size)
    estimates = np.concatenate(
        [
            drawn_quantiles(values, members, _times_drawn(rng, names.size, min(chunk, draws - start)), qs)
            for start in range(0, draws, chunk)
        ]
    )
    return tuple(
        _interval(estimates[:, column]) if values.size >= min_count(q) else None
        for column, q in enumerate(qs)
    )


def _times_drawn(rng: np.random.Generator, clusters: int, draws: int) -> Ints:
    """How often each cluster is in each draw of so many clusters with replacement."""
    drawn = rng.integers(0, clusters, size=(draws, clusters)) + np.arange(draws)[:, None] * clusters
    return np.bincount(drawn.ravel(), minlength=draws * clusters).reshape(draws, clusters)


def drawn_quantiles(values: Floats, clusters: Ints, weights: Weights, qs: Sequence[float]) -> Floats:
    """Quantiles (inverted CDF) of the values of the clusters drawn: a row per draw, a column per q.

    A draw that has none of the clusters gives NaN.

    Args:
        clusters: Cluster of each value, a column of `weights`.
        weights: How often each cluster is drawn, a row per draw.
    """
    found = np.full((len(weights), len(qs)), np.nan)
    if not values.size:
        return found
    order = np.argsort(values, kind="stable")
    ordered, members = values[order], clusters[order]
    # A draw's quantile is looked for among bins of neighbours first, so that not every value is counted in every draw.
    edges = _bin_edges(values.size, weights.shape[1])
    cumulated = _drawn_of_bins(members, edges, weights).cumsum(axis=1)
    totals = cumulated[:, -1]
    for column, q in enumerate(qs):
        # As `quantile`: the smallest value that at least the share q does not exceed.
        ranks = np.ceil(q * totals - 1e-9).clip(min=1)
        bins = (cumulated < ranks[:, None]).sum(axis=1)
        for place in np.unique(bins[totals > 0]):
            rows = np.flatnonzero((bins == place) & (totals > 0))
            before = cumulated[rows, place - 1] if place else 0
            inside = weights[rows][:, members[edges[place] : edges[place + 1]]].cumsum(axis=1)
            steps = (inside < (ranks[rows] - before)[:, None]).sum(axis=1)
            found[rows, column] = ordered[edges[place] + steps]
    return found


def _bin_edges(count: int, clusters: int) -> Ints:
    """First places of bins of equally many sorted values, and the end of the last one."""
    bins = max(1, min(_MOST_BINS, count // _BIN_VALUES, _MOST_CELLS // max(clusters, 1)))
    return np.linspace(0, count, bins + 1).round().astype(np.int64)


def _drawn_of_bins(members: Ints, edges: Ints, weights: Weights) -> Floats:
    """Values drawn of each bin, by draw."""
    bins, clusters = edges.size - 1, weights.shape[1]
    cells = np.repeat(np.arange(bins), np.diff(edges)) * clusters + members
    counts = np.bincount(cells, minlength=bins * clusters).reshape(bins, clusters)
    drawn: Floats = (weights.astype(np.float32) @ counts.T.astype(np.float32)).astype(np.float64)
    return drawn


def wilson(hits: float, count: float) -> Interval | None:
    """95 % interval of a share by Wilson's score; None of nothing. Counts of what is not independent may be fractions."""
    if count == 0:
        return None
    share, square = hits / count, _Z95 * _Z95 / count
    middle = share + square / 2
    reach = _Z95 * math.sqrt((share * (1 - share) + square / 4) / count)
    # Nor does rounding leave the share itself outside.
    return Interval(
        low=max(0.0, min(share, (middle - reach) / (1 + square))),
        high=min(1.0, max(share, (middle + reach) / (1 + square))),
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
