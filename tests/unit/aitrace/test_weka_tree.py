"""Times are in seconds; `S` turns them into ns."""

import pytest

from aitrace.formats.weka import conversation_from_json
from aitrace.formats.weka_tree import gap_cause, placed_tree

S = 1_000_000_000


def call(t, api=1.0, **fields):
    return {"t": t, "in": 64, "out": 5, "hash_ids": [1], "api_time": api, **fields}


def asking(t, api=1.0, **fields):
    return call(t, api, input_types=["tool_result"], output_types=["tool_use"], stop="tool_use", **fields)


def agent(t, *requests, **fields):
    return {"t": t, "type": "subagent", "requests": list(requests), **fields}


def placed(*requests):
    return placed_tree(conversation_from_json({"block_size": 64, "requests": list(requests)}, "f"))


def links(tree):
    """(call) -> what it waited for, as (agent, index, relation, trigger, gap in s)."""
    return {
        (c.agent, c.index): [(x.agent, x.index, x.relation, x.trigger, x.gap_ns / S) for x in c.links]
        for c in tree.calls
    }


def test_a_call_waits_for_the_end_of_the_one_before_it():
    assert links(placed(call(0, 2.5), call(4.5))) == {
        (0, 0): [],
        (0, 1): [(0, 0, "sequence", "completion", 2.0)],
    }


def test_a_gap_below_0_within_the_time_resolution_is_kept():
    assert links(placed(call(0, 2.5), call(2)))[0, 1] == [(0, 0, "sequence", "completion", -0.5)]


def test_a_call_that_overlaps_another_is_timed_from_its_dispatch():
    tree = placed(call(0, 10.0), call(4.001))
    assert links(tree)[0, 1] == [(0, 0, "sequence", "dispatch", 4.001)]
    assert [c.overlaps for c in tree.calls] == [False, True]


def test_a_call_after_two_that_overlapped_waits_for_both():
    tree = placed(call(0, 10.0), call(4.5, 1.0), call(12.0))
    assert links(tree)[0, 2] == [
        (0, 1, "sequence", "completion", 6.5),
        (0, 0, "sequence", "completion", 2.0),
    ]


def test_a_call_between_two_that_overlap_waits_only_for_what_had_ended():
    tree = placed(call(0, 100.0), call(4.5, 1.0), call(7.0))
    assert links(tree)[0, 2] == [(0, 1, "sequence", "completion", 1.5)]


def test_after_a_call_whose_end_is_not_known_the_dispatch_counts():
    tree = placed(call(0, None), call(9), call(20))
    assert links(tree)[0, 1] == [(0, 0, "sequence", "dispatch", 9.0)]
    assert links(tree)[0, 2] == [(0, 1, "sequence", "completion", 10.0)]
    assert not tree.calls[1].overlaps


def test_a_sub_agent_waits_for_the_end_of_the_call_nearest_to_its_start():
    tree = placed(asking(0), asking(5), agent(6.25, call(0.0), call(2.0)), asking(20))
    assert links(tree)[1, 0] == [(0, 1, "spawn", "completion", 0.25)]
    assert links(tree)[1, 1] == [(1, 0, "sequence", "completion", 1.0)]


def test_a_sub_agent_started_while_the_answer_streams_waits_for_the_dispatch():
    tree = placed(asking(0), asking(5, 4.0), agent(7.5, call(0.0)), asking(20))
    assert links(tree)[1, 0] == [(0, 1, "spawn", "dispatch", 2.5)]


def test_a_call_that_is_only_just_dispatched_did_not_start_the_sub_agent():
    tree = placed(asking(0, 4.9), asking(5, 60.0), agent(5.05, call(0.0)), asking(80))
    assert links(tree)[1, 0] == [(0, 0, "spawn", "completion", 0.15)]


def test_a_call_without_tool_calls_does_not_start_a_sub_agent_if_another_does():
    quiet = call(5, input_types=["text"], output_types=["text"], stop="end_turn")
    tree = placed(asking(0), quiet, agent(6.25, call(0.0)), asking(20))
    assert links(tree)[1, 0] == [(0, 0, "spawn", "completion", 5.25)]
    assert links(placed(quiet, agent(6.25, call(0.0))))[1, 0] == [(0, 0, "spawn", "completion", 0.25)]


def test_the_end_of_a_starting_call_may_be_unknown():
    assert links(placed(call(5, None), agent(6.25, call(0.0))))[1, 0] == [(0, 0, "spawn", "dispatch", 1.25)]


def test_the_first_later_call_with_a_tool_result_joins_the_sub_agent():
    text = call(9.5, input_types=["text"], output_types=["text"], stop="end_turn")
    tree = placed(asking(0), agent(1.5, call(0.0), call(3.0, 4.0)), text, asking(20))
    assert links(tree)[0, 2] == [
        (0, 1, "sequence", "completion", 9.5),
        (1, 1, "join", "completion", 11.5),
    ]
    assert (tree.unjoined, tree.overtaken) == ((), (1,))


def test_without_input_types_the_first_later_call_joins():
    tree = placed(call(0), agent(1.5, call(0.0)), call(3.0))
    assert links(tree)[0, 1][1] == (1, 0, "join", "completion", 0.5)
    assert tree.overtaken == ()


def test_a_child_whose_end_is_not_known_is_joined_by_its_last_dispatch():
    tree = placed(call(0), agent(1.5, call(0.0, None)), call(3.0))
    assert links(tree)[0, 1][1] == (1, 0, "join", "dispatch", 1.5)


def test_a_sub_agent_that_nobody_waits_for_runs_in_the_background():
    tree = placed(asking(0), agent(1.5, call(0.0, 30.0)), asking(4))
    assert tree.unjoined == (1,)
    assert links(tree)[0, 1] == [(0, 0, "sequence", "completion", 3.0)]


def test_a_sub_agent_before_any_main_call_has_no_start():
    tree = placed(asking(9.5), agent(0.0, call(0.0)))
    assert tree.unspawned == (1,)
    assert links(tree)[1, 0] == []


def test_a_conversation_may_have_no_main_call():
    tree = placed(agent(0.0, call(0.0)))
    assert (tree.unspawned, tree.unjoined, len(tree.calls)) == ((1,), (1,), 1)


def test_the_time_of_a_sub_agent_is_its_end_if_that_puts_its_start_at_the_end_of_a_call():
    child = agent(60.5, call(0.0), call(50.0), duration_ms=58000)
    tree = placed(asking(0, 2.0), child, asking(70))
    assert tree.ends_given
    assert links(tree)[1, 0] == [(0, 0, "spawn", "completion", 0.5)]


def test_the_time_of_a_sub_agent_is_its_start_where_that_fits_better_or_the_end_cannot_be():
    start = placed(asking(0, 2.0), agent(2.5, call(0.0), duration_ms=2000), asking(70))
    before_zero = placed(asking(0, 2.0), agent(30.5, call(0.0), duration_ms=90000), asking(70))
    without_duration = placed(asking(0, 2.0), agent(30.5, call(0.0)), asking(70))
    assert [tree.ends_given for tree in (start, before_zero, without_duration)] == [False] * 3


def test_calls_are_in_order_of_time_but_never_before_what_they_wait_for():
    # On the 1 s grid the joining call is listed before the child's last request.
    child = agent(1.5, call(0), call(3, 0.25))
    tree = placed(asking(0), child, asking(4, 2.0))
    assert [(c.agent, c.index) for c in tree.calls] == [(0, 0), (1, 0), (1, 1), (0, 1)]
    assert links(tree)[0, 1][1] == (1, 1, "join", "completion", -0.75)


def test_children_have_the_turn_of_the_call_that_started_them():
    prompt = call(30, input_types=["text"], output_types=["tool_use"], stop="tool_use")
    done = call(10, input_types=["tool_result"], output_types=["text"], stop="end_turn")
    tree = placed(asking(0), done, prompt, agent(31.5, call(0.0), call(2.0)), asking(90))
    assert [(c.agent, c.turn) for c in tree.calls] == [(0, 0), (0, 0), (0, 1), (1, 1), (1, 1), (0, 1)]


def test_after_an_answer_that_was_not_captured_the_turn_is_not_known():
    lost = call(0, None, input_types=["text"], output_types=[], stop="")
    tree = placed(lost, call(9, input_types=["text"], output_types=["text"], stop="end_turn"), asking(20))
    assert [c.turn for c in tree.calls] == [0, None, None]


@pytest.mark.parametrize(
    ("stop", "output_types", "input_types", "cause"),
    [
        ("tool_use", ["tool_use"], ["tool_result"], "tool"),
        ("end_turn", ["text"], ["text"], "user"),
        ("end_turn", ["text"], ["text", "tool_result", "tool_use"], "user"),
        ("tool_use", ["tool_use"], ["text", "thinking", "tool_result", "tool_use"], "unknown"),
        ("tool_use", ["tool_use"], ["text"], "unknown"),
        (None, ["text"], ["text"], "user"),
        (None, ["text"], ["image"], "unknown"),
        ("", [], ["text"], "unknown"),
        (None, None, None, "unknown"),
    ],
)
def test_the_cause_of_a_gap_is_told_by_what_is_added_and_how_the_answer_ended(
    stop, output_types, input_types, cause
):
    rows = [call(0, stop=stop, output_types=output_types), call(5, input_types=input_types)]
    first, second = conversation_from_json({"block_size": 64, "requests": rows}, "f").main.calls
    assert gap_cause(first, second) == cause
