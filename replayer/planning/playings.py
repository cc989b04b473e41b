"""Pure: the trees that a plan plays: what is known of all of them, and the calls of each while it is played."""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from random import Random
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from aitrace.columns import call_columns
from aitrace.errors import AitraceError, InputError, UsageError
from aitrace.schema import Trace
from replayer.planning.brief import BriefTrees
from replayer.planning.mid_start import MidStart, start_midway
from replayer.planning.options import LoadOptions
from replayer.planning.outline import (
    OutlinedCall,
    Outlines,
    TreeFacts,
    counts_of,
    counts_of_brief,
    facts_of,
    outline_of,
)
from replayer.planning.planned import PlannedTree, TreeCalls
from replayer.planning.trace_trees import LeftOut, TracedTree, TraceTrees
from replayer.planning.tree_calls import Recording, TreePlan, plan_calls

_KEPT_CALLS = 2_000
_NOTHING_LEFT_OUT: Mapping[LeftOut, int] = Counter()
_Made = TypeVar("_Made")


class Playings:
    """The trees of a trace that are played, in turn and again and again, and the calls of each playing."""

    def __init__(self, trace: Trace, options: LoadOptions) -> None:
        """Look once at each tree of a trace.

        Raises:
            UsageError: No tree meets the conditions, or no call fits into the window.
            InputError: A trace without a call to play.
        """
        self._trees = TraceTrees(trace, options)
        self.trace = self._trees.trace
        """What is played, see `TraceTrees.trace`."""
        self.recording = Recording(self.trace)
        """What is known of its calls."""
        self.unmet_trees = self._trees.unmet
        """Trees with a call to play that do not meet the conditions."""
        self.roots: list[int] = []
        """Root session of each tree that is played, in order of their starts."""
        self.recorded_ns: list[int] = []
        """When each of them started in the recording."""
        self.left_out: list[Mapping[LeftOut, int]] = []
        """What of each of them is not played, or not as it was."""
        self.left_out_whole: list[Mapping[LeftOut, int]] = []
        """The same of the trees of which nothing is played."""
        self._options = options
        self._places: list[int] = []
        """Place of each of them among the trees of the trace."""
        self._outlines = Outlines()
        self._facts: list[TreeFacts] = []
        """By place among the outlines, the order in which the trees were looked at."""
        self._outlined: list[int] = []
        """Place of each tree among them."""
        self._held: WeakValueDictionary[int, TreeCalls] = WeakValueDictionary()
        self._latest_calls = _Latest[TreeCalls]()
        self._latest_trees = _Latest[TracedTree]()
        self._latest_plans = _Latest[tuple[MidStart, TreePlan]]()
        self._look()

    def __len__(self) -> int:
        """Trees of the trace that are played."""
        return len(self.roots)

    @property
    def differ(self) -> bool:
        """Whether each playing of a tree starts at another point of it."""
        return self._options.start_at is not None

    def facts(self, number: int) -> TreeFacts:
        """Playing `number`, counted from 0 over all trees, in numbers."""
        if not self.differ:
            return self._facts[self._outlined[number % len(self)]]
        return self._facts_from(*self._from_zero(number))

    def outline(self, number: int) -> list[OutlinedCall]:
        """The outline of playing `number`."""
        if not self.differ:
            return self._outlines.calls(self._outlined[number % len(self)])
        return outline_of(self._from_zero(number)[1].calls)

    def calls(self, tree: PlannedTree) -> TreeCalls:
        """The calls of a tree of the plan: the same object as long as somebody holds it, and a while longer."""
        known = self._held.get(tree.number)
        if known is None:
            planned = plan_calls(self.recording, tree, self._start(tree.number), self._options)
            known = self._held[tree.number] = TreeCalls(tree, planned.calls)
            self._latest_calls.put(tree.number, known, tree.count)
        return known

    def held(self, number: int) -> TreeCalls | None:
        """The calls of tree `number`, if they are at hand."""
        return self._held.get(number)

    def _look(self) -> None:
        found: list[tuple[int, int, int, Mapping[LeftOut, int]]] = []
        brief_trees = self._brief_trees()
        for place in range(len(self._trees)):
            brief = None if brief_trees is None else brief_trees.tree(self._trees.members(place))
            if brief is not None:
                found.append((brief.recorded_start_ns, self._trees.root(place), place, _NOTHING_LEFT_OUT))
                self._outlines.add(brief.calls)
                counts = counts_of_brief(brief)
                self._facts.append(facts_of(brief.calls, counts, self.recording.mean_duration_ns))
                continue
            tree = self._trees.tree(place)
            if not tree.calls:
                self.left_out_whole.append(tree.left_out)
                continue
            found.append((tree.recorded_start_ns, tree.root, place, tree.left_out))
            if not self.differ:
                start = MidStart(calls=tree.calls, before=())
                planned = self._plan_from_zero(tree.root, start)
                self._outlines.add(planned.calls)
                self._facts.append(self._facts_from(start, planned))
        if not found:
            raise self._nothing_to_play()
        # Where starts cannot be compared, trees are played in the order of the trace.
        is_timed = self.trace.header.clock_scope == "trace"
        self._outlined = sorted(
            range(len(found)), key=lambda number: (found[number][0] if is_timed else 0, found[number][1])
        )
        for recorded_ns, root, place, left_out in map(found.__getitem__, self._outlined):
            self.recorded_ns.append(recorded_ns)
            self.roots.append(root)
            self._places.append(place)
            self.left_out.append(left_out)

    def _brief_trees(self) -> BriefTrees | None:
        """What makes plain trees without their calls; None if calls have to be looked at for what is played."""
        if self.differ or self._options.context_tokens is not None:
            return None
        return BriefTrees(call_columns(self.trace), self.recording.usual_duration_ns, self._options)

    def _nothing_to_play(self) -> AitraceError:
        if any(left_out["over_calls"] for left_out in self.left_out_whole):
            return UsageError(
                f"no call fits into a context of {self._options.context_tokens:,} tokens",
                hint="Give a larger --context, or --over-context compact.",
            )
        return InputError("the trace has no call to play", hint="`aitrace inspect` shows what is in it.")

    def _start(self, number: int) -> MidStart:
        """From where playing `number` plays its tree."""
        playing, place = divmod(number, len(self))
        tree = self._latest_trees.get(place)
        if tree is None:
            tree = self._trees.tree(self._places[place])
            self._latest_trees.put(place, tree, len(tree.calls))
        where = self._options.start_at
        if where is None:
            return MidStart(calls=tree.calls, before=())
        return start_midway(tree.calls, where, Random(f"{self._options.seed} {tree.root} {playing}"))

    def _from_zero(self, number: int) -> tuple[MidStart, TreePlan]:
        known = self._latest_plans.get(number)
        if known is None:
            start = self._start(number)
            known = start, self._plan_from_zero(self.roots[number % len(self)], start)
            self._latest_plans.put(number, known, len(known[1].calls))
        return known

    def _plan_from_zero(self, root: int, start: MidStart) -> TreePlan:
        tree = PlannedTree(
            number=0, instance=1, root=root, start_ns=0, planned_ns=0, first=0, count=0, sessions=0
        )
        return plan_calls(self.recording, tree, start, self._options)

    def _facts_from(self, start: MidStart, planned: TreePlan) -> TreeFacts:
        played = (*start.before, *start.calls) if self._options.prime else start.calls
        counts = counts_of([one.call for one in played], planned.waits)
        return facts_of(planned.calls, counts, self.recording.mean_duration_ns)


class _Latest(Generic[_Made]):
    """The latest of what was made of trees: of at most `_KEPT_CALLS` calls, or a single one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[_Made, int]] = OrderedDict()
        self._calls = 0

    def get(self, key: int) -> _Made | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: int, made: _Made, calls: int) -> None:
        """Keep what was made of a tree with so many calls."""
        self._kept[key] = (made, calls)
        self._calls += calls
        while self._calls > _KEPT_CALLS and len(self._kept) > 1:
            self._calls -= self._kept.popitem(last=False)[1][1]
