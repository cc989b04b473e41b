"""Pure: what the recorded calls cost by a price table, what caching saved, and what lost prefixes cost.

Only calls that report input and output tokens are priced, and only if the table has a price for each kind of token that
they have; the others are counted. A call that does not report what was read from a cache is paid as if nothing was: its
cost is an upper bound, and what caching saved of it is not known.
"""

from dataclasses import dataclass
from typing import Any

import polars as pl

from reports.metric import Row
from reports.recorded.prices import KINDS, TOKENS_OF_PRICE, Prices, cost_usd
from reports.recorded.reuse import population

_COLUMNS = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
)
_SCHEMA: dict[str, Any] = {
    "call": pl.Int64,
    **{f"{kind}_usd": pl.Float64 for kind in KINDS},
    "cost_usd": pl.Float64,
    "saved_usd": pl.Float64,
    "is_upper": pl.Boolean,
    "input_price": pl.Float64,
    "read_price": pl.Float64,
}
NO_TOKENS, NO_MODEL, NO_KIND = (
    "tokens not reported",
    "no price for the model",
    "no price for a kind of its tokens",
)
"""Why a call has no cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """Costs."""

    calls: pl.DataFrame
    """One row per priced call: `<kind>_usd`, `cost_usd`, `saved_usd`, and the prices it was counted by."""
    unpriced: dict[str, int]
    """Calls without a cost, by the reason."""
    numbers: dict[str, float | int | None]
    """Sums by name."""
    by_model: list[Row]
    """Cost by model."""
    by_session: list[Row]
    """Cost by session, the most first."""


def money_of(calls: pl.DataFrame, steps: pl.DataFrame, prices: Prices) -> Money:
    """What all calls cost.

    Args:
        calls: Calls as of `reports.recorded.reuse.with_possible`.
        steps: How prompts go on, see `reports.recorded.prefixes`.
    """
    rows, unpriced = [], dict.fromkeys((NO_TOKENS, NO_MODEL, NO_KIND), 0)
    for call, model, *usage in calls.select("call", "model", *_COLUMNS).iter_rows():
        row = _priced(usage, model, prices)
        if isinstance(row, str):
            unpriced[row] += 1
        else:
            rows.append((call, *row))
    priced = pl.DataFrame(rows, schema=_SCHEMA, orient="row").join(calls, on="call", how="left")
    compared = priced.join(population(calls).select("call"), on="call", how="semi")
    again = priced.join(steps.select("call", "again_size"), on="call", how="inner").with_columns(
        again_tokens=pl.col("again_size") * pl.col("tokens_per_unit")
    )
    sums: dict[str, float | int | None] = {
        name: _sum(priced[name]) for name in ("cost_usd", "saved_usd", *(f"{kind}_usd" for kind in KINDS))
    }
    return Money(
        calls=priced,
        unpriced={reason: count for reason, count in unpriced.items() if count},
        numbers={
            "priced_calls": priced.height,
            "unpriced_calls": calls.height - priced.height,
            "upper_bound_calls": int(priced["is_upper"].sum()),
            **sums,
            "lost_reuse_usd": _lost_usd(compared, "lost_tokens"),
            "prefix_breaks_usd": _lost_usd(again, "again_tokens"),
        },
        by_model=_by_model(priced),
        by_session=_by_session(priced),
    )


def _priced(usage: list[int | None], model: str | None, prices: Prices) -> tuple[float | None, ...] | str:
    """Costs and prices of a call, or why it has none."""
    total, read, short, long, output = usage
    if total is None or output is None:
        return NO_TOKENS
    table = prices.of_model(model)
    if table is None:
        return NO_MODEL
    cached = (read or 0, short or 0, long or 0)
    costs = cost_usd((max(total - sum(cached), 0), *cached, output), table)
    if costs is None:
        return NO_KIND
    plain = table.get("input")
    saved = None
    if plain is not None and read is not None:
        saved = sum(cached) * plain / TOKENS_OF_PRICE - sum(costs[1:4])
    parts = (None if count is None else cost for count, cost in zip(usage, costs, strict=True))
    return (*parts, sum(costs), saved, read is None, plain, table.get("cache_read"))


def _lost_usd(calls: pl.DataFrame, tokens: str) -> float | None:
    """What these tokens cost beyond what they would have as cached ones; None if no call tells."""
    excess = (pl.col("input_price") - pl.col("read_price")) * pl.col(tokens) / TOKENS_OF_PRICE
    return _sum(calls.select(excess.alias("usd"))["usd"])


def _by_model(priced: pl.DataFrame) -> list[Row]:
    rows: list[Row] = []
    for (model,), inside in priced.group_by("model", maintain_order=True):
        sums = {
            name: _sum(inside[name]) for name in ("cost_usd", "saved_usd", *(f"{kind}_usd" for kind in KINDS))
        }
        rows.append({"model": str(model), "calls": inside.height, **sums})
    return sorted(rows, key=lambda row: -float(row["cost_usd"] or 0))


def _by_session(priced: pl.DataFrame) -> list[Row]:
    sums = priced.group_by("session", "root", "depth", "harness", "agent").agg(
        calls=pl.len(),
        cost_usd=pl.col("cost_usd").sum(),
        saved_usd=pl.when(pl.col("saved_usd").is_not_null().any()).then(pl.col("saved_usd").sum()),
    )
    return sums.sort(["cost_usd", "session"], descending=[True, False]).to_dicts()


def _sum(column: pl.Series) -> float | None:
    known = column.drop_nulls()
    return None if known.is_empty() else float(known.sum())
