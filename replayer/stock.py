"""Pure: which request bodies to build before they are due, and the ones that are ready.

A body that is built when its call is due makes the call late, so bodies are built in idle time: as soon as nothing
of their text is open (with live history, when the answers they carry have come) and no earlier than `horizon_ns`
before they are expected, since they may be megabytes each. In the same time the calls of trees are made that are about
to start.
"""

import heapq
from collections.abc import Callable

from aitrace.units import NS_PER_S
from replayer.planning.gaps import PlannedDependency
from replayer.planning.plan import Plan
from replayer.planning.planned import PlannedCall, PlannedTree, TreeCalls

HORIZON_NS = 10 * NS_PER_S
_TREE_HORIZON_NS = 2 * NS_PER_S
MAX_READY_BYTES = 256 * 1024 * 1024


class _Tree:
    """A tree whose calls are expected, or are being played."""

    __slots__ = ("calls", "first", "is_over", "left", "open_waits")

    def __init__(self, calls: TreeCalls) -> None:
        self.calls = calls
        self.first = calls.tree.first
        self.open_waits = [len(call.after) for call in calls.calls]
        """Of each call."""
        self.is_over = [False] * len(calls.calls)
        """Whether the body of a call is built, or not needed any more."""
        self.left = len(calls.calls)
        """Calls that have neither ended nor been dropped."""


class BodyStock:
    """Bodies of calls to come. Times are ns on the clock of the run, whose planned times count from `start`."""

    def __init__(
        self,
        plan: Plan,
        build: Callable[[PlannedCall], bytes],
        *,
        needs_answers: bool,
        max_ready_bytes: int = MAX_READY_BYTES,
        horizon_ns: int = HORIZON_NS,
    ) -> None:
        """Take on a plan.

        Args:
            build: Writes the body of a call.
            needs_answers: Whether a body contains what the endpoint said to the calls before it.
            max_ready_bytes: Bytes of bodies that may lie ready before their calls are taken.
            horizon_ns: How long before it is expected a body may be built, ns.
        """
        self._plan = plan
        self._build = build
        self._needs_answers = needs_answers
        self._max_ready_bytes = max_ready_bytes
        self._horizon_ns = horizon_ns
        self._trees: dict[int, _Tree] = {}
        """By index of each of their calls."""
        self._expected: list[tuple[int, int]] = []
        self._next_tree = 0
        self._next: PlannedTree | None = plan.trees[0]
        """The tree with that place; None after the last one."""
        self._lanes_ahead = 0
        """Trees that lanes will take soon and whose calls are not made yet."""
        self._started_ns = 0
        self._awaited_ns = 0
        """When it was last said that lanes will take a tree soon."""
        self._ready: dict[int, bytes] = {}
        self._ready_bytes = 0
        self.late_builds = 0
        """Bodies that had to be built when their call was due."""

    def start(self, now_ns: int) -> None:
        """Begin the run: calls that wait for nothing are expected at their tree's start."""
        self._started_ns = self._awaited_ns = now_ns
        self._lanes_ahead = 0 if self._plan.lanes is None else self._plan.lanes + 1

    def on_sent(self, index: int, now_ns: int) -> None:
        """Call `index` was dispatched."""
        tree = self._tree(index)
        if self._plan.lanes is not None and index == tree.first:
            self._lanes_ahead += 1
            self._awaited_ns = now_ns
        call = tree.calls.call(index)
        for follower, wait in tree.calls.followers(index):
            if not self._waits_for_end(wait):
                ends_after_ns = _expected_duration_ns(call) if wait.trigger == "completion" else 0
                self._settle(tree, follower, now_ns + ends_after_ns + wait.gap_ns)

    def on_end(self, index: int, now_ns: int) -> None:
        """Call `index` is over."""
        tree = self._tree(index)
        for follower, wait in tree.calls.followers(index):
            if self._waits_for_end(wait):
                self._settle(tree, follower, now_ns + wait.gap_ns)
            elif tree.open_waits[follower - tree.first] == 0:
                # The answer may have taken much less time than the recorded one.
                heapq.heappush(self._expected, (now_ns + wait.gap_ns, follower))
        self._close_call(tree)

    def next_build_ns(self) -> int | None:
        """When there is something to build; None if there is nothing before something else happens."""
        upcoming = self._upcoming()
        if upcoming is None:
            return None
        expected_ns, what = upcoming
        is_tree = isinstance(what, PlannedTree)
        return expected_ns - (min(self._horizon_ns, _TREE_HORIZON_NS) if is_tree else self._horizon_ns)

    def next_call(self, now_ns: int) -> tuple[int, PlannedCall | PlannedTree] | None:
        """When the call whose body is to be built now is expected, and the call; None if there is nothing to build.

        A tree stands for its first call as long as its calls are not made.
        """
        at_ns = self.next_build_ns()
        return None if at_ns is None or at_ns > now_ns else self._upcoming()

    def build_next(self, now_ns: int) -> bool:
        """Build the body, or make the calls of the tree, that is expected first, if it is time to; tells whether."""
        upcoming = self.next_call(now_ns)
        if upcoming is None:
            return False
        _, what = upcoming
        if isinstance(what, PlannedTree):
            self._open_next_tree()
            return True
        heapq.heappop(self._expected)
        tree = self._trees[what.index]
        tree.is_over[what.index - tree.first] = True
        body = self._build(what)
        self._ready[what.index] = body
        self._ready_bytes += len(body)
        return True

    def take(self, index: int) -> bytes:
        """The body of call `index`, built now if it is not ready; each is given once."""
        tree = self._tree(index)
        tree.is_over[index - tree.first] = True
        body = self._ready.pop(index, None)
        if body is None:
            self.late_builds += 1
            return self._build(tree.calls.call(index))
        self._ready_bytes -= len(body)
        return body

    def drop(self, index: int, now_ns: int) -> None:
        """Call `index` will not be sent; what waits for it may still be (a parent that joins a lost sub-agent)."""
        tree = self._trees.get(index)
        if tree is None:
            return  # its whole tree will not be played
        tree.is_over[index - tree.first] = True
        self._ready_bytes -= len(self._ready.pop(index, b""))
        for follower, wait in tree.calls.followers(index):
            self._settle(tree, follower, now_ns + wait.gap_ns)
        self._close_call(tree)

    def _waits_for_end(self, wait: PlannedDependency) -> bool:
        return self._needs_answers and wait.trigger == "completion"

    def _settle(self, tree: _Tree, index: int, expected_ns: int) -> None:
        place = index - tree.first
        tree.open_waits[place] -= 1
        if tree.open_waits[place] == 0:
            heapq.heappush(self._expected, (expected_ns, index))

    def _close_call(self, tree: _Tree) -> None:
        tree.left -= 1
        if tree.left == 0:
            for call in tree.calls.calls:
                del self._trees[call.index]

    def _tree(self, index: int) -> _Tree:
        """The tree of a call that is being played; trees start in their order."""
        while index not in self._trees:
            self._open_next_tree()
        return self._trees[index]

    def _upcoming(self) -> tuple[int, PlannedCall | PlannedTree] | None:
        """What is to be built or made next, and when it is expected; None if nothing is."""
        while self._expected and not self._is_needed(self._expected[0][1]):
            heapq.heappop(self._expected)
        tree = self._upcoming_tree()
        if tree is not None and (not self._expected or tree[0] < self._expected[0][0]):
            return tree
        if not self._expected or self._ready_bytes >= self._max_ready_bytes:
            return None
        expected_ns, index = self._expected[0]
        return expected_ns, self._trees[index].calls.call(index)

    def _is_needed(self, index: int) -> bool:
        tree = self._trees.get(index)
        return tree is not None and not tree.is_over[index - tree.first]

    def _upcoming_tree(self) -> tuple[int, PlannedTree] | None:
        """The tree that starts next, and when, if that is known or a lane will take it soon."""
        if self._next is None or (self._plan.lanes is not None and not self._lanes_ahead):
            return None
        return self._expected_start_ns(self._next), self._next

    def _expected_start_ns(self, tree: PlannedTree) -> int:
        return self._awaited_ns if tree.start_ns is None else self._started_ns + tree.start_ns

    def _open_next_tree(self) -> None:
        trees, planned = self._plan.trees, self._plan.trees[self._next_tree]
        start_ns = self._expected_start_ns(planned)
        self._next_tree += 1
        self._next = trees[self._next_tree] if self._next_tree < len(trees) else None
        self._lanes_ahead -= self._plan.lanes is not None
        tree = _Tree(self._plan.calls_of(planned))
        for call in tree.calls.calls:
            self._trees[call.index] = tree
            if not call.after:
                heapq.heappush(self._expected, (start_ns + call.offset_ns, call.index))


def _expected_duration_ns(call: PlannedCall) -> int:
    if call.planned_ns is None or call.planned_end_ns is None:
        return 0
    return call.planned_end_ns - call.planned_ns
