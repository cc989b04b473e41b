"""Pure: how many distinct prompt tokens a plan holds alive at a time, if every answer takes its recorded time.

A block is alive from the moment that a session first sends it until that session's last answer ends; a block of
several sessions counts once. That is the cache that would lose nothing a live session still needs.

Blocks are handled as runs of consecutive keys, cut wherever a run of any segment begins or ends: within such a piece
all blocks live and die together. Pieces that only one tree has are those of its playing and are forgotten with it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat

import numpy as np

from aitrace.columns import segment_columns
from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver
from replayer.planning.outline import OutlinedCall
from replayer.planning.plan import Plan
from replayer.planning.planned import PlannedTree
from replayer.planning.sweep import Sweep

Span = tuple[int, int]
"""Start and end of a time that something is alive, ns."""
_Sized = tuple[int, int, int]
"""A run of blocks of one size: first key, number, size of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Distinct prompt tokens of a plan."""

    distinct_tokens: int
    """Of all prompts together."""
    peak_tokens: int | None
    """Most of them alive at a time; None if the plan does not know its times."""


class WorkingSetCount:
    """Counts distinct prompt tokens, in total and alive at a time, tree by tree in the order of their starts."""

    def __init__(self, plan: Plan, identity: BlockIdentity) -> None:
        self._tokens_per_unit = plan.tokens_per_unit
        self._segments = _Segments(plan, identity)
        self._shared_edges = self._segments.shared_edges(plan)
        self._seen_pieces: set[int] = set()
        """Shared pieces, by the edge they begin at."""
        self._units = 0
        self._alive = Sweep()

    def add(self, tree: PlannedTree, calls: Sequence[OutlinedCall]) -> None:
        """Count in a tree by those of its calls that are due in time, of which there is at least one."""
        start_ns = tree.planned_ns or 0
        self._alive.pass_to(start_ns)
        spans = _spans_of_segments(calls, self._segments)
        own: dict[_Sized, list[Span]] = {}
        shared: dict[_Sized, list[Span]] = {}
        for segment, alive in spans.items():
            for sized, is_shared in self._segments.runs(segment):
                (shared if is_shared else own).setdefault(sized, []).extend(alive)
        for (first, count, size), alive in shared.items():
            self._add_shared(first, count, size, [(a_ns + start_ns, b_ns + start_ns) for a_ns, b_ns in alive])
        for units, alive in _own_pieces(own):
            self._units += units
            for a_ns, b_ns in merged(alive):
                self._alive.add(a_ns + start_ns, b_ns + start_ns, units)

    def result(self, *, is_timed: bool) -> WorkingSet:
        """What all trees have, now that all are counted in.

        Args:
            is_timed: Whether it is known of all their calls when they are due and end.
        """
        peak = self._alive.peak()
        return WorkingSet(
            distinct_tokens=round(self._units * self._tokens_per_unit),
            peak_tokens=round(peak * self._tokens_per_unit) if is_timed else None,
        )

    def _add_shared(self, first: int, count: int, size: int, alive: Sequence[Span]) -> None:
        edges = self._shared_edges
        for place in range(bisect_left(edges, first), bisect_left(edges, first + count)):
            units = (edges[place + 1] - edges[place]) * size
            if place not in self._seen_pieces:
                self._seen_pieces.add(place)
                self._units += units
            for a_ns, b_ns in alive:
                self._alive.add(a_ns, b_ns, units, shared=place)


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same times as spans that do not touch, in order."""
    if len(spans) == 1:
        return [*spans]
    result: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        if result and start_ns <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end_ns))
        else:
            result.append((start_ns, end_ns))
    return result


class _Segments:
    """Segments of a trace's prompts, as runs of blocks."""

    def __init__(self, plan: Plan, identity: BlockIdentity) -> None:
        self._prompts = PromptResolver(plan.trace.calls)
        self._columns = segment_columns(plan.trace)
        self._block_size = plan.trace.header.block_size
        self._identity = identity
        self._have_shared = identity.have_common()

    def of_call(self, call: int) -> tuple[int, ...]:
        """Segments of the prompt of a call."""
        return self._prompts.segment_ids(call)

    def runs(self, segment: int) -> Iterator[tuple[_Sized, bool]]:
        """Runs of a segment's blocks that are not empty, and whether all playings of all trees have the same text there.

        The last block, which may be smaller, is a run of its own.
        """
        left, block_size = int(self._columns.size[segment]), self._block_size
        for first, count, is_shared in self._whole_runs(segment):
            full = min(count, left // block_size)
            if full:
                yield (first, full, block_size), is_shared
            if count > full:
                yield (first + full, count - full, left - full * block_size), is_shared
            left -= full * block_size

    def _whole_runs(self, segment: int) -> Iterator[tuple[int, int, bool]]:
        """First key or, of what is not shared, first block; number of blocks; whether they are shared."""
        if not self._have_shared[segment]:
            place = slice(self._columns.runs_first[segment], self._columns.runs_first[segment + 1])
            starts, counts = self._columns.run_start[place].tolist(), self._columns.run_count[place].tolist()
            yield from zip(starts, counts, repeat(False), strict=False)
            return
        runs, again = self._identity.runs(segment, 1), self._identity.runs(segment, 2)
        for (first, count), (other, _) in zip(runs, again, strict=True):
            # Keys of one playing are as far from those of the next as the first ones are from the blocks.
            yield 2 * first - other, count, first == other

    def shared_edges(self, plan: Plan) -> list[int]:
        """Where runs begin and end that all playings share, in order."""
        having = set(np.flatnonzero(self._have_shared).tolist())
        used: set[int] = set()
        for tree in plan.distinct_trees if having else ():
            for call in plan.outline_of(tree):
                used.update(having.intersection(self.of_call(call.call)))
        edges: set[int] = set()
        runs = chain.from_iterable(map(self.runs, used))
        for (first, count, _), is_shared in runs:
            edges.update((first, first + count) if is_shared else ())
        return sorted(edges)


def _spans_of_segments(calls: Sequence[OutlinedCall], segments: _Segments) -> dict[int, list[Span]]:
    """When each segment of one tree's prompts is alive, one span for each of its sessions that has it."""
    ends_ns: dict[int, int] = {}
    for call in calls:
        ends_ns[call.session] = max(ends_ns.get(call.session, 0), call.end_ns or 0)
    seen: dict[int, set[int]] = {}
    spans: dict[int, list[Span]] = {}
    for call in sorted(calls, key=lambda call: call.due_ns or 0):
        known = seen.setdefault(call.session, set())
        span = (call.due_ns or 0, ends_ns[call.session])
        for segment in segments.of_call(call.call):
            if segment not in known:
                known.add(segment)
                spans.setdefault(segment, []).append(span)
    return spans


def _own_pieces(runs: dict[_Sized, list[Span]]) -> Iterable[tuple[int, list[Span]]]:
    """Size and times of what the runs of one tree consist of, each block once."""
    if _are_apart(runs):
        return ((count * size, alive) for (_, count, size), alive in runs.items())
    edges = sorted({edge for first, count, _ in runs for edge in (first, first + count)})
    pieces: dict[int, tuple[int, list[Span]]] = {}
    for (first, count, size), alive in runs.items():
        for place in range(bisect_left(edges, first), bisect_left(edges, first + count)):
            units = (edges[place + 1] - edges[place]) * size
            pieces.setdefault(place, (units, []))[1].extend(alive)
    return pieces.values()


def _are_apart(runs: Iterable[_Sized]) -> bool:
    """Whether no block is in two of the runs."""
    return all(one[0] + one[1] <= other[0] for one, other in pairwise(sorted(runs)))
