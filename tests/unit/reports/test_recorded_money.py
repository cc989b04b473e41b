"""Costs."""

import pytest

from aitrace.schema import Outcome, Usage
from aitrace.testing import TraceBuilder
from reports.recorded.facts import recorded_from_trace
from reports.recorded.money import NO_KIND, NO_MODEL, NO_TOKENS, money_of
from reports.recorded.prefixes import prefix_steps
from reports.recorded.prices import Prices
from reports.recorded.reuse import with_possible

M = 1_000_000
PRICES = Prices(
    by_model={
        "big": {
            "input": 4.0,
            "cache_read": 1.0,
            "cache_write_5m": 5.0,
            "cache_write_1h": 8.0,
            "output": 20.0,
        },
        "small*": {"input": 1.0, "output": 2.0},
    }
)


def money(builder, prices=PRICES):
    recorded = recorded_from_trace(builder.trace())
    return money_of(with_possible(recorded), prefix_steps(recorded), prices)


def usage(total, read, short, long, output):
    return Usage(
        input_tokens=total,
        cache_read_tokens=read,
        cache_write_5m_tokens=short,
        cache_write_1h_tokens=long,
        output_tokens=output,
    )


def test_each_kind_of_token_is_paid_at_its_price():
    builder = TraceBuilder()
    builder.call(builder.session(), model="big", usage=usage(10 * M, 4 * M, 2 * M, 1 * M, M))
    found = money(builder)
    assert found.numbers["cost_usd"] == 3 * 4 + 4 * 1 + 2 * 5 + 1 * 8 + 20
    # As input the 7 M cached and written ones would have cost 28.
    assert found.numbers["saved_usd"] == 28 - (4 + 10 + 8)
    kinds = [
        found.numbers[f"{kind}_usd"]
        for kind in ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
    ]
    assert kinds == [12, 4, 10, 8, 20]


def test_calls_without_a_price_are_counted_by_the_reason_and_in_no_sum():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, model="small-1", usage=usage(M, 0, None, None, M))
    builder.call(main, model="small-1", usage=usage(M, 5, None, None, M))
    builder.call(main, model="other", usage=usage(M, 0, None, None, M))
    builder.call(main, model="big", usage=Usage(input_tokens=5))
    found = money(builder)
    assert found.unpriced == {NO_TOKENS: 1, NO_MODEL: 1, NO_KIND: 1}
    assert (found.numbers["priced_calls"], found.numbers["unpriced_calls"], found.numbers["cost_usd"]) == (
        1,
        3,
        3.0,
    )


def test_without_a_priced_call_nothing_is_known():
    builder = TraceBuilder()
    builder.call(builder.session(), model="other")
    found = money(builder)
    assert (found.numbers["cost_usd"], found.numbers["lost_reuse_usd"], found.by_model) == (None, None, [])


def test_a_call_that_reports_nothing_cached_costs_at_most_this_and_saves_an_unknown_amount():
    builder = TraceBuilder()
    builder.call(builder.session(), model="big", usage=usage(M, None, None, None, 0))
    found = money(builder)
    assert (found.numbers["cost_usd"], found.numbers["saved_usd"], found.numbers["cache_read_usd"]) == (
        4.0,
        None,
        None,
    )
    assert found.numbers["upper_bound_calls"] == 1
    assert found.by_session[0]["saved_usd"] is None


def test_lost_reuse_and_breaks_cost_the_difference_to_cached_tokens():
    builder = TraceBuilder(block_size=M)
    main = builder.session()
    first, second = builder.segment(M), builder.segment(2 * M)
    builder.call(main, [first, second], model="big", usage=usage(3 * M, 0, None, None, 0))
    builder.call(
        main, [builder.segment(M), second], keep=1, model="big", usage=usage(4 * M, 0, None, None, 0)
    )
    found = money(builder)
    # 1 M was possible; 2 M behind the break were there before.
    assert (found.numbers["lost_reuse_usd"], found.numbers["prefix_breaks_usd"]) == (3.0, 6.0)


def test_lost_reuse_is_of_the_calls_that_are_compared():
    builder = TraceBuilder(block_size=M)
    main = builder.session()
    builder.call(main, [builder.segment(M)], model="big", usage=usage(M, 0, None, None, 0))
    builder.call(main, keep=1, model="big", usage=usage(M, 0, None, None, 0), outcome=Outcome(error="cut"))
    assert money(builder).numbers["lost_reuse_usd"] == 0.0


def test_costs_are_summed_by_model_and_session_the_most_first():
    builder = TraceBuilder()
    for model, tokens in (("small-1", M), ("big", M), ("big", 2 * M)):
        builder.call(builder.session(agent=model), model=model, usage=usage(tokens, 0, None, None, 0))
    found = money(builder)
    assert [(row["model"], row["calls"], row["cost_usd"]) for row in found.by_model] == [
        ("big", 2, 12.0),
        ("small-1", 1, 1.0),
    ]
    assert [(row["session"], row["cost_usd"]) for row in found.by_session] == [(2, 8.0), (1, 4.0), (0, 1.0)]


def test_a_table_without_input_prices_tells_no_savings():
    builder = TraceBuilder()
    builder.call(builder.session(), model="m", usage=usage(M, M, None, None, 0))
    found = money(builder, Prices(by_model={"m": {"cache_read": 1.0}}))
    assert (found.numbers["cost_usd"], found.numbers["saved_usd"]) == (pytest.approx(1.0), None)
