"""Pure: which request bodies to build before they are due, and the ones that are ready.

A body that is built when its call is due makes the call late, so bodies are built in idle time: as soon as nothing
of their text is open (with live history, when the answers they carry have come) and no earlier than `horizon_ns`
before they are expected, since they may be megabytes each.
"""

import heapq
from collections.abc import Callable

from aitrace.units import NS_PER_S
from replayer.gaps import PlannedDependency
from replayer.plan import Plan, PlannedCall, followers

HORIZON_NS = 10 * NS_PER_S
MAX_READY_BYTES = 256 * 1024 * 1024


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
        self._open_waits = [len(call.after) for call in plan.calls]
        self._followers = followers(plan.calls)
        self._expected: list[tuple[int, int]] = []
        self._next_tree = 0
        self._ready: dict[int, bytes] = {}
        self._ready_bytes = 0
        self._over: set[int] = set()
        """Calls whose bodies are built, or not needed any more."""
        self.late_builds = 0
        """Bodies that had to be built when their call was due."""

    def start(self, now_ns: int) -> None:
        """Begin the run: calls that wait for nothing are expected at their tree's start."""
        ahead = len(self._plan.trees) if self._plan.lanes is None else self._plan.lanes + 1
        for _ in range(ahead):
            self._expect_next_tree(now_ns)

    def on_sent(self, index: int, now_ns: int) -> None:
        """Call `index` was dispatched."""
        call = self._plan.calls[index]
        if not call.after and self._plan.lanes is not None and call.turn_index == 0:
            self._expect_next_tree(now_ns)
        for follower, wait in self._followers[index]:
            if not self._waits_for_end(wait):
                ends_after_ns = _expected_duration_ns(call) if wait.trigger == "completion" else 0
                self._settle(follower, now_ns + ends_after_ns + wait.gap_ns)

    def on_end(self, index: int, now_ns: int) -> None:
        """Call `index` is over."""
        for follower, wait in self._followers[index]:
            if self._waits_for_end(wait):
                self._settle(follower, now_ns + wait.gap_ns)
            elif self._open_waits[follower] == 0:
                # The answer may have taken much less time than the recorded one.
                heapq.heappush(self._expected, (now_ns + wait.gap_ns, follower))

    def next_build_ns(self) -> int | None:
        """When there is something to build; None if there is nothing before something else happens."""
        self._skip_over()
        if not self._expected or self._ready_bytes >= self._max_ready_bytes:
            return None
        return self._expected[0][0] - self._horizon_ns

    def next_call(self, now_ns: int) -> tuple[int, PlannedCall] | None:
        """When the call whose body is to be built now is expected, and the call; None if there is nothing to build."""
        at_ns = self.next_build_ns()
        if at_ns is None or at_ns > now_ns:
            return None
        expected_ns, index = self._expected[0]
        return expected_ns, self._plan.calls[index]

    def build_next(self, now_ns: int) -> bool:
        """Build the body that is expected first, if it is time to; tells whether one was built."""
        if self.next_call(now_ns) is None:
            return False
        _, index = heapq.heappop(self._expected)
        self._over.add(index)
        body = self._build(self._plan.calls[index])
        self._ready[index] = body
        self._ready_bytes += len(body)
        return True

    def take(self, index: int) -> bytes:
        """The body of call `index`, built now if it is not ready; each is given once."""
        self._over.add(index)
        body = self._ready.pop(index, None)
        if body is None:
            self.late_builds += 1
            return self._build(self._plan.calls[index])
        self._ready_bytes -= len(body)
        return body

    def drop(self, index: int, now_ns: int) -> None:
        """Call `index` will not be sent; what waits for it may still be (a parent that joins a lost sub-agent)."""
        self._over.add(index)
        self._ready_bytes -= len(self._ready.pop(index, b""))
        for follower, wait in self._followers[index]:
            self._settle(follower, now_ns + wait.gap_ns)

    def _waits_for_end(self, wait: PlannedDependency) -> bool:
        return self._needs_answers and wait.trigger == "completion"

    def _settle(self, index: int, expected_ns: int) -> None:
        self._open_waits[index] -= 1
        if self._open_waits[index] == 0:
            heapq.heappush(self._expected, (expected_ns, index))

    def _expect_next_tree(self, now_ns: int) -> None:
        if self._next_tree == len(self._plan.trees):
            return
        tree = self._plan.trees[self._next_tree]
        self._next_tree += 1
        start_ns = now_ns + (tree.start_ns or 0)
        for call in self._plan.calls[tree.first : tree.first + tree.count]:
            if not call.after:
                heapq.heappush(self._expected, (start_ns + call.offset_ns, call.index))

    def _skip_over(self) -> None:
        while self._expected and self._expected[0][1] in self._over:
            heapq.heappop(self._expected)


def _expected_duration_ns(call: PlannedCall) -> int:
    if call.planned_ns is None or call.planned_end_ns is None:
        return 0
    return call.planned_end_ns - call.planned_ns
