from itertools import accumulate

import pytest

from aitrace.results import Scrape
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.metrics import gap_buckets_s
from reports.metrics import METRICS

S = 10**9


def value(facts, name):
    return METRICS[name].compute(facts)


def growing():
    """Prompts of 640, 1280 and 1920 tokens of one session; and 640 of another tree that begin alike."""
    builder = TraceBuilder(block_size=64)
    main = builder.session()
    start = builder.segment(640)
    builder.call(main, [start])
    builder.call(main, [builder.segment(640)])
    builder.call(main, [builder.segment(640)])
    builder.call(builder.session(), [start])
    return builder.trace()


def played(*cached, gaps=(None, 5 * S, 50 * S, None), usage_factor=1):
    """Each call takes a second."""
    sizes = (640, 1280, 1920, 640)
    starts_ns = list(accumulate(S + (gap_ns or 0) for gap_ns in gaps))
    return [
        make_call_result(
            i,
            at_ns=starts_ns[i],
            session=1 if i == 3 else 0,
            root=1 if i == 3 else 0,
            gap_ns=gaps[i],
            turn_index=0 if gaps[i] is None else i,
            prompt_tokens=sizes[i],
            usage=Usage(input_tokens=sizes[i] * usage_factor, cache_read_tokens=cached[i]),
        )
        for i in range(len(cached))
    ]


def test_three_hit_rates_have_one_denominator(facts_of):
    """Of 4480 tokens 0 + 640 + 1280 could be had in the session, 640 from the other tree; 1000 are reported."""
    facts = facts_of(played(0, 600, 0, 400), trace=growing())
    assert value(facts, "cache_input_tokens") == 4480
    assert value(facts, "cache_bound_tokens") == 640 + 1280 + 640
    assert value(facts, "cache_reported_ratio") == pytest.approx(1000 / 4480)
    assert value(facts, "cache_lost_tokens") == 2560 - 1000


def test_the_bound_is_split_by_origin(facts_of):
    facts = facts_of(played(0, 0, 0, 0), trace=growing())
    parts = [value(facts, f"cache_bound_{origin}_tokens") for origin in ("session", "tree", "other")]
    assert parts == [1920, 0, 640]
    assert value(facts, "cache_bound_ratio") == pytest.approx(2560 / 4480)


def test_shares_of_the_trace_apply_to_the_tokens_that_were_reported(facts_of):
    facts = facts_of(played(0, 0, 0, 0, usage_factor=3), trace=growing())
    assert value(facts, "cache_bound_tokens") == 3 * 2560


def test_only_calls_that_report_cached_tokens_are_compared(facts_of):
    facts = facts_of(played(0, 600, None, None), trace=growing())
    assert (value(facts, "cache_calls"), value(facts, "cache_input_tokens")) == (2, 1920)
    assert value(facts, "cache_bound_tokens") == 640


def test_if_none_reports_them_the_bound_covers_all_complete_calls(facts_of):
    facts = facts_of(played(None, None, None, None), trace=growing())
    assert (value(facts, "cache_calls"), value(facts, "cache_bound_tokens")) == (4, 2560)
    assert value(facts, "cache_reported_tokens") is None
    assert value(facts, "cache_reported_ratio") is value(facts, "cache_lost_tokens") is None


def test_sizes_by_plan_stand_in_where_no_usage_is_reported(facts_of):
    facts = facts_of([make_call_result(0, prompt_tokens=640, usage=Usage())], trace=growing())
    assert value(facts, "cache_input_tokens") == 640


def test_without_a_trace_there_is_no_bound(facts_of):
    facts = facts_of(played(0, 600, 0, 400))
    assert value(facts, "cache_bound_tokens") is value(facts, "cache_lost_tokens") is None
    assert value(facts, "cache_reported_tokens") == 1000


def test_without_complete_calls_there_is_nothing_to_compare(facts_of):
    facts = facts_of([make_call_result(0, error="refused")], trace=growing())
    assert value(facts, "cache_calls") == 0
    assert value(facts, "cache_input_tokens") is value(facts, "cache_bound_ratio") is None


def test_an_empty_prompt_has_no_share(facts_of):
    builder = TraceBuilder()
    builder.call(builder.session())
    facts = facts_of([make_call_result(0)], trace=builder.trace())
    assert value(facts, "cache_bound_tokens") is None


def buckets(facts):
    return [
        (row["kind"], row["gap_from_s"], row["gap_to_s"], row["calls"])
        for row in value(facts, "cache_by_gap")
    ]


def test_hits_are_told_by_the_gap_before_the_call_and_first_calls_of_trees_apart(facts_of):
    facts = facts_of(played(0, 600, 0, 400), trace=growing())
    rows = value(facts, "cache_by_gap")
    assert buckets(facts) == [("tool", 1, 10, 1), ("tool", 10, 60, 1), ("tree_start", None, None, 2)]
    assert [row["reported_tokens"] for row in rows] == [600, 0, 400]
    assert [row["bound_tokens"] for row in rows] == [640, 1280, 640]


def after(cause, gap_s, *, index=0, session=0, turn_index=1, cached=0):
    return make_call_result(
        index,
        gap_ns=None if gap_s is None else gap_s * S,
        gap_cause=cause,
        session=session,
        turn_index=turn_index,
        usage=Usage(input_tokens=1000, cache_read_tokens=cached),
    )


@pytest.mark.parametrize(
    ("cause", "kind"),
    [("tool", "tool"), ("user", "user"), ("harness", "other"), ("backoff", "other"), ("unknown", "other")],
)
def test_gaps_are_parted_by_what_filled_them(facts_of, cause, kind):
    assert buckets(facts_of([after(cause, 2)])) == [(kind, 1, 10, 1)]


def test_the_first_call_of_a_sub_agent_is_in_no_bucket_whatever_filled_its_gap(facts_of):
    calls = [after("harness", 0, session=4, turn_index=0), after("tool", 9, index=1, session=5, turn_index=0)]
    assert buckets(facts_of(calls)) == [("agent_start", None, None, 2)]


def test_gaps_are_those_that_were_played_whatever_was_planned(facts_of):
    """Two gaps of 1 s are planned; the tools took 12 s and 70 s."""
    calls = [make_call_result(i, at_ns=at_s * S) for i, at_s in enumerate((0, 13, 84))]
    facts = facts_of(calls, trace=growing())
    assert buckets(facts) == [("tool", 10, 60, 1), ("tool", 60, 300, 1), ("tree_start", None, None, 1)]
    assert [(row["gap_from_s"], row["calls"]) for row in value(facts, "cache_after_gap")] == [
        (0, 2), (1, 2), (10, 2), (60, 1),
    ]  # fmt: skip


def test_a_gap_on_a_border_belongs_to_the_longer_bucket(facts_of):
    calls = [after("tool", gap_s, index=i) for i, gap_s in enumerate((0, 1, 60, 300))]
    rows = value(facts_of(calls), "cache_by_gap")
    assert [row["gap_from_s"] for row in rows] == [0, 1, 60, 300]
    assert [row["bound_ratio"] for row in rows] == [None] * 4


def test_calls_after_at_least_a_gap_are_cumulated_over_causes_without_first_calls(facts_of):
    calls = [
        after(None, None, turn_index=0, cached=900),
        after("tool", 2, index=1, cached=800),
        after("user", 400, index=2, cached=100),
        after("unknown", 20, index=3, session=1, cached=300),
    ]
    rows = value(facts_of(calls), "cache_after_gap")
    told = [(row["gap_from_s"], row["calls"], row["sessions"], row["reported_ratio"]) for row in rows]
    assert told == [
        (0, 3, 2, pytest.approx(0.4)),
        (1, 3, 2, pytest.approx(0.4)),
        (10, 2, 2, pytest.approx(0.2)),
        (60, 1, 1, 0.1),
        (300, 1, 1, 0.1),
    ]


def test_borders_are_scaled_like_the_gaps():
    lows, highs = zip(*gap_buckets_s(0.1), strict=True)
    assert lows == pytest.approx((0, 0.1, 1, 6, 30))
    assert highs == (*lows[1:], None)
    assert gap_buckets_s(0) == ((0, None),)


def test_at_time_scale_0_all_gaps_are_in_one_bucket(facts_of):
    facts = facts_of(played(0, 0, 0, gaps=(None, 0, 0)), time_scale=0.0)
    assert buckets(facts) == [("tool", 0, None, 2), ("tree_start", None, None, 1)]


def scrapes(*readings, url="u"):
    return [
        Scrape(at_ns=i, url=url, values={"prefix_query_tokens": query, "prefix_hit_tokens": hit})
        for i, (query, hit) in enumerate(readings)
    ]


def test_the_engine_is_read_from_the_first_to_the_last_reading_and_summed_over_engines(facts_of):
    readings = [*scrapes((100, 50), (150, 60), (200, 80)), *scrapes((0, 0), (300, 90), url="v")]
    facts = facts_of([], scrapes=readings)
    assert (value(facts, "engine_query_tokens"), value(facts, "engine_hit_tokens")) == (400, 120)
    assert value(facts, "engine_hit_ratio") == 0.3


@pytest.mark.parametrize("readings", [[], [(5, 5)], [(5, 5), (9, 9), (0, 0), (7, 7)]])
def test_no_second_reading_or_a_restarted_engine_tells_nothing(facts_of, readings):
    assert value(facts_of([], scrapes=scrapes(*readings)), "engine_query_tokens") is None


def test_a_counter_that_is_not_on_the_page_yet_counts_as_0(facts_of):
    read = [
        Scrape(at_ns=0, url="u", values={"running": 0.0}),
        Scrape(at_ns=1, url="u", error="status 500"),
        Scrape(at_ns=2, url="u", values={"running": 0.0, "rejections": 4.0}),
    ]
    facts = facts_of([make_call_result()], scrapes=read)
    assert METRICS["engine_rejections"].compute(facts) == 4


def test_a_page_that_fails_at_first_is_no_page_without_the_counter(facts_of):
    read = [
        Scrape(at_ns=1, url="u", error="status 500"),
        Scrape(at_ns=2, url="u", values={"rejections": 4.0}),
    ]
    facts = facts_of([make_call_result()], scrapes=read)
    assert METRICS["engine_rejections"].compute(facts) is None


def test_a_counter_that_fell_or_went_away_is_a_restart_of_its_engine(facts_of):
    first = {"prefix_query_tokens": 100.0, "rejections": 4.0}
    read = [
        Scrape(at_ns=0, url="u", values=first),
        Scrape(at_ns=1, url="u", error="connect: refused"),
        Scrape(at_ns=2, url="u", values={"prefix_query_tokens": 0.0, "rejections": 4.0}),
        Scrape(at_ns=3, url="u", values={"prefix_query_tokens": 50.0}),
        Scrape(at_ns=4, url="another", values={"prefix_query_tokens": 1.0}),
    ]
    facts = facts_of([make_call_result()], scrapes=read)
    assert METRICS["engine_restarts"].compute(facts) == 2
    assert METRICS["engine_query_tokens"].compute(facts) is None
