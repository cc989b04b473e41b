import polars as pl

from aitrace.schema import CallTimes
from aitrace.testing import TraceBuilder, make_call_result, make_run_header
from aitrace.units import NS_PER_S
from reports.sessions import planned_counts
from reports.tables import facts_from_run


def fork_and_join():
    """Main 0 s–2 s, sub-agent 3 s–7 s, main again at 8 s."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, [builder.segment(10)], at_ns=0, duration_ns=2 * NS_PER_S)
    child = builder.session(parent=main)
    inner = builder.call(child, [builder.segment(10)], at_ns=3 * NS_PER_S, duration_ns=4 * NS_PER_S)
    builder.call(main, at_ns=8 * NS_PER_S, duration_ns=NS_PER_S, after=[first, inner])
    return builder.trace()


def played(trace, **fields):
    return [
        make_call_result(
            call.id,
            session=call.session,
            gap_ns=None if not call.after else NS_PER_S // 2,
            planned_ns=None,
            **fields,
        )
        for call in trace.calls
    ]


def test_planned_counts_leave_out_what_a_replay_does_not_send():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, [builder.segment(10)])
    builder.call(main, retry_of=first, attempt=2)
    builder.call(main, call_class="count_tokens")
    assert planned_counts(builder.trace()) == {0: 1}
    assert planned_counts(None) == {}


def test_a_session_ends_as_expected_only_if_its_last_duration_is_known():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, at_ns=0)
    builder.call(main, times=CallTimes(request_ns=5 * NS_PER_S))
    trace = builder.trace()
    calls = [make_call_result(0), make_call_result(1, at_ns=5 * NS_PER_S)]
    facts = facts_from_run(make_run_header(planned_calls=2), None, calls, [], trace)
    assert facts.sessions.select("expected_end_ns", "recorded_end_ns").rows() == [(None, None)]


def test_sessions_and_trees_count_their_calls():
    trace = fork_and_join()
    calls = played(trace)
    facts = facts_from_run(make_run_header(planned_calls=3), None, calls, [], trace)
    assert facts.sessions.select("session", "calls", "complete_calls").rows() == [(0, 2, 2), (1, 1, 1)]
    assert facts.trees.select("calls", "is_whole").rows() == [(3, True)]


def test_in_a_cut_run_a_tree_without_all_its_calls_is_not_whole():
    trace = fork_and_join()
    calls = [*played(trace)[:2], *played(trace, instance=2)]
    facts = facts_from_run(make_run_header(planned_calls=6), None, calls, [], trace)
    assert facts.trees.select("instance", "is_whole").rows() == [(1, False), (2, True)]
    assert facts.sessions.filter(pl.col("instance") == 1)["is_whole"].to_list() == [False, False]
