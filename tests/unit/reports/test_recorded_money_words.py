"""Money in words."""

import pytest

from aitrace.testing import make_trace
from reports.recorded.answers import answers_from_recorded
from reports.recorded.facts import recorded_from_trace
from reports.recorded.money_words import cost_headline, money_blocks, session_cost_table, usd_text
from reports.recorded.prices import Prices


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("x", "–"), (0, "$0.00"), (0.01234, "$0.0123"), (1234.567, "$1,234.57"), (-2.5, "−$2.50")],
)
def test_amounts_have_the_digits_that_matter(value, text):
    assert usd_text(value) == text


def answers(prices):
    return answers_from_recorded(recorded_from_trace(make_trace(sessions=2, calls=3)), prices)


def test_without_prices_there_is_nothing_about_money():
    assert (cost_headline(answers(None)), money_blocks(answers(None))) == ((), ())


def test_costs_and_calls_without_one_are_told():
    found = answers(Prices(by_model={"model-a": {"input": 1e6, "output": 0}}))
    # No call says how much of it was cached.
    assert (
        cost_headline(found)[0].value == f"at most ${sum(2 * (1200 + 400 * call) for call in range(3)):,}.00"
    )
    assert [block.kind for block in money_blocks(found)] == ["heading", "pairs", "table", "heading", "table"]
    unpriced = money_blocks(answers(Prices(by_model={})))
    assert [block.kind for block in unpriced] == ["heading", "pairs"]
    assert unpriced[1].pairs[-1] == ("calls without a cost: no price for the model", "6")


def test_of_many_sessions_those_that_cost_most_are_shown():
    rows = answers(Prices(by_model={"*": {"input": 1, "output": 1}})).money.by_session
    table = session_cost_table(rows, 1)
    assert (table.caption, len(table.rows)) == ("The 1 that cost most of 2 sessions.", 1)
