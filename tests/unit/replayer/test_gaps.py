from dataclasses import replace

import pytest

from aitrace.schema import CallTimes, Dependency, ToolCall
from aitrace.testing import make_call
from replayer.planning.gaps import plan_wait, tool_rule

S = 1_000_000_000
MS = 1_000_000


def base_call(*tools, **times):
    """A call from 0 to 10 s whose tokens come from 2 s to 10 s."""
    return make_call(
        0,
        times=CallTimes(
            **{"request_ns": 0, "first_token_ns": 2 * S, "last_token_ns": 10 * S, "end_ns": 10 * S, **times}
        ),
        tool_calls=tools,
    )


def wait_of(*gaps, calls=None, scale=1.0, caps=None, **fields):
    """What a call waits for that depends on calls 0, 1, … with these gaps."""
    after = [
        Dependency(call=number, relation="sequence" if number == 0 else "join", gap_ns=gap_ns, **fields)
        for number, gap_ns in enumerate(gaps)
    ]
    calls = calls or [make_call(number) for number in range(len(gaps))]
    positions = {number: number for number in range(len(calls))}
    return plan_wait(after, calls, positions, time_scale=scale, caps_ns=caps or {})


def test_a_call_that_waits_for_nothing_has_no_gap():
    wait = wait_of()
    assert (wait.after, wait.gap_ns, wait.cause) == ((), None, None)


def test_a_gap_is_scaled():
    assert (wait_of(10 * S, scale=0.5).gap_ns, wait_of(10 * S, scale=0.5).after[0].gap_ns) == (5 * S, 5 * S)


def test_a_cap_holds_after_scaling():
    wait = wait_of(100 * S, scale=0.5, caps={"user": 30 * S}, cause="user")
    assert (wait.gap_ns, wait.capped_ns) == (30 * S, 20 * S)


def test_a_cap_of_another_cause_has_no_say():
    wait = wait_of(100 * S, caps={"user": 30 * S}, cause="tool")
    assert (wait.gap_ns, wait.capped_ns) == (100 * S, 0)


def test_of_several_waits_all_take_the_gap_after_the_last():
    """The parent's call ended 60 s ago, the sub-agent's 2 s ago: the harness took 2 s, the agent the rest."""
    wait = wait_of(60 * S, 2 * S)
    assert [dependency.gap_ns for dependency in wait.after] == [2 * S, 2 * S]


def test_a_gap_that_is_not_known_is_zero_and_counted():
    wait = wait_of(None, 4 * S)
    assert [dependency.gap_ns for dependency in wait.after] == [0, 4 * S]
    assert (wait.unknown_gaps, wait.gap_ns) == (1, 4 * S)


def test_a_call_without_any_known_gap_follows_at_once():
    assert (wait_of(None, cause="user").gap_ns, wait_of(None, cause="user").cause) == (0, "user")


def test_an_overlap_is_zero_and_counted():
    wait = wait_of(-3 * S, 4 * S)
    assert [dependency.gap_ns for dependency in wait.after] == [0, 4 * S]
    assert wait.overlaps == 1


def test_a_call_timed_from_the_dispatch_of_an_open_call_waits_for_its_end_too():
    open_call = make_call(0, times=CallTimes(request_ns=0))
    wait = wait_of(9 * S, calls=[open_call], trigger="dispatch")
    assert [(d.trigger, d.gap_ns) for d in wait.after] == [("dispatch", 9 * S), ("completion", 0)]
    assert wait.timed_from_dispatch == 1


def test_a_call_sent_while_a_known_one_ran_waits_for_its_dispatch_only():
    wait = wait_of(S // 2, calls=[make_call(0)], trigger="dispatch")
    assert ([d.trigger for d in wait.after], wait.timed_from_dispatch) == (["dispatch"], 0)


def test_positions_become_indices():
    after = [Dependency(call=1, relation="sequence", gap_ns=0)]
    wait = plan_wait(after, [make_call(0), make_call(1)], {1: 7}, time_scale=1.0, caps_ns={})
    assert wait.after[0].index == 7


def rule_of(base, gap_ns, scale=1.0, cap_ns=None, **fields):
    dependency = Dependency(call=0, **{"relation": "sequence", "gap_ns": gap_ns, "cause": "tool", **fields})
    return tool_rule(dependency, base, time_scale=scale, cap_ns=cap_ns)


def test_a_tool_that_ran_while_the_answer_streamed_leaves_only_overhead():
    """Its block ends at 6 s, half way through the stream; it runs 1 s, so all of the 150 ms gap is overhead."""
    rule = rule_of(base_call(ToolCall(end_ns=6 * S, duration_ns=S)), 150 * MS)
    assert (rule.tools, rule.overhead_ns) == (((0.5, S),), 150 * MS)


def test_a_tool_that_outlasts_the_answer_is_waited_for():
    """Block end 6 s + 5 s = 11 s, one second after the answer; of the gap of 1.2 s remain 0.2 s."""
    assert rule_of(base_call(ToolCall(end_ns=6 * S, duration_ns=5 * S)), 1200 * MS).overhead_ns == 200 * MS


def test_a_slower_answer_hides_more_of_a_tool():
    """Recorded: block at 6 s, tool to 11 s. Played at half the speed: tokens from 4 s to 20 s, block at 12 s, tool to
    17 s, so only the overhead follows the end at 20 s."""
    rule = rule_of(base_call(ToolCall(end_ns=6 * S, duration_ns=5 * S)), 1200 * MS)
    assert rule.due_ns(20 * S, 4 * S, 20 * S) == 20 * S + 200 * MS


def test_a_faster_answer_shows_more_of_a_tool():
    """Tokens from 1 s to 2 s: block at 1.5 s, tool to 6.5 s."""
    rule = rule_of(base_call(ToolCall(end_ns=6 * S, duration_ns=5 * S)), 1200 * MS)
    assert rule.due_ns(2 * S, S, 2 * S) == 6500 * MS + 200 * MS


def test_without_token_times_all_tools_begin_at_the_end():
    rule = rule_of(base_call(ToolCall(end_ns=6 * S, duration_ns=5 * S)), 1200 * MS)
    assert rule.due_ns(20 * S, None, None) == 25 * S + 200 * MS


def test_the_slowest_of_parallel_tools_counts():
    tools = ToolCall(end_ns=4 * S, duration_ns=2 * S), ToolCall(end_ns=10 * S, duration_ns=3 * S)
    rule = rule_of(base_call(*tools), 4 * S)
    assert (rule.due_ns(10 * S, 2 * S, 10 * S), rule.overhead_ns) == (13 * S + S, S)


def test_a_cap_bounds_the_wait_after_the_answer():
    rule = rule_of(base_call(ToolCall(end_ns=10 * S, duration_ns=90 * S)), 91 * S, cap_ns=30 * S)
    assert rule.due_ns(10 * S, 2 * S, 10 * S) == 40 * S


def test_tool_times_and_overhead_are_scaled():
    rule = rule_of(base_call(ToolCall(end_ns=10 * S, duration_ns=4 * S)), 6 * S, scale=0.5)
    assert (rule.tools, rule.overhead_ns) == (((1.0, 2 * S),), S)


@pytest.mark.parametrize(
    "times", [{"first_token_ns": None}, {"last_token_ns": None}, {"last_token_ns": 2 * S}]
)
def test_a_block_whose_place_is_not_known_ends_with_the_answer(times):
    rule = rule_of(base_call(ToolCall(end_ns=6 * S, duration_ns=S), **times), 2 * S)
    assert rule.tools[0][0] == 1.0


def test_a_block_without_end_ends_with_the_answer():
    assert rule_of(base_call(ToolCall(duration_ns=S)), 2 * S).tools[0][0] == 1.0


def test_a_tool_time_that_rounding_made_too_long_leaves_no_overhead():
    assert rule_of(base_call(ToolCall(end_ns=10 * S, duration_ns=S)), S - MS).overhead_ns == 0


@pytest.mark.parametrize(
    ("base", "gap_ns", "fields"),
    [
        (base_call(ToolCall(end_ns=10 * S, duration_ns=2 * S)), S, {}),
        (base_call(ToolCall(end_ns=6 * S)), S, {}),
        (base_call(ToolCall(end_ns=6 * S, duration_ns=S), ToolCall(end_ns=7 * S)), S, {}),
        (base_call(), S, {}),
        (replace(base_call(), tool_calls=None), S, {}),
        (base_call(ToolCall(duration_ns=S), end_ns=None, last_token_ns=None), S, {}),
        (base_call(ToolCall(duration_ns=S)), None, {}),
        (base_call(ToolCall(duration_ns=S)), 5 * S, {"cause": "user"}),
        (base_call(ToolCall(duration_ns=S)), 5 * S, {"relation": "spawn"}),
        (base_call(ToolCall(duration_ns=S)), 5 * S, {"trigger": "dispatch"}),
    ],
    ids=[
        "contradicts the gap",
        "no time",
        "one time missing",
        "no tools",
        "tools not known",
        "no end",
        "no gap",
        "a user's gap",
        "a spawn",
        "a dispatch",
    ],
)
def test_the_recorded_gap_is_used_where_tool_times_do_not_tell(base, gap_ns, fields):
    assert rule_of(base, gap_ns, **fields) is None


def test_a_wait_with_tool_times_says_so():
    wait = wait_of(3 * S, calls=[base_call(ToolCall(end_ns=10 * S, duration_ns=2 * S))], cause="tool")
    assert (wait.after[0].rule, wait.gap_ns) == ("tools", 3 * S)
    assert wait.after[0].due_ns(10 * S, 2 * S, 10 * S) == 13 * S


def test_tool_times_have_no_say_where_a_sub_agent_is_joined_too():
    """The time of the tool that ran the sub-agent is the sub-agent's own work."""
    calls = [base_call(ToolCall(end_ns=10 * S, duration_ns=60 * S)), make_call(1)]
    assert [d.rule for d in wait_of(61 * S, S, calls=calls, cause="tool").after] == ["gap", "gap"]
