"""Pure: when the endpoint began with each prompt: an estimate, for calls that waited within it.

An engine looks a prompt up in its cache when it takes the call in, not when the call arrives; what is evicted while the
call waits is gone. When it was taken in nobody tells, but a prompt cannot have been begun later than its computation takes
before its first token. How long that is at least is read from the run: the line a + b × uncached tokens below all times
to first token, as high as it can lie at the mean of the tokens (the lower edge of their convex hull).
"""

import numpy as np
import polars as pl

from reports.stats import Floats

_UNCACHED = (pl.col("usage_input_tokens") - pl.col("usage_cache_read_tokens")).clip(lower_bound=0)


def with_start(sent: pl.DataFrame) -> pl.DataFrame:
    """The calls with `started_ns`, between `sent_ns` and `first_token_ns`; `sent_ns` where a call tells too little.

    Args:
        sent: Columns `sent_ns`, `first_token_ns`, `usage_input_tokens`, `usage_cache_read_tokens`.
    """
    timed = sent.select(
        ttft_ns=(pl.col("first_token_ns") - pl.col("sent_ns")).clip(lower_bound=0), tokens=_UNCACHED
    ).drop_nulls()
    if timed.is_empty():
        return sent.with_columns(started_ns=pl.col("sent_ns"))
    base_ns, ns_per_token = least_times(timed["tokens"].to_numpy(), timed["ttft_ns"].to_numpy())
    computing_ns = (base_ns + ns_per_token * _UNCACHED).round().cast(pl.Int64)
    started_ns = pl.max_horizontal("sent_ns", pl.col("first_token_ns") - computing_ns)
    return sent.with_columns(
        started_ns=pl.when(computing_ns.is_not_null() & pl.col("first_token_ns").is_not_null())
        .then(started_ns)
        .otherwise("sent_ns")
    )


def least_times(tokens: Floats, times: Floats) -> tuple[float, float]:
    """Base, and time per token, of the highest line at the mean of the tokens that lies above no point.

    Neither is below 0: more tokens take no less time.
    """
    xs, place = np.unique(tokens.astype(np.float64), return_inverse=True)
    ys = np.full(xs.size, np.inf)
    np.minimum.at(ys, place, times.astype(np.float64))
    # The least time of so many tokens or more: no line that rises can lie above it.
    ys = np.minimum.accumulate(ys[::-1])[::-1]
    hull = _lower_hull(xs, ys)
    at = int(np.searchsorted(xs[hull], float(tokens.mean()), side="right")) - 1
    if at + 1 >= len(hull):
        return float(ys[hull[-1]]), 0.0
    left, right = hull[at], hull[at + 1]
    slope = float((ys[right] - ys[left]) / (xs[right] - xs[left]))
    base = float(ys[left] - slope * xs[left])
    # A line that begins below 0 takes nothing for a base; through the origin it lies lower still.
    return (base, slope) if base >= 0 else (0.0, float((ys[hull] / np.maximum(xs[hull], 1.0)).min()))


def _lower_hull(xs: Floats, ys: Floats) -> list[int]:
    """Places of the points of the lower edge of the convex hull; xs ascend."""
    hull: list[int] = []
    for place in range(xs.size):
        while len(hull) > 1 and _is_above(xs, ys, hull[-2], hull[-1], place):
            hull.pop()
        hull.append(place)
    return hull


def _is_above(xs: Floats, ys: Floats, left: int, middle: int, right: int) -> bool:
    """Whether the middle point is not below the line between the others."""
    rise = (ys[right] - ys[left]) * (xs[middle] - xs[left])
    return bool((ys[middle] - ys[left]) * (xs[right] - xs[left]) >= rise)
