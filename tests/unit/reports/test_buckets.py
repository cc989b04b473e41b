import polars as pl
import pytest

from reports.buckets import buckets_of, is_inside


def test_each_bucket_ends_where_the_next_one_begins_and_the_last_one_is_open():
    assert buckets_of((0, 1, 5)) == ((0, 1), (1, 5), (5, None))


@pytest.mark.parametrize(("low", "high", "found"), [(1, 5, [1, 4]), (5, None, [5, 9])])
def test_a_bucket_holds_its_first_value_and_not_the_one_behind_its_last(low, high, found):
    values = pl.DataFrame({"value": [0, 1, 4, 5, 9, None]})
    assert values.filter(is_inside(pl.col("value"), low, high))["value"].to_list() == found
