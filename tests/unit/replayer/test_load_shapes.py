"""What the shape of the load does to a plan: its length, its warm-up, starts in the middle, selection, windows."""

from collections import Counter
from dataclasses import replace

import pytest

from aitrace.errors import UsageError
from aitrace.schema import CallTimes
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning import plan as plan_module
from replayer.planning.mid_start import StartRange
from replayer.planning.options import LoadOptions, WarmUp
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import build_plan
from replayer.planning.plan_summary import summarise_plan
from replayer.planning.plan_text import text_from_summary
from replayer.planning.tree_filter import tree_condition

S = 1_000_000_000
EVERY_SECOND = arrival_from_spec("fixed:1/s")
MIDDLE = StartRange(low=0.5, high=0.5)


def plan_of(trace, **options):
    return build_plan(trace, LoadOptions(**options))


def summary_of(plan):
    return summarise_plan(plan.trace, plan, share_system=False)


def test_trees_are_played_again_until_the_duration_is_over():
    plan = plan_of(make_trace(2, 3), arrival=EVERY_SECOND, duration_ns=5 * S)
    assert [(tree.root, tree.instance, tree.start_ns // S) for tree in plan.trees] == [
        (0, 1, 0), (1, 1, 1), (0, 2, 2), (1, 2, 3), (0, 3, 4),
    ]  # fmt: skip
    assert (plan.cut_ns, plan.is_spare) == (5 * S, False)


def test_recorded_starts_go_on_for_the_duration_as_well():
    assert len(plan_of(make_trace(3, 1), duration_ns=10 * S).trees) == 10


def test_trees_that_all_start_together_are_played_once():
    assert (
        len(plan_of(make_trace(3, 1), arrival=arrival_from_spec("together"), duration_ns=10 * S).trees) == 3
    )


def test_a_number_of_trees_bounds_a_duration():
    assert len(plan_of(make_trace(2, 3), arrival=EVERY_SECOND, duration_ns=50 * S, trees=4).trees) == 4


def test_a_ramp_plays_trees_again_until_its_last_point():
    plan = plan_of(make_trace(1, 1), arrival=arrival_from_spec("ramp:3/s@0,3/s@10s"))
    assert len(plan.trees) > 10
    assert max(tree.start_ns for tree in plan.trees) < 10 * S


def test_an_arrival_without_a_start_is_refused():
    with pytest.raises(UsageError, match="no tree starts"):
        plan_of(make_trace(1, 1), arrival=arrival_from_spec("ramp:0/s@0,0.001/s@1s"))


def test_lanes_hold_more_trees_than_they_would_play_at_recorded_speed():
    """Trees of 5 s (three answers of 1 s, two gaps of 1 s), at least 2.06 s: two lanes start 4 within 10 s, and at
    most 10."""
    plan = plan_of(make_trace(1, 3), concurrency=2, duration_ns=10 * S)
    assert (len(plan.trees), plan.is_spare) == (10, True)
    summary = summary_of(plan)
    assert (summary.trees, summary.spare_trees, summary.cut_calls) == (4, 6, 0)
    assert "6 trees in store" in text_from_summary(summary)


def test_lanes_with_a_number_of_trees_hold_those():
    plan = plan_of(make_trace(1, 3), concurrency=2, duration_ns=10 * S, trees=3)
    assert (len(plan.trees), plan.is_spare) == (3, False)


def test_lanes_hold_no_more_than_fits_into_a_plan(monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_TREES", 3)
    assert len(plan_of(make_trace(1, 3), concurrency=2, duration_ns=100 * S).trees) == 3


def test_an_arrival_that_starts_more_than_fits_is_refused(monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_TREES", 3)
    with pytest.raises(UsageError, match="at least 4 trees, expected at most 3") as caught:
        plan_of(make_trace(1, 3), arrival=EVERY_SECOND, duration_ns=100 * S)
    assert "--trees 3" in caught.value.hint


def test_the_summary_counts_what_is_due_before_the_cut():
    """A tree of five calls, due every 2 s from 0 on, cut at 5 s: three of them, the last one for 1 s."""
    summary = summary_of(plan_of(make_trace(1, 5), duration_ns=5 * S, trees=1))
    assert (summary.calls, summary.cut_calls, summary.cut_ns, summary.duration_ns) == (3, 2, 5 * S, 5 * S)
    assert sum(window.calls for window in summary.windows) == 3
    assert "2 further calls of these trees are due later" in text_from_summary(summary)


def test_the_first_trees_can_be_the_warm_up():
    plan = plan_of(make_trace(3, 2), warm_up=WarmUp(text="1 tree", trees=1))
    assert [call.phase for call in plan.every_call()] == ["warm_up"] * 2 + ["measured"] * 4
    assert "calls of the warm-up (1 tree), not measured: 2" in plan.notes
    assert summary_of(plan).unmeasured_calls == {"warm_up": 2}


def test_a_warm_up_by_time_is_told_by_planned_times():
    """Trees start every second with calls at 0 and 2 s: before 2 s the first calls of two of them are due."""
    plan = plan_of(make_trace(3, 2), warm_up=WarmUp(text="2s", length_ns=2 * S))
    assert {call.phase for call in plan.every_call()} == {"measured"}
    assert plan.warm_up_ns == 2 * S
    assert "calls of the warm-up (2 s) by planned times, not measured: 2" in plan.notes
    assert "2 warm-up" in text_from_summary(summary_of(plan))


def test_trees_can_start_in_the_middle():
    """Requests at 0, 2, 4, 6 and 8 s: at half of that the third one is the first."""
    plan = plan_of(make_trace(1, 5), start_at=MIDDLE)
    assert [(call.call, call.planned_ns // S, call.turn_index) for call in plan.every_call()] == [
        (2, 0, 0), (3, 2, 1), (4, 4, 2),
    ]  # fmt: skip
    assert plan.call(0).prompt_tokens == make_prompt_tokens(3)


def make_prompt_tokens(turn):
    """Of `make_trace`: system and question 1200, then 400 a turn."""
    return 1200 + 400 * (turn - 1)


def test_each_playing_starts_at_a_point_of_its_own():
    plan = plan_of(make_trace(1, 50), start_at=StartRange(low=0.25, high=0.75), trees=20)
    firsts = [plan.call(tree.first).call for tree in plan.trees]
    assert len(set(firsts)) > 5
    again = plan_of(make_trace(1, 50), start_at=StartRange(low=0.25, high=0.75), trees=20)
    other = plan_of(make_trace(1, 50), start_at=StartRange(low=0.25, high=0.75), trees=20, seed=1)
    assert [*plan.every_call()] == [*again.every_call()]
    assert firsts != [other.call(tree.first).call for tree in other.trees]


def test_a_wait_that_began_before_the_start_is_capped_like_a_gap():
    """The second session's next call comes 100 s after the start; its gap is capped to 5 s."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, at_ns=0)
    child = builder.session(parent=main)
    inner = builder.call(child, after=[first], at_ns=10 * S)
    builder.call(main, after=[first], at_ns=20 * S, cause="tool")
    builder.call(child, after=[inner], at_ns=120 * S, cause="user")
    builder.call(main, at_ns=40 * S)
    options = {"start_at": StartRange(low=0.15, high=0.15)}
    offsets = [
        call.offset_ns // S for call in plan_of(builder.trace(), **options).every_call() if not call.after
    ]
    capped = plan_of(builder.trace(), gap_caps_ns={"user": 5 * S}, **options)
    assert offsets == [0, 100]
    assert [call.offset_ns // S for call in capped.every_call() if not call.after] == [0, 5]


def test_prompts_are_primed_before_the_tree_goes_on():
    """The second call's prompt, for one token; its recorded first token came after a quarter of a second."""
    plan = plan_of(make_trace(1, 5), start_at=MIDDLE, prime=True)
    prime, first = plan.call(0), plan.call(1)
    assert (prime.call, prime.phase, prime.max_output_tokens, prime.planned_ns) == (1, "prime", 1, 0)
    assert (first.call, first.planned_ns, first.gap_cause) == (2, S // 4, None)
    assert [(wait.index, wait.relation, wait.gap_ns) for wait in first.after] == [(0, "join", 0)]
    summary = summary_of(plan)
    assert (summary.unmeasured_calls, summary.waits) == ({"prime": 1}, {"start": 2, "gap": 2})
    assert "calls that prime a prompt for the ones after them, not measured: 1" in plan.notes


def test_a_prime_without_a_known_first_token_takes_as_long_as_its_call():
    trace = make_trace(1, 5)
    calls = [
        replace(call, times=replace(call.times, first_token_ns=None, last_token_ns=None))
        for call in trace.calls
    ]
    plan = plan_of(replace(trace, calls=tuple(calls)), start_at=MIDDLE, prime=True)
    assert plan.call(1).planned_ns == S


def test_trees_that_do_not_meet_the_conditions_are_left_out_and_counted():
    builder = TraceBuilder()
    for harness in ("codex", "claude-code", "codex"):
        builder.call(builder.session(harness=harness))
    plan = plan_of(builder.trace(), select=(tree_condition("harness=codex"), tree_condition("calls>=1")))
    assert [tree.root for tree in plan.trees] == [0, 2]
    assert "trees left out, since they do not meet harness=codex and calls>=1: 1 of 3" in plan.notes


def test_conditions_that_no_tree_meets_are_refused():
    with pytest.raises(UsageError, match="no tree of 2 meets calls>9"):
        plan_of(make_trace(2, 2), select=(tree_condition("calls>9"),))


@pytest.mark.parametrize(
    ("policy", "calls", "said"),
    [
        ("drop", 1, "sessions left out with their sub-agents, since a prompt and its answer have more than 1,500 tokens: 2"),
        ("stop", 3, "sessions that end early, since a prompt and its answer have more than 1,500 tokens: 2"),
        ("compact", 7, "sessions compacted, since a prompt and its answer have more than 1,500 tokens: 2, with 4 shorter"),
    ],
)  # fmt: skip
def test_what_does_not_fit_into_the_window_is_counted(policy, calls, said):
    """Prompts of 1200, 1600 and 2000 tokens in two trees, and a small third one."""
    builder = TraceBuilder()
    for _ in range(2):
        main = builder.session()
        for turn in range(3):
            builder.call(main, [builder.segment(600) for _ in range(2 if turn == 0 else 1)])
    builder.call(builder.session(), [builder.segment(100)])
    plan = plan_of(builder.trace(), context_tokens=1500, over_context=policy)
    assert plan.call_count == calls
    notes = " | ".join(plan.notes)
    assert said in notes
    assert (f": {7 - calls}" in notes) == (calls < 7)


def test_a_trace_of_which_nothing_fits_is_refused():
    with pytest.raises(UsageError, match="no call fits into a context of 50 tokens"):
        plan_of(make_trace(1, 2), context_tokens=50)


def test_a_plan_holds_the_trace_with_compacted_prompts():
    trace = make_trace(1, 3)
    assert plan_of(trace).trace is trace
    assert plan_of(trace, context_tokens=1500, over_context="compact").trace is not trace


def test_an_absolute_schedule_waits_for_nothing_and_keeps_recorded_times():
    builder = TraceBuilder()
    main = builder.session()
    for at_s in (0, 3, 50):
        builder.call(main, at_ns=at_s * S)
    plan = plan_of(builder.trace(), schedule="absolute", time_scale=0.5)
    assert [(call.after, call.offset_ns) for call in plan.every_call()] == [
        ((), 0),
        ((), 3 * S // 2),
        ((), 25 * S),
    ]
    assert plan.is_absolute
    assert plan.notes[-1].startswith("absolute schedule")


def test_notes_of_waits_are_not_told_of_an_absolute_schedule():
    trace = make_trace(1, 3)
    calls = [replace(call, times=CallTimes(request_ns=call.times.request_ns)) for call in trace.calls]
    notes = plan_of(replace(trace, calls=tuple(calls)), schedule="absolute").notes
    assert not any("gaps" in note for note in notes)


def test_playings_of_one_tree_are_numbered():
    plan = plan_of(make_trace(2, 1), trees=5, start_at=MIDDLE)
    assert Counter((tree.root, tree.instance) for tree in plan.trees) == dict.fromkeys(
        [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)], 1
    )
