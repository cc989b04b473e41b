import pytest

from aitrace.testing import make_call_result
from replayer.search.bisection import Bracket
from replayer.search.search_result import (
    SearchResult,
    Step,
    answer_lines,
    level_text,
    outcome_of_step,
    search_json,
    step_line,
    step_name,
)
from replayer.search.slo import conditions_from_text, findings


def found(text="ttft_p95<2s", calls=40):
    return findings(conditions_from_text(text), [make_call_result(index) for index in range(calls)])


def step(outcome="held", **fields):
    usual = {"number": 3, "level": 8, "is_repeat": False, "run": "found/step-03-lanes-8", "findings": found()}
    return Step(**usual | {"outcome": outcome, "stopped_for": None, "doubts": ()} | fields)


def result(held=None, not_held=None, doubt=None, by="concurrency"):
    return SearchResult(
        slo="ttft_p95<2s", by=by, steps=(step(),), bracket=Bracket(held=held, not_held=not_held), doubt=doubt
    )


@pytest.mark.parametrize(
    ("text", "calls", "state", "outcome"),
    [
        ("ttft_p95<2s", 40, {}, "held"),
        ("ttft_p95<100ms", 40, {}, "not_held"),
        ("ttft_p95<2s", 39, {}, "unclear"),
        ("ttft_p95<2s", 40, {"ran_out": True}, "unclear"),
        ("ttft_p95<100ms", 40, {"ran_out": True}, "not_held"),
        ("ttft_p95<2s", 40, {"stopped_for": "the calls waiting grow"}, "not_held"),
        ("ttft_p95<100ms", 40, {"is_client_limited": True}, "client_limited"),
    ],
)
def test_a_step_comes_to_what_its_run_can_tell(text, calls, state, outcome):
    usual = {"stopped_for": None, "is_client_limited": False, "ran_out": False}
    assert outcome_of_step(found(text, calls), **usual | state) == outcome


def test_levels_and_steps_have_names():
    assert (level_text(1, "concurrency"), level_text(8, "concurrency")) == ("1 lane", "8 lanes")
    assert level_text(0.25, "rate") == "0.25 trees/s"
    assert step_name(3, 8, "concurrency") == "step-03-lanes-8"
    assert step_name(12, 0.25, "rate") == "step-12-rate-0.25"


def test_a_step_is_told_in_one_line():
    assert step_line(step(), "concurrency") == "step  3  8 lanes: holds; ttft_p95 250 ms (n = 40)"
    line = step_line(step("not_held", is_repeat=True, stopped_for="the calls waiting grow"), "concurrency")
    assert line.startswith("step  3  8 lanes again: does not hold;")
    assert line.endswith("stopped early: the calls waiting grow")
    assert step_line(step("client_limited", doubts=("late",)), "concurrency").endswith("; late")
    assert "late" not in step_line(step("held", doubts=("late",)), "concurrency")


@pytest.mark.parametrize(
    ("held", "not_held", "answer", "bracket"),
    [
        (8, 9, "8 lanes", "8 lanes held, 9 lanes did not"),
        (8, None, "at least 8 lanes, the highest played", "8 lanes held, none did not"),
        (None, 1, "below 1 lane, the lowest played", "none held, 1 lane did not"),
        (None, None, "not known", "none held, none did not"),
    ],
)
def test_the_answer_comes_with_its_bracket(held, not_held, answer, bracket):
    assert answer_lines(result(held, not_held)) == [f"answer    {answer}", f"bracket   {bracket}"]


def test_a_doubt_is_said_and_is_the_exit_code():
    doubtful = result(8, 9, doubt="the repeat contradicts")
    assert answer_lines(doubtful)[-1] == "in doubt  the repeat contradicts"
    assert (doubtful.exit_code, result(8, 9).exit_code) == (1, 0)


def test_json_has_each_step_with_its_conditions():
    shown = search_json(result(8, 9))
    assert shown["bracket"] == {"held": 8, "not_held": 9}
    assert shown["unit"] == "lanes"
    assert shown["steps"][0]["conditions"] == [
        {"condition": "ttft_p95<2s", "verdict": "kept", "ms": 250.0, "count": 40, "needed": 40}
    ]
    assert search_json(result(by="rate"))["unit"] == "trees/s"


def test_json_gives_shares_as_ratios_and_what_is_not_known_as_null():
    steps = (step(findings=found("failed<10%")), step(findings=found(calls=0)))
    shown = search_json(
        SearchResult(slo="", by="rate", steps=steps, bracket=Bracket(held=None, not_held=None), doubt=None)
    )
    assert shown["steps"][0]["conditions"][0]["ratio"] == 0.0
    assert shown["steps"][1]["conditions"][0]["ms"] is None
