"""Pure: the hit rate that a cache of each size, or of each lifetime, would have had in a run, and where the run's own is.

A least-recently-used cache of so many tokens, and one that forgets what was not used for so long; both for all the calls
of the run together. The curve of sizes is exact for the order in which prompts were sent, see `reports/cache/reuse.py`.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from aitrace.units import NS_PER_S
from reports.cache.losses import OF_THE_SIZE, tokens_by_cause
from reports.cache.metrics import cache_population
from reports.cache.pieces import MAX_CALLS, run_reuse
from reports.metric import Metric, Number, Row, defined
from reports.stats import Floats
from reports.tables import Facts, once_per_run

_POINTS = 60
_ENOUGH = 0.99
"""Share of the highest hit rate at which a curve counts as flat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A hit rate that grows with the size or the lifetime of a cache: straight between the points."""

    at: Floats
    """Sizes in tokens, or lifetimes in seconds; ascending, the first one 0."""
    hit_ratio: Floats
    """Cached share of prompt tokens."""

    @property
    def highest(self) -> float:
        return float(self.hit_ratio[-1])

    def ratio_at(self, at: float) -> float:
        return float(np.interp(at, self.at, self.hit_ratio))

    def reaches(self, hit_ratio: float) -> float | None:
        """The smallest size or lifetime with this hit rate; None if none has it."""
        if hit_ratio > self.highest:
            return None
        place = int(np.searchsorted(self.hit_ratio, hit_ratio))
        if place == 0:
            return float(self.at[0])
        low, high = float(self.hit_ratio[place - 1]), float(self.hit_ratio[place])
        share = (hit_ratio - low) / (high - low)
        return float(self.at[place - 1] + share * (self.at[place] - self.at[place - 1]))


@once_per_run
def by_capacity(facts: Facts) -> Curve | None:
    """Hit rate of a least-recently-used cache by its size in tokens; None without a trace."""
    reuse = run_reuse(facts)
    if reuse is None or reuse.pieces.is_empty():
        return None
    before, length = (reuse.pieces.select(e).to_series().to_numpy() for e in _OF_PIECE)
    # Each piece adds from where its first block fits to where its last one does: a slope of 1 between the two.
    places = np.concatenate([before, before + length])
    slopes = np.concatenate([np.ones(before.size), -np.ones(before.size)])
    order = np.argsort(places, kind="stable")
    places, slope = places[order], slopes[order].cumsum()
    hits = np.concatenate([[0.0], (slope[:-1] * np.diff(places)).cumsum()])
    return _curve(np.concatenate([[0.0], places]), np.concatenate([[0.0], hits]), _input(reuse.calls))


_OF_PIECE = (pl.col("before_tokens"), pl.col("end_tokens") - pl.col("start_tokens"))


@once_per_run
def by_lifetime(facts: Facts) -> Curve | None:
    """Hit rate of a cache that forgets what was not used for so long, by that time in s; None without a trace."""
    reuse = run_reuse(facts)
    if reuse is None or reuse.pieces.is_empty():
        return None
    by_age = (
        reuse.pieces.group_by("age_ns")
        .agg((pl.col("end_tokens") - pl.col("start_tokens")).sum().alias("tokens"))
        .sort("age_ns")
    )
    ages, hits = by_age["age_ns"].to_numpy() / NS_PER_S, by_age["tokens"].to_numpy().cumsum()
    return _curve(np.concatenate([[0.0], ages]), np.concatenate([[0.0], hits]), _input(reuse.calls))


def _curve(at: Floats, hits: Floats, input_tokens: float) -> Curve:
    """One point per size, the highest of each."""
    is_last = np.append(at[1:] != at[:-1], True)
    return Curve(at=at[is_last], hit_ratio=hits[is_last] / input_tokens)


def _input(calls: pl.DataFrame) -> float:
    return float(calls["input_tokens"].sum())


def _mended_ratio(facts: Facts) -> float | None:
    """Hit rate as it would be with nothing lost to what no size or lifetime mends: whole blocks, routing, overlap."""
    tokens, curve = tokens_by_cause(facts), by_capacity(facts)
    total = int(cache_population(facts)["input_tokens"].sum())
    if tokens is None or curve is None or not total:
        return None
    return curve.highest - sum(tokens[cause] for cause in OF_THE_SIZE) / total


def _equivalent(facts: Facts, curve: Curve | None) -> float | None:
    """Where a curve has the run's losses; None where it lost too little to tell."""
    mended = _mended_ratio(facts)
    if mended is None or curve is None or mended >= _ENOUGH * curve.highest:
        return None
    return curve.reaches(mended)


def equivalent_tokens(facts: Facts) -> float | None:
    """The size of a least-recently-used cache that loses what the run lost."""
    return _equivalent(facts, by_capacity(facts))


def equivalent_s(facts: Facts) -> float | None:
    """The lifetime of a cache without a limit in size that loses what the run lost."""
    return _equivalent(facts, by_lifetime(facts))


def _flat(curve: Curve | None) -> float | None:
    return None if curve is None else curve.reaches(_ENOUGH * curve.highest)


def _table(curve: Curve | None, column: str) -> list[Row]:
    """Points of a curve where its logarithm moves by equal steps."""
    if curve is None or curve.at[-1] <= 0:
        return []
    above = curve.at[curve.at > 0]
    first = max(float(above[0]), float(above[-1]) / 1e6)
    ats = np.geomspace(first, float(above[-1]), _POINTS)
    return [{column: float(f"{at:.4g}"), "hit_ratio": curve.ratio_at(float(at))} for at in ats]


def _highest(facts: Facts) -> float | None:
    curve = by_capacity(facts)
    return None if curve is None else curve.highest


def _sample_ratio(facts: Facts) -> float | None:
    reuse = run_reuse(facts)
    return None if reuse is None else reuse.sample_ratio


_POPULATION = (
    "as cache_calls, of a run with its trace; of a sample of whole trees if more than "
    f"{MAX_CALLS:,} calls were sent"
)

# fmt: off
CURVE_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("cache_model_ratio", "Sent calls that the cache model took", "", "calls of the drawn trees / sent calls", "sent calls",
     _sample_ratio),
    ("cache_model_highest_ratio", "Hit rate, cache model without limits", "", "as cache_bound_ratio", _POPULATION, _highest),
    ("cache_equivalent_tokens", "Loses what an LRU cache of this size would", "tokens",
     ("size at which the curve of cache_by_capacity is below its end by what cache_losses has as gap expiry, eviction "
      "and unexplained; none if that is under 1 % of the curve's end"), _POPULATION, equivalent_tokens),
    ("cache_equivalent_s", "Loses what a cache of this lifetime would", "s",
     "the same of cache_by_lifetime", _POPULATION, equivalent_s),
    ("cache_enough_tokens", "LRU cache that has 99 % of what is possible", "tokens",
     "smallest size at which cache_by_capacity reaches 99 % of its end", _POPULATION, lambda facts: _flat(by_capacity(facts))),
    ("cache_enough_s", "Lifetime that has 99 % of what is possible", "s",
     "the same of cache_by_lifetime", _POPULATION, lambda facts: _flat(by_lifetime(facts))),
)

CURVE_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("cache_by_capacity", "Hit rate by the size of the cache", "tokens",
     "prompt tokens that a least-recently-used cache of this size had / input tokens", _POPULATION,
     lambda facts: _table(by_capacity(facts), "capacity_tokens")),
    ("cache_by_lifetime", "Hit rate by the lifetime of the cache", "s",
     "prompt tokens whose last use had ended at most so long before the call was sent / input tokens", _POPULATION,
     lambda facts: _table(by_lifetime(facts), "lifetime_s")),
)
# fmt: on
