"""Pure: how many distinct prompt tokens a plan holds alive at a time, if every answer takes its recorded time.

A block is alive from the moment that a session first sends it until that session's last answer ends; a block of
several sessions counts once. That is the cache that would lose nothing a live session still needs.

Blocks are handled as runs of consecutive keys, cut wherever a run of any segment begins or ends: within such a piece
all blocks live and die together.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver
from aitrace.schema import Trace
from replayer.plan import Plan, PlannedCall

Span = tuple[int, int]
"""Start and end of a time that something is alive, ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Distinct prompt tokens of a plan."""

    distinct_tokens: int
    """Of all prompts together."""
    peak_tokens: int | None
    """Most of them alive at a time; None if the plan does not know its times."""


def working_set(trace: Trace, plan: Plan, identity: BlockIdentity) -> WorkingSet:
    """Distinct prompt tokens of a plan, in total and alive at a time."""
    pieces = _Pieces(trace, plan, identity)
    first_playing: dict[int, tuple[int, dict[int, list[Span]]]] = {}
    shared: dict[int, list[Span]] = {}
    distinct_units = 0
    changes: list[tuple[int, int]] = []
    for tree in plan.trees:
        calls = plan.calls[tree.first : tree.first + tree.count]
        start_ns = calls[0].planned_ns or 0
        if tree.root not in first_playing:
            first_playing[tree.root] = (start_ns, _piece_spans(calls, pieces))
        first_start_ns, spans_of_piece = first_playing[tree.root]
        for piece, spans in spans_of_piece.items():
            moved = [
                (a_ns + start_ns - first_start_ns, b_ns + start_ns - first_start_ns) for a_ns, b_ns in spans
            ]
            if pieces.is_shared[piece]:
                shared.setdefault(piece, []).extend(moved)
            else:
                distinct_units += pieces.sizes[piece]
                changes.extend(_changes(moved, pieces.sizes[piece]))
    for piece, spans in shared.items():
        distinct_units += pieces.sizes[piece]
        changes.extend(_changes(spans, pieces.sizes[piece]))
    is_timed = all(call.planned_end_ns is not None for call in plan.calls)
    return WorkingSet(
        distinct_tokens=round(distinct_units * plan.tokens_per_unit),
        peak_tokens=round(peak(changes) * plan.tokens_per_unit) if is_timed else None,
    )


def peak(changes: Iterable[tuple[int, int]]) -> int:
    """Highest sum of changes (time, amount) over time; at one time, falls come before rises."""
    level = highest = 0
    for _, amount in sorted(changes):
        level += amount
        highest = max(highest, level)
    return highest


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same times as spans that do not touch, in order."""
    result: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        if result and start_ns <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end_ns))
        else:
            result.append((start_ns, end_ns))
    return result


def _changes(spans: Sequence[Span], size: int) -> list[tuple[int, int]]:
    return [change for start_ns, end_ns in merged(spans) for change in ((start_ns, size), (end_ns, -size))]


class _Pieces:
    """The runs of all segments that a plan sends, cut into pieces that no segment has only a part of."""

    def __init__(self, trace: Trace, plan: Plan, identity: BlockIdentity) -> None:
        self._prompts = PromptResolver(trace.calls)
        used = {
            segment for call in {c.call for c in plan.calls} for segment in self._prompts.segment_ids(call)
        }
        runs = {segment: _sized_runs(trace, segment, identity) for segment in used}
        cuts = {
            edge for sized in runs.values() for first, count, _, _ in sized for edge in (first, first + count)
        }
        edges = sorted(cuts)
        self.sizes = [0] * len(edges)
        """Size of each piece in the trace's unit."""
        self.is_shared = [False] * len(edges)
        """Whether all playings of all trees have the same text there."""
        self._of_segment: dict[int, list[int]] = {}
        for segment, sized in runs.items():
            own: list[int] = []
            for first, count, block_size, is_shared in sized:
                for piece in range(bisect_left(edges, first), bisect_left(edges, first + count)):
                    self.sizes[piece] = (edges[piece + 1] - edges[piece]) * block_size
                    self.is_shared[piece] = is_shared
                    own.append(piece)
            self._of_segment[segment] = own

    def of_call(self, call: int, seen: set[int]) -> list[int]:
        """Pieces of the prompt of `call` that are in segments not in `seen`, which they are added to."""
        new = [segment for segment in self._prompts.segment_ids(call) if segment not in seen]
        seen.update(new)
        return [piece for segment in new for piece in self._of_segment[segment]]


def _sized_runs(trace: Trace, segment_id: int, identity: BlockIdentity) -> list[tuple[int, int, int, bool]]:
    """Runs of a segment's keys in a first playing: first key, count, size of each block, whether all playings share it.

    The last block, which may be smaller, is a run of its own.
    """
    segment = trace.segments[segment_id]
    block_size = trace.header.block_size
    first_runs, second_runs = identity.runs(segment_id, 1), identity.runs(segment_id, 2)
    sized: list[tuple[int, int, int, bool]] = []
    left = segment.size
    for (first, count), (other, _) in zip(first_runs, second_runs, strict=True):
        full = min(count, left // block_size)
        if full:
            sized.append((first, full, block_size, first == other))
        if count > full:
            sized.append((first + full, count - full, left - full * block_size, first == other))
        left -= full * block_size
    return sized


def _piece_spans(calls: Sequence[PlannedCall], pieces: _Pieces) -> dict[int, list[Span]]:
    """When each piece of one tree's prompts is alive, one span for each of its sessions that has it."""
    ends_ns: dict[int, int] = {}
    for call in calls:
        ends_ns[call.session] = max(ends_ns.get(call.session, 0), call.planned_end_ns or 0)
    seen: dict[int, set[int]] = {}
    first_ns: dict[tuple[int, int], int] = {}
    for call in sorted(calls, key=lambda call: call.planned_ns or 0):
        for piece in pieces.of_call(call.call, seen.setdefault(call.session, set())):
            first_ns.setdefault((piece, call.session), call.planned_ns or 0)
    spans: dict[int, list[Span]] = {}
    for (piece, session), start_ns in first_ns.items():
        spans.setdefault(piece, []).append((start_ns, ends_ns[session]))
    return spans
