from dataclasses import replace

import orjson
import pytest

from aitrace.results import Attempt, CallResult, Scrape, WorkerEnd
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_end, make_run_header
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.evidence import ScrapeEvidence
from replayer.tally import Tally
from replayer.verdict import Summary, spread_of, summarise, summary_json, summary_lines

ENOUGH = 200
"""Calls that carry every percentile."""


def summary_of(*results: CallResult, calls: int | None = None, scrapes=(), **end: object) -> Summary:
    """Of calls that no other session or tree knows of; two sessions are planned."""
    tally, readings = Tally(), ScrapeEvidence()
    for result in results:
        tally.add(result)
    for scrape in scrapes:
        readings.add(scrape)
    header = make_run_header(planned_calls=len(results) if calls is None else calls, planned_sessions=2)
    return summarise(tally, readings, header, make_run_end(**end))


def good(*others: CallResult, count: int = ENOUGH, **fields: object) -> list[CallResult]:
    """Calls that went to plan, and others after them."""
    usage = Usage(input_tokens=1000, cache_read_tokens=0, output_tokens=100)
    return [
        *(make_call_result(1000 + n, session=9, **{"usage": usage, **fields}) for n in range(count)),
        *others,
    ]


def names(summary: Summary) -> list[str]:
    return [doubt.name for doubt in summary.doubts if doubt.weighs]


def late(by_ns: int, index: int = 0) -> CallResult:
    return make_call_result(index=index, due_ns=0, dispatched_ns=by_ns, sent_ns=by_ns, new_connection=False)


def test_a_run_of_complete_calls_sent_in_time_is_fine():
    summary = summary_of(*good(late(0), late(50 * NS_PER_MS, 1)))
    assert (summary.doubts, summary.exit_code, summary.is_client_limited) == ((), 0, False)


def test_a_client_later_than_the_bound_limits_the_run():
    summary = summary_of(*good(*[late(51 * NS_PER_MS, index) for index in range(10)]))
    assert summary.reasons == ("10 of 210 calls (4.8 %) went out more than 50 ms late",)
    assert (summary.exit_code, summary.is_client_limited, summary.late_calls) == (1, True, 10)


def test_late_calls_that_do_not_weigh_do_not_limit_the_run():
    assert not summary_of(*good(late(NS_PER_S))).is_client_limited


def test_a_late_event_loop_or_a_lost_process_limits_the_run():
    slow = summary_of(*good(), loop_lag_p99_ns=51 * NS_PER_MS)
    gone = summary_of(
        *good(), workers=(WorkerEnd(sent_calls=1, cpu_ns=None, loop_lag_p99_ns=None, lost=True),)
    )
    assert (names(slow), names(gone)) == (["loop_lag"], ["workers_lost"])
    assert slow.is_client_limited
    assert gone.is_client_limited


@pytest.mark.parametrize(
    ("result", "doubts"),
    [
        (make_call_result(index=1, error="refused"), ["refusals", "lost_sessions"]),
        (make_call_result(index=1, error="cut"), ["errors", "lost_sessions"]),
        (make_call_result(index=1, unsent="session_lost", sent_ns=None), ["lost_sessions"]),
        (make_call_result(index=1, error="refused", phase="warm_up"), []),
        (make_call_result(index=1, unparsed_events=1), ["unparsed_events"]),
    ],
)
def test_measured_calls_that_went_wrong_put_a_run_in_doubt(result, doubts):
    summary = summary_of(*good(result))
    assert names(summary) == doubts
    assert summary.exit_code == (1 if doubts else 0)


def test_a_run_too_short_for_more_than_a_median_is_noted_and_fine():
    summary = summary_of(*good(count=19))
    assert (names(summary), summary.exit_code) == ([], 0)
    assert [doubt.name for doubt in summary.doubts] == ["few_calls"]


def test_an_engine_that_was_restarted_puts_a_run_in_doubt():
    scrapes = [
        Scrape(at_ns=n * NS_PER_S, url="u", values={"preemptions": value})
        for n, value in enumerate((3.0, 0.0))
    ]
    assert names(summary_of(*good(), scrapes=scrapes)) == ["engine_restarted"]


def test_an_interrupted_run_is_in_doubt_even_if_nothing_was_lost():
    assert names(summary_of(*good(), interrupted=True)) == ["interrupted"]


def test_calls_that_were_stopped_are_neither_failed_nor_missing():
    summary = summary_of(*good(make_call_result(index=1, error="client_abort")), interrupted=True)
    assert (summary.stopped_calls, summary.missing_calls, names(summary)) == (1, 0, ["interrupted"])


def test_a_call_without_a_result_is_not_passed_over():
    summary = summary_of(*good(), calls=ENOUGH + 2)
    assert (summary.missing_calls, summary.reasons) == (2, ("2 planned calls without a result",))


def test_a_run_without_a_complete_call_is_in_doubt():
    assert names(summary_of(calls=0)) == ["nothing_complete"]


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
    assert (spread.p50_ms, spread.p95_ms, spread.p99_ms, spread.max_ms) == (51.0, 96.0, None, 101.0)


@pytest.mark.parametrize(("count", "p95", "p99"), [(39, None, None), (40, 38.0, None), (200, 190.0, 198.0)])
def test_a_percentile_that_the_sample_cannot_carry_is_withheld(count, p95, p99):
    spread = spread_of([n * NS_PER_MS for n in range(1, count + 1)])
    assert (spread.p95_ms, spread.p99_ms, spread.max_ms) == (p95, p99, float(count))


def test_the_summary_tells_counts_times_verdict_and_the_next_step():
    reported = make_call_result(usage=Usage(input_tokens=200, cache_read_tokens=50))
    lost = make_call_result(index=2, session=1, unsent="session_lost", sent_ns=None)
    text = "\n".join(
        summary_lines(
            summary_of(reported, make_call_result(index=1, session=1, error="cut"), lost), "runs/one"
        )
    )
    assert "1 of 3 complete, 1 failed (1 stream cut), 1 not sent (its session was lost: 1) in 2 s" in text
    assert "from sent p50 250 ms, p95 (n < 40); from due" in text
    assert "1 of 2 played to their end, 1 lost\n" in text
    assert "25.0 % of prompt tokens" in text
    assert text.endswith(
        "verdict   in doubt: 1 call failed otherwise; 1 of 2 sessions lost; prompts are off plan by 80.0 % in the median "
        "call\n"
        "next      aitrace report runs/one"
    )


def test_the_next_command_can_be_pasted():
    assert summary_lines(summary_of(make_call_result()), "my run")[-1].endswith("aitrace report 'my run'")


@pytest.mark.parametrize(("away", "doubts"), [(10, []), (11, ["unreachable"])])
def test_a_run_is_in_doubt_if_more_than_one_try_in_twenty_got_no_connection(away, doubts):
    gone = Attempt(end_ns=0, error="connect", wait_ns=1)
    calls = [make_call_result(index, attempts=(gone,) if index < away else ()) for index in range(200 - away)]
    usage = Usage(input_tokens=1000, output_tokens=100)
    assert names(summary_of(*(replace(call, usage=usage) for call in calls))) == doubts


def test_a_target_that_reports_no_cache_is_said_to():
    usage = Usage(input_tokens=1000, output_tokens=100)
    text = "\n".join(summary_lines(summary_of(*good(usage=usage)), "run"))
    assert "cached    not reported by the endpoint" in text
    assert "verdict   fine" in text


def test_of_a_run_whose_warm_up_took_everything_neither_cache_nor_lateness_is_known():
    """The warm-up's answer tells of the cache, and its lateness is told; what is measured has nothing."""
    usage = Usage(input_tokens=1000, cache_read_tokens=500, output_tokens=100)
    answered = make_call_result(phase="warm_up", usage=usage)
    cut = make_call_result(1, session=1, unsent="duration", sent_ns=None)
    text = "\n".join(summary_lines(summary_of(answered, cut, cut_ns=NS_PER_S), "run"))
    assert "cached    not known: no measured call is complete" in text
    assert "without connecting not known: no measured call was sent (bound 50 ms)" in text
    assert "verdict   in doubt: no call was answered completely after the warm-up\n" in text


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
    assert facts["sessions"] == {"planned": 2, "unmeasured": 0, "lost": 1, "stopped": 0}
    assert facts["ttft"]["service"]["p50_ms"] == 250.0
    assert facts["cache"] == {"prompt_tokens": None, "cached_tokens": None, "cached_ratio": None}
    assert facts["in_doubt"] == [doubt["what"] for doubt in facts["doubts"] if doubt["weighs"]]
    assert (len(facts["in_doubt"]), facts["exit_code"]) == (2, 1)
    assert set(facts["doubts"][0]) == {"name", "what", "cause", "action", "weighs"}


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
    summary = summary_of(*good(*cut_short()), **CUT)
    assert (summary.reasons, summary.exit_code) == ((), 0)
    text = "\n".join(summary_lines(summary, "run"))
    assert "1 cut, 1 not sent (the run's duration was over: 1)" in text
    assert "1 cut by the end of the duration" in text


def test_calls_that_were_lost_beside_it_are_one():
    lost = make_call_result(index=3, session=2, unsent="session_lost")
    assert names(summary_of(*good(*cut_short(), lost), **CUT)) == ["lost_sessions"]


def test_lanes_that_ran_out_of_trees_are_a_doubt():
    summary = summary_of(*good(), ran_out_ns=NS_PER_S)
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
    assert "1 not measured (1 warm-up)" in "\n".join(summary_lines(summary, "run"))


def test_a_session_that_was_lost_in_the_warm_up_is_in_no_count_of_sessions():
    refused = make_call_result(index=0, phase="warm_up", error="refused")
    summary = summary_of(*good(refused))
    assert (summary.lost_sessions, summary.unmeasured_sessions, summary.reasons) == (0, 1, ())
    assert "1 of 1 played to their end; 1 not measured (warm-up)" in "\n".join(summary_lines(summary, "run"))


def test_lost_sessions_are_set_against_those_that_are_measured():
    warm_up = make_call_result(index=0, phase="warm_up", error="refused")
    summary = summary_of(*good(warm_up, make_call_result(index=1, session=1, error="cut")))
    assert "1 of 1 session lost" in summary.reasons
    assert "0 of 1 played to their end, 1 lost; 1 not measured" in "\n".join(summary_lines(summary, "run"))


@pytest.mark.parametrize("reason", ["interrupted", "worker_lost"])
def test_a_priming_call_that_was_not_sent_stops_no_session(reason):
    summary = summary_of(*good(make_call_result(phase="prime", unsent=reason)))
    assert summary.stopped_sessions == 0


def test_no_fewer_than_no_calls_are_missing():
    assert summary_of(make_call_result(), make_call_result(index=1), calls=1).missing_calls == 0
