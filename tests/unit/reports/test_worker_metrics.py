from aitrace.results import WorkerEnd
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_end
from reports.metrics import METRICS

MS = 10**6
S = 10**9


def value(facts, name):
    return METRICS[name].compute(facts)


def call(index, worker, **fields):
    signals = {} if worker is None else {"x-smg-routed-worker-id": worker}
    return make_call_result(index, signals=signals, **fields)


def test_calls_are_told_by_the_worker_that_served_them(facts_of):
    usage = Usage(input_tokens=100, cache_read_tokens=25)
    calls = [
        call(0, "a", usage=usage, first_token_ns=30 * MS),
        call(1, "a", usage=usage, first_token_ns=10 * MS, session=1),
        call(2, "a", error="cut", first_token_ns=20 * MS),
        call(3, "b", usage=Usage(input_tokens=50, cache_read_tokens=50)),
        call(4, None, usage=usage),
        make_call_result(5, unsent="session_lost", sent_ns=None),
    ]
    rows = value(facts_of(calls), "by_worker")
    names = ("worker", "calls", "complete_calls", "sessions", "cache_calls", "input_tokens", "reported_ratio")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("a", 3, 2, 2, 2, 200, 0.25),
        ("b", 1, 1, 1, 1, 50, 1.0),
        (None, 1, 1, 1, 1, 100, 0.25),
    ]
    assert [rows[0][f"ttft_service_{name}"] for name in ("n", "p50_ms", "p95_ms")] == [3, 20.0, None]
    assert value(facts_of(calls), "workers") == 2


def test_without_a_worker_there_is_no_table(facts_of):
    facts = facts_of([make_call_result(0)])
    assert (value(facts, "by_worker"), value(facts, "workers")) == ([], None)


def test_each_process_of_the_client_is_told(facts_of):
    ends = (
        WorkerEnd(sent_calls=7, cpu_ns=2 * S, loop_lag_p99_ns=3 * MS, late_bodies=1),
        WorkerEnd(sent_calls=5, cpu_ns=None, loop_lag_p99_ns=None, lost=True),
    )
    facts = facts_of([], end=make_run_end(ended_ns=10 * S, workers=ends))
    assert value(facts, "client_processes") == [
        {
            "process": 1,
            "sent_calls": 7,
            "cpu_ratio": 0.2,
            "loop_lag_p99_ms": 3.0,
            "late_bodies": 1,
            "lost": False,
        },
        {
            "process": 2,
            "sent_calls": 5,
            "cpu_ratio": None,
            "loop_lag_p99_ms": None,
            "late_bodies": 0,
            "lost": True,
        },
    ]
    assert value(facts_of([], end=None), "client_processes") == []
