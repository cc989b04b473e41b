"""Where consecutive prompts part, and what an unlimited cache could have had."""

import pytest

from aitrace.formats.unknowns import Unknown
from aitrace.schema import Outcome
from aitrace.testing import TraceBuilder
from reports.recorded.facts import recorded_from_trace
from reports.recorded.prefixes import first_sizes, possible_sizes, prefix_steps


@pytest.fixture
def builder():
    return TraceBuilder(block_size=10)


def steps_of(builder):
    return prefix_steps(recorded_from_trace(builder.trace())).to_dicts()


def head_of(builder):
    return [
        builder.segment(100, "system", "tool_definition"),
        builder.segment(50, "system", "system"),
    ]


def test_a_prompt_that_only_grows_is_no_break(builder):
    main = builder.session()
    builder.call(main, [*head_of(builder), builder.segment(30)])
    builder.call(
        main, [builder.segment(20, "assistant", "tool_use"), builder.segment(40, "tool", "tool_result")]
    )
    (step,) = steps_of(builder)
    assert (step["class"], step["kept_size"], step["lost_size"], step["again_size"]) == (
        "appended",
        180,
        0,
        0,
    )
    assert step["segment"] is None
    new = [step[f"new_{kind}_size"] for kind in ("system", "user", "assistant", "tool")]
    assert new == [0, 0, 20, 40]


def test_a_changed_system_prompt_loses_all_behind_it_and_has_it_computed_again(builder):
    main = builder.session()
    tools, system = head_of(builder)
    user, answer = builder.segment(30), builder.segment(20, "assistant")
    builder.call(main, [tools, system, user, answer])
    other = builder.segment(55, "system", "system")
    builder.call(main, [other, user, answer, builder.segment(10)], keep=1)
    (step,) = steps_of(builder)
    assert (step["class"], step["segment"], step["segment_role"], step["segment_type"], step["segment_size"]) == (
        "head", 1, "system", "system", 55,
    )  # fmt: skip
    assert (step["kept_size"], step["lost_size"], step["again_size"]) == (100, 100, 50)
    # The user's text and the answer were there before: only the system prompt and the last segment are new.
    assert (step["new_system_size"], step["new_user_size"], step["new_assistant_size"]) == (55, 10, 0)


def test_a_rewritten_end_keeps_the_blocks_that_both_begin_with(builder):
    main = builder.session()
    last = builder.segment(45)
    builder.call(main, [*head_of(builder), builder.segment(10), last])
    builder.call(main, [builder.segment(60, like=last)], keep=3)
    (step,) = steps_of(builder)
    # 4 full blocks of 45 are also the first of the 60; the partial block is not.
    assert (step["class"], step["segment"], step["kept_size"], step["lost_size"]) == ("tail", 3, 200, 5)
    assert step["new_user_size"] == 20


def test_blocks_are_compared_across_the_ends_of_segments(builder):
    """The new prompt holds the same blocks in one segment that the old one held in two."""
    main = builder.session()
    whole = builder.segment(40)
    builder.call(main, [builder.segment(10), builder.segment(20, like=whole), builder.segment(20)])
    builder.call(main, [whole], keep=1)
    (step,) = steps_of(builder)
    assert (step["kept_size"], step["lost_size"], step["segment"]) == (30, 20, 1)


def test_segments_that_the_shared_blocks_cover_are_not_where_prompts_part(builder):
    """The same 20 are one segment in the old prompt and two in the new one."""
    main = builder.session()
    whole = builder.segment(40)
    builder.call(main, [builder.segment(10), whole])
    start = builder.segment(20, like=whole)
    builder.call(main, [start, builder.segment(30)], keep=1)
    (step,) = steps_of(builder)
    assert (step["kept_size"], step["segment"], step["segment_size"]) == (30, 2, 30)


def test_a_shorter_prompt_parts_at_its_end_and_nothing_is_computed_again(builder):
    main = builder.session()
    builder.call(main, [*head_of(builder), builder.segment(10), builder.segment(10)])
    builder.call(main, keep=3)
    (step,) = steps_of(builder)
    assert (step["class"], step["segment"], step["segment_type"]) == ("tail", 3, None)
    assert (step["lost_size"], step["again_size"]) == (10, 0)


def test_a_conversation_replaced_behind_its_head_is_a_reset_whatever_its_window(builder):
    main = builder.session()
    builder.call(main, [*head_of(builder), builder.segment(30)])
    builder.call(main, [builder.segment(15)], keep=2)
    assert steps_of(builder)[0]["class"] == "reset"


@pytest.mark.parametrize(("kept", "name"), [(10, "reset"), (20, "tail"), (30, "tail")])
def test_a_first_message_that_is_kept_by_half_is_the_same_conversation(builder, kept, name):
    main = builder.session()
    first = builder.segment(40)
    builder.call(main, [*head_of(builder), first])
    builder.call(main, [builder.segment(kept + 5, like=first)], keep=2)
    assert (steps_of(builder)[0]["class"], steps_of(builder)[0]["lost_size"]) == (name, 40 - kept)


def test_a_new_window_is_a_reset_though_it_keeps_some_of_the_conversation(builder):
    main = builder.session()
    builder.call(main, [*head_of(builder), builder.segment(30), builder.segment(30)])
    builder.call(main, [builder.segment(15)], keep=3, window=1)
    assert steps_of(builder)[0]["class"] == "reset"


def test_a_loss_beside_a_call_that_makes_a_summary_is_a_compaction(builder):
    main = builder.session()
    builder.call(main, [*head_of(builder), builder.segment(30)])
    builder.call(main, [builder.segment(5)], call_class="compaction")
    builder.call(main, [builder.segment(15)], keep=2, window=1)
    assert [step["class"] for step in steps_of(builder)] == ["appended", "compaction"]


def test_another_model_has_nothing_of_the_prompt(builder):
    main = builder.session()
    builder.call(main, [*head_of(builder), builder.segment(30)], model="a")
    builder.call(main, [builder.segment(10)], model="b")
    (step,) = steps_of(builder)
    assert (step["class"], step["segment"], step["segment_type"]) == ("model", 0, "tool_definition")
    assert (step["kept_size"], step["lost_size"], step["again_size"]) == (0, 180, 180)


def test_calls_beside_the_conversation_retries_and_unseen_starts_are_not_compared(builder):
    main = builder.session()
    first = builder.call(main, [builder.segment(30)], outcome=Outcome(error="refused", status=529))
    builder.call(main, retry_of=first, attempt=2)
    builder.call(main, [builder.segment(7)], base=None, call_class="auxiliary")
    builder.call(main, [builder.segment(9)], base=None, unseen_start=True)
    last = builder.call(main, base=first)
    builder.call(main, base=last)
    assert [(step["before"], step["call"]) for step in steps_of(builder)] == [(4, 5)]


def test_two_sessions_are_not_compared(builder):
    for _ in range(2):
        builder.call(builder.session(), [builder.segment(30)])
    assert steps_of(builder) == []


def test_a_source_that_does_not_tell_the_end_of_prompts_may_lose_less_than_a_block():
    for unknown, name in (((str(Unknown.TAILS),), "appended"), ((), "tail")):
        builder = TraceBuilder(block_size=10, unknown=unknown)
        main = builder.session()
        builder.call(main, [builder.segment(100), builder.segment(7)])
        builder.call(main, [builder.segment(25)], keep=1)
        assert steps_of(builder)[0]["class"] == name


def test_ids_that_stand_for_all_before_them_cannot_tell_what_is_computed_again():
    builder = TraceBuilder(block_size=10, source="mooncake")
    main = builder.session()
    builder.call(main, [builder.segment(100), builder.segment(40)])
    builder.call(main, [builder.segment(50)], keep=1)
    assert steps_of(builder)[0]["again_size"] is None


def test_first_prompts_are_sized_by_kind(builder):
    main = builder.session()
    builder.call(main, [builder.segment(5)], base=None, call_class="auxiliary")
    builder.call(
        main, [*head_of(builder), builder.segment(30), builder.segment(4, "tool", "text")], base=None
    )
    builder.call(main, [builder.segment(30)])
    assert first_sizes(recorded_from_trace(builder.trace())).rows() == [(1, 150, 30, 0, 4)]


def possible_of(builder):
    return possible_sizes(recorded_from_trace(builder.trace())).sort("call").rows()


def test_what_is_possible_is_told_by_who_had_it(builder):
    main, system = builder.session(), builder.segment(100, "system", "system")
    builder.call(main, [system, builder.segment(30)])
    builder.call(main, [builder.segment(20)])
    child = builder.session(parent=main)
    builder.call(child, [system, builder.segment(40)])
    builder.call(builder.session(), [system, builder.segment(50)], at_ns=100 * 10**9)
    assert possible_of(builder) == [(0, 0, 0, 0), (1, 130, 0, 0), (2, 0, 100, 0), (3, 0, 0, 100)]


def test_caches_of_two_models_share_nothing(builder):
    main = builder.session()
    builder.call(main, [builder.segment(30)], model="a")
    builder.call(main, model="b")
    builder.call(main, model="a")
    assert [row[1] for row in possible_of(builder)] == [0, 0, 30]


def test_a_prompt_that_was_turned_away_is_in_no_cache(builder):
    main = builder.session()
    first = builder.call(main, [builder.segment(30)], outcome=Outcome(error="refused", status=429))
    builder.call(main, retry_of=first, attempt=2)
    assert [row[1] for row in possible_of(builder)] == [0, 0]


def test_prompts_are_taken_in_the_order_of_their_requests(builder):
    main = builder.session()
    builder.call(main, [builder.segment(30)], at_ns=5)
    builder.call(main, at_ns=3)
    assert possible_of(builder) == [(0, 30, 0, 0), (1, 0, 0, 0)]


def test_trees_of_clocks_of_their_own_come_one_after_the_other():
    builder = TraceBuilder(block_size=10, clock_scope="tree")
    system = builder.segment(30)
    builder.call(builder.session(), [system], at_ns=50)
    builder.call(builder.session(), [system], at_ns=0)
    assert possible_of(builder) == [(0, 0, 0, 0), (1, 0, 0, 30)]


def test_a_prompt_of_an_unseen_start_is_left_out(builder):
    builder.call(builder.session(), [builder.segment(30)], unseen_start=True)
    assert possible_of(builder) == []
