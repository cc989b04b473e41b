from dataclasses import replace

import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.losses import CAUSES, losses
from reports.cache.pieces import run_reuse
from reports.cache.rules import Border, LossRule
from reports.cache.text import (
    CAUSE_MEANINGS,
    CAUSE_NAMES,
    curve_finding,
    lifetime_finding,
    losses_finding,
    model_notes,
    rule_finding,
    survival_finding,
    text_from_rule,
)
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture(scope="module")
def report():
    run = make_up_run(trees=6, calls=12)
    return report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))


@pytest.fixture
def silent(facts_of):
    return report_from_facts(facts_of([make_call_result(0, usage=Usage(input_tokens=1000))]))


def with_answers(report, *, numbers=None, **tables):
    answers = replace(
        report.answers,
        tables=report.answers.tables | tables,
        numbers=report.answers.numbers | (numbers or {}),
    )
    return replace(report, answers=answers)


def bucket(low, high, calls, survived, interval=(0.1, 0.9)):
    return {
        "kind": "all",
        "idle_from_s": low,
        "idle_to_s": high,
        "calls": calls,
        "survived_ratio": survived,
        "survived_low_ratio": interval[0],
        "survived_high_ratio": interval[1],
    }


def survival(report, half_s, *rows):
    return survival_finding(
        with_answers(report, numbers={"cache_half_lost_s": half_s}, cache_survival=list(rows))
    )


def test_every_cause_has_a_name_and_a_meaning():
    assert set(CAUSE_NAMES) == set(CAUSE_MEANINGS) == set(CAUSES)


def test_survival_names_both_ends_and_where_half_are_lost(report):
    rows = (bucket(0, 1.0, 50, 0.98), bucket(1.0, 100, 30, 0.6), bucket(100, None, 20, 0.1, (None, None)))
    assert survival(report, 60.0, *rows) == (
        "98.0 % of prefixes survive (n = 50, 95 % interval 10.0 % to 90.0 %) when idle for under 1 s, 10.0 % of "
        "prefixes survive (n = 20) when idle for 1 min 40 s and more: half are lost from 1 min on."
    )


@pytest.mark.parametrize(
    ("half_s", "shares", "ending"),
    [
        (None, (0.9, 0.8), ": at no idle time that was seen are half of the prefixes lost."),
        (0, (0.4, 0.1), ": more than half are lost however short the time."),
        (None, (0.9, 0.2, 0.9), "when idle for 1 s to 2 s: it is not the time that decides."),
    ],
)
def test_survival_says_if_there_is_no_such_time(report, half_s, shares, ending):
    lows = (0, 1.0, 2.0)[: len(shares)]
    highs = (*lows[1:], None)
    rows = [bucket(low, high, 20, share) for low, high, share in zip(lows, highs, shares, strict=True)]
    assert survival(report, half_s, *rows).endswith(ending)


def test_the_worst_bucket_is_told_once(report):
    rows = (bucket(0, 1.0, 20, 0.3), bucket(1.0, 2.0, 20, 0.9), bucket(2.0, None, 20, 0.6))
    finding = survival(report, None, *rows)
    assert finding.count("30.0 % of prefixes survive") == 1
    assert finding.endswith("when idle for 2 s and more: it is not the time that decides.")


def test_one_bucket_is_told_once(report):
    assert survival(report, None, bucket(0, None, 9, 0.9)).startswith("90.0 % of prefixes survive (n = 9")
    assert "when idle for any time:" in survival(report, None, bucket(0, None, 9, 0.9))


def loss_rows(**tokens):
    return [{"cause": cause, "tokens": tokens.get(cause, 0)} for cause in CAUSES]


def test_losses_name_the_largest_cause(report):
    made = with_answers(report, cache_losses=loss_rows(new_content=600, eviction=300, rounding=100))
    assert losses_finding(made) == (
        "Of 1,000 prompt tokens not served from cache, 40.0 % had been sent before and were lost; the largest cause is "
        "“eviction”, 75.0 % of them."
    )


def test_a_small_part_that_was_lost_has_no_cause_worth_telling(report):
    made = with_answers(report, cache_losses=loss_rows(new_content=9_950, rounding=50))
    assert losses_finding(made) == (
        "Next to nothing was lost: of 10,000 prompt tokens not served from cache, 0.5 % had been sent before."
    )


def test_where_nothing_was_lost_it_says_so(report):
    made = with_answers(report, cache_losses=loss_rows(new_content=600))
    assert losses_finding(made) == (
        "Nothing was lost: all 600 prompt tokens not served from cache had never been sent before."
    )


def rule_of(kind):
    border = Border(at=90.0, kept=80.0, lost=100.0, score=0.95)
    return LossRule(
        kind=kind,
        age_s=None if kind == "few" else border,
        amount_tokens=None if kind == "few" else replace(border, at=50_000.0),
        pair_score=0.99,
        pair=(90.0, 50_000.0),
        kept_cases=1200,
        lost_cases=1,
        sessions=30,
    )


@pytest.mark.parametrize(
    ("kind", "beginning"),
    [
        ("age", "Losses follow the idle time: a border at 1 min 30 s idle tells lost from kept"),
        ("amount", "Losses follow what was used since: a border at 50,000 tokens used since"),
        ("undecided", "Gap expiry and eviction cannot be told apart in this run: "),
        (
            "either",
            "Both are at work: lost is what was idle for more than 1 min 30 s or behind more than 50,000",
        ),
        ("none", "Neither the idle time nor what was used since explains the losses: "),
        ("few", "Too few prefixes were kept or lost to tell gap expiry from eviction"),
    ],
)
def test_the_rule_is_told_with_its_numbers(kind, beginning):
    finding = text_from_rule(rule_of(kind))
    assert finding.startswith(beginning)
    assert finding.endswith("(n = 1 lost part and 1,200 kept, of 30 sessions).")


@pytest.mark.parametrize(
    ("above", "end"),
    [
        (0.005, ", as much as any size could."),
        (-0.005, ", as much as any size could."),
        (0.02, " that the run's own prompts could bring: the cache was warm."),
        (-0.02, ", and the rest was lost to what no size mends."),
    ],
)
def test_where_the_size_loses_nothing_the_curves_end_says_what_is_missing(report, above, end):
    served = report.answers.numbers["cache_model_highest_ratio"] + above
    numbers = {"cache_equivalent_tokens": None, "cache_reported_ratio": served}
    finding = curve_finding(with_answers(report, numbers=numbers))
    assert finding.startswith(f"No larger cache would help: {served * 100:.1f} % were served")
    assert finding.endswith(end)


def test_the_curve_tells_todays_place_and_where_it_gets_flat(report):
    numbers = {"cache_enough_tokens": 1e9, "cache_equivalent_tokens": 123_456.0, "cache_reported_ratio": 0.5}
    made = with_answers(report, numbers=numbers)
    top = report.answers.numbers["cache_model_highest_ratio"]
    assert curve_finding(made) == (
        "Whatever lost them, the endpoint lost as much as an LRU cache of about 120,000 tokens would (50.0 % served); with "
        f"1,000,000,000 tokens {top * 100:.1f} % would be possible."
    )
    unknown = with_answers(report, numbers=numbers | {"cache_reported_ratio": None})
    assert curve_finding(unknown).startswith("As an LRU cache, with 1,000,000,000 tokens")


def test_the_lifetime_that_is_enough_is_told(report):
    made = with_answers(report, numbers={"cache_enough_s": 90.0})
    assert lifetime_finding(made).startswith(
        "A cache that keeps everything for 1 min 30 s after its last use could serve "
    )


def test_notes_say_what_was_left_out_or_put_together(report):
    notes = list(model_notes(with_answers(report, numbers={"cache_surplus_tokens": 1200})))
    assert len(notes) == 2
    assert notes[1].startswith("1,200 tokens were reported as cached beyond")


@pytest.mark.parametrize(("workers", "is_told"), [("ab", True), ("aa", False), ("a", False), ("", False)])
def test_several_workers_are_told_and_a_call_that_names_none_is_none_of_them(facts_of, workers, is_told):
    builder = TraceBuilder(block_size=64)
    session = builder.session()
    for size in (640, 64):
        builder.call(session, [builder.segment(size)])
    calls = [
        make_call_result(
            index,
            prompt_tokens=640 + 64 * index,
            signals={"x-smg-routed-worker-id": workers[index]} if index < len(workers) else {},
        )
        for index in range(2)
    ]
    notes = model_notes(report_from_facts(facts_of(calls, trace=builder.trace())))
    assert any(note.startswith("Several workers answered") for note in notes) is is_told


def test_a_sample_is_told(report):
    facts = replace(report.facts)
    facts.known[run_reuse.__wrapped__] = replace(run_reuse(report.facts), sample_ratio=0.05)
    notes = list(model_notes(replace(report, facts=facts)))
    assert notes[1].startswith("More than 30,000 calls were sent:")
    assert "5.0 % of the calls" in notes[1]


def test_the_rule_is_told_where_something_was_lost(report):
    assert rule_finding(report) == text_from_rule(losses(report.facts).rule)


def test_without_reports_nothing_is_said(silent):
    assert survival_finding(silent) is losses_finding(silent) is rule_finding(silent) is None
    assert curve_finding(silent) is lifetime_finding(silent) is None
    assert list(model_notes(silent)) == []
