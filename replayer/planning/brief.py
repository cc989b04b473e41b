"""Pure: the calls of a tree in short, straight from the columns of its trace: what an outline is made of.

Plain trees only: what is tried again, what only counted tokens, and gaps that are told by tools or by a dispatch
without an end need the calls themselves, see `replayer.planning.tree_calls`. Of a plain tree both say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aitrace.columns import (
    CALL_CLASSES,
    ERRORS,
    GAP_CAUSES,
    NOT_KNOWN,
    RELATIONS,
    TRIGGERS,
    CallColumns,
    Integers,
)
from aitrace.results import Phase
from aitrace.schema import GapCause, Trigger
from replayer.planning.gaps import GapRule
from replayer.planning.options import LoadOptions


# Not frozen, since those take three times as long to make, and there is one for each call of a trace.
@dataclass(slots=True, kw_only=True)
class BriefWait:
    """What a call waits for; as in `PlannedDependency`."""

    index: int
    """Place in its tree of the call waited for."""
    trigger: Trigger
    """Which moment of that call counts."""
    gap_ns: int
    """From the trigger to the dispatch, ns: scaled, capped, never below 0."""
    rule: GapRule = "gap"
    """Plain trees have no other."""


@dataclass(slots=True, kw_only=True)
class BriefCall:
    """A call of a tree that starts at 0; as in `PlannedCall`."""

    index: int
    """Place in its tree."""
    session: int
    """Session of the trace."""
    call: int
    """Call of the trace."""
    after: tuple[BriefWait, ...]
    """What it waits for."""
    offset_ns: int
    """Not due before its tree's start plus this, ns."""
    gap_cause: GapCause | None
    """Cause of the gap before it; None if it waits for nothing."""
    planned_ns: int | None
    """When it is due, ns from its tree's start; None if that is not known."""
    planned_end_ns: int | None
    """When its answer ends then; None if that is not known."""
    phase: Phase = "measured"
    """Plain trees are not primed."""


@dataclass(slots=True, kw_only=True)
class Gaps:
    """What was assumed or cut for gaps."""

    unknown: int = 0
    """Gaps that are not known."""
    overlaps: int = 0
    """Gaps below 0."""
    capped_calls: int = 0
    """Calls whose gap a cap shortened."""
    capped_ns: int = 0
    """By how much, ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BriefTree:
    """A plain tree."""

    calls: tuple[BriefCall, ...]
    """By id."""
    recorded_start_ns: int
    """When its first request was made."""
    failed: int
    """Calls that failed in the recording."""
    unrecorded: int
    """Calls without an end there for the recorder's sake."""
    unseen_start: int
    """Calls without the start of their prompt."""
    unknown_length: int
    """Calls without the length of their answer."""
    unknown_end: int
    """Calls without an end."""
    gaps: Gaps
    """What was assumed for the gaps between them."""


class _Row(NamedTuple):
    """A dependency as recorded."""

    base: int
    gap_ns: int
    trigger: Trigger
    cause: GapCause


class BriefTrees:
    """Makes trees from columns."""

    def __init__(self, columns: CallColumns, usual_duration_ns: int | None, options: LoadOptions) -> None:
        """Take on the calls of a trace.

        Args:
            usual_duration_ns: Taken where the end of a call is not known.
        """
        self._columns = columns
        self._usual_duration_ns = usual_duration_ns
        self._options = options
        self._is_plain = _plain_calls(columns)

    def tree(self, members: Integers) -> BriefTree | None:
        """The tree of these calls, in the order of ids; None if it is not plain."""
        columns = self._columns
        if not self._is_plain[members].all():
            return None
        requests_ns: list[int] = columns.request_ns[members].tolist()
        start_ns = min(requests_ns)
        gaps = Gaps()
        error = columns.error[members]
        ends_known = columns.end_ns[members] != NOT_KNOWN
        durations_ns = (columns.end_ns[members] - columns.request_ns[members]).tolist()
        planned: list[BriefCall] = []
        for number, session, request_ns, duration_ns, is_known, rows in zip(
            members.tolist(),
            columns.session[members].tolist(),
            requests_ns,
            durations_ns,
            ends_known.tolist(),
            self._dependencies(members),
            strict=True,
        ):
            after, cause = self._wait(rows, gaps) if rows else ((), None)
            offset_ns = 0 if after else round((request_ns - start_ns) * self._options.time_scale)
            due_ns = _due_ns(planned, after, offset_ns)
            took_ns = duration_ns if is_known else self._usual_duration_ns
            end_ns = None if due_ns is None or took_ns is None else due_ns + took_ns
            planned.append(
                BriefCall(
                    index=len(planned),
                    session=session,
                    call=number,
                    after=after,
                    offset_ns=offset_ns,
                    gap_cause=cause,
                    planned_ns=due_ns,
                    planned_end_ns=end_ns,
                )
            )
        return BriefTree(
            calls=tuple(planned),
            recorded_start_ns=start_ns,
            failed=int(np.count_nonzero((error != _COMPLETE) & (error != _UNRECORDED))),
            unrecorded=int(np.count_nonzero(error == _UNRECORDED)),
            unseen_start=int(np.count_nonzero(columns.unseen_start[members])),
            unknown_length=int(np.count_nonzero(columns.output_tokens[members] == NOT_KNOWN)),
            unknown_end=len(members) - int(np.count_nonzero(ends_known)),
            gaps=gaps,
        )

    def _dependencies(self, members: Integers) -> list[list[_Row]]:
        """What each call waited for."""
        columns = self._columns
        firsts, ends = columns.after_first[members], columns.after_first[members + 1]
        counts = ends - firsts
        if not counts.any():
            return [[]] * len(members)
        lasts = np.cumsum(counts)
        place = np.repeat(firsts - lasts + counts, counts) + np.arange(lasts[-1])
        rows = list(
            map(
                _Row,
                np.searchsorted(members, columns.after_call[place]).tolist(),
                columns.after_gap_ns[place].tolist(),
                map(TRIGGERS.__getitem__, columns.after_trigger[place].tolist()),
                map(GAP_CAUSES.__getitem__, columns.after_cause[place].tolist()),
            )
        )
        bounds = [0, *lasts.tolist()]
        return [rows[bounds[number] : bounds[number + 1]] for number in range(len(members))]

    def _wait(self, rows: Sequence[_Row], gaps: Gaps) -> tuple[tuple[BriefWait, ...], GapCause]:
        """What a call waits for, and the cause of its gap; see `replayer.planning.gaps`."""
        last = min((row for row in rows if row.gap_ns >= 0), key=_gap_of, default=rows[0])
        if self._options.schedule == "absolute":
            return (), last.cause
        scaled_ns = round(max(0, last.gap_ns) * self._options.time_scale)
        cap_ns = self._options.gap_caps_ns.get(last.cause)
        gap_ns = scaled_ns if cap_ns is None else min(scaled_ns, cap_ns)
        unknown = sum(row.gap_ns == NOT_KNOWN for row in rows)
        gaps.unknown += unknown
        gaps.overlaps += sum(row.gap_ns < 0 for row in rows) - unknown
        gaps.capped_calls += gap_ns < scaled_ns
        gaps.capped_ns += scaled_ns - gap_ns
        waits = [
            BriefWait(index=row.base, trigger=row.trigger, gap_ns=gap_ns if row.gap_ns >= 0 else 0)
            for row in rows
        ]
        return tuple(waits), last.cause


def _due_ns(earlier: Sequence[BriefCall], after: Sequence[BriefWait], offset_ns: int) -> int | None:
    due_ns = offset_ns
    for wait in after:
        base = earlier[wait.index]
        trigger_ns = base.planned_ns if wait.trigger == "dispatch" else base.planned_end_ns
        if trigger_ns is None:
            return None
        due_ns = max(due_ns, trigger_ns + wait.gap_ns)
    return due_ns


def _plain_calls(columns: CallColumns) -> npt.NDArray[np.bool_]:
    """Whether each call may be in a plain tree."""
    is_plain: npt.NDArray[np.bool_] = (columns.retry_of == NOT_KNOWN) & (columns.call_class != _COUNT_TOKENS)
    waiting = columns.waiting()
    is_dispatch = columns.after_trigger == _DISPATCH
    by_tools = (
        (columns.after_cause == _TOOL)
        & (columns.after_relation == _SEQUENCE)
        & (columns.has_timed_tools[columns.after_call] == 1)
    )
    without_end = is_dispatch & (columns.end_ns[columns.after_call] == NOT_KNOWN)
    is_plain[waiting[by_tools | without_end]] = False
    # Of two dependencies on the same moment of a call one is dropped.
    order = np.lexsort((columns.after_trigger, columns.after_call, waiting))
    keys = (waiting[order], columns.after_call[order], columns.after_trigger[order])
    is_same = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    is_plain[keys[0][1:][is_same]] = False
    return is_plain


def _gap_of(row: _Row) -> int:
    return row.gap_ns


_COUNT_TOKENS = CALL_CLASSES.index("count_tokens")
_DISPATCH = TRIGGERS.index("dispatch")
_TOOL = GAP_CAUSES.index("tool")
_SEQUENCE = RELATIONS.index("sequence")
_COMPLETE = ERRORS.index(None)
_UNRECORDED = ERRORS.index("unrecorded")
