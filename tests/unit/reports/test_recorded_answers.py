"""All numbers of a trace together."""

import pytest

from aitrace.schema import CallTimes, Outcome, ToolCall, Usage
from aitrace.testing import TraceBuilder, make_trace
from reports.recorded.answers import answers_from_recorded
from reports.recorded.facts import recorded_from_trace
from reports.recorded.prices import Prices

S = 10**9


def answers_of(trace, prices=None):
    return answers_from_recorded(recorded_from_trace(trace), prices)


def test_a_trace_without_calls_has_answers():
    numbers = answers_of(TraceBuilder().trace(), Prices(by_model={})).numbers
    assert (numbers["calls"], numbers["prompt_tokens"], numbers["cache_reported_ratio"]) == (0, None, None)
    assert (numbers["tool_calls"], numbers["tool_gap_s"], numbers["cost_usd"]) == (None, None, None)


def test_calls_are_counted_by_what_became_of_them():
    builder = TraceBuilder()
    main = builder.session()
    for error in ("refused", "cut", "timeout", "unrecorded", None):
        builder.call(main, outcome=Outcome(error=error))
    numbers = answers_of(builder.trace()).numbers
    names = ("calls", "complete_calls", "refused_calls", "failed_calls", "unrecorded_calls")
    assert [numbers[name] for name in names] == [5, 1, 1, 2, 1]


def test_what_calls_lack_is_counted():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, times=CallTimes(request_ns=5), usage=Usage())
    builder.call(main, times=CallTimes(request_ns=9, first_token_ns=8, end_ns=10), after=[])
    contradicting = Usage(input_tokens=5, cache_read_tokens=6)
    builder.call(main, [builder.segment(5)], usage=contradicting, unseen_start=True, at_ns=3 * S)
    builder.call(main, at_ns=2 * S)
    numbers = answers_of(builder.trace()).numbers
    names = (
        "no_end_calls", "no_first_token_calls", "no_usage_calls", "no_cache_usage_calls", "contradicting_calls",
        "unseen_start_calls", "negative_gap_calls", "disordered_calls",
    )  # fmt: skip
    # The continuation of a prompt whose start was not seen is another one.
    assert [numbers[name] for name in names] == [1, 1, 1, 3, 1, 2, 1, 1]


def test_sums_of_prefixes_and_reuse():
    builder = TraceBuilder(block_size=10)
    main = builder.session()
    builder.call(
        main, [builder.segment(100), builder.segment(20)], usage=Usage(input_tokens=120, cache_read_tokens=50)
    )
    builder.call(main, [builder.segment(40)], keep=1, usage=Usage(input_tokens=140, cache_read_tokens=0))
    numbers = answers_of(builder.trace()).numbers
    names = ("compared_prompts", "prefix_breaks", "prefix_lost_tokens", "prefix_again_tokens")
    assert [numbers[name] for name in names] == [1, 1, 20, 0]
    names = (
        "cache_prompt_tokens", "cache_reported_tokens", "cache_possible_tokens", "cache_lost_tokens",
        "cache_above_possible_tokens",
    )  # fmt: skip
    assert [numbers[name] for name in names] == [260, 50, 100, 100, 50]
    assert numbers["cache_reported_ratio"] == pytest.approx(50 / 260)


def test_content_behind_a_break_is_not_known_where_ids_stand_for_all_before_them():
    numbers = answers_of(make_trace(source="weka")).numbers
    assert numbers["prefix_again_tokens"] is None


def test_tool_calls_and_their_time_are_summed():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, tool_calls=(ToolCall(name="Bash", duration_ns=2 * S), ToolCall(name="Read")))
    builder.call(main, tool_calls=(), cause="tool")
    numbers = answers_of(builder.trace()).numbers
    assert (numbers["tool_calls"], numbers["tool_run_s"]) == (2, 2.0)
    # Two calls of 1 s with a gap of 1 s between them.
    assert (numbers["session_time_s"], numbers["tool_gap_s"], numbers["tool_gap_ratio"]) == pytest.approx(
        (3, 1, 1 / 3)
    )


def test_tools_are_not_known_if_one_answer_does_not_tell():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, tool_calls=())
    builder.call(main)
    assert answers_of(builder.trace()).numbers["tool_calls"] is None


def test_what_breaks_lost_is_not_known_where_no_call_tells_its_tokens():
    builder = TraceBuilder(unit="bytes", block_size=10)
    main = builder.session()
    builder.call(main, [builder.segment(100), builder.segment(20)], usage=Usage())
    builder.call(main, [builder.segment(40)], keep=1, usage=Usage())
    numbers = answers_of(builder.trace()).numbers
    names = ("prefix_breaks", "prefix_lost_tokens", "prefix_again_tokens")
    assert [numbers[name] for name in names] == [1, None, None]


def test_where_nothing_broke_nothing_is_lost():
    builder = TraceBuilder(unit="bytes")
    builder.call(builder.session(), [builder.segment(100)], usage=Usage())
    numbers = answers_of(builder.trace()).numbers
    assert (numbers["prefix_breaks"], numbers["prefix_lost_tokens"]) == (0, 0)
