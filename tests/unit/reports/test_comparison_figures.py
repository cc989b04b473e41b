from dataclasses import replace

import numpy as np

from reports.comparison.comparison import Wish, compare
from reports.comparison.figures import ecdf_figure, forest_figure, pairs_figure
from reports.comparison.testing import made_up_run_of_way, made_up_way, two_made_up_ways
from reports.testing import make_up_run

RUN = make_up_run(trees=8, calls=10)
COMPARISON = compare(two_made_up_ways(1.1), Wish())


def test_the_forest_has_a_row_per_measure_with_its_interval():
    figure = forest_figure(COMPARISON, 1)
    points = {
        name: (x, low, high)
        for trace in figure.traces
        for name, x, low, high in zip(
            trace["y"], trace["x"], trace["error_x"]["arrayminus"], trace["error_x"]["array"], strict=True
        )
    }
    assert set(points) == set(figure.layout["yaxis"]["categoryarray"])
    for each in COMPARISON.differences[0]:
        effect = each.absolute if each.measure.basis.is_share else each.relative
        if each.absolute is None or effect is None:
            assert each.measure.name not in points
            continue
        x, low, high = points[each.measure.name]
        assert np.allclose([x, x - low, x + high], [100 * effect.point, 100 * effect.low, 100 * effect.high])
    assert {trace["name"] for trace in figure.traces} >= {"worse", "no difference found"}


def test_distributions_are_of_what_every_way_has():
    figure = ecdf_figure(COMPARISON, "ttft")
    assert [trace["name"] for trace in figure.traces] == ["before", "after"]
    assert len({len(trace["x"]) for trace in figure.traces}) == 1
    assert max(figure.traces[1]["x"]) > max(figure.traces[0]["x"])
    assert figure.note.startswith("before: n = ")


def test_what_one_repeat_lost_is_in_no_figure():
    lost = replace(
        RUN, calls=tuple(replace(call, first_token_ns=None) for call in RUN.calls[:20]) + RUN.calls[20:]
    )
    ways = [
        made_up_way("a", made_up_run_of_way("a", RUN)),
        made_up_way("b", made_up_run_of_way("b/1", RUN), made_up_run_of_way("b/2", lost)),
    ]
    comparison = compare(ways, Wish(names=("ttft_p50",)))
    left = len(RUN.calls) - 20
    assert ecdf_figure(comparison, "ttft").note.startswith(f"a: n = {left:,}; b: n = {2 * left:,}. ")
    assert len(pairs_figure(comparison, 1).traces[0]["x"]) == comparison.differences[0][0].pairs == left


def test_a_value_that_no_way_has_is_not_drawn():
    names = COMPARISON.matched.levels["call"].columns
    removed = names.pop("itl_value")
    assert ecdf_figure(COMPARISON, "itl").traces == []
    names["itl_value"] = removed


def test_pairs_are_drawn_where_they_were_due():
    figure = pairs_figure(COMPARISON, 1)
    values = COMPARISON.matched.levels["call"].columns["ttft_value"]
    known = ~np.isnan(values).any(axis=0)
    assert len(figure.traces[0]["x"]) == known.sum()
    assert np.allclose(figure.traces[0]["y"], (values[1] - values[0])[known], rtol=1e-3)


def test_names_of_strangers_are_no_markup_in_a_figure():
    first, second = two_made_up_ways()
    hostile = type(second)(name="<b>x</b>", label="<b>x</b>", runs=second.runs)
    figure = ecdf_figure(compare([first, hostile], Wish()), "ttft")
    assert figure.traces[1]["name"] == "&lt;b&gt;x&lt;/b&gt;"


def test_names_of_directories_are_no_templates():
    first, second = two_made_up_ways()
    odd = type(second)(name="a%{x}b", label="a%{x}b", runs=second.runs)
    figure = ecdf_figure(compare([first, odd], Wish()), "ttft")
    assert figure.traces[1]["name"] == "a%{x}b"
    assert "a%{x}b" not in figure.traces[1]["hovertemplate"]
