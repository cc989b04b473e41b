import pytest

from aitrace.results import Attempt
from aitrace.testing import make_call_result, make_run_end
from reports.figures.admission_charts import tries_over_time
from reports.summary import report_from_facts

S = 10**9


@pytest.fixture
def report_of(facts_of):
    def build(calls):
        return report_from_facts(facts_of(calls, end=make_run_end(ended_ns=4 * S)))

    return build


def drawn(figure):
    return {trace["name"]: trace for trace in figure.traces}


def test_a_run_without_a_refusal_has_only_its_outcomes(report_of):
    figure = tries_over_time(report_of([make_call_result(0), make_call_result(1, at_ns=2 * S, error="cut")]))
    assert [(trace["name"], sum(trace["y"])) for trace in figure.traces] == [
        ("complete", 1),
        ("failed otherwise", 1),
    ]
    assert "yaxis2" not in figure.layout
    assert "n = 2; bins of 0.1 s" in figure.note


def test_refusals_have_a_panel_of_shares_and_tries_one_with_the_backoff(report_of):
    refused = Attempt(sent_ns=S, headers_ns=S, end_ns=S, status=429, error="refused", wait_ns=2 * S)
    figure = tries_over_time(report_of([make_call_result(0, at_ns=3 * S, attempts=(refused,))]))
    of = drawn(figure)
    assert [share for share in of["first calls of sessions: share refused"]["y"] if share is not None] == [
        1.0,
        0.0,
    ]
    assert (of["calls in backoff"]["x"], of["calls in backoff"]["y"], of["calls in backoff"]["yaxis"]) == (
        [1.0, 3.0], [1.0, 0.0], "y3",
    )  # fmt: skip
    assert sum(of["tries that were not the first, per bin"]["y"]) == 1


def test_without_a_try_there_is_nothing_to_draw(report_of):
    figure = tries_over_time(report_of([]))
    assert (figure.traces, figure.note[:15]) == ([], "nothing to draw")
