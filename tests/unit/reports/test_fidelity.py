import pytest

from aitrace.results import Attempt
from aitrace.schema import Dependency
from aitrace.testing import TraceBuilder, make_call_result
from reports.metrics import METRICS

MS = 10**6
S = 10**9


def value(facts, name):
    return METRICS[name].compute(facts)


def trace_of(*gaps_s):
    """One session of calls of 1 s with these gaps between them."""
    builder = TraceBuilder()
    session, at_ns = builder.session(), 0
    builder.call(session, at_ns=0, duration_ns=S)
    for gap_s in gaps_s:
        at_ns += round((1 + gap_s) * S)
        builder.call(session, at_ns=at_ns, duration_ns=S)
    return builder.trace()


def test_gaps_are_told_as_recorded_planned_and_played(facts_of):
    """At half the speed of gaps, the second one is cut by a cap of 1 s."""
    calls = [
        make_call_result(0, at_ns=0),
        make_call_result(1, at_ns=2 * S + 4 * MS, gap_ns=S),
        make_call_result(2, at_ns=4 * S + 10 * MS, gap_ns=S),
    ]
    facts = facts_of(calls, trace=trace_of(2, 8), time_scale=0.5)
    assert value(facts, "gaps_by_cause") == [
        {
            "cause": "tool", "calls": 2, "recorded_s": 5.0, "planned_s": 2.0, "played_s": pytest.approx(2.01),
            "capped_calls": 1, "error_p50_ms": 4.0, "error_p95_ms": None, "error_max_ms": 6.0,
        }
    ]  # fmt: skip
    assert [value(facts, name) for name in ("compared_gaps", "capped_gaps", "capped_gaps_ratio", "capped_gaps_s")] == [
        2, 1, 0.5, 3.0,
    ]  # fmt: skip
    assert value(facts, "gap_error_ms").values.tolist() == pytest.approx([4.0, 6.0])


def test_the_gap_ends_with_the_first_try(facts_of):
    refused = Attempt(sent_ns=3 * S, end_ns=3 * S, status=429, error="refused", wait_ns=9 * S)
    calls = [
        make_call_result(0, at_ns=0),
        make_call_result(1, at_ns=12 * S, gap_ns=2 * S, attempts=(refused,)),
    ]
    assert value(facts_of(calls, trace=trace_of(2)), "gap_error_ms").values.tolist() == [0.0]


def test_calls_that_wait_for_others_or_for_another_moment_are_not_compared(facts_of):
    builder = TraceBuilder()
    main, agent = builder.session(), None
    first = builder.call(main, at_ns=0, duration_ns=S)
    agent = builder.session(parent=main)
    spawned = builder.call(agent, at_ns=S, duration_ns=S)
    builder.call(main, at_ns=4 * S, duration_ns=S, after=[first, spawned])
    builder.call(
        main, at_ns=5 * S, duration_ns=S,
        after=[Dependency(call=2, relation="sequence", trigger="dispatch", gap_ns=S, cause="tool")],
    )  # fmt: skip
    sessions = (main, agent, main, main)
    calls = [make_call_result(i, at_ns=i * S, session=sessions[i], gap_ns=0) for i in range(4)]
    assert value(facts_of(calls, trace=builder.trace()), "compared_gaps") == 0


def test_an_absolute_schedule_and_a_run_without_its_trace_have_no_gaps_to_compare(facts_of):
    calls = [make_call_result(0, at_ns=0), make_call_result(1, at_ns=2 * S, gap_ns=S)]
    absolute = facts_of(calls, trace=trace_of(1), options={"schedule": "absolute"})
    assert value(absolute, "compared_gaps") == 0
    assert [value(facts_of(calls), name) for name in ("compared_gaps", "capped_gaps", "capped_gaps_s")] == [
        None
    ] * 3


def test_arrivals_are_compared_where_the_clock_starts_trees(facts_of):
    calls = [
        make_call_result(0, planned_ns=0, sent_ns=3 * MS, turn_index=0),
        make_call_result(1, planned_ns=S, sent_ns=S + MS, turn_index=0, session=1, root=1),
        make_call_result(2, planned_ns=S, sent_ns=9 * S, turn_index=1, session=1, root=1),
    ]
    by_clock, by_lanes = facts_of(calls, open_loop=True), facts_of(calls, open_loop=False)
    assert value(by_clock, "tree_start_error_ms").values.tolist() == [3.0, 1.0]
    assert value(by_lanes, "tree_start_error_ms").values.size == 0


def test_how_far_a_run_is_behind_the_recording_is_told_of_each_call(facts_of):
    calls = [make_call_result(0, planned_ns=0, due_ns=2 * S), make_call_result(1, planned_ns=None)]
    assert value(facts_of(calls), "behind_schedule_s").values.tolist() == [2.0]
