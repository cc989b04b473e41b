"""Pure: parts of prompts to segments of a trace, each stored once.

A part that was seen before costs one hash. A new one is cut into blocks; a block's id stands for everything from the
start of its segment to the block's own end. The hashes are seeded from the key, and only counters leave this module.
"""

from collections.abc import Iterable
from hashlib import blake2b

import xxhash

from aitrace.protocols.protocol import RequestPart
from aitrace.schema import Role, Segment, SegmentType


class Segmenter:
    """Gives each piece of a prompt its segment.

    Args:
        key: Random bytes that seed the hashes.
        block_size: Bytes of a block.
        keep_text: Whether segments carry their text.
    """

    def __init__(self, key: bytes, *, block_size: int, keep_text: bool) -> None:
        self._seed = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
        self._block_size = block_size
        self._keep_text = keep_text
        self._known: dict[tuple[Role, SegmentType], dict[int, int]] = {}
        self._block_ids: dict[int, int] = {}
        self._segments = 0

    def segments(self, parts: Iterable[RequestPart]) -> tuple[list[int], list[Segment]]:
        """The segments of a prompt by id, and those among them that are new, in the order of their ids."""
        ids: list[int] = []
        new: list[Segment] = []
        for part in parts:
            # A lone surrogate has no UTF-8; no model sees it as such either.
            data = part.text.encode("utf-8", "replace")
            known = self._known.get((part.role, part.type))
            if known is None:
                known = self._known[part.role, part.type] = {}
            digest = xxhash.xxh3_128_intdigest(data, self._seed)
            segment_id = known.get(digest)
            if segment_id is None:
                segment_id = known[digest] = self._segments
                self._segments += 1
                new.append(self._segment(segment_id, part, data))
            ids.append(segment_id)
        return ids, new

    def _segment(self, segment_id: int, part: RequestPart, data: bytes) -> Segment:
        return Segment(
            id=segment_id,
            role=part.role,
            type=part.type,
            size=len(data),
            blocks=self._runs(data),
            text=data.decode() if self._keep_text else None,
        )

    def _runs(self, data: bytes) -> tuple[tuple[int, int], ...]:
        """Ids of the blocks of `data`, as runs."""
        runs: list[tuple[int, int]] = []
        chained = xxhash.xxh3_128(seed=self._seed)
        view = memoryview(data)
        for start in range(0, len(data), self._block_size):
            chained.update(view[start : start + self._block_size])
            block = self._block_ids.setdefault(chained.intdigest(), len(self._block_ids))
            if runs and sum(runs[-1]) == block:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((block, 1))
        return tuple(runs)
