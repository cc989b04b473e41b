import gc
import weakref
from dataclasses import replace

import pytest

from aitrace.errors import InputError, UsageError
from aitrace.schema import CallTimes, Dependency, ToolCall, Usage
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.mid_start import StartRange
from replayer.planning.options import LoadOptions
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import MAX_TREES, build_plan
from replayer.planning.planned import PlannedCall

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
    assert list(range(12)) == [call.index for call in plan.every_call()]
    assert (len(plan.trees), plan.sessions) == (3, 3)


def test_a_call_carries_its_sizes():
    """The second prompt: system 1000, question 200, answer 100, result 300."""
    call = plan_of(make_trace(1, 2)).call(1)
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
    assert (plan.call(0).prompt_size, plan.call(0).prompt_tokens, plan.tokens_per_unit) == (1000, 300, 0.3)


def test_turns_count_within_a_session():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    child = builder.session(parent=main)
    builder.call(child)
    builder.call(main)
    assert [call.turn_index for call in plan_of(builder.trace()).every_call()] == [0, 0, 1]


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
    assert [call.instance for call in plan.every_call() if call.root == 1] == [1, 1, 2, 2]
    assert plan.sessions == 5


def test_dependencies_stay_within_their_playing():
    plan = plan_of(make_trace(2, 2), trees=4)
    assert [tuple(w.index for w in c.after) for c in plan.every_call()] == [
        (),
        (0,),
        (),
        (2,),
        (),
        (4,),
        (),
        (6,),
    ]


def test_a_trees_calls_follow_each_other():
    plan = plan_of(make_trace(3, 4), trees=5)
    for tree in plan.trees:
        calls = plan.calls_of(tree).calls
        assert [call.index for call in calls] == list(range(tree.first, tree.first + tree.count))
        assert {(tree.root, tree.instance)} == {(call.root, call.instance) for call in calls}


def test_interleaved_trees_of_a_trace_are_planned_apart():
    builder = TraceBuilder()
    one, two = builder.session(), builder.session()
    for _ in range(2):
        builder.call(one)
        builder.call(two)
    plan = plan_of(builder.trace())
    assert [call.call for call in plan.every_call()] == [0, 2, 1, 3]
    assert [tuple(wait.index for wait in call.after) for call in plan.every_call()] == [(), (0,), (), (2,)]


def test_lanes_have_no_start_times():
    plan = plan_of(make_trace(3, 1), concurrency=2)
    assert [tree.start_ns for tree in plan.trees] == [None, None, None]
    assert (plan.open_loop, plan.lanes) == (False, 2)


def test_planned_times_are_those_of_the_recording():
    trace = make_trace(2, 3)
    plan = plan_of(trace)
    assert [call.times.request_ns for call in trace.calls] == [call.planned_ns for call in plan.every_call()]
    assert [call.times.end_ns for call in trace.calls] == [call.planned_end_ns for call in plan.every_call()]


def test_planned_times_shrink_with_gaps_but_not_with_answers():
    """Three answers of 1 s with gaps of 0.5 s."""
    assert [call.planned_ns for call in plan_of(make_trace(1, 3), time_scale=0.5).every_call()] == [
        0,
        S * 3 // 2,
        3 * S,
    ]


def test_lanes_are_planned_one_tree_after_another():
    """A tree of two answers takes 3 s; lanes free up at 3 s."""
    plan = plan_of(make_trace(3, 2), concurrency=2)
    assert [plan.call(tree.first).planned_ns for tree in plan.trees] == [0, 0, 3 * S]


def test_a_call_of_unknown_end_is_planned_with_the_median_duration():
    trace = without_ends(make_trace(1, 3), 2)
    plan = plan_of(trace)
    assert plan.call(2).planned_end_ns == 5 * S
    assert any("planned times take the median duration: 1" in note for note in plan.notes)


def test_without_any_known_end_only_the_starts_are_planned():
    plan = plan_of(without_ends(make_trace(1, 2), 0, 1))
    assert [(call.planned_ns, call.planned_end_ns) for call in plan.every_call()] == [(0, None), (None, None)]


def test_trees_after_one_of_unknown_length_have_no_planned_time_in_lanes():
    trace = without_ends(make_trace(4, 1), 0, 1, 2, 3)
    plan = plan_of(trace, concurrency=2)
    assert [call.planned_ns for call in plan.every_call()] == [0, 0, None, None]


def test_a_call_timed_from_an_open_dispatch_is_planned_by_that_alone():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    dispatch = Dependency(call=first, relation="sequence", trigger="dispatch", gap_ns=S // 10)
    builder.call(main, after=[dispatch], at_ns=S // 10)
    plan = plan_of(without_ends(builder.trace(), first))
    assert plan.call(1).planned_ns == S // 10
    assert [wait.trigger for wait in plan.call(1).after] == ["dispatch", "completion"]


def test_tool_times_plan_the_recorded_moment():
    builder = TraceBuilder()
    main = builder.session()
    tool = ToolCall(end_ns=S // 2, duration_ns=S)
    builder.call(main, tool_calls=(tool,), ttft_ns=0)
    builder.call(main, cause="tool")
    plan = plan_of(builder.trace())
    assert (plan.call(1).after[0].rule, plan.call(1).planned_ns) == ("tools", 2 * S)


def test_a_parent_that_waited_for_a_sub_agent_is_planned_as_recorded():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    inner = builder.call(builder.session(parent=main), duration_ns=50 * S)
    builder.call(main, after=[first, inner])
    plan = plan_of(builder.trace())
    assert [call.planned_ns for call in plan.every_call()] == [0, 2 * S, 53 * S]
    assert (plan.call(2).gap_ns, plan.call(2).after[0].gap_ns) == (S, S)


@pytest.mark.parametrize(
    ("stream", "expected"), [("always", [True, True, True]), ("recorded", [True, False, True])]
)
def test_answers_are_streamed_as_asked(stream, expected):
    """The third call does not tell whether it was streamed."""
    builder = TraceBuilder()
    main = builder.session()
    for streamed in (True, False, None):
        builder.call(main, streamed=streamed)
    assert expected == [call.streamed for call in plan_of(builder.trace(), stream=stream).every_call()]


def test_caps_are_counted():
    plan = plan_of(make_trace(2, 3), gap_caps_ns={"tool": S // 4})
    assert (plan.capped_calls, plan.capped_ns) == (4, 3 * S)


def test_more_trees_than_a_plan_can_have_are_refused_with_what_fits():
    with pytest.raises(UsageError, match="the plan has 10,000,000 trees") as caught:
        plan_of(make_trace(2, 1), trees=10_000_000)
    assert (MAX_TREES, caught.value.hint) == (4_000_000, "--trees 4000000 is the most that fits.")


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
    one, other = plan_of(make_trace(2, 3), **options), plan_of(make_trace(2, 3), **options)
    assert [*one.trees] == [*other.trees]
    assert [*one.every_call()] == [*other.every_call()]


def test_the_calls_of_a_tree_are_the_same_object_as_long_as_somebody_holds_it():
    plan = plan_of(make_trace(2, 100), trees=300)
    held = plan.calls_of(plan.trees[0])
    for _ in plan.every_call():
        pass
    assert plan.calls_of(plan.trees[0]) is held
    gone = weakref.ref(plan.calls_of(plan.trees[1]))
    for _ in plan.every_call():
        pass
    assert gone() is None


def test_calls_asked_for_one_by_one_are_those_of_their_trees():
    plan = plan_of(make_trace(3, 4), trees=7)
    assert [plan.call(index) for index in range(plan.call_count)] == [*plan.every_call()]


@pytest.mark.parametrize("options", [{}, {"concurrency": 2}, {"start_at": StartRange(low=0.2, high=0.8)}])
def test_an_outline_tells_of_calls_what_the_calls_say(options):
    plan = plan_of(make_trace(3, 9), trees=7, **options)
    for tree in plan.trees:
        calls = plan.calls_of(tree).calls
        told = [
            (one.call, one.session, one.due_ns, one.end_ns, one.gap_cause) for one in plan.outline_of(tree)
        ]
        assert told == [
            (
                c.call,
                c.session,
                c.planned_ns - tree.planned_ns,
                c.planned_end_ns - tree.planned_ns,
                c.gap_cause,
            )
            for c in calls
        ]
        facts = plan.facts_of(tree)
        assert (facts.calls, facts.sessions) == (tree.count, tree.sessions) == (len(calls), 1)


def test_few_calls_are_alive_of_a_plan_of_many():
    """A million playings of a tree of three calls are planned and counted; the calls kept are those looked at last."""
    plan = plan_of(make_trace(1, 3), trees=1_000_000, arrival=arrival_from_spec("fixed:1/s"))
    assert (plan.call_count, plan.sessions, len(plan.trees)) == (3_000_000, 1_000_000, 1_000_000)
    last = plan.trees[999_999]
    assert (last.instance, last.first, last.start_ns) == (1_000_000, 2_999_997, 999_999 * S)
    for number in range(0, 1_000_000, 50):
        plan.calls_of(plan.trees[number])
    gc.collect()
    assert sum(isinstance(one, PlannedCall) for one in gc.get_objects()) < 5_000
