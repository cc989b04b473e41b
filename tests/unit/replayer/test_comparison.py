import pytest

from aitrace.errors import UsageError
from replayer.search.comparison import Ways, compare, comparison_json, table_lines, turns, ways_from_text


def summary(p95_ms=100.0, cached=0.5, **calls):
    spread = {"count": 40, "p50_ms": 10.0, "p95_ms": p95_ms, "p99_ms": None}
    return {
        "run": "ab/a",
        "calls": {"complete": 40, "failed": {}, "earlier_tries": {}, "backoff_s": 0.0} | calls,
        "sessions": {"lost": 1},
        "ttft": {"service": spread, "user": spread},
        "cache": {"cached_ratio": cached},
        "client": {"elapsed_s": 6.5},
        "lateness": {"client": {"p99_ms": 2.0}},
    }


def measure(name, *summaries):
    return next(each for each in compare(summaries) if each.name == name)


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


def test_a_difference_is_that_of_means_to_the_first_way():
    p95 = measure("TTFT from sent p95", [summary(100), summary(110)], [summary(130), summary(140)])
    assert p95.values == ((100.0, 110.0), (130.0, 140.0))
    assert p95.differences == (0.0, 30.0)
    assert p95.counts == ((40, 40), (40, 40))


@pytest.mark.parametrize(
    ("first", "other", "is_apart"),
    [
        ([100, 110], [130, 140], True),
        ([130, 140], [100, 110], True),
        ([100, 135], [130, 140], False),
        ([100, 130], [130, 140], False),
        ([100], [130], None),
        ([100, 110], [130, None], None),
    ],
)
def test_ways_are_apart_if_no_run_of_one_lies_among_those_of_the_other(first, other, is_apart):
    p95 = measure("TTFT from sent p95", [summary(each) for each in first], [summary(each) for each in other])
    assert p95.are_apart[1] is is_apart


def test_what_a_run_does_not_know_has_no_difference():
    cached = measure("prompt tokens cached", [summary(cached=None)], [summary()])
    assert (cached.values, cached.differences) == (((None,), (0.5,)), (None, None))


def test_refused_tries_are_those_of_calls_that_gave_up_and_of_earlier_tries():
    counts = {"failed": {"refused": 2, "cut": 1}, "earlier_tries": {"refused": 5, "timeout": 1}}
    assert measure("tries refused", [summary(**counts)], [summary()]).values == ((7.0,), (0.0,))
    assert measure("calls failed", [summary(**counts)], [summary()]).values == ((3.0,), (0.0,))


def test_one_run_of_each_claims_nothing():
    lines = table_lines(compare([[summary(100)], [summary(130, cached=0.25)]]), ("native", "none"))
    assert lines[0].split() == ["native", "none", "none", "−", "native"]
    assert "+30 ms" in next(line for line in lines if "from sent p95" in line)
    assert "(n=40)" in next(line for line in lines if "from sent p95" in line)
    assert "-25.0 points" in next(line for line in lines if "cached" in line)
    assert "–" in next(line for line in lines if "from sent p99" in line)
    assert lines[-1].startswith("One run of each")
    assert not any("apart" in line for line in lines)


def test_repeats_show_each_run_and_how_much_to_make_of_it():
    lines = table_lines(compare([[summary(100), summary(110)], [summary(130), summary(140)]]), ("a", "b"))
    p95 = next(line for line in lines if "from due p95" in line)
    assert "100 ms (n=40) / 110 ms (n=40)" in p95
    assert p95.endswith("+30 ms (apart)")
    assert next(line for line in lines if "sessions lost" in line).endswith("0 (within the spread)")
    assert "one measure in 3 " in lines[-1]


def test_json_names_the_runs_of_each_way():
    ways = ways_from_text("identity=native,none")
    shown = comparison_json(compare([[summary(100)], [summary(130)]]), ways, [["ab/a"], ["ab/b"]])
    assert shown["ways"] == [{"value": "native", "runs": ["ab/a"]}, {"value": "none", "runs": ["ab/b"]}]
    p95 = next(each for each in shown["measures"] if each["name"] == "TTFT from sent p95")
    assert (p95["values"], p95["counts"], p95["differences"]) == (
        [[100.0], [130.0]],
        [[40], [40]],
        [0.0, 30.0],
    )
    assert next(each for each in shown["measures"] if each["name"] == "duration")["counts"] is None
