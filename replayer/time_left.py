"""Pure: about how long a run will go on, from the chains of calls that are left and what a call took so far.

What is left counts the gaps of the plan, and for each call the mean duration of this run's calls, not the recorded
one: the endpoint may be slower or faster than that of the recording.
"""

from array import array
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from replayer.planning.outline import Chain, longer, tails
from replayer.planning.plan import Plan
from replayer.planning.planned import TreeCalls


class Forecast:
    """What of a plan follows each call; made once, so that asking costs little while the run goes on.

    Which of several chains is the longest is decided with the recorded durations.
    """

    def __init__(self, plan: Plan) -> None:
        self._lanes = plan.lanes
        self._usual_ns = plan.playings.recording.mean_duration_ns
        self._tails: WeakKeyDictionary[TreeCalls, list[Chain]] = WeakKeyDictionary()
        # By number of trees that have started: what the others take together, and the longest of them.
        self._total, self._longest = _Chains(), _Chains()
        total = longest = Chain()
        self._total.append(total)
        self._longest.append(longest)
        for place in range(len(plan.trees) - 1, -1, -1):
            tree = plan.trees[place]
            chain = Chain(gap_ns=tree.start_ns or 0) + plan.facts_of(tree).chain
            total += chain
            longest = longer(longest, chain, self._usual_ns)
            self._total.append(total)
            self._longest.append(longest)

    def left_ns(
        self,
        now_ns: int,
        open_calls: Iterable[tuple[TreeCalls, int, int]],
        *,
        started_trees: int,
        call_ns: float,
        started_ns: int,
    ) -> int:
        """About how long it is from `now_ns` to the end of the last call.

        Args:
            open_calls: Tree, index and due time of each call of a tree that has started, that is in flight or whose due
                time is known.
            started_trees: Trees that lanes have taken, or the clock has started.
            call_ns: What a call takes on average, ns.
            started_ns: When the run began.
        """
        left_of_tree: dict[int, float] = {}
        for calls, index, due_ns in open_calls:
            tail = self._tails_of(calls)[index - calls.tree.first]
            left_ns = max(0.0, due_ns + call_ns - now_ns) + tail.length_ns(call_ns)
            number = calls.tree.number
            left_of_tree[number] = max(left_ns, left_of_tree.get(number, 0.0))
        lefts_ns = left_of_tree.values()
        last_ns = max(lefts_ns, default=0.0)
        unstarted = len(self._total) - 1 - started_trees
        if unstarted == 0:
            return round(last_ns)
        longest_ns = self._longest.chain(unstarted).length_ns(call_ns)
        if self._lanes is None:
            last_ns = max(last_ns, started_ns + longest_ns - now_ns)
        else:
            total_ns = sum(lefts_ns) + self._total.chain(unstarted).length_ns(call_ns)
            next_ns = min(lefts_ns, default=0.0) + longest_ns
            last_ns = max(last_ns, next_ns, total_ns / self._lanes)
        return round(last_ns)

    def _tails_of(self, calls: TreeCalls) -> list[Chain]:
        known = self._tails.get(calls)
        if known is None:
            known = self._tails[calls] = tails(calls.calls, self._usual_ns)
        return known


class _Chains:
    """Chains, one after another, 16 bytes each."""

    def __init__(self) -> None:
        self._gap_ns = array("q")
        self._calls = array("q")

    def __len__(self) -> int:
        return len(self._calls)

    def append(self, chain: Chain) -> None:
        self._gap_ns.append(chain.gap_ns)
        self._calls.append(chain.calls)

    def chain(self, place: int) -> Chain:
        return Chain(gap_ns=self._gap_ns[place], calls=self._calls[place])
