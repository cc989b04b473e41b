"""Pure: what a definition of a number consists of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import polars as pl

from reports.stats import Floats, Ints
from reports.tables import Facts

Value = TypeVar("Value")
Number = float | int | None
Row = dict[str, float | int | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Values of one measure, each with the session it comes from."""

    values: Floats
    """In the metric's unit."""
    sessions: Ints
    """One integer per (instance, session); trees and other groups have one each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Generic[Value]):
    """One definition."""

    name: str
    """Name in JSON, ending in the unit."""
    title: str
    """Name on the page."""
    unit: str
    """Unit as printed; empty for ratios and counts of what the title names."""
    formula: str
    """How it is computed, in the words of docs/metrics.md."""
    population: str
    """What it is computed over."""
    compute: Callable[[Facts], Value]
    """The computation."""


def defined(*rows: tuple[str, str, str, str, str, Callable[[Facts], Value]]) -> tuple[Metric[Value], ...]:
    """Definitions from the rows of a table, with the fields of `Metric` in their order."""
    return tuple(
        Metric(name=name, title=title, unit=unit, formula=formula, population=population, compute=compute)
        for name, title, unit, formula, population, compute in rows
    )


def known_sum(column: pl.Series) -> int | None:
    """Sum of the values that are known, to the next integer; None if none is."""
    known = column.drop_nulls()
    return None if known.is_empty() else round(known.sum())


def ratio(part: float | None, whole: float | None) -> float | None:
    """Part / whole; None if either is not known or the whole is 0."""
    return None if part is None or not whole else part / whole
