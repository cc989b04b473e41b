"""Pure: what a replay will send, with what each call waits for, before anything is sent.

A plan holds some 20 bytes of each tree it plays, and some 40 of each call of the trace. The calls themselves are made
when their tree is played, `Plan.calls_of`, or told in short, `Plan.outline_of`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from aitrace.errors import UsageError
from aitrace.schema import Trace
from replayer.planning.lanes import LaneBound, lane_starts
from replayer.planning.options import LoadOptions
from replayer.planning.outline import OutlinedCall, TreeFacts
from replayer.planning.pacing import goes_on, resolve_arrival, tree_starts
from replayer.planning.plan_notes import Totals, is_due_before, notes_on_load, notes_on_plan
from replayer.planning.planned import PlannedCall, PlannedTree, PlannedTrees, TreeCalls, TreeTable
from replayer.planning.playings import Playings

MAX_TREES = 4_000_000
"""Trees of the largest plan, which then takes about 200 MB: some bytes of each tree are held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a replay will send."""

    trace: Trace
    """What is played: the trace of the file, but with compacted prompts where its own do not fit into the window."""
    trees: PlannedTrees
    """In the order in which they start."""
    playings: Playings
    """Makes the calls of trees; that of the whole plan in each of its parts."""
    call_count: int
    """Calls of all these trees."""
    sessions: int
    """Sessions to be played."""
    notes: tuple[str, ...]
    """What had to be assumed or left out, one sentence each."""
    open_loop: bool
    """True if trees start by the clock; False if lanes start them."""
    lanes: int | None
    """Number of lanes; None if `open_loop`."""
    tokens_per_unit: float
    """Tokens of one unit of the trace's sizes: 1 for traces that count tokens."""
    capped_calls: int
    """Calls whose gap a cap shortened."""
    capped_ns: int
    """What caps took off gaps in total, ns."""
    cut_ns: int | None = None
    """When the run is cut, ns from its start; None if it goes on to the end of its trees."""
    warm_up_ns: int | None = None
    """Calls due before that are the warm-up, ns from the start; None if no time is."""
    is_spare: bool = False
    """Whether it holds more trees than lanes are likely to take before the run is cut."""
    is_absolute: bool = False
    """Whether calls go out at their time whatever became of the ones before."""

    def calls_of(self, tree: PlannedTree) -> TreeCalls:
        """The calls of a tree: the same object as long as somebody holds it, and a while longer."""
        return self.playings.calls(tree)

    def call(self, index: int) -> PlannedCall:
        """The call with this index; quick while its tree is being played."""
        number = self.trees.number_of(index)
        held = self.playings.held(number)
        return (held or self.playings.calls(self.trees.tree(number))).call(index)

    def every_call(self) -> Iterator[PlannedCall]:
        """All calls, tree by tree; they are made on the way."""
        for tree in self.trees:
            yield from self.calls_of(tree).calls

    def outline_of(self, tree: PlannedTree) -> list[OutlinedCall]:
        """The calls of a tree in short, with times as if it started at 0."""
        return self.playings.outline(tree.number)

    @property
    def distinct_trees(self) -> PlannedTrees:
        """Trees whose outlines are those of all: each tree of the trace once, if playings do not differ."""
        return self.trees if self.playings.differ else self.trees[: len(self.playings)]

    def facts_of(self, tree: PlannedTree) -> TreeFacts:
        """A tree in numbers."""
        return self.playings.facts(tree.number)


def build_plan(trace: Trace, options: LoadOptions) -> Plan:
    """The plan of a trace that keeps the rules of `aitrace.validate`, under these options.

    Raises:
        UsageError: Options that cannot be applied to this trace, or more than `MAX_TREES` trees.
        InputError: A trace without a call to play.
    """
    if options.share_system and trace.header.privacy == "content":
        raise UsageError(
            "the trace holds its own text, so trees cannot be given the same system prompt",
            hint="Leave out --share-system.",
        )
    playings = Playings(trace, options)
    starts = (
        _starts_by_clock(playings, options)
        if options.concurrency is None
        else _starts_by_lanes(playings, options, options.concurrency)
    )
    warm_up = options.warm_up
    table = TreeTable(
        playings.roots,
        is_open_loop=options.concurrency is None,
        warm_up_trees=0 if warm_up is None else warm_up.trees or 0,
    )
    totals = _totals(playings, table, starts.planned_ns, options)
    notes = (
        *notes_on_plan(playings.trace, playings.recording, totals, share_system=options.share_system),
        *starts.notes,
        *notes_on_load(options, totals),
    )
    return Plan(
        trace=playings.trace,
        trees=PlannedTrees(table),
        playings=playings,
        call_count=totals.calls,
        sessions=totals.sessions,
        notes=notes,
        open_loop=options.concurrency is None,
        lanes=options.concurrency,
        tokens_per_unit=playings.recording.ratio.tokens_per_unit,
        capped_calls=totals.counts["capped_calls"],
        capped_ns=totals.counts["capped_ns"],
        cut_ns=options.duration_ns,
        warm_up_ns=None if warm_up is None else warm_up.length_ns,
        is_spare=starts.is_spare,
        is_absolute=options.schedule == "absolute",
    )


def _totals(
    playings: Playings, table: TreeTable, planned_ns: Iterable[int | None], options: LoadOptions
) -> Totals:
    """Put the trees into the table, and count what they are."""
    totals = Totals(
        playable_trees=len(playings) + playings.unmet_trees,
        unmet_trees=playings.unmet_trees,
    )
    warm_up_ns = None if options.warm_up is None else options.warm_up.length_ns
    warm_up_trees = 0 if options.warm_up is None else options.warm_up.trees or 0
    for number, start_ns in enumerate(planned_ns):
        facts = playings.facts(number)
        table.add(start_ns, count=facts.calls, sessions=facts.sessions)
        totals.add(facts)
        if number < warm_up_trees:
            totals.warm_up_calls += facts.calls - facts.primes
        elif warm_up_ns is not None and start_ns is not None and start_ns < warm_up_ns:
            outline = playings.outline(number)
            totals.warm_up_calls += sum(is_due_before(call, warm_up_ns - start_ns) for call in outline)
    totals.played_trees = min(totals.trees, len(playings))
    playing, rest = divmod(totals.trees, len(playings))
    for place, left_out in enumerate(playings.left_out):
        totals.leave_out(left_out, playing + (place < rest))
    # A tree without a call to play is left out as a whole: what is dropped with it is dropped once.
    for left_out in playings.left_out_whole:
        totals.leave_out(left_out, 1)
    return totals


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starts:
    """How many trees a plan plays, and when they start."""

    planned_ns: Sequence[int | None]
    """By tree, ns from the start of the run; None where that is not known."""
    is_spare: bool = False
    """Whether there are more trees than lanes are likely to take."""
    notes: tuple[str, ...] = ()
    """What had to be assumed, one sentence each."""


def _starts_by_clock(playings: Playings, options: LoadOptions) -> _Starts:
    recorded_ns = playings.recorded_ns
    arrival, note = resolve_arrival(options.arrival, playings.trace.header.clock_scope)
    trees = options.trees
    is_endless = options.duration_ns is not None and goes_on(
        arrival, recorded_ns, time_scale=options.time_scale
    )
    if trees is None and arrival.kind != "ramp" and not is_endless:
        trees = len(recorded_ns)
    if trees is not None:
        _demand_size(trees)
    starts = tree_starts(
        arrival,
        recorded_ns,
        MAX_TREES + 1 if trees is None else trees,
        time_scale=options.time_scale,
        random=Random(options.seed),
        until_ns=options.duration_ns,
    )
    if not starts:
        raise UsageError(
            f"no tree starts with arrival {arrival.text!r} and seed {options.seed}",
            hint="Give a higher rate or more time.",
        )
    _demand_size(len(starts))
    return _Starts(planned_ns=starts, notes=(note,) if note is not None and len(starts) > 1 else ())


def _starts_by_lanes(playings: Playings, options: LoadOptions, lanes: int) -> _Starts:
    until_ns = options.duration_ns
    if until_ns is not None and options.trees is None:
        durations_ns = list(islice(_enough_for(LaneBound(lanes, until_ns), playings), MAX_TREES))
        return _Starts(planned_ns=lane_starts(durations_ns, lanes), is_spare=True)
    trees = len(playings) if options.trees is None else options.trees
    _demand_size(trees)
    durations_ns = [playings.facts(number).duration_ns for number in range(trees)]
    return _Starts(planned_ns=lane_starts(durations_ns, lanes))


def _enough_for(bound: LaneBound, playings: Playings) -> Iterator[int | None]:
    """Durations of the trees that lanes may get through."""
    number = 0
    while not bound.is_full:
        facts = playings.facts(number)
        bound.add(facts.shortest_ns)
        yield facts.duration_ns
        number += 1


def _demand_size(trees: int) -> None:
    """Refuse a plan with more than `MAX_TREES` trees."""
    if trees > MAX_TREES:
        raise UsageError(
            f"the plan has {'at least ' if trees == MAX_TREES + 1 else ''}{trees:,} trees, "
            f"expected at most {MAX_TREES:,}",
            hint=f"--trees {MAX_TREES} is the most that fits.",
        )
