"""Two groups of times to headers, and whether they are tied to the queue."""

import numpy as np
import pytest

from aitrace.results import Scrape
from aitrace.testing import make_call_result
from reports.measures.holding import HOLDING_NUMBERS, header_groups, waiting_at

MS = 1_000_000
S = 1_000_000_000
NUMBERS = {metric.name: metric for metric in HOLDING_NUMBERS}


def times(*groups):
    """Values as (count, ms)."""
    return np.array([ms + i / 1000 for count, ms in groups for i in range(count)])


def test_two_groups_are_told_with_their_sizes_and_medians():
    groups = header_groups(times((90, 2.0), (10, 400.0)))
    assert (groups.from_ms, groups.slow_calls) == (400.0, 10)
    assert (groups.fast_p50_ms, groups.slow_p50_ms) == pytest.approx((2.044, 400.004))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (times((100, 2.0)), "one group"),
        (times((50, 100.0), (50, 250.0)), "medians of less than × 3"),
        (times((50, 1.0), (50, 10.0)), "a slower group below 50 ms"),
        (times((40, 2.0), (20, 30.0), (40, 400.0)), "too many between the two"),
        (times((96, 2.0), (4, 400.0)), "less than 5 % in the slower group"),
        (times((4, 2.0), (96, 400.0)), "less than 5 % in the faster group"),
        (times((9, 2.0), (10, 400.0)), "fewer than 20 calls"),
        (np.array([]), "none at all"),
        (np.geomspace(1, 10_000, 200), "a wide even spread"),
        (np.random.default_rng(1).lognormal(5, 1.5, 500), "one wide group"),
    ],
)
def test_what_is_not_two_groups(values, why):
    assert header_groups(values) is None, why


def test_times_of_0_are_no_infinite_distance():
    assert header_groups(np.array([0.0] * 10 + [400.0] * 10)).slow_calls == 10


def test_held_calls_that_waited_for_any_time_are_one_group():
    rng = np.random.default_rng(1)
    waits = np.concatenate([rng.normal(3, 0.5, 60), rng.uniform(0, 2000, 60)])
    groups = header_groups(waits)
    assert 50 <= groups.slow_calls <= 60
    assert groups.slow_p50_ms > 500


def test_one_straggler_is_no_group():
    """It stands further apart from the others than the two groups do from each other."""
    groups = header_groups(times((60, 2.0), (39, 100.0), (1, 90_000.0)))
    assert (groups.from_ms, groups.slow_calls) == (100.0, 40)


def run(facts_of, held, *, scrapes=True, **fields):
    """A call a second; each that is held finds a queue of 3."""
    calls = [
        make_call_result(
            number, number * S, headers_ns=number * S + (600 * MS if is_held else 3 * MS), events=9, **fields
        )
        for number, is_held in enumerate(held)
    ]
    read = [
        Scrape(at_ns=number * S, url="http://engine/metrics", values={"waiting": 3.0 * is_held})
        for number, is_held in enumerate(held)
    ]
    return facts_of(calls, scrapes=read if scrapes else [])


def value(facts, name):
    return NUMBERS[name].compute(facts)


HELD = [number % 4 == 0 for number in range(40)]


def test_held_calls_are_counted_and_tied_to_the_queue(facts_of):
    facts = run(facts_of, HELD)
    assert value(facts, "slow_headers_calls") == 10
    assert value(facts, "headers_queue_correlation") == pytest.approx(1.0)
    assert (value(facts, "fast_headers_p50_ms"), value(facts, "slow_headers_p50_ms")) == (3.0, 600.0)


def test_without_a_reading_there_is_no_correlation(facts_of):
    facts = run(facts_of, HELD, scrapes=False)
    assert (value(facts, "slow_headers_calls"), value(facts, "headers_queue_correlation")) == (10, None)


def test_a_queue_that_never_changes_has_no_correlation(facts_of):
    assert value(run(facts_of, [False] * 40), "headers_queue_correlation") is None


def test_a_reading_long_before_or_after_says_nothing(facts_of):
    calls = [make_call_result(number, number * 100 * S, events=9) for number in range(30)]
    old = [Scrape(at_ns=(50 + number * 100) * S, url="u", values={"waiting": number}) for number in range(30)]
    assert value(facts_of(calls, scrapes=old), "headers_queue_correlation") is None


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ([(8, 2.0), (11, 5.0)], 4.0),
        ([(8, 2.0), (90, 5.0)], 2.0),
        ([(1, 2.0), (11, 5.0)], 5.0),
        ([(8, 2.0)], 2.0),
        ([(11, 5.0)], 5.0),
        ([(10, 3.0), (11, 5.0)], 3.0),
        ([(1, 2.0), (90, 5.0)], None),
    ],
    ids=[
        "between two",
        "the later one is far",
        "the earlier one is far",
        "none later",
        "none earlier",
        "at the moment itself",
        "both are far",
    ],
)
def test_the_queue_at_a_moment_lies_between_the_readings_around_it(facts_of, read, expected):
    """At 10 s."""
    scrapes = [Scrape(at_ns=at_s * S, url="u", values={"waiting": waiting}) for at_s, waiting in read]
    (found,) = waiting_at(facts_of([], scrapes=scrapes), np.array([10.0 * S]))
    assert found == pytest.approx(np.nan if expected is None else expected, nan_ok=True)


def test_queues_of_several_engines_are_added_up(facts_of):
    """One engine's queue falls by 1 while the other's grows by 2."""
    calls = [
        make_call_result(number, number * S, headers_ns=number * S + number * MS, events=9)
        for number in range(1, 30)
    ]
    read = [
        Scrape(at_ns=number * S, url=url, values={"waiting": float(waiting)})
        for number in range(30)
        for url, waiting in (("a", 30 - number), ("b", 2 * number))
    ]
    assert value(facts_of(calls, scrapes=read), "headers_queue_correlation") == pytest.approx(1.0)


@pytest.mark.parametrize("fields", [{"status": 429, "error": "refused"}, {"sent_ns": None}])
def test_refusals_come_at_once_and_are_no_group(facts_of, fields):
    assert value(run(facts_of, HELD, **fields), "slow_headers_calls") is None


def test_answers_in_one_piece_have_late_headers_for_another_reason(facts_of):
    calls = [
        make_call_result(number, number * S, headers_ns=number * S + (900 if number % 2 else 1) * MS)
        for number in range(40)
    ]
    assert value(facts_of(calls), "slow_headers_calls") is None
