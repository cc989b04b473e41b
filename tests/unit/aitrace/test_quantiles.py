import numpy as np
import pytest

from aitrace.quantiles import min_count, quantile


@pytest.mark.parametrize(
    ("values", "ratio", "expected"),
    [
        ([7], 0.99, 7),
        ([3, 1, 2], 0.5, 2),
        ([1, 2, 3, 4], 0.5, 2),
        ([10, 20], 0.51, 20),
        ([5, 1, 9], 0.0, 1),
        ([5, 1, 9], 1.0, 9),
        (range(1, 101), 0.9, 90),
    ],
)
def test_a_quantile_is_an_observed_value(values, ratio, expected):
    assert quantile(values, ratio) == expected


@pytest.mark.parametrize("ratio", [0.5, 0.9, 0.95, 0.99, 1.0])
def test_quantiles_are_those_of_the_report(ratio):
    """Reports take numpy's inverted CDF."""
    for count in range(1, 700):
        values = range(1, count + 1)
        assert quantile(values, ratio) == np.quantile(values, ratio, method="inverted_cdf")


def test_no_values_have_no_quantile():
    with pytest.raises(IndexError):
        quantile([], 0.5)


@pytest.mark.parametrize(("ratio", "count"), [(0.1, 1), (0.5, 1), (0.9, 20), (0.95, 40), (0.99, 200)])
def test_two_values_lie_beyond_an_upper_quantile_that_is_shown(ratio, count):
    assert min_count(ratio) == count
