import pytest

from recorders.merge import merged


@pytest.mark.parametrize(
    ("under", "over", "both"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3, "z": 4}}, {"a": {"x": 1, "y": 3, "z": 4}}),
        ({"a": {"x": 1}}, {"a": 5}, {"a": 5}),
        ({"a": 5}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    ],
)
def test_tables_are_merged_and_other_values_replaced(under, over, both):
    assert merged(under, over) == both


def test_what_is_merged_stays_as_it_was():
    under = {"a": {"x": 1}}
    merged(under, {"a": {"x": 2}})
    assert under == {"a": {"x": 1}}
