import math

import numpy as np
import pytest

from reports.comparison.intervals import tree_weights
from reports.stats import (
    cluster_bootstrap,
    drawn_quantiles,
    ecdf,
    quantile,
    rank_correlation,
    shown_quantile,
    shown_quantiles,
    wilson,
)


@pytest.mark.parametrize(("q", "expected"), [(0.5, 2.0), (0.75, 3.0), (0.76, 4.0), (1.0, 4.0)])
def test_quantile_is_the_smallest_value_that_the_share_does_not_exceed(q, expected):
    assert quantile(np.array([4.0, 1.0, 3.0, 2.0]), q) == expected


def test_quantile_of_nothing_is_not_known():
    assert quantile(np.array([]), 0.5) is None


def test_shown_quantile_needs_its_minimal_count():
    values = np.arange(1.0, 201.0)
    assert shown_quantile(values[:199], 0.99) is None
    assert shown_quantile(values, 0.99) == 198.0


def test_several_quantiles_are_those_that_are_shown_one_by_one():
    qs = (0.1, 0.5, 0.9, 0.95, 0.99)
    for size in (0, 1, 19, 20, 39, 40, 199, 200, 1001):
        values = np.random.default_rng(size).exponential(size=size)
        assert shown_quantiles(values, qs) == [shown_quantile(values, q) for q in qs]


def test_ecdf_gives_every_value_with_the_share_up_to_it():
    x, share = ecdf(np.array([3.0, 1.0]), points=10)
    assert x.tolist() == [1.0, 3.0]
    assert share.tolist() == [0.5, 1.0]


def test_a_thinned_ecdf_keeps_both_ends():
    x, share = ecdf(np.arange(1000.0), points=7)
    assert (x[0], x[-1], share[-1], x.size) == (0.0, 999.0, 1.0, 7)


def test_the_bootstrap_needs_five_clusters():
    assert cluster_bootstrap(np.arange(40.0), np.arange(40) % 4, (0.5,), seed=0) == (None,)


def test_the_bootstrap_gives_no_interval_of_a_quantile_that_is_not_shown():
    median, p95 = cluster_bootstrap(np.arange(39.0), np.arange(39), (0.5, 0.95), seed=0)
    assert median is not None
    assert p95 is None


def test_the_bootstrap_draws_whole_clusters():
    """Ten clusters of constant value: every resampled median is one of the ten values, however many calls each has."""
    values = np.repeat(np.arange(10.0), 100)
    (interval,) = cluster_bootstrap(values, values.astype(np.int64), (0.5,), seed=1)
    assert interval.low in range(10)
    # Drawn call by call the interval of 1000 values would be at most one wide.
    assert interval.high - interval.low >= 3


def test_the_bootstrap_agrees_with_resampling_by_hand():
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(12), 9)
    values = rng.exponential(size=108) + clusters / 4
    by_hand = []
    for _ in range(4000):
        drawn = rng.integers(0, 12, size=12)
        by_hand.append(np.sort(np.concatenate([values[clusters == name] for name in drawn]))[107 // 2])
    (interval,) = cluster_bootstrap(values, clusters, (0.5,), seed=0, draws=4000)
    low, high = np.quantile(by_hand, [0.025, 0.975])
    assert interval.low == pytest.approx(low, abs=0.1)
    assert interval.high == pytest.approx(high, abs=0.1)


def test_the_bootstrap_is_the_same_however_its_work_is_divided(monkeypatch):
    """Clusters that differ much: the quantiles of draws lie far from that of all values."""
    rng = np.random.default_rng(5)
    clusters = np.repeat(np.arange(8), 200)
    values = rng.exponential(size=1600) + 10 * clusters
    whole = cluster_bootstrap(values, clusters, (0.1, 0.5, 0.95), seed=2)
    monkeypatch.setattr("reports.stats._BIN_VALUES", 3)
    monkeypatch.setattr("reports.stats._CELLS_PER_CHUNK", 500)
    assert cluster_bootstrap(values, clusters, (0.1, 0.5, 0.95), seed=2) == whole


@pytest.mark.parametrize("count", [1, 7, 300, 5000])
def test_drawn_quantiles_are_those_of_the_values_written_out(count):
    rng = np.random.default_rng(count)
    values, trees = rng.integers(0, 50, count).astype(float), rng.integers(0, 9, count)
    weights = tree_weights(9, seed=1, draws=20)
    found = drawn_quantiles(values, trees, weights, (0.5, 0.95))
    for draw, row in zip(weights, found, strict=True):
        written = sorted(np.repeat(values, draw[trees]).tolist())
        if not written:
            assert np.isnan(row).all()
            continue
        for q, one in zip((0.5, 0.95), row, strict=True):
            assert one == written[max(1, math.ceil(q * len(written) - 1e-9)) - 1]


def test_drawn_quantiles_of_nothing_are_not_known():
    nothing = drawn_quantiles(
        np.zeros(0), np.zeros(0, dtype=np.int64), tree_weights(3, seed=0, draws=4), (0.5,)
    )
    assert np.isnan(nothing).all()


def test_the_bootstrap_repeats_itself():
    values, clusters = np.arange(100.0), np.arange(100) // 5
    assert cluster_bootstrap(values, clusters, (0.5,), seed=7) == cluster_bootstrap(
        values, clusters, (0.5,), seed=7
    )


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (1, 2, 0.0945, 0.9055)],
)
def test_wilsons_interval_is_that_of_the_tables(hits, count, low, high):
    interval = wilson(hits, count)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-4)


def test_of_nothing_there_is_no_interval():
    assert wilson(0, 0) is None


@pytest.mark.parametrize("count", range(1, 200))
def test_a_share_lies_in_its_own_interval(count):
    assert wilson(0, count).low == 0.0
    assert wilson(count, count).high == 1.0


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 4000], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 1, 2, 3], [0, 0, 5, 5], 0.9428),  # ties at the mean of their ranks; by hand 4 / √18
        ([1, 2, 3], [7, 7, 7], None),
        ([1, 2], [1, 2], None),
    ],
)
def test_ranks_are_compared_whatever_the_distances(left, right, expected):
    found = rank_correlation(np.array(left, float), np.array(right, float))
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-3))
