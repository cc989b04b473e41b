"""Pure: the one definition of a quantile: an observed value, nothing interpolated, and what a sample needs to tell."""

from collections.abc import Sequence
from math import ceil
from typing import TypeVar

_Value = TypeVar("_Value", int, float)
_VALUES_ABOVE = 2

MIN_CLUSTERS = 5
"""Fewer sessions, or trees, than this give no interval: resampling them says little about those not seen."""


def min_count(ratio: float) -> int:
    """Values a sample must have before its quantile is shown, or judged.

    Two values must lie beyond an upper quantile, so p90 needs 20, p95 40 and p99 200; the median and what lies below
    it need one.
    """
    if ratio <= 0.5:
        return 1
    # Rounded before the ceiling: 2 / (1 - 0.99) is a little more than 200 in binary.
    return ceil(round(_VALUES_ABOVE / (1 - ratio), 6))


def quantile(values: Sequence[_Value], ratio: float) -> _Value:
    """The smallest of `values` that at least `ratio` (0 to 1) of them do not exceed (inverted CDF).

    Raises:
        IndexError: there are no values.
    """
    return sorted(values)[max(0, ceil(ratio * len(values)) - 1)]
