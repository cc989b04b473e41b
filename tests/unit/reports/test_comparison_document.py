from aitrace.doubts import Doubt
from reports.comparison.comparison import Wish, compare
from reports.comparison.conditions import conditions_from_texts
from reports.comparison.document import (
    confidence_sentence,
    document_of_comparison,
    effects_table,
    findings_table,
    noise_table,
    options_table,
    ways_table,
)
from reports.comparison.testing import made_up_run_of_way, made_up_way, two_made_up_ways
from reports.testing import make_up_run

RUN = make_up_run(trees=6, calls=6)


def sections(comparison):
    return [section.id for section in document_of_comparison(comparison).sections]


def test_a_page_says_what_differs_then_what_was_found():
    document = document_of_comparison(compare(two_made_up_ways(model="other"), Wish()))
    assert [section.id for section in document.sections] == ["ways", "differences-1", "distributions"]
    assert document.title == "after against before"
    assert (document.is_fine, document.is_good) == (True, False)
    assert "+10.0 %" in {headline.value for headline in document.headlines}
    assert [figure.id for figure in document.figures()][:2] == ["forest-1", "pairs-1"]


def test_another_plan_comes_first():
    comparison = compare(two_made_up_ways(seed=9), Wish())
    assert sections(comparison)[0] == "plan"
    assert options_table(comparison.plan).rows == (("--seed", "0", "9", "runs/after"),)


def test_conditions_have_a_section_of_their_own():
    comparison = compare(two_made_up_ways(), Wish(conditions=conditions_from_texts(["ttft_p50 > +5%"])))
    assert sections(comparison)[1] == "conditions"


def test_runs_that_differ_in_nothing_say_so():
    document = document_of_comparison(compare(two_made_up_ways(), Wish()))
    assert "Nothing but the texts" in document.sections[0].blocks[0].text


def test_tables_have_a_row_per_measure():
    comparison = compare(two_made_up_ways(), Wish(names=("ttft_paired", "backoff_mean", "ttft_p99")))
    findings = {row[0]: row for row in findings_table(comparison, 1).rows}
    assert findings["ttft_paired"][1:3] == ("–", "–")
    assert findings["ttft_paired"][4].startswith("slower by 10.0 %")
    effects = {row[0]: row for row in effects_table(comparison, 1).rows}
    assert effects["backoff_mean"][2:4] == ("0 s (0 to 0 s)", "–")
    assert ways_table(comparison).rows[0] == ("before", "before", "1", "no")


def test_the_confidence_says_what_it_holds_for():
    comparison = compare(two_made_up_ways(), Wish(names=("ttft_p50",)))
    assert confidence_sentence(comparison) == (
        "Confidence of 95 % that all intervals hold together (1 difference); they hold the spread between trees, not that "
        "between runs."
    )


def test_noise_has_a_table():
    ways = [made_up_way(name, made_up_run_of_way(name, RUN)) for name in "abc"]
    comparison = compare(ways, Wish(names=("ttft_p50", "ttft_p99"), is_noise_asked=True))
    assert "noise" in sections(comparison)
    rows = {row[0]: row for row in noise_table(comparison.noise).rows}
    assert rows["ttft_p50"][1:3] == ("0 s", "0.0 %")
    assert rows["ttft_p99"][1:3] == ("–", "–")
    assert document_of_comparison(comparison).title == "Noise of a, b, c"


def test_a_way_whose_run_is_in_doubt_is_marked():
    doubt = Doubt(name="client_late", what="the client was late", cause="it")
    ways = [
        made_up_way(name, made_up_run_of_way(name, RUN, doubts=doubts))
        for name, doubts in (("a", ()), ("b", (doubt,)))
    ]
    document = document_of_comparison(compare(ways, Wish(names=("ttft_p50",))))
    assert [row[3] for row in ways_table(compare(ways, Wish(names=("ttft_p50",)))).rows] == [
        "no",
        "the client was late",
    ]
    assert not document.is_fine
