from dataclasses import replace

import numpy as np
import pytest

from aitrace.results import Scrape
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result, make_run_header
from reports.figures import charts
from reports.series import Line
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run

S = 10**9
FIGURES = (
    charts.ttft_ecdf,
    charts.itl_ecdf,
    charts.lateness_ecdf,
    charts.ttft_over_time,
    charts.ttft_by_prefill,
    charts.lateness_over_time,
    charts.session_slowdown,
)


@pytest.fixture(scope="module")
def made_up():
    run = make_up_run(trees=4, calls=8, refused_ratio=0.02)
    return report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


@pytest.mark.parametrize("draw", FIGURES)
def test_every_figure_draws_a_run_and_tells_its_population(made_up, draw):
    figure = draw(made_up)
    assert figure.traces
    assert "n = " in figure.note
    assert not figure.note.startswith("nothing to draw")


@pytest.mark.parametrize("draw", FIGURES)
def test_every_figure_says_that_there_is_nothing_to_draw(draw):
    empty = report_from_facts(facts_from_run(make_run_header(), None, [], [], None))
    figure = draw(empty)
    assert (figure.traces, figure.note[:15]) == ([], "nothing to draw")


@pytest.mark.parametrize("draw", FIGURES)
def test_axes_name_what_they_show(made_up, draw):
    figure = draw(made_up)
    assert figure.layout["xaxis"]["title"]["text"]
    assert figure.layout["yaxis"]["title"]["text"]


def test_the_cumulative_ttft_ends_at_the_slowest_call(report_of):
    calls = [make_call_result(i, first_token_ns=(i + 1) * 10**6) for i in range(4)]
    service, user = charts.ttft_ecdf(report_of(calls)).traces
    assert service["x"] == user["x"] == [1, 2, 3, 4]
    assert service["y"] == [0.25, 0.5, 0.75, 1.0]


def test_values_over_a_factor_of_20_get_a_logarithmic_axis(report_of):
    def axis(*ttfts_ms):
        calls = [make_call_result(i, first_token_ns=ms * 10**6) for i, ms in enumerate(ttfts_ms)]
        return charts.ttft_ecdf(report_of(calls)).layout["xaxis"].get("type")

    assert axis(1, 21) == axis(0, 1, 21) == "log"
    assert axis(1, 20) is axis(0, 0) is None


def test_ttft_is_drawn_where_the_call_was_sent(report_of):
    (points,) = charts.ttft_over_time(report_of([make_call_result(3, at_ns=5 * S)])).traces
    assert (points["x"], points["y"]) == ([5.0], [250.0])
    assert points["text"] == ["call 3, instance 1, session 0"]


def test_ttft_is_set_against_the_tokens_that_were_not_cached(report_of):
    usage = Usage(input_tokens=900, cache_read_tokens=700, output_tokens=1)
    (points,) = charts.ttft_by_prefill(
        report_of([make_call_result(0, usage=usage), make_call_result(1)])
    ).traces
    assert (points["x"], points["y"]) == ([200.0], [250.0])


def test_lateness_is_drawn_where_the_call_was_due(report_of):
    (points,) = charts.lateness_over_time(
        report_of([make_call_result(0, due_ns=S, sent_ns=S + 3_000_000)])
    ).traces
    assert (points["x"], points["y"]) == ([1.0], [3.0])


def test_many_points_are_thinned_and_the_note_says_so(report_of):
    figure = charts.ttft_over_time(report_of([make_call_result(i, at_ns=i) for i in range(6001)]))
    assert len(figure.traces[0]["x"]) == 3000
    assert "n = 6,001; one in 2 is drawn" in figure.note


def test_sessions_are_drawn_by_expected_and_real_time(report_of):
    builder = TraceBuilder()
    builder.call(builder.session(), at_ns=0, duration_ns=2 * S)
    _, points = charts.session_slowdown(
        report_of([make_call_result(0, end_ns=3 * S)], trace=builder.trace())
    ).traces
    assert (points["x"], points["y"]) == ([2.0], [3.0])


def test_of_many_sessions_one_in_so_many_is_drawn(report_of):
    builder = TraceBuilder()
    builder.call(builder.session(), at_ns=0, duration_ns=2 * S)
    calls = [make_call_result(i, call=0, instance=i + 1, planned_ns=0, end_ns=3 * S) for i in range(6000)]
    figure = charts.session_slowdown(report_of(calls, trace=builder.trace()))
    assert len(figure.traces[1]["x"]) == 3000
    assert "n = 6,000; one in 2 is drawn" in figure.note


def test_hit_rates_have_one_bar_each_with_their_tokens(report_of):
    usage = Usage(input_tokens=1000, cache_read_tokens=40, output_tokens=1)
    readings = [(0, 0.0), (1000.0, 500.0)]
    scrapes = [
        Scrape(at_ns=i, url="u", values={"prefix_query_tokens": q, "prefix_hit_tokens": h})
        for i, (q, h) in enumerate(readings)
    ]
    reported, engine, _ = charts.cache_three_ways(
        report_of([make_call_result(0, usage=usage)], scrapes=scrapes)
    ).traces
    assert (reported["x"], engine["x"]) == ([0.04], [0.5])


def test_the_bar_of_the_bound_is_labelled_with_its_total_as_in_the_table(made_up):
    numbers = made_up.answers.numbers
    drawn = charts.cache_three_ways(made_up).traces[-1]
    labels = dict(zip(drawn["y"], zip(drawn["text"], drawn["x"], strict=True), strict=True))
    assert labels["unlimited cache"] == (
        f" {numbers['cache_bound_ratio'] * 100:.1f} %",
        pytest.approx(numbers["cache_bound_ratio"], abs=1e-5),
    )
    assert labels["reported by the API"][0] == f" {numbers['cache_reported_ratio'] * 100:.1f} %"


def test_gaps_are_drawn_in_groups_by_what_filled_them_and_the_reported_share_within_the_bound(made_up):
    bound, reported = charts.cache_by_gap(made_up).traces
    groups, labels = reported["x"]
    assert list(dict.fromkeys(groups)) == ["after a tool gap", "after a user gap", "first call of"]
    assert len(set(labels)) == len(labels)
    assert bound["width"] > reported["width"]
    assert labels[-2:] == [
        f"a sub-agent<br>n = {_count(made_up, 'agent_start')}\u200b\u200b\u200b",
        f"a tree<br>n = {_count(made_up, 'tree_start')}\u200b\u200b\u200b\u200b",
    ]


def _count(report, kind):
    (row,) = [row for row in report.answers.tables["cache_by_gap"] if row["kind"] == kind]
    return row["calls"]


def test_labels_of_two_groups_differ_so_that_plotly_keeps_their_order(report_of):
    calls = [
        make_call_result(i, turn_index=1, gap_ns=S, gap_cause=cause)
        for i, cause in enumerate(("tool", "user"))
    ]
    (reported,) = charts.cache_by_gap(
        report_of([replace(call, usage=Usage(input_tokens=9, cache_read_tokens=3)) for call in calls])
    ).traces
    first, second = reported["x"][1]
    assert first != second
    assert first.strip("\u200b") == second.strip("\u200b") == "1 s – 10 s<br>n = 1"


def test_populations_of_one_size_have_one_n_and_others_one_each(report_of):
    fine = make_call_result(0, events=50)
    assert charts.ttft_ecdf(report_of([fine])).note == "n = 1"
    note = charts.itl_ecdf(report_of([fine, make_call_result(1, longest_stall_ns=None)])).note
    assert note.startswith("mean time between tokens of a call: n = ")


def test_gap_buckets_without_reported_tokens_draw_the_bound_alone(report_of):
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(100)])
    (bound,) = charts.cache_by_gap(report_of([make_call_result(0)], trace=builder.trace())).traces
    assert bound["name"] == "unlimited cache"
    assert [place[0].strip("\u200b") for place in bound["x"]] == ["first call of", "a tree<br>n = 1"]


def test_panels_lie_one_below_the_other_on_one_axis_of_time():
    layout = charts.panels("time", [{"title": {"text": name}} for name in "abc"])
    domains = [layout[name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert [high for _, high in domains] == pytest.approx([1, 2 / 3, 1 / 3])
    assert all(low < high for low, high in domains)
    assert domains[2][0] == pytest.approx(0)
    assert [domains[1][1] < domains[0][0], domains[2][1] < domains[1][0]] == [True, True]
    assert layout["xaxis"]["anchor"] == "y3"


def test_a_value_that_is_not_known_leaves_a_gap_in_a_line():
    line = Line(name="l", at_s=np.array([0.0, 1.0, 2.0]), values=np.array([1.0, np.nan, 3.0]))
    assert charts.line_trace(line, "@wait", "y", "solid")["y"] == [1.0, None, 3.0]


def test_text_from_outside_is_no_markup_to_plotly():
    assert charts.plotly_text("<b>&</b>") == "&lt;b&gt;&amp;&lt;/b&gt;"


def test_numbers_are_rounded_to_six_digits():
    assert charts.rounded(np.array([1 / 3, 123456789.0])) == [0.333333, 123457000.0]
