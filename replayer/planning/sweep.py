"""Pure: the most that is alive at a time, told tree by tree in the order in which trees start.

What is over by the start of a tree is counted and let go, and what changes at one moment is one number, so the memory
taken is that of the moments of the trees alive at a time, however many trees have the same ones.
"""

import heapq


class Sweep:
    """Highest sum over time of things that are alive from a start to an end; what touches does not overlap."""

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._changes: dict[int, int] = {}
        """By how much the sum changes at each moment, but for what is shared."""
        self._shared_changes: dict[int, dict[int, int]] = {}
        """How many more, or less, times what is shared is alive from a moment on, by its number."""
        self._sharers: dict[int, int] = {}
        """How many times what is shared is alive."""
        self._amounts: dict[int, int] = {}
        self._level = self._highest = 0

    def add(self, start_ns: int, end_ns: int, amount: int = 1, *, shared: int | None = None) -> None:
        """Count in something that is alive from a start to an end.

        Args:
            start_ns: Not before the latest `pass_to`.
            shared: Number of what counts once however often it is alive, the same amount each time.
        """
        for at_ns, sign in ((start_ns, 1), (end_ns, -1)):
            if at_ns not in self._changes:
                self._changes[at_ns] = 0
                heapq.heappush(self._moments, at_ns)
            if shared is None:
                self._changes[at_ns] += sign * amount
            else:
                self._amounts[shared] = amount
                changes = self._shared_changes.setdefault(at_ns, {})
                changes[shared] = changes.get(shared, 0) + sign

    def pass_to(self, at_ns: int) -> None:
        """Nothing that starts before a moment will be added any more."""
        while self._moments and self._moments[0] < at_ns:
            self._apply_next()

    def peak(self) -> int:
        """The highest sum, now that all is told."""
        while self._moments:
            self._apply_next()
        return self._highest

    def _apply_next(self) -> None:
        at_ns = heapq.heappop(self._moments)
        self._level += self._changes.pop(at_ns)
        for shared, change in self._shared_changes.pop(at_ns, {}).items():
            before = self._sharers.get(shared, 0)
            self._sharers[shared] = before + change
            self._level += self._amounts[shared] * ((before + change > 0) - (before > 0))
        self._highest = max(self._highest, self._level)
