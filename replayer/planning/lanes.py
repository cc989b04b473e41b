"""Pure: when lanes would start trees, and how many of them a run of some length may need.

How many trees lanes get through hangs on the endpoint, and a plan is made before. It holds as many as they would play
if calls took a fiftieth of their planned time, at least 10 ms; should they get through more, the run says so.
"""

import heapq
from collections.abc import Iterable, Sequence

from aitrace.units import NS_PER_MS
from replayer.planning.brief import BriefWait
from replayer.planning.gaps import PlannedDependency

_FASTEST_RATIO = 0.02
_FASTEST_CALL_NS = 10 * NS_PER_MS


def lane_starts(durations_ns: Sequence[int | None], lanes: int) -> list[int | None]:
    """When each tree would start in lanes that take the next tree as they become free, by the trees' durations.

    None where that is not known.
    """
    known_ns = [duration_ns for duration_ns in durations_ns if duration_ns is not None]
    if len(known_ns) < len(durations_ns):
        return [0 if number < lanes else None for number in range(len(durations_ns))]
    free_ns = [0] * lanes
    starts: list[int | None] = []
    for duration_ns in known_ns:
        start_ns = heapq.heappop(free_ns)
        starts.append(start_ns)
        heapq.heappush(free_ns, start_ns + duration_ns)
    return starts


class LaneBound:
    """Counts trees into lanes until none is free any more before the end of the run."""

    def __init__(self, lanes: int, until_ns: int) -> None:
        self._free_ns = [0] * lanes
        self._until_ns = until_ns

    @property
    def is_full(self) -> bool:
        """Whether no lane would take another tree in time."""
        return self._free_ns[0] >= self._until_ns

    def add(self, shortest_ns: int) -> None:
        """Let the lane that is free first take a tree."""
        heapq.heapreplace(self._free_ns, self._free_ns[0] + max(1, shortest_ns))


def shortest_ns(calls: Iterable[tuple[int, Sequence[PlannedDependency | BriefWait], int | None]]) -> int:
    """Least time that a tree takes, if calls take a fiftieth of their planned time, at least 10 ms.

    Args:
        calls: Of each call, in the plan's order: the offset from the tree's start, what it waits for, and its planned
            duration, None if that is not known.
    """
    due_ns: list[int] = []
    end_ns: list[int] = []
    for offset_ns, after, duration_ns in calls:
        own_ns = offset_ns
        for wait in after:
            trigger_ns = (due_ns if wait.trigger == "dispatch" else end_ns)[wait.index]
            own_ns = max(own_ns, trigger_ns + wait.gap_ns)
        due_ns.append(own_ns)
        end_ns.append(own_ns + max(_FASTEST_CALL_NS, round((duration_ns or 0) * _FASTEST_RATIO)))
    return max(end_ns, default=0)
