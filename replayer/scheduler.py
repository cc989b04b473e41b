"""Pure: which planned call is due when, given what has happened so far.

A call is due once everything it waits for has happened, at the latest of (moment + gap), not before its tree has
started. A call that failed for good loses its session: the calls of that session that were not handed out are never
sent, and sub-agents that those calls, or the failed one, had yet to spawn are lost with them. A call that waits to
join a lost sub-agent goes on, as if the sub-agent had ended when it was lost: its harness reports the failure as the
tool's result. A failed call of class `auxiliary` (a title, a classification) loses nothing.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from aitrace.results import UnsentReason
from replayer.plan import Plan, PlannedTree, followers

_CallState = Literal["waiting", "handed_out", "sent", "ended", "unsent"]
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


@dataclass(slots=True)
class _Tree:
    open_calls: int
    """Calls that are neither ended nor lost."""
    is_started: bool = False


class Scheduler:
    """State of one replay. Times are ns on any one clock; `start` says where the run begins on it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._states: list[_CallState] = ["waiting"] * len(plan.calls)
        self._open_dependencies = [len(call.after) for call in plan.calls]
        self._due_ns = [0] * len(plan.calls)
        self._followers = followers(plan.calls)
        self._in_flight: dict[int, int] = {}
        """Due time of each call that was handed out and has not ended."""
        self._trees = [_Tree(open_calls=tree.count) for tree in plan.trees]
        self._tree_of = [number for number, tree in enumerate(plan.trees) for _ in range(tree.count)]
        self._sessions: dict[tuple[int, int], _Session] = {}
        for call in plan.calls:
            session = self._sessions.setdefault((call.instance, call.session), _Session())
            session.members.append(call.index)
            session.remaining += 1
        self._session_counts: Counter[_SessionState] = Counter(s.state() for s in self._sessions.values())
        self._counts: Counter[_Count] = Counter({"remaining": len(plan.calls)})
        self._heap: list[tuple[int, int]] = []
        self._next_tree = 0
        self._newly_lost: list[tuple[int, UnsentReason]] = []

    def start(self, now_ns: int) -> None:
        """Begin the run: planned start times count from `now_ns`."""
        if self._plan.lanes is None:
            for tree in self._plan.trees:
                self._start_tree(tree, now_ns + (tree.start_ns or 0))
        else:
            for _ in range(self._plan.lanes):
                self._start_next_tree(now_ns)

    def next_due_ns(self) -> int | None:
        """When the next call is due; None if none is, before something else happens."""
        while self._heap and self._states[self._heap[0][1]] != "waiting":
            heapq.heappop(self._heap)  # lost while it waited for its time
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> list[Send]:
        """Calls due by `now_ns`, by due time, then index; each is handed out once and counts as in flight."""
        sends: list[Send] = []
        while (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            _, index = heapq.heappop(self._heap)
            self._in_flight[index] = due_ns
            self._hand_out(index)
            sends.append(Send(index=index, due_ns=due_ns))
        return sends

    def on_sent(self, index: int, now_ns: int) -> None:
        """The call's request has gone out; what is said of further attempts has no effect."""
        if self._states[index] == "handed_out":
            self._states[index] = "sent"
            for dependent, dependency in self._followers[index]:
                if dependency.trigger == "dispatch":
                    self._resolve(dependent, dependency.due_ns(now_ns, None, None))

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
        if self._states[index] not in ("handed_out", "sent"):
            raise ValueError(f"call {index} is {self._states[index]!r}, expected one in flight")
        if ok or self._plan.calls[index].call_class == "auxiliary":
            self.on_sent(index, now_ns)  # an answer proves that the request went out
            for dependent, dependency in self._followers[index]:
                if dependency.trigger == "completion":
                    self._resolve(dependent, dependency.due_ns(now_ns, first_token_ns, last_token_ns))
        else:
            self._lose_from(index, now_ns)
        self._states[index] = "ended"
        del self._in_flight[index]
        self._change_session(index, in_flight=-1)
        self._close_call(index)
        if self._trees[self._tree_of[index]].open_calls == 0 and self._plan.lanes is not None:
            self._start_next_tree(now_ns)

    def unsent(self) -> list[tuple[int, UnsentReason]]:
        """Calls that became lost since the last time this was asked."""
        lost, self._newly_lost = self._newly_lost, []
        return lost

    def stop(self) -> None:
        """Interrupt: what was not handed out yet never will be."""
        for index, state in enumerate(self._states):
            if state == "waiting":
                self._give_up(index, "interrupted")

    @property
    def is_done(self) -> bool:
        """Whether nothing is in flight and nothing remains."""
        return not self._in_flight and not self._counts["remaining"]

    @property
    def started_trees(self) -> int:
        """Trees that lanes have taken so far."""
        return self._next_tree

    def open_calls(self) -> Iterator[tuple[int, int]]:
        """Index and due time of each call that is in flight, or that waits for nothing but its time."""
        yield from self._in_flight.items()
        for due_ns, index in self._heap:
            if self._states[index] == "waiting":
                yield index, due_ns

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
        if self._next_tree < len(self._trees):
            self._next_tree += 1
            self._start_tree(self._plan.trees[self._next_tree - 1], now_ns)

    def _start_tree(self, tree: PlannedTree, start_ns: int) -> None:
        for call in self._plan.calls[tree.first : tree.first + tree.count]:
            if not call.after:
                heapq.heappush(self._heap, (start_ns + call.offset_ns, call.index))

    def _hand_out(self, index: int) -> None:
        self._states[index] = "handed_out"
        self._counts["sent"] += 1
        self._counts["remaining"] -= 1
        self._change_session(index, in_flight=1, remaining=-1)
        tree = self._trees[self._tree_of[index]]
        if not tree.is_started:
            tree.is_started = True
            self._counts["trees_active"] += 1

    def _resolve(self, index: int, due_ns: int) -> None:
        """Take in that one of the things a call waits for has happened."""
        self._open_dependencies[index] -= 1
        self._due_ns[index] = max(self._due_ns[index], due_ns)
        if not self._open_dependencies[index] and self._states[index] == "waiting":
            heapq.heappush(self._heap, (self._due_ns[index], index))

    def _lose_from(self, failed: int, now_ns: int) -> None:
        """Give up what cannot happen without a failed call, and let go on what only waited to join it."""
        without = [failed, *self._give_up_session_from(failed + 1, failed)]
        while without:
            index = without.pop()
            was_sent = self._states[index] == "sent"
            for dependent, dependency in self._followers[index]:
                if was_sent and dependency.trigger == "dispatch":
                    continue  # has happened
                if dependency.relation == "join":
                    self._resolve(dependent, dependency.due_ns(now_ns, None, None))
                else:
                    without.extend(self._give_up_session_from(dependent, dependent))

    def _give_up_session_from(self, first: int, member: int) -> list[int]:
        """Give up the calls from index `first` on of the session that `member` belongs to; tells which."""
        call = self._plan.calls[member]
        members = self._sessions[call.instance, call.session].members
        later = members[bisect_left(members, first) :]
        given_up = [index for index in later if self._states[index] == "waiting"]
        for index in given_up:
            self._give_up(index, "session_lost")
        return given_up

    def _give_up(self, index: int, reason: UnsentReason) -> None:
        self._states[index] = "unsent"
        self._newly_lost.append((index, reason))
        self._counts["unsent"] += 1
        self._counts["remaining"] -= 1
        self._change_session(index, remaining=-1)
        self._close_call(index)

    def _close_call(self, index: int) -> None:
        tree = self._trees[self._tree_of[index]]
        tree.open_calls -= 1
        if tree.open_calls == 0:
            self._counts["trees_done"] += 1
            self._counts["trees_active"] -= tree.is_started

    def _change_session(self, index: int, *, in_flight: int = 0, remaining: int = 0) -> None:
        call = self._plan.calls[index]
        session = self._sessions[call.instance, call.session]
        self._session_counts[session.state()] -= 1
        session.in_flight += in_flight
        session.remaining += remaining
        session.is_started = session.is_started or in_flight > 0
        session.has_lost = session.has_lost or self._states[index] == "unsent"
        self._session_counts[session.state()] += 1
