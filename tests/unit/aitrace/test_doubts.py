"""The rules themselves; what a report and a replay bring for them is tested in their packages."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from aitrace import doubts
from aitrace.doubts import Doubt, Evidence, find_doubts, is_fine, reasons_of, verdict_line, weighty_first
from aitrace.results import WorkerEnd
from aitrace.testing import make_run_end, make_run_header

S = 10**9
DOCS = Path(__file__).parents[3] / "docs" / "report.md"
FINE = {"sent_calls": 200, "complete_calls": 200, "first_token_calls": 200, "tries": 200}
GROUPS = {
    "slow_headers_calls": 20,
    "slow_headers_from_ms": 900.0,
    "slow_headers_p50_ms": 1000.0,
    "fast_headers_p50_ms": 10.0,
}


def judged(
    end="fine", *, forced=True, history="recorded", options=None, lines_lost=0, has_trace=True, **numbers
):
    header = make_run_header(history=history, options=options or {})
    evidence = Evidence(
        numbers={**FINE, **numbers},
        header=replace(header, calibration=replace(header.calibration, output_forced=forced)),
        end=make_run_end() if end == "fine" else end,
        lines_lost=lines_lost,
        has_trace=has_trace,
    )
    return find_doubts(evidence)


def weights(**facts):
    return {doubt.name: doubt.weighs for doubt in judged(**facts)}


def test_lost_sessions_are_set_against_those_that_are_measured():
    (doubt,) = judged(planned_sessions=120, unmeasured_sessions=59, lost_sessions=61)
    assert doubt.what == "61 of 61 sessions lost"


def test_what_is_not_known_is_no_reason():
    assert judged() == ()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"end": None}, {"run_cut": True}),
        ({"end": None, "missing_calls": 3}, {"run_cut": True}),
        ({"end": make_run_end(interrupted=True)}, {"interrupted": True}),
        ({"end": make_run_end(cut_ns=1)}, {"censored": False}),
        ({"end": make_run_end(cut_ns=1, ran_out_ns=1)}, {"lanes_ran_out": True, "censored": False}),
        ({"unmeasured_calls": 3, "prime_calls": 1}, {"unmeasured": False}),
        ({"lines_lost": 1}, {"lines_lost": True}),
        ({"missing_calls": 1}, {"calls_missing": True}),
        ({"has_trace": False}, {"trace_missing": False}),
        ({"late_calls": 2}, {"client_late": False}),
        ({"late_calls": 3}, {"client_late": True}),
        ({"late_calls": 1, "sent_calls": 30}, {"client_late": False}),
        ({"late_calls": 2, "sent_calls": 30}, {"client_late": True}),
        ({"loop_lag_p99_ms": 50.0}, {}),
        ({"loop_lag_p99_ms": 50.1}, {"loop_lag": True}),
        ({"complete_calls": 0}, {"nothing_complete": True}),
        ({"complete_calls": 0, "first_token_calls": 0}, {"nothing_complete": True}),
        ({"refused_calls": 2, "overload_calls": 2}, {"refusals": True}),
        ({"refused_calls": 2, "overload_calls": 3, "failed_calls": 1}, {"refusals": True, "overload": True}),
        ({"malformed_calls": 1, "failed_calls": 1}, {"malformed": True}),
        ({"malformed_calls": 1, "failed_calls": 2}, {"malformed": True, "errors": True}),
        ({"unreachable_tries": 10}, {}),
        ({"unreachable_tries": 11}, {"unreachable": True}),
        ({"lost_sessions": 1}, {"lost_sessions": True}),
        ({**GROUPS, "headers_queue_correlation": 0.3}, {"holding": False}),
        ({**GROUPS, "headers_queue_correlation": 0.29}, {"headers_two_groups": False}),
        ({**GROUPS, "headers_queue_correlation": None}, {"headers_two_groups": False}),
        ({"unparsed_events": 1}, {"unparsed_events": True}),
        ({"contradicting_usage_calls": 1}, {"usage_contradicts": True}),
        ({"prompt_size_error_ratio": 0.05, "output_size_ratio": 0.95, "usage_ratio": 0.95}, {}),
        ({"prompt_size_error_ratio": 0.051}, {"prompt_size_off": True}),
        ({"output_size_ratio": 0.949}, {"output_short": True}),
        ({"output_size_ratio": 0.0}, {"output_short": True}),
        ({"usage_ratio": 0.949}, {"usage_unreported": True}),
        ({"cache_usage_ratio": 0.949}, {"cache_unreported": False}),
        ({"cache_lost_tokens": -2, "cache_input_tokens": 1000}, {}),
        ({"cache_lost_tokens": -3, "cache_input_tokens": 1000}, {"cache_above_bound": False}),
        ({"cache_lost_tokens": -21, "cache_input_tokens": 1000}, {"cache_above_bound": True}),
        (
            {"cache_lost_tokens": -21, "cache_input_tokens": 1000, "history": "live"},
            {"cache_above_bound": False},
        ),
        ({"engine_query_tokens": 1111, "input_tokens": 1000}, {"engine_window": False}),
        ({"engine_query_tokens": 1099, "input_tokens": 1000}, {}),
        ({"engine_restarts": 1}, {"engine_restarted": True}),
        ({"scrapes": 20, "failed_scrapes": 1}, {}),
        ({"scrapes": 20, "failed_scrapes": 2}, {"scrape_holes": True}),
        ({"scrapes": 20, "longest_scrape_gap_s": 5.0, "median_scrape_gap_s": 1.0}, {}),
        ({"scrapes": 20, "longest_scrape_gap_s": 5.1, "median_scrape_gap_s": 1.0}, {"scrape_holes": True}),
        (
            {
                "scrapes": 20,
                "longest_scrape_gap_s": 5.1,
                "median_scrape_gap_s": 0.2,
                "options": {"metrics_every_s": 1.1},
            },
            {},
        ),
        ({"scrapes": 20, "longest_scrape_gap_s": 5.1}, {}),
        ({"loop_lag_p99_ms": 50.1, "options": {"max_lateness_ms": 60}}, {}),
        ({"first_token_calls": 199}, {"few_calls": False}),
        ({"first_token_calls": 1}, {"few_calls": False}),
        ({"first_token_calls": 200}, {}),
    ],
)
def test_each_rule_has_its_bound_and_says_whether_it_weighs(facts, expected):
    assert weights(**facts) == expected


CUT = make_run_end(cut_ns=1)


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({}, "the endpoint was not there"),
        ({"end": CUT, "failed_tries": 1}, "the endpoint was not there"),
        ({"end": CUT}, "the run was over before the first answer was"),
        ({"end": make_run_end(interrupted=True)}, "the run was over before the first answer was"),
        ({"end": None}, "the run was over before the first answer was"),
        ({"end": CUT, "complete_warm_up_calls": 4}, "the warm-up left nothing to measure: 4 calls complete"),
        ({"complete_warm_up_calls": 4, "failed_calls": 1, "failed_tries": 1}, "the endpoint was not there"),
        ({"complete_warm_up_calls": 4, "refused_calls": 1, "failed_tries": 1}, "the endpoint was not there"),
        ({"end": CUT, "complete_warm_up_calls": 4, "failed_tries": 1}, "the warm-up left nothing to measure"),
    ],
)
def test_that_nothing_is_complete_has_the_cause_that_the_other_numbers_leave(facts, cause):
    doubts_of = {doubt.name: doubt for doubt in judged(complete_calls=0, first_token_calls=0, **facts)}
    doubt = doubts_of["nothing_complete"]
    assert doubt.cause.startswith(cause)
    assert doubt.what.endswith("after the warm-up") == ("warm-up" in cause)
    assert ("--duration" in doubt.action) == (facts.get("end") == CUT and "endpoint" not in cause)


def test_a_process_that_was_lost_weighs():
    gone = WorkerEnd(sent_calls=1, cpu_ns=None, loop_lag_p99_ns=None, lost=True)
    assert weights(end=make_run_end(workers=(gone,))) == {"workers_lost": True}


def test_short_answers_have_another_cause_where_their_length_was_not_forced():
    causes = {judged(output_size_ratio=0.5, forced=forced)[0].cause for forced in (True, False)}
    assert len(causes) == 2


def test_what_weighs_comes_first():
    names = [doubt.name for doubt in judged(unmeasured_calls=1, first_token_calls=50, engine_restarts=1)]
    assert names == ["engine_restarted", "unmeasured", "few_calls"]


def test_the_verdict_names_what_weighs_and_nothing_else():
    found = (Doubt(name="a", what="one", cause=""), Doubt(name="b", what="two", cause="", weighs=False))
    assert (reasons_of(found), verdict_line(found), verdict_line(found[1:])) == (
        ("one",),
        "in doubt: one",
        "fine",
    )


def test_the_docs_list_every_doubt():
    listed = re.findall(r"^\| `(\w+)` \| .* \| (?:yes|no|only).* \|$", DOCS.read_text(), re.MULTILINE)
    named = re.findall(r'name="(\w+)"', Path(doubts.__file__).read_text())
    assert sorted(listed) == sorted(named)


def test_notes_come_last_in_their_order_and_leave_what_they_are_on_fine():
    notes = [Doubt(name=name, what=name, cause="", weighs=False) for name in "ab"]
    weighty = Doubt(name="c", what="c", cause="")
    assert [doubt.name for doubt in weighty_first([notes[0], weighty, notes[1]])] == ["c", "a", "b"]
    assert (is_fine(notes), is_fine([*notes, weighty]), is_fine([])) == (True, False, True)
