"""Whatever a replay is judged by is what the report computes from the files of the same run."""

from dataclasses import replace

import pytest

from aitrace.results import Attempt, Scrape
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_end, make_run_header
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.evidence import CallEvidence, ScrapeEvidence, client_lateness_ns
from reports.answers import answers_from_facts
from reports.evidence import evidence_of
from reports.tables import facts_from_run
from reports.testing import make_up_run


def test_opening_a_connection_is_not_the_clients_lateness():
    late = make_call_result(
        due_ns=0,
        dispatched_ns=2 * NS_PER_MS,
        connected_ns=92 * NS_PER_MS,
        sent_ns=93 * NS_PER_MS,
        new_connection=True,
    )
    assert client_lateness_ns(late) == 3 * NS_PER_MS


def test_on_a_reused_connection_all_lateness_is_the_clients():
    late = make_call_result(due_ns=0, dispatched_ns=2, connected_ns=9, sent_ns=10, new_connection=False)
    assert client_lateness_ns(late) == 10


@pytest.mark.parametrize("missing", ["sent_ns", "due_ns"])
def test_a_call_of_which_nothing_was_sent_has_no_lateness(missing):
    assert client_lateness_ns(make_call_result(**{missing: None})) is None


def numbers_of(calls, scrapes=(), end=None):
    counted, read = CallEvidence(), ScrapeEvidence()
    for call in calls:
        counted.add(call)
    for scrape in scrapes:
        read.add(scrape)
    return counted.numbers(lateness_bound_ms=50.0) | read.numbers(end or make_run_end())


def reported(calls, scrapes=(), end=None):
    header = make_run_header(planned_calls=len(calls))
    facts = facts_from_run(header, end or make_run_end(), calls, scrapes, None)
    return evidence_of(facts, answers_from_facts(facts)).numbers


def assert_same(calls, scrapes=(), end=None):
    mine, theirs = numbers_of(calls, scrapes, end), reported(calls, scrapes, end)
    assert mine == pytest.approx({name: theirs[name] for name in mine})


OVERLOADED = {"error": "error_event", "error_text": "no room (503)"}
KINDS = {
    "fine": {},
    "nothing_sent": {"error": "connect", "sent_ns": None},
    "refused": {"error": "refused", "status": 429},
    "refused in the stream": OVERLOADED,
    "broken": {"error": "error_event", "error_text": "died (500)"},
    "malformed": {"error": "malformed"},
    "stopped": {"error": "client_abort"},
    "lost": {"unsent": "session_lost", "sent_ns": None, "end_ns": None},
    "out of time": {"unsent": "duration", "sent_ns": None, "end_ns": None},
    "side call": {"error": "cut", "call_class": "auxiliary"},
    "late": {"due_ns": 0, "sent_ns": 51 * NS_PER_MS, "new_connection": False},
    "no token": {"first_token_ns": None},
    "unparsed": {"unparsed_events": 3},
    "no usage": {"usage": Usage()},
    "cached more than sent": {"usage": Usage(input_tokens=10, cache_read_tokens=20)},
    "thought more than said": {"usage": Usage(reasoning_tokens=7, output_tokens=3)},
    "off plan": {"usage": Usage(input_tokens=1300, output_tokens=50)},
    "no prompt": {"prompt_tokens": 0, "usage": Usage(input_tokens=9)},
    "tried again": {
        "attempts": (
            Attempt(end_ns=0, error="connect", wait_ns=1),
            Attempt(end_ns=1, error="refused", wait_ns=1),
        )
    },
}


@pytest.mark.parametrize("phase", ["measured", "warm_up", "prime"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_counts_as_it_does_in_the_report(kind, phase):
    same_session = make_call_result(2, session=1)
    assert_same(
        [make_call_result(0), make_call_result(1, session=1, phase=phase, **KINDS[kind]), same_session]
    )


def test_calls_of_all_kinds_at_once_count_as_in_the_report():
    assert_same(
        [
            make_call_result(i, session=i // 3, instance=1 + i % 2, **each)
            for i, each in enumerate(KINDS.values())
        ]
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_run_of_some_size_counts_as_in_the_report(seed):
    run = make_up_run(trees=5, calls=8, seed=seed, refused_ratio=0.05)
    assert_same(run.calls, run.scrapes, run.end)


def test_all_that_the_rules_need_beside_the_metrics_is_counted():
    extra = {
        "first_token_calls",
        "tries",
        "unreachable_tries",
        "prime_calls",
        "failed_unmeasured_calls",
        "failed_tries",
        "complete_warm_up_calls",
    }
    assert extra <= set(numbers_of([make_call_result()]))


@pytest.mark.parametrize("reason", ["duration", "interrupted", "worker_lost"])
def test_sessions_cut_by_the_end_of_a_duration_or_of_their_process_are_not_lost(reason):
    numbers = numbers_of([make_call_result(session=3, unsent=reason)])
    assert (numbers["lost_sessions"], numbers["censored_sessions"]) == (0, 1)


@pytest.mark.parametrize("fields", [{"call_class": "auxiliary"}, {"phase": "prime"}])
def test_a_session_outlives_a_failed_title_or_primed_prompt(fields):
    numbers = numbers_of([make_call_result(error="http_error", **fields)])
    assert (numbers["lost_sessions"], numbers["censored_sessions"]) == (0, 0)


def test_a_run_without_calls_has_no_shares():
    numbers = numbers_of([])
    shares = ("usage_ratio", "cache_usage_ratio", "output_size_ratio", "prompt_size_error_ratio")
    assert [numbers[name] for name in shares] == [None] * 4
    assert_same([])


def read(url, *at_s, failed=(), **values):
    good = [Scrape(at_ns=s * NS_PER_S, url=url, values={"running": 1.0, **values}) for s in at_s]
    bad = [Scrape(at_ns=s * NS_PER_S, url=url, error="timeout") for s in failed]
    return sorted([*good, *bad], key=lambda scrape: scrape.at_ns)


READINGS = {
    "none": ([], None, None),
    "one": (read("a", 0), 10.0, None),
    "a hole in the middle": (read("a", 0, 1, 2, 9, 10), 7.0, 1.0),
    "a hole at the end": (read("a", 0, 1, 2), 8.0, 1.0),
    "failures to the end": (read("a", 0, 1, failed=range(2, 11)), 9.0, 1.0),
    "failures from the start": (read("a", *range(6, 11), failed=range(6)), 6.0, 1.0),
    "nothing but failures": (read("a", failed=range(11)), 10.0, 1.0),
    "one page of two away": ([*read("a", *range(11)), *read("b", 0, 5, failed=(6, 7, 8, 9, 10))], 5.0, 1.0),
    "read after the end": (read("a", *range(13)), 1.0, 1.0),
}


@pytest.mark.parametrize("name", READINGS)
def test_readings_count_as_in_the_report_from_the_first_one_tried_to_the_end(name):
    scrapes, longest_s, usual_s = READINGS[name]
    end = make_run_end(ended_ns=10 * NS_PER_S)
    numbers = numbers_of([], scrapes, end)
    assert (numbers["longest_scrape_gap_s"], numbers["median_scrape_gap_s"]) == (longest_s, usual_s)
    assert_same([], scrapes, end)


@pytest.mark.parametrize(
    ("values", "restarts"),
    [((5.0, 6.0, 6.0), 0), ((5.0, 1.0, 2.0), 1), ((5.0, None, 5.0), 1), ((None, 5.0, 4.0), 1)],
)
def test_a_counter_that_fell_or_is_gone_is_a_restart(values, restarts):
    scrapes = [
        Scrape(at_ns=second, url="a", values={} if value is None else {"preemptions": value})
        for second, value in enumerate(values)
    ]
    failed = replace(scrapes[0], at_ns=9, values={}, error="timeout")
    assert numbers_of([], [*scrapes, failed])["engine_restarts"] == restarts
    assert_same([], [*scrapes, failed])
