import pytest

from aitrace.errors import UsageError
from aitrace.quantiles import MIN_CLUSTERS
from replayer.commands.ways import _warn_of_few
from replayer.search.ways import Ways, turns, ways_from_text


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


def test_as_few_trees_are_warned_of_as_a_comparison_refuses(capsys):
    _warn_of_few(MIN_CLUSTERS)
    assert capsys.readouterr().err == ""
    _warn_of_few(MIN_CLUSTERS - 1)
    assert f"has {MIN_CLUSTERS - 1} trees, {MIN_CLUSTERS} are needed" in capsys.readouterr().err
