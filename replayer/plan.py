"""Pure: what a replay will send, with what each call waits for, before anything is sent."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from statistics import median_low

from aitrace.errors import InputError, UsageError
from aitrace.schema import Call, CallClass, GapCause, Trace
from replayer.gaps import PlannedDependency, PlannedWait, plan_wait
from replayer.options import LoadOptions
from replayer.pacing import resolve_arrival, tree_starts
from replayer.plan_notes import notes_on_plan
from replayer.selection import SelectedCall, Selection, select_calls
from replayer.sizes import output_tokens, prompt_sizes, token_ratio

MAX_CALLS = 1_000_000
"""Calls of the largest plan: a plan is held in memory, and so are its calls' results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One request to be sent."""

    index: int
    """Place in the plan."""
    instance: int
    """Which playing of its tree this belongs to, from 1."""
    session: int
    """Session of the trace."""
    root: int
    """Root session of its tree."""
    call: int
    """Call of the trace that it plays."""
    call_class: CallClass
    """What the call is for."""
    turn_index: int
    """Position within its session, from 0."""
    after: tuple[PlannedDependency, ...]
    """What it waits for; empty = only for the start of its tree."""
    offset_ns: int
    """Not due before its tree's start plus this, ns; above 0 only where a call waits for nothing and is not the
    first of its tree."""
    gap_ns: int | None
    """Gap of the dependency that was the last to be fulfilled in the recording; None if it waits for nothing."""
    gap_cause: GapCause | None
    """Cause of that gap; None if it waits for nothing."""
    prompt_size: int
    """Size of its prompt in the trace's unit."""
    prompt_tokens: int
    """Size of its prompt, tokens."""
    output_tokens: int
    """Tokens of its answer, at least 1."""
    max_output_tokens: int
    """Limit put into the request."""
    streamed: bool
    """Whether the answer is asked for as a stream."""
    planned_ns: int | None
    """When it is due if every answer takes its recorded time, ns from the start; None if that is not known."""
    planned_end_ns: int | None
    """When its answer ends then, by the median length of the others if its own is not known; None if no call of the
    trace has a known end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTree:
    """One playing of one tree."""

    instance: int
    """Which playing of the tree, from 1."""
    root: int
    """Root session of the trace's tree."""
    start_ns: int | None
    """When it starts, ns from the start of the run; None where a lane starts it."""
    first: int
    """Index of its first call."""
    count: int
    """Number of its calls; they follow each other in the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a replay will send."""

    trees: tuple[PlannedTree, ...]
    """In the order in which they start."""
    calls: tuple[PlannedCall, ...]
    """By index; every call comes after those it waits for."""
    notes: tuple[str, ...]
    """What had to be assumed or left out, one sentence each."""
    open_loop: bool
    """True if trees start by the clock; False if lanes start them."""
    lanes: int | None
    """Number of lanes; None if `open_loop`."""
    tokens_per_unit: float
    """Tokens of one unit of the trace's sizes: 1 for traces that count tokens."""
    sessions: int
    """Sessions to be played."""
    capped_calls: int
    """Calls whose gap a cap shortened."""
    capped_ns: int
    """What caps took off gaps in total, ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """One tree of the trace, as each of its playings repeats it."""

    root: int
    recorded_start_ns: int
    calls: tuple[PlannedCall, ...]
    """As of a first playing that starts at 0, with indices from 0."""
    waits: tuple[PlannedWait, ...]
    duration_ns: int | None
    """Start to the end of the last answer if every answer takes its recorded time; None if that is not known."""


def build_plan(trace: Trace, options: LoadOptions) -> Plan:
    """The plan of a trace that keeps the rules of `aitrace.validate`, under these options.

    Raises:
        UsageError: Options that cannot be applied to this trace, or more than `MAX_CALLS` calls.
        InputError: A trace without a call to play.
    """
    if options.share_system and trace.header.privacy == "content":
        raise UsageError(
            "the trace holds its own text, so trees cannot be given the same system prompt",
            hint="Leave out --share-system.",
        )
    selection = select_calls(trace.calls)
    if not selection.calls:
        raise InputError("the trace has no call to play", hint="`aitrace inspect` shows what is in it.")
    trees = _trees(trace, selection, options)
    count = len(trees) if options.trees is None else options.trees
    _demand_size(trees, count)
    played_waits = [(wait, times) for tree, times in _playings(trees, count) for wait in tree.waits]
    notes = notes_on_plan(
        trace,
        selection,
        played_waits,
        share_system=options.share_system,
        playings={tree.root: times for tree, times in _playings(trees, count)},
    )
    if options.concurrency is None:
        arrival, note = resolve_arrival(options.arrival, trace.header.clock_scope)
        notes.extend([note] if note is not None and count > 1 else [])
        recorded_ns = [tree.recorded_start_ns for tree in trees]
        random = Random(options.seed)
        fixed = tree_starts(arrival, recorded_ns, count, time_scale=options.time_scale, random=random)
        starts: list[int | None] = list(fixed)
    else:
        starts = _lane_starts(trees, count, options.concurrency)
    planned_trees: list[PlannedTree] = []
    calls: list[PlannedCall] = []
    for number, start_ns in enumerate(starts):
        playing, place = divmod(number, len(trees))
        tree = trees[place]
        planned_trees.append(
            PlannedTree(
                instance=playing + 1,
                root=tree.root,
                start_ns=start_ns if options.concurrency is None else None,
                first=len(calls),
                count=len(tree.calls),
            )
        )
        calls.extend(_played(tree, playing + 1, len(calls), start_ns))
    return Plan(
        trees=tuple(planned_trees),
        calls=tuple(calls),
        notes=tuple(notes),
        open_loop=options.concurrency is None,
        lanes=options.concurrency,
        tokens_per_unit=token_ratio(trace).tokens_per_unit,
        sessions=len({(call.instance, call.session) for call in calls}),
        capped_calls=sum(times for wait, times in played_waits if wait.capped_ns > 0),
        capped_ns=sum(wait.capped_ns * times for wait, times in played_waits),
    )


def _playings(trees: Sequence[_Tree], count: int) -> list[tuple[_Tree, int]]:
    """How often each tree is played, if `count` are played in turn."""
    full, rest = divmod(count, len(trees))
    return [(tree, full + (place < rest)) for place, tree in enumerate(trees)]


def _demand_size(trees: Sequence[_Tree], count: int) -> None:
    calls = sum(times * len(tree.calls) for tree, times in _playings(trees, count))
    if calls <= MAX_CALLS:
        return
    full, left = divmod(MAX_CALLS, sum(len(tree.calls) for tree in trees))
    # Where a further tree no longer fits, those before it do.
    sums = accumulate(len(tree.calls) for tree in trees)
    most = full * len(trees) + sum(total <= left for total in sums)
    raise UsageError(
        f"{count:,} trees of this trace are {calls:,} calls, expected at most {MAX_CALLS:,} in one plan",
        hint=f"--trees {most} is the most that fits." if most else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """What is known of each call of the trace, by id."""

    calls: tuple[Call, ...]
    prompt_sizes: list[int]
    output_tokens: list[int]
    tokens_per_unit: float
    usual_duration_ns: int | None
    """Median time from request to end; None if no call has a known end."""

    def duration_ns(self, call: Call) -> int | None:
        end_ns = call.times.end_ns
        return self.usual_duration_ns if end_ns is None else end_ns - call.times.request_ns


def _recording(trace: Trace) -> _Recording:
    ends = [(call.times.request_ns, call.times.end_ns) for call in trace.calls]
    durations_ns = [end_ns - request_ns for request_ns, end_ns in ends if end_ns is not None]
    return _Recording(
        calls=trace.calls,
        prompt_sizes=prompt_sizes(trace),
        output_tokens=output_tokens(trace.calls),
        tokens_per_unit=token_ratio(trace).tokens_per_unit,
        usual_duration_ns=median_low(durations_ns) if durations_ns else None,
    )


def _trees(trace: Trace, selection: Selection, options: LoadOptions) -> list[_Tree]:
    """The trees of the trace in order of their starts, or of the trace if starts cannot be compared."""
    by_root: dict[int, list[SelectedCall]] = {}
    for selected in selection.calls:
        by_root.setdefault(trace.sessions[selected.call.session].root, []).append(selected)
    recording = _recording(trace)
    trees = [_tree(recording, root, members, options) for root, members in by_root.items()]
    if trace.header.clock_scope == "trace":
        return sorted(trees, key=lambda tree: (tree.recorded_start_ns, tree.root))
    return sorted(trees, key=lambda tree: tree.root)


def _tree(recording: _Recording, root: int, members: Sequence[SelectedCall], options: LoadOptions) -> _Tree:
    start_ns = min(member.request_ns for member in members)
    positions = {member.call.id: position for position, member in enumerate(members)}
    turns: dict[int, int] = {}
    waits: list[PlannedWait] = []
    planned: list[PlannedCall] = []
    for member in members:
        call = member.call
        wait = plan_wait(
            member.after,
            recording.calls,
            positions,
            time_scale=options.time_scale,
            caps_ns=options.gap_caps_ns,
        )
        offset_ns = 0 if wait.after else round((member.request_ns - start_ns) * options.time_scale)
        due_ns = _planned_due_ns(wait, offset_ns, planned, recording.calls)
        turn_index = turns[call.session] = turns.get(call.session, -1) + 1
        size, answer_tokens = recording.prompt_sizes[call.id], recording.output_tokens[call.id]
        waits.append(wait)
        planned.append(
            PlannedCall(
                index=len(planned),
                instance=1,
                session=call.session,
                root=root,
                call=call.id,
                call_class=call.call_class,
                turn_index=turn_index,
                after=wait.after,
                offset_ns=offset_ns,
                gap_ns=wait.gap_ns,
                gap_cause=wait.cause,
                prompt_size=size,
                prompt_tokens=round(size * recording.tokens_per_unit),
                output_tokens=answer_tokens,
                max_output_tokens=answer_tokens,
                streamed=options.stream == "always" or call.streamed is not False,
                planned_ns=due_ns,
                planned_end_ns=_sum(due_ns, recording.duration_ns(call)),
            )
        )
    ends = [call.planned_end_ns for call in planned if call.planned_end_ns is not None]
    return _Tree(
        root=root,
        recorded_start_ns=start_ns,
        calls=tuple(planned),
        waits=tuple(waits),
        duration_ns=max(ends) if len(ends) == len(planned) else None,
    )


def _planned_due_ns(
    wait: PlannedWait, offset_ns: int, earlier: Sequence[PlannedCall], calls: Sequence[Call]
) -> int | None:
    """When a call is due if every answer takes its recorded time, ns from its tree's start; None if not known."""
    due_ns = offset_ns
    dispatches = {dependency.index for dependency in wait.after if dependency.trigger == "dispatch"}
    for dependency in wait.after:
        base = earlier[dependency.index]
        times = calls[base.call].times
        is_dispatch = dependency.trigger == "dispatch"
        if not is_dispatch and times.end_ns is None and dependency.index in dispatches:
            continue  # its end is a guess, and the recording told the time from its dispatch
        trigger_ns = base.planned_ns if is_dispatch else base.planned_end_ns
        if trigger_ns is None:
            return None
        first_token_ns = _moved(base.planned_ns, times.request_ns, times.first_token_ns)
        last_token_ns = _moved(base.planned_ns, times.request_ns, times.last_token_ns)
        due_ns = max(due_ns, dependency.due_ns(trigger_ns, first_token_ns, last_token_ns))
    return due_ns


def _moved(due_ns: int | None, request_ns: int, at_ns: int | None) -> int | None:
    """A recorded moment of a call, as if the call had been sent at `due_ns`."""
    return None if due_ns is None or at_ns is None else due_ns + at_ns - request_ns


def _lane_starts(trees: Sequence[_Tree], count: int, lanes: int) -> list[int | None]:
    """When each tree would start in lanes that take the next tree as they become free; None where not known."""
    durations_ns = [tree.duration_ns for tree in trees if tree.duration_ns is not None]
    if len(durations_ns) < len(trees):
        return [0 if number < lanes else None for number in range(count)]
    free_ns = [0] * lanes
    starts: list[int | None] = []
    for number in range(count):
        start_ns = heapq.heappop(free_ns)
        starts.append(start_ns)
        heapq.heappush(free_ns, start_ns + durations_ns[number % len(trees)])
    return starts


def _played(tree: _Tree, instance: int, first: int, start_ns: int | None) -> list[PlannedCall]:
    """The calls of one playing of a tree, with indices from `first` and times from the start of the run."""
    return [
        replace(
            call,
            index=first + call.index,
            instance=instance,
            after=tuple(replace(dependency, index=first + dependency.index) for dependency in call.after),
            planned_ns=_sum(start_ns, call.planned_ns),
            planned_end_ns=_sum(start_ns, call.planned_end_ns),
        )
        for call in tree.calls
    ]


def _sum(start_ns: int | None, at_ns: int | None) -> int | None:
    return None if start_ns is None or at_ns is None else start_ns + at_ns


def followers(calls: Sequence[PlannedCall]) -> list[list[tuple[int, PlannedDependency]]]:
    """For each call, the calls that wait for it, by index, and in what way."""
    found: list[list[tuple[int, PlannedDependency]]] = [[] for _ in calls]
    for call in calls:
        for dependency in call.after:
            found[dependency.index].append((call.index, dependency))
    return found
