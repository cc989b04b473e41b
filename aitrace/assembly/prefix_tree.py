"""Pure: all prompts of a recording as one tree of segment ids, so that shared starts are found by walking it.

A node stands for a prompt, or for the start that several prompts share; what lies between it and the node above is its
run of segments. So a call adds two nodes at most, however long its prompt is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

START = 0
"""Node of the empty prompt."""
UNSEEN_START = 1
"""Node under which prompts lie whose start was not seen: they share nothing with whole ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a prompt lies in the tree."""

    node: int
    """Equal for identical prompts, for good."""
    base: int | None
    """The first call whose prompt shares the longest start with this one; None if none shares a segment."""
    keep: int
    """Segments of that start."""


@dataclass(slots=True, eq=False)
class _Node:
    """A prompt or a start of prompts."""

    above: int
    """Node of the next shorter one."""
    run: tuple[int, ...]
    """Segments that it adds to that."""
    length: int
    """Segments of the whole."""
    first_call: int
    """The first call whose prompt begins so."""


class PrefixTree:
    """A tree whose nodes are prompts; a prompt's ancestors are starts of it."""

    def __init__(self) -> None:
        self._nodes = [_Node(above=node, run=(), length=0, first_call=-1) for node in (START, UNSEEN_START)]
        self._children: dict[tuple[int, int], int] = {}
        """By the node above and the first segment of the run."""

    def insert(self, segments: Sequence[int], call: int, *, start: int = START) -> Place:
        """Puts in the prompt of `call`.

        Args:
            start: `START` or `UNSEEN_START`.
        """
        whole = tuple(segments)
        node, keep = start, 0
        while keep < len(whole):
            child = self._children.get((node, whole[keep]))
            if child is None:
                break
            run = self._nodes[child].run
            shared = _shared_length(run, whole, keep)
            node = child if shared == len(run) else self._split(child, shared)
            keep += shared
        base = self._nodes[node].first_call if keep else None
        if keep < len(whole):
            node = self._add(node, whole[keep:], call)
        return Place(node=node, base=base, keep=keep)

    def starts(self, node: int) -> Iterator[tuple[int, int]]:
        """The nodes that this prompt strictly extends and their lengths, the longest first, without the empty prompt."""
        node = self._nodes[node].above
        while node > UNSEEN_START:
            yield node, self._nodes[node].length
            node = self._nodes[node].above

    def _add(self, above: int, run: tuple[int, ...], call: int) -> int:
        node = self._children[above, run[0]] = len(self._nodes)
        length = self._nodes[above].length + len(run)
        self._nodes.append(_Node(above=above, run=run, length=length, first_call=call))
        return node

    def _split(self, node: int, length: int) -> int:
        """A new node for the first `length` segments of a node's run. The old one stays the node of its prompt."""
        lower = self._nodes[node]
        middle = self._add(lower.above, lower.run[:length], lower.first_call)
        lower.above, lower.run = middle, lower.run[length:]
        self._children[middle, lower.run[0]] = node
        return middle


def _shared_length(run: Sequence[int], segments: Sequence[int], first: int) -> int:
    """How many segments of `run` are those of `segments` from `first` on."""
    if run == segments[first : first + len(run)]:
        return len(run)
    return next(
        (
            place
            for place, (one, other) in enumerate(zip(run, segments[first:], strict=False))
            if one != other
        ),
        len(segments) - first,
    )
