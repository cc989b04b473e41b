import numpy as np

from aitrace.testing import make_call_result
from reports.answers import answers_from_facts, spread_of
from reports.metric import Sample
from reports.metrics import METRICS


def test_every_metric_has_an_answer(facts_of):
    answers = answers_from_facts(facts_of([make_call_result()]))
    named = {*answers.spreads, *answers.numbers, *answers.tables, *answers.lines}
    assert named == set(METRICS)


def test_a_spread_has_quantiles_where_there_are_enough_values():
    values = np.arange(1.0, 101.0)
    spread = spread_of(Sample(values=values, sessions=np.arange(100) // 10), with_intervals=False)
    assert spread.quantiles == {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": None}
    assert (spread.count, spread.sessions, spread.largest) == (100, 10, 100.0)
    assert spread.p50_interval is None


def test_only_ttft_has_intervals(facts_of):
    calls = [make_call_result(i, session=i // 5, at_ns=i) for i in range(50)]
    spreads = answers_from_facts(facts_of(calls)).spreads
    assert [name for name, spread in spreads.items() if spread.p50_interval] == [
        "ttft_service_ms",
        "ttft_user_ms",
    ]
    assert spreads["ttft_service_ms"].p95_interval is not None
