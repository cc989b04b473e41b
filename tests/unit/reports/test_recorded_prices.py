"""Price tables."""

import pytest

from aitrace.errors import UsageError
from reports.recorded.prices import Prices, cost_usd, prices_from_json


def test_an_exact_name_comes_before_patterns_and_patterns_in_order():
    prices = prices_from_json(b'{"a-*":{"input":1},"a-b*":{"input":2},"a-bc":{"input":3}}', place="p")
    assert [prices.of_model(model) for model in ("a-bc", "a-bd", "b", None)] == [
        {"input": 3.0},
        {"input": 1.0},
        None,
        None,
    ]


def test_capitals_are_told_apart():
    assert Prices(by_model={"A*": {"input": 1.0}}).of_model("ab") is None


def test_prices_are_for_a_million_tokens():
    table = {"input": 5.0, "cache_read": 0.5, "output": 25.0}
    assert cost_usd((1_000_000, 200_000, 0, 0, 10_000), table) == (5.0, 0.1, 0.0, 0.0, 0.25)


def test_tokens_of_a_kind_without_a_price_have_no_cost():
    assert cost_usd((1, 0, 7, 0, 1), {"input": 1.0, "output": 1.0}) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "p: not JSON"),
        (b"[1]", r"p: expected an object, got \[1\]"),
        (b'{"m": 0.1}', "p: 'm': expected an object, got 0.1"),
        (b'{"m": {"in": 1}}', "p: 'm': unknown kind of tokens 'in', expected one of input, cache_read"),
        (b'{"m": {"input": "1"}}', "p: 'm': input: expected a number of 0 or more, got '1'"),
        (b'{"m": {"input": -1}}', "input: expected a number of 0 or more, got -1"),
        (b'{"m": {"input": true}}', "input: expected a number of 0 or more, got True"),
        (b'{"m": "' + b"x" * 60 + b'"}', "expected an object, got 'x{39}…"),
    ],
)
def test_what_is_no_price_table_is_wrong_use(data, message):
    with pytest.raises(UsageError, match=message):
        prices_from_json(data, place="p")
