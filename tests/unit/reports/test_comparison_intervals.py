import math

import numpy as np
import pytest

from reports.comparison.intervals import (
    PERIODS,
    Variance,
    added,
    drawn_shares,
    effect_of,
    larger,
    median_of,
    period_weights,
    periods_of,
    pooled,
    run_variance,
    student_quantile,
    tree_variance,
    tree_weights,
)


@pytest.mark.parametrize(
    ("share", "freedom", "expected"),
    [  # from a printed table of the distribution
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 4, 2.776),
        (0.995, 9, 3.250),
        (0.9995, 30, 3.646),
        (0.975, 120, 1.980),
        (0.975, 1e9, 1.962),
    ],
)
def test_students_quantiles_are_those_of_the_tables(share, freedom, expected):
    assert student_quantile(share, freedom) == pytest.approx(expected, abs=2e-3)


def test_trees_are_drawn_as_often_as_there_are_trees_and_alike_for_one_seed():
    weights = tree_weights(7, seed=3, draws=50)
    assert weights.shape == (50, 7)
    assert set(weights.sum(axis=1).tolist()) == {7}
    assert (weights == tree_weights(7, seed=3, draws=50)).all()
    assert (weights != tree_weights(7, seed=4, draws=50)).any()


def test_the_median_of_nothing_is_not_known():
    assert math.isnan(median_of(np.zeros(0)))


def test_a_drawn_share_is_that_of_the_sums_of_the_trees_drawn():
    part, whole, trees = np.array([1.0, 0.0, 3.0]), np.array([2.0, 4.0, 4.0]), np.array([0, 0, 1])
    weights = np.array([[1, 1, 0], [2, 0, 0], [0, 0, 2]], dtype=np.int32)
    shares = drawn_shares(part, whole, trees, weights)
    assert shares[:2].tolist() == [4 / 10, 2 / 12]
    assert math.isnan(shares[2])


def test_the_variance_over_trees_is_that_of_a_mean():
    """The mean of 40 trees with one value each: its variance is that of the values over 40."""
    values = np.random.default_rng(0).normal(0, 3, 40)
    weights = tree_weights(40, seed=0, draws=4000)
    found = tree_variance(drawn_shares(values, np.ones(40), np.arange(40), weights), 40)
    assert found.value == pytest.approx(values.var(ddof=1) / 40, rel=0.08)
    assert found.freedom == 39


def test_periods_hold_equally_many_in_order_of_time():
    periods = periods_of(np.array([9.0, 1.0, 5.0, 3.0]))
    assert periods.tolist() == [3, 0, 2, 1]
    many = periods_of(np.arange(200.0)[::-1])
    assert np.bincount(many).tolist() == [200 // PERIODS] * PERIODS
    assert many[0] == PERIODS - 1
    assert period_weights(4, 10).sum(axis=1).tolist() == [4] * 10
    assert larger(Variance(value=1, freedom=2), Variance(value=3, freedom=1)).value == 3


def test_one_tree_tells_nothing_of_others():
    assert tree_variance(np.array([1.0, 1.0]), 1).value == math.inf


def test_the_variance_between_runs_is_within_ways():
    found = run_variance([1.0, 3.0], [10.0, 10.0, 13.0])
    assert found == Variance(value=(2 + 6) / 3, freedom=3)
    assert run_variance([1.0], [5.0]) is None


def test_estimates_of_one_variance_count_by_their_freedom():
    assert pooled(Variance(value=1, freedom=1), None, Variance(value=4, freedom=2)) == Variance(
        value=3, freedom=3
    )
    assert pooled(None, None) is None


def test_added_parts_have_the_freedom_that_satterthwaite_gives_them():
    total = added(Variance(value=2, freedom=4), Variance(value=3, freedom=2), 2.0)
    assert total.value == 8
    assert total.freedom == pytest.approx(64 / (4 / 4 + 36 / 2))
    assert added(total, None) == total
    assert added(Variance(value=0, freedom=3), Variance(value=0, freedom=1)).value == 0


def test_an_interval_reaches_as_far_as_student_says():
    effect = effect_of(10, Variance(value=4, freedom=4), 0.025)
    assert (effect.low, effect.high) == (
        pytest.approx(10 - 2 * 2.776, abs=0.01),
        pytest.approx(10 + 2 * 2.776, abs=0.01),
    )
    assert effect_of(1, Variance(value=0, freedom=4), 0.025).low == 1
