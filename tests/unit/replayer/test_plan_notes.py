from dataclasses import replace

import pytest

from aitrace.schema import CallTimes, Dependency, Outcome, Usage
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan

S = 1_000_000_000


def plan_of(trace, **options):
    return build_plan(trace, LoadOptions(**options))


def without_ends(trace, *ids):
    calls = [
        replace(call, times=CallTimes(request_ns=call.times.request_ns)) if call.id in ids else call
        for call in trace.calls
    ]
    return replace(trace, calls=tuple(calls))


def test_what_was_left_out_or_assumed_is_noted_with_counts():
    builder = TraceBuilder()
    main = builder.session()
    refused = builder.call(main, outcome=Outcome(status=429, error="refused"))
    retry = Dependency(call=refused, relation="retry", gap_ns=S, cause="backoff")
    builder.call(main, after=[retry], retry_of=refused, attempt=2)
    builder.call(main, call_class="count_tokens")
    last = builder.call(main, usage=Usage(), outcome=Outcome(error="cut"))
    unknown = Dependency(call=last, relation="sequence", gap_ns=None)
    overlapping = Dependency(call=last, relation="sequence", gap_ns=-5)
    builder.call(main, after=[unknown], at_ns=50 * S)
    builder.call(main, after=[overlapping], at_ns=60 * S)
    notes = " | ".join(plan_of(builder.trace()).notes)
    for said in (
        "attempts left out, since a later attempt of the same call is sent instead: 1",
        "calls left out, since they only counted tokens: 1",
        "failed in the recording and were not tried again, sent like the others: 1",
        "for which 100 tokens are taken (median): 1",
        "gaps that are not known, taken as 0: 1",
        "had ended, taken as 0: 1",
    ):
        assert said in notes


def test_notes_count_the_calls_of_the_plan():
    """Of three trees the first has a retried call and an open end, the third another open end."""
    builder = TraceBuilder()
    for number in range(3):
        main = builder.session()
        first = builder.call(main, outcome=Outcome(status=429, error="refused") if number == 0 else Outcome())
        if number == 0:
            retry = Dependency(call=first, relation="retry", gap_ns=S, cause="backoff")
            builder.call(main, after=[retry], retry_of=first, attempt=2)
    trace = without_ends(builder.trace(), 1, 3)

    def numbers(trees):
        notes = [note.rpartition(": ") for note in plan_of(trace, trees=trees).notes]
        return {text.split(",")[0]: int(number) for text, _, number in notes}

    ends, attempts = "calls whose recorded end is not known", "attempts left out"
    assert numbers(1) == {attempts: 1, ends: 1}
    assert numbers(3) == {attempts: 1, ends: 2}
    assert numbers(8) == {attempts: 3, ends: 5}


def test_what_a_tree_without_a_call_to_play_only_counted_is_noted_once():
    builder = TraceBuilder()
    builder.call(builder.session())
    builder.call(builder.session(), call_class="count_tokens")
    assert plan_of(builder.trace(), trees=5).notes == ("calls left out, since they only counted tokens: 1",)


def test_calls_without_a_recorded_end_and_prompts_without_a_start_are_played_and_noted():
    """Not among those that failed: how they ended is not known."""
    builder = TraceBuilder()
    for _ in range(3):
        main = builder.session()
        builder.call(main, [builder.segment(100)], unseen_start=True)
        lost = Outcome(error="unrecorded", ended_by="recorder")
        builder.call(main, outcome=lost, usage=Usage(), times=CallTimes(request_ns=9 * S))
    plan = plan_of(builder.trace(), trees=2)
    assert plan.call(1).output_tokens == 100
    assert plan.notes[:3] == (
        "calls whose end is not in the recording, sent like the others: 2",
        "prompts whose start is not in the recording, played without it: 4",
        "calls with an answer of unknown length, for which 100 tokens are taken (median): 2",
    )


def test_no_median_is_claimed_where_the_trace_knows_none():
    builder = TraceBuilder()
    builder.call(builder.session(), usage=Usage())
    notes = plan_of(without_ends(builder.trace(), 0)).notes
    assert notes == (
        "calls with an answer of unknown length, for which 1 token is taken, since the trace knows the length of none: 1",
        "calls whose end the plan does not know, since the trace knows the end of none: 1",
    )


@pytest.mark.parametrize("spread", [{}, {"trees": 1}])
def test_a_single_tree_is_not_said_to_start_together_or_to_share_nothing(spread):
    assert plan_of(make_trace(1, 2, clock_scope="tree", block_scope="tree"), **spread).notes == ()


def test_a_single_tree_played_again_starts_together_with_itself_and_the_plan_says_so():
    notes = plan_of(make_trace(1, 2, clock_scope="tree"), trees=2).notes
    assert any("all start together" in note for note in notes)


def test_a_trace_that_leaves_nothing_open_has_no_notes():
    assert plan_of(make_trace(2, 2)).notes == ()


def test_blocks_local_to_a_tree_are_noted_unless_the_system_prompt_is_shared():
    trace = make_trace(2, 1, block_scope="tree")
    assert any("--share-system" in note for note in plan_of(trace).notes)
    assert plan_of(trace, share_system=True).notes == ()


def test_playing_text_again_is_noted():
    trace = make_trace(1, 1, privacy="content")
    (note,) = plan_of(trace, trees=1).notes
    assert "the same in every run" in note
    assert any("generated text" in note for note in plan_of(trace, trees=2).notes)
