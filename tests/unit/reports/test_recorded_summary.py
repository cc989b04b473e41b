"""A trace judged, and its JSON."""

import orjson

from aitrace.testing import TraceBuilder, make_trace
from reports.recorded.prices import Prices
from reports.recorded.summary import json_from_trace_report, report_from_trace


def test_a_fine_trace_says_so():
    report = report_from_trace(make_trace(sessions=6, calls=5), "x.aitrace")
    assert (report.is_fine, report.verdict, report.trace.header.unit) == (True, "fine", "tokens")


def test_the_json_has_verdict_trace_numbers_and_tables():
    prices = Prices(by_model={"model-a": {"input": 1.0, "output": 1.0}})
    trace = make_trace(sessions=2, source="weka", unknown=("something",))
    value = orjson.loads(orjson.dumps(json_from_trace_report(report_from_trace(trace, "x.aitrace", prices))))
    assert (value["version"], value["kind"], value["prices"]) == (
        1,
        "trace",
        {"model-a": {"input": 1.0, "output": 1.0}},
    )
    assert value["verdict"]["doubts"][0].keys() == {"name", "what", "cause", "action", "weighs"}
    assert (value["trace"]["name"], value["trace"]["unknown"], value["trace"]["has_footer"]) == (
        "x.aitrace", ["something"], True,
    )  # fmt: skip
    assert (value["numbers"]["calls"], len(value["tables"]["sessions"]), value["unpriced_calls"]) == (
        6,
        2,
        {},
    )


def test_a_trace_without_calls_is_json_too():
    value = json_from_trace_report(report_from_trace(TraceBuilder().trace(), "x"))
    assert orjson.dumps(value)
    assert (value["prices"], value["unpriced_calls"], value["tables"]["sessions"]) == (None, None, [])
