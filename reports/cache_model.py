"""Pure: what a prefix cache of unlimited size could have served, call by call.

Keys of blocks name content within a segment, so a prefix is the whole path of keys from the prompt's start: the same
segment after another system prompt is not the same prefix. Prompts are kept in a tree whose edges are runs of
consecutive keys and are split where prompts part, so a prompt of thousands of blocks costs a few steps.

A prompt can be reused from the moment it was dispatched. An engine can reuse it only once it has been computed, so
for calls that overlap in time the bound lies above what any engine can do; it is a bound, not a forecast. Where two
prompts part inside a block, what they share of that block is not counted, so the bound may lie below the truth by
less than one block of the trace per call.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aitrace.identity import BlockIdentity
from aitrace.schema import Segment

SizedRun = tuple[int, int, int]
"""First key, number of consecutive keys, and size of each of these blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePrompt:
    """One prompt, in the order of dispatch."""

    instance: int
    """Which playing of its tree."""
    root: int
    """Root session of the trace's tree; with the instance, a tree of the run."""
    session: int
    """Session of the trace; with the instance, a session of the run."""
    runs: tuple[SizedRun, ...]
    """Blocks of the prompt, in order."""
    is_stored: bool = True
    """Whether later prompts may reuse it; False for a call that the endpoint turned away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """The longest prefix of a prompt that earlier prompts had, by who had it; in the trace's unit."""

    session_size: int
    """Prefix that an earlier prompt of the same session had."""
    tree_size: int
    """What another session of the same tree had beyond that."""
    other_size: int
    """What another tree had beyond both."""


def unlimited_cache(prompts: Iterable[CachePrompt]) -> list[Hits]:
    """Hits of each prompt, given all prompts before it."""
    cache = _PrefixTree()
    hits = []
    for prompt in prompts:
        hits.append(cache.look_up(prompt))
        if prompt.is_stored:
            cache.store(prompt)
    return hits


class PromptRuns:
    """Sized runs of prompts, by segments and instance; each pair is computed once."""

    def __init__(self, segments: Sequence[Segment], identity: BlockIdentity, block_size: int) -> None:
        self._segments = segments
        self._identity = identity
        self._block_size = block_size
        self._known: dict[tuple[int, int], tuple[SizedRun, ...]] = {}

    def of_prompt(self, segment_ids: Iterable[int], instance: int) -> tuple[SizedRun, ...]:
        """Blocks of the prompt as the replay wrote it for this instance."""
        return tuple(run for i in segment_ids for run in self._of_segment(i, instance))

    def _of_segment(self, segment_id: int, instance: int) -> tuple[SizedRun, ...]:
        name = (segment_id, instance)
        if name not in self._known:
            runs = self._identity.runs(segment_id, instance)
            self._known[name] = sized_runs(runs, self._segments[segment_id].size, self._block_size)
        return self._known[name]


def sized_runs(runs: tuple[tuple[int, int], ...], size: int, block_size: int) -> tuple[SizedRun, ...]:
    """Runs of a segment's keys with the size of each block: all full but the last, which has what remains."""
    blocks = sum(count for _, count in runs)
    last_size = size - block_size * (blocks - 1)
    if not blocks or last_size == block_size:
        return tuple((first, count, block_size) for first, count in runs)
    head, (first, count) = runs[:-1], runs[-1]
    sized = [(key, many, block_size) for key, many in head]
    if count > 1:
        sized.append((first, count - 1, block_size))
    return (*sized, (first + count - 1, 1, last_size))


@dataclass(slots=True)
class _Edge:
    """A stretch of blocks that all prompts which enter it share to its end."""

    runs: list[SizedRun]
    sessions: set[tuple[int, int]] = field(default_factory=set)
    trees: set[tuple[int, int]] = field(default_factory=set)
    children: "_Children" = field(default_factory=dict)


_Children = dict[tuple[int, int], _Edge]
"""Edges by the key and size of their first block."""


class _PrefixTree:
    def __init__(self) -> None:
        self._children: _Children = {}

    def look_up(self, prompt: CachePrompt) -> Hits:
        own = tree = other = 0
        session = (prompt.instance, prompt.session)
        rest, children = list(prompt.runs), self._children
        while rest and (edge := children.get((rest[0][0], rest[0][2]))):
            shared, rest, left = _part(rest, edge.runs)
            size = sum(count * block for _, count, block in shared)
            # All who entered an edge passed it to its end, so it has one origin.
            if session in edge.sessions:
                own += size
            elif (prompt.instance, prompt.root) in edge.trees:
                tree += size
            else:
                other += size
            if left:
                break
            children = edge.children
        return Hits(session_size=own, tree_size=tree, other_size=other)

    def store(self, prompt: CachePrompt) -> None:
        session = (prompt.instance, prompt.session)
        rest, children = list(prompt.runs), self._children
        while rest:
            name = (rest[0][0], rest[0][2])
            edge = children.get(name)
            if edge is None:
                edge = children[name] = _Edge(runs=rest)
                rest = []
            else:
                shared, rest, left = _part(rest, edge.runs)
                if left:
                    _split(edge, shared, left)
            edge.sessions.add(session)
            edge.trees.add((prompt.instance, prompt.root))
            children = edge.children


def _split(edge: _Edge, shared: list[SizedRun], left: list[SizedRun]) -> None:
    """Leave the shared blocks in this edge and move the others, with all below them, to a new one."""
    below = _Edge(runs=left, sessions=set(edge.sessions), trees=set(edge.trees), children=edge.children)
    edge.runs = shared
    edge.children = {(left[0][0], left[0][2]): below}


def _part(
    mine: list[SizedRun], theirs: list[SizedRun]
) -> tuple[list[SizedRun], list[SizedRun], list[SizedRun]]:
    """Common start of two paths, and what each has beyond it; equal wherever their runs are cut."""
    shared: list[SizedRun] = []
    at, other_at = 0, 0
    head, other_head = mine[0], theirs[0]
    while head[0] == other_head[0] and head[2] == other_head[2]:
        key, _, size = head
        count = min(head[1], other_head[1])
        shared.append((key, count, size))
        head = (key + count, head[1] - count, size)
        other_head = (key + count, other_head[1] - count, size)
        if not head[1]:
            at += 1
            head = mine[at] if at < len(mine) else (-1, 0, -1)
        if not other_head[1]:
            other_at += 1
            other_head = theirs[other_at] if other_at < len(theirs) else (-2, 0, -2)
    rest = [head, *mine[at + 1 :]] if at < len(mine) else []
    left = [other_head, *theirs[other_at + 1 :]] if other_at < len(theirs) else []
    return shared, rest, left
