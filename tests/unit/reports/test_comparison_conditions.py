import numpy as np
import pytest

from aitrace.errors import UsageError
from reports.comparison.conditions import check_conditions, conditions_from_texts
from reports.comparison.differences import Setting, compare_ways
from reports.comparison.intervals import tree_weights
from reports.comparison.measures import measures_from_names
from reports.comparison.testing import matched_calls


def outcome(text, before, after, **setting):
    (condition,) = conditions_from_texts([text])
    matched = matched_calls({"ttft_value": [before, after]}, range(len(before)))
    (found,) = compare_ways(
        matched,
        [0],
        [[1]],
        measures_from_names([condition.measure.name]),
        tree_weights(matched.trees, seed=0),
        Setting(**setting),
    )
    (checked,) = check_conditions([condition], found, "after")
    return checked


def test_a_condition_has_a_measure_a_direction_and_an_amount_with_its_unit():
    above, below, points, long = conditions_from_texts(
        ["ttft_p95 > +5%", "speed_p50<-10%", " hit_ratio < -2 points ", "session_p50 > 500ms"]
    )
    assert (above.measure.name, above.is_above, above.amount, above.is_relative) == (
        "ttft_p95",
        True,
        0.05,
        True,
    )
    assert (below.is_above, below.amount) == (False, -0.1)
    assert (points.amount, points.is_relative, points.text) == (-0.02, False, "hit_ratio < -2 points")
    assert long.amount == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ttft_p95",
        "ttft_p95 > 5",
        "ttft_p95 = 5%",
        "ttft > 5%",
        "hit_ratio < 2ms",
        "ttft_p95 > 5 points",
        "a > b",
    ],
)
def test_what_is_no_condition_is_refused_with_a_hint(text):
    with pytest.raises(UsageError) as caught:
        conditions_from_texts([text])
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft_p95>5", "'ttft_p95>5' has no unit, expected % or one of ms, s for ttft_p95"),
        ("hit_ratio < 2ms", "has the unit 'ms', expected % or one of points"),
        ("TTFT_P95 > 5%", "perhaps 'ttft_p95 > 5%' is meant"),
        ("ttft_p95 > +0,5%", "perhaps 'ttft_p95 > +0.5%' is meant"),
        ("ttft > +5%", "'ttft' is without a statistic"),
        ("ttft_p95 = 5%", "expected MEASURE, > or <, an amount with a unit"),
    ],
)
def test_what_is_wrong_with_a_condition_is_said(text, said):
    with pytest.raises(UsageError) as caught:
        conditions_from_texts([text])
    assert said in str(caught.value)


def test_a_difference_beyond_the_amount_meets_the_condition():
    before = np.full(20, 100.0)
    assert outcome("ttft_p50 > +5%", before, before * 1.1).outcome == "met"
    assert outcome("ttft_p50 > +15%", before, before * 1.1).outcome == "kept"
    assert outcome("ttft_p50 > 5ms", before, before * 1.1).outcome == "met"
    assert outcome("ttft_p50 < -5%", before, before * 0.9).outcome == "met"
    assert outcome("ttft_p50 < -5%", before, before * 1.1).outcome == "kept"


def test_a_point_beyond_the_amount_whose_interval_reaches_to_0_cannot_be_told():
    rng = np.random.default_rng(0)
    before = rng.lognormal(5, 0.5, 12)
    after = before * rng.lognormal(0.5, 0.5, 12)
    checked = outcome("ttft_p50 > +1%", before, after)
    assert checked.effect.low < 0
    assert checked.effect.point > 0.01
    assert checked.outcome == "unclear"
    assert "may be noise, its interval reaches to 0" in checked.reason


def test_a_point_beyond_the_amount_and_within_the_noise_floor_cannot_be_told():
    before = np.full(20, 100.0)
    checked = outcome("ttft_p50 > +1%", before, before * 1.02)
    assert checked.outcome == "unclear"
    assert "not beyond the noise floor" in checked.reason


def test_the_interval_that_reaches_to_0_is_named():
    """One large value has most of the mean: the interval in ms reaches to 0, the one in percent does not."""
    before = np.array([*[10.0] * 11, 1000.0])
    after = before * np.random.default_rng(0).lognormal(0.2, 0.3, 12)
    checked = outcome("ttft_mean > +1%", before, after, floor_ratio=0.0)
    assert checked.effect.low > 0 > checked.difference.absolute.low
    assert checked.outcome == "unclear"
    assert "the interval of the difference in units reaches to 0" in checked.reason


def test_repeats_are_judged_by_the_share_of_the_first_ways_value():
    """Whose runs lie far apart, 10 and 30 against twice 19: 5 % less."""
    size = np.linspace(0.95, 1.05, 40)
    matched = matched_calls({"ttft_value": [10 * size, 30 * size, 19 * size, 19 * size]}, range(40))
    conditions = conditions_from_texts(["ttft_mean > +5%", "ttft_mean < -3%", "ttft_mean < -0.5ms"])
    (found,) = compare_ways(
        matched, [0, 1], [[2, 3]], measures_from_names(["ttft_mean"]), tree_weights(40, seed=0), Setting()
    )
    assert [each.outcome for each in check_conditions(conditions, found, "b")] == [
        "kept",
        "unclear",
        "unclear",
    ]


def test_what_cannot_be_told_does_not_pass():
    checked = outcome("ttft_p95 > +5%", np.full(20, 100.0), np.full(20, 100.0))
    assert (checked.outcome, checked.reason, checked.effect) == ("unclear", "20 pairs, 40 needed", None)
    paired = outcome("ttft_paired > +5%", np.zeros(20), np.full(20, 100.0))
    assert paired.outcome == "unclear"
    assert "give the amount in units" in paired.reason


@pytest.mark.parametrize(
    ("text", "before", "after", "expected"),
    [
        ("ttft_mean > +5%", 100, 0, "kept"),
        ("ttft_mean < -5%", 100, 0, "met"),
        ("ttft_mean > +5%", 0, 0, "kept"),
        ("ttft_mean > +5%", 0, 100, "met"),
        ("ttft_mean < -5%", 0, 100, "kept"),
    ],
)
def test_of_nothing_more_is_beyond_any_percent_and_nothing_left_is_100_percent_less(
    text, before, after, expected
):
    assert outcome(text, np.full(20, before), np.full(20, after)).outcome == expected


def test_a_change_that_is_wanted_and_did_not_come_meets_its_condition():
    before = np.full(20, 100.0)
    assert outcome("ttft_p50 > -5%", before, before).outcome == "met"
    assert outcome("ttft_p50 > -5%", before, before * 0.96).outcome == "met"
    assert outcome("ttft_p50 > -5%", before, before * 0.9).outcome == "kept"
