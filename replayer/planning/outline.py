"""Pure: what is kept of the trees of a trace while a plan exists: about 30 bytes of each call, and a few numbers.

What a plan prints is counted on outlines, so that the calls themselves need not be made for it.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from aitrace.schema import Call, GapCause
from replayer.planning.brief import BriefCall, BriefTree
from replayer.planning.gaps import GapRule, PlannedWait
from replayer.planning.lanes import shortest_ns
from replayer.planning.planned import NO_TIME, PlannedCall

DueBy = GapRule | Literal["start"]
"""What makes a call due: the start of its tree, a recorded gap, or the times of tools."""

Counted = Literal[
    "failed", "unrecorded", "unseen_start", "unknown_length", "unknown_end",
    "from_dispatch", "unknown_gaps", "overlaps", "capped_calls", "capped_ns",
]  # fmt: skip
"""Of calls to be sent: failed in the recording, without an end there for the recorder's sake, without the start of
their prompt, without the length of their answer, without an end. Of gaps: timed from a dispatch, not known, below 0;
calls whose gap a cap shortened, and by how much."""

_DUE_BY: tuple[DueBy, ...] = ("start", "gap", "tools")
_CAUSES: tuple[GapCause | None, ...] = (None, *get_args(GapCause))
_CAUSE_BITS = 4
_NOTHING: Mapping[Counted, int] = {}

ShortCall = PlannedCall | BriefCall
"""A call of a tree, planned to start at 0: all that is looked at here is in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Calls that wait for each other."""

    gap_ns: int = 0
    """Gaps before them, ns, in total."""
    calls: int = 0
    """Number of the calls."""

    def length_ns(self, call_ns: float) -> float:
        """How long it takes if each call takes `call_ns`."""
        return self.gap_ns + self.calls * call_ns

    def __add__(self, other: "Chain") -> "Chain":
        return Chain(gap_ns=self.gap_ns + other.gap_ns, calls=self.calls + other.calls)


def longer(one: Chain, other: Chain, call_ns: float) -> Chain:
    """The one that takes longer if each call takes `call_ns`; of two that take as long, that of more calls."""
    return max(one, other, key=lambda chain: (chain.length_ns(call_ns), chain.calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """One tree in numbers."""

    calls: int
    """Calls to be sent."""
    sessions: int
    """Sessions they are of."""
    primes: int
    """Of the calls, the first ones: those that only prime a prompt."""
    duration_ns: int | None
    """Start to the end of the last answer if every answer takes its recorded time; None if that is not known."""
    shortest_ns: int
    """The same if calls take a small part of that."""
    last_due_ns: int | None
    """When the last of its calls is due of which that is known, ns from its start; None if it is known of none."""
    chain: Chain
    """The longest chain of its calls, and of the waits before them."""
    counts: Mapping[Counted, int]
    """What was assumed or cut for its waits; what is absent is 0."""


class OutlinedCall(NamedTuple):
    """What is kept of a call."""

    call: int
    """Call of the trace."""
    session: int
    """Session of the trace."""
    due_ns: int | None
    """When it is due if every answer takes its recorded time, ns from its tree's start; None if that is not known."""
    end_ns: int | None
    """When its answer ends then; None if that is not known."""
    is_prime: bool
    """Whether it only primes a prompt."""
    due_by: DueBy
    """What makes it due."""
    gap_cause: GapCause | None
    """Cause of the gap before it; None if it waits for nothing."""


class Outlines:
    """Outlines of trees, side by side in arrays."""

    def __init__(self) -> None:
        self._firsts = array("q", [0])
        self._primes = array("i")
        self._calls = array("q")
        self._sessions = array("q")
        self._due_ns = array("q")
        self._end_ns = array("q")
        self._waits = array("B")

    def add(self, calls: Sequence[ShortCall]) -> None:
        """Keep the outline of a tree whose calls are planned to start at 0."""
        self._calls.extend(call.call for call in calls)
        self._sessions.extend(call.session for call in calls)
        self._due_ns.extend(NO_TIME if call.planned_ns is None else call.planned_ns for call in calls)
        self._end_ns.extend(NO_TIME if call.planned_end_ns is None else call.planned_end_ns for call in calls)
        self._waits.extend(_code_of_wait(call) for call in calls)
        self._primes.append(sum(call.phase == "prime" for call in calls))
        self._firsts.append(len(self._calls))

    def calls(self, place: int) -> list[OutlinedCall]:
        """Calls of the tree that was added as number `place`, from 0, in their order."""
        part = slice(self._firsts[place], self._firsts[place + 1])
        primes = self._primes[place]
        rows = zip(
            self._calls[part],
            self._sessions[part],
            self._due_ns[part],
            self._end_ns[part],
            self._waits[part],
            strict=True,
        )
        return [
            OutlinedCall(
                call,
                session,
                None if due_ns == NO_TIME else due_ns,
                None if end_ns == NO_TIME else end_ns,
                number < primes,
                _DUE_BY[wait >> _CAUSE_BITS],
                _CAUSES[wait & (1 << _CAUSE_BITS) - 1],
            )
            for number, (call, session, due_ns, end_ns, wait) in enumerate(rows)
        ]


def outline_of(calls: Sequence[ShortCall]) -> list[OutlinedCall]:
    """The outline of a tree whose calls are planned to start at 0, if it is not kept."""
    alone = Outlines()
    alone.add(calls)
    return alone.calls(0)


def facts_of(calls: Sequence[ShortCall], counts: Mapping[Counted, int], usual_ns: float) -> TreeFacts:
    """A tree in numbers.

    Args:
        calls: Its calls, planned to start at 0.
        counts: What was assumed or cut for them.
        usual_ns: What a call is taken to take to tell which of its chains is the longest, ns.
    """
    ends_ns = [call.planned_end_ns for call in calls if call.planned_end_ns is not None]
    return TreeFacts(
        calls=len(calls),
        sessions=len({call.session for call in calls}),
        primes=sum(call.phase == "prime" for call in calls),
        duration_ns=max(ends_ns) if len(ends_ns) == len(calls) else None,
        shortest_ns=shortest_ns((call.offset_ns, call.after, _answer_ns(call)) for call in calls),
        last_due_ns=max((call.planned_ns for call in calls if call.planned_ns is not None), default=None),
        chain=longest_chain(calls, usual_ns),
        counts=counts if any(counts.values()) else _NOTHING,
    )


def tails(calls: Sequence[ShortCall], usual_ns: float) -> list[Chain]:
    """The longest chain that follows each call of a tree, to its end."""
    first = calls[0].index if calls else 0
    gaps_ns, counts = [0] * len(calls), [0] * len(calls)
    for place in range(len(calls) - 1, -1, -1):
        for dependency in calls[place].after:
            # What is timed from a call's dispatch runs beside that call, so it is one call shorter.
            gap_ns = dependency.gap_ns + gaps_ns[place]
            count = counts[place] + (dependency.trigger == "completion")
            base = dependency.index - first
            known = (gaps_ns[base] + counts[base] * usual_ns, counts[base])
            if (gap_ns + count * usual_ns, count) > known:
                gaps_ns[base], counts[base] = gap_ns, count
    return [Chain(gap_ns=gap_ns, calls=count) for gap_ns, count in zip(gaps_ns, counts, strict=True)]


def longest_chain(calls: Sequence[ShortCall], usual_ns: float) -> Chain:
    """The longest chain of a tree's calls, with the wait for the first of them."""
    longest = Chain()
    for call, tail in zip(calls, tails(calls, usual_ns), strict=True):
        if not call.after:
            longest = longer(longest, Chain(gap_ns=call.offset_ns, calls=1) + tail, usual_ns)
    return longest


def _answer_ns(call: ShortCall) -> int | None:
    if call.planned_ns is None or call.planned_end_ns is None:
        return None
    return call.planned_end_ns - call.planned_ns


def counts_of(played: Sequence[Call], waits: Sequence[PlannedWait]) -> Mapping[Counted, int]:
    """What was assumed or cut for calls of the trace, and for what they wait for."""
    return {
        "failed": sum(call.outcome.error not in (None, "unrecorded") for call in played),
        "unrecorded": sum(call.outcome.error == "unrecorded" for call in played),
        "unseen_start": sum(call.prompt.unseen_start for call in played),
        "unknown_length": sum(call.usage.output_tokens is None for call in played),
        "unknown_end": sum(call.times.end_ns is None for call in played),
        "from_dispatch": sum(wait.timed_from_dispatch for wait in waits),
        "unknown_gaps": sum(wait.unknown_gaps for wait in waits),
        "overlaps": sum(wait.overlaps for wait in waits),
        "capped_calls": sum(wait.capped_ns > 0 for wait in waits),
        "capped_ns": sum(wait.capped_ns for wait in waits),
    }


def counts_of_brief(tree: BriefTree) -> Mapping[Counted, int]:
    """The same for a plain tree."""
    return {
        "failed": tree.failed,
        "unrecorded": tree.unrecorded,
        "unseen_start": tree.unseen_start,
        "unknown_length": tree.unknown_length,
        "unknown_end": tree.unknown_end,
        "from_dispatch": 0,
        "unknown_gaps": tree.gaps.unknown,
        "overlaps": tree.gaps.overlaps,
        "capped_calls": tree.gaps.capped_calls,
        "capped_ns": tree.gaps.capped_ns,
    }


def _code_of_wait(call: ShortCall) -> int:
    # What waits only for primed prompts begins its tree.
    due_by: DueBy = call.after[0].rule if call.gap_cause is not None and call.after else "start"
    return _DUE_BY.index(due_by) << _CAUSE_BITS | _CAUSES.index(call.gap_cause)
