import pytest

from reports.comparison.conditions import check_conditions, conditions_from_texts
from reports.comparison.differences import Difference, Side
from reports.comparison.intervals import Effect
from reports.comparison.measures import measure_from_name
from reports.comparison.wording import (
    checked_text,
    difference_text,
    effect_text,
    finding_text,
    floor_text,
    is_worse,
    pairs_text,
    percent_text,
    side_text,
    value_text,
)


def effect(point, low, high):
    return Effect(point=point, low=low, high=high)


def difference(
    name="ttft_p95", finding="more", absolute=(20, 16, 24), relative=(0.102, 0.081, 0.124), **fields
):
    given = {
        "measure": measure_from_name(name),
        "pairs": 40,
        "only_first": 1,
        "only_second": 1,
        "in_part": 0,
        "trees": 10,
        "first": Side(values=(200.0,), value=200.0),
        "second": Side(values=(220.0,), value=220.0),
        "absolute": absolute and effect(*absolute),
        "relative": relative and effect(*relative),
        "floor": 0.03,
        "can_err": True,
        "knows_runs": False,
        "finding": finding,
        "reason": "",
    }
    return Difference(**(given | fields))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (difference(), "slower by 10.2 % (8.1 to 12.4 %)"),
        (
            difference(finding="less", relative=(-0.102, -0.124, -0.081), absolute=(-20, -24, -16)),
            "faster by 10.2 % (8.1 to 12.4 %)",
        ),
        (difference(finding="none", relative=(0.001, -0.011, 0.014)), "no difference found (−1.1 to 1.4 %)"),
        (
            difference(finding="floor", relative=(0.02, 0.01, 0.03)),
            "no difference beyond the noise floor of 3.0 % (1.0 to 3.0 %)",
        ),
        (
            difference(finding="too_few", absolute=None, relative=None, reason="12 pairs, 40 needed"),
            "too few to tell: 12 pairs, 40 needed",
        ),
        (
            difference("hit_ratio", "less", absolute=(-0.05, -0.07, -0.03), relative=(-0.1, -0.2, -0.05)),
            "lower by 5.0 points (3.0 to 7.0 points)",
        ),
        (
            difference("backoff_mean", absolute=(1.5, 0.5, 2.5), relative=None),
            "longer by 1.5 s (500 ms to 2.5 s)",
        ),
        (
            difference("speed_p50", "more"),
            "faster by 10.2 % (8.1 to 12.4 %)",
        ),
    ],
)
def test_a_finding_in_words(found, text):
    assert finding_text(found) == text


def test_more_time_is_worse_and_more_speed_is_better():
    assert is_worse(difference()) is True
    assert is_worse(difference("speed_p50")) is False
    assert is_worse(difference("speed_p50", "less")) is True
    assert is_worse(difference(finding="floor")) is None


def test_values_have_their_units():
    ttft, share = measure_from_name("ttft_p95").basis, measure_from_name("hit_ratio").basis
    assert side_text(Side(values=(200.0, 210.0), value=205.0), ttft) == "205 ms (200 ms, 210 ms)"
    assert side_text(Side(values=(200.0,), value=200.0), ttft) == "200 ms"
    assert side_text(Side(values=(None,), value=None), ttft) == "–"
    assert side_text(Side(values=(0.5,), value=0.5), share) == "50.0 %"
    assert (difference_text(-0.02, share), difference_text(-2.0, ttft)) == ("−2.0 points", "−2 ms")
    assert value_text(52.7, measure_from_name("speed_p50").basis) == "52.7 tokens/s"
    assert value_text(None, ttft) == "–"
    assert effect_text(None, percent_text) == "–"


def test_small_and_large_percentages_keep_what_matters():
    assert [percent_text(value) for value in (0.0004, 0.102, 12.345, 0.0)] == [
        "0.04 %",
        "10.2 %",
        "1,234 %",
        "0.0 %",
    ]


def test_pairs_are_told_of_all_that_any_run_has():
    assert pairs_text(difference()) == "40 of 42"
    assert pairs_text(difference(in_part=60)) == "40 of 102"


def test_the_floor_has_the_unit_of_what_it_bounds():
    assert floor_text(difference("hit_ratio", floor=0.01)) == "1.0 points"
    assert floor_text(difference("backoff_mean", relative=None, floor=0.01)) == "10 ms"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (difference(), "failed: ttft_p95 > +5% (after): 10.2 % (8.1 to 12.4 %)"),
        (
            difference(finding="none", relative=(0.08, -0.01, 0.2)),
            (
                "cannot be told: ttft_p95 > +5% (after): 8.0 % (−1.0 to 20.0 %); it is beyond the amount, but may be noise, its "
                "interval reaches to 0; more runs or trees would tell"
            ),
        ),
        (
            difference(finding="too_few", absolute=None, relative=None, reason="no pairs"),
            "cannot be told: ttft_p95 > +5% (after): –; no pairs",
        ),
    ],
)
def test_a_condition_in_words(found, text):
    (checked,) = check_conditions(conditions_from_texts(["ttft_p95 > +5%"]), [found], "after")
    assert checked_text(checked) == text
