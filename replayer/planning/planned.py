"""Pure: the calls and trees of a plan: trees as a few bytes each, the calls of one tree as it is played."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from aitrace.results import Phase
from aitrace.schema import CallClass, GapCause
from replayer.planning.gaps import PlannedDependency

NO_TIME = -1
"""In place of None where times are kept in arrays; planned times are never below 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One request to be sent."""

    index: int
    """Place in the plan."""
    instance: int
    """Which playing of its tree this belongs to, from 1."""
    session: int
    """Session of the trace."""
    root: int
    """Root session of its tree."""
    call: int
    """Call of the trace that it plays."""
    call_class: CallClass
    """What the call is for."""
    turn_index: int
    """Position within its session, from 0."""
    turn: int | None
    """Index of the user's prompt within the tree; None if not known."""
    window: int
    """How often the session's history had been replaced."""
    session_calls: int
    """How many calls its session has in this playing."""
    after: tuple[PlannedDependency, ...]
    """What it waits for; empty = only for the start of its tree."""
    offset_ns: int
    """Not due before its tree's start plus this, ns; above 0 only where a call waits for nothing and is not the
    first of its tree."""
    gap_ns: int | None
    """Gap of the dependency that was the last to be fulfilled in the recording; None if it waits for nothing."""
    gap_cause: GapCause | None
    """Cause of that gap; None if it waits for nothing."""
    prompt_size: int
    """Size of its prompt in the trace's unit."""
    prompt_tokens: int
    """Size of its prompt, tokens."""
    output_tokens: int
    """Tokens of its answer, at least 1."""
    max_output_tokens: int
    """Limit put into the request."""
    streamed: bool
    """Whether the answer is asked for as a stream."""
    planned_ns: int | None
    """When it is due if every answer takes its recorded time, ns from the start; None if that is not known."""
    planned_end_ns: int | None
    """When its answer ends then, by the median length of the others if its own is not known; None if no call of the
    trace has a known end."""
    phase: Phase = "measured"
    """Whether it belongs to what is measured; calls of a warm-up by time are told only when they are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTree:
    """One playing of one tree."""

    number: int
    """Place among the trees of the plan."""
    instance: int
    """Which playing of the tree, from 1."""
    root: int
    """Root session of the trace's tree."""
    start_ns: int | None
    """When it starts, ns from the start of the run; None where a lane starts it."""
    planned_ns: int | None
    """When it starts if every answer takes its recorded time, in lanes too; None if that is not known."""
    first: int
    """Index of its first call."""
    count: int
    """Number of its calls; they follow each other in the plan."""
    sessions: int
    """Number of its sessions."""
    is_warm_up: bool = False
    """Whether it is one of the trees that are played first and not measured."""


class TreeTable:
    """All trees of a plan, 20 bytes each: the trees of a trace in turn, each playing with a start of its own."""

    def __init__(self, roots: Sequence[int], *, is_open_loop: bool, warm_up_trees: int) -> None:
        """Take on the trees of a trace, which are played in this order, again and again.

        Args:
            is_open_loop: Whether the clock starts trees; else lanes do.
            warm_up_trees: How many are played first and not measured.
        """
        self._roots = roots
        self._is_open_loop = is_open_loop
        self._warm_up_trees = warm_up_trees
        self._planned_ns = array("q")
        self._firsts = array("q", [0])
        self._sessions = array("i")

    def __len__(self) -> int:
        return len(self._planned_ns)

    def add(self, planned_ns: int | None, *, count: int, sessions: int) -> None:
        """Plan another tree, of so many calls and sessions."""
        self._planned_ns.append(NO_TIME if planned_ns is None else planned_ns)
        self._firsts.append(self._firsts[-1] + count)
        self._sessions.append(sessions)

    def tree(self, number: int) -> PlannedTree:
        """Tree `number`, from 0."""
        playing, place = divmod(number, len(self._roots))
        first, planned_ns = self._firsts[number], self._planned_ns[number]
        return PlannedTree(
            number=number,
            instance=playing + 1,
            root=self._roots[place],
            start_ns=planned_ns if self._is_open_loop else None,
            planned_ns=None if planned_ns == NO_TIME else planned_ns,
            first=first,
            count=self._firsts[number + 1] - first,
            sessions=self._sessions[number],
            is_warm_up=number < self._warm_up_trees,
        )

    def number_of(self, index: int) -> int:
        """Number of the tree that holds call `index`."""
        return bisect_right(self._firsts, index) - 1


class PlannedTrees(Sequence[PlannedTree]):
    """Trees of a table, all or some of them; each is made when it is asked for."""

    def __init__(self, table: TreeTable, numbers: range | None = None) -> None:
        """Take on a table, and the numbers of the trees; None for all that it has now."""
        self._table = table
        self._numbers = range(len(table)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> PlannedTree: ...
    @overload
    def __getitem__(self, place: slice) -> "PlannedTrees": ...
    def __getitem__(self, place: int | slice) -> "PlannedTree | PlannedTrees":
        if isinstance(place, slice):
            return PlannedTrees(self._table, self._numbers[place])
        return self._table.tree(self._numbers[place])

    def __iter__(self) -> Iterator[PlannedTree]:
        return map(self._table.tree, self._numbers)

    def number_of(self, index: int) -> int:
        """Number of the tree that holds call `index` of the plan."""
        return self._table.number_of(index)

    def tree(self, number: int) -> PlannedTree:
        """The tree with this number in the plan, whether it is one of these or not."""
        return self._table.tree(number)


Followers = list[tuple[int, PlannedDependency]]
"""Calls that wait for one, by index, and in what way."""


class TreeCalls:
    """The calls of one playing of a tree; whoever plays it holds on to it, and with the last of them it is gone."""

    __slots__ = ("__weakref__", "_followers", "calls", "tree")

    def __init__(self, tree: PlannedTree, calls: tuple[PlannedCall, ...]) -> None:
        self.tree = tree
        """Whose calls these are."""
        self.calls = calls
        """By index, from that of the tree's first one; every call comes after those it waits for."""
        self._followers: list[Followers] = [[] for _ in calls]
        for call in calls:
            for dependency in call.after:
                self._followers[dependency.index - tree.first].append((call.index, dependency))

    def call(self, index: int) -> PlannedCall:
        """The call with this index in the plan."""
        return self.calls[index - self.tree.first]

    def followers(self, index: int) -> Followers:
        """The calls that wait for call `index`."""
        return self._followers[index - self.tree.first]
