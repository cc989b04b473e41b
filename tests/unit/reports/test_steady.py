import numpy as np
import pytest

from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_end
from reports.measures.steady import SteadyWindow, steady_window
from reports.metrics import METRICS
from reports.series import Line

S = 10**9


def line(*steps):
    """A line from (seconds, value) steps."""
    return Line(
        name="active",
        at_s=np.array([at for at, _ in steps], dtype=np.float64),
        values=np.array([value for _, value in steps], dtype=np.float64),
    )


def test_the_window_is_the_time_near_one_number_with_most_session_time():
    """Up to 20 within 30 s, between 19 and 22 for 100 s, down again."""
    steps = [(0, 5), (10, 10), (20, 15), (30, 20), (60, 22), (90, 19), (130, 8), (150, 0)]
    assert steady_window(line(*steps)) == SteadyWindow(from_s=30.0, until_s=130.0, sessions=20)


def test_a_number_further_than_a_tenth_away_ends_the_window():
    steps = [(0, 20), (30, 23), (40, 20), (60, 0)]
    assert steady_window(line(*steps)) == SteadyWindow(from_s=0.0, until_s=30.0, sessions=20)


def test_one_session_more_or_less_does_not_end_it():
    steps = [(0, 3), (10, 4), (20, 2), (30, 3), (50, 0)]
    assert steady_window(line(*steps)) == SteadyWindow(from_s=0.0, until_s=50.0, sessions=3)


def test_a_longer_time_of_fewer_sessions_is_a_tail():
    """Eight sessions for 60 s, and the last two of them for 200 s more."""
    steps = [(0, 8), (60, 4), (70, 2), (270, 0)]
    assert steady_window(line(*steps)) == SteadyWindow(from_s=0.0, until_s=60.0, sessions=8)


def test_a_time_without_sessions_is_never_in_it():
    steps = [(0, 1), (10, 0), (20, 1), (50, 0)]
    assert steady_window(line(*steps)) == SteadyWindow(from_s=20.0, until_s=50.0, sessions=1)


@pytest.mark.parametrize("steps", [[(0, 0)], [(0, 0), (9, 0)]])
def test_without_sessions_there_is_no_window(steps):
    assert steady_window(line(*steps)) is None


def test_of_many_numbers_those_that_held_for_long_are_tried():
    """A ramp over 500 numbers, one second each, then 480 for 1000 s."""
    steps = [(at, at + 1) for at in range(500)] + [(500, 480), (1500, 0)]
    window = steady_window(line(*steps))
    assert (window.until_s, window.sessions in range(440, 530)) == (1500.0, True)
    assert window.from_s <= 500.0


def test_numbers_of_the_window_are_those_of_the_calls_in_it(facts_of):
    """Three sessions from 0 to 100 s, and a fourth call that is sent after it with another TTFT."""
    calls = [
        make_call_result(
            index,
            session=index,
            at_ns=0,
            due_ns=0,
            sent_ns=S,
            first_token_ns=3 * S,
            last_token_ns=99 * S,
            end_ns=100 * S,
        )
        for index in range(3)
    ]
    late = dict.fromkeys(("due_ns", "sent_ns"), 100 * S)
    calls.append(make_call_result(3, session=3, **late, first_token_ns=109 * S, end_ns=110 * S))
    facts = facts_of(calls, end=make_run_end(ended_ns=125 * S))
    numbers = {name: METRICS[name].compute(facts) for name in METRICS if name.startswith("steady_")}
    assert numbers == {
        "steady_from_s": 0.0,
        "steady_until_s": 100.0,
        "steady_sessions": 3,
        "steady_ratio": 0.8,
        "steady_calls": 3,
        "steady_ttft_service_p50_ms": 2000.0,
        "steady_ttft_service_p95_ms": None,
        "steady_cache_reported_ratio": None,
        "steady_refused_tries_ratio": 0.0,
    }


def test_cached_tokens_and_refusals_of_the_window_are_those_of_what_was_sent_in_it(facts_of):
    """Two calls and a refused try within 0 to 100 s, and after it a call of another session that had everything cached."""
    refused = Attempt(sent_ns=S, headers_ns=S, end_ns=S, status=429, error="refused", wait_ns=0)
    usage = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=400)
    warm = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=1000)
    calls = [
        make_call_result(0, 2 * S, due_ns=0, attempts=(refused,), usage=usage),
        make_call_result(1, 60 * S, end_ns=100 * S, usage=usage),
        make_call_result(2, 105 * S, session=1, usage=warm),
    ]
    facts = facts_of(calls)
    assert METRICS["steady_until_s"].compute(facts) == 100.0
    assert METRICS["steady_cache_reported_ratio"].compute(facts) == 0.4
    assert METRICS["steady_refused_tries_ratio"].compute(facts) == 1 / 3


def test_a_run_without_calls_has_no_window(facts_of):
    facts = facts_of([])
    assert {METRICS[name].compute(facts) for name in METRICS if name.startswith("steady_")} == {None, 0}
