"""Pure: prices of tokens by model, as a user gives them.

    {"claude-opus-*": {"input": 5, "cache_read": 0.5, "cache_write_5m": 6.25, "cache_write_1h": 10, "output": 25}}

Good: one object, the name of a model or a pattern (`*`, `?`) to USD per million tokens; an exact name comes before
patterns, patterns in the order of the file. Good: `{"small": {"input": 0.1, "output": 0.4}}`, if its calls report nothing
cached. Not good: `{"small": 0.1}` (of which tokens?).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import orjson

from aitrace.errors import UsageError

KINDS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
"""Kinds of tokens that are paid for; `input` are those that are neither read from a cache nor written to one."""
TOKENS_OF_PRICE = 1_000_000
"""Tokens that a price is for."""

_HINT = 'one object such as {"claude-opus-*": {"input": 5, "cache_read": 0.5, "output": 25}}, USD per million tokens'


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price table."""

    by_model: Mapping[str, Mapping[str, float]]
    """USD per million tokens by kind, by name or pattern of models."""

    def of_model(self, model: str | None) -> Mapping[str, float] | None:
        """Prices of a model; None if the table has none for it."""
        if model is None:
            return None
        if model in self.by_model:
            return self.by_model[model]
        return next(
            (prices for pattern, prices in self.by_model.items() if fnmatchcase(model, pattern)), None
        )


def prices_from_json(data: bytes, *, place: str) -> Prices:
    """The table in a file.

    Raises:
        UsageError: It is not one.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{place}: not JSON: {error}", hint=_HINT) from error
    if not isinstance(value, dict):
        raise UsageError(f"{place}: expected an object, got {_short(value)}", hint=_HINT)
    return Prices(
        by_model={model: _model_prices(prices, f"{place}: {model!r}") for model, prices in value.items()}
    )


def _model_prices(value: Any, place: str) -> Mapping[str, float]:
    if not isinstance(value, dict):
        raise UsageError(f"{place}: expected an object, got {_short(value)}", hint=_HINT)
    for kind, price in value.items():
        if kind not in KINDS:
            raise UsageError(f"{place}: unknown kind of tokens {kind!r}, expected one of {', '.join(KINDS)}")
        if isinstance(price, bool) or not isinstance(price, int | float) or price < 0:
            raise UsageError(f"{place}: {kind}: expected a number of 0 or more, got {_short(price)}")
    return {kind: float(price) for kind, price in value.items()}


def cost_usd(tokens: Sequence[int], prices: Mapping[str, float]) -> tuple[float, ...] | None:
    """USD of tokens by kind, in the order of `KINDS`; None if a kind that has tokens has no price."""
    if any(count and kind not in prices for kind, count in zip(KINDS, tokens, strict=True)):
        return None
    return tuple(
        count * prices.get(kind, 0.0) / TOKENS_OF_PRICE for kind, count in zip(KINDS, tokens, strict=True)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
