import polars as pl
import pytest

from reports.metric import known_sum, ratio


def test_a_ratio_needs_both_parts_and_a_whole():
    assert ratio(1, 4) == 0.25
    assert ratio(0, 4) == 0
    assert ratio(None, 4) is ratio(1, None) is ratio(1, 0) is None


@pytest.mark.parametrize(
    ("values", "total"), [([1, None, 2], 3), ([0.4, 0.2], 1), ([None, None], None), ([], None)]
)
def test_of_what_is_not_known_there_is_no_sum(values, total):
    assert known_sum(pl.Series(values, dtype=pl.Float64)) == total
