"""Pure: numbers as people read them, those of `aitrace.units` among them."""

from aitrace.quantiles import min_count
from aitrace.units import NOT_KNOWN, counted, text_from_ms, text_from_seconds
from reports.answers import QUANTILES, Spread

__all__ = [
    "KIND_NAMES",
    "NOT_KNOWN",
    "counted",
    "gap_label",
    "printable",
    "quantile_texts",
    "text_from_float",
    "text_from_ms",
    "text_from_ratio",
    "text_from_seconds",
    "text_from_slowdown",
    "text_from_value",
]

KIND_NAMES = {
    "tool": "after a tool gap",
    "user": "after a user gap",
    "other": "after a gap of other or unknown cause",
    "agent_start": "first call of a sub-agent",
    "tree_start": "first call of a tree",
}
"""Kinds of calls by what came before them, see `reports.cache.metrics.KINDS`."""

_PLURALS = ("calls", "gaps", "sessions", "tokens", "trees")
"""Ends of units that are counted."""


def text_from_value(value: float | None, unit: str) -> str:
    """A number with its unit; ratios without a unit are told by `text_from_ratio` instead."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, int) and unit.endswith(_PLURALS):
        return counted(value, unit.removesuffix("s"))
    number = f"{value:,}" if isinstance(value, int) else text_from_float(value)
    return f"{number} {unit}".rstrip()


def text_from_float(value: float) -> str:
    """Three digits that matter, more for large numbers, thousands parted."""
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def text_from_ratio(value: float | None) -> str:
    """A share in percent."""
    return NOT_KNOWN if value is None else f"{value:.1%}".replace("%", " %")


def text_from_slowdown(value: float | None, of: str) -> str:
    """A time over another one, in words: `0.35 × the expected time (faster)`."""
    if value is None:
        return NOT_KNOWN
    factor = text_from_float(value)
    if factor == "1.00":
        return f"1.00 × the {of} time"
    return f"{factor} × the {of} time ({'faster' if value < 1 else 'slower'})"


def quantile_texts(spread: Spread) -> list[str]:
    """Count, quantiles and maximum of a distribution as cells of a table; `n < 20` for want of 20 values."""
    cells = [_quantile_text(spread, name) for name in QUANTILES]
    largest = NOT_KNOWN if spread.largest is None else text_from_float(spread.largest)
    return [f"{spread.count:,}", *cells, largest]


def _quantile_text(spread: Spread, name: str) -> str:
    value = spread.quantiles[name]
    if value is None:
        return f"n < {min_count(QUANTILES[name])}" if spread.count else NOT_KNOWN
    return text_from_float(value)


def gap_label(low_s: float | str | None, high_s: float | str | None) -> str:
    """Name of a gap bucket; both None where the gap does not matter."""
    match low_s, high_s:
        case None, None:
            return NOT_KNOWN
        case 0, None:
            return "any"
        case int() | float() as low, None:
            return f"{text_from_seconds(low)} and over"
        case 0, int() | float() as high:
            return f"under {text_from_seconds(high)}"
        case int() | float() as low, int() | float() as high:
            return f"{text_from_seconds(low)} – {text_from_seconds(high)}"
    raise ValueError(f"gap bucket {low_s!r} to {high_s!r} is not made of numbers")


def printable(text: str) -> str:
    """Text of a stranger without control characters, so that it cannot steer a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)
