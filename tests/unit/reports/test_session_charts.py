import pytest

from aitrace.testing import make_call_result
from reports.figures.session_charts import time_by_duration
from reports.summary import report_from_facts

S = 10**9


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_each_group_of_sessions_has_a_bar_of_its_parts(report_of):
    calls = [
        make_call_result(0, first_token_ns=S, end_ns=4 * S),
        make_call_result(1, session=1, end_ns=8 * S),
    ]
    prefill, decode = time_by_duration(report_of(calls)).traces
    assert prefill["y"] == decode["y"] == ["1. 4 s – 4 s (1 session)", "2. 8 s – 8 s (1 session)"]
    assert (prefill["x"], decode["x"]) == ([0.25, 0.03125], [0.75, 0.96875])


def test_without_a_complete_session_there_is_nothing_to_draw(report_of):
    figure = time_by_duration(report_of([make_call_result(0, error="cut")]))
    assert (figure.traces, figure.note[:15]) == ([], "nothing to draw")
