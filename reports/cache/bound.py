"""Pure: what a prefix cache of unlimited size could have served, for all calls of a run at once.

Keys of blocks name content within a segment, so a prefix is the whole path of keys from the prompt's start: the same
segment after another system prompt is not the same prefix. A prompt can be reused from the moment it was dispatched. An
engine can reuse it only once it has been computed, so for calls that overlap in time the bound lies above what any engine
can do; it is a bound, not a forecast. Where two prompts part inside a block, what they share of that block is not counted,
so the bound may lie below the truth by less than one block of the trace per call.

A run costs some passes over arrays, since what the prompts of a trace share is found once: playings differ in when calls
were sent and whether they were turned away, and in nothing else.

The prompts of a session make a tree whose nodes are where two of them part or one ends, and each playing of the session
has a time for every node: when the first prompt that runs through it was stored. A call had what lies above the deepest
node of its own path whose time is before its own. The same goes for the prompts of a tree of the trace, and for the parts
of prompts that all playings share.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aitrace.columns import CallColumns, Integers
from reports.cache.paths import ROOT, TracePaths

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCalls:
    """Calls of a run in the order in which they were sent; one entry for each."""

    call: Integers
    """Call of the trace that was played."""
    instance: Integers
    """Which playing of its tree."""
    is_stored: Flags
    """Whether later prompts may reuse it; False for a call that the endpoint turned away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSizes:
    """The longest prefix of each prompt that earlier prompts had, by who had it; in the trace's unit."""

    session: Integers
    """Prefix that an earlier prompt of the same session had."""
    tree: Integers
    """What another session of the same tree had beyond that."""
    other: Integers
    """What another tree had beyond both."""


def bound_sizes(sent: SentCalls, calls: CallColumns, paths: TracePaths) -> BoundSizes:
    """The bound of each call.

    Args:
        calls: Of the trace.
        paths: Of the same trace.
    """
    order = _order_of(paths, len(calls.session))
    own = _earlier_sizes(sent, sent.instance, _fork_tree(order, calls.session, order.size))
    tree = _earlier_sizes(sent, sent.instance, _fork_tree(order, calls.root, order.size))
    one_group = np.zeros_like(calls.root)
    common = _earlier_sizes(
        sent, np.zeros_like(sent.instance), _fork_tree(order, one_group, order.common_size)
    )
    return BoundSizes(session=own, tree=tree - own, other=np.maximum(common - tree, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The prompts of a trace in an order in which those that begin alike lie together; one entry for each call."""

    place: Integers
    """Its place; prompts of the same blocks have the same one."""
    size: Integers
    """Size of the prompt."""
    common_size: Integers
    """Size of the part that all playings of the trace share."""
    kept: Integers
    """For each place, what of the path to the place before it the path to this one goes on with, as a size."""


def _order_of(paths: TracePaths, calls: int) -> _Order:
    ends = np.array([paths.end_of(call) for call in range(calls)], np.int64)
    tree = paths.tree
    parents = np.array([tree.parent(node) for node in range(tree.nodes)], np.int64)
    sizes = np.array([tree.end(node) for node in range(tree.nodes)], np.int64)
    nodes = _nodes_in_order(parents.tolist())
    place = np.empty(len(nodes), np.int64)
    place[nodes] = np.arange(len(nodes))
    common_sizes = sizes.copy()
    for node in nodes.tolist():
        if not tree.is_common(node):
            common_sizes[node] = common_sizes[parents[node]]
    return _Order(
        place=place[ends], size=sizes[ends], common_size=common_sizes[ends], kept=sizes[parents[nodes]]
    )


def _nodes_in_order(parents: list[int]) -> Integers:
    """All nodes, each before those below it, and these before the next one beside it."""
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        if node != ROOT:
            below.setdefault(parent, []).append(node)
    order, waiting = [], [ROOT]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting.extend(below.get(node, ()))
    return np.array(order, np.int64)


def _shared_sizes(kept: Integers, first: Integers, last: Integers) -> Integers:
    """What is common to the paths from each first place to the last one; of no use where that is before it."""
    shared = np.full(len(first), np.iinfo(np.int64).max)
    lengths = np.maximum(last - first, 0)
    level = np.frexp(lengths.astype(np.float64))[1] - 1
    # The least of every 2 ** n values in a row, for one n after the other.
    least = kept
    for n in range(int(level.max(initial=-1)) + 1):
        asked = np.flatnonzero(level == n)
        shared[asked] = np.minimum(least[first[asked] + 1], least[last[asked] + 1 - (1 << n)])
        least = np.minimum(least[: -(1 << n)], least[1 << n :])
    return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForkTree:
    """The prompts of each group as a tree of the places where two part or one ends; groups lie one after the other."""

    group: Integers
    """Of each call."""
    node: Integers
    """Of each call, where its prompt ends."""
    first_node: Integers
    """Of each group, its root; one entry more than groups, so a group's nodes end where the next one's begin."""
    parent: Integers
    """Of each node; a root is its own."""
    size: Integers
    """Of each node, size of the prompt up to there."""
    level: Integers
    """Of each node, how many are above it."""


def _fork_tree(order: _Order, groups: Integers, sizes: Integers) -> _ForkTree:
    """The trees of all groups of calls.

    Args:
        groups: Of each call.
        sizes: How much of each prompt counts.
    """
    _, group = np.unique(groups, return_inverse=True)
    by_group = np.lexsort((order.place, group))
    places = order.place[by_group]
    shared = np.minimum(_shared_sizes(order.kept, places[:-1], places[1:]), sizes[by_group[1:]])
    is_new = np.diff(group[by_group], prepend=-1) != 0
    parents: list[int] = []
    ends: list[int] = []
    node_of: list[int] = []
    first_node: list[int] = []
    stack: list[int] = []
    known = np.where(is_new, 0, np.concatenate(([0], shared)))
    for begins, end, kept in zip(is_new.tolist(), sizes[by_group].tolist(), known.tolist(), strict=True):
        if begins:
            first_node.append(len(parents))
            stack = [len(parents)]
            parents.append(len(parents))
            ends.append(0)
        node_of.append(_grow(parents, ends, stack, kept, end))
    node = np.empty(len(node_of), np.int64)
    node[by_group] = node_of
    parent, size = np.array(parents, np.int64), np.array(ends, np.int64)
    return _ForkTree(
        group=group,
        node=node,
        first_node=np.array([*first_node, len(parents)], np.int64),
        parent=parent,
        size=size,
        level=_levels(parents, size),
    )


def _grow(parents: list[int], ends: list[int], stack: list[int], known: int, size: int) -> int:
    """The node of the next prompt in order, of which `known` is shared with the one before it.

    Args:
        stack: The path to the one before it, and then to this one.
    """
    cut_off = None
    while ends[stack[-1]] > known:
        cut_off = stack.pop()
    for end in (known, size):
        if end > ends[stack[-1]]:
            parents.append(stack[-1])
            ends.append(end)
            if end == known and cut_off is not None:
                parents[cut_off] = len(parents) - 1
            stack.append(len(parents) - 1)
    return stack[-1]


def _levels(parents: list[int], sizes: Integers) -> Integers:
    levels = [0] * len(parents)
    for node in np.argsort(sizes, kind="stable").tolist():
        if parents[node] != node:
            levels[node] = levels[parents[node]] + 1
    return np.array(levels, np.int64)


def _earlier_sizes(sent: SentCalls, instance: Integers, forks: _ForkTree) -> Integers:
    """The longest prefix of each call that earlier calls of the same group and instance had."""
    groups = len(forks.first_node) - 1
    playings, playing = np.unique(instance * groups + forks.group[sent.call], return_inverse=True)
    begin = forks.first_node[playings % groups]
    nodes = forks.first_node[playings % groups + 1] - begin
    # One entry for each node of each playing: what a node's number lacks to be the place of its entry.
    shift = np.cumsum(nodes) - nodes - begin
    node_of = np.arange(nodes.sum()) - np.repeat(shift, nodes)
    first = np.full(len(node_of), len(sent.call))
    end = forks.node[sent.call]
    stored = np.flatnonzero(sent.is_stored)
    np.minimum.at(first, (shift[playing] + end)[stored], stored)
    _pass_up(first, node_of, forks)
    return _deepest_known(first, shift[playing], end, forks)


def _pass_up(first: Integers, node_of: Integers, forks: _ForkTree) -> None:
    """Who stores a prompt stores all that is above its end."""
    depth = int(forks.level.max(initial=0))
    # Small integers are sorted in one pass.
    levels = (depth - forks.level[node_of]).astype(np.min_scalar_type(depth))
    deepest_first = np.argsort(levels, kind="stable")
    edges = np.flatnonzero(np.diff(levels[deepest_first])) + 1
    for entries in np.split(deepest_first, edges)[:-1]:
        nodes = node_of[entries]
        np.minimum.at(first, entries - nodes + forks.parent[nodes], first[entries])


def _deepest_known(first: Integers, shift: Integers, end: Integers, forks: _ForkTree) -> Integers:
    sizes = np.zeros(len(end), np.int64)
    asking, node = np.arange(len(end)), end
    while asking.size:
        is_known = first[shift[asking] + node] < asking
        sizes[asking[is_known]] = forks.size[node[is_known]]
        # At a root there is nothing left to find.
        goes_on = ~is_known & (forks.level[node] > 0)
        asking, node = asking[goes_on], forks.parent[node[goes_on]]
    return sizes
