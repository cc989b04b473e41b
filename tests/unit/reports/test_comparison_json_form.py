import orjson

from reports.comparison.comparison import Wish, compare
from reports.comparison.conditions import conditions_from_texts
from reports.comparison.json_form import json_from_comparison
from reports.comparison.testing import made_up_run_of_way, made_up_way, two_made_up_ways
from reports.testing import make_up_run


def test_json_has_ways_differences_and_conditions():
    conditions = conditions_from_texts(["ttft_paired > +5%"])
    shown = json_from_comparison(
        compare(two_made_up_ways(model="other"), Wish(conditions=conditions, names=("ttft_p50",)))
    )
    assert orjson.loads(orjson.dumps(shown)) == shown
    assert [way["name"] for way in shown["ways"]] == ["before", "after"]
    assert shown["ways"][1]["runs"] == [{"name": "runs/after", "fine": True, "doubts": []}]
    assert [(each["option"], each["first"], each["other"]) for each in shown["differs"]] == [
        ("model", "model-a", "other")
    ]
    (compared,) = shown["comparisons"]
    assert [each["name"] for each in compared["measures"]] == ["ttft_p50", "ttft_paired"]
    paired = compared["measures"][1]
    assert round(paired["relative"]["point"], 3) == 0.1
    assert (paired["finding"], paired["worse"], paired["first"]["value"]) == ("more", True, None)
    assert (paired["only_first"], paired["only_second"], paired["in_part"]) == (0, 0, 0)
    assert shown["conditions"][0]["outcome"] == "met"
    assert shown["noise"] is None


def test_json_of_noise_is_by_measure():
    run = make_up_run(trees=6, calls=6)
    ways = [made_up_way(name, made_up_run_of_way(name, run)) for name in "ab"]
    shown = json_from_comparison(compare(ways, Wish(names=("ttft_p50", "ttft_p99"), is_noise_asked=True)))
    assert shown["noise"]["ttft_p50"]["relative"] == {"sd": 0.0, "freedom": 1.0}
    assert shown["noise"]["ttft_p99"]["relative"] is None
