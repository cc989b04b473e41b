import math

from aitrace.results import Attempt, Scrape
from aitrace.testing import make_call_result, make_run_end
from reports.metrics import METRICS

S = 10**9


def lines(facts, name):
    return [(line.name, line.at_s.tolist(), line.values.tolist()) for line in METRICS[name].compute(facts)]


def test_calls_are_in_flight_from_sent_to_end(facts_of):
    calls = [make_call_result(0, at_ns=0, end_ns=4 * S), make_call_result(1, at_ns=S, end_ns=2 * S)]
    assert lines(facts_of(calls), "calls_in_flight") == [("calls in flight", [0, 1, 2, 4], [1, 2, 1, 0])]


def test_a_call_without_an_end_is_in_flight_to_the_end_of_the_run(facts_of):
    facts = facts_of([make_call_result(0, end_ns=None)], end=make_run_end(ended_ns=7 * S))
    assert lines(facts, "calls_in_flight") == [("calls in flight", [0, 7], [1, 0])]


def test_sessions_are_active_through_their_gaps(facts_of):
    calls = [
        make_call_result(0, at_ns=0, end_ns=S),
        make_call_result(1, at_ns=5 * S, end_ns=6 * S),
        make_call_result(2, at_ns=2 * S, end_ns=3 * S, session=1),
        make_call_result(3, session=2, due_ns=None, sent_ns=None, end_ns=None, unsent="interrupted"),
    ]
    assert lines(facts_of(calls), "sessions_active") == [("sessions active", [0, 2, 3, 6], [1, 2, 1, 0])]


def test_gauges_are_shown_as_they_were_read(facts_of):
    scrapes = [Scrape(at_ns=0, url="a", values={"running": 3.0}), Scrape(at_ns=S, url="a", error="timeout")]
    facts = facts_of([], scrapes=scrapes)
    assert lines(facts, "engine_running") == [("engine: running", [0.0], [3.0])]
    assert lines(facts, "engine_waiting") == []


def test_several_engines_have_a_line_each(facts_of):
    scrapes = [Scrape(at_ns=0, url=url, values={"kv_usage_ratio": 0.5}) for url in ("a", "b")]
    names = [name for name, _, _ in lines(facts_of([], scrapes=scrapes), "engine_kv_usage_ratio")]
    assert names == ["engine: KV cache in use, a", "engine: KV cache in use, b"]


def test_a_call_is_in_backoff_from_the_end_of_a_try_to_the_next_one(facts_of):
    refused = Attempt(sent_ns=0, end_ns=S, status=429, error="refused", wait_ns=3 * S)
    facts = facts_of([make_call_result(0, at_ns=4 * S, attempts=(refused,))])
    assert lines(facts, "calls_in_backoff") == [("calls in backoff", [1.0, 4.0], [1.0, 0.0])]
    assert lines(facts_of([make_call_result(0)]), "calls_in_backoff") == []


def counters(*values):
    return [
        Scrape(
            at_ns=2 * i * S,
            url="a",
            values=dict(zip(("prefix_query_tokens", "prefix_hit_tokens", "preemptions"), of, strict=True)),
        )
        for i, of in enumerate(values)
    ]


def known(line):
    return [(at, value) for at, value in zip(line[1], line[2], strict=True) if not math.isnan(value)]


def test_rates_and_hit_rates_are_told_from_each_reading_to_the_next(facts_of):
    facts = facts_of([], scrapes=counters((0.0, 0.0, 0.0), (100.0, 40.0, 6.0), (100.0, 40.0, 6.0)))
    assert [known(line) for line in lines(facts, "engine_hit_ratio_over_time")] == [[(0.0, 0.4)]]
    assert [known(line) for line in lines(facts, "engine_preemptions_per_s")] == [[(0.0, 3.0), (2.0, 0.0)]]
    assert lines(facts, "engine_rejections_per_s") == []


def test_over_a_restart_of_an_engine_nothing_is_told(facts_of):
    facts = facts_of(
        [], scrapes=counters((50.0, 0.0, 9.0), (100.0, 25.0, 9.0), (10.0, 5.0, 1.0), (20.0, 10.0, 3.0))
    )
    assert [known(line) for line in lines(facts, "engine_hit_ratio_over_time")] == [[(0.0, 0.5), (4.0, 0.5)]]
    assert [known(line) for line in lines(facts, "engine_preemptions_per_s")] == [[(0.0, 0.0), (4.0, 1.0)]]
