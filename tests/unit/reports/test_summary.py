import orjson
import pytest

from aitrace.testing import make_call_result
from reports.summary import json_from_report, report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture(scope="module")
def made_up():
    run = make_up_run(trees=6, calls=12, refused_ratio=0.02)
    return report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))


def test_the_json_survives_a_round_trip(made_up):
    value = json_from_report(made_up)
    assert orjson.loads(orjson.dumps(value)) == value


def test_the_json_has_the_documented_fields(made_up):
    value = json_from_report(made_up)
    assert list(value) == ["version", "kind", "verdict", "run", "trace", "distributions", "numbers", "tables"]
    assert list(value["distributions"]["ttft_user_ms"]) == [
        "unit", "n", "sessions", "p50", "p90", "p95", "p99", "max", "p50_interval", "p95_interval",
    ]  # fmt: skip
    assert value["verdict"]["doubts"][0].keys() == {"name", "what", "cause", "action", "weighs"}
    assert value["run"]["model"] == "model-a"


def test_an_interval_is_low_and_high(made_up):
    ttft = json_from_report(made_up)["distributions"]["ttft_service_ms"]
    low, high = ttft["p50_interval"]
    assert low <= ttft["p50"] <= high


def test_a_run_with_refusals_is_not_fine(made_up):
    assert not made_up.is_fine
    assert made_up.verdict.startswith("in doubt: ")
    assert json_from_report(made_up)["verdict"]["fine"] is False


def test_without_a_trace_and_an_end_both_are_null(facts_of):
    value = json_from_report(report_from_facts(facts_of([make_call_result()], end=None)))
    assert value["trace"] is None
    assert value["run"]["end"] is None
    assert value["distributions"]["ttft_service_ms"]["p50_interval"] is None
