"""Pure: two ways of playing a plan compared: a difference with its interval for each measure, and what it amounts to.

Values are compared on pairs: what every run of both ways has a value of, so that no run's number is of other calls than
another's. Each run gives one number; that of a way is the mean over its runs. Relative differences are shares of the first
way's, with an interval on the logarithmic scale.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from aitrace.quantiles import MIN_CLUSTERS, min_count
from aitrace.units import counted
from reports.comparison.intervals import (
    Effect,
    Variance,
    added,
    drawn_shares,
    effect_of,
    larger,
    median_of,
    period_weights,
    periods_of,
    pooled,
    run_variance,
    tree_variance,
)
from reports.comparison.matched import LevelRows, Matched
from reports.comparison.measures import QUANTILES, Measure, Statistic
from reports.stats import Floats, Ints, Weights, drawn_quantiles, quantile

DEFAULT_FLOOR_RATIO = 0.03
"""Noise floor of relative differences of one run each."""
DEFAULT_FLOOR_SHARE = 0.01
"""The same of differences of shares."""

Rows = npt.NDArray[np.bool_]

Finding = Literal["more", "less", "none", "floor", "too_few"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNoise:
    """How far runs of one way are apart in one measure."""

    absolute: Variance | None
    """Variance between runs, in the square of the measure's unit; None if not known."""
    relative: Variance | None
    """Variance of the logarithm; None if not known, as of values of 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How sure one wants to be."""

    confidence: float = 0.95
    """Of all intervals together, 0 to 1."""
    floor_ratio: float | None = None
    """Differences that do not matter, as a share of the first way's value, of shares in shares; None for the default where
    there is one run of each way, and 0 elsewhere."""
    noise: dict[str, RunNoise] | None = None
    """What an earlier comparison of runs of one way found, by measure; None if there was none."""
    seed: int = 0
    """Seed of the draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way in one measure."""

    values: tuple[float | None, ...]
    """By run; None if a run has no pair."""
    value: float | None
    """Their mean; None if it cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The second way less the first in one measure."""

    measure: Measure
    """What is compared."""
    pairs: int
    """Calls, sessions or trees that every run has a value of."""
    only_first: int
    """Those that only the first way has a value of, in any of its runs."""
    only_second: int
    """Those that only the second way has a value of, in any of its runs."""
    in_part: int
    """Those that both ways have a value of, but not every run."""
    trees: int
    """Trees that the pairs are of."""
    first: Side
    """First way."""
    second: Side
    """Second way."""
    absolute: Effect | None
    """In the measure's unit; None if it cannot be told."""
    relative: Effect | None
    """As a share of the first way's value; None if it cannot be told, or a value is not above 0."""
    floor: float
    """Noise floor: relative, of shares in shares; of what has no relative difference, in the measure's unit."""
    knows_runs: bool
    """Whether the spread between runs of one way is in the interval."""
    can_err: bool
    """Whether it could raise a false alarm: not so where every run has the same value whatever trees are drawn."""
    finding: Finding
    """What it amounts to."""
    reason: str
    """Why there is nothing to tell; empty if there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raw:
    """A difference before the intervals' width is known."""

    measure: Measure
    rows: "_Pairs"
    first: Side
    second: Side
    absolute: tuple[float, Variance] | None
    relative: tuple[float, Variance] | None
    knows_runs: bool
    reason: str

    @property
    def has_repeats(self) -> bool:
        """Whether these runs themselves, and not only earlier ones, tell how far runs of one way are apart."""
        return max(len(self.first.values), len(self.second.values)) > 1

    @property
    def can_err(self) -> bool:
        """See `Difference`."""
        return self.absolute is not None and not (self.absolute[0] == 0 and self.absolute[1].value == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Rows of a basis that every run has."""

    is_pair: Rows
    trees: Ints
    periods: Ints
    only_first: int
    only_second: int
    in_part: int

    @property
    def count(self) -> int:
        return int(self.is_pair.sum())

    @property
    def tree_count(self) -> int:
        return int(np.unique(self.trees[self.is_pair]).size)

    @property
    def period_count(self) -> int:
        return int(self.periods.max(initial=-1)) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """A measure of two ways; what is drawn is of the trees drawn, then of the periods drawn."""

    points: Sequence[Sequence[float]]
    """By way, by run."""
    logs: Sequence[Sequence[float]] | None
    """Their logarithms, of paired values those of the ratios; None where a value is not above 0, then all of them are."""
    difference: float
    drawn: Floats
    log_ratio: float | None
    log_drawn: Floats | None


def compare_ways(
    matched: Matched,
    first: Sequence[int],
    others: Sequence[Sequence[int]],
    measures: Sequence[Measure],
    weights: Weights,
    setting: Setting,
    *,
    also: Sequence[int] = (),
) -> tuple[tuple[Difference, ...], ...]:
    """Each other way against the first, in each measure.

    Args:
        first: Places of its runs among those matched.
        others: The same of the other ways.
        weights: From `tree_weights`, for the trees of `matched`.
        also: Runs that must have a value of a pair too, beside those of the two ways.
    """
    raw = [_raw_of_way(matched, (first, other), measures, weights, setting, also) for other in others]
    family = family_size(each for of_way in raw for each in of_way)
    tail = (1 - setting.confidence) / 2 / max(family, 1)
    return tuple(tuple(_judged(each, tail, setting) for each in of_way) for of_way in raw)


def family_size(differences: Iterable[_Raw | Difference]) -> int:
    """Differences that could raise a false alarm; the confidence holds for all of them together."""
    return sum(each.can_err for each in differences)


def _raw_of_way(
    matched: Matched,
    ways: tuple[Sequence[int], Sequence[int]],
    measures: Sequence[Measure],
    weights: Weights,
    setting: Setting,
    also: Sequence[int],
) -> list[_Raw]:
    draws = _Draws(measures, weights)
    return [
        _raw(matched.levels[measure.basis.level], ways, measure, draws, setting, also) for measure in measures
    ]


class _Draws:
    """What is computed of the trees drawn, and of the periods drawn.

    Quantiles of each basis and run are computed all at once, since sorting and counting is most of the work.
    """

    def __init__(self, measures: Sequence[Measure], weights: Weights) -> None:
        self._weights = weights
        self._statistics: dict[str, list[Statistic]] = {}
        for measure in measures:
            if measure.statistic in QUANTILES:
                self._statistics.setdefault(measure.basis.name, []).append(measure.statistic)
        self._quantiles: dict[tuple[str, int], Floats] = {}

    def of_pairs(self, compute: Callable[[Ints, Weights], Floats], pairs: _Pairs) -> Floats:
        """The numbers of the trees drawn, then those of the periods drawn.

        Args:
            compute: Given the tree, or the period, of each pair, and how often each is drawn.
        """
        periods = period_weights(pairs.period_count, len(self._weights))
        rows = pairs.is_pair
        return np.concatenate(
            [compute(pairs.trees[rows], self._weights), compute(pairs.periods[rows], periods)]
        )

    def quantiles(self, measure: Measure, run: int, values: Floats, pairs: _Pairs) -> Floats:
        """Those of one measure of one run, whose values these are."""
        statistics = self._statistics[measure.basis.name]
        key = (measure.basis.name, run)
        if key not in self._quantiles:
            qs = [QUANTILES[statistic] for statistic in statistics]
            self._quantiles[key] = self.of_pairs(partial(drawn_quantiles, values, qs=qs), pairs)
        drawn: Floats = self._quantiles[key][:, statistics.index(measure.statistic)]
        return drawn


def _raw(
    level: LevelRows,
    ways: tuple[Sequence[int], Sequence[int]],
    measure: Measure,
    draws: _Draws,
    setting: Setting,
    also: Sequence[int],
) -> _Raw:
    values = level.columns.get(measure.basis.column)
    pairs = _pairs(level, values, ways, also)
    numbers = None
    # A percentile of too few is not shown either.
    if values is not None and pairs.count >= _needed(measure):
        is_paired = measure.statistic == "paired"
        numbers = (
            _paired_numbers(values, pairs, ways, draws)
            if is_paired
            else _numbers(level, values, pairs, measure, ways, draws)
        )
    points = [[math.nan] * len(way) for way in ways] if numbers is None else numbers.points
    first, second = (_side(measure, of_way) for of_way in points)
    reason = _reason(measure, pairs, points)
    if reason or numbers is None:
        return _Raw(
            measure=measure, rows=pairs, first=first, second=second, absolute=None, relative=None, knows_runs=False,
            reason=reason,
        )  # fmt: skip
    noise = (setting.noise or {}).get(measure.name)
    absolute, relative, knows_runs = _with_variances(numbers, pairs, noise, first.value or 0.0)
    return _Raw(
        measure=measure, rows=pairs, first=first, second=second, absolute=absolute, relative=relative,
        knows_runs=knows_runs, reason="",
    )  # fmt: skip


def _pairs(
    level: LevelRows,
    values: Floats | None,
    ways: tuple[Sequence[int], Sequence[int]],
    also: Sequence[int],
) -> _Pairs:
    periods = np.full(level.trees.size, -1, dtype=np.int64)
    if values is None:
        nothing = np.zeros(level.trees.size, dtype=bool)
        return _Pairs(
            is_pair=nothing, trees=level.trees, periods=periods, only_first=0, only_second=0, in_part=0
        )
    has_value = ~np.isnan(values)
    has_first, has_second = (has_value[list(way)].any(axis=0) for way in ways)
    is_pair = np.asarray(has_value[[*ways[0], *ways[1], *also]].all(axis=0))
    periods[is_pair] = periods_of(level.due_s[is_pair])
    return _Pairs(
        is_pair=is_pair,
        trees=level.trees,
        periods=periods,
        only_first=int((has_first & ~has_second).sum()),
        only_second=int((has_second & ~has_first).sum()),
        in_part=int((has_first & has_second & ~is_pair).sum()),
    )


def _numbers(
    level: LevelRows,
    values: Floats,
    pairs: _Pairs,
    measure: Measure,
    ways: tuple[Sequence[int], Sequence[int]],
    draws: _Draws,
) -> _Numbers:
    """A number of each run, of which a way has the mean."""
    of_runs = [[_of_run(level, values, pairs, measure, run, draws) for run in way] for way in ways]
    points = [[point for point, _ in of_way] for of_way in of_runs]
    first, second = (float(np.mean(of_way)) for of_way in points)
    first_drawn, second_drawn = (np.mean([drawn for _, drawn in of_way], axis=0) for of_way in of_runs)
    is_positive = all(point > 0 and not (drawn <= 0).any() for of_way in of_runs for point, drawn in of_way)
    return _Numbers(
        points=points,
        logs=[[math.log(point) for point in of_way] for of_way in points] if is_positive else None,
        difference=second - first,
        drawn=second_drawn - first_drawn,
        log_ratio=math.log(second / first) if is_positive else None,
        log_drawn=np.log(second_drawn / first_drawn) if is_positive else None,
    )


def _of_run(
    level: LevelRows, values: Floats, pairs: _Pairs, measure: Measure, run: int, draws: _Draws
) -> tuple[float, Floats]:
    """The number of one run, and the same of the trees and of the periods drawn."""
    known = values[run][pairs.is_pair]
    match measure.statistic:
        case "share":
            part = level.columns[f"{measure.basis.name}_part"][run][pairs.is_pair]
            point = float(part.sum() / known.sum()) if known.sum() else math.nan
            return point, draws.of_pairs(partial(drawn_shares, part, known), pairs)
        case "mean":
            return float(known.mean()), draws.of_pairs(
                partial(drawn_shares, known, np.ones(known.size)), pairs
            )
        case statistic:
            found = quantile(known, QUANTILES[statistic])
            return math.nan if found is None else found, draws.quantiles(measure, run, known, pairs)


def _paired_numbers(
    values: Floats, pairs: _Pairs, ways: tuple[Sequence[int], Sequence[int]], draws: _Draws
) -> _Numbers:
    """Medians of the distances between the means of the ways, call by call; of a run that to the mean of the first way."""

    def drawn(distances: Floats) -> Floats:
        return draws.of_pairs(partial(drawn_quantiles, distances, qs=(0.5,)), pairs)[:, 0]

    of_ways = [values[list(way)][:, pairs.is_pair] for way in ways]
    first, second = (of_way.mean(axis=0) for of_way in of_ways)
    is_positive = all(of_way.min() > 0 for of_way in of_ways)
    log_ratios = np.log(second / first) if is_positive else None
    return _Numbers(
        points=[[median_of(run - first) for run in of_way] for of_way in of_ways],
        logs=[[median_of(np.log(run / first)) for run in of_way] for of_way in of_ways]
        if is_positive
        else None,
        difference=median_of(second - first),
        drawn=drawn(second - first),
        log_ratio=None if log_ratios is None else median_of(log_ratios),
        log_drawn=None if log_ratios is None else drawn(log_ratios),
    )


def _side(measure: Measure, points: Sequence[float]) -> Side:
    # The paired median is a difference: a way has none of its own.
    is_told = not any(map(math.isnan, points)) and measure.statistic != "paired"
    return Side(
        values=tuple(None if math.isnan(point) else point for point in points),
        value=float(np.mean(points)) if is_told else None,
    )


def _needed(measure: Measure) -> int:
    """Pairs from which a measure has a value."""
    return max(1, min_count(QUANTILES.get(measure.statistic, 0.5)))


def _reason(measure: Measure, pairs: _Pairs, points: Sequence[Sequence[float]]) -> str:
    """Why a measure cannot be told; empty if it can."""
    needed = _needed(measure)
    if not pairs.count:
        return "no pair that every run has" if pairs.in_part else "no pairs"
    if pairs.count < needed:
        return f"{pairs.count:,} pairs, {needed:,} needed"
    if pairs.tree_count < MIN_CLUSTERS:
        return f"pairs of {counted(pairs.tree_count, 'tree')}, {MIN_CLUSTERS} needed"
    if any(math.isnan(point) for of_way in points for point in of_way):
        return "no value"
    return ""


def _with_variances(
    numbers: _Numbers, pairs: _Pairs, noise: RunNoise | None, level: float
) -> tuple[tuple[float, Variance], tuple[float, Variance] | None, bool]:
    """The difference, the logarithm of the ratio, and whether the spread between runs is in them.

    Args:
        level: What the first way has; 0 of what has no level.
    """
    runs = sum(1 / len(of_way) for of_way in numbers.points)
    between = pooled(run_variance(*numbers.points), _absolute_noise(noise, level))
    absolute = (numbers.difference, added(_within_runs(numbers.drawn, pairs), between, runs))
    relative = None
    if numbers.logs is not None and numbers.log_ratio is not None and numbers.log_drawn is not None:
        between_logs = pooled(run_variance(*numbers.logs), None if noise is None else noise.relative)
        relative = (numbers.log_ratio, added(_within_runs(numbers.log_drawn, pairs), between_logs, runs))
    return absolute, relative, between is not None


def _within_runs(drawn: Floats, pairs: _Pairs) -> Variance:
    of_trees, of_periods = np.split(drawn, 2)
    return larger(tree_variance(of_trees, pairs.tree_count), tree_variance(of_periods, pairs.period_count))


def _absolute_noise(noise: RunNoise | None, level: float) -> Variance | None:
    """Noise of times grows with the times, so what is known of the logarithm goes before."""
    if noise is None:
        return None
    if noise.relative is not None and level > 0:
        return Variance(value=noise.relative.value * level**2, freedom=noise.relative.freedom)
    return noise.absolute


def _judged(raw: _Raw, tail: float, setting: Setting) -> Difference:
    absolute = None if raw.absolute is None else effect_of(*raw.absolute, tail)
    if raw.measure.basis.is_share and absolute is not None:
        absolute = _within_shares(absolute, raw.first.value)
    relative = None if raw.relative is None else _from_log(effect_of(*raw.relative, tail))
    floor = _floor(raw, setting)
    return Difference(
        measure=raw.measure,
        pairs=raw.rows.count,
        only_first=raw.rows.only_first,
        only_second=raw.rows.only_second,
        in_part=raw.rows.in_part,
        trees=raw.rows.tree_count,
        first=raw.first,
        second=raw.second,
        absolute=absolute,
        relative=relative,
        floor=floor,
        knows_runs=raw.knows_runs,
        can_err=raw.can_err,
        finding=_finding(raw, absolute, relative, floor),
        reason=raw.reason,
    )


def _within_shares(effect: Effect, first: float | None) -> Effect:
    """No share can become less than 0 or more than 1."""
    least, most = (-1.0, 1.0) if first is None else (0.0 - first, 1 - first)
    return Effect(point=effect.point, low=max(effect.low, least), high=min(effect.high, most))


def _from_log(effect: Effect) -> Effect:
    # A far end of a hopelessly wide interval is still a number.
    low, point, high = (math.expm1(min(value, 700.0)) for value in (effect.low, effect.point, effect.high))
    return Effect(point=point, low=low, high=high)


def _floor(raw: _Raw, setting: Setting) -> float:
    if raw.relative is None and not raw.measure.basis.is_share:
        return 0.0 if raw.has_repeats else raw.measure.basis.clock_floor
    if setting.floor_ratio is not None:
        return setting.floor_ratio
    if raw.has_repeats:
        return 0.0
    return DEFAULT_FLOOR_SHARE if raw.measure.basis.is_share else DEFAULT_FLOOR_RATIO


def _finding(raw: _Raw, absolute: Effect | None, relative: Effect | None, floor: float) -> Finding:
    """More or less only if both intervals lie beyond 0, the deciding one beyond the floor, and the absolute beyond the clock's."""
    if absolute is None:
        return "too_few"
    deciding = absolute if raw.measure.basis.is_share or relative is None else relative
    clock_floor = 0.0 if raw.has_repeats else raw.measure.basis.clock_floor
    sign = _sign(deciding, 0.0)
    if sign == 0 or _sign(absolute, 0.0) != sign:
        return "none"
    if _sign(deciding, floor) != sign or _sign(absolute, clock_floor) != sign:
        return "floor"
    return "more" if sign > 0 else "less"


def _sign(effect: Effect, floor: float) -> int:
    """1 or −1 if the interval lies beyond the floor, else 0."""
    if effect.low > floor:
        return 1
    return -1 if effect.high < -floor else 0
