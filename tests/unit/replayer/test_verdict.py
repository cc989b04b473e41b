from dataclasses import replace

import orjson
import pytest

from aitrace.results import Attempt, CallResult
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_end, make_trace
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan
from replayer.tally import Tally
from replayer.verdict import (
    Summary,
    spread_of,
    summarise,
    summary_json,
    summary_lines,
    text_from_ms,
)


def summary_of(
    *results: CallResult, calls: int | None = None, bound_ms: float = 50.0, **end: object
) -> Summary:
    tally = Tally()
    for result in results:
        tally.add(result)
    plan = build_plan(make_trace(sessions=2, calls=1), LoadOptions())
    plan = replace(plan, call_count=len(results) if calls is None else calls)
    return summarise(tally, make_run_end(**end), plan, lateness_bound_ms=bound_ms)


def late(by_ns: int, index: int = 0) -> CallResult:
    return make_call_result(index=index, due_ns=0, dispatched_ns=by_ns, sent_ns=by_ns, new_connection=False)


def test_a_run_of_complete_calls_sent_in_time_is_fine():
    summary = summary_of(late(0), late(50 * NS_PER_MS, 1))
    assert (summary.reasons, summary.exit_code) == ((), 0)


def test_a_client_later_than_the_bound_limits_the_run():
    summary = summary_of(*[late(51 * NS_PER_MS, index) for index in range(10)])
    assert summary.reasons == ("client-limited: 10 of 10 calls went out more than 50 ms late",)
    assert summary.exit_code == 1


def test_one_late_call_in_a_thousand_does_not_limit_a_run():
    summary = summary_of(late(NS_PER_S), *[late(0, index) for index in range(1, 1000)])
    assert not summary.is_client_limited


@pytest.mark.parametrize(("late_calls", "is_limited"), [(1, False), (2, True)])
def test_one_late_call_of_a_short_run_does_not_limit_it(late_calls, is_limited):
    """Of thirty calls one is 3 %, which says nothing about a percentile."""
    results = [late(NS_PER_S if index < late_calls else 0, index) for index in range(30)]
    assert summary_of(*results).is_client_limited == is_limited


@pytest.mark.parametrize(("late_calls", "is_limited"), [(10, False), (11, True)])
def test_more_than_one_call_in_a_hundred_limits_a_run(late_calls, is_limited):
    results = [late(NS_PER_S if index < late_calls else 0, index) for index in range(1000)]
    assert summary_of(*results).is_client_limited == is_limited


def test_a_late_event_loop_limits_the_run():
    summary = summary_of(make_call_result(), loop_lag_p99_ns=51 * NS_PER_MS)
    assert summary.reasons == ("client-limited: event loop late by p99 51 ms",)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (make_call_result(index=1, error="refused"), "calls failed: 1 refused"),
        (make_call_result(index=1, unsent="session_lost", sent_ns=None), "calls not sent: 1 session_lost"),
    ],
)
def test_a_call_that_failed_or_was_not_sent_puts_a_run_in_doubt(result, reason):
    summary = summary_of(make_call_result(), result)
    assert summary.reasons == (reason,)
    assert summary.exit_code == 1


def test_an_interrupted_run_is_in_doubt_even_if_nothing_was_lost():
    assert summary_of(make_call_result(), interrupted=True).reasons == ("interrupted",)


def test_calls_that_were_stopped_are_neither_failed_nor_missing():
    summary = summary_of(
        make_call_result(), make_call_result(index=1, error="client_abort"), interrupted=True
    )
    assert (summary.stopped_calls, summary.missing_calls) == (1, 0)
    assert summary.reasons == ("interrupted",)


def test_a_call_without_a_result_is_not_passed_over():
    summary = summary_of(make_call_result(), calls=3)
    assert summary.missing_calls == 2
    assert summary.reasons == ("calls without a result: 2",)


def test_a_run_without_a_complete_call_is_in_doubt():
    assert summary_of(calls=0).reasons == ("no call was complete",)


def test_cached_share_is_of_the_calls_that_reported_it():
    reported = make_call_result(usage=Usage(input_tokens=200, cache_read_tokens=50))
    assert summary_of(reported, make_call_result(index=1)).cached_ratio == 0.25
    assert summary_of(make_call_result()).cached_ratio is None


def test_a_report_of_no_prompt_tokens_has_no_share():
    assert summary_of(make_call_result(usage=Usage(input_tokens=0, cache_read_tokens=0))).cached_ratio is None


def test_a_spread_of_no_values_is_not_known():
    spread = spread_of([])
    assert (spread.count, spread.p50_ms, spread.p99_ms, spread.max_ms) == (0, None, None, None)


def test_a_spread_is_in_ms():
    spread = spread_of([n * NS_PER_MS for n in range(1, 102)])
    assert (spread.p50_ms, spread.p95_ms, spread.p99_ms, spread.max_ms) == (51.0, 96.0, 100.0, 101.0)


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(None, "-"), (0.0, "0 ns"), (0.4, "400 µs"), (99.94, "99.9 ms"), (12_345.0, "12.3 s")],
)
def test_times_are_written_with_the_digits_that_matter(value_ms, text):
    assert text_from_ms(value_ms) == text


def test_the_summary_tells_counts_times_verdict_and_the_next_step():
    reported = make_call_result(usage=Usage(input_tokens=200, cache_read_tokens=50))
    lost = make_call_result(index=2, session=1, unsent="session_lost", sent_ns=None)
    text = "\n".join(
        summary_lines(
            summary_of(reported, make_call_result(index=1, session=1, error="cut"), lost), "runs/one"
        )
    )
    assert "1 of 3 complete, 1 failed (1 cut), 1 not sent (1 session_lost) in 2 s" in text
    assert "1 of 2 played to their end, 1 lost\n" in text
    assert "25.0 % of prompt tokens" in text
    assert text.endswith(
        "verdict   in doubt: calls failed: 1 cut; calls not sent: 1 session_lost\n"
        "next      aitrace report runs/one"
    )


def test_the_next_command_can_be_pasted():
    assert summary_lines(summary_of(make_call_result()), "my run")[-1].endswith("aitrace report 'my run'")


@pytest.mark.parametrize(("away", "in_doubt"), [(5, False), (6, True)])
def test_a_run_is_in_doubt_if_more_than_one_try_in_twenty_got_no_connection(away, in_doubt):
    gone = Attempt(end_ns=0, error="connect", wait_ns=1)
    calls = [make_call_result(index, attempts=(gone,) if index < away else ()) for index in range(100 - away)]
    reasons = (f"no connection: {away} of 100 tries",) if in_doubt else ()
    assert summary_of(*calls).reasons == reasons


def test_a_target_that_reports_no_cache_is_said_to():
    text = "\n".join(summary_lines(summary_of(make_call_result()), "run"))
    assert "cached    not reported by the endpoint" in text
    assert "verdict   fine" in text


def test_the_json_holds_the_same_facts():
    tries = tuple(Attempt(end_ns=9, error="refused", wait_ns=NS_PER_S) for _ in range(2))
    failed = make_call_result(index=1, session=1, error="cut", attempts=tries)
    facts = orjson.loads(orjson.dumps(summary_json(summary_of(make_call_result(), failed), "run")))
    assert facts["calls"] == {
        "planned": 2,
        "complete": 1,
        "failed": {"cut": 1},
        "stopped": 0,
        "unsent": {},
        "unmeasured": {},
        "missing": 0,
        "retried": 1,
        "earlier_tries": {"refused": 2},
        "backoff_s": 2.0,
    }
    assert facts["sessions"] == {"planned": 2, "lost": 1, "stopped": 0}
    assert facts["ttft"]["service"]["p50_ms"] == 250.0
    assert facts["cache"] == {"prompt_tokens": None, "cached_tokens": None, "cached_ratio": None}
    assert (facts["in_doubt"], facts["exit_code"]) == (["calls failed: 1 cut"], 1)


def test_the_loops_lag_is_in_ms_or_not_known():
    assert summary_of(make_call_result(), loop_lag_p99_ns=1_500_000).loop_lag_p99_ms == 1.5
    assert summary_of(make_call_result(), loop_lag_p99_ns=None).loop_lag_p99_ms is None


def test_bodies_that_were_built_late_are_told_beside_the_lateness():
    lines = summary_lines(summary_of(make_call_result(), late_bodies=3), "run")
    assert any(line.startswith("lateness") and "3 bodies built late" in line for line in lines)


CUT = {"cut_ns": 60 * NS_PER_S}


def cut_short() -> tuple[CallResult, ...]:
    return (
        make_call_result(),
        make_call_result(index=1, session=1, error="client_abort"),
        make_call_result(index=2, session=1, unsent="duration"),
    )


def test_what_the_end_of_a_duration_cut_is_no_doubt():
    summary = summary_of(*cut_short(), **CUT)
    assert (summary.reasons, summary.exit_code) == ((), 0)
    text = "\n".join(summary_lines(summary, "run"))
    assert "1 cut, 1 not sent (1 duration)" in text
    assert "1 cut by the end of the duration" in text


def test_calls_that_were_lost_beside_it_are_one():
    lost = make_call_result(index=3, session=2, unsent="session_lost")
    assert summary_of(*cut_short(), lost, **CUT).reasons == ("calls not sent: 1 session_lost",)


def test_lanes_that_ran_out_of_trees_are_a_doubt():
    summary = summary_of(make_call_result(), ran_out_ns=NS_PER_S)
    assert summary.reasons == ("lanes ran out of planned trees after 1 s",)


def test_trees_in_store_that_did_not_start_are_in_no_number():
    summary = summary_of(
        make_call_result(), calls=4, unstarted_calls=3, unstarted_sessions=1, unstarted_trees=1, **CUT
    )
    assert (summary.planned_calls, summary.planned_sessions, summary.missing_calls) == (1, 1, 0)
    assert "trees in store that were not needed: 1" in "\n".join(summary_lines(summary, "run"))
    told = summary_json(summary, "run")
    assert (told["cut_s"], told["ran_out_s"], told["unstarted_trees"]) == (60.0, None, 1)


def test_calls_that_are_not_measured_are_told():
    summary = summary_of(make_call_result(phase="warm_up"), make_call_result(index=1))
    assert "1 not measured (1 warm_up)" in "\n".join(summary_lines(summary, "run"))
