"""Pure: which blocks of two played trees are the same text, as integer keys.

A block that only one tree of the trace contains gets a key of its own for every instance of that tree; a block that
several trees contain has one key for all. So playing a tree twice warms nothing but what real trees share. With
`share_system`, the leading tool definitions and system prompts of sessions of one harness and agent kind have the
same keys up to the shorter one, whatever the trace's ids say: for sources whose ids are local to one conversation.
The replayer writes text from these keys and the report's unlimited-cache bound matches on them, so both agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from aitrace.columns import (
    SEGMENT_TYPES,
    CallColumns,
    Integers,
    SegmentColumns,
    call_columns,
    segment_columns,
)
from aitrace.prompts import PromptResolver
from aitrace.schema import Trace

_INSTANCE_SHIFT = 40
_SYSTEM_NAMESPACE = 1 << 62
_PARTIAL_OFFSET = 1 << (_INSTANCE_SHIFT - 1)
_SYSTEM_TYPES = (SEGMENT_TYPES.index("tool_definition"), SEGMENT_TYPES.index("system"))

Run = tuple[int, int]
"""First key and number of consecutive keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spans:
    """Spans of blocks that have one key in all trees."""

    start: Integers
    """First block of each."""
    end: Integers
    """Block behind its last one."""
    key: Integers
    """Key of its first block; those of the others follow."""


class BlockIdentity:
    """Keys of blocks, by segment and instance of its tree."""

    def __init__(self, trace: Trace, *, share_system: bool = False) -> None:
        self._segments = segment_columns(trace)
        shared = _shared_blocks(trace, self._segments)
        if share_system:
            shared = _joined(_system_keys(trace, self._segments), shared)
        self._common = _without_overlap(shared)
        self._has_common = self.have_common()

    def runs(self, segment_id: int, instance: int) -> tuple[Run, ...]:
        """Keys of the segment's blocks, in order, as runs.

        Args:
            instance: Which playing of the tree, from 1.
        """
        own = instance << _INSTANCE_SHIFT
        blocks = _runs_of(self._segments, segment_id)
        if not self._has_common[segment_id]:
            return tuple((own + first, count) for first, count in blocks)
        runs: list[Run] = []
        for first, count in blocks:
            for key, length in self._keys(first, first + count, own):
                if runs and runs[-1][0] + runs[-1][1] == key:
                    runs[-1] = (runs[-1][0], runs[-1][1] + length)
                else:
                    runs.append((key, length))
        return tuple(runs)

    def have_common(self) -> npt.NDArray[np.bool_]:
        """Of each segment, whether a block of it has one key in all trees."""
        common, segments = self._common, self._segments
        ends = segments.run_start + segments.run_count
        held = np.searchsorted(common.end, segments.run_start, "right") < np.searchsorted(common.start, ends)
        until = np.concatenate(([0], np.cumsum(held)))
        return until[segments.runs_first[1:]] > until[segments.runs_first[:-1]]

    def _keys(self, first: int, end: int, own: int) -> Iterator[Run]:
        """Keys of the blocks from `first` to `end`, cut where a span begins or ends."""
        common = self._common
        place, last = np.searchsorted(common.end, first, "right"), np.searchsorted(common.start, end)
        starts, ends, keys = (
            column[place:last].tolist() for column in (common.start, common.end, common.key)
        )
        for span_start, span_end, key in zip(starts, ends, keys, strict=True):
            if first < span_start:
                yield own + first, span_start - first
            inner = max(first, span_start)
            yield key + inner - span_start, min(end, span_end) - inner
            first = min(end, span_end)
        if first < end:
            yield own + first, end - first


def is_own_key(key: int, instance: int) -> bool:
    """Whether a key that `BlockIdentity.runs` gave for this instance is of a block that only one tree contains."""
    return key >> _INSTANCE_SHIFT == instance


def _runs_of(segments: SegmentColumns, segment_id: int) -> list[Run]:
    """The segment's blocks: first id and count of each run."""
    place = slice(segments.runs_first[segment_id], segments.runs_first[segment_id + 1])
    return list(zip(segments.run_start[place].tolist(), segments.run_count[place].tolist(), strict=True))


def _joined(one: _Spans, other: _Spans) -> _Spans:
    return _Spans(
        start=np.concatenate((one.start, other.start)),
        end=np.concatenate((one.end, other.end)),
        key=np.concatenate((one.key, other.key)),
    )


def _pieces(start: Integers, end: Integers) -> tuple[Integers, Integers, Integers]:
    """Spans cut wherever one of them begins or ends: all these places, and for each piece of each span the place where
    it begins, by index, and the span.
    """
    edges = np.unique(np.concatenate((start, end)))
    first = np.searchsorted(edges, start)
    lengths = np.searchsorted(edges, end) - first
    span = np.repeat(np.arange(len(start)), lengths)
    within = np.arange(len(span)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return edges, first[span] + within, span


def _without_overlap(spans: _Spans) -> _Spans:
    """The same blocks in order, each with the key that the first of the spans which hold it gives."""
    edges, piece, span = _pieces(spans.start, spans.end)
    # np.unique gives the first of equals, and pieces lie in the order of their spans.
    held, first = np.unique(piece, return_index=True)
    start, owner = edges[held], span[first]
    return _Spans(start=start, end=edges[held + 1], key=spans.key[owner] + start - spans.start[owner])


def _shared_blocks(trace: Trace, segments: SegmentColumns) -> _Spans:
    """Blocks that the prompts of more than one tree contain; their keys are their ids."""
    if trace.header.block_scope == "tree":
        nothing = np.zeros(0, np.int64)
        return _Spans(start=nothing, end=nothing, key=nothing)
    roots, used = _segments_by_tree(trace, call_columns(trace), len(segments.size))
    counts = segments.runs_first[used + 1] - segments.runs_first[used]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    run = np.repeat(segments.runs_first[used], counts) + within
    start = segments.run_start[run]
    edges, piece, span = _pieces(start, start + segments.run_count[run])
    owner = np.repeat(roots, counts)[span]
    lowest = np.full(len(edges), len(trace.sessions))
    highest = np.full(len(edges), -1)
    np.minimum.at(lowest, piece, owner)
    np.maximum.at(highest, piece, owner)
    shared = np.flatnonzero(lowest < highest)
    return _Spans(start=edges[shared], end=edges[shared + 1], key=edges[shared])


def _segments_by_tree(trace: Trace, calls: CallColumns, segments: int) -> tuple[Integers, Integers]:
    """Root and segment of each pair of a tree and a segment it uses."""
    roots, used = [np.repeat(calls.root, np.diff(calls.add_first))], [calls.add]
    prompts = PromptResolver(trace.calls)
    has_base = np.flatnonzero(calls.base >= 0)
    # What is kept of a prompt of the same tree was added there.
    for call in has_base[calls.root[calls.base[has_base]] != calls.root[has_base]].tolist():
        ids = np.array(prompts.segment_ids(call), np.int64)
        roots.append(np.full(len(ids), calls.root[call]))
        used.append(ids)
    pairs = np.unique(np.concatenate(roots) * segments + np.concatenate(used))
    return pairs // max(segments, 1), pairs % max(segments, 1)


def _system_keys(trace: Trace, segments: SegmentColumns) -> _Spans:
    """Keys of the blocks of leading tool and system segments, by the place of the block in the segment and by what
    the segment is for. A block that a tree uses in two such segments keeps one key, so what the trace says of sharing
    inside a tree stays true; sessions of an unknown harness are left out.
    """
    calls = call_columns(trace)
    prompts = PromptResolver(trace.calls)
    spans: list[tuple[int, int, int]] = []
    namespaces: dict[tuple[object, ...], int] = {}
    variants: dict[tuple[object, ...], dict[int, int]] = {}
    for call, (number, call_class) in enumerate(
        zip(calls.session.tolist(), calls.call_class.tolist(), strict=True)
    ):
        session = trace.sessions[number]
        if session.harness is None:
            continue
        leading = takewhile(lambda one: segments.type[one] in _SYSTEM_TYPES, prompts.segment_ids(call))
        for position, segment in enumerate(leading):
            use = (session.harness, session.agent, call_class, int(segments.type[segment]), position)
            # A session may change its system prompt: its second one corresponds to the second one of other trees.
            in_tree = variants.setdefault((session.root, *use), {})
            if segment in in_tree:
                continue
            in_tree[segment] = len(in_tree)
            namespace = namespaces.setdefault((*use, in_tree[segment]), len(namespaces))
            base = _SYSTEM_NAMESPACE + (namespace << _INSTANCE_SHIFT)
            spans.extend(_keyed(segments, segment, base, trace.header.block_size))
    start, count, key = np.array(spans, np.int64).reshape(-1, 3).T
    return _Spans(start=start, end=start + count, key=key)


def _keyed(
    segments: SegmentColumns, segment: int, base: int, block_size: int
) -> Iterator[tuple[int, int, int]]:
    """First block, count and first key of the segment's runs."""
    size = int(segments.size[segment])
    offset, full = 0, size // block_size
    for first, count in _runs_of(segments, segment):
        whole = min(count, full - offset)
        if whole:
            yield first, whole, base + offset
        if count > whole:
            # A partial block must not be taken for the full block of a longer prompt.
            yield first + whole, 1, base + _PARTIAL_OFFSET + size
        offset += whole
