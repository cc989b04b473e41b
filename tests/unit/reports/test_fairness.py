import numpy as np
import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result, make_run_end
from reports.measures.fairness import jain_index
from reports.metrics import METRICS

S = 10**9


def value(facts, name):
    return METRICS[name].compute(facts)


@pytest.mark.parametrize(
    ("values", "index"), [([3, 3, 3], 1.0), ([1, 0, 0, 0], 0.25), ([1, 2], 0.9), ([], None), ([0, 0], None)]
)
def test_jains_index_is_1_if_all_are_equal_and_one_nth_if_one_has_everything(values, index):
    assert jain_index(np.array(values, dtype=float)) == (None if index is None else pytest.approx(index))


def test_jobs_and_sessions_per_hour_are_those_that_are_complete(facts_of):
    calls = [
        make_call_result(0),
        make_call_result(1, session=1),
        make_call_result(2, session=2, root=2),
        make_call_result(3, session=3, root=3, error="cut"),
    ]
    facts = facts_of(calls, end=make_run_end(ended_ns=360 * S))
    assert (value(facts, "trees_per_h"), value(facts, "sessions_per_h")) == (20.0, 30.0)


def test_the_hour_begins_with_the_first_measured_call(facts_of):
    calls = [make_call_result(0, phase="warm_up"), make_call_result(1, session=1, root=1, at_ns=180 * S)]
    assert value(facts_of(calls, end=make_run_end(ended_ns=360 * S)), "trees_per_h") == 20.0


def test_concurrency_is_told_as_mean_over_time_and_as_most(facts_of):
    calls = [
        make_call_result(0, at_ns=0, end_ns=4 * S),
        make_call_result(1, at_ns=S, end_ns=2 * S, session=1),
        make_call_result(2, at_ns=9 * S, end_ns=10 * S, session=1),
    ]
    facts = facts_of(calls)
    assert (value(facts, "calls_in_flight_mean"), value(facts, "calls_in_flight_max")) == (0.6, 2)
    assert (value(facts, "sessions_active_mean"), value(facts, "sessions_active_max")) == (1.3, 2)


def test_of_a_run_without_calls_no_concurrency_is_told(facts_of):
    facts = facts_of([])
    assert [
        value(facts, f"{name}_{of}")
        for name in ("calls_in_flight", "sessions_active")
        for of in ("mean", "max")
    ] == [None] * 4


def tree(number, *, calls=1, output_tokens=10, seconds=2):
    usage = Usage(input_tokens=1, output_tokens=output_tokens)
    return [
        make_call_result(10 * number + i, session=number, root=number, end_ns=seconds * S, usage=usage)
        for i in range(calls)
    ]


def test_the_output_of_a_tree_is_told_over_the_time_that_its_calls_took(facts_of):
    facts = facts_of([*tree(0, calls=2), *tree(1, seconds=5), *tree(2, seconds=1)])
    assert value(facts, "tree_output_tokens_per_s").values.tolist() == [5.0, 2.0, 10.0]
    assert value(facts, "tree_speed_jain_ratio") == pytest.approx(17**2 / (3 * (25 + 4 + 100)))
    assert value(facts, "tree_speed_p95_over_p50") is None


def test_a_tree_that_does_not_report_its_output_has_no_speed(facts_of):
    facts = facts_of([*tree(0), make_call_result(10, session=1, root=1, usage=Usage())])
    assert value(facts, "tree_output_tokens_per_s").values.tolist() == [5.0]


def test_unevenness_is_the_95th_percentile_over_the_median(facts_of):
    facts = facts_of([call for number in range(40) for call in tree(number, output_tokens=number + 1)])
    assert value(facts, "tree_speed_p95_over_p50") == pytest.approx(38 / 20)


def test_slowdowns_are_compared_between_sessions_and_between_trees_of_one_size(facts_of):
    builder = TraceBuilder()
    for _ in range(3):
        builder.call(builder.session(), at_ns=0, duration_ns=2 * S)
    calls = [make_call_result(i, session=i, root=i, planned_ns=0, end_ns=(2 + 2 * i) * S) for i in range(3)]
    facts = facts_of(calls, trace=builder.trace())
    assert value(facts, "slowdown_jain_ratio") == pytest.approx(6**2 / (3 * (1 + 4 + 9)))
    (row,) = value(facts, "trees_by_size")
    assert (row["calls_from"], row["calls_to"], row["trees"]) == (1, 2, 3)
    assert (row["slowdown_n"], row["slowdown_p50_ratio"], row["slowdown_p95_ratio"]) == (3, 2.0, None)
    assert row["slowdown_jain_ratio"] == pytest.approx(36 / 42)


def test_trees_are_bucketed_by_the_number_of_their_calls(facts_of):
    facts = facts_of([*tree(0), *tree(1, calls=3), *tree(2, calls=9)])
    rows = value(facts, "trees_by_size")
    assert [(row["calls_from"], row["calls_to"], row["trees"]) for row in rows] == [(1, 2, 1), (3, 9, 2)]
