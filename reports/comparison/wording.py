"""Pure: a difference in words and figures."""

from collections.abc import Callable

from reports.comparison.conditions import Checked
from reports.comparison.differences import Difference, Side
from reports.comparison.intervals import Effect
from reports.comparison.measures import Basis
from reports.words import NOT_KNOWN, text_from_float, text_from_ms, text_from_seconds

MINUS = "−"


def finding_text(difference: Difference) -> str:
    """`slower by 10.2 % (8.1 to 12.4)`, `no difference found (−1.1 to 1.4 %)`, `too few to tell: no pairs`."""
    effect, text = _deciding(difference)
    if effect is None:
        return f"too few to tell: {difference.reason}"
    if difference.finding == "none":
        return f"no difference found ({range_text(difference)})"
    if difference.finding == "floor":
        return f"no difference beyond the noise floor of {floor_text(difference)} ({_range(effect, text)})"
    more, less = difference.measure.basis.words
    if difference.finding == "more":
        return f"{more} by {text(effect.point)} ({_range(effect, text)})"
    turned = Effect(point=-effect.point, low=-effect.high, high=-effect.low)
    return f"{less} by {text(turned.point)} ({_range(turned, text)})"


def range_text(difference: Difference) -> str:
    """`−1.1 to 1.4 %`; of no difference found, the interval that holds 0, for the other one may not."""
    effect, text = _deciding(difference)
    if effect is None:
        return NOT_KNOWN
    if (
        difference.finding == "none"
        and (effect.low > 0 or effect.high < 0)
        and difference.absolute is not None
    ):
        basis = difference.measure.basis
        return _range(difference.absolute, lambda value: difference_text(value, basis))
    return _range(effect, text)


def is_worse(difference: Difference) -> bool | None:
    """Whether the difference is for the worse; None if none was found."""
    if difference.finding not in ("more", "less"):
        return None
    return (difference.finding == "more") == difference.measure.basis.is_better_low


def side_text(side: Side, basis: Basis, *, with_runs: bool = True) -> str:
    """The value of a way, with that of each run if there are several and they are wanted."""
    if side.value is None:
        return NOT_KNOWN
    text = value_text(side.value, basis)
    if len(side.values) == 1 or not with_runs:
        return text
    runs = ", ".join(NOT_KNOWN if value is None else value_text(value, basis) for value in side.values)
    return f"{text} ({runs})"


def value_text(value: float | None, basis: Basis) -> str:
    """A value of a measure with its unit."""
    if value is None:
        return NOT_KNOWN
    match basis.unit:
        case "ms":
            return text_from_ms(value).replace("-", MINUS)
        case "s":
            return text_from_seconds(value).replace("-", MINUS)
        case "tokens/s":
            return f"{text_from_float(value)} tokens/s".replace("-", MINUS)
        case _:
            return percent_text(value)


def difference_text(value: float, basis: Basis) -> str:
    """A difference of a measure with its unit; of shares in points."""
    return points_text(value) if basis.is_share else value_text(value, basis)


def effect_text(effect: Effect | None, text: Callable[[float], str]) -> str:
    """`10.2 % (8.1 to 12.4 %)`."""
    return NOT_KNOWN if effect is None else f"{text(effect.point)} ({_range(effect, text)})"


def pairs_text(difference: Difference) -> str:
    """`40 of 42`: pairs of what any run has a value of."""
    of = difference.pairs + difference.only_first + difference.only_second + difference.in_part
    return f"{difference.pairs:,} of {of:,}"


def floor_text(difference: Difference) -> str:
    """The noise floor with its unit."""
    basis = difference.measure.basis
    if basis.is_share:
        return points_text(difference.floor)
    if difference.relative is None:
        return value_text(difference.floor, basis)
    return percent_text(difference.floor)


def checked_text(checked: Checked) -> str:
    """A condition, what was found, and why it counts or does not."""
    basis = checked.condition.measure.basis
    is_percent = checked.condition.is_relative and checked.difference.relative is not None
    text = percent_text if is_percent else lambda value: difference_text(value, basis)
    found = effect_text(checked.effect, text)
    word = {"met": "failed", "kept": "kept", "unclear": "cannot be told"}[checked.outcome]
    reason = f"; {checked.reason}" if checked.reason else ""
    return f"{word}: {checked.condition.text} ({checked.other}): {found}{reason}"


def percent_text(value: float) -> str:
    """`10.2 %`; more digits of small ones, none of large ones."""
    size = abs(100 * value)
    digits = 0 if size >= 1000 else 1 if size >= 0.1 or size == 0 else 2
    return f"{100 * value:,.{digits}f} %".replace("-", MINUS)


def points_text(value: float) -> str:
    """A difference of shares: `2.0 points`."""
    return percent_text(value).replace("%", "points")


def _deciding(difference: Difference) -> tuple[Effect | None, Callable[[float], str]]:
    basis = difference.measure.basis
    if basis.is_share:
        return difference.absolute, points_text
    if difference.relative is not None:
        return difference.relative, percent_text
    return difference.absolute, lambda value: value_text(value, basis)


def _range(effect: Effect, text: Callable[[float], str]) -> str:
    low, high = text(effect.low), text(effect.high)
    number, _, unit = low.partition(" ")
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"
