"""Reported reuse against what was possible."""

import pytest

from aitrace.schema import Dependency, Outcome, Usage
from aitrace.testing import TraceBuilder
from reports.recorded.facts import recorded_from_trace
from reports.recorded.prefixes import prefix_steps
from reports.recorded.reuse import (
    by_depth,
    by_gap,
    by_turn,
    losses,
    population,
    rates,
    survival,
    with_possible,
)

S = 10**9


def session_of(builder, *calls, size=2000, **about):
    """A session whose first prompt has `size` tokens and each later one 100 more: cached tokens and gap of each, s."""
    session = builder.session(**about)
    last = None
    for cached, gap_s in calls:
        add = [builder.segment(size if last is None else 100)]
        waits = (
            []
            if last is None
            else [Dependency(call=last, relation="sequence", gap_ns=round(gap_s * S), cause="tool")]
        )
        total = size + 100 * calls.index((cached, gap_s))
        last = builder.call(
            session, add, after=waits, usage=Usage(input_tokens=total, cache_read_tokens=cached)
        )
    return session


def compared(builder):
    recorded = recorded_from_trace(builder.trace())
    return population(with_possible(recorded)), prefix_steps(recorded)


@pytest.fixture
def builder():
    return TraceBuilder(block_size=10)


def test_possible_and_lost_tokens_are_those_of_the_prefix_that_was_there(builder):
    session_of(builder, (0, 0), (500, 2), (2100, 3))
    calls, _ = compared(builder)
    assert calls.sort("call")["possible_tokens"].to_list() == [0, 2000, 2100]
    assert calls.sort("call")["lost_tokens"].to_list() == [0, 1500, 0]


def test_what_the_provider_had_from_before_is_no_negative_loss(builder):
    session_of(builder, (1900, 0), (2100, 1))
    assert rates(compared(builder)[0])["lost_tokens"] == 0


def test_only_complete_calls_that_report_are_compared_if_any_does(builder):
    session_of(builder, (0, 0), (10, 1))
    builder.call(builder.session(), [builder.segment(100)])  # reports no cached tokens
    refused = Outcome(error="refused", status=429)
    builder.call(
        builder.session(),
        [builder.segment(50)],
        outcome=refused,
        usage=Usage(input_tokens=50, cache_read_tokens=0),
    )
    calls, _ = compared(builder)
    assert calls["call"].to_list() == [0, 1]


def test_without_a_report_only_what_was_possible_is_told(builder):
    main = builder.session()
    builder.call(main, [builder.segment(100)])
    builder.call(main, [builder.segment(100)])
    assert rates(compared(builder)[0]) == {
        "calls": 2,
        "prompt_tokens": 300,
        "reported_tokens": None,
        "possible_tokens": 100,
        "lost_tokens": None,
        "reported_ratio": None,
        "possible_ratio": pytest.approx(1 / 3),
    }


def test_calls_are_told_by_kind_and_bucket_of_the_gap(builder):
    main = session_of(builder, (0, 0), (10, 0.5), (20, 400))
    builder.call(
        builder.session(parent=main), [builder.segment(30)], usage=Usage(input_tokens=30, cache_read_tokens=0)
    )
    builder.call(main, after=[], usage=Usage(input_tokens=2200, cache_read_tokens=30))
    rows = by_gap(compared(builder)[0])
    assert [(row["kind"], row["gap_from_s"], row["gap_to_s"], row["reported_tokens"]) for row in rows] == [
        ("tool", 0.0, 1.0, 10),
        ("tool", 300.0, 3600.0, 20),
        ("other", None, None, 30),
        ("agent_start", None, None, 0),
        ("tree_start", None, None, 0),
    ]


def test_a_prefix_survives_if_nine_tenths_of_it_are_reported(builder):
    session_of(builder, (0, 0), (1800, 2), (1889, 3), (2100, 7200))
    rows = survival(compared(builder)[0])
    names = ("gap_from_s", "gap_to_s", "sessions", "calls", "survived_calls", "survived_ratio")
    # Of 2,000 tokens 1,800 are enough, of 2,100 tokens 1,889 are not.
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1.0, 10.0, 1, 2, 1, 0.5),
        (3600.0, None, 1, 1, 1, 1.0),
    ]


def test_a_prefix_survives_if_one_step_of_128_tokens_is_missing(builder):
    session_of(builder, (0, 0), (972, 2), (1071, 3), size=1100)
    (row,) = survival(compared(builder)[0])
    assert (row["calls"], row["survived_calls"]) == (2, 1)


def test_calls_of_few_sessions_are_worth_no_more_than_the_sessions(builder):
    session_of(builder, (0, 0), (2000, 2), (2100, 3), (2200, 4))
    (row,) = survival(compared(builder)[0])
    # Wilson's interval of 1 of 1, not of 3 of 3, begins at 1 / (1 + 1.96²).
    assert (row["calls"], row["survived_high_ratio"]) == (3, 1)
    assert row["survived_low_ratio"] == pytest.approx(1 / (1 + 1.96**2), abs=1e-4)


def test_short_prompts_do_not_ask_for_a_prefix(builder):
    session_of(builder, (0, 0), (500, 2), size=1000)
    assert survival(compared(builder)[0]) == []


def test_calls_are_told_by_place_and_depth(builder):
    main = session_of(builder, (0, 0), (1000, 1), (1500, 1))
    builder.call(
        builder.session(parent=main), [builder.segment(30)], usage=Usage(input_tokens=30, cache_read_tokens=3)
    )
    calls, _ = compared(builder)
    assert [
        (row["turn_from"], row["turn_to"], row["calls"], row["reported_tokens"]) for row in by_turn(calls)
    ] == [
        (0, 0, 2, 3),
        (1, 1, 1, 1000),
        (2, 4, 1, 1500),
    ]
    assert [(row["depth"], row["reported_tokens"]) for row in by_depth(calls)] == [(0, 2500), (1, 3)]


def test_losses_have_the_likeliest_reason(builder):
    session_of(builder, (0, 0), (0, 7200), (100, 400), (200, 2))
    other = builder.session()
    shared = builder.segment(50, like=0)
    builder.call(other, [shared], at_ns=10**14, usage=Usage(input_tokens=50, cache_read_tokens=0))
    builder.call(other, [builder.segment(50)], usage=Usage(input_tokens=100, cache_read_tokens=50))
    wait = Dependency(call=5, relation="sequence", gap_ns=S, cause="tool")
    builder.call(
        other, [builder.segment(20)], keep=1, after=[wait], usage=Usage(input_tokens=70, cache_read_tokens=10)
    )
    calls, steps = compared(builder)
    assert {row["reason"]: (row["calls"], row["lost_tokens"]) for row in losses(calls, steps)} == {
        "gap_over_1h": (1, 2000),
        "gap_over_5min": (1, 2000),
        "gap_shorter": (1, 2000),
        "first_call": (1, 50),
        "prompt_changed": (1, 40),
    }
    assert sum(row["lost_ratio"] for row in losses(calls, steps)) == pytest.approx(
        6090 / calls["prompt_tokens"].sum()
    )
