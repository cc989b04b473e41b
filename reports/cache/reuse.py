"""Pure: how long each piece of each prompt had not been used, and how much had been in between: the reuse of a run.

One pass over the prompts in order gives the hit rate of a least-recently-used cache at every capacity (Mattson et al.,
"Evaluation techniques for storage hierarchies", 1970) and of a cache with a lifetime at every lifetime. A prompt is used
when it is begun and until its answer has ended, so it is put on top of the stack at both moments, its first block topmost:
a tail is evicted before its head, and what is left of a use is always the tail of its prompt. So a stack of uses with a
size each does for one of blocks, and a Fenwick tree over uses tells what lies above.

A prompt decomposes into few pieces, each of what one earlier use left. Within a piece the distance grows with the place:
the block that ends at `place` is in a cache of `before + place - start` and more. Of a prompt that is in use nothing is
evicted, so its pieces need but the room of the prompt itself.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reports.cache.paths import ROOT, PromptTree

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One prompt that was sent."""

    node: int
    """Where it ends in the tree."""
    tree: int
    """Tree of the trace it belongs to: nodes that are not common belong to one tree."""
    instance: int
    """Which playing of that tree, for text of its own."""
    sent_ns: int
    """When it was sent."""
    started_ns: int
    """When the endpoint began with it, see `reports/cache/start.py`."""
    first_token_ns: int | None
    """When it had been computed; None if it never was as far as one can tell."""
    end_ns: int | None
    """When its answer had ended; None if that is not known, and then it counts as used when it was begun."""
    answer_size: int = 0
    """Room of its answer, which nothing reuses; in the trace's unit."""
    is_stored: bool = True
    """Whether later prompts may reuse it; False for a call that the endpoint turned away."""

    @property
    def playing(self) -> tuple[int, int]:
        return self.tree, self.instance

    @property
    def over_ns(self) -> int | None:
        """When it was in use no more; None if it counts as used at one moment."""
        return self.end_ns if self.end_ns is not None and self.end_ns >= self.started_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Pieces of prompts that an earlier prompt had, in the order of the prompts and of their places.

    Sizes are in the unit of the trace. The first five have one entry per piece, the last two one per use.
    """

    use: Ints
    """The prompt, as a place in the uses given."""
    start: Ints
    """Where the piece begins in the prompt."""
    end: Ints
    """Where it ends."""
    before: Floats
    """Distinct content used since the piece was last, without the piece: what else a cache had to have room for."""
    age_ns: Ints
    """Time from the end of its last use to the sending of the prompt; 0 if it was in use."""
    known_size: Ints
    """Prefix of the prompt that an earlier one had."""
    ready_size: Ints
    """Prefix that had been computed when the prompt was sent."""


def reuse_of(tree: PromptTree, uses: Sequence[Use], *, rate: float = 1.0) -> Reuse:
    """The reuse of prompts in order of sending.

    Args:
        rate: Share of the playings that the uses are of, drawn at random. Content of other playings counts as
            1 / `rate` of its size (SHARDS; Waldspurger et al., FAST 2015); common content and that of the prompt's own
            playing is all there, and counts as it is.
    """
    stack = _Stack(tree, uses, rate)
    for _, _, place, is_end in sorted(_moments(uses)):
        if is_end:
            stack.end(place)
        else:
            stack.send(place)
    return stack.reuse()


def _moments(uses: Sequence[Use]) -> list[tuple[int, int, int, bool]]:
    """Times, what comes first at one time (an end), use, and whether it is its end."""
    begun = [(use.started_ns, 1, place, False) for place, use in enumerate(uses)]
    # The end of a prompt that ended as it was begun has to come after its beginning.
    ended = [
        (use.over_ns, 0 if use.over_ns > use.started_ns else 2, place, True)
        for place, use in enumerate(uses)
        if use.over_ns is not None and use.is_stored
    ]
    return begun + ended


class _Sums:
    """Sums over a growing prefix of places: a Fenwick tree."""

    __slots__ = ("_sums", "total")

    def __init__(self, places: int) -> None:
        self._sums = [0.0] * (places + 1)
        self.total = 0.0

    def add(self, place: int, amount: float) -> None:
        sums, size = self._sums, len(self._sums)
        self.total += amount
        place += 1
        while place < size:
            sums[place] += amount
            place += place & -place

    def behind(self, place: int) -> float:
        """Sum over the places after this one."""
        sums = self._sums
        amount = self.total
        place += 1
        while place:
            amount -= sums[place]
            place &= place - 1
        return amount


@dataclass(slots=True)
class _Playing:
    """What is kept of one playing of a tree."""

    base: int
    """Where its own nodes begin among the states."""
    sums: _Sums | None
    """Its own content by use within the playing; None if nothing is sampled."""
    touches: list[int] = field(default_factory=list)
    """Its uses, each moment counted, as places on the stack."""


@dataclass(frozen=True, slots=True)
class _Path:
    """A prompt of one playing, node by node."""

    states: Ints
    """Places among the states."""
    ends: Ints
    """Size of the prompt at the end of each node."""
    common_size: int
    """Size of the common nodes; they come first."""


_Group = tuple[int, int, int]
"""Last touch of a stretch of a prompt, -1 for none; where it begins and ends."""


@dataclass(slots=True)
class _Found:
    """Columns of `Reuse` while they grow."""

    use: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    age_ns: list[int] = field(default_factory=list)


class _Stack:
    """Touches in order, each with the size of what it left: a prompt is touched when it is begun and when it ends."""

    def __init__(self, tree: PromptTree, uses: Sequence[Use], rate: float) -> None:
        self._uses = uses
        self._paths = _Paths(tree, uses)
        self._weight = 1 / rate
        self._playings: dict[tuple[int, int], _Playing] = {}
        states = self._paths.nodes_of(None)
        for playing, count in Counter(use.playing for use in uses).items():
            sums = _Sums(2 * count) if rate < 1 else None
            self._playings[playing] = _Playing(base=states, sums=sums)
            states += self._paths.nodes_of(playing[0])
        self._last = np.full(states, -1)
        self._touches = 0
        self._computed_ns = np.full(states, _NEVER)
        self._over_ns = np.full(states, -_NEVER)
        self._sums = _Sums(2 * len(uses))
        self._open: dict[int, tuple[int, _Path]] = {}
        """Touch and path of each use whose end is still to come."""
        self._found = _Found()
        self._known_size = np.zeros(len(uses), np.int64)
        self._ready_size = np.zeros(len(uses), np.int64)

    def send(self, place: int) -> None:
        """Look a prompt up, then use it."""
        use = self._uses[place]
        path = self._paths.of(use, self._playings[use.playing].base)
        states, groups = path.states, self._groups(path)
        self._look_up(place, path, groups)
        ready = int(np.searchsorted(self._computed_ns[states], use.sent_ns, side="right"))
        self._ready_size[place] = path.ends[ready - 1] if ready else 0
        if not use.is_stored:
            return
        if use.first_token_ns is not None:
            self._computed_ns[states] = np.minimum(self._computed_ns[states], use.first_token_ns)
        over_ns = use.started_ns if use.over_ns is None else use.over_ns
        self._over_ns[states] = np.maximum(self._over_ns[states], over_ns)
        if use.over_ns is not None:
            self._open[place] = self._touches, path
        self._touch(use, path, groups)

    def end(self, place: int) -> None:
        """The answer to a prompt has ended: until now it was in use."""
        use = self._uses[place]
        touch, path = self._open.pop(place)
        if touch == self._touches - 1:
            return  # nothing was used since, so it is on top
        self._weigh(touch, use, 0, -use.answer_size, common_size=0)
        self._touch(use, path, self._groups(path))

    def reuse(self) -> Reuse:
        found = self._found
        return Reuse(
            use=np.array(found.use, np.int64),
            start=np.array(found.start, np.int64),
            end=np.array(found.end, np.int64),
            before=np.array(found.before, np.float64),
            age_ns=np.array(found.age_ns, np.int64),
            known_size=self._known_size,
            ready_size=self._ready_size,
        )

    def _groups(self, path: _Path) -> list[_Group]:
        return _groups(self._last[path.states], path.ends)

    def _look_up(self, place: int, path: _Path, groups: list[_Group]) -> None:
        use = self._uses[place]
        over_ns = self._over_ns[path.states]
        # Who uses a place uses all before it.
        busy = int(np.count_nonzero(over_ns > use.started_ns))
        in_use = int(path.ends[busy - 1]) if busy else 0
        if in_use:
            self._find(place, 0, in_use, before=0.0, age_ns=0)
        for touch, start, end in groups:
            if touch < 0:
                break
            self._known_size[place] = end
            if end > in_use:
                begin = max(start, in_use)
                age_ns = use.started_ns - int(over_ns[np.searchsorted(path.ends, end)])
                self._find(place, begin, end, before=self._behind(touch, use) + begin - start, age_ns=age_ns)

    def _find(self, place: int, start: int, end: int, *, before: float, age_ns: int) -> None:
        found = self._found
        found.use.append(place)
        found.start.append(start)
        found.end.append(end)
        found.before.append(before)
        found.age_ns.append(age_ns)

    def _touch(self, use: Use, path: _Path, groups: list[_Group]) -> None:
        """Put all of a prompt and its answer on top of the stack."""
        new = self._touches
        self._touches += 1
        self._playings[use.playing].touches.append(new)
        for touch, start, end in groups:
            if touch < 0:
                break
            self._weigh(touch, use, end, start, common_size=path.common_size)
        self._last[path.states] = new
        size = groups[-1][2] if groups else 0
        self._weigh(new, use, 0, size + use.answer_size, common_size=path.common_size)

    def _weigh(self, touch: int, use: Use, start: int, end: int, *, common_size: int) -> None:
        """Add what lies from `start` to `end` of a prompt to what a touch has left, or take it away if `end` is less."""
        common = min(end, common_size) - min(start, common_size) if common_size else 0
        own = end - start - common
        self._sums.add(touch, common + own * self._weight)
        playing = self._playings[use.playing]
        if playing.sums is not None and own:
            # Own content was touched by none but its own playing.
            playing.sums.add(bisect_left(playing.touches, touch), own)

    def _behind(self, touch: int, use: Use) -> float:
        """Content on the stack above a touch."""
        behind = self._sums.behind(touch)
        playing = self._playings[use.playing]
        if playing.sums is None:
            return behind
        own = playing.sums.behind(bisect_right(playing.touches, touch) - 1)
        # What is not there must not be less than nothing by rounding.
        return max(0.0, behind - (self._weight - 1) * own)


def _groups(last: Ints, ends: Ints) -> list[_Group]:
    """Stretches of a path by the touch that used them last, which comes earlier the deeper they lie."""
    if not last.size:
        return []
    places = [*(last[1:] != last[:-1]).nonzero()[0].tolist(), last.size - 1]
    groups, start = [], 0
    for touch, end in zip(last[places].tolist(), ends[places].tolist(), strict=True):
        groups.append((touch, start, end))
        start = end
    return groups


class _Paths:
    """Prompts as places of nodes, common ones by their place among these, own ones by that within the tree.

    A path has as many nodes as its session has calls, so none is kept. Nodes lie in chains instead, each node going on
    with the one below it that most nodes are under; a path then is a few stretches of places: whatever the tree is, it
    changes the chain no more often than the logarithm of the number of nodes.
    """

    __slots__ = ("_ends", "_first", "_place", "_tree")

    def __init__(self, tree: PromptTree, uses: Sequence[Use]) -> None:
        self._tree = tree
        self._first: dict[int, int] = {}
        self._place: dict[int, int] = {}
        owners = _owners(tree, uses)
        below = _largest_below(tree, owners)
        ends: dict[int | None, list[int]] = defaultdict(list)
        for first, owner in owners.items():
            if first in self._place:
                continue
            mine = ends[None if tree.is_common(first) else owner]
            node: int | None = first
            while node is not None:
                self._first[node], self._place[node] = first, len(mine)
                mine.append(tree.end(node))
                node = below.get(node)
        self._ends = {owner: np.array(sizes, np.int64) for owner, sizes in ends.items()}

    def nodes_of(self, owner: int | None) -> int:
        """Number of own nodes of a tree; of None, of the common ones."""
        return self._ends[owner].size if owner in self._ends else 0

    def of(self, use: Use, base: int) -> _Path:
        """The path of a prompt, whose playing has its own nodes from `base` on."""
        node, common_size = use.node, 0
        states, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        while node != ROOT:
            first = self._first[node]
            is_common = self._tree.is_common(node)
            if is_common:
                common_size = max(common_size, self._tree.end(node))
            start, stop = self._place[first], self._place[node] + 1
            states.append(np.arange(start, stop) + (0 if is_common else base))
            ends.append(self._ends[None if is_common else use.tree][start:stop])
            node = self._tree.parent(first)
        return _Path(
            states=np.concatenate(states[::-1]), ends=np.concatenate(ends[::-1]), common_size=common_size
        )


def _owners(tree: PromptTree, uses: Sequence[Use]) -> dict[int, int]:
    """The nodes of all prompts, each behind the one above it, with a tree that they are of."""
    owners: dict[int, int] = {}
    for node, owner in dict.fromkeys((use.node, use.tree) for use in uses):
        added, above = [], node
        while above != ROOT and above not in owners:
            added.append(above)
            above = tree.parent(above)
        owners |= dict.fromkeys(reversed(added), owner)
    return owners


def _largest_below(tree: PromptTree, owners: dict[int, int]) -> dict[int, int]:
    """Of each node the one below it that most nodes are under, among those that are common if it is, and own if not."""
    nodes = dict.fromkeys(owners, 1)
    for node in reversed(owners):
        if tree.parent(node) != ROOT:
            nodes[tree.parent(node)] += nodes[node]
    largest: dict[int, int] = {}
    for node in owners:
        parent = tree.parent(node)
        is_alike = tree.is_common(node) == tree.is_common(parent)
        if is_alike and (parent not in largest or nodes[node] > nodes[largest[parent]]):
            largest[parent] = node
    return largest
