"""What results say of the plan, and which of them are of the warm-up."""

from dataclasses import replace

import pytest

from aitrace.results import CallResult
from aitrace.testing import make_call_result, make_trace
from replayer.planned_results import planned_fields, with_phase
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan

END_NS = 1_000


def test_planned_times_count_from_the_start_of_the_run():
    plan = build_plan(make_trace(sessions=1, calls=2), LoadOptions())
    planned = plan.call(1)
    result = CallResult(**planned_fields(planned, "run-1", 77), unsent="worker_lost")
    assert (result.index, result.request_id, result.phase) == (1, "run-1", "measured")
    assert result.planned_ns == 77 + planned.planned_ns


def test_a_planned_time_that_is_not_known_stays_so():
    planned = replace(build_plan(make_trace(), LoadOptions()).call(1), planned_ns=None)
    assert planned_fields(planned, "run-1", 77)["planned_ns"] is None


@pytest.mark.parametrize(
    ("due_ns", "at_ns", "phase"),
    [
        (999, 5_000, "warm_up"),
        (1_000, 5_000, "measured"),
        (1_000, 0, "measured"),
        (None, 999, "warm_up"),
        (None, 1_000, "measured"),
    ],
)
def test_a_call_is_of_the_warm_up_by_its_due_time_or_else_by_when_it_was_given_up(due_ns, at_ns, phase):
    result = make_call_result(due_ns=due_ns)
    assert with_phase(result, at_ns, END_NS).phase == phase


def test_without_a_warm_up_by_time_all_stays_as_planned():
    assert with_phase(make_call_result(due_ns=0), 0, None).phase == "measured"


def test_a_call_that_primes_a_prompt_is_not_of_the_warm_up():
    assert with_phase(make_call_result(due_ns=0, phase="prime"), 0, END_NS).phase == "prime"
