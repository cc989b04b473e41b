"""Pure: when trees start, from an arrival spec and a seed.

    good: `poisson:0.2/s` (one tree every 5 s on average), `scaled:0.5` (recorded starts in half the time)
    bad:  `poisson:0.2` (a rate of what?)

The specs: `auto`, `recorded`, `scaled:FACTOR`, `poisson:RATE`, `fixed:RATE`, `together`, with rates as in `0.2/s`,
`12/min`, `100/h`. The first tree starts at 0 in each of them.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, assert_never

from aitrace.errors import UsageError
from aitrace.schema import ClockScope
from aitrace.units import NS_PER_S, per_s_from_rate

ArrivalKind = Literal["auto", "recorded", "scaled", "poisson", "fixed", "together"]

_FACTOR = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_RATE_HINT = "A rate says per what: {}:0.2/s is one tree every 5 seconds{}."
_FACTOR_HINT = "The factor is a number of 0 or more: scaled:0.5 plays recorded starts in half the time."
_FORMS_HINT = (
    "The forms are auto, recorded, together, scaled:0.5, poisson:0.2/s (on average) and fixed:12/min."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An arrival process of trees."""

    kind: ArrivalKind
    """Which one."""
    text: str
    """As it was written."""
    factor: float | None = None
    """Factor on recorded starts; None but for `scaled`."""
    rate_per_s: float | None = None
    """Trees per second; None but for `poisson` and `fixed`."""


AUTO = Arrival(kind="auto", text="auto")


def arrival_from_spec(text: str) -> Arrival:
    """The arrival process that a spec names.

    Raises:
        UsageError: No such spec, or a rate of 0.
    """
    kind, colon, number = text.partition(":")
    match kind:
        case "auto" | "recorded" | "together" if not colon:
            return Arrival(kind=kind, text=text)
        case "scaled" if _FACTOR.fullmatch(number) and math.isfinite(float(number)):
            return Arrival(kind=kind, text=text, factor=float(number))
        case "poisson" | "fixed":
            return Arrival(kind=kind, text=text, rate_per_s=_rate_per_s(text, kind, number))
        case "scaled":
            raise UsageError(
                f"arrival {text!r} cannot be read: {number!r} is not a factor", hint=_FACTOR_HINT
            )
        case _:
            raise UsageError(
                f"arrival {text!r} cannot be read, expected auto, recorded, together, scaled:FACTOR, poisson:RATE "
                "or fixed:RATE",
                hint=_FORMS_HINT,
            )


def _rate_per_s(text: str, kind: str, rate: str) -> float:
    try:
        rate_per_s = per_s_from_rate(rate)
    except UsageError as error:
        hint = _RATE_HINT.format(kind, " on average" if kind == "poisson" else "")
        raise UsageError(f"arrival {text!r} cannot be read: {error}", hint=hint) from error
    if not 0 < rate_per_s < math.inf:
        raise UsageError(f"arrival {text!r} has a rate of {rate_per_s!r}, expected a finite one above 0")
    return rate_per_s


def resolve_arrival(arrival: Arrival, clock_scope: ClockScope) -> tuple[Arrival, str | None]:
    """The process to use for a trace whose times have this scope, and a note where that was chosen for the user.

    Raises:
        UsageError: Recorded starts of a trace that has none.
    """
    if arrival.kind == "auto":
        if clock_scope == "trace":
            return Arrival(kind="recorded", text="recorded"), None
        return Arrival(kind="together", text="together"), (
            "the trace does not tell the time between trees: all start together (--arrival or --concurrency "
            "spreads them)"
        )
    if arrival.kind in ("recorded", "scaled") and clock_scope == "tree":
        raise UsageError(
            f"arrival {arrival.text!r} needs recorded starts, but each tree of this trace counts from its own start",
            hint="Use --arrival poisson:RATE, fixed:RATE or together, or --concurrency LANES.",
        )
    return arrival, None


def tree_starts(
    arrival: Arrival, recorded_ns: Sequence[int], count: int, *, time_scale: float, random: Random
) -> list[int]:
    """Start of each of `count` trees, ns from the start of the run, never falling.

    Args:
        recorded_ns: Recorded start of each tree of the trace, sorted. A recording that is played again follows
            itself one mean distance of its trees after its last one; that of a single tree starts together with it.
        time_scale: Factor on recorded starts; has no say in the other processes.
    """
    match arrival.kind:
        case "recorded":
            return _recorded_starts(recorded_ns, count, time_scale)
        case "scaled":
            return _recorded_starts(recorded_ns, count, arrival.factor or 0.0)
        case "poisson" | "fixed":
            return _paced_starts(arrival, count, random)
        case "together" | "auto":
            return [0] * count
        case _:
            assert_never(arrival.kind)


def _recorded_starts(recorded_ns: Sequence[int], count: int, factor: float) -> list[int]:
    trees = len(recorded_ns)
    span_ns = recorded_ns[-1] - recorded_ns[0]
    period_ns = span_ns * trees / (trees - 1) if trees > 1 else 0
    starts = []
    for number in range(count):
        playing, tree = divmod(number, trees)
        starts.append(round((recorded_ns[tree] - recorded_ns[0] + playing * period_ns) * factor))
    return starts


def _paced_starts(arrival: Arrival, count: int, random: Random) -> list[int]:
    rate_per_s = arrival.rate_per_s or 1.0
    if arrival.kind == "fixed":
        return [round(number * NS_PER_S / rate_per_s) for number in range(count)]
    starts = [0.0]
    while len(starts) < count:
        starts.append(starts[-1] + random.expovariate(rate_per_s) * NS_PER_S)
    return [round(start_ns) for start_ns in starts]
