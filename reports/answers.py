"""Pure: every metric of a run computed once, for the page, the terminal and JSON alike."""

from dataclasses import dataclass

import numpy as np

from reports.measures.time_metrics import SERIES
from reports.metric import Number, Row, Sample
from reports.metrics import DISTRIBUTIONS, NUMBERS, TABLES
from reports.series import Line
from reports.stats import Interval, cluster_bootstrap, shown_quantiles
from reports.tables import Facts

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Quantiles shown of every distribution, by name."""
_WITH_INTERVALS = ("ttft_service_ms", "ttft_user_ms")
_INTERVAL_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What is shown of one distribution."""

    count: int
    """Number of values."""
    sessions: int
    """Sessions (or trees) that they come from."""
    quantiles: dict[str, float | None]
    """By the names of `QUANTILES`; None where there are too few values, see `aitrace.quantiles.min_count`."""
    largest: float | None
    """Largest value; None of no values."""
    p50_interval: Interval | None
    """95 % interval of the median, by bootstrap over sessions; None where it was not asked for or n is too small."""
    p95_interval: Interval | None
    """The same of the 95th percentile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All metrics of one run."""

    spreads: dict[str, Spread]
    """What is shown of each distribution; its values are not kept, since they are as many as calls."""
    numbers: dict[str, Number]
    """By name; None = cannot be told from this run."""
    tables: dict[str, list[Row]]
    """By name."""
    lines: dict[str, list[Line]]
    """By name; an empty list if the run has nothing of it."""


def answers_from_facts(facts: Facts) -> Answers:
    """Compute everything."""
    return Answers(
        spreads={
            metric.name: spread_of(metric.compute(facts), with_intervals=metric.name in _WITH_INTERVALS)
            for metric in DISTRIBUTIONS
        },
        numbers={metric.name: metric.compute(facts) for metric in NUMBERS},
        tables={metric.name: metric.compute(facts) for metric in TABLES},
        lines={metric.name: metric.compute(facts) for metric in SERIES},
    )


def sample_of(facts: Facts, name: str) -> Sample:
    """The values of one distribution."""
    return next(metric for metric in DISTRIBUTIONS if metric.name == name).compute(facts)


def spread_of(sample: Sample, *, with_intervals: bool) -> Spread:
    """Quantiles of a sample, and intervals where they are wanted."""
    intervals: tuple[Interval | None, ...] = (None, None)
    if with_intervals and sample.values.size:
        intervals = cluster_bootstrap(sample.values, sample.sessions, (0.5, 0.95), seed=_INTERVAL_SEED)
    return Spread(
        count=sample.values.size,
        sessions=np.unique(sample.sessions).size,
        quantiles=dict(zip(QUANTILES, shown_quantiles(sample.values, list(QUANTILES.values())), strict=True)),
        largest=float(sample.values.max()) if sample.values.size else None,
        p50_interval=intervals[0],
        p95_interval=intervals[1],
    )
