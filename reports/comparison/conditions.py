"""Pure: what a comparison must not show, as `--fail-if` states it, and whether it does.

    good: `ttft_p95 > +5%`, `hit_ratio < -2 points`, `ttft_paired > 20ms`
    bad:  `ttft_p95 > 5` (of what?), `ttft > 5%` (which percentile?)

The amount is that of the difference: the second way less the first, in percent of the first, or in units. A condition is
met if the measured difference is beyond the amount and the comparison found one at all. A point beyond it whose interval
reaches to 0 may be noise, or a disaster among few trees: that cannot be told, and is not taken for good. `ttft_p50 > -5%`
asks for an improvement, and is met by any measured difference above.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from aitrace.errors import UsageError
from reports.comparison.differences import Difference
from reports.comparison.intervals import Effect
from reports.comparison.measures import Measure, measure_from_name

Outcome = Literal["kept", "met", "unclear"]
_CONDITION = re.compile(r"\s*([a-z0-9_]+)\s*([<>])\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([a-z%/]*)\s*")
_WRITING = "Names and units are in lower case, decimals have a point, and thousands no mark."
_HINT = "--fail-if 'ttft_p95 > +5%' fails if the 95th percentile of TTFT has grown by more than 5 %."
_UNITS: dict[str, dict[str, float]] = {
    "ms": {"ms": 1.0, "s": 1000.0},
    "s": {"ms": 0.001, "s": 1.0},
    "tokens/s": {"tokens/s": 1.0},
    "": {"points": 0.01, "point": 0.01},
}
"""Factors on the amount, by the unit of the measure and that of the condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must not come about."""

    text: str
    """As it was written."""
    measure: Measure
    """Of which measure."""
    is_above: bool
    """Whether the difference must not be above the amount, or else below it."""
    amount: float
    """Bound of the difference: a share of the first way's value, or in the measure's unit."""
    is_relative: bool
    """Which of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A condition and what the comparison says to it."""

    condition: Condition
    """Which one."""
    outcome: Outcome
    """`met` if it fails the comparison, `unclear` if it cannot be told, which fails it too."""
    difference: Difference
    """What was found."""
    other: str
    """The way that was compared with the first."""
    reason: str
    """Why it is unclear; empty if it is not."""

    @property
    def effect(self) -> Effect | None:
        """The difference in the condition's terms, in units where a value of 0 has none; None if it cannot be told."""
        return _effect(self.condition, self.difference)


def conditions_from_texts(texts: Iterable[str]) -> tuple[Condition, ...]:
    """The conditions written so.

    Raises:
        UsageError: One cannot be read, or names no measure that there is.
    """
    return tuple(_condition(text) for text in texts)


def check_conditions(
    conditions: Sequence[Condition], differences: Sequence[Difference], other: str
) -> tuple[Checked, ...]:
    """What the differences of one way to the first say to each condition."""
    by_name = {difference.measure.name: difference for difference in differences}
    return tuple(_checked(each, by_name[each.measure.name], other) for each in conditions)


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        meant = text.lower().replace(",", ".").strip()
        if _CONDITION.fullmatch(meant):
            raise UsageError(f"condition {text!r} cannot be read, perhaps {meant!r} is meant", hint=_WRITING)
        raise UsageError(
            f"condition {text!r} cannot be read, expected MEASURE, > or <, an amount with a unit", hint=_HINT
        )
    name, operator, amount, unit = match.groups()
    measure = measure_from_name(name)
    factor = 0.01 if unit == "%" else _UNITS[measure.basis.unit].get(unit)
    if factor is None:
        units = ", ".join(_UNITS[measure.basis.unit])
        given = f"the unit {unit!r}" if unit else "no unit"
        raise UsageError(
            f"condition {text!r} has {given}, expected % or one of {units} for {name}", hint=_HINT
        )
    return Condition(
        text=text.strip(),
        measure=measure,
        is_above=operator == ">",
        amount=float(amount) * factor,
        is_relative=unit == "%",
    )


def _checked(condition: Condition, difference: Difference, other: str) -> Checked:
    outcome, reason = _outcome(condition, difference)
    return Checked(condition=condition, outcome=outcome, difference=difference, other=other, reason=reason)


def _effect(condition: Condition, difference: Difference) -> Effect | None:
    in_terms = difference.relative if condition.is_relative else difference.absolute
    return in_terms or difference.absolute


def _outcome(condition: Condition, difference: Difference) -> tuple[Outcome, str]:
    effect, point = _effect(condition, difference), _point(condition, difference)
    if effect is None or point is None:
        return "unclear", difference.reason or "it has no difference in percent: give the amount in units"
    is_beyond = point > condition.amount if condition.is_above else point < condition.amount
    if not is_beyond:
        return "kept", ""
    # Where no difference at all is beyond the amount, an improvement is asked for, and it did not come.
    asks_improvement = condition.amount < 0 if condition.is_above else condition.amount > 0
    if asks_improvement or difference.finding == ("more" if point > 0 else "less"):
        return "met", ""
    if difference.finding == "floor":
        why = "is not beyond the noise floor"
    elif effect.low <= 0 <= effect.high:
        why = "may be noise, its interval reaches to 0"
    else:
        other = "in units" if condition.is_relative else "in percent"
        why = f"may be noise, the interval of the difference {other} reaches to 0"
    return "unclear", f"it is beyond the amount, but {why}; more runs or trees would tell"


def _point(condition: Condition, difference: Difference) -> float | None:
    """The difference in the condition's terms; of values of 0, which have no interval in percent, too."""
    if not condition.is_relative:
        return None if difference.absolute is None else difference.absolute.point
    if difference.relative is not None:
        return difference.relative.point
    first, second = difference.first.value, difference.second.value
    if first is None or second is None or difference.absolute is None:
        return None
    if first:
        return (second - first) / first
    return math.inf if second else 0.0
