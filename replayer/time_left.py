"""Pure: about how long a run will go on, from the chains of calls that are left and what a call took so far.

What is left counts the gaps of the plan, and for each call the mean duration of this run's calls, not the recorded
one: the endpoint may be slower or faster than that of the recording.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from replayer.plan import Plan, PlannedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Calls that wait for each other."""

    gap_ns: int = 0
    """Gaps before them, ns, in total."""
    calls: int = 0
    """Number of the calls."""

    def length_ns(self, call_ns: float) -> float:
        """How long it takes if each call takes `call_ns`."""
        return self.gap_ns + self.calls * call_ns

    def __add__(self, other: "Chain") -> "Chain":
        return Chain(gap_ns=self.gap_ns + other.gap_ns, calls=self.calls + other.calls)


class Forecast:
    """What of a plan follows each call; made once, so that asking costs little while the run goes on.

    Which of several chains is the longest is decided with the recorded durations.
    """

    def __init__(self, plan: Plan) -> None:
        self._lanes = plan.lanes
        self._tree_of = [number for number, tree in enumerate(plan.trees) for _ in range(tree.count)]
        usual_ns = _usual_call_ns(plan.calls)
        self._tails = _tails(plan.calls, usual_ns)
        trees = [Chain()] * len(plan.trees)
        for call, tail, number in zip(plan.calls, self._tails, self._tree_of, strict=True):
            if not call.after:
                trees[number] = _longer(trees[number], Chain(gap_ns=call.offset_ns, calls=1) + tail, usual_ns)
        # By number of trees that have started: what the others take together, and the longest of them.
        backwards = trees[::-1]
        self._total = [*accumulate(backwards, initial=Chain())][::-1]
        self._longest = [
            *accumulate(backwards, lambda one, other: _longer(one, other, usual_ns), initial=Chain())
        ][::-1]

    def left_ns(
        self, now_ns: int, open_calls: Iterable[tuple[int, int]], *, started_trees: int, call_ns: float
    ) -> int:
        """About how long it is from `now_ns` to the end of the last call.

        Args:
            open_calls: Index and due time of each call that is in flight, or whose due time is known.
            started_trees: Trees that lanes have taken; has no say without lanes.
            call_ns: What a call takes on average, ns.
        """
        left_of_tree: dict[int, float] = {}
        for index, due_ns in open_calls:
            left_ns = max(0.0, due_ns + call_ns - now_ns) + self._tails[index].length_ns(call_ns)
            tree = self._tree_of[index]
            left_of_tree[tree] = max(left_ns, left_of_tree.get(tree, 0.0))
        lefts_ns = left_of_tree.values()
        last_ns = max(lefts_ns, default=0.0)
        if self._lanes is not None and started_trees < len(self._total) - 1:
            total_ns = sum(lefts_ns) + self._total[started_trees].length_ns(call_ns)
            next_ns = min(lefts_ns, default=0.0) + self._longest[started_trees].length_ns(call_ns)
            last_ns = max(last_ns, next_ns, total_ns / self._lanes)
        return round(last_ns)


def _tails(calls: tuple[PlannedCall, ...], usual_ns: float) -> list[Chain]:
    """The longest chain that follows each call, to the end of its tree."""
    tails = [Chain()] * len(calls)
    for call in reversed(calls):
        for dependency in call.after:
            # What is timed from a call's dispatch runs beside that call, so it is one call shorter.
            own_calls = 1 if dependency.trigger == "completion" else 0
            after = Chain(gap_ns=dependency.gap_ns, calls=own_calls) + tails[call.index]
            tails[dependency.index] = _longer(tails[dependency.index], after, usual_ns)
    return tails


def _longer(one: Chain, other: Chain, usual_ns: float) -> Chain:
    return max(one, other, key=lambda chain: (chain.length_ns(usual_ns), chain.calls))


def _usual_call_ns(calls: tuple[PlannedCall, ...]) -> float:
    """Mean planned duration of a call; 0 if the plan knows none."""
    durations_ns = [
        call.planned_end_ns - call.planned_ns
        for call in calls
        if call.planned_ns is not None and call.planned_end_ns is not None
    ]
    return sum(durations_ns) / len(durations_ns) if durations_ns else 0.0
