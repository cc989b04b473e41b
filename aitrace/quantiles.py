"""Pure: the one definition of a quantile: an observed value, nothing interpolated."""

from collections.abc import Sequence
from math import ceil


def quantile(values: Sequence[int], ratio: float) -> int:
    """The smallest of `values` that at least `ratio` (0 to 1) of them do not exceed (inverted CDF).

    Raises:
        IndexError: there are no values.
    """
    return sorted(values)[max(0, ceil(ratio * len(values)) - 1)]
