"""How prompts grow."""

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder
from reports.recorded.facts import recorded_from_trace
from reports.recorded.growth import by_kind, by_turn, new_tokens, prompt_sizes
from reports.recorded.prefixes import first_sizes, prefix_steps


def new_of(builder):
    recorded = recorded_from_trace(builder.trace())
    return recorded, new_tokens(recorded, first_sizes(recorded), prefix_steps(recorded))


def grown(**header):
    builder = TraceBuilder(block_size=10, **header)
    main = builder.session()
    builder.call(main, [builder.segment(100, "system", "system"), builder.segment(40)])
    builder.call(
        main, [builder.segment(20, "assistant", "tool_use"), builder.segment(60, "tool", "tool_result")]
    )
    builder.call(main, [builder.segment(8, "assistant", "text"), builder.segment(12)])
    return builder


def test_new_tokens_are_told_by_who_brought_them_in():
    _, new = new_of(grown())
    assert new.drop("call", "session", "place").rows() == [(100, 40, 0, 0), (0, 0, 20, 60), (0, 12, 8, 0)]


def test_sizes_in_bytes_become_tokens_by_the_ratio_of_their_call():
    _, new = new_of(grown(unit="bytes"))  # 4 bytes a token
    assert new.drop("call", "session", "place").rows() == [(25, 10, 0, 0), (0, 0, 5, 15), (0, 3, 2, 0)]


def test_calls_whose_tokens_are_not_known_are_left_out_and_empty_prompts_are_not():
    builder = TraceBuilder(unit="bytes")
    main = builder.session()
    builder.call(main, usage=Usage())
    builder.call(main, [builder.segment(5)], usage=Usage())
    _, new = new_of(builder)
    assert new.drop("session").rows() == [(0, 0, 0, 0, 0, 0)]


def test_kinds_are_summed_for_first_prompts_and_for_later_ones():
    rows = {row["kind"]: row for row in by_kind(new_of(grown())[1])}
    assert (rows["user"]["first_tokens"], rows["user"]["later_tokens"], rows["user"]["later_calls"]) == (
        40,
        12,
        2,
    )
    assert (rows["tool"]["per_call_tokens"], rows["tool"]["p50_tokens"], rows["tool"]["p90_tokens"]) == (
        30,
        0,
        None,
    )


def test_without_later_calls_there_is_no_mean():
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(5)])
    assert {row["per_call_tokens"] for row in by_kind(new_of(builder)[1])} == {None}


def test_means_are_told_by_place_within_the_session():
    rows = by_turn(new_of(grown())[1])
    assert [(row["turn_from"], row["turn_to"], row["calls"], row["tool_tokens"]) for row in rows] == [
        (0, 0, 1, 0),
        (1, 1, 1, 60),
        (2, 4, 1, 0),
    ]


def test_prompt_sizes_are_those_of_conversations_in_order():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, [builder.segment(50)], at_ns=9)
    builder.call(main, [builder.segment(7)], at_ns=5)
    builder.call(main, call_class="auxiliary", at_ns=7)
    sizes = prompt_sizes(recorded_from_trace(builder.trace()))
    assert sizes.rows() == [(0, 0, 1, 57), (0, 2, 0, 50)]
