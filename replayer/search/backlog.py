"""Pure: whether work piles up in a run that is still going on: a load that the endpoint cannot keep up with.

The rule: over the last third of the time so far, cut into five parts of equal length, the median rises from each part to
the next, and that of the last part is more than twice that of all the time before. It is asked of user TTFT (by the
time a call was due) and of the calls waiting at the engines, at least eight values in each part of the former, two of the
latter. A burst at the start, or a level that is high and stays, is no backlog.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from aitrace.quantiles import quantile
from aitrace.results import CallResult, Scrape
from aitrace.units import NS_PER_S

_PARTS = 5
_GROWTH = 2
_CALLS_PER_PART = 8
_READINGS_PER_PART = 2
_LEAST_WAITING = 4
_LEAST_TIME_NS = 15 * NS_PER_S

Point = tuple[int, int]
"""Time and value."""


def grows(points: Iterable[Point], *, per_part: int) -> bool:
    """Whether values rise steadily over the last third of their time."""
    ordered = sorted(points)
    if not ordered or ordered[-1][0] - ordered[0][0] < _LEAST_TIME_NS:
        return False
    first_ns, last_ns = ordered[0][0], ordered[-1][0]
    third_ns = last_ns - (last_ns - first_ns) // 3
    before = [value for at_ns, value in ordered if at_ns < third_ns]
    parts: list[list[int]] = [[] for _ in range(_PARTS)]
    for at_ns, value in ordered:
        if at_ns >= third_ns:
            parts[min(_PARTS - 1, (at_ns - third_ns) * _PARTS // (last_ns - third_ns))].append(value)
    if not before or any(len(part) < per_part for part in parts):
        return False
    medians = [quantile(part, 0.5) for part in parts]
    rises = all(later > earlier for earlier, later in pairwise(medians))
    return rises and medians[-1] > _GROWTH * quantile(before, 0.5)


def find_backlog(calls: Sequence[CallResult], scrapes: Sequence[Scrape]) -> str | None:
    """What piles up, in words; None if nothing does."""
    waits = [
        (call.due_ns, call.first_token_ns - call.due_ns)
        for call in calls
        if call.due_ns is not None and call.first_token_ns is not None and call.phase != "prime"
    ]
    if grows(waits, per_part=_CALLS_PER_PART):
        return "the time from due to first token grows"
    waiting = [(at_ns, round(value)) for at_ns, value in _waiting(scrapes)]
    if waiting and waiting[-1][1] >= _LEAST_WAITING and grows(waiting, per_part=_READINGS_PER_PART):
        return "the calls waiting at the engine grow"
    return None


def _waiting(scrapes: Sequence[Scrape]) -> Iterable[tuple[int, float]]:
    """Calls waiting over time; of several engines each by the beat, so that a rise shows in their mix."""
    return ((scrape.at_ns, scrape.values["waiting"]) for scrape in scrapes if "waiting" in scrape.values)
