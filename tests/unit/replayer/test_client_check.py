"""What a trial plays, and what is made of it. The engine's times are on another clock than the client's."""

from dataclasses import replace

from aitrace.results import CallResult, RunEnd
from aitrace.testing import find_problems, recorded_lines
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.client_check import (
    SECONDS,
    check_doubts,
    check_from_trial,
    check_lines,
    trial_load,
    trial_trace,
)
from replayer.planning.peak import Peak

LOAD = trial_load(Peak(calls_per_s=2, events_per_s=100, streams=5, prompt_tokens=300, output_tokens=20))


def result(number, *, late_ns=0, ttft_ns=0, **fields):
    due_ns = number * NS_PER_S
    times = {
        "due_ns": due_ns,
        "sent_ns": due_ns + late_ns,
        "first_token_ns": due_ns + late_ns + ttft_ns,
        "events": 20,
    }
    return CallResult(
        index=number, call=number, session=number, instance=1, root=number, call_class="main", turn_index=0,
        request_id=f"x-{number}", gap_ns=None, gap_cause=None, prompt_tokens=300, output_tokens=20, **{**times, **fields},
    )  # fmt: skip


def logged(number, ttft_ns):
    return {"request_id": f"x-{number}", "head_ns": 77, "first_token_ns": 77 + ttft_ns}


def end(**fields):
    known = {
        "ended_ns": 2 * NS_PER_S,
        "interrupted": False,
        "sent_calls": 2,
        "unsent_calls": 0,
        "cpu_ns": 8000,
    }
    return RunEnd(**{**known, "loop_lag_p99_ns": None, **fields})


def test_the_trial_has_the_event_rate_of_the_peak():
    assert LOAD.calls_per_s == 5.0
    assert LOAD.calls_per_s * LOAD.output_tokens == 100
    assert (LOAD.tokens_per_s, LOAD.calls) == (20.0, 5 * SECONDS)


def test_the_trial_has_its_rate_of_calls_if_that_is_higher():
    load = trial_load(Peak(calls_per_s=50, events_per_s=100, streams=5, prompt_tokens=300, output_tokens=20))
    assert load.calls_per_s == 50.0


def test_long_answers_become_more_shorter_ones():
    peak = Peak(calls_per_s=1, events_per_s=100, streams=10, prompt_tokens=300, output_tokens=5000)
    load = trial_load(peak)
    assert load.output_tokens == 10 * SECONDS
    assert load.calls_per_s * load.output_tokens == 100


def test_its_trace_keeps_the_rules_of_traces():
    trace = trial_trace(LOAD)
    assert list(find_problems(enumerate(recorded_lines(trace), 1))) == []
    assert len(trace.calls) == LOAD.calls


def test_errors_are_the_clients_ttft_less_the_engines():
    calls = [result(0, late_ns=1 * NS_PER_MS, ttft_ns=35 * NS_PER_MS), result(1, ttft_ns=31 * NS_PER_MS)]
    check = check_from_trial(LOAD, calls, end(), [logged(0, 30 * NS_PER_MS), logged(1, 30 * NS_PER_MS)])
    assert (check.ttft_error_p50_ns, check.ttft_error_p99_ns) == (1 * NS_PER_MS, 5 * NS_PER_MS)
    assert (check.lateness_p50_ns, check.lateness_p99_ns) == (0, 1 * NS_PER_MS)
    assert (check.cpu_per_call_ns, check.cpu_per_event_ns, check.reached_events_per_s) == (4000, 200, 20.0)


def test_the_event_rate_is_that_of_the_busiest_second_and_not_of_the_way_there():
    calls = [
        result(
            number, first_token_ns=number * NS_PER_S, last_token_ns=4 * NS_PER_S - 1, events=40 - 10 * number
        )
        for number in range(4)
    ]
    check = check_from_trial(LOAD, calls, end(), [logged(number, 0) for number in range(4)])
    # 10, 20, 30 and at last 40 a second.
    assert check.reached_events_per_s == 40.0


def test_a_client_that_is_late_or_fails_is_doubted():
    late = check_from_trial(LOAD, [result(0, late_ns=51 * NS_PER_MS)], end(), [logged(0, 0)])
    assert check_doubts(late, 50.0) == (
        "this machine is too slow for that load: lateness p99 51.00 ms is above 50 ms",
        "24 of 25 calls failed in the trial",
    )
    assert check_doubts(replace(late, failed_calls=0), 51.0) == ()


def test_failed_calls_are_counted_and_in_no_figure():
    calls = [result(0, ttft_ns=5), result(1, ttft_ns=900, error="cut")]
    check = check_from_trial(LOAD, calls, end(), [logged(0, 5), logged(1, 5)])
    assert (check.calls, check.failed_calls, check.ttft_error_p99_ns) == (1, LOAD.calls - 1, 0)


def test_a_trial_without_a_complete_call_says_nothing():
    assert check_from_trial(LOAD, [result(0, error="cut")], end(), [logged(0, 5)]) is None
    assert check_from_trial(LOAD, [result(0)], end(), []) is None
    assert check_from_trial(LOAD, [result(0, first_token_ns=None)], end(), [logged(0, 5)]) is None


def test_the_lines_state_the_load_and_the_error_bars():
    check = check_from_trial(LOAD, [result(0, ttft_ns=1_250_000)], end(), [logged(0, 0)])
    text = "\n".join(check_lines(check))
    assert "5 calls/s of 300 prompt and 20 answer tokens" in text
    assert "TTFT error  p50 1.25 ms, p99 1.25 ms (n = 1)" in text
    assert "1 process" in text
