import pytest

from aitrace.errors import UsageError
from replayer.search.ways import COMPARABLE_TREES, Ways, turns, ways_from_text
from reports.stats import MIN_CLUSTERS


def test_ways_are_values_of_one_option():
    assert ways_from_text("identity=native, none") == Ways(option="identity", values=("native", "none"))
    assert ways_from_text("hints=one.json,two.json,off").values == ("one.json", "two.json", "off")


@pytest.mark.parametrize(
    "text", ["", "identity", "identity=", "identity=native", "identity=none,none", "seed=1,2", "retries=a,"]
)
def test_what_leaves_nothing_to_compare_is_refused(text):
    with pytest.raises(UsageError, match="ways"):
        ways_from_text(text)


def test_every_other_repeat_is_played_backwards():
    assert turns(2, 2) == [(0, 0), (1, 0), (1, 1), (0, 1)]
    assert turns(3, 1) == [(0, 0), (1, 0), (2, 0)]


def test_as_few_trees_are_warned_of_as_a_comparison_refuses():
    assert COMPARABLE_TREES == MIN_CLUSTERS
