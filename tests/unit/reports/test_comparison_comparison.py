from dataclasses import replace

import pytest

from aitrace.doubts import Doubt
from reports.comparison.comparison import Way, Wish, compare, labels_of, verdict
from reports.comparison.conditions import conditions_from_texts
from reports.comparison.testing import (
    made_up_facts,
    made_up_run_of_way,
    made_up_way,
    slower,
    two_made_up_ways,
)
from reports.comparison.values import values_recorded
from reports.testing import make_up_run

RUN = make_up_run(trees=8, calls=10)


def without_first_tokens(run, every):
    """The run with no first token of one call in so many; with 0 as it is."""
    return replace(
        run,
        calls=tuple(
            replace(call, first_token_ns=None) if every and place % every == 0 else call
            for place, call in enumerate(run.calls)
        ),
    )


def found(comparison, way=0):
    return {each.measure.name: each.finding for each in comparison.differences[way]}


def test_slower_first_tokens_are_found_and_nothing_else():
    comparison = compare(two_made_up_ways(1.1), Wish())
    findings = found(comparison)
    assert {name for name, finding in findings.items() if finding != "none"} <= {
        "ttft_p50", "ttft_p95", "ttft_p99", "ttft_paired", "user_ttft_p50", "user_ttft_p95", "user_ttft_paired",
        "itl_p50", "itl_p95",
    }  # fmt: skip
    assert findings["ttft_paired"] == findings["user_ttft_paired"] == "more"
    assert (comparison.plan, comparison.setup, comparison.is_fine, comparison.is_good) == (
        (),
        (),
        True,
        False,
    )
    assert verdict(comparison).startswith("after against before: ")


def test_equal_runs_have_no_difference_in_any_measure():
    comparison = compare(two_made_up_ways(1.0), Wish())
    assert set(found(comparison).values()) <= {"none", "too_few"}
    assert comparison.family == 0
    assert comparison.is_good
    assert "no difference found in" in verdict(comparison)


def test_one_run_of_each_is_noted_and_repeats_are_not():
    single = compare(two_made_up_ways(), Wish())
    assert [(doubt.name, doubt.weighs) for doubt in single.doubts] == [("no_repeats", False)]
    ways = [
        made_up_way(
            name,
            *(
                made_up_run_of_way(f"{name}/{n}", slower(RUN, factor + n / 200), text_seed=10 * place + n)
                for n in (1, 2)
            ),
        )
        for place, (name, factor) in enumerate((("a", 1.0), ("b", 1.1)))
    ]
    repeated = compare(ways, Wish(names=("ttft_paired",)))
    assert (repeated.doubts, repeated.knows_runs) == ((), True)
    assert (repeated.runs_of(0), repeated.runs_of(1)) == ([0, 1], [2, 3])


def test_a_run_in_doubt_runs_left_out_and_shared_texts_are_told():
    doubt = Doubt(name="client_late", what="the client was late", cause="it")
    first = made_up_way("a", made_up_run_of_way("a", RUN, doubts=(doubt,), text_seed=5))
    second = replace(made_up_way("b", made_up_run_of_way("b", RUN, text_seed=5)), left_out=("b/2",))
    comparison = compare([first, second], Wish())
    assert {each.name for each in comparison.doubts} == {
        "run_in_doubt", "shared_texts", "no_repeats", "runs_left_out",
    }  # fmt: skip
    assert not comparison.is_fine
    assert comparison.doubts[-1].weighs is False
    assert any("the client was late" in each.what for each in comparison.doubts)


def test_another_plan_is_told_first_in_the_verdict():
    comparison = compare(two_made_up_ways(seed=7), Wish())
    assert [each.option for each in comparison.plan] == ["--seed"]
    assert verdict(comparison).startswith("not the same plan: ")
    assert comparison.doubts[0].name == "other_plan"


def test_conditions_are_all_that_is_compared_unless_measures_are_named():
    conditions = conditions_from_texts(["ttft_paired > +5%", "ttft_paired > 10 ms"])
    comparison = compare(two_made_up_ways(), Wish(conditions=conditions))
    assert [each.name for each in comparison.measures] == ["ttft_paired"]
    assert [each.outcome for each in comparison.checked] == ["met", "met"]
    assert verdict(comparison) == "2 conditions failed"
    named = compare(two_made_up_ways(), Wish(conditions=conditions, names=("itl_p50",)))
    assert [each.name for each in named.measures] == ["itl_p50", "ttft_paired"]


def test_conditions_that_are_kept_or_cannot_be_told():
    kept = compare(two_made_up_ways(), Wish(conditions=conditions_from_texts(["ttft_paired > +50%"])))
    assert (verdict(kept), kept.is_good) == ("every condition is kept (1 condition)", True)
    few = [made_up_way(name, made_up_run_of_way(name, make_up_run(trees=2, calls=3))) for name in "ab"]
    unclear = compare(few, Wish(conditions=conditions_from_texts(["ttft_p99 > +50%"])))
    assert (verdict(unclear), unclear.is_good) == ("1 condition cannot be told", False)
    assert verdict(compare(few, Wish(names=("ttft_p99",)))) == "b against a: too few to tell"


def test_what_was_recorded_is_compared_by_what_a_trace_has():
    facts = made_up_facts(RUN)
    run = made_up_run_of_way("run", RUN)
    recorded = replace(run, name="x.aitrace", plan=None, values=values_recorded(facts, RUN.trace))
    comparison = compare(
        [Way(name="x.aitrace", label="x.aitrace", runs=(recorded,)), made_up_way("run", run)], Wish()
    )
    names = set(found(comparison))
    assert {"ttft_p50", "call_p50", "gap_p50", "session_p50"} <= names
    assert not names & {"user_ttft_p50", "backoff_mean", "refused_tries"}


def test_runs_of_one_way_show_their_noise():
    ways = [
        made_up_way(name, made_up_run_of_way(name, RUN, text_seed=seed)) for seed, name in enumerate("abc")
    ]
    comparison = compare(ways, Wish(names=("ttft_p50",), is_noise_asked=True))
    (noise,) = comparison.noise
    assert len(noise.values) == 3
    assert noise.floor == 0


def test_noise_is_of_calls_that_every_run_has():
    """Runs with the same first tokens are not apart because one of them lost calls."""
    ways = [
        made_up_way(name, made_up_run_of_way(name, without_first_tokens(RUN, every), text_seed=every))
        for name, every in (("a", 0), ("b", 0), ("c", 2))
    ]
    comparison = compare(ways, Wish(names=("ttft_mean",), is_noise_asked=True))
    (noise,) = comparison.noise
    assert (len(set(noise.values)), noise.floor_ratio) == (1, 0)
    assert noise.floor == pytest.approx(0, abs=1e-9)
    (doubt,) = (each for each in comparison.doubts if each.name == "unequal_work")
    assert doubt.what == "80 of 159 calls have no ttft in some run; c lacks most, 80"


def test_labels_are_the_ends_that_tell_paths_apart():
    assert labels_of(["runs/a", "runs/b/"]) == ("a", "b")
    assert labels_of(["one/run", "two/run"]) == ("one/run", "two/run")
    assert labels_of(["same", "same"]) == ("same", "same")


@pytest.mark.parametrize(("refused_ratio", "names"), [(0.0, []), (0.1, ["unequal_work"])])
def test_calls_that_one_way_only_answered_put_a_comparison_in_doubt(refused_ratio, names):
    ways = [
        made_up_way(name, made_up_run_of_way(f"{name}/1", make_up_run(trees=8, calls=6, refused_ratio=ratio)))
        for name, ratio in (("a", 0.0), ("b", refused_ratio))
    ]
    doubts = {doubt.name: doubt for doubt in compare(ways, Wish()).doubts}
    assert [name for name in doubts if name == "unequal_work"] == names
    assert all(doubts[name].weighs for name in names)


@pytest.mark.parametrize("names", [(), ("ttft_mean",), ("session_p50",)])
def test_calls_that_one_repeat_lost_put_a_comparison_in_doubt(names):
    ways = [
        made_up_way(
            name,
            *(
                made_up_run_of_way(f"{name}/{n}", run, text_seed=10 * place + n)
                for n, run in enumerate((RUN, make_up_run(trees=8, calls=10, refused_ratio=ratio)))
            ),
        )
        for place, (name, ratio) in enumerate((("a", 0.0), ("b", 0.1)))
    ]
    comparison = compare(ways, Wish(names=names))
    (doubt,) = (each for each in comparison.doubts if each.name == "unequal_work")
    assert doubt.weighs
    assert "; b/1 lacks most, " in doubt.what
    difference = next(
        each for each in comparison.differences[0] if each.measure.name == (names or ("ttft_p50",))[0]
    )
    of = difference.pairs + difference.in_part
    assert doubt.what.startswith(
        f"{difference.in_part:,} of {of:,} {'sessions' if names == ('session_p50',) else 'calls'} "
    )


def test_a_few_calls_that_one_repeat_lost_are_no_doubt():
    ways = [
        made_up_way("a", made_up_run_of_way("a", RUN, text_seed=1)),
        made_up_way(
            "b",
            made_up_run_of_way("b/1", RUN, text_seed=2),
            made_up_run_of_way("b/2", without_first_tokens(RUN, 40), text_seed=3),
        ),
    ]
    comparison = compare(ways, Wish(names=("ttft_mean",)))
    assert [each.in_part for each in comparison.differences[0]] == [4]
    assert "unequal_work" not in {doubt.name for doubt in comparison.doubts}


def test_no_share_can_change_by_more_than_there_is_of_it():
    before = made_up_way("a", made_up_run_of_way("a/1", make_up_run(trees=6, calls=6)))
    after = made_up_way("b", made_up_run_of_way("b/1", make_up_run(trees=6, calls=6, refused_ratio=0.3)))
    comparison = compare([before, after], Wish(names=("lost_sessions", "complete_calls")))
    for each in comparison.differences[0]:
        assert -each.first.value <= each.absolute.low <= each.absolute.high <= 1 - each.first.value
