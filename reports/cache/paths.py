"""Pure: the prompts of a trace as paths of one tree, so that what two prompts share is what their paths share.

A node is a stretch of consecutive blocks that all prompts which enter it pass to its end; it is split where prompts
part or end, so each prompt ends at the end of a node. The tree is the same for every playing of a trace: nodes whose
blocks all trees share are `common`, the others belong to one tree and stand for different text in each playing.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aitrace.columns import NOT_KNOWN, call_columns, segment_columns
from aitrace.identity import BlockIdentity, is_own_key
from aitrace.prompts import PromptParts, PromptResolver
from aitrace.schema import Trace

Ints = npt.NDArray[np.int64]
SizedRun = tuple[int, int, int]
"""First key, number of consecutive keys, and size of each of these blocks."""

ROOT = 0
"""The node of the empty prompt."""
_PLAYING = 1
"""The playing whose keys stand for those of all: keys of common blocks are the same in each."""


class PromptTree:
    """Grows by prompts; what was said of a node stays true, though nodes above it may be split."""

    def __init__(self) -> None:
        self._parents = [ROOT]
        self._ends = [0]
        self._runs: list[list[SizedRun]] = [[]]
        self._common = [True]
        self._children: list[dict[tuple[int, int], int]] = [{}]

    @property
    def nodes(self) -> int:
        """Nodes, the root included."""
        return len(self._parents)

    def end(self, node: int) -> int:
        """Size of the prompt that ends with a node, in the trace's unit."""
        return self._ends[node]

    def parent(self, node: int) -> int:
        """The node above one; the root's is itself."""
        return self._parents[node]

    def is_common(self, node: int) -> bool:
        """Whether all trees share the prompt that ends with a node."""
        return self._common[node]

    def add(self, node: int, runs: Sequence[SizedRun]) -> int:
        """The node where a prompt ends that goes on with these blocks behind `node`."""
        rest = _merged(runs)
        while rest:
            child = self._children[node].get((rest[0][0], rest[0][2]))
            if child is None:
                return self._grow(node, rest)
            theirs = self._runs[child]
            shared = _shared_blocks(rest, theirs)
            _, rest = _cut(rest, shared)
            is_whole = shared == sum(count for _, count, _ in theirs)
            node = child if is_whole else self._split(child, shared)
        return node

    def part_of(self, node: int, size: int) -> int:
        """The node where the first `size` units of a prompt that ends with `node` end; they are whole blocks."""
        while self._ends[self._parents[node]] >= size and node != ROOT:
            node = self._parents[node]
        missing = size - self._ends[self._parents[node]]
        if size >= self._ends[node]:
            return node
        blocks = 0
        for _, count, block in self._runs[node]:
            taken = min(count, missing // block)
            blocks, missing = blocks + taken, missing - taken * block
        return self._split(node, blocks)

    def path(self, node: int) -> list[int]:
        """Nodes from the first behind the root to `node`."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self._parents[node]
        nodes.reverse()
        return nodes

    def common(self, node: int, other: int) -> int:
        """Size of what the prompts that end with two nodes have in common."""
        ends, parents = self._ends, self._parents
        while node != other:
            if ends[node] > ends[other]:
                node = parents[node]
            else:
                other = parents[other]
        return ends[node]

    def _grow(self, node: int, runs: list[SizedRun]) -> int:
        """Put blocks behind a node that no prompt had there: those that all trees share apart from the others."""
        if self._common[node]:
            owned = (place for place, run in enumerate(runs) if is_own_key(run[0], _PLAYING))
            first_own = next(owned, len(runs))
            if first_own:
                node = self._append(node, runs[:first_own], is_common=True)
            runs = runs[first_own:]
        return self._append(node, runs, is_common=False) if runs else node

    def _append(self, parent: int, runs: list[SizedRun], *, is_common: bool) -> int:
        node = len(self._parents)
        self._parents.append(parent)
        self._ends.append(self._ends[parent] + _size(runs))
        self._runs.append(runs)
        self._common.append(is_common)
        self._children.append({})
        self._children[parent][runs[0][0], runs[0][2]] = node
        return node

    def _split(self, node: int, blocks: int) -> int:
        """Move the first blocks of a node into a new one above it; prompts that end with the node still do."""
        head, tail = _cut(self._runs[node], blocks)
        upper = self._append(self._parents[node], head, is_common=self._common[node])
        self._parents[node], self._runs[node] = upper, tail
        self._children[upper][tail[0][0], tail[0][2]] = node
        return upper


class TracePaths:
    """Where prompts of a trace end in a tree; each is walked but once, and only as far as it is new."""

    def __init__(self, trace: Trace, *, share_system: bool) -> None:
        self.tree = PromptTree()
        """All prompts that were asked for."""
        self._calls, self._segments = call_columns(trace), segment_columns(trace)
        self._block_size = trace.header.block_size
        self._identity = BlockIdentity(trace, share_system=share_system)
        self._prompts = PromptResolver(trace.calls)
        self._known: dict[int, int] = {}

    def end_of(self, call: int) -> int:
        """The node where the prompt of a call ends."""
        waiting = []
        base: int | None = call
        while base is not None and base not in self._known:
            waiting.append(base)
            base = self._parts(base)[0]
        for one in reversed(waiting):
            self._known[one] = self._walk(one)
        return self._known[call]

    def _walk(self, call: int) -> int:
        base, keep, added = self._parts(call)
        node = ROOT
        if base is not None:
            node = self._known[base]
            if keep < self._calls.prompt_length[base]:
                dropped_ids = list(self._prompts.segment_ids(base)[keep:])
                dropped = int(self._segments.size[dropped_ids].sum())
                node = self.tree.part_of(node, self.tree.end(node) - dropped)
        return self.tree.add(node, [run for segment in added for run in self._runs(segment)])

    def _runs(self, segment_id: int) -> tuple[SizedRun, ...]:
        runs = self._identity.runs(segment_id, _PLAYING)
        return sized_runs(runs, int(self._segments.size[segment_id]), self._block_size)

    def _parts(self, call: int) -> PromptParts:
        base = int(self._calls.base[call])
        return None if base == NOT_KNOWN else base, int(self._calls.keep[call]), self._calls.added(call)


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


def shared_size(mine: Sequence[SizedRun], theirs: Sequence[SizedRun]) -> int:
    """Size of the blocks that two lists of runs begin with alike, wherever their runs are cut."""
    merged = _merged(mine)
    return _size(_cut(merged, _shared_blocks(merged, _merged(theirs)))[0])


def _merged(runs: Sequence[SizedRun]) -> list[SizedRun]:
    """The same blocks in as few runs as tell them, so that equal blocks are equal runs."""
    merged: list[SizedRun] = []
    for first, count, size in runs:
        if merged and merged[-1][0] + merged[-1][1] == first and merged[-1][2] == size:
            merged[-1] = (merged[-1][0], merged[-1][1] + count, size)
        else:
            merged.append((first, count, size))
    return merged


def _shared_blocks(mine: Sequence[SizedRun], theirs: Sequence[SizedRun]) -> int:
    """Blocks that two lists of merged runs begin with alike."""
    shared = 0
    for (first, count, size), (other, other_count, other_size) in zip(mine, theirs, strict=False):
        if first != other or size != other_size:
            break
        shared += min(count, other_count)
        if count != other_count:
            break
    return shared


def _cut(runs: Sequence[SizedRun], blocks: int) -> tuple[list[SizedRun], list[SizedRun]]:
    """The first blocks, and the others."""
    for place, (first, count, size) in enumerate(runs):
        if blocks < count:
            head, tail = list(runs[:place]), list(runs[place + 1 :])
            if blocks:
                head.append((first, blocks, size))
            return head, [(first + blocks, count - blocks, size), *tail]
        blocks -= count
    return list(runs), []


def _size(runs: Sequence[SizedRun]) -> int:
    return sum(count * size for _, count, size in runs)
