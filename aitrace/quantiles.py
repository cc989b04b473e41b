"""Pure: the one definition of a quantile: an observed value, nothing interpolated."""

from collections.abc import Sequence
from math import ceil
from typing import TypeVar

_Value = TypeVar("_Value", int, float)


def quantile(values: Sequence[_Value], ratio: float) -> _Value:
    """The smallest of `values` that at least `ratio` (0 to 1) of them do not exceed (inverted CDF).

    Raises:
        IndexError: there are no values.
    """
    return sorted(values)[max(0, ceil(ratio * len(values)) - 1)]
