"""Pure: two ways of playing a plan compared: a difference with its interval for each measure, and what it amounts to.

Values are compared on pairs: what at least one run of either way has a value of. Each run gives one number; that of a way
is the mean over its runs. Relative differences are those of the logarithms, so of geometric means.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from aitrace.quantiles import min_count
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
from reports.stats import MIN_CLUSTERS, Floats, Ints, Weights, drawn_quantiles, quantile

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
    """Calls, sessions or trees that both ways have a value of."""
    only_first: int
    """Those that only the first way has a value of."""
    only_second: int
    """Those that only the second way has a value of."""
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
    """Rows of a basis that both ways have."""

    is_pair: npt.NDArray[np.bool_]
    trees: Ints
    periods: Ints
    only_first: int
    only_second: int

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
    """A measure of one run: its number, and those of the trees drawn, then those of the periods drawn."""

    point: float
    drawn: Floats
    log_point: float
    log_drawn: Floats
    count: int


def compare_ways(
    matched: Matched,
    first: Sequence[int],
    others: Sequence[Sequence[int]],
    measures: Sequence[Measure],
    weights: Weights,
    setting: Setting,
) -> tuple[tuple[Difference, ...], ...]:
    """Each other way against the first, in each measure.

    Args:
        first: Places of its runs among those matched.
        others: The same of the other ways.
        weights: From `tree_weights`, for the trees of `matched`.
    """
    raw = [_raw_of_way(matched, (first, other), measures, weights, setting) for other in others]
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
) -> list[_Raw]:
    draws = _Draws(measures, weights)
    return [_raw(matched, ways, measure, draws, setting) for measure in measures]


class _Draws:
    """What is computed of the trees drawn, and of the periods drawn.

    Quantiles of each basis and run are computed all at once, since sorting and counting is most of the work.
    """

    def __init__(self, measures: Sequence[Measure], weights: Weights) -> None:
        self.size = 2 * len(weights)
        """Numbers that come of it."""
        self._weights = weights
        self._statistics: dict[str, list[Statistic]] = {}
        for measure in measures:
            if measure.statistic in QUANTILES:
                self._statistics.setdefault(measure.basis.name, []).append(measure.statistic)
        self._quantiles: dict[tuple[str, int], Floats] = {}

    def of_rows(self, compute: Callable[[Ints, Weights], Floats], pairs: _Pairs, rows: Rows) -> Floats:
        """The numbers of the trees drawn, then those of the periods drawn.

        Args:
            compute: Given the tree, or the period, of each row, and how often each is drawn.
        """
        periods = period_weights(pairs.period_count, len(self._weights))
        return np.concatenate(
            [compute(pairs.trees[rows], self._weights), compute(pairs.periods[rows], periods)]
        )

    def quantiles(self, measure: Measure, run: int, values: Floats, pairs: _Pairs, rows: Rows) -> Floats:
        """Those of one measure of one run, whose values these are."""
        statistics = self._statistics[measure.basis.name]
        key = (measure.basis.name, run)
        if key not in self._quantiles:
            qs = [QUANTILES[statistic] for statistic in statistics]
            self._quantiles[key] = self.of_rows(partial(drawn_quantiles, values, qs=qs), pairs, rows)
        drawn: Floats = self._quantiles[key][:, statistics.index(measure.statistic)]
        return drawn


def _raw(
    matched: Matched,
    ways: tuple[Sequence[int], Sequence[int]],
    measure: Measure,
    draws: _Draws,
    setting: Setting,
) -> _Raw:
    level = matched.levels[measure.basis.level]
    pairs = _pairs(level, measure, ways)
    numbers = [[_numbers(level, pairs, measure, run, ways[0], draws) for run in way] for way in ways]
    first, second = (_side(measure, of_way) for of_way in numbers)
    reason = _reason(measure, pairs, numbers)
    if reason:
        return _Raw(
            measure=measure, rows=pairs, first=first, second=second, absolute=None, relative=None, knows_runs=False,
            reason=reason,
        )  # fmt: skip
    noise = (setting.noise or {}).get(measure.name)
    absolute, relative, knows_runs = _with_variances(numbers, pairs, noise)
    return _Raw(
        measure=measure, rows=pairs, first=first, second=second, absolute=absolute, relative=relative,
        knows_runs=knows_runs, reason="",
    )  # fmt: skip


def _values(level: LevelRows, measure: Measure) -> Floats | None:
    return level.columns.get(measure.basis.column)


def _pairs(level: LevelRows, measure: Measure, ways: tuple[Sequence[int], Sequence[int]]) -> _Pairs:
    values = _values(level, measure)
    if values is None:
        nothing = np.zeros(level.trees.size, dtype=bool)
        return _Pairs(
            is_pair=nothing,
            trees=level.trees,
            periods=np.zeros(0, dtype=np.int64),
            only_first=0,
            only_second=0,
        )
    has_first, has_second = ((~np.isnan(values[list(way)])).any(axis=0) for way in ways)
    is_pair = np.asarray(has_first & has_second)
    periods = np.full(is_pair.size, -1, dtype=np.int64)
    periods[is_pair] = periods_of(level.due_s[is_pair])
    return _Pairs(
        is_pair=is_pair,
        trees=level.trees,
        periods=periods,
        only_first=int((has_first & ~has_second).sum()),
        only_second=int((has_second & ~has_first).sum()),
    )


def _numbers(
    level: LevelRows,
    pairs: _Pairs,
    measure: Measure,
    run: int,
    first: Sequence[int],
    draws: _Draws,
) -> _Numbers:
    values = _values(level, measure)
    rows = pairs.is_pair if values is None else pairs.is_pair & ~np.isnan(values[run])
    if values is None or not rows.any():
        return _no_numbers(draws.size)
    known, count = values[run][rows], int(rows.sum())
    match measure.statistic:
        case "share":
            part = level.columns[f"{measure.basis.name}_part"][run][rows]
            point = float(part.sum() / known.sum()) if known.sum() else math.nan
            return _with_logs(point, draws.of_rows(partial(drawn_shares, part, known), pairs, rows), count)
        case "mean":
            drawn = draws.of_rows(partial(drawn_shares, known, np.ones(count)), pairs, rows)
            return _with_logs(float(known.mean()), drawn, count)
        case "paired":
            return _paired_numbers(values, run, first, draws, pairs, rows)
        case statistic:
            found = quantile(known, QUANTILES[statistic])
            point = math.nan if found is None else found
            return _with_logs(point, draws.quantiles(measure, run, known, pairs, rows), count)


def _paired_numbers(
    values: Floats, run: int, first: Sequence[int], draws: _Draws, pairs: _Pairs, rows: Rows
) -> _Numbers:
    """Medians of a run's distances to the mean of the first way, call by call."""

    def medians(distances: Floats) -> Floats:
        return draws.of_rows(partial(drawn_quantiles, distances, qs=(0.5,)), pairs, rows)[:, 0]

    of_first, of_run = values[list(first)][:, rows], values[run][rows]
    differences = of_run - np.nanmean(of_first, axis=0)
    log_point, log_drawn = math.nan, np.full(draws.size, np.nan)
    if np.nanmin(of_first) > 0 and of_run.min() > 0:
        ratios = np.log(of_run) - np.nanmean(np.log(of_first), axis=0)
        log_point, log_drawn = median_of(ratios), medians(ratios)
    return _Numbers(
        point=median_of(differences),
        drawn=medians(differences),
        log_point=log_point,
        log_drawn=log_drawn,
        count=int(rows.sum()),
    )


def _with_logs(point: float, drawn: Floats, count: int) -> _Numbers:
    is_positive = point > 0 and not (drawn <= 0).any()
    return _Numbers(
        point=point,
        drawn=drawn,
        log_point=math.log(point) if is_positive else math.nan,
        log_drawn=np.log(drawn) if is_positive else np.full(drawn.size, np.nan),
        count=count,
    )


def _no_numbers(size: int) -> _Numbers:
    nothing = np.full(size, np.nan)
    return _Numbers(point=math.nan, drawn=nothing, log_point=math.nan, log_drawn=nothing, count=0)


def _side(measure: Measure, numbers: Sequence[_Numbers]) -> Side:
    values = tuple(None if math.isnan(each.point) else each.point for each in numbers)
    known = [value for value in values if value is not None]
    # The paired median is a difference: a way has none of its own.
    is_told = bool(known) and len(known) == len(values) and measure.statistic != "paired"
    return Side(values=values, value=sum(known) / len(known) if is_told else None)


def _reason(measure: Measure, pairs: _Pairs, numbers: Sequence[Sequence[_Numbers]]) -> str:
    """Why a measure cannot be told; empty if it can."""
    smallest = min(each.count for of_way in numbers for each in of_way)
    needed = min_count(QUANTILES.get(measure.statistic, 0.5))
    if not pairs.count:
        return "no pairs"
    if smallest == 0:
        return "a run has none of the pairs"
    if smallest < needed:
        return f"{smallest:,} pairs, {needed:,} needed"
    if pairs.tree_count < MIN_CLUSTERS:
        return f"pairs of {pairs.tree_count} trees, {MIN_CLUSTERS} needed"
    if any(math.isnan(each.point) for of_way in numbers for each in of_way):
        return "no value"
    return ""


def _with_variances(
    numbers: Sequence[Sequence[_Numbers]], pairs: _Pairs, noise: RunNoise | None
) -> tuple[tuple[float, Variance], tuple[float, Variance] | None, bool]:
    runs = sum(1 / len(of_way) for of_way in numbers)
    points = [[each.point for each in of_way] for of_way in numbers]
    logs = [[each.log_point for each in of_way] for of_way in numbers]
    level = abs(float(np.mean(points[0])))
    relative: tuple[float, Variance] | None = None
    between_logs: Variance | None = None
    if not any(math.isnan(log) for of_way in logs for log in of_way):
        between_logs = pooled(run_variance(*logs), None if noise is None else noise.relative)
        drawn = _mean_difference([[each.log_drawn for each in of_way] for of_way in numbers])
        point = float(np.mean(logs[1]) - np.mean(logs[0]))
        relative = (point, added(_within_runs(drawn, pairs), between_logs, runs))
    between = pooled(run_variance(*points), _absolute_noise(noise, level))
    drawn = _mean_difference([[each.drawn for each in of_way] for of_way in numbers])
    absolute = (
        float(np.mean(points[1]) - np.mean(points[0])),
        added(_within_runs(drawn, pairs), between, runs),
    )
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


def _mean_difference(drawn: Sequence[Sequence[Floats]]) -> Floats:
    first, second = (np.mean(np.stack(of_way), axis=0) for of_way in drawn)
    difference: Floats = second - first
    return difference


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
