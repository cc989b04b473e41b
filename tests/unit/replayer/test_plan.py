from dataclasses import replace

import pytest

from aitrace.errors import InputError, UsageError
from aitrace.schema import CallTimes, Dependency, ToolCall, Usage
from aitrace.testing import TraceBuilder, make_trace
from replayer.options import LoadOptions
from replayer.pacing import arrival_from_spec
from replayer.plan import MAX_CALLS, build_plan

S = 1_000_000_000


def plan_of(trace, **options):
    return build_plan(trace, LoadOptions(**options))


def without_ends(trace, *ids):
    calls = [
        replace(call, times=CallTimes(request_ns=call.times.request_ns)) if call.id in ids else call
        for call in trace.calls
    ]
    return replace(trace, calls=tuple(calls))


def test_every_call_of_every_tree_is_planned_once():
    plan = plan_of(make_trace(3, 4))
    assert list(range(12)) == [call.index for call in plan.calls]
    assert (len(plan.trees), plan.sessions) == (3, 3)


def test_a_call_carries_its_sizes():
    """The second prompt: system 1000, question 200, answer 100, result 300."""
    call = plan_of(make_trace(1, 2)).calls[1]
    assert (
        call.prompt_size,
        call.prompt_tokens,
        call.output_tokens,
        call.max_output_tokens,
    ) == (1600, 1600, 100, 100)


def test_bytes_become_tokens_by_the_reported_ratio():
    builder = TraceBuilder(unit="bytes", block_size=256)
    builder.call(builder.session(), [builder.segment(1000)], usage=Usage(input_tokens=300, output_tokens=5))
    plan = plan_of(builder.trace())
    assert (plan.calls[0].prompt_size, plan.calls[0].prompt_tokens, plan.tokens_per_unit) == (1000, 300, 0.3)


def test_turns_count_within_a_session():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    child = builder.session(parent=main)
    builder.call(child)
    builder.call(main)
    assert [call.turn_index for call in plan_of(builder.trace()).calls] == [0, 0, 1]


def test_trees_of_one_clock_start_as_recorded():
    plan = plan_of(make_trace(3, 1), time_scale=2.0)
    assert [tree.start_ns for tree in plan.trees] == [0, 2 * S, 4 * S]
    assert plan.open_loop


def test_trees_of_one_clock_are_in_order_of_their_starts():
    builder = TraceBuilder()
    late, early = builder.session(), builder.session()
    builder.call(late, at_ns=9 * S)
    builder.call(early, at_ns=4 * S)
    assert [(early, 0), (late, 5 * S)] == [(t.root, t.start_ns) for t in plan_of(builder.trace()).trees]


def test_trees_with_clocks_of_their_own_start_together_and_the_plan_says_so():
    plan = plan_of(make_trace(3, 1, clock_scope="tree"))
    assert [tree.start_ns for tree in plan.trees] == [0, 0, 0]
    assert any("all start together" in note for note in plan.notes)


def test_recorded_starts_are_refused_where_there_are_none():
    with pytest.raises(UsageError, match="counts from its own start"):
        plan_of(make_trace(2, 1, clock_scope="tree"), arrival=arrival_from_spec("recorded"))


def test_fewer_trees_are_the_first_ones():
    assert [tree.root for tree in plan_of(make_trace(3, 2), trees=2).trees] == [0, 1]


def test_more_trees_than_the_trace_has_are_played_again_with_an_instance_of_their_own():
    plan = plan_of(make_trace(2, 2), trees=5)
    assert [(tree.root, tree.instance) for tree in plan.trees] == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]
    assert [call.instance for call in plan.calls if call.root == 1] == [1, 1, 2, 2]
    assert plan.sessions == 5


def test_dependencies_stay_within_their_playing():
    plan = plan_of(make_trace(2, 2), trees=4)
    assert [tuple(w.index for w in c.after) for c in plan.calls] == [(), (0,), (), (2,), (), (4,), (), (6,)]


def test_a_trees_calls_follow_each_other():
    plan = plan_of(make_trace(3, 4), trees=5)
    for tree in plan.trees:
        calls = plan.calls[tree.first : tree.first + tree.count]
        assert {(tree.root, tree.instance)} == {(call.root, call.instance) for call in calls}


def test_interleaved_trees_of_a_trace_are_planned_apart():
    builder = TraceBuilder()
    one, two = builder.session(), builder.session()
    for _ in range(2):
        builder.call(one)
        builder.call(two)
    plan = plan_of(builder.trace())
    assert [call.call for call in plan.calls] == [0, 2, 1, 3]
    assert [tuple(wait.index for wait in call.after) for call in plan.calls] == [(), (0,), (), (2,)]


def test_lanes_have_no_start_times():
    plan = plan_of(make_trace(3, 1), concurrency=2)
    assert [tree.start_ns for tree in plan.trees] == [None, None, None]
    assert (plan.open_loop, plan.lanes) == (False, 2)


def test_planned_times_are_those_of_the_recording():
    trace = make_trace(2, 3)
    plan = plan_of(trace)
    assert [call.times.request_ns for call in trace.calls] == [call.planned_ns for call in plan.calls]
    assert [call.times.end_ns for call in trace.calls] == [call.planned_end_ns for call in plan.calls]


def test_planned_times_shrink_with_gaps_but_not_with_answers():
    """Three answers of 1 s with gaps of 0.5 s."""
    assert [call.planned_ns for call in plan_of(make_trace(1, 3), time_scale=0.5).calls] == [
        0,
        S * 3 // 2,
        3 * S,
    ]


def test_lanes_are_planned_one_tree_after_another():
    """A tree of two answers takes 3 s; lanes free up at 3 s."""
    plan = plan_of(make_trace(3, 2), concurrency=2)
    assert [plan.calls[tree.first].planned_ns for tree in plan.trees] == [0, 0, 3 * S]


def test_a_call_of_unknown_end_is_planned_with_the_median_duration():
    trace = without_ends(make_trace(1, 3), 2)
    plan = plan_of(trace)
    assert plan.calls[2].planned_end_ns == 5 * S
    assert any("planned times take the median duration: 1" in note for note in plan.notes)


def test_without_any_known_end_only_the_starts_are_planned():
    plan = plan_of(without_ends(make_trace(1, 2), 0, 1))
    assert [(call.planned_ns, call.planned_end_ns) for call in plan.calls] == [(0, None), (None, None)]


def test_trees_after_one_of_unknown_length_have_no_planned_time_in_lanes():
    trace = without_ends(make_trace(4, 1), 0, 1, 2, 3)
    plan = plan_of(trace, concurrency=2)
    assert [call.planned_ns for call in plan.calls] == [0, 0, None, None]


def test_a_call_timed_from_an_open_dispatch_is_planned_by_that_alone():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    dispatch = Dependency(call=first, relation="sequence", trigger="dispatch", gap_ns=S // 10)
    builder.call(main, after=[dispatch], at_ns=S // 10)
    plan = plan_of(without_ends(builder.trace(), first))
    assert plan.calls[1].planned_ns == S // 10
    assert [wait.trigger for wait in plan.calls[1].after] == ["dispatch", "completion"]


def test_tool_times_plan_the_recorded_moment():
    builder = TraceBuilder()
    main = builder.session()
    tool = ToolCall(end_ns=S // 2, duration_ns=S)
    builder.call(main, tool_calls=(tool,), ttft_ns=0)
    builder.call(main, cause="tool")
    plan = plan_of(builder.trace())
    assert (plan.calls[1].after[0].rule, plan.calls[1].planned_ns) == ("tools", 2 * S)


def test_a_parent_that_waited_for_a_sub_agent_is_planned_as_recorded():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    inner = builder.call(builder.session(parent=main), duration_ns=50 * S)
    builder.call(main, after=[first, inner])
    plan = plan_of(builder.trace())
    assert [call.planned_ns for call in plan.calls] == [0, 2 * S, 53 * S]
    assert (plan.calls[2].gap_ns, plan.calls[2].after[0].gap_ns) == (S, S)


@pytest.mark.parametrize(
    ("stream", "expected"), [("always", [True, True, True]), ("recorded", [True, False, True])]
)
def test_answers_are_streamed_as_asked(stream, expected):
    """The third call does not tell whether it was streamed."""
    builder = TraceBuilder()
    main = builder.session()
    for streamed in (True, False, None):
        builder.call(main, streamed=streamed)
    assert expected == [call.streamed for call in plan_of(builder.trace(), stream=stream).calls]


def test_caps_are_counted():
    plan = plan_of(make_trace(2, 3), gap_caps_ns={"tool": S // 4})
    assert (plan.capped_calls, plan.capped_ns) == (4, 3 * S)


def test_more_calls_than_a_plan_can_have_are_refused_with_what_fits():
    """Trees of 2 and 3 calls: 400,000 trees have 1,000,000 calls, one more has 2 more."""
    builder = TraceBuilder()
    for length in (2, 3):
        main = builder.session()
        for _ in range(length):
            builder.call(main)
    with pytest.raises(UsageError, match="10,000,000 trees of this trace are 25,000,000 calls") as caught:
        plan_of(builder.trace(), trees=10_000_000)
    assert (MAX_CALLS, caught.value.hint) == (1_000_000, "--trees 400000 is the most that fits.")


def test_the_bound_falls_within_a_playing():
    """Trees of 7 and 8 calls: 66,666 playings leave room for 10 calls, so for the shorter tree."""
    builder = TraceBuilder()
    for length in (7, 8):
        main = builder.session()
        for _ in range(length):
            builder.call(main)
    with pytest.raises(UsageError) as caught:
        plan_of(builder.trace(), trees=10**30)
    assert caught.value.hint == "--trees 133333 is the most that fits."


def test_a_trace_that_holds_text_cannot_share_system_prompts():
    with pytest.raises(UsageError, match="holds its own text"):
        plan_of(make_trace(1, 1, privacy="content"), share_system=True)


def test_a_trace_without_calls_to_play_is_refused():
    builder = TraceBuilder()
    builder.call(builder.session(), call_class="count_tokens")
    with pytest.raises(InputError, match="no call to play"):
        plan_of(builder.trace())


def test_the_same_options_give_the_same_plan():
    options = {"arrival": arrival_from_spec("poisson:1/s"), "trees": 9, "seed": 4}
    assert plan_of(make_trace(2, 3), **options) == plan_of(make_trace(2, 3), **options)
