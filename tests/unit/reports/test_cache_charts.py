from dataclasses import replace

import pytest

from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.charts import (
    by_depth,
    by_turn,
    capacity_curve,
    depth_label,
    lifetime_curve,
    loss_bars,
    survival_curve,
)
from reports.cache.curve import by_capacity
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run

FIGURES = (survival_curve, loss_bars, capacity_curve, lifetime_curve, by_turn, by_depth)


@pytest.fixture(scope="module")
def report():
    run = make_up_run(trees=6, calls=12)
    return report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))


@pytest.fixture
def empty(facts_of):
    return report_from_facts(facts_of([make_call_result(0, error="refused", status=429)]))


def trace_named(figure, name):
    (found,) = [trace for trace in figure.traces if trace["name"] == name]
    return found


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_has_data_a_note_with_n_and_an_id_of_its_own(report, figure):
    made = figure(report)
    assert made.traces
    assert any(digit in made.note for digit in "0123456789")
    assert len({make(report).id for make in FIGURES}) == len(FIGURES)


@pytest.mark.parametrize("figure", FIGURES)
def test_every_axis_of_numbers_or_places_has_a_title(report, figure):
    layout = figure(report).layout
    assert layout["xaxis"]["title"]["text"]
    assert figure is loss_bars or layout["yaxis"]["title"]["text"]


@pytest.mark.parametrize("figure", FIGURES)
def test_a_run_that_has_nothing_to_draw_says_so(empty, figure):
    made = figure(empty)
    assert made.traces == []
    assert made.note.startswith("nothing to draw")


def test_the_survival_curve_has_the_table_and_its_interval(report):
    rows = [row for row in report.answers.tables["cache_survival"] if row["kind"] == "all"]
    figure = survival_curve(report)
    line = trace_named(figure, "all calls")
    assert line["x"] == [row["idle_p50_s"] for row in rows]
    assert line["y"] == [row["survived_ratio"] for row in rows]
    lower = trace_named(figure, "lower end of the 95 % interval")
    assert all(low <= share for low, share in zip(lower["y"], line["y"], strict=True))
    assert {trace["name"] for trace in figure.traces} >= {"after a tool gap", "after a user gap"}


def test_one_kind_of_gap_is_not_drawn_beside_all(report):
    tables = report.answers.tables
    only = [row for row in tables["cache_survival"] if row["kind"] in ("all", "tool")]
    answers = replace(report.answers, tables=tables | {"cache_survival": only})
    assert [trace["name"] for trace in survival_curve(replace(report, answers=answers)).traces] == [
        "lower end of the 95 % interval",
        "upper end",
        "all calls",
    ]


def test_causes_without_tokens_are_not_drawn(report):
    drawn = [cause for trace in loss_bars(report).traces for cause in trace["y"]]
    assert len(drawn) == sum(row["tokens"] > 0 for row in report.answers.tables["cache_losses"])
    assert "new content" in drawn


def test_todays_place_lies_on_the_curve_of_sizes(report):
    today = report.answers.numbers["cache_equivalent_tokens"]
    point = trace_named(capacity_curve(report), "loses as much as today")
    assert point["x"] == [pytest.approx(today)]
    assert point["y"] == [pytest.approx(by_capacity(report.facts).ratio_at(today), abs=1e-4)]
    level = trace_named(capacity_curve(report), "reported by the API")
    assert level["y"] == [pytest.approx(report.answers.numbers["cache_reported_ratio"], abs=1e-4)] * 2


def test_where_all_that_was_reused_was_in_use_there_is_no_curve_of_lifetimes(facts_of):
    builder = TraceBuilder(block_size=64)
    session = builder.session()
    builder.call(session, [builder.segment(640)])
    builder.call(session, [builder.segment(64)])
    calls = [make_call_result(index, prompt_tokens=640 + 64 * index) for index in range(2)]
    report = report_from_facts(facts_of(calls, trace=builder.trace()))
    assert lifetime_curve(report).note.startswith("nothing to draw")
    assert capacity_curve(report).traces


def test_without_a_place_for_today_none_is_drawn(report):
    numbers = report.answers.numbers | {"cache_equivalent_tokens": None, "cache_reported_ratio": None}
    made = capacity_curve(replace(report, answers=replace(report.answers, numbers=numbers)))
    assert [trace["name"] for trace in made.traces] == ["model"]
    ratios = made.traces[0]["y"]
    assert ratios == sorted(ratios)


def test_depths_are_named():
    assert [depth_label({"depth": depth}) for depth in (0, 2)] == ["main agent", "sub-agent, 2 deep"]
