from dataclasses import replace

import pytest

from aitrace.schema import CallTimes, Dependency, Trace
from aitrace.testing import TraceBuilder, make_trace
from aitrace.units import NS_PER_S
from replayer.planning.options import LoadOptions
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import Plan, build_plan
from replayer.planning.planned import TreeCalls
from replayer.scheduler import Scheduler
from replayer.time_left import Forecast

S = NS_PER_S


def plan_of(sessions: int, calls: int, **options) -> Plan:
    """Trees that start 1 s apart; in each, calls with gaps of 1 s."""
    return build_plan(make_trace(sessions=sessions, calls=calls), LoadOptions(**options))


def tree_of(plan: Plan, index: int) -> TreeCalls:
    return plan.calls_of(plan.trees.tree(plan.trees.number_of(index)))


def left_s(
    plan: Plan, now_s: float, *open_calls: tuple[int, int], started: int = 0, call_s: float = 0
) -> float:
    forecast = Forecast(plan)
    opened = [(tree_of(plan, index), index, due_ns) for index, due_ns in open_calls]
    return (
        forecast.left_ns(round(now_s * S), opened, started_trees=started, call_ns=call_s * S, started_ns=0)
        / S
    )


def test_a_chain_takes_its_gaps_and_its_calls():
    # Due at 0, three calls of 5 s each with two gaps of 1 s.
    assert left_s(plan_of(1, 3), 0, (0, 0), call_s=5) == 17


def test_what_a_call_in_flight_has_taken_is_taken_off():
    assert left_s(plan_of(1, 3), 2, (0, 0), call_s=5) == 15


def test_a_call_that_takes_longer_than_usual_is_about_to_end():
    assert left_s(plan_of(1, 3), 60, (0, 0), call_s=5) == 12


def test_a_call_that_is_not_due_yet_is_waited_for():
    assert left_s(plan_of(1, 3), 10, (2, 40 * S), call_s=5) == 30 + 5


def test_the_tree_that_ends_last_counts():
    plan = plan_of(3, 2)
    assert left_s(plan, 0, (0, 0), (2, 1 * S), (4, 2 * S), call_s=5) == 2 + 1 + 2 * 5


def test_nothing_is_left_after_the_last_call():
    assert left_s(plan_of(1, 3), 100, call_s=5) == 0


def test_scaled_gaps_are_those_that_are_waited_for():
    assert pytest.approx(left_s(plan_of(1, 3, time_scale=0.1), 0, (0, 0), call_s=5)) == 15.2


def fork_and_join_trace(trigger: str) -> Trace:
    """Call 0 spawns a sub-agent (calls 1 and 2, gaps of 1 s); call 3 joins it, call 0's end is 20 s before."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, [builder.segment(100)])
    child = builder.session(parent=main)
    spawn = Dependency(call=first, relation="spawn", trigger=trigger, gap_ns=S)
    second = builder.call(child, [builder.segment(50)], after=[spawn], at_ns=S)
    third = builder.call(child, [builder.segment(50)], after=[second])
    join = [
        Dependency(call=first, relation="sequence", gap_ns=20 * S),
        Dependency(call=third, relation="join", gap_ns=S),
    ]
    builder.call(main, [builder.segment(30)], after=join)
    return builder.trace()


@pytest.mark.parametrize(("trigger", "calls"), [("completion", 4), ("dispatch", 3)])
def test_the_longest_way_through_a_fork_counts(trigger, calls):
    # Over the sub-agent: three gaps of 1 s; a sub-agent spawned at the dispatch runs beside that call.
    assert 3 + calls * 5 == left_s(
        build_plan(fork_and_join_trace(trigger), LoadOptions()), 0, (0, 0), call_s=5
    )


def test_trees_that_the_clock_has_yet_to_start_are_waited_for():
    plan = plan_of(3, 1, arrival=arrival_from_spec("fixed:0.1/s"))
    # The third starts at 20 s.
    assert left_s(plan, 3, (0, 0), started=1, call_s=5) == 22
    assert left_s(plan, 21, (2, 20 * S), started=3, call_s=5) == 4


def test_lanes_share_the_trees_that_have_not_started():
    plan = plan_of(8, 1, concurrency=2)
    # Two in flight and six to come of 5 s each, in two lanes.
    assert left_s(plan, 0, (0, 0), (1, 0), started=2, call_s=5) == 20


def test_the_last_trees_of_lanes_are_not_shared():
    plan = plan_of(4, 1, concurrency=4)
    assert left_s(plan, 0, *[(index, 0) for index in range(4)], started=4, call_s=5) == 5


def test_a_long_tree_at_the_end_of_lanes_is_waited_for():
    builder = TraceBuilder()
    for _ in range(2):
        builder.call(builder.session(), [builder.segment(10)])
    long = builder.session()
    for _ in range(5):
        builder.call(long, [builder.segment(10)])
    plan = build_plan(builder.trace(), LoadOptions(concurrency=2))
    # The third tree begins when a lane is free at 10 s, and has four gaps.
    assert left_s(plan, 0, (0, 0), (1, 0), started=2, call_s=10) == 10 + 5 * 10 + 4


def test_without_recorded_durations_the_longer_chain_is_that_of_more_calls():
    trace = fork_and_join_trace("completion")
    calls = [replace(call, times=CallTimes(request_ns=call.times.request_ns)) for call in trace.calls]
    plan = build_plan(replace(trace, calls=tuple(calls)), LoadOptions(time_scale=0))
    assert left_s(plan, 0, (0, 0), call_s=5) == 20


@pytest.mark.parametrize("lanes", [None, 1, 3])
def test_if_every_call_takes_the_mean_the_end_is_foretold_at_any_time(lanes):
    """Played through the scheduler with calls of 3 s: what is left and what has passed always make up the whole."""
    plan = plan_of(6, 4, concurrency=lanes)
    scheduler, forecast = Scheduler(plan), Forecast(plan)
    scheduler.start(0)
    foretold = []
    ends: dict[int, int] = {}
    now_ns = 0
    while not scheduler.is_done:
        for send in scheduler.take_due(now_ns):
            scheduler.on_sent(send.index, now_ns)
            ends[send.index] = now_ns + 3 * S
        left_ns = forecast.left_ns(
            now_ns, scheduler.open_calls(), started_trees=scheduler.started_trees, call_ns=3 * S, started_ns=0
        )
        foretold.append(now_ns + left_ns)
        moments = [*ends.values(), *[at for at in [scheduler.next_due_ns()] if at is not None]]
        now_ns = min(moments)
        for index in [index for index, end_ns in ends.items() if end_ns == now_ns]:
            del ends[index]
            scheduler.on_end(index, now_ns, ok=True)
    assert set(foretold) == {now_ns}
