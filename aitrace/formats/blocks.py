"""Pure: turns prompts given as block ids into segments, so that the segments' blocks are exactly the given ones.

Sources identify a prompt by the ids of its blocks and say nothing of where messages end. A prompt is cut into
segments at block boundaries; the next prompt keeps the segments that lie within the common prefix, repeats the
common part of a segment in which the prefix ends, and adds the rest. What lies beyond the last block (the tail)
has a size but no known identity: it becomes a segment of its own with fresh ids that nothing else shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aitrace.errors import InputError
from aitrace.schema import Prompt, Role, Segment, SegmentType
from aitrace.validate import MAX_SEGMENT_BLOCKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where one segment of a prompt ends."""

    upto_block: int
    """Blocks from the start of the prompt to the end of the segment."""
    role: Role
    """Who speaks."""
    type: SegmentType
    """What it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPrompt:
    """A prompt that was written, as later ones need it."""

    call_id: int
    """Call that had it."""
    ids: tuple[int, ...]
    """Source ids of its blocks."""
    size: int
    """Size in tokens, tail included."""
    full_blocks: int
    """Number of `ids` whose block is full."""
    pieces: tuple[Cut, ...]
    """Segments that are made of `ids`, in order; a tail follows if `size` is larger than they are."""
    tail: Cut
    """Role and type of the end of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPrompt:
    """A prompt with the segments that are new in it."""

    prompt: Prompt
    """As the trace has it."""
    segments: tuple[Segment, ...]
    """New segments, in order of their ids."""
    held: HeldPrompt
    """For later prompts."""


class BlockNumbers:
    """Dense ids of blocks and segments, in order of appearance."""

    def __init__(self) -> None:
        self.blocks = 0
        """Block ids taken so far."""
        self.segments = 0
        """Segment ids taken so far."""

    def take_blocks(self, count: int) -> int:
        """The first of the next `count` block ids."""
        self.blocks += count
        return self.blocks - count

    def take_segment(self) -> int:
        """The next segment id."""
        self.segments += 1
        return self.segments - 1


class PromptWriter:
    """Writes the prompts of one tree; `block_of_source_id` may be shared by trees whose ids are of one scope."""

    def __init__(self, *, block_size: int, numbers: BlockNumbers, block_of_source_id: dict[int, int]) -> None:
        self._block_size = block_size
        self._numbers = numbers
        self._block_of_source_id = block_of_source_id
        self._first_holder: dict[int, HeldPrompt] = {}

    def best_base(self, ids: Sequence[int], size: int, previous: HeldPrompt | None) -> HeldPrompt | None:
        """The earlier prompt that shares the longest prefix; `previous` unless another one shares more."""
        shared = 0 if previous is None else self.shared_blocks(previous, ids, size)
        if shared == len(ids) or ids[shared] not in self._first_holder:
            return previous
        known = self._known_blocks(ids)
        other = self._first_holder[ids[known - 1]] if known else None
        if other is not None and self.shared_blocks(other, ids, size) > shared:
            return other
        return previous

    def _known_blocks(self, ids: Sequence[int]) -> int:
        """Length of the prefix whose ids were all seen; ids are chained, so bisection finds it."""
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high + 1) // 2
            if ids[middle - 1] in self._first_holder:
                low = middle
            else:
                high = middle - 1
        return low

    def shared_blocks(self, held: HeldPrompt, ids: Sequence[int], size: int) -> int:
        """Blocks of the common prefix, ids and sizes being equal."""
        full = min(len(ids), size // self._block_size)
        shared = common_prefix(held.ids, ids)
        if shared == len(ids) == len(held.ids) and held.size == size:
            return shared
        return min(shared, held.full_blocks, full)

    def write(
        self, call_id: int, ids: tuple[int, ...], size: int, base: HeldPrompt | None, cuts: Sequence[Cut]
    ) -> WrittenPrompt:
        """The prompt of one call.

        Args:
            ids: Source ids of its blocks, at most as many as `size` has room for; the last may be partial.
            size: Tokens of the whole prompt.
            base: Earlier prompt to continue.
            cuts: How to cut what is new; the last one gives the end of the prompt, whatever its `upto_block`.

        Raises:
            InputError: A piece of it has more blocks than a segment may have.
        """
        shared = 0 if base is None else self.shared_blocks(base, ids, size)
        kept, pieces = self._kept_pieces(base, shared)
        pieces += _cut_new(shared, len(ids), cuts)
        start = pieces[kept - 1].upto_block if kept else 0
        segments: list[Segment] = []
        for piece in pieces[kept:]:
            segments.append(self._segment(ids, size, start, piece))
            start = piece.upto_block
        tail_size = size - len(ids) * self._block_size
        if tail_size > 0:
            segments.append(self._tail_segment(tail_size, cuts[-1]))
        longest = max((segment.size for segment in segments), default=0)
        if longest > MAX_SEGMENT_BLOCKS * self._block_size:
            raise InputError(
                f"a prompt of {size} tokens: expected pieces of at most {MAX_SEGMENT_BLOCKS} blocks of "
                f"{self._block_size}, got one of {longest} tokens",
                hint="no model reads that many; correct the size in the source",
            )
        held = HeldPrompt(
            call_id=call_id,
            ids=ids,
            size=size,
            full_blocks=min(len(ids), size // self._block_size),
            pieces=tuple(pieces),
            tail=cuts[-1],
        )
        for source_id in ids[shared:]:
            self._first_holder.setdefault(source_id, held)
        prompt = Prompt(
            base=base.call_id if base is not None and kept else None,
            keep=kept,
            add=tuple(segment.id for segment in segments),
        )
        return WrittenPrompt(prompt=prompt, segments=tuple(segments), held=held)

    def _kept_pieces(self, base: HeldPrompt | None, shared: int) -> tuple[int, list[Cut]]:
        """Number of whole pieces within the prefix, and these with the cut one, if any, at the end."""
        if base is None:
            return 0, []
        kept = [piece for piece in base.pieces if piece.upto_block <= shared]
        covered = kept[-1].upto_block if kept else 0
        if covered == shared:
            return len(kept), kept
        broken = base.pieces[len(kept)]
        return len(kept), [*kept, Cut(upto_block=shared, role=broken.role, type=broken.type)]

    def _segment(self, ids: tuple[int, ...], size: int, start: int, piece: Cut) -> Segment:
        known = self._block_of_source_id
        blocks: list[int] = []
        for source_id in ids[start : piece.upto_block]:
            block = known.get(source_id)
            if block is None:
                block = known[source_id] = self._numbers.take_blocks(1)
            blocks.append(block)
        end = min(piece.upto_block * self._block_size, size)
        return Segment(
            id=self._numbers.take_segment(),
            role=piece.role,
            type=piece.type,
            size=end - start * self._block_size,
            blocks=runs_from_blocks(blocks),
        )

    def _tail_segment(self, tail_size: int, cut: Cut) -> Segment:
        count = -(-tail_size // self._block_size)
        return Segment(
            id=self._numbers.take_segment(),
            role=cut.role,
            type=cut.type,
            size=tail_size,
            blocks=((self._numbers.take_blocks(count), count),),
        )


def _cut_new(start: int, end: int, cuts: Sequence[Cut]) -> list[Cut]:
    """The cuts that make up the blocks from `start` to `end`."""
    pieces: list[Cut] = []
    for index, cut in enumerate(cuts):
        upto = end if index == len(cuts) - 1 else min(cut.upto_block, end)
        if upto > start:
            pieces.append(Cut(upto_block=upto, role=cut.role, type=cut.type))
            start = upto
    return pieces


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading elements that are equal; compares slices, so that no element is touched in Python."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def runs_from_blocks(blocks: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Consecutive ids as (first, how many)."""
    runs: list[tuple[int, int]] = []
    start = 0
    for i in range(1, len(blocks) + 1):
        if i == len(blocks) or blocks[i] != blocks[i - 1] + 1:
            runs.append((blocks[start], i - start))
            start = i
    return tuple(runs)


def cut_to_size(ids: tuple[int, ...], size: int, block_size: int) -> tuple[int, ...]:
    """The ids that a prompt of `size` has room for; the last may be partial."""
    return ids[: -(-size // block_size)]
