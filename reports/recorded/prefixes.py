"""Pure: where consecutive prompts of a session part, and what that costs.

A prompt is compared with the one before it in the conversation of its session. What both begin with can be served from
a cache; what the earlier one had beyond that is lost to this call, and what of it the new prompt has again, further
back, must be computed again though nothing in it changed. Calls beside the conversation, repeats of failed calls, and
prompts whose start was not seen are left out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from aitrace.columns import (
    SEGMENT_TYPES,
    SegmentColumns,
    call_columns,
    segment_columns,
)
from aitrace.formats.unknowns import Unknown
from aitrace.prompts import PromptResolver
from aitrace.schema import Header, Trace
from reports.cache.bound import SentCalls, bound_sizes
from reports.cache.paths import SizedRun, TracePaths, shared_size, sized_runs
from reports.recorded.facts import Recorded, is_of_chain
from reports.tables import TURNED_AWAY

CLASSES = {
    "appended": "only appended",
    "tail": "end rewritten",
    "head": "tools or system prompt changed",
    "compaction": "compaction",
    "reset": "history replaced",
    "model": "other model",
}
"""Ways in which a prompt goes on from the one before it."""
KINDS = {
    "system": "tools and system prompt",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool results",
}
"""Kinds of segments by who brought them in."""

CHAINED_SOURCES = ("mooncake", "weka")
"""Sources whose ids of blocks stand for all that came before, so that equal content behind a break looks new."""

_HEAD_TYPES = (SEGMENT_TYPES.index("tool_definition"), SEGMENT_TYPES.index("system"))
_SCHEMA: dict[str, Any] = {
    "call": pl.Int64,
    "before": pl.Int64,
    "class": pl.String,
    "segment": pl.Int64,
    "segment_role": pl.String,
    "segment_type": pl.String,
    "segment_size": pl.Int64,
    "kept_size": pl.Int64,
    "lost_size": pl.Int64,
    "again_size": pl.Int64,
    **{f"new_{kind}_size": pl.Int64 for kind in KINDS},
}
_POSSIBLE = ("call", "possible_session_size", "possible_tree_size", "possible_other_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A call and the one before it in its conversation."""

    before: int
    call: int
    is_other_model: bool
    is_other_window: bool
    is_compaction: bool
    """Whether one of the two makes a summary."""


def prefix_steps(recorded: Recorded) -> pl.DataFrame:
    """One row per call that follows another one in its conversation: how its prompt goes on from that one's.

    `segment` is the place of the first segment of the new prompt that differs (None if none does, and at its end if the
    new prompt is the start of the old one); sizes are in the trace's unit. `again_size` is None for traces of
    `CHAINED_SOURCES`.
    """
    comparer = _Comparer(recorded.trace)
    rows = [comparer.row(step) for step in _steps(recorded)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def first_sizes(recorded: Recorded) -> pl.DataFrame:
    """One row per conversation: sizes of the first prompt by kind of segment."""
    chain = recorded.calls.filter(is_of_chain() & ~pl.col("unseen_start"))
    first = chain.sort("session", "place").unique("session", keep="first", maintain_order=True)
    comparer = _Comparer(recorded.trace)
    rows = [(call, *comparer.kinds(call)) for call in first["call"].to_list()]
    return pl.DataFrame(
        rows, schema={"call": pl.Int64, **{f"new_{kind}_size": pl.Int64 for kind in KINDS}}, orient="row"
    )


def _steps(recorded: Recorded) -> Iterator[_Step]:
    chain = recorded.calls.filter(is_of_chain() & pl.col("retry_of").is_null()).sort("session", "place")
    rows = chain.select("session", "call", "model", "window", "call_class", "unseen_start").iter_rows()
    for (session, before, model, window, call_class, unseen), (
        next_session,
        call,
        next_model,
        next_window,
        next_class,
        next_unseen,
    ) in pairwise(rows):
        if session != next_session or unseen or next_unseen:
            continue
        yield _Step(
            before=before,
            call=call,
            is_other_model=model != next_model,
            is_other_window=window != next_window,
            is_compaction="compaction" in (call_class, next_class),
        )


class _Comparer:
    """Compares prompts of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._calls = call_columns(trace)
        self._segments = segment_columns(trace)
        self._prompts = PromptResolver(trace.calls)
        self._hidden_size = _hidden_size(trace.header)
        self._is_chained = trace.header.source in CHAINED_SOURCES

    def row(self, step: _Step) -> tuple[Any, ...]:
        old, new = self._prompts.segment_ids(step.before), self._prompts.segment_ids(step.call)
        same = self._same_segments(step, old, new)
        old_rest, new_rest = old[same:], new[same:]
        new_size = int(self._calls.prompt_size[step.call])
        lost = self._size(old_rest)
        within = 0
        if old_rest and new_rest:
            within = self._shared_start(old_rest, new_rest)
            lost -= within
        kept = int(self._calls.prompt_size[step.before]) - lost
        is_whole = lost <= self._hidden_size
        again = 0 if is_whole else self._again(old_rest, new_rest, within)
        name = self._class_of(step, old, same, within, is_whole=is_whole)
        if step.is_other_model:
            # Another model has none of it in its cache.
            again = None if again is None else again + kept
            kept, lost = 0, int(self._calls.prompt_size[step.before])
        place = None if name == "appended" else 0 if name == "model" else self._place(new, same, within)
        return (
            step.call,
            step.before,
            name,
            place,
            *self._segment_facts(new, place),
            min(kept, new_size),
            0 if name == "appended" else lost,
            None if self._is_chained else 0 if name == "appended" else again,
            *self._new_kinds(old_rest, new_rest, within),
        )

    def kinds(self, call: int) -> tuple[int, ...]:
        """Sizes of a whole prompt by kind of segment."""
        return self._new_kinds((), self._prompts.segment_ids(call), 0)

    def _same_segments(self, step: _Step, old: Sequence[int], new: Sequence[int]) -> int:
        calls = self._calls
        same = int(calls.keep[step.call]) if calls.base[step.call] == step.before else 0
        limit = min(len(old), len(new))
        while same < limit and old[same] == new[same]:
            same += 1
        return same

    def _size(self, segments: Sequence[int]) -> int:
        return int(self._segments.size[list(segments)].sum()) if segments else 0

    def _shared_start(self, old: Sequence[int], new: Sequence[int]) -> int:
        """Size of the blocks that both begin with, wherever their segments end."""
        return shared_size(self._runs(old), self._runs(new))

    def _runs(self, segments: Sequence[int]) -> list[SizedRun]:
        block_size = self._trace.header.block_size
        return [run for segment in segments for run in _segment_runs(self._segments, segment, block_size)]

    def _again(self, old: Sequence[int], new: Sequence[int], shared: int) -> int | None:
        """Size of what the old rest and the new one both hold beyond their shared start."""
        if self._is_chained:
            return None
        held, wanted = self._block_counts(old), self._block_counts(new)
        both = sum(min(count, wanted[block]) * block[1] for block, count in held.items() if block in wanted)
        return max(both - shared, 0)

    def _block_counts(self, segments: Sequence[int]) -> Counter[tuple[int, int]]:
        """Blocks by id and size."""
        counts: Counter[tuple[int, int]] = Counter()
        for first, count, size in self._runs(segments):
            counts.update((block, size) for block in range(first, first + count))
        return counts

    def _class_of(self, step: _Step, old: Sequence[int], same: int, within: int, *, is_whole: bool) -> str:
        if step.is_other_model:
            return "model"
        if is_whole:
            return "appended"
        if step.is_compaction:
            return "compaction"
        head = self._head_length(old)
        if same < head:
            return "head"
        # A message that only begins alike, as with the same reminder, is another one.
        is_new = same == head and 2 * within < int(self._segments.size[old[same]])
        return "reset" if step.is_other_window or is_new else "tail"

    def _head_length(self, segments: Sequence[int]) -> int:
        """Tool definitions and system segments that a prompt begins with."""
        types = self._segments.type
        return next(
            (place for place, one in enumerate(segments) if types[one] not in _HEAD_TYPES), len(segments)
        )

    def _place(self, new: Sequence[int], same: int, within: int) -> int:
        """Where the first differing segment stands; those that the shared blocks cover whole are alike."""
        for place in range(same, len(new)):
            size = int(self._segments.size[new[place]])
            if within < size:
                return place
            within -= size
        return len(new)

    def _segment_facts(self, segments: Sequence[int], place: int | None) -> tuple[Any, ...]:
        """Role, type and size; all None at the end of the prompt."""
        if place is None or place >= len(segments):
            return (None, None, None)
        segment = self._trace.segments[segments[place]]
        return segment.role, segment.type, segment.size

    def _new_kinds(self, old: Sequence[int], new: Sequence[int], shared: int) -> tuple[int, ...]:
        """Sizes of the segments that the old rest does not have, by kind, less the start that both share."""
        sizes = dict.fromkeys(KINDS, 0)
        had = Counter(old)
        for one in new:
            if had[one]:
                had[one] -= 1
                shared -= min(shared, int(self._segments.size[one]))
                continue
            size = int(self._segments.size[one])
            common = min(shared, size)
            shared -= common
            sizes[self._kind(one)] += size - common
        return tuple(sizes.values())

    def _kind(self, segment: int) -> str:
        kind = SEGMENT_TYPES[self._segments.type[segment]]
        if kind in ("tool_definition", "system"):
            return "system"
        if kind == "tool_result":
            return "tool"
        role = self._trace.segments[segment].role
        return role if role in KINDS else "user"


def _segment_runs(segments: SegmentColumns, segment: int, block_size: int) -> tuple[SizedRun, ...]:
    """Blocks of a segment as runs of id, count and size of each block."""
    place = slice(segments.runs_first[segment], segments.runs_first[segment + 1])
    runs = zip(segments.run_start[place].tolist(), segments.run_count[place].tolist(), strict=True)
    return sized_runs(tuple(runs), int(segments.size[segment]), block_size)


def _hidden_size(header: Header) -> int:
    """Size that the end of a prompt may lose without a break: what lies behind its last block is shared with nothing
    in sources that do not tell it.
    """
    return header.block_size if Unknown.TAILS in header.unknown or header.source in CHAINED_SOURCES else 0


def possible_sizes(recorded: Recorded) -> pl.DataFrame:
    """One row per call: size of the prefix that an earlier prompt to the same model had, by who had it.

    In the order of the requests; trees whose times cannot be compared one after the other. Prompts that were turned away
    are known to nobody. Prompts whose start was not seen have no row.
    """
    trace = recorded.trace
    order = ["root", "request_ns", "call"] if trace.header.clock_scope == "tree" else ["request_ns", "call"]
    sent = recorded.calls.filter(~pl.col("unseen_start")).sort(order)
    columns, paths = call_columns(trace), TracePaths(trace, share_system=False)
    parts = [pl.DataFrame(schema=dict.fromkeys(_POSSIBLE, pl.Int64))]
    # Caches of two models share nothing.
    for _, of_model in sent.group_by("model", maintain_order=True):
        calls = SentCalls(
            call=of_model["call"].to_numpy(),
            instance=np.zeros(of_model.height, np.int64),
            is_stored=~of_model["error"].is_in(TURNED_AWAY).fill_null(value=False).to_numpy(),
        )
        sizes = bound_sizes(calls, columns, paths)
        found = (calls.call, sizes.session, sizes.tree, sizes.other)
        parts.append(pl.DataFrame(dict(zip(_POSSIBLE, found, strict=True))))
    return pl.concat(parts)
