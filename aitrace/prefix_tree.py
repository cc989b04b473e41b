"""Pure: all prompts of a recording as one tree of segment ids, so that shared starts are found by walking it."""

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
    """Equal for identical prompts."""
    base: int | None
    """The first call whose prompt shares the longest start with this one; None if none shares a segment."""
    keep: int
    """Segments of that start."""


class PrefixTree:
    """A tree whose nodes are prompts; a prompt's ancestors are its starts.

    Each node costs three machine words and one entry of a dict, and there are no more nodes than new segments.
    """

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}
        self._parents = [START, UNSEEN_START]
        self._first_calls = [-1, -1]

    def insert(self, segments: Sequence[int], call: int, *, start: int = START) -> Place:
        """Puts in the prompt of `call`.

        Args:
            start: `START` or `UNSEEN_START`.
        """
        node = start
        keep = 0
        children = self._children
        for segment in segments:
            child = children.get((node, segment))
            if child is None:
                break
            node = child
            keep += 1
        base = self._first_calls[node] if keep else None
        for segment in segments[keep:]:
            child = children[node, segment] = len(self._parents)
            self._parents.append(node)
            self._first_calls.append(call)
            node = child
        return Place(node=node, base=base, keep=keep)

    def starts(self, node: int) -> Iterator[int]:
        """The prompts that this one strictly extends, the longest first; the empty one is not among them."""
        node = self._parents[node]
        while node > UNSEEN_START:
            yield node
            node = self._parents[node]
