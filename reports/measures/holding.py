"""Pure: whether a stack held calls silently: withheld the headers of an answer instead of refusing it.

The rule has two parts. *Two groups*: the logarithms of the times to headers are split in two where the squared
distances from the groups' means add up to least. The groups are two if each has at least 5 % of the calls, the slower
one's median is at least 50 ms and three times the faster one's, and the middle third of the way between the medians,
on the logarithmic scale, is nearly empty: at most 10 % of the calls. *Tied to the queue*: the rank correlation
(Spearman) of the time to headers with the queue gauge at the dispatch, taken from the readings around it, is at least
0.3. Both together are holding; the first alone has other causes.

A gap alone would not do: calls that are held wait for anything from nothing to seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from aitrace.units import NS_PER_MS, NS_PER_S
from reports.metric import Metric, Number, defined
from reports.stats import Floats, quantile, rank_correlation
from reports.tables import Facts, kept, once_per_run

MIN_SIDE_RATIO = 0.05
"""Smallest share of the calls in either group."""
MIN_RATIO = 3.0
"""Smallest ratio of the groups' medians."""
MAX_BETWEEN_RATIO = 0.1
"""Largest share of the calls in the middle third between the medians."""
MIN_HELD_MS = 50.0
"""Smallest median of the slower group; what is below is the network's and the scheduler's."""
MIN_CALLS = 20
"""Fewer calls than this show no groups."""
_NEAR_S = 5.0
"""A reading further away than this says nothing of a moment."""
_LEAST_MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderGroups:
    """Two groups of times to headers."""

    from_ms: float
    """Least time of the slower group, ms."""
    slow_calls: int
    """Calls in it."""
    fast_p50_ms: float
    """Median of the faster group, ms."""
    slow_p50_ms: float
    """Median of the slower group, ms."""


def header_groups(times_ms: Floats) -> HeaderGroups | None:
    """The two groups that the times fall into; None if they are one."""
    if times_ms.size < MIN_CALLS:
        return None
    ordered = np.sort(times_ms.clip(min=_LEAST_MS))
    place = _best_split(np.log(ordered))
    if min(place, ordered.size - place) < MIN_SIDE_RATIO * ordered.size:
        return None
    fast_ms, slow_ms = quantile(ordered[:place], 0.5) or 0.0, quantile(ordered[place:], 0.5) or 0.0
    if slow_ms < max(MIN_HELD_MS, MIN_RATIO * fast_ms):
        return None
    third = (slow_ms / fast_ms) ** (1 / 3)
    between = ((ordered > fast_ms * third) & (ordered < slow_ms / third)).mean()
    if between > MAX_BETWEEN_RATIO:
        return None
    return HeaderGroups(
        from_ms=float(ordered[place]),
        slow_calls=int(ordered.size - place),
        fast_p50_ms=fast_ms,
        slow_p50_ms=slow_ms,
    )


def _best_split(ordered: Floats) -> int:
    """How many of the ordered values go into the lower of two groups with the least squared distances from their means."""
    sizes = np.arange(1, ordered.size)
    sums = ordered.cumsum()
    low, high = sums[:-1], sums[-1] - sums[:-1]
    # The sum of all squares is the same for every split; what is left to compare is how far apart the means are.
    return int((low**2 / sizes + high**2 / (ordered.size - sizes)).argmax()) + 1


@once_per_run
def _streamed(facts: Facts) -> pl.DataFrame:
    """Calls that were let in and whose headers say when: those of an answer in one piece come with its body."""
    let_in = pl.col("headers_ns").is_not_null() & pl.col("events").is_not_null() & (pl.col("status") == 200)
    is_sent = pl.col("sent_ns").is_not_null()
    return kept(facts.calls, let_in & is_sent, "dispatched_ns", "sent_ns", "headers_ns")


def _times_ms(calls: pl.DataFrame) -> Floats:
    return ((calls["headers_ns"] - calls["sent_ns"]) / NS_PER_MS).cast(pl.Float64).to_numpy()


def waiting_at(facts: Facts, at_ns: Floats) -> Floats:
    """The queue gauge at these times, summed over engines, between the readings before and after; nan without either."""
    total = np.full(at_ns.size, np.nan)
    read = facts.scrapes.filter(pl.col("waiting").is_not_null())
    for _, readings in read.group_by("url", maintain_order=True):
        found = _between(at_ns, readings["at_ns"].cast(pl.Float64).to_numpy(), readings["waiting"].to_numpy())
        total = np.where(np.isnan(total), found, total + np.nan_to_num(found))
    return total


def _between(at_ns: Floats, read_ns: Floats, values: Floats) -> Floats:
    """Values at these times: on the line from the reading before to the one after, or that of the only one near."""
    after = np.searchsorted(read_ns, at_ns, side="right")
    before = after - 1
    has_before = (before >= 0) & (at_ns - read_ns[before.clip(min=0)] <= _NEAR_S * NS_PER_S)
    has_after = after < read_ns.size
    after = after.clip(max=read_ns.size - 1)
    has_after &= read_ns[after] - at_ns <= _NEAR_S * NS_PER_S
    line: Floats = np.interp(at_ns, read_ns, values)
    one = np.where(has_before, values[before.clip(min=0)], np.where(has_after, values[after], np.nan))
    return np.where(has_before & has_after, line, one)


@once_per_run
def _groups(facts: Facts) -> HeaderGroups | None:
    return header_groups(_times_ms(_streamed(facts)))


def _of_groups(field: str) -> Callable[[Facts], Number]:
    def compute(facts: Facts) -> Number:
        groups = _groups(facts)
        return None if groups is None else getattr(groups, field)

    return compute


def _correlation(facts: Facts) -> float | None:
    calls = _streamed(facts)
    waiting = waiting_at(facts, calls["dispatched_ns"].cast(pl.Float64).to_numpy())
    is_known = ~np.isnan(waiting)
    return rank_correlation(_times_ms(calls)[is_known], waiting[is_known])


_STREAMED = "sent calls with status 200 whose answer is a stream"
_SLOW = f"{_STREAMED}; none if their times to headers do not fall into two groups"
_CORRELATED = (
    "rank correlation (Spearman) of headers − sent with the queue gauge at the dispatch, on the line between the readings "
    "of each engine before and after it, summed"
)
_SPLIT = (
    "least headers − sent of the slower of two groups: where the squared distances of the times' logarithms from the "
    "groups' means add up to least, if each has 5 % of the calls, the slower median is at least 50 ms and × 3 of the "
    "faster one's, and at most 10 % lie in the middle third between them"
)

# fmt: off
HOLDING_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("slow_headers_from_ms", "Late headers, from", "ms", _SPLIT, _SLOW, _of_groups("from_ms")),
    ("slow_headers_calls", "Calls with late headers", "calls", "count of the slower group", _SLOW,
     _of_groups("slow_calls")),
    ("fast_headers_p50_ms", "Headers, median of the faster group", "ms", "median of headers − sent", _SLOW,
     _of_groups("fast_p50_ms")),
    ("slow_headers_p50_ms", "Headers, median of the slower group", "ms", "median of headers − sent", _SLOW,
     _of_groups("slow_p50_ms")),
    ("headers_queue_correlation", "Time to headers against the queue", "ρ",
     _CORRELATED, f"{_STREAMED}, with a reading at most 5 s away", _correlation),
)
# fmt: on
