"""What is kept of trees while a plan exists."""

from dataclasses import replace

import pytest

from aitrace.schema import CallTimes, Dependency, Outcome, ToolCall, Usage
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.mid_start import MidStart
from replayer.planning.options import LoadOptions
from replayer.planning.outline import (
    Chain,
    Outlines,
    counts_of,
    facts_of,
    longer,
    longest_chain,
    outline_of,
    tails,
)
from replayer.planning.planned import PlannedTree
from replayer.planning.selection import select_calls
from replayer.planning.tree_calls import Recording, TreePlan, plan_calls

S = 1_000_000_000


def planned_of(trace, **options) -> TreePlan:
    """The one tree of a trace, from 0."""
    start = MidStart(calls=select_calls(trace.calls).calls, before=())
    tree = PlannedTree(
        number=0, instance=1, root=0, start_ns=0, planned_ns=0, first=0, count=len(start.calls), sessions=1
    )
    return plan_calls(Recording(trace), tree, start, LoadOptions(**options))


def facts(trace, **options):
    planned = planned_of(trace, **options)
    return facts_of(planned.calls, counts_of(trace.calls, planned.waits), 5 * S)


def without_ends(trace, *ids):
    calls = [
        replace(call, times=CallTimes(request_ns=call.times.request_ns)) if call.id in ids else call
        for call in trace.calls
    ]
    return replace(trace, calls=tuple(calls))


def fork(trigger="completion"):
    """Call 0 spawns a sub-agent (calls 1 and 2, gaps of 1 s); call 3 joins it, 20 s after call 0's end."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    child = builder.session(parent=main)
    spawn = Dependency(call=first, relation="spawn", trigger=trigger, gap_ns=S)
    second = builder.call(child, after=[spawn], at_ns=2 * S)
    third = builder.call(child, after=[second])
    join = [
        Dependency(call=first, relation="sequence", gap_ns=20 * S),
        Dependency(call=third, relation="join", gap_ns=S),
    ]
    builder.call(main, after=join)
    return builder.trace()


def test_an_outline_says_what_the_calls_say():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, tool_calls=(ToolCall(end_ns=S, duration_ns=S // 2),))
    builder.call(main, cause="tool")
    builder.call(main, cause="user")
    outline = outline_of(planned_of(builder.trace()).calls)
    assert [(one.call, one.session, one.due_ns, one.end_ns) for one in outline] == [
        (0, 0, 0, S), (1, 0, 2 * S, 3 * S), (2, 0, 4 * S, 5 * S),
    ]  # fmt: skip
    assert [(one.due_by, one.gap_cause, one.is_prime) for one in outline] == [
        ("start", None, False), ("tools", "tool", False), ("gap", "user", False),
    ]  # fmt: skip


def test_trees_lie_side_by_side():
    outlines = Outlines()
    plans = [planned_of(make_trace(1, calls)) for calls in (3, 1, 2)]
    for planned in plans:
        outlines.add(planned.calls)
    assert [outlines.calls(place) for place in range(3)] == [outline_of(planned.calls) for planned in plans]


def test_what_is_not_known_stays_so():
    outline = outline_of(planned_of(without_ends(make_trace(1, 2), 0, 1)).calls)
    assert [(one.due_ns, one.end_ns) for one in outline] == [(0, None), (None, None)]


def test_facts_count_and_time_a_tree():
    """Answers of 1 s at 0, 2 and 4 s; the shortest way has answers of 20 ms."""
    found = facts(make_trace(1, 3))
    assert (found.calls, found.sessions, found.primes) == (3, 1, 0)
    assert (found.duration_ns, found.last_due_ns, found.shortest_ns) == (5 * S, 4 * S, 2 * S + 60_000_000)
    assert found.counts == {}


def test_a_tree_of_unknown_ends_has_no_duration():
    found = facts(without_ends(make_trace(1, 2), 0, 1))
    assert (found.duration_ns, found.last_due_ns) == (None, 0)
    assert found.counts["unknown_end"] == 2


def test_facts_count_what_was_assumed():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, outcome=Outcome(error="cut"), usage=Usage(), unseen_start=True)
    builder.call(main, after=[Dependency(call=first, relation="sequence", gap_ns=None)], at_ns=9 * S)
    last = builder.call(main, after=[Dependency(call=first, relation="sequence", gap_ns=-5)], at_ns=10 * S)
    builder.call(main, after=[last], outcome=Outcome(error="unrecorded"))
    counts = facts(builder.trace(), gap_caps_ns={"unknown": S // 4}).counts
    assert (counts["failed"], counts["unrecorded"], counts["unseen_start"]) == (1, 1, 1)
    assert (counts["unknown_length"], counts["unknown_gaps"], counts["overlaps"]) == (1, 1, 1)
    assert (counts["capped_calls"], counts["capped_ns"]) == (1, S * 3 // 4)


def test_a_gap_timed_from_an_open_dispatch_is_counted():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    wait = Dependency(call=first, relation="sequence", trigger="dispatch", gap_ns=S)
    builder.call(main, after=[wait], at_ns=S)
    assert facts(without_ends(builder.trace(), first)).counts["from_dispatch"] == 1


@pytest.mark.parametrize(("trigger", "calls"), [("completion", 3), ("dispatch", 2)])
def test_the_longest_way_that_follows_a_call_counts(trigger, calls):
    """Over the sub-agent: three gaps of 1 s; one that was spawned at the dispatch runs beside that call."""
    planned = planned_of(fork(trigger)).calls
    assert tails(planned, 50 * S)[0] == Chain(gap_ns=3 * S, calls=calls)
    assert longest_chain(planned, 50 * S) == Chain(gap_ns=3 * S, calls=calls + 1)


def test_which_way_is_the_longest_hangs_on_what_calls_take():
    """Call 0 is followed by one call after 20 s, and by two of a sub-agent after gaps of 1 s."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    builder.call(builder.session(parent=main), after=[first])
    builder.call(1)
    builder.call(main, after=[Dependency(call=first, relation="sequence", gap_ns=20 * S)], at_ns=21 * S)
    planned = planned_of(builder.trace()).calls
    assert tails(planned, 0)[0] == Chain(gap_ns=20 * S, calls=1)
    assert tails(planned, 50 * S)[0].calls == 2


def test_of_chains_that_take_as_long_the_one_of_more_calls_is_longer():
    assert longer(Chain(gap_ns=5, calls=1), Chain(gap_ns=5, calls=2), 0) == Chain(gap_ns=5, calls=2)
    assert longer(Chain(gap_ns=5, calls=1), Chain(gap_ns=1, calls=2), 3) == Chain(gap_ns=5, calls=1)
