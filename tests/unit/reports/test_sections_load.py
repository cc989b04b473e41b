import pytest

from aitrace.results import ClientCheck, Scrape, WorkerEnd
from aitrace.testing import make_call_result, make_run_end
from reports.sections.load import client_pairs, load_section, processes_table, workers_table
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_readings_are_summed_up(report_of):
    run = make_up_run(trees=2, calls=4)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    client = dict(client_pairs(report))
    assert (
        client["Readings of the engine's metrics"]
        == f"{len(run.scrapes)}, 0 failed, longest time without one 2 s"
    )
    assert (
        dict(client_pairs(report_of([], end=make_run_end())))["Readings of the engine's metrics"]
        == "none were taken"
    )


def test_a_single_reading_has_no_time_without_one(report_of):
    client = dict(client_pairs(report_of([], scrapes=[Scrape(at_ns=0, url="u")], end=None)))
    assert client["Readings of the engine's metrics"].endswith("longest time without one –")


def test_a_trial_before_the_run_stands_beside_the_clients_numbers(report_of):
    check = ClientCheck(
        calls_per_s=20.0,
        prompt_tokens=100,
        output_tokens=20,
        calls=100,
        failed_calls=0,
        reached_events_per_s=400.0,
        workers=1,
        ttft_error_p50_ns=150_000,
        ttft_error_p99_ns=600_000,
        lateness_p50_ns=100_000,
        lateness_p99_ns=1_500_000,
        cpu_per_event_ns=30_000,
        cpu_per_call_ns=900_000,
    )
    client = dict(client_pairs(report_of([], client_check=check)))
    assert client["TTFT error in a trial at 20 calls/s and 400 events/s"] == "p50 0.15 ms, p99 0.6 ms"
    assert client["lateness in that trial"] == "p50 0.1 ms, p99 1.50 ms"


def test_the_section_has_the_load_over_time_first(report_of):
    assert load_section(report_of([])).blocks[0].id == "load-time"


def test_workers_are_told_those_of_unknown_ones_apart(report_of):
    calls = [make_call_result(0, signals={"x-smg-routed-worker-id": "w"}), make_call_result(1)]
    rows = workers_table(report_of(calls).answers).rows
    assert [row[0] for row in rows] == ["w", "not told"]
    assert rows[0][-3:] == ("1", "250", "n < 40")


def test_processes_of_the_client_are_told_if_it_was_more_than_one(report_of):
    ends = (
        WorkerEnd(sent_calls=3, cpu_ns=10**9, loop_lag_p99_ns=10**6),
        WorkerEnd(sent_calls=0, cpu_ns=None, loop_lag_p99_ns=None, lost=True),
    )
    rows = processes_table(report_of([], end=make_run_end(ended_ns=10**10, workers=ends)).answers).rows
    assert rows == (("1", "3", "10.0 %", "1.00", "0", "no"), ("2", "0", "–", "–", "0", "yes"))


def test_tables_of_workers_are_left_out_where_nothing_is_known(report_of):
    kinds = [block.kind for block in load_section(report_of([make_call_result()])).blocks]
    assert kinds == ["figure", "words", "pairs"]
