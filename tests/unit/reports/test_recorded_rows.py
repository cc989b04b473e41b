"""Sessions, trees, models and outcomes as rows."""

import pytest

from aitrace.schema import CallTimes, Outcome, ToolCall, Usage
from aitrace.testing import TraceBuilder
from reports.recorded.answers import answers_from_recorded
from reports.recorded.facts import recorded_from_trace

S = 10**9


def tables_of(builder):
    return answers_from_recorded(recorded_from_trace(builder.trace())).tables


def usage(total, read=None, output=10):
    return Usage(input_tokens=total, cache_read_tokens=read, output_tokens=output)


def family():
    """A main agent with two calls and a sub-agent with one, and another tree that began earlier."""
    builder = TraceBuilder(block_size=10)
    main = builder.session(harness="codex", label="agent_7")
    tools = (ToolCall(name="Bash"), ToolCall(name="Read"))
    builder.call(
        main,
        [builder.segment(100)],
        at_ns=10 * S,
        duration_ns=2 * S,
        turn=0,
        tool_calls=tools,
        usage=usage(100, 0),
    )
    builder.call(
        main,
        [builder.segment(50)],
        at_ns=16 * S,
        duration_ns=4 * S,
        turn=1,
        tool_calls=(),
        usage=usage(150, 90),
    )
    child = builder.session(parent=main, agent="Explore")
    builder.call(child, [builder.segment(40)], at_ns=11 * S, duration_ns=S, usage=usage(40))
    builder.call(builder.session(), [builder.segment(20)], times=CallTimes(request_ns=0), usage=Usage())
    builder.session()  # made no call
    return builder


def test_sessions_are_listed_by_tree_in_order_of_their_start_without_those_that_made_no_call():
    rows = tables_of(family())["sessions"]
    assert [(row["session"], row["root"], row["depth"], row["label"], row["agent"]) for row in rows] == [
        (2, 2, 0, None, None),
        (0, 0, 0, "agent_7", None),
        (1, 0, 1, None, "Explore"),
    ]


def test_sums_of_a_session():
    row = tables_of(family())["sessions"][1]
    names = (
        "calls",
        "turns",
        "tools",
        "duration_s",
        "prompt_tokens",
        "largest_prompt_tokens",
        "output_tokens",
    )
    assert [row[name] for name in names] == [2, 2, 2, pytest.approx(10), 250, 150, 20]
    # 6 of 10 s were spent on its calls; 90 of 250 tokens were cached, 100 could have been.
    shares = [row[name] for name in ("model_ratio", "reported_ratio", "possible_ratio")]
    assert shares == pytest.approx([0.6, 0.36, 0.4])


def test_what_no_call_tells_is_not_known():
    row = tables_of(family())["sessions"][0]
    names = (
        "turns",
        "tools",
        "duration_s",
        "model_ratio",
        "output_tokens",
        "reported_tokens",
        "reported_ratio",
    )
    assert {row[name] for name in names} == {None}


def test_breaks_are_counted_by_session():
    builder = TraceBuilder(block_size=10)
    main = builder.session()
    builder.call(main, [builder.segment(100), builder.segment(20)])
    builder.call(main, [builder.segment(40)], keep=1)
    builder.call(builder.session(), [builder.segment(10)])
    assert [row["prefix_breaks"] for row in tables_of(builder)["sessions"]] == [1, 0]


def test_trees_sum_their_sessions():
    (first, second) = tables_of(family())["trees"]
    assert (first["root"], first["sessions"], first["most_at_once"], first["duration_s"]) == (
        2,
        1,
        None,
        None,
    )
    names = ("root", "sessions", "depth", "most_at_once", "calls", "turns", "duration_s", "prompt_tokens")
    assert [second[name] for name in names] == [0, 2, 1, 2, 3, 2, pytest.approx(10), 290]


def test_tokens_are_told_by_model_and_class():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, model="a", call_class="main", usage=usage(100, 40))
    builder.call(main, model="a", call_class="main", usage=usage(50, 10))
    builder.call(main, model="b", call_class="auxiliary", usage=usage(400))
    rows = tables_of(builder)["tokens_by_model"]
    names = ("model", "call_class", "calls", "prompt_tokens", "reported_tokens", "reported_ratio")
    assert [[row[name] for name in names] for row in rows] == [
        ["b", "auxiliary", 1, 400, None, None],
        ["a", "main", 2, 150, 50, pytest.approx(1 / 3)],
    ]


def test_outcomes_tell_what_was_tried_again():
    builder = TraceBuilder()
    main = builder.session()
    refused = Outcome(error="refused", status=429, retry_after_ns=3 * S)
    first = builder.call(main, outcome=refused)
    second = builder.call(main, outcome=refused, retry_of=first, attempt=2)
    builder.call(main, outcome=Outcome(status=200), retry_of=second, attempt=3)
    names = ("outcome", "status", "calls", "sessions", "repeated_calls", "retries", "retry_after_s")
    rows = tables_of(builder)["outcomes"]
    assert [[row[name] for name in names] for row in rows] == [
        ["refused", 429, 2, 1, 2, 1, 3.0],
        ["complete", 200, 1, 1, 0, 1, None],
    ]
