"""Rows of a trace."""

from aitrace.schema import CallTimes, Dependency, Outcome, ToolCall, Usage
from aitrace.testing import TraceBuilder
from reports.recorded.facts import recorded_from_trace, tells_no_tools

S = 10**9


def rows(frame, *names):
    return frame.select(names).rows()


def test_sessions_know_their_depth():
    builder = TraceBuilder()
    main = builder.session(harness="codex", label="agent_1")
    child = builder.session(parent=main, agent="Explore")
    builder.session(parent=child)
    recorded = recorded_from_trace(builder.trace())
    assert rows(recorded.sessions, "session", "parent", "root", "depth", "harness", "agent", "label") == [
        (0, None, 0, 0, "codex", None, "agent_1"),
        (1, 0, 0, 1, None, "Explore", None),
        (2, 1, 0, 2, None, None, None),
    ]


def test_calls_are_numbered_within_their_session_by_the_time_of_the_request():
    builder = TraceBuilder()
    main = builder.session()
    for at_ns in (0, 5 * S, 3 * S):
        builder.call(main, at_ns=at_ns)
    assert recorded_from_trace(builder.trace()).calls["place"].to_list() == [0, 2, 1]


def test_the_gap_is_that_of_the_wait_that_ended_last_and_a_dispatch_has_none():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    child = builder.session(parent=main)
    inner = builder.call(
        child, after=[Dependency(call=first, relation="spawn", trigger="dispatch", gap_ns=7)]
    )
    waits = [
        Dependency(call=first, relation="sequence", gap_ns=9 * S, cause="tool"),
        Dependency(call=inner, relation="join", gap_ns=2 * S, cause="tool"),
    ]
    builder.call(main, after=waits)
    builder.call(main, after=[Dependency(call=inner, relation="join", cause="user")])
    calls = recorded_from_trace(builder.trace()).calls
    assert rows(calls, "gap_ns", "gap_cause", "gap_relation", "waited_call", "joins") == [
        (None, None, None, None, None),
        (None, None, None, None, False),
        (2 * S, "tool", "join", 1, True),
        (None, None, None, None, True),
    ]


def test_prompt_tokens_are_those_reported_else_the_size_where_it_is_in_tokens():
    for unit, unreported in (("tokens", 64), ("bytes", None)):
        builder = TraceBuilder(unit=unit)
        main = builder.session()
        builder.call(main, [builder.segment(64)], usage=Usage(input_tokens=16))
        builder.call(main, usage=Usage())
        calls = recorded_from_trace(builder.trace()).calls
        assert calls["prompt_tokens"].to_list() == [16, unreported]
        assert calls["tokens_per_unit"][0] == 0.25


def test_a_prompt_of_no_size_or_of_an_unseen_start_has_no_ratio():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    builder.call(main, [builder.segment(5)], unseen_start=True)
    assert recorded_from_trace(builder.trace()).calls["tokens_per_unit"].to_list() == [None, None]


def test_tool_calls_are_rows_of_their_own():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, tool_calls=(ToolCall(name="Bash", duration_ns=5), ToolCall()))
    recorded = recorded_from_trace(builder.trace())
    assert recorded.tools.rows() == [(0, "Bash", 5), (0, None, None)]
    assert recorded.calls["tools"].to_list() == [2]


def test_only_complete_calls_of_conversations_are_to_tell_their_tools():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, tool_calls=())
    builder.call(main, outcome=Outcome(error="refused", status=429))
    builder.call(main, call_class="auxiliary")
    builder.call(main)
    calls = recorded_from_trace(builder.trace()).calls
    assert calls.select(tells_no_tools().alias("it"))["it"].to_list() == [False, False, False, True]


def test_a_trace_without_calls_has_no_rows():
    recorded = recorded_from_trace(TraceBuilder().trace())
    assert (recorded.calls.height, recorded.sessions.height, recorded.tools.height) == (0, 0, 0)


def test_what_is_not_known_of_a_call_stays_unknown():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, times=CallTimes(request_ns=5), model=None, usage=Usage())
    (row,) = recorded_from_trace(builder.trace()).calls.to_dicts()
    unknown = ("end_ns", "first_token_ns", "model", "cache_read_tokens", "output_tokens", "turn", "error")
    assert {name: row[name] for name in unknown} == dict.fromkeys(unknown)
