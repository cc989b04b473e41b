from aitrace.testing import make_run_end, make_run_header
from replayer.commands.replay import replay
from reports.comparison.plan_check import (
    PLAN_OPTIONS,
    PlayedPlan,
    options_of,
    plan_differences,
    setup_differences,
    shared_texts,
    text_from_option,
    without_trace,
)


def plan(name="b", digest="d", end=None, **fields):
    return PlayedPlan(name=name, header=make_run_header(**fields), end=end, trace_digest=digest)


def options(differences):
    return [(each.option, each.first, each.other) for each in differences]


def test_runs_of_one_plan_do_not_differ():
    assert (
        plan_differences([plan("a", text_seed=1), plan("b", text_seed=2, url="http://other", model="n")])
        == ()
    )
    assert plan_differences([]) == ()


def test_the_trace_is_told_by_its_content_not_its_name():
    assert [each.option for each in plan_differences([plan("a"), plan("b", digest="e")])] == ["trace"]
    assert plan_differences([plan("a", trace="one"), plan("b", trace="one")]) == ()
    assert plan_differences([plan("a", trace="one"), plan("b", trace="copy of one")]) == ()


def test_a_run_without_its_trace_is_named_and_not_said_to_have_played_another():
    kept, missing, other = plan("a", trace="one"), plan("b", digest=None), plan("c", trace="two", digest="e")
    assert plan_differences([kept, missing]) == ()
    assert plan_differences([missing, kept]) == ()
    assert options(plan_differences([missing, kept, other])) == [("trace", "one (d)", "two (e)")]
    assert without_trace([kept, missing, other]) == ("b",)


def test_each_option_of_the_plan_that_differs_is_named_as_typed_with_both_values():
    one = plan(
        "a",
        options={
            "arrival": "poisson:1/s",
            "duration_ns": 1_500_000_000,
            "gap_caps_ns": {},
            "identity": "native",
        },
        seed=1,
    )
    other = plan(
        "b",
        options={
            "arrival": None,
            "duration_ns": 90_000_000_000,
            "gap_caps_ns": {"user": 250_000_000},
            "context_tokens": 9,
            "identity": "none",
        },
        seed=2,
        time_scale=0.5,
    )
    found = plan_differences([one, other])
    assert options(found) == [
        ("--arrival", "poisson:1/s", "not given"),
        ("--gap-cap", "not given", "user=0.25s"),
        ("--duration", "1.5s", "90s"),
        ("--time-scale", "1", "0.5"),
        ("--seed", "1", "2"),
        ("--context", "not told", "9"),
    ]
    assert "--seed 1 and 2 (b)" in options_of(found)


def test_options_of_a_plan_are_those_that_a_replay_takes():
    known = {name for option in replay.params for name in option.opts}
    given = {
        name: 1 if name == "duration_ns" else {} if name == "gap_caps_ns" else "x" for name in PLAN_OPTIONS
    }
    found = plan_differences([plan("a", options={"warm_up": None}), plan("b", options=given)])
    typed = {each.option for each in found}
    assert len(typed) > 10
    assert typed <= known


def test_lengths_that_are_close_are_told_apart():
    runs = [plan(name, options={"duration_ns": ns}) for name, ns in (("a", 10**15), ("b", 10**15 + 1))]
    assert options(plan_differences(runs)) == [("--duration", "1000000s", "1000000.000000001s")]


def test_what_is_compared_may_differ_and_is_told():
    one = plan("a", options={"identity": "native", "seed": 1}, model="m")
    other = plan("b", options={"identity": "none", "seed": 1, "new_option": True}, model="n")
    assert options(setup_differences([one, other])) == [
        ("model", "m", "n"),
        ("identity", "native", "none"),
        ("new_option", "not told", "yes"),
    ]


def test_repeats_that_differ_in_the_same_are_told_once():
    runs = [plan("a"), plan("b1", model="n"), plan("b2", model="n"), plan("c", model="o")]
    assert [each.run for each in setup_differences(runs)] == ["b1", "c"]


def test_how_many_calls_a_store_of_trees_held_is_no_difference():
    left = make_run_end(unstarted_calls=4)
    assert (
        plan_differences([plan("a", planned_calls=9, end=left), plan("b", planned_calls=9, end=left)]) == ()
    )
    found = plan_differences([plan("a", planned_calls=9), plan("b", planned_calls=8)])
    assert options(found) == [("planned calls", "9", "8")]


def test_runs_with_the_same_texts_are_told():
    assert shared_texts([plan("a", text_seed=1), plan("b", text_seed=2), plan("c", text_seed=1)]) == (
        ("a", "c"),
    )
    assert shared_texts([plan("a"), plan("b")]) == ()


def test_values_of_options_are_text():
    assert text_from_option(["a", 1.50]) == "a, 1.5"
    assert [text_from_option(each) for each in (None, [], {}, True, False, 7)] == [
        "none",
        "none",
        "none",
        "yes",
        "no",
        "7",
    ]
