"""Pure: what a plan offers to the target, in numbers, before anything is sent."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

from aitrace.identity import BlockIdentity
from aitrace.schema import GapCause, Trace
from replayer.gaps import GapRule
from replayer.plan import Plan, PlannedCall
from replayer.working_set import WorkingSet, peak, working_set

WINDOWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is offered in one stretch of the planned time."""

    start_ns: int
    """Its begin, ns from the start of the run."""
    calls: int
    """Calls due in it."""
    prompt_tokens: int
    """Tokens of their prompts."""
    output_tokens: int
    """Tokens of their answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestPrompt:
    """The call that asks most of a model's window by its prompt; the first of several."""

    tokens: int
    """Size of its prompt, tokens."""
    output_tokens: int
    """Tokens of its answer, which a window has to hold as well."""
    call: int
    """Call of the trace."""
    session: int
    """Session of the trace."""
    label: str | None
    """Name of that session in the source; None if it has none."""
    turn_index: int
    """Position of the call within its session, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """A plan in numbers. Times rest on answers that take as long as recorded."""

    trees: int
    """Trees to be played."""
    sessions: int
    """Sessions to be played."""
    calls: int
    """Calls to be sent."""
    prompt_tokens: int
    """Tokens of all prompts."""
    largest_prompt: LargestPrompt
    """The largest of them."""
    output_tokens: int
    """Tokens of all answers."""
    open_loop: bool
    """True if trees start by the clock; False if lanes start them."""
    lanes: int | None
    """Number of lanes; None if `open_loop`."""
    sending_ns: int | None
    """First to last call due, ns; None if it is not known of every call when it is due."""
    duration_ns: int | None
    """Start of the run to the end of the last answer, ns; None if there are `untimed_calls`."""
    undated_calls: int
    """Calls of which the plan does not know when they are due; no window counts them."""
    untimed_calls: int
    """Calls of which the plan does not know when they end, those without a due time included."""
    peak_calls: int | None
    """Most calls in flight at a time; None if there are `untimed_calls`."""
    peak_sessions: int | None
    """Most sessions between the dispatch of their first and the end of their last call at a time; None as before."""
    peak_trees: int | None
    """The same of trees."""
    working_set: WorkingSet
    """Distinct prompt tokens."""
    window_ns: int
    """Length of each window, ns; 0 if there are none."""
    windows: tuple[Window, ...]
    """The planned time in equal parts; empty if no call is timed."""
    waits: dict[GapRule | Literal["start"], int]
    """Calls by what makes them due: the start of their tree, a recorded gap, or the times of tools."""
    gap_causes: dict[GapCause, int]
    """Calls that wait for another one, by the cause of their gap."""
    capped_calls: int
    """Calls whose gap a cap shortened."""
    capped_ns: int
    """What caps took off gaps in total, ns."""
    notes: tuple[str, ...]
    """What had to be assumed or left out, one sentence each."""


def summarise_plan(trace: Trace, plan: Plan, *, share_system: bool) -> PlanSummary:
    """The plan of `trace` in numbers.

    Args:
        share_system: As in the options that the plan was made with.
    """
    timed = [(c, c.planned_ns, c.planned_end_ns) for c in plan.calls if c.planned_ns is not None]
    spans = [(call, start_ns, end_ns) for call, start_ns, end_ns in timed if end_ns is not None]
    are_ends_known = len(spans) == len(plan.calls)
    due_ns = [start_ns for _, start_ns, _ in timed]
    window_ns = -(-max((start_ns + 1 for _, start_ns, _ in timed), default=0) // WINDOWS)
    return PlanSummary(
        trees=len(plan.trees),
        sessions=plan.sessions,
        calls=len(plan.calls),
        prompt_tokens=sum(call.prompt_tokens for call in plan.calls),
        largest_prompt=_largest_prompt(trace, plan),
        output_tokens=sum(call.output_tokens for call in plan.calls),
        open_loop=plan.open_loop,
        lanes=plan.lanes,
        sending_ns=max(due_ns) - min(due_ns) if len(timed) == len(plan.calls) else None,
        duration_ns=max(end_ns for _, _, end_ns in spans) if are_ends_known else None,
        undated_calls=len(plan.calls) - len(timed),
        untimed_calls=len(plan.calls) - len(spans),
        **(_peaks(spans) if are_ends_known else _Peaks(peak_calls=None, peak_sessions=None, peak_trees=None)),
        working_set=working_set(trace, plan, BlockIdentity(trace, share_system=share_system)),
        window_ns=window_ns,
        windows=_windows([call for call, _, _ in timed], window_ns),
        waits=dict(Counter(_what_makes_due(call) for call in plan.calls)),
        gap_causes=dict(Counter(c.gap_cause for c in plan.calls if c.gap_cause is not None)),
        capped_calls=plan.capped_calls,
        capped_ns=plan.capped_ns,
        notes=plan.notes,
    )


def json_from_summary(summary: PlanSummary) -> dict[str, Any]:
    """The summary by field name, as `aitrace plan --json` prints it."""
    return asdict(summary)


def _largest_prompt(trace: Trace, plan: Plan) -> LargestPrompt:
    largest = max(plan.calls, key=lambda call: call.prompt_tokens)
    return LargestPrompt(
        tokens=largest.prompt_tokens,
        output_tokens=largest.output_tokens,
        call=largest.call,
        session=largest.session,
        label=trace.sessions[largest.session].label,
        turn_index=largest.turn_index,
    )


def _what_makes_due(call: PlannedCall) -> GapRule | Literal["start"]:
    return call.after[0].rule if call.after else "start"


class _Peaks(TypedDict):
    """The fields of `PlanSummary` that come from the times of all calls."""

    peak_calls: int | None
    peak_sessions: int | None
    peak_trees: int | None


def _peaks(spans: Sequence[tuple[PlannedCall, int, int]]) -> _Peaks:
    return _Peaks(
        peak_calls=_peak_alive([(call.index, a_ns, b_ns) for call, a_ns, b_ns in spans]),
        peak_sessions=_peak_alive(
            [((call.instance, call.session), a_ns, b_ns) for call, a_ns, b_ns in spans]
        ),
        peak_trees=_peak_alive([((call.instance, call.root), a_ns, b_ns) for call, a_ns, b_ns in spans]),
    )


def _peak_alive(spans: Sequence[tuple[object, int, int]]) -> int:
    """Most things alive at a time, each from the start of its first span (name, start, end) to the end of its last."""
    first_ns: dict[object, int] = {}
    last_ns: dict[object, int] = {}
    for name, start_ns, end_ns in spans:
        first_ns[name] = min(start_ns, first_ns.get(name, start_ns))
        last_ns[name] = max(end_ns, last_ns.get(name, end_ns))
    return peak([(at_ns, 1) for at_ns in first_ns.values()] + [(at_ns, -1) for at_ns in last_ns.values()])


def _windows(calls: Sequence[PlannedCall], window_ns: int) -> tuple[Window, ...]:
    if not calls:
        return ()
    members: list[list[PlannedCall]] = [[] for _ in range(WINDOWS)]
    for call in calls:
        members[(call.planned_ns or 0) // window_ns].append(call)
    return tuple(
        Window(
            start_ns=number * window_ns,
            calls=len(due),
            prompt_tokens=sum(call.prompt_tokens for call in due),
            output_tokens=sum(call.output_tokens for call in due),
        )
        for number, due in enumerate(members)
    )
