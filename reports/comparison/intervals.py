"""Pure: how far a difference may be off: trees drawn with replacement, the same ones in every run, and Student's t.

The variance of a difference has two parts. Other trees would have shown another one: whole trees are drawn, and the
difference is computed anew. What disturbed a part of a run has touched all trees of that time: periods of the run are
drawn in place of trees, and the larger of the two variances counts. Another run of the same way would have shown
another one: the spread between runs of one way tells. The sum carries as many degrees of freedom as its parts
(Satterthwaite's formula).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from reports.stats import Floats, Ints, Weights, quantile

DRAWS = 500
"""Times that the trees are drawn."""
_PERIOD_SEED = 1
_MOST_FREEDOM = 1000.0
_GRID = 5_001

PERIODS = 20
"""Periods into which a run is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A difference with its interval."""

    point: float
    """What was measured."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """How sure a number is."""

    value: float
    """The variance."""
    freedom: float
    """Degrees of freedom behind it."""


def tree_weights(trees: int, *, seed: int, draws: int = DRAWS) -> Weights:
    """How often each tree is drawn, by draw."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(trees, np.full(trees, 1 / max(trees, 1)), size=draws).astype(np.int32)


@lru_cache(maxsize=PERIODS)
def period_weights(periods: int, draws: int = DRAWS) -> Weights:
    """How often each period is drawn, by draw; they are drawn apart from the trees."""
    return tree_weights(periods, seed=_PERIOD_SEED, draws=draws)


def drawn_shares(part: Floats, whole: Floats, trees: Ints, weights: Weights) -> Floats:
    """Sum of the parts over the sum of the wholes, of the trees drawn; NaN where there is no whole."""
    size = weights.shape[1]
    parts = weights @ np.bincount(trees, weights=part, minlength=size)
    wholes = weights @ np.bincount(trees, weights=whole, minlength=size)
    shares: Floats = np.divide(parts, wholes, out=np.full(len(weights), np.nan), where=wholes > 0)
    return shares


def periods_of(due_s: Floats) -> Ints:
    """Period of each moment: equally many in each, in order of time."""
    periods = np.empty(due_s.size, dtype=np.int64)
    periods[np.argsort(due_s, kind="stable")] = np.arange(due_s.size) * min(PERIODS, due_s.size) // due_s.size
    return periods


def larger(one: Variance, other: Variance) -> Variance:
    """The one that tells less."""
    return one if one.value >= other.value else other


def tree_variance(drawn: Floats, trees: int) -> Variance:
    """Variance of a number that was computed of many draws of so many trees, or periods."""
    known = drawn[~np.isnan(drawn)]
    # Drawing from the trees that there are shows (trees − 1) / trees of the variance between trees.
    value = float(known.var()) * trees / (trees - 1) if known.size > 1 and trees > 1 else math.inf
    return Variance(value=value, freedom=max(trees - 1.0, 1.0))


def run_variance(*ways: Sequence[float]) -> Variance | None:
    """Variance between runs of one way, the same for all; None if no way has two."""
    freedom = sum(len(values) - 1 for values in ways if values)
    if freedom < 1:
        return None
    squares = sum(float(np.square(np.asarray(values) - np.mean(values)).sum()) for values in ways if values)
    return Variance(value=squares / freedom, freedom=float(freedom))


def pooled(*parts: Variance | None) -> Variance | None:
    """One variance from several estimates of it, each by its degrees of freedom; None of none."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    freedom = sum(part.freedom for part in known)
    return Variance(value=sum(part.value * part.freedom for part in known) / freedom, freedom=freedom)


def added(one: Variance, other: Variance | None, factor: float = 1.0) -> Variance:
    """Variance of a sum of two independent parts, of which the second counts `factor` times."""
    if other is None:
        return one
    second = other.value * factor
    total = one.value + second
    below = one.value**2 / one.freedom + second**2 / other.freedom
    return Variance(value=total, freedom=total**2 / below if below > 0 else one.freedom + other.freedom)


def effect_of(point: float, variance: Variance, tail: float) -> Effect:
    """The interval that leaves out `tail` on either side."""
    reach = (
        0.0
        if variance.value == 0
        else student_quantile(1 - tail, variance.freedom) * math.sqrt(variance.value)
    )
    return Effect(point=point, low=point - reach, high=point + reach)


def median_of(values: Floats) -> float:
    """Median as `reports.stats.quantile` defines it; NaN of nothing."""
    found = quantile(values, 0.5)
    return math.nan if found is None else found


def student_quantile(share: float, freedom: float) -> float:
    """The value that a t-distributed number exceeds with probability 1 − share; share above 0.5.

    With t = √f · tan φ the density becomes cos(φ)^(f − 1), which is smooth and bounded.
    """
    angles, cumulated = _angles(round(min(freedom, _MOST_FREEDOM), 3))
    return math.sqrt(min(freedom, _MOST_FREEDOM)) * math.tan(float(np.interp(share, cumulated, angles)))


@lru_cache(maxsize=16)
def _angles(freedom: float) -> tuple[Floats, Floats]:
    angles = np.linspace(0, math.pi / 2, _GRID)
    density = np.exp((freedom - 1) * np.log(np.cos(angles).clip(min=1e-300)))
    middles = (density[1:] + density[:-1]) / 2
    cumulated = np.concatenate([[0.0], middles.cumsum()])
    return angles, 0.5 + cumulated / cumulated[-1] / 2
