"""Pure: which planned call is due when, given what has happened so far.

A call is due once everything it waits for has happened, at the latest of (moment + gap), not before its tree has
started. A call that failed for good loses its session: the calls of that session that were not handed out are never
sent, and sub-agents that those calls, or the failed one, had yet to spawn are lost with them. A call that waits to
join a lost sub-agent goes on, as if the sub-agent had ended when it was lost: its harness reports the failure as the
tool's result. A failed call of class `auxiliary` (a title, a classification) loses nothing, and neither does one that
primes a prompt, or any call of an absolute schedule.

State is held of trees that have started and are not over.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from aitrace.results import UnsentReason
from replayer.planning.plan import Plan
from replayer.planning.planned import PlannedTree, PlannedTrees, TreeCalls

_CallState = Literal["waiting", "handed_out", "sent", "ended", "unsent"]
_Unsent = tuple[int, UnsentReason]
_SessionState = Literal["idle", "active", "waiting", "done", "lost"]
_Count = Literal["sent", "unsent", "remaining", "trees_active", "trees_done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A call to be sent now."""

    index: int
    """Place in the plan."""
    due_ns: int
    """When it was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Counts for a live view."""

    sessions_idle: int
    """Sessions of which nothing was sent yet."""
    sessions_active: int
    """Sessions with a call in flight."""
    sessions_waiting: int
    """Sessions between two calls."""
    sessions_done: int
    """Sessions whose calls all ended."""
    sessions_lost: int
    """Sessions that will not send all their calls, with none in flight."""
    trees_active: int
    """Trees that have started and not ended."""
    trees_done: int
    """Trees of which nothing is in flight and nothing remains."""
    calls_sent: int
    """Calls handed out by `take_due`."""
    calls_in_flight: int
    """Calls handed out and not ended."""
    calls_unsent: int
    """Calls that will never be sent."""
    calls_remaining: int
    """Calls still to be sent."""


@dataclass(slots=True)
class _Session:
    members: list[int] = field(default_factory=list)
    """Its calls, by place in the tree."""
    in_flight: int = 0
    remaining: int = 0
    """Calls neither handed out nor lost."""
    is_started: bool = False
    has_lost: bool = False

    def state(self) -> _SessionState:
        if self.in_flight:
            return "active"
        if self.has_lost:
            return "lost"
        if not self.remaining:
            return "done"
        return "waiting" if self.is_started else "idle"


class _Tree:
    """A tree that has started; its calls are told by their place in it."""

    __slots__ = ("calls", "due_ns", "first", "is_sent", "open_calls", "open_waits", "sessions", "states")

    def __init__(self, calls: TreeCalls) -> None:
        self.calls = calls
        self.first = calls.tree.first
        self.states: list[_CallState] = ["waiting"] * len(calls.calls)
        self.open_waits = [len(call.after) for call in calls.calls]
        self.due_ns = [0] * len(calls.calls)
        self.open_calls = len(calls.calls)
        """Calls that are neither ended nor lost."""
        self.is_sent = False
        """Whether anything of it was handed out."""
        self.sessions: dict[int, _Session] = {}
        for place, call in enumerate(calls.calls):
            session = self.sessions.setdefault(call.session, _Session())
            session.members.append(place)
            session.remaining += 1


class Scheduler:
    """State of one replay. Times are ns on any one clock; `start` says where the run begins on it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._trees: dict[int, _Tree] = {}
        """Trees that have started and are not over, by index of each of their calls."""
        self._in_flight: dict[int, int] = {}
        """Due time of each call that was handed out and has not ended."""
        self._session_counts: Counter[_SessionState] = Counter({"idle": plan.sessions})
        self._counts: Counter[_Count] = Counter({"remaining": plan.call_count})
        self._heap: list[tuple[int, int]] = []
        self._next_tree = 0
        self._next: PlannedTree | None = plan.trees[0]
        """The tree with that place; None after the last one."""
        self._unstarted_calls = plan.call_count
        self._unstarted_sessions = plan.sessions
        self._started_ns = 0
        self._newly_lost: list[_Unsent] = []
        self._never_started: Iterator[_Unsent] = iter(())
        """What became lost of trees that had not started when the run was stopped."""
        self._is_stopped = False
        self.ran_out_ns: int | None = None
        """When a lane first found no tree left of a plan that holds some in store; None if that never came."""

    def start(self, now_ns: int) -> None:
        """Begin the run: planned start times count from `now_ns`."""
        self._started_ns = now_ns
        for _ in range(self._plan.lanes or 0):
            self._start_next_tree(now_ns)

    def next_due_ns(self) -> int | None:
        """When the next call is due; None if none is, before something else happens."""
        while self._heap and not self._is_waiting(self._heap[0][1]):
            heapq.heappop(self._heap)  # lost while it waited for its time
        start_ns = self._next_start_ns()
        if self._heap:
            due_ns = self._heap[0][0]
            return due_ns if start_ns is None else min(due_ns, start_ns)
        return start_ns

    def _is_waiting(self, index: int) -> bool:
        tree = self._trees.get(index)
        return tree is not None and tree.states[index - tree.first] == "waiting"

    def _next_start_ns(self) -> int | None:
        """When the clock starts the next tree; None if it starts none any more."""
        if self._plan.lanes is not None or self._is_stopped or self._next is None:
            return None
        return self._started_ns + (self._next.start_ns or 0)

    def take_due(self, now_ns: int) -> list[Send]:
        """Calls due by `now_ns`, by due time, then index; each is handed out once and counts as in flight."""
        sends: list[Send] = []
        while (start_ns := self._next_start_ns()) is not None and start_ns <= now_ns:
            self._start_tree(start_ns)
        while (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            _, index = heapq.heappop(self._heap)
            self._in_flight[index] = due_ns
            self._hand_out(index)
            sends.append(Send(index=index, due_ns=due_ns))
        return sends

    def on_sent(self, index: int, now_ns: int) -> None:
        """The call's request has gone out; what is said of further attempts has no effect."""
        tree = self._trees[index]
        if tree.states[index - tree.first] == "handed_out":
            tree.states[index - tree.first] = "sent"
            for dependent, dependency in tree.calls.followers(index):
                if dependency.trigger == "dispatch":
                    self._resolve(tree, dependent, dependency.due_ns(now_ns, None, None))

    def on_end(
        self,
        index: int,
        now_ns: int,
        *,
        ok: bool,
        first_token_ns: int | None = None,
        last_token_ns: int | None = None,
    ) -> None:
        """The call is over; `ok=False` means that it failed for good, after all retries.

        Raises:
            ValueError: The call is not in flight.
        """
        if index not in self._in_flight:
            raise ValueError(f"call {index} is not in flight")
        tree = self._trees[index]
        if ok or self._loses_nothing(tree, index):
            self.on_sent(index, now_ns)  # an answer proves that the request went out
            for dependent, dependency in tree.calls.followers(index):
                if dependency.trigger == "completion":
                    self._resolve(tree, dependent, dependency.due_ns(now_ns, first_token_ns, last_token_ns))
        else:
            self._lose_from(tree, index, now_ns)
        tree.states[index - tree.first] = "ended"
        del self._in_flight[index]
        self._change_session(tree, index, in_flight=-1)
        self._close_call(tree)
        if tree.open_calls == 0 and self._plan.lanes is not None:
            self._start_next_tree(now_ns)

    def unsent(self) -> Iterator[_Unsent]:
        """Calls that became lost since the last time this was asked, by index, and why."""
        lost, self._newly_lost = self._newly_lost, []
        never_started, self._never_started = self._never_started, iter(())
        return chain(lost, never_started)

    def stop(self, reason: UnsentReason = "interrupted") -> None:
        """End early: what was not handed out yet never will be, and no lane takes a tree any more.

        Of trees that a plan held in store for lanes and none has taken, nothing is told as unsent.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        for tree in dict.fromkeys(self._trees.values()):
            for place, state in enumerate(tree.states):
                if state == "waiting":
                    self._give_up(tree, place, reason)
        self._counts["remaining"] -= self._unstarted_calls
        if self._plan.is_spare:
            return
        unstarted = self._plan.trees[self._next_tree :]
        self._never_started = (
            (index, reason) for tree in unstarted for index in range(tree.first, tree.first + tree.count)
        )
        self._counts["unsent"] += self._unstarted_calls
        self._counts["trees_done"] += len(unstarted)
        self._session_counts["idle"] -= self._unstarted_sessions
        self._session_counts["lost"] += self._unstarted_sessions

    @property
    def unstarted_trees(self) -> PlannedTrees:
        """Trees that a plan holds in store for lanes and none has taken so far."""
        return self._plan.trees[self._next_tree if self._plan.is_spare else len(self._plan.trees) :]

    @property
    def is_done(self) -> bool:
        """Whether nothing is in flight and nothing remains."""
        return not self._in_flight and not self._counts["remaining"]

    @property
    def started_trees(self) -> int:
        """Trees that lanes have taken, or the clock has started, so far."""
        return self._next_tree

    def open_calls(self) -> Iterator[tuple[TreeCalls, int, int]]:
        """Tree, index and due time of each call in flight, or of a started tree and waiting for its time alone."""
        for index, due_ns in self._in_flight.items():
            yield self._trees[index].calls, index, due_ns
        for due_ns, index in self._heap:
            if self._is_waiting(index):
                yield self._trees[index].calls, index, due_ns

    def progress(self) -> Progress:
        """Counts as of now."""
        return Progress(
            sessions_idle=self._session_counts["idle"],
            sessions_active=self._session_counts["active"],
            sessions_waiting=self._session_counts["waiting"],
            sessions_done=self._session_counts["done"],
            sessions_lost=self._session_counts["lost"],
            trees_active=self._counts["trees_active"],
            trees_done=self._counts["trees_done"],
            calls_sent=self._counts["sent"],
            calls_in_flight=len(self._in_flight),
            calls_unsent=self._counts["unsent"],
            calls_remaining=self._counts["remaining"],
        )

    def _start_next_tree(self, now_ns: int) -> None:
        if self._is_stopped:
            return
        if self._next_tree == len(self._plan.trees):
            if self._plan.is_spare and self.ran_out_ns is None:
                self.ran_out_ns = now_ns
        else:
            self._start_tree(now_ns)

    def _start_tree(self, start_ns: int) -> None:
        trees, planned = self._plan.trees, self._plan.trees[self._next_tree]
        self._next_tree += 1
        self._next = trees[self._next_tree] if self._next_tree < len(trees) else None
        self._unstarted_calls -= planned.count
        self._unstarted_sessions -= planned.sessions
        tree = _Tree(self._plan.calls_of(planned))
        for call in tree.calls.calls:
            self._trees[call.index] = tree
            if not call.after:
                heapq.heappush(self._heap, (start_ns + call.offset_ns, call.index))

    def _hand_out(self, index: int) -> None:
        tree = self._trees[index]
        tree.states[index - tree.first] = "handed_out"
        self._counts["sent"] += 1
        self._counts["remaining"] -= 1
        self._change_session(tree, index, in_flight=1, remaining=-1)
        if not tree.is_sent:
            tree.is_sent = True
            self._counts["trees_active"] += 1

    def _resolve(self, tree: _Tree, index: int, due_ns: int) -> None:
        """Take in that one of the things a call waits for has happened."""
        place = index - tree.first
        tree.open_waits[place] -= 1
        tree.due_ns[place] = max(tree.due_ns[place], due_ns)
        if not tree.open_waits[place] and tree.states[place] == "waiting":
            heapq.heappush(self._heap, (tree.due_ns[place], index))

    def _loses_nothing(self, tree: _Tree, failed: int) -> bool:
        call = tree.calls.call(failed)
        return call.call_class == "auxiliary" or call.phase == "prime" or self._plan.is_absolute

    def _lose_from(self, tree: _Tree, failed: int, now_ns: int) -> None:
        """Give up what cannot happen without a failed call, and let go on what only waited to join it."""
        without = [failed, *self._give_up_session_from(tree, failed + 1, failed)]
        while without:
            index = without.pop()
            was_sent = tree.states[index - tree.first] == "sent"
            for dependent, dependency in tree.calls.followers(index):
                if was_sent and dependency.trigger == "dispatch":
                    continue  # has happened
                if dependency.relation == "join":
                    self._resolve(tree, dependent, dependency.due_ns(now_ns, None, None))
                else:
                    without.extend(self._give_up_session_from(tree, dependent, dependent))

    def _give_up_session_from(self, tree: _Tree, first: int, member: int) -> list[int]:
        """Give up the calls from index `first` on of the session that `member` belongs to; tells which."""
        members = tree.sessions[tree.calls.call(member).session].members
        later = members[bisect_left(members, first - tree.first) :]
        given_up = [place for place in later if tree.states[place] == "waiting"]
        for place in given_up:
            self._give_up(tree, place, "session_lost")
        return [tree.first + place for place in given_up]

    def _give_up(self, tree: _Tree, place: int, reason: UnsentReason) -> None:
        tree.states[place] = "unsent"
        self._newly_lost.append((tree.first + place, reason))
        self._counts["unsent"] += 1
        self._counts["remaining"] -= 1
        self._change_session(tree, tree.first + place, remaining=-1)
        self._close_call(tree)

    def _close_call(self, tree: _Tree) -> None:
        tree.open_calls -= 1
        if tree.open_calls == 0:
            self._counts["trees_done"] += 1
            self._counts["trees_active"] -= tree.is_sent
            for call in tree.calls.calls:
                del self._trees[call.index]

    def _change_session(self, tree: _Tree, index: int, *, in_flight: int = 0, remaining: int = 0) -> None:
        session = tree.sessions[tree.calls.call(index).session]
        self._session_counts[session.state()] -= 1
        session.in_flight += in_flight
        session.remaining += remaining
        session.is_started = session.is_started or in_flight > 0
        session.has_lost = session.has_lost or tree.states[index - tree.first] == "unsent"
        self._session_counts[session.state()] += 1
