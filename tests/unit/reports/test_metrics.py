from aitrace.testing import make_run_header
from reports.answers import answers_from_facts
from reports.measures.time_metrics import SERIES
from reports.metrics import DISTRIBUTIONS, METRICS, NUMBERS, TABLES
from reports.tables import facts_from_run

UNIT_SUFFIXES = {"ms": "_ms", "s": "_s", "tokens": "_tokens", "tokens/s": "_tokens_per_s", "": "_ratio"}


def test_no_two_numbers_have_one_name():
    assert len(METRICS) == len(DISTRIBUTIONS) + len(NUMBERS) + len(TABLES) + len(SERIES)


def test_names_end_in_their_unit():
    named = [*DISTRIBUTIONS, *NUMBERS]
    assert [
        m.name for m in named if m.unit in UNIT_SUFFIXES and not m.name.endswith(UNIT_SUFFIXES[m.unit])
    ] == []


def test_every_number_can_be_told_of_a_run_without_calls():
    facts = facts_from_run(make_run_header(), None, [], [], None)
    answers = answers_from_facts(facts)
    assert {spread.count for spread in answers.spreads.values()} == {0}
    assert {name for name, rows in answers.tables.items() if rows} == set()
    assert answers.numbers["missing_calls"] == 1
