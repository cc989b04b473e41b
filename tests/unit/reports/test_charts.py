import numpy as np
import pytest

from aitrace.results import Scrape
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result, make_run_header
from reports import charts
from reports.html import FIGURES
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run

S = 10**9


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
    assert figure.id in ("timeline", "cache-rates") or figure.layout["yaxis"]["title"]["text"]


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


def test_hit_rates_have_one_bar_each_with_their_tokens(report_of):
    usage = Usage(input_tokens=1000, cache_read_tokens=40, output_tokens=1)
    readings = [(0, 0.0), (1000.0, 500.0)]
    scrapes = [
        Scrape(at_ns=i, url="u", values={"prefix_query_tokens": q, "prefix_hit_tokens": h})
        for i, (q, h) in enumerate(readings)
    ]
    reported, engine = charts.cache_three_ways(
        report_of([make_call_result(0, usage=usage)], scrapes=scrapes)
    ).traces
    assert (reported["x"], engine["x"]) == ([0.04], [0.5])
    # A bar too short for its label has none.
    assert (reported["text"], engine["text"]) == ([""], ["50.0 %"])


def test_gap_buckets_without_reported_tokens_draw_the_bound_alone(report_of):
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(100)])
    (bound,) = charts.cache_by_gap(report_of([make_call_result(0)], trace=builder.trace())).traces
    assert bound["name"] == "unlimited cache"
    assert bound["x"] == ["first of its tree<br>n = 1"]


def test_the_engines_gauges_share_the_axis_of_time(report_of):
    scrapes = [Scrape(at_ns=2 * S, url="u", values={"running": 3.0, "waiting": 1.0, "kv_usage_ratio": 0.4})]
    figure = charts.load_over_time(report_of([make_call_result(0)], scrapes=scrapes))
    assert [trace["name"] for trace in figure.traces] == [
        "calls in flight", "sessions active", "engine: running", "engine: waiting", "engine: KV cache in use",
    ]  # fmt: skip
    assert figure.traces[-1]["yaxis"] == "y2"
    assert "yaxis2" in figure.layout


def test_without_a_kv_gauge_there_is_no_second_axis(report_of):
    assert "yaxis2" not in charts.load_over_time(report_of([make_call_result(0)])).layout


def test_text_from_outside_is_no_markup_to_plotly():
    assert charts.plotly_text("<b>&</b>") == "&lt;b&gt;&amp;&lt;/b&gt;"


def test_numbers_are_rounded_to_six_digits():
    assert charts._rounded(np.array([1 / 3, 123456789.0])) == [0.333333, 123457000.0]
