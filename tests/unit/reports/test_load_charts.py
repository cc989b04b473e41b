import pytest

from aitrace.results import Scrape
from aitrace.testing import make_call_result
from reports.figures.load_charts import load_over_time
from reports.summary import report_from_facts

S = 10**9


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_the_engines_gauges_lie_below_the_clients_calls_on_one_axis_of_time(report_of):
    values = {"running": 3.0, "waiting": 1.0, "kv_usage_ratio": 0.4, "preemptions": 0.0}
    scrapes = [Scrape(at_ns=i * S, url="u", values=values | {"preemptions": float(i)}) for i in range(2)]
    figure = load_over_time(report_of([make_call_result(0)], scrapes=scrapes))
    assert [(trace["name"], trace["yaxis"]) for trace in figure.traces] == [
        ("calls in flight", "y"),
        ("sessions active", "y"),
        ("engine: running", "y2"),
        ("engine: waiting", "y2"),
        ("engine: KV cache in use", "y3"),
        ("engine: preemptions", "y4"),
    ]
    assert figure.layout["xaxis"]["anchor"] == "y4"


def test_a_counter_that_never_grew_has_no_panel(report_of):
    scrapes = [Scrape(at_ns=i * S, url="u", values={"rejections": 5.0}) for i in range(3)]
    assert "yaxis2" not in load_over_time(report_of([make_call_result(0)], scrapes=scrapes)).layout


def test_several_engines_differ_by_their_dashes(report_of):
    scrapes = [Scrape(at_ns=0, url=url, values={"running": 1.0}) for url in "ab"]
    _, _, first, second = load_over_time(report_of([make_call_result(0)], scrapes=scrapes)).traces
    assert (first["name"], second["name"]) == ("engine: running, a", "engine: running, b")
    assert first["line"]["color"] == second["line"]["color"]
    assert first["line"]["dash"] != second["line"]["dash"]


def test_without_an_engine_only_the_client_is_drawn(report_of):
    figure = load_over_time(report_of([make_call_result(0)]))
    assert {trace["yaxis"] for trace in figure.traces} == {"y"}
