"""What each session did when."""

from aitrace.schema import CallTimes, Dependency, Outcome
from aitrace.testing import TraceBuilder
from reports.recorded.facts import recorded_from_trace
from reports.recorded.spans import most_at_once, shares_of, spans_frame

S = 10**9


def spans_of(builder):
    frame = spans_frame(recorded_from_trace(builder.trace()))
    return [(session, state, start // S, end // S) for session, _, state, start, end in frame.iter_rows()]


def times(start, first, end):
    return CallTimes(
        request_ns=start * S,
        first_token_ns=None if first is None else first * S,
        end_ns=None if end is None else end * S,
    )


def after(call, gap, cause, relation="sequence"):
    return [Dependency(call=call, relation=relation, gap_ns=gap * S, cause=cause)]


def test_a_session_waits_decodes_and_runs_tools():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, times=times(0, 2, 5))
    builder.call(main, times=times(9, 10, 12), after=after(0, 4, "tool"))
    builder.call(main, times=times(15, None, 16), after=after(1, 3, "user"))
    assert spans_of(builder) == [
        (0, "wait", 0, 2),
        (0, "decode", 2, 5),
        (0, "tool", 5, 9),
        (0, "wait", 9, 10),
        (0, "decode", 10, 12),
        (0, "user", 12, 15),
        (0, "answer", 15, 16),
    ]


def test_a_moment_belongs_to_the_earlier_of_two_calls_in_flight():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, times=times(0, 2, 10))
    builder.call(main, times=times(5, 6, 8))
    builder.call(main, times=times(9, 11, 13))
    assert spans_of(builder) == [
        (0, "wait", 0, 2),
        (0, "decode", 2, 10),
        (0, "wait", 10, 11),
        (0, "decode", 11, 13),
    ]


def test_failed_calls_and_what_follows_an_unknown_end_are_told_apart():
    builder = TraceBuilder()
    main = builder.session()
    refused = Outcome(error="refused", status=529)
    builder.call(main, times=times(0, None, 1), outcome=refused)
    builder.call(main, times=times(4, None, None), after=after(0, 3, "backoff", "retry"))
    builder.call(main, times=times(9, None, None), after=after(1, 3, "tool"))
    assert spans_of(builder) == [(0, "failed", 0, 1), (0, "backoff", 1, 4), (0, "unknown", 4, 9)]


def test_a_gap_that_takes_in_a_sub_agent_is_one_of_agents_and_one_without_a_cause_unknown():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, times=times(0, None, 1))
    child = builder.session(parent=main)
    builder.call(child, times=times(2, None, 6))
    builder.call(main, times=times(7, None, 8), after=[*after(0, 6, "tool"), *after(1, 1, "tool", "join")])
    builder.call(main, times=times(9, None, 10), after=())
    assert spans_of(builder) == [
        (0, "answer", 0, 1),
        (0, "agents", 1, 7),
        (0, "answer", 7, 8),
        (0, "unknown", 8, 9),
        (0, "answer", 9, 10),
        (1, "answer", 2, 6),
    ]


def test_shares_add_up_for_all_main_agents_and_sub_agents():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, times=times(0, 1, 2))
    child = builder.session(parent=main)
    builder.call(child, times=times(2, 4, 4))
    recorded = recorded_from_trace(builder.trace())
    rows = shares_of(spans_frame(recorded), recorded.sessions)
    assert [(row["sessions"], row["state"], row["time_s"], row["time_ratio"]) for row in rows] == [
        ("all", "wait", 3.0, 0.75),
        ("all", "decode", 1.0, 0.25),
        ("main", "wait", 1.0, 0.5),
        ("main", "decode", 1.0, 0.5),
        ("subagent", "wait", 2.0, 1.0),
    ]


def test_the_most_at_once_counts_sessions_and_not_calls():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, times=times(0, None, 10))
    builder.call(main, times=times(1, None, 9))
    children = [builder.session(parent=main) for _ in range(2)]
    builder.call(children[0], times=times(2, None, 5))
    builder.call(children[1], times=times(5, None, 7))  # begins as the other ends
    other = builder.session()
    builder.call(other, times=times(0, None, None))
    assert most_at_once(recorded_from_trace(builder.trace())).rows() == [(0, 2)]
