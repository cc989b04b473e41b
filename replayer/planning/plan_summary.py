"""Pure: what a plan offers to the target, in numbers, before anything is sent."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aitrace.identity import BlockIdentity
from aitrace.results import Phase
from aitrace.schema import GapCause, Trace
from replayer.planning.outline import DueBy, OutlinedCall
from replayer.planning.plan import Plan
from replayer.planning.planned import PlannedTree
from replayer.planning.sweep import Sweep
from replayer.planning.working_set import WorkingSet, WorkingSetCount

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
    cut_ns: int | None
    """When the run is cut, ns from its start; None if it goes on to the end of its trees."""
    cut_calls: int
    """Calls of trees that start before that and are due only later, by planned times; in no other number."""
    spare_trees: int
    """Trees that lanes would take only after that, held in store for a target that is faster; in no other number."""
    unmeasured_calls: dict[Phase, int]
    """Calls that are not measured, by phase: `prime`, `warm_up`."""
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
    waits: dict[DueBy, int]
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
    count = _Count(plan, BlockIdentity(trace, share_system=share_system))
    for tree in plan.trees:
        if not _starts_in_time(tree, plan.cut_ns):
            break  # so do the others
        count.add(tree, _until_cut(plan, tree))
    are_ends_known = not count.untimed
    return PlanSummary(
        trees=count.trees,
        sessions=count.sessions,
        calls=count.calls,
        cut_ns=plan.cut_ns,
        cut_calls=count.cut_calls,
        spare_trees=len(plan.trees) - count.trees,
        unmeasured_calls=count.unmeasured_calls(),
        prompt_tokens=count.prompt_tokens,
        largest_prompt=count.largest_prompt(trace),
        output_tokens=count.output_tokens,
        open_loop=plan.open_loop,
        lanes=plan.lanes,
        sending_ns=None if count.undated else count.last_due_ns - (count.first_due_ns or 0),
        duration_ns=count.end_ns if are_ends_known else None,
        undated_calls=count.undated,
        untimed_calls=count.untimed,
        peak_calls=count.alive_calls.peak() if are_ends_known else None,
        peak_sessions=count.alive_sessions.peak() if are_ends_known else None,
        peak_trees=count.alive_trees.peak() if are_ends_known else None,
        working_set=count.held.result(is_timed=are_ends_known),
        window_ns=count.window_ns,
        windows=count.windows(),
        waits=dict(count.waits),
        gap_causes=dict(count.gap_causes),
        capped_calls=plan.capped_calls,
        capped_ns=plan.capped_ns,
        notes=plan.notes,
    )


def json_from_summary(summary: PlanSummary) -> dict[str, Any]:
    """The summary by field name, as `aitrace plan --json` prints it."""
    return asdict(summary)


class _Count:
    """Counts over the trees of a plan, up to the moment at which it is cut."""

    def __init__(self, plan: Plan, identity: BlockIdentity) -> None:
        self.trees = self.sessions = self.calls = self.cut_calls = self.undated = self.untimed = 0
        self.prompt_tokens = self.output_tokens = 0
        self.first_due_ns: int | None = None
        self.last_due_ns = self.end_ns = 0
        self.alive_calls, self.alive_sessions, self.alive_trees = Sweep(), Sweep(), Sweep()
        self.held = WorkingSetCount(plan, identity)
        self.window_ns = -(-_after_last_due_ns(plan) // WINDOWS)
        self.waits: Counter[DueBy] = Counter()
        self.gap_causes: Counter[GapCause] = Counter()
        self._plan = plan
        self._recording = plan.playings.recording
        self._phases: Counter[Phase] = Counter()
        self._windows = [[0, 0, 0] for _ in range(WINDOWS)] if self.window_ns else []
        """Calls, prompt tokens and output tokens of each."""
        self._largest: tuple[int, OutlinedCall, int] | None = None
        """Tokens of the largest prompt, its call, and that one's place in its session."""

    def add(self, tree: PlannedTree, calls: Sequence[OutlinedCall]) -> None:
        """Count in a tree by those of its calls that are due in time."""
        self.trees += 1
        self.calls += len(calls)
        self.cut_calls += tree.count - len(calls)
        self.sessions += len({call.session for call in calls})
        turns: Counter[int] = Counter()
        for call in calls:
            self._add_call(tree, call, turns[call.session])
            turns[call.session] += not call.is_prime
        if tree.planned_ns is not None:
            self._add_spans(tree.planned_ns, calls)
        self.held.add(tree, calls)

    def unmeasured_calls(self) -> dict[Phase, int]:
        """Calls that are not measured, by phase."""
        if self._plan.warm_up_ns is not None:
            self._phases["warm_up"] += 0  # a warm-up without a call is told as well
        return dict(self._phases)

    def largest_prompt(self, trace: Trace) -> LargestPrompt:
        """The largest prompt."""
        assert self._largest is not None  # noqa: S101 - no plan is without a call
        tokens, call, turn_index = self._largest
        return LargestPrompt(
            tokens=tokens,
            output_tokens=self._answer_tokens(call),
            call=call.call,
            session=call.session,
            label=trace.sessions[call.session].label,
            turn_index=turn_index,
        )

    def windows(self) -> tuple[Window, ...]:
        """The planned time in equal parts."""
        return tuple(
            Window(
                start_ns=number * self.window_ns,
                calls=calls,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
            )
            for number, (calls, prompt_tokens, output_tokens) in enumerate(self._windows)
        )

    def _add_call(self, tree: PlannedTree, call: OutlinedCall, turn_index: int) -> None:
        prompt_tokens, output_tokens = self._recording.prompt_tokens[call.call], self._answer_tokens(call)
        self.prompt_tokens += prompt_tokens
        self.output_tokens += output_tokens
        if self._largest is None or prompt_tokens > self._largest[0]:
            self._largest = (prompt_tokens, call, turn_index)
        self.waits[call.due_by] += 1
        if call.gap_cause is not None:
            self.gap_causes[call.gap_cause] += 1
        if call.is_prime:
            self._phases["prime"] += 1
        elif tree.is_warm_up:
            self._phases["warm_up"] += 1
        if tree.planned_ns is None or call.due_ns is None:
            self.undated += 1
            self.untimed += 1
            return
        due_ns = tree.planned_ns + call.due_ns
        self.untimed += call.end_ns is None
        self.first_due_ns = due_ns if self.first_due_ns is None else min(due_ns, self.first_due_ns)
        self.last_due_ns = max(due_ns, self.last_due_ns)
        if self._plan.warm_up_ns is not None and due_ns < self._plan.warm_up_ns and not call.is_prime:
            self._phases["warm_up"] += 1
        window = self._windows[due_ns // self.window_ns]
        window[0] += 1
        window[1] += prompt_tokens
        window[2] += output_tokens

    def _add_spans(self, start_ns: int, calls: Sequence[OutlinedCall]) -> None:
        """Count in when calls, sessions and the tree are alive."""
        for alive in (self.alive_calls, self.alive_sessions, self.alive_trees):
            alive.pass_to(start_ns)
        spans: dict[int, tuple[int, int]] = {}
        for call in calls:
            if call.due_ns is None or call.end_ns is None:
                return  # no peak will be told
            due_ns, end_ns = start_ns + call.due_ns, start_ns + call.end_ns
            self.alive_calls.add(due_ns, end_ns)
            first_ns, last_ns = spans.get(call.session, (due_ns, end_ns))
            spans[call.session] = (min(first_ns, due_ns), max(last_ns, end_ns))
        for first_ns, last_ns in spans.values():
            self.alive_sessions.add(first_ns, last_ns)
        firsts_ns, lasts_ns = zip(*spans.values(), strict=True)
        self.alive_trees.add(min(firsts_ns), max(lasts_ns))
        self.end_ns = max(self.end_ns, *lasts_ns)

    def _answer_tokens(self, call: OutlinedCall) -> int:
        return 1 if call.is_prime else self._recording.output_tokens[call.call]


def _starts_in_time(tree: PlannedTree, cut_ns: int | None) -> bool:
    return cut_ns is None or tree.planned_ns is None or tree.planned_ns < cut_ns


def _until_cut(plan: Plan, tree: PlannedTree) -> list[OutlinedCall]:
    """The calls of a tree that are due before the plan is cut; they end by then."""
    calls = plan.outline_of(tree)
    if plan.cut_ns is None or tree.planned_ns is None:
        return calls
    left_ns = plan.cut_ns - tree.planned_ns
    return [
        call if call.end_ns is None or call.end_ns <= left_ns else call._replace(end_ns=left_ns)
        for call in calls
        if call.due_ns is None or call.due_ns < left_ns
    ]


def _after_last_due_ns(plan: Plan) -> int:
    """One more than when the last call is due, ns; 0 if that is known of none."""
    after_ns = 0
    for tree in plan.trees:
        if not _starts_in_time(tree, plan.cut_ns):
            break
        last_ns = plan.facts_of(tree).last_due_ns
        if tree.planned_ns is None or last_ns is None:
            continue
        if plan.cut_ns is not None and tree.planned_ns + last_ns >= plan.cut_ns:
            dues_ns = [call.due_ns for call in _until_cut(plan, tree) if call.due_ns is not None]
            last_ns = max(dues_ns, default=-1)
        after_ns = max(after_ns, tree.planned_ns + last_ns + 1)
    return after_ns
