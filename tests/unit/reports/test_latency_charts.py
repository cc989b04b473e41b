import pytest

from aitrace.testing import make_call_result
from reports.figures.latency_charts import ttft_by_kind
from reports.summary import report_from_facts

MS = 10**6


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_each_kind_of_call_has_its_median_and_a_95th_percentile_if_there_are_enough(report_of):
    calls = [make_call_result(i, turn_index=0, first_token_ns=(i + 1) * MS) for i in range(40)]
    calls.append(make_call_result(40, turn_index=1, first_token_ns=7 * MS))
    median, high = ttft_by_kind(report_of(calls)).traces
    drawn = dict(zip(median["y"], median["x"], strict=True))
    assert (drawn["turn 0 (n = 40)"], drawn["turn 1 (n = 1)"]) == (20.0, 7.0)
    assert dict(zip(high["y"], high["x"], strict=True))["turn 0 (n = 40)"] == 38.0
    assert "turn 1 (n = 1)" not in high["y"]


def test_the_rows_stand_in_order_and_have_names_of_their_own(report_of):
    calls = [make_call_result(0), make_call_result(1, call_class="subagent")]
    labels = ttft_by_kind(report_of(calls)).layout["yaxis"]["categoryarray"]
    assert len(set(labels)) == len(labels)
    assert [label.split()[0] for label in labels] == [
        "main",
        "sub-agent",
        "turn",
        "turn",
        "prompt",
        "gap",
        "first",
    ]


def test_a_kind_without_a_first_token_is_left_out(report_of):
    figure = ttft_by_kind(report_of([make_call_result(0, first_token_ns=None, error="cut")]))
    assert (figure.traces, figure.note[:15]) == ([], "nothing to draw")
