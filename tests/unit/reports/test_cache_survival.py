import math

import polars as pl
import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.survival import half_lost_s, returning_calls, survival_interval, survival_rows
from reports.metrics import METRICS

S = 10**9
SESSIONS = 12


def facts_from(facts_of, gaps_s, cached, causes=None):
    """Sessions of calls of one second with prompts of 640 and 64 more each time, all alike but for what was cached.

    Args:
        gaps_s: From the end of a call to the next one's sending.
        cached: Of session, place and size of the own prefix.
    """
    builder = TraceBuilder(block_size=64)
    calls = []
    for number in range(SESSIONS):
        session = builder.session()
        at_s, size = number * 1000.0, 640
        for place in range(len(gaps_s) + 1):
            builder.call(session, [builder.segment(640 if place == 0 else 64)])
            own = 0 if place == 0 else size - 64
            calls.append(
                make_call_result(
                    len(calls),
                    at_ns=round(at_s * S),
                    session=session,
                    root=session,
                    turn_index=place,
                    gap_cause=None if place == 0 else (causes or ["tool"] * 9)[place - 1],
                    prompt_tokens=size,
                    usage=Usage(
                        input_tokens=size,
                        cache_read_tokens=0 if place == 0 else cached(number, place, own),
                        output_tokens=0,
                    ),
                )
            )
            size += 64
            at_s += 1 + (gaps_s[place] if place < len(gaps_s) else 0)
    return facts_of(calls, trace=builder.trace())


def told(rows, kind="all"):
    return [
        (row["idle_from_s"], row["idle_to_s"], row["calls"], row["survived_calls"])
        for row in rows
        if row["kind"] == kind
    ]


def test_prefixes_are_counted_by_the_time_since_their_last_use(facts_of):
    facts = facts_from(facts_of, (0.5, 5, 50), lambda number, place, own: own if place < 3 else 0)
    rows = survival_rows(facts)
    assert [(calls, kept) for _, _, calls, kept in told(rows)] == [(12, 12), (12, 12), (12, 0)]
    borders = [(low, math.inf if high is None else high) for low, high, _, _ in told(rows)]
    assert all(low <= gap < high for (low, high), gap in zip(borders, (0.5, 5, 50), strict=True))
    assert [row["idle_p50_s"] for row in rows if row["kind"] == "all"] == pytest.approx([0.5, 5, 50])
    assert METRICS["cache_survived_ratio"].compute(facts) == pytest.approx(2 / 3)
    assert METRICS["cache_half_lost_s"].compute(facts) == pytest.approx(math.sqrt(5 * 50))


def test_calls_are_told_apart_by_what_filled_the_gap(facts_of):
    facts = facts_from(facts_of, (5, 50), lambda number, place, own: own, causes=["tool", "user"])
    rows = survival_rows(facts)
    assert [calls for _, _, calls, _ in told(rows, "tool")] == [12]
    assert [calls for _, _, calls, _ in told(rows, "user")] == [12]
    assert told(rows, "other") == []


@pytest.mark.parametrize(
    ("cached", "survived"), [(576, True), (575, False), (640, True), (0, False), (700, True)]
)
def test_nine_tenths_or_all_but_a_block_is_survival(facts_of, cached, survived):
    facts = facts_from(facts_of, (5,), lambda number, place, own: cached)
    calls = returning_calls(facts)
    assert calls["survived"].unique().to_list() == [survived]
    assert calls["kept_tokens"].unique().to_list() == [min(cached, 640)]
    assert calls["own_tokens"].unique().to_list() == [640]


def test_too_few_calls_of_a_length_join_their_neighbours(facts_of):
    """Of twelve sessions only two waited long."""
    builder = TraceBuilder(block_size=64)
    calls = []
    for number in range(SESSIONS):
        session = builder.session()
        gap_s = 500 if number < 2 else 5
        for place, at_s in enumerate((number * 2000, number * 2000 + 1 + gap_s)):
            builder.call(session, [builder.segment(640 if place == 0 else 64)])
            size = 640 + 64 * place
            calls.append(
                make_call_result(
                    len(calls),
                    at_ns=at_s * S,
                    session=session,
                    root=session,
                    turn_index=place,
                    prompt_tokens=size,
                    usage=Usage(input_tokens=size, cache_read_tokens=0),
                )
            )
    rows = survival_rows(facts_of(calls, trace=builder.trace()))
    assert told(rows) == [(0, None, 12, 0)]


def test_without_time_between_calls_there_is_one_bucket(facts_of):
    facts = facts_from(facts_of, (0,), lambda number, place, own: own)
    assert told(survival_rows(facts)) == [(0, None, 12, 12)]


def sessions_of(*hits):
    return pl.DataFrame(
        [(1, session, hit) for session, mine in enumerate(hits) for hit in mine],
        schema=["instance", "session", "survived"],
        orient="row",
    )


def test_calls_of_sessions_that_are_all_alike_count_as_one_each():
    """Ten sessions of ten calls, half of them all kept, half all lost: as ten calls, not a hundred."""
    clustered = survival_interval(sessions_of(*[[True] * 10] * 5, *[[False] * 10] * 5))
    alone = survival_interval(sessions_of(*[[True]] * 5, *[[False]] * 5))
    assert clustered.low == pytest.approx(alone.low)
    assert clustered.high == pytest.approx(alone.high)
    assert 0.2 < clustered.low < 0.25


def test_calls_of_sessions_that_differ_within_count_in_full():
    even = survival_interval(sessions_of(*[[True, False] * 5] * 10))
    assert 0.4 < even.low < 0.41


def test_where_all_survive_a_session_counts_as_one_call():
    """Wilson's lower end for 10 of 10 is 1 / (1 + 1.96² / 10)."""
    interval = survival_interval(sessions_of(*[[True] * 10] * 10))
    assert interval.low == pytest.approx(1 / (1 + 1.959964**2 / 10))
    assert interval.high == pytest.approx(1)


def rows(*points):
    return [{"idle_p50_s": at, "survived_ratio": share} for at, share in points]


def test_half_is_lost_where_the_curve_falls_below_it_for_good():
    assert half_lost_s(rows((1, 0.9), (10, 0.4), (100, 0.6), (1000, 0.4))) == pytest.approx(100 * 10**0.5)
    assert half_lost_s(rows((1, 0.9), (10, 0.8))) is None
    assert half_lost_s(rows((1, 0.2), (10, 0.1))) == 0
    assert half_lost_s(rows((0, 1.0), (10, 0.0))) == 5
    assert half_lost_s([]) is None


def test_without_reports_or_trace_there_is_no_curve(facts_of):
    for facts in (facts_of([make_call_result(0)]), facts_of([])):
        assert returning_calls(facts) is None
        assert METRICS["cache_survival"].compute(facts) == []
        assert METRICS["cache_half_lost_s"].compute(facts) is None
        assert METRICS["cache_survived_ratio"].compute(facts) is None
