import pytest

from aitrace.results import Scrape
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result, make_run_end
from reports.metrics import METRICS

S = 10**9


def value(facts, name):
    return METRICS[name].compute(facts)


def mixed():
    """Two complete, one refused, one cut, one lost with its session, one in flight and one unsent at the stop."""
    nothing = dict.fromkeys(("sent_ns", "due_ns", "end_ns", "first_token_ns", "last_token_ns", "headers_ns"))
    return [
        make_call_result(0),
        make_call_result(1),
        make_call_result(
            2,
            session=1,
            error="refused",
            status=429,
            first_token_ns=None,
            retry_after_ns=3 * S,
            error_text="full",
        ),
        make_call_result(3, session=1, unsent="session_lost", **nothing),
        make_call_result(4, session=2, error="cut", status=200),
        make_call_result(5, session=3, error="client_abort", status=None),
        make_call_result(6, session=3, unsent="interrupted", **nothing),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("planned_calls", 9),
        ("sent_calls", 5),
        ("complete_calls", 2),
        ("refused_calls", 1),
        ("failed_calls", 1),
        ("stopped_calls", 1),
        ("unsent_calls", 2),
        ("missing_calls", 2),
        ("complete_sessions", 0),
        ("lost_sessions", 2),
        ("complete_trees", 0),
    ],
)
def test_calls_and_sessions_are_counted_by_what_became_of_them(facts_of, name, expected):
    assert value(facts_of(mixed(), planned_calls=9), name) == expected


def test_a_session_of_which_every_call_is_complete_is_complete(facts_of):
    facts = facts_of(mixed())
    assert value(facts, "complete_sessions") == 1
    assert value(facts, "complete_trees") == 0


def test_the_header_tells_what_was_planned(facts_of):
    facts = facts_of([], planned_sessions=7, planned_trees=3)
    assert (value(facts, "planned_sessions"), value(facts, "planned_trees")) == (7, 3)


def test_the_duration_is_that_of_the_end_record(facts_of):
    assert value(facts_of(mixed(), end=make_run_end(ended_ns=90 * S)), "duration_s") == 90.0


def test_a_cut_run_lasted_to_its_last_call(facts_of):
    calls = [make_call_result(0, at_ns=4 * S), make_call_result(1, at_ns=9 * S, end_ns=None)]
    assert value(facts_of(calls, end=None), "duration_s") == 9.0
    assert value(facts_of([], end=None), "duration_s") is None


def test_tokens_are_summed_over_complete_calls_that_report_them(facts_of):
    calls = [
        make_call_result(0, usage=Usage(input_tokens=100, output_tokens=10)),
        make_call_result(1, usage=Usage()),
        make_call_result(2, usage=Usage(input_tokens=999, output_tokens=99), error="cut"),
    ]
    facts = facts_of(calls, end=make_run_end(ended_ns=5 * S))
    assert (value(facts, "input_tokens"), value(facts, "output_tokens")) == (100, 10)
    assert value(facts, "output_tokens_per_s") == 2.0
    assert value(facts, "usage_ratio") == 0.5


def test_without_usage_sizes_are_not_known(facts_of):
    facts = facts_of([make_call_result(0, usage=Usage())])
    unknown = (
        "input_tokens",
        "prompt_size_ratio",
        "prompt_size_error_ratio",
        "output_size_ratio",
        "output_tokens_per_s",
    )
    assert [value(facts, name) for name in unknown] == [None] * 5
    assert value(facts, "cache_usage_ratio") == 0.0


def test_sizes_are_compared_with_the_plan(facts_of):
    calls = [
        make_call_result(
            i, prompt_tokens=100, output_tokens=50, usage=Usage(input_tokens=n, output_tokens=40)
        )
        for i, n in enumerate([90, 110, 130])
    ]
    facts = facts_of(calls)
    assert value(facts, "prompt_size_ratio") == pytest.approx(330 / 300)
    # 10 %, 10 % and 30 % off: errors in both directions must not cancel out.
    assert value(facts, "prompt_size_error_ratio") == pytest.approx(0.1)
    assert value(facts, "output_size_ratio") == pytest.approx(0.8)


def test_the_client_is_judged_by_the_end_record(facts_of):
    facts = facts_of([], end=make_run_end(ended_ns=10 * S, cpu_ns=4 * S, loop_lag_p99_ns=2_500_000))
    assert (value(facts, "loop_lag_p99_ms"), value(facts, "cpu_ratio")) == (2.5, 0.4)
    cut = facts_of([], end=None)
    assert (value(cut, "loop_lag_p99_ms"), value(cut, "cpu_ratio")) == (None, None)


def test_an_unsampled_loop_lag_is_not_known(facts_of):
    assert value(facts_of([], end=make_run_end(loop_lag_p99_ns=None)), "loop_lag_p99_ms") is None


def test_readings_are_counted_and_their_holes_measured(facts_of):
    """Read at 0, 1, 2 and 9 s; the reading at 3 s failed."""
    scrapes = [Scrape(at_ns=t * S, url="u", values={"running": 1.0}) for t in (0, 1, 2, 9)]
    facts = facts_of([], scrapes=[*scrapes, Scrape(at_ns=3 * S, url="u", error="timeout")])
    assert (value(facts, "scrapes"), value(facts, "failed_scrapes")) == (5, 1)
    assert value(facts, "longest_scrape_gap_s") == 7.0
    assert value(facts, "median_scrape_gap_s") == 1.0


def test_holes_are_looked_for_engine_by_engine(facts_of):
    scrapes = [Scrape(at_ns=t * S, url=url) for url, times in (("a", (0, 8)), ("b", (3, 5))) for t in times]
    assert value(facts_of([], scrapes=scrapes), "longest_scrape_gap_s") == 8.0


def test_without_readings_there_are_no_holes(facts_of):
    facts = facts_of([])
    assert (value(facts, "longest_scrape_gap_s"), value(facts, "median_scrape_gap_s")) == (None, None)


@pytest.mark.parametrize(
    ("read_s", "failed_s", "longest_s"),
    [
        ((0, 1, 2), (), 8.0),
        ((0, 1, 2), (3, 4), 8.0),
        ((7, 8, 9, 10), (0, 1), 7.0),
        ((), (0, 5, 12), 12.0),
        ((0,), (), 10.0),
    ],
)
def test_a_hole_may_last_to_the_end_of_the_run_or_from_its_start(facts_of, read_s, failed_s, longest_s):
    scrapes = [
        Scrape(at_ns=s * S, url="u", error="timeout" if s in failed_s else None) for s in (*read_s, *failed_s)
    ]
    facts = facts_of([], scrapes=scrapes, end=make_run_end(ended_ns=10 * S))
    assert value(facts, "longest_scrape_gap_s") == longest_s


def test_of_a_run_without_an_end_the_last_reading_is_all_that_is_known(facts_of):
    scrapes = [Scrape(at_ns=s * S, url="u", error="timeout" if s > 2 else None) for s in range(6)]
    assert value(facts_of([], scrapes=scrapes, end=None), "longest_scrape_gap_s") == 3.0


def test_errors_are_listed_by_kind_and_status_with_the_first_text(facts_of):
    refused = {"error": "refused", "status": 429, "session": 1}
    calls = [
        make_call_result(0, error="cut", error_text=None),
        make_call_result(1, retry_after_ns=S, error_text="first", **refused),
        make_call_result(2, retry_after_ns=3 * S, error_text="second", **refused),
    ]
    rows = value(facts_of(calls), "errors_by_kind")
    assert rows == [
        {
            "error": "refused",
            "status": 429,
            "overload": True,
            "calls": 2,
            "sessions": 1,
            "retry_after_s": 1.0,
            "example": "first",
        },
        {
            "error": "cut",
            "status": 200,
            "overload": False,
            "calls": 1,
            "sessions": 1,
            "retry_after_s": None,
            "example": None,
        },
    ]


def test_unsent_calls_are_listed_by_reason(facts_of):
    assert value(facts_of(mixed()), "unsent_by_reason") == [
        {"unsent": "session_lost", "calls": 1, "sessions": 1},
        {"unsent": "interrupted", "calls": 1, "sessions": 1},
    ]


def test_classes_have_their_own_medians_largest_class_first(facts_of):
    calls = [
        make_call_result(0, call_class="subagent", first_token_ns=100_000_000),
        make_call_result(1, error="cut"),
        make_call_result(2),
    ]
    rows = value(facts_of(calls), "by_class")
    assert [(row["call_class"], row["calls"], row["complete_calls"]) for row in rows] == [
        ("main", 2, 1),
        ("subagent", 1, 1),
    ]
    assert [row["ttft_service_p50_ms"] for row in rows] == [250.0, 100.0]
    assert [row["input_tokens"] for row in rows] == [1000, 1000]


def test_output_per_second_does_not_count_the_time_of_the_warm_up(facts_of):
    """100 tokens from 6 s on, in a run of 10 s."""
    calls = [
        make_call_result(0, phase="warm_up"),
        make_call_result(1, due_ns=6 * 10**9, usage=Usage(output_tokens=100)),
    ]
    facts = facts_of(calls, end=make_run_end(ended_ns=10 * 10**9))
    assert METRICS["output_tokens_per_s"].compute(facts) == 25.0


def test_a_session_goes_on_without_an_auxiliary_call(facts_of):
    calls = [make_call_result(0, error="refused", call_class="auxiliary"), make_call_result(1)]
    assert value(facts_of(calls), "lost_sessions") == 0


def test_sessions_of_a_process_that_was_lost_are_cut_and_not_lost(facts_of):
    calls = [
        make_call_result(0),
        make_call_result(1, unsent="worker_lost", sent_ns=None),
        make_call_result(2, session=1, error="client_abort", sent_ns=None),
    ]
    facts = facts_of(calls)
    assert (value(facts, "lost_sessions"), value(facts, "censored_sessions")) == (0, 2)


def sessions_of_a_killed_run(facts_of, *, calls, trace=None):
    """Of five planned sessions: one complete, one lost, one half played, one of the warm-up, one of which nothing came."""
    results = [
        make_call_result(0, root=0),
        make_call_result(1, session=1, root=1, error="refused"),
        make_call_result(2, session=2, root=2),
        make_call_result(3, session=3, root=3, phase="warm_up"),
    ]
    facts = facts_of(results, end=None, trace=trace, planned_calls=calls, planned_sessions=5)
    fates = ("planned", "unmeasured", "complete", "lost", "censored", "missing")
    return {fate: value(facts, f"{fate}_sessions") for fate in fates}


def five_trees():
    """One call each, and another one of the third."""
    builder = TraceBuilder()
    for root in [*(builder.session() for _ in range(5)), 2]:
        builder.call(root, [builder.segment(64)])
    return builder.trace()


def test_the_sessions_of_a_run_that_was_killed_add_up(facts_of):
    fates = sessions_of_a_killed_run(facts_of, calls=6, trace=five_trees())
    assert fates == {"planned": 5, "unmeasured": 1, "complete": 1, "lost": 1, "censored": 0, "missing": 2}
    # Without the trace no session is known to be over.
    fates = sessions_of_a_killed_run(facts_of, calls=6)
    assert fates == {"planned": 5, "unmeasured": 1, "complete": 0, "lost": 1, "censored": 0, "missing": 3}


def test_no_session_is_without_a_result_if_no_call_is(facts_of):
    assert sessions_of_a_killed_run(facts_of, calls=4)["missing"] == 0
