import pytest

from aitrace.testing import TraceBuilder, make_call_result
from reports.figures.fidelity_charts import arrivals_planned_and_played, gaps_planned_and_played
from reports.summary import report_from_facts

S = 10**9


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def trace_of(calls):
    builder = TraceBuilder()
    session = builder.session()
    for i in range(calls):
        builder.call(session, at_ns=2 * i * S, duration_ns=S)
    return builder.trace()


def test_gaps_as_played_stand_against_the_plan(report_of):
    calls = [make_call_result(0, at_ns=0), make_call_result(1, at_ns=3 * S, gap_ns=S)]
    points, line = gaps_planned_and_played(report_of(calls, trace=trace_of(2))).traces
    assert (points["x"], points["y"], points["name"]) == ([1.0], [2.0], "gap filled by: tool")
    assert (line["name"], line["x"], line["y"]) == ("as planned", [1.0, 1.0], [1.0, 1.0])


def test_of_many_gaps_one_in_so_many_is_drawn(report_of):
    calls = [make_call_result(i, at_ns=2 * i * S, gap_ns=S) for i in range(6002)]
    figure = gaps_planned_and_played(report_of(calls, trace=trace_of(6002)))
    assert len(figure.traces[0]["x"]) == 3000
    assert "n = 6,001; one in 2 is drawn" in figure.note


def test_arrivals_are_counted_up_as_planned_and_as_played(report_of):
    calls = [
        make_call_result(i, session=i, root=i, turn_index=0, planned_ns=i * S, sent_ns=2 * i * S)
        for i in range(3)
    ]
    planned, played = arrivals_planned_and_played(report_of(calls, open_loop=True)).traces
    assert (planned["x"], planned["y"]) == ([0.0, 1.0, 2.0], [1, 2, 3])
    assert (played["x"], played["y"]) == ([0.0, 2.0, 4.0], [1, 2, 3])


def test_of_many_trees_some_are_drawn_the_last_among_them(report_of):
    calls = [make_call_result(i, session=i, root=i, turn_index=0, planned_ns=i) for i in range(601)]
    figure = arrivals_planned_and_played(report_of(calls, open_loop=True))
    assert (len(figure.traces[0]["x"]), figure.traces[0]["y"][-1]) == (600, 601)
    assert "600 of them are drawn" in figure.note


def test_lanes_have_no_arrivals_to_compare(report_of):
    figure = arrivals_planned_and_played(report_of([make_call_result(0)], open_loop=False))
    assert figure.traces == []
    assert "a lane starts a tree when the one before has ended" in figure.note
