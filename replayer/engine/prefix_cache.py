"""Pure: a cache of prompt blocks with a capacity, shared by all requests.

Every block is one of three: *in use* (shared, pinned by running requests), *idle* (shared, pinned by none, free to
be evicted) or *private* (room that a running request holds for blocks nobody else can use yet). A request pins a
whole prefix, and releases it last block first; so an idle block always stands behind its successors in the order of
eviction, and least recently used comes out leaf first without a tree.
"""

from collections import OrderedDict
from collections.abc import Sequence


class Lease:
    """The blocks one running request holds."""

    __slots__ = ("pinned", "private")

    def __init__(self, pinned: list[int], private: int) -> None:
        self.pinned = pinned
        """Keys of the shared blocks it uses: a prefix of its own blocks."""
        self.private = private
        """Number of private blocks it holds."""


class PrefixCache:
    """Which prefixes are cached, and who may use how many blocks."""

    def __init__(self, capacity_blocks: int | None) -> None:
        self._capacity = capacity_blocks
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._private = 0

    @property
    def used_blocks(self) -> int:
        """Blocks that running requests hold."""
        return len(self._users) + self._private

    @property
    def cached_blocks(self) -> int:
        """Shared blocks, in use or idle."""
        return len(self._users) + len(self._idle)

    @property
    def used_ratio(self) -> float:
        """Blocks held by running requests / capacity; 0 without a limit."""
        return 0.0 if self._capacity is None else self.used_blocks / self._capacity

    def fits(self, blocks: int) -> bool:
        """Whether a request of so many blocks could run if it were alone."""
        return self._capacity is None or blocks <= self._capacity

    def match(self, blocks: Sequence[int]) -> int:
        """Number of leading blocks that are cached."""
        users, idle = self._users, self._idle
        for count, key in enumerate(blocks):
            if key not in users and key not in idle:
                return count
        return len(blocks)

    def admit(self, shareable: Sequence[int], total_blocks: int) -> Lease | None:
        """Room for a request of `total_blocks`, evicting idle blocks for it; None if running requests hold too many.

        Args:
            shareable: Keys of the leading blocks that may be served from the cache.
            total_blocks: All blocks it will have filled in the end.
        """
        hits = self.match(shareable)
        pinned = list(shareable[:hits])
        woken = sum(1 for key in pinned if key not in self._users)
        private = total_blocks - hits
        if not self.fits(self.used_blocks + woken + private):
            return None
        self._pin(pinned)
        self._private += private
        self._evict()
        return Lease(pinned, private)

    def extend(self, lease: Lease, shareable: Sequence[int]) -> None:
        """Pin what has been cached of `shareable` since the lease was given, in exchange for private blocks."""
        self._share(lease, shareable[len(lease.pinned) : self.match(shareable)])

    def register(self, lease: Lease, blocks: Sequence[int]) -> None:
        """Make these leading blocks of the request available to all; they are computed now."""
        self._share(lease, blocks[len(lease.pinned) :])

    def release(self, lease: Lease) -> None:
        """Take back all that a request holds; what it shared stays cached until it is evicted."""
        self._private -= lease.private
        for key in reversed(lease.pinned):
            if self._users[key] == 1:
                del self._users[key]
                self._idle[key] = None
            else:
                self._users[key] -= 1
        lease.pinned, lease.private = [], 0

    def _share(self, lease: Lease, added: Sequence[int]) -> None:
        # Where two requests computed the same block, the later one uses the earlier one's and gives its own back.
        self._pin(added)
        lease.pinned.extend(added)
        lease.private -= len(added)
        self._private -= len(added)

    def _pin(self, keys: Sequence[int]) -> None:
        users, idle = self._users, self._idle
        for key in keys:
            if key in users:
                users[key] += 1
            else:
                idle.pop(key, None)
                users[key] = 1

    def _evict(self) -> None:
        if self._capacity is None:
            return
        excess = self.used_blocks + len(self._idle) - self._capacity
        for _ in range(excess):
            self._idle.popitem(last=False)
