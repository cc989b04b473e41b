"""A run as a benchmark report of llm-d."""

import math
import statistics
from dataclasses import replace

import orjson
import pytest

from aitrace.codec import encode_record
from aitrace.results import Scrape
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_end, make_run_header
from reports.export.llm_d import llm_d_chunks
from reports.export.testing import make_source, source_of_run
from reports.summary import json_from_report, report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run

RUN = make_up_run(trees=12, calls=20, seed=4, refused_ratio=0.02)
LINES = [orjson.loads(encode_record(call)) for call in RUN.calls]
SENT = [line for line in LINES if "sent_ns" in line]
COMPLETE = [line for line in SENT if "error" not in line]

# What the published schema (0.2.1) allows at the places that are written, and the units of each statistic.
STATISTICS = {
    "requests": {"input_length": "count", "output_length": "count", "request_size": "bytes"},
    "latency": {
        "time_to_first_token": "s",
        "normalized_time_per_output_token": "s/token",
        "time_per_output_token": "s/token",
        "request_latency": "s",
    },
    "throughput": {
        "input_token_rate": "tokens/s",
        "output_token_rate": "tokens/s",
        "total_token_rate": "tokens/s",
        "request_rate": "queries/s",
    },
}
OF_A_STATISTIC = {"units", "mean", "stddev", "min", "max"} | {
    f"p{name}" for name in ("0p1", "1", "5", "10", "25", "50", "75", "90", "95", "99", "99p9")
}


def report_of(source):
    return orjson.loads(b"".join(llm_d_chunks(source)))


def requests_of(source):
    return report_of(source)["results"]["request_performance"]["aggregate"]


def sessions_of(source):
    return report_of(source)["results"]["session_performance"]["sessions"]


def inverted_cdf(values, q):
    return sorted(values)[max(1, math.ceil(round(q * len(values), 9))) - 1]


def test_counts_are_those_of_the_lines():
    told = requests_of(source_of_run(RUN))["requests"]
    assert len(COMPLETE) > 200
    assert (told["total"], told["failures"], told["incomplete"]) == (len(SENT), len(SENT) - len(COMPLETE), 0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "time_to_first_token",
            [(c["first_token_ns"] - c["sent_ns"]) / 1e9 for c in SENT if "first_token_ns" in c],
        ),
        ("request_latency", [(c["end_ns"] - c["sent_ns"]) / 1e9 for c in COMPLETE]),
        (
            "time_per_output_token",
            [
                (c["last_token_ns"] - c["first_token_ns"]) / 1e9 / (c["usage"]["output_tokens"] - 1)
                for c in COMPLETE
            ],
        ),
        (
            "normalized_time_per_output_token",
            [(c["end_ns"] - c["sent_ns"]) / 1e9 / c["usage"]["output_tokens"] for c in COMPLETE],
        ),
    ],
)
def test_times_are_computed_from_the_lines(name, values):
    told = requests_of(source_of_run(RUN))["latency"][name]
    assert told["mean"] == pytest.approx(statistics.fmean(values))
    assert told["stddev"] == pytest.approx(statistics.pstdev(values))
    assert (told["min"], told["max"]) == pytest.approx((min(values), max(values)))
    for quantile, q in (("p1", 0.01), ("p5", 0.05), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert told[quantile] == pytest.approx(inverted_cdf(values, q))


def test_numbers_are_those_of_our_own_report():
    facts = facts_from_run(RUN.header, RUN.end, RUN.calls, RUN.scrapes, RUN.trace)
    own = json_from_report(report_from_facts(facts))
    told, sessions = requests_of(source_of_run(RUN)), sessions_of(source_of_run(RUN))
    numbers, distributions = own["numbers"], own["distributions"]
    assert told["throughput"]["output_token_rate"]["mean"] == pytest.approx(numbers["output_tokens_per_s"])
    assert told["latency"]["time_to_first_token"]["p95"] * 1e3 == pytest.approx(
        distributions["ttft_service_ms"]["p95"]
    )
    assert told["latency"]["time_per_output_token"]["p50"] * 1e3 == pytest.approx(
        distributions["itl_ms"]["p50"]
    )
    assert (sessions["succeeded"], sessions["failed"]) == (
        numbers["complete_sessions"],
        numbers["lost_sessions"],
    )
    assert sessions["session_duration"]["p50"] == pytest.approx(distributions["session_duration_s"]["p50"])


def test_sessions_are_counted_with_the_calls_that_were_not_sent():
    told = sessions_of(source_of_run(RUN))
    per_session = [sum(c["session"] == one.id for c in LINES) for one in RUN.trace.sessions]
    assert told["total"] == len(RUN.trace.sessions)
    assert (told["total_events"], told["total_events_completed"]) == (len(LINES), len(COMPLETE))
    assert told["total_events_cancelled"] == sum("unsent" in c for c in LINES)
    assert told["events_per_session"]["mean"] == pytest.approx(statistics.fmean(per_session))


def test_statistics_have_the_units_and_names_of_the_schema():
    source = source_of_run(RUN)
    sized = replace(
        source, calls=lambda: (replace(call, request_bytes=5, events=9) for call in source.calls())
    )
    told = requests_of(sized)
    for group, units in STATISTICS.items():
        found = {name: one["units"] for name, one in told[group].items() if isinstance(one, dict)}
        assert found == units
        for one in told[group].values():
            assert not isinstance(one, dict) or set(one) <= OF_A_STATISTIC


def test_a_sample_that_is_too_small_has_no_outer_quantiles():
    told = requests_of(make_source([make_call_result(index) for index in range(25)]))
    assert {name for name in told["latency"]["request_latency"] if name.startswith("p")} == {
        "p10", "p25", "p50", "p75", "p90"
    }  # fmt: skip


@pytest.mark.parametrize("phase", ["warm_up", "prime"])
def test_what_was_not_measured_counts_nothing(phase):
    calls = [
        make_call_result(0, phase=phase),
        make_call_result(2, at_ns=4_000_000_000, session=1),
    ]
    end = make_run_end(ended_ns=9_000_000_000)
    told = requests_of(make_source(calls, end=end))
    assert told["requests"]["total"] == 1
    assert told["throughput"]["output_token_rate"]["mean"] == 100 / 5
    assert sessions_of(make_source(calls, end=end))["total"] == 1


def test_answers_without_usage_or_tokens_have_no_token_times():
    calls = [
        make_call_result(0, usage=Usage(), events=3),
        make_call_result(1, usage=Usage(output_tokens=0), events=3),
        make_call_result(2, usage=Usage(output_tokens=1), events=3),
        make_call_result(3, usage=Usage(output_tokens=2), events=3, first_token_ns=None),
    ]
    told = requests_of(make_source(calls))
    assert "time_per_output_token" not in told["latency"]
    assert told["latency"]["normalized_time_per_output_token"]["max"] == 1.0
    assert told["requests"]["output_length"]["mean"] == 1.0
    assert "input_length" not in told["requests"]


def test_calls_that_the_end_of_the_run_cut_are_incomplete_and_no_failures():
    calls = [make_call_result(0, error="client_abort"), make_call_result(1, error="refused", status=429)]
    source = make_source([*calls, make_call_result(2, unsent="duration", sent_ns=None, due_ns=None)])
    told = requests_of(source)["requests"]
    assert (told["total"], told["failures"], told["incomplete"]) == (2, 1, 1)
    assert report_of(source)["results"]["observability"]["drop_rate"] == {"units": "fraction", "mean": 0.5}


def test_times_are_iso_8601_in_utc():
    header = make_run_header(started_unix_ns=1_700_000_000_123_456_789)
    told = report_of(
        make_source([make_call_result()], header=header, end=make_run_end(ended_ns=2_500_000_000))
    )
    assert told["run"]["time"] == {
        "start": "2023-11-14T22:13:20.123456Z",
        "end": "2023-11-14T22:13:22.623456Z",
        "duration": "PT2.500000S",
    }


def test_a_run_that_was_cut_says_so_and_lasts_to_its_last_call():
    source = make_source([make_call_result()], header=make_run_header(planned_calls=4), end=None)
    told = report_of(source)
    assert told["run"]["description"].endswith("the run was cut: 3 of 4 planned calls left no result")
    assert told["run"]["keywords"][-1] == "cut"
    assert told["run"]["time"]["duration"] == "PT1.000000S"
    assert sessions_of(source)["succeeded"] == 0


def test_readings_are_series_of_a_component_that_the_stack_names():
    scrape = Scrape(at_ns=1_000_000_000, url="http://a/", values={"kv_usage_ratio": 0.5, "rejections": 3.0})
    told = report_of(make_source([make_call_result()], scrapes=[scrape]))
    (component,) = told["results"]["observability"]["components"]
    assert component == {
        "component_label": "http://a/",
        "time_series": {
            "kv_cache_usage": {"units": "fraction", "series": [{"ts": "2023-11-14T22:13:21Z", "value": 0.5}]}
        },
    }
    (stack,) = told["scenario"]["stack"]
    assert (stack["metadata"]["label"], stack["standardized"]["kind"]) == ("http://a/", "generic")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"workers": 3, "concurrency": 8}, (3, 8)),
        ({"workers": 0, "concurrency": None}, (1, None)),
        ({}, (1, None)),
    ],
)
def test_load_tells_workers_and_lanes_where_they_are_known(options, told):
    load = report_of(make_source([make_call_result()], header=make_run_header(options=options)))["scenario"][
        "load"
    ]
    standard = load["standardized"]
    assert (standard["parallelism"], standard.get("concurrency")) == told
    assert standard["input_seq_len"] == {"distribution": "other", "value": 1000.0, "min": 1000, "max": 1000}


def test_answers_whose_length_was_not_forced_have_no_length_by_plan():
    free = replace(make_run_header().calibration, output_forced=False)
    source = make_source([make_call_result()], header=make_run_header(calibration=free))
    assert "output_seq_len" not in report_of(source)["scenario"]["load"]["standardized"]


def test_a_run_without_calls_is_a_report():
    told = report_of(make_source([], end=None, header=make_run_header(planned_calls=1)))
    assert told["version"] == "0.2.1"
    assert told["results"]["request_performance"]["aggregate"]["requests"]["total"] == 0
