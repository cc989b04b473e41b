"""Pure: when trees start, from an arrival spec and a seed.

    good: `poisson:0.2/s` (one tree every 5 s on average), `scaled:0.5` (recorded starts in half the time)
    bad:  `poisson:0.2` (a rate of what?)

    good: `gamma:0.2/s:2` (the same rate in bursts), `ramp:0/s@0,2/s@5m,2/s@20m` (up within 5 minutes, then level)
    bad:  `ramp:0/s@5m,2/s@0` (times must rise)

The specs: `auto`, `recorded`, `scaled:FACTOR`, `poisson:RATE`, `gamma:RATE:CV`, `fixed:RATE`, `ramp:RATE@TIME,…`,
`together`, with rates as in `0.2/s`, `12/min`, `100/h`. CV is the coefficient of variation of the distances between
starts, their standard deviation over their mean: 1 is `poisson`, above it trees come in bursts. The first tree starts
at 0 in each of them but `ramp`, see `replayer/planning/ramp.py`.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as counting_from
from itertools import islice, repeat, takewhile
from random import Random
from typing import Literal, assert_never

from aitrace.errors import UsageError
from aitrace.schema import ClockScope
from aitrace.units import NS_PER_S, per_s_from_rate
from replayer.planning.ramp import RampPoint, ramp_from_text, ramp_starts

ArrivalKind = Literal["auto", "recorded", "scaled", "poisson", "gamma", "fixed", "ramp", "together"]

_FACTOR = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_RATE_HINT = "A rate says per what: {}:0.2/s is one tree every 5 seconds{}."
_FACTOR_HINT = "The factor is a number of 0 or more: scaled:0.5 plays recorded starts in half the time."
_CV_HINT = "gamma:0.2/s:2 starts a tree every 5 seconds on average, in bursts; a CV of 1 is poisson."
_FORMS_HINT = (
    "The forms are auto, recorded, together, scaled:0.5, poisson:0.2/s (on average), gamma:0.2/s:2, fixed:12/min and "
    "ramp:0/s@0,2/s@5m."
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
    """Trees per second; None but for `poisson`, `gamma` and `fixed`."""
    cv: float | None = None
    """Coefficient of variation of the distances between starts; None but for `gamma`."""
    ramp: tuple[RampPoint, ...] = ()
    """Points of a `ramp`; empty for the others."""


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
        case "gamma":
            rate, _, cv = number.partition(":")
            return Arrival(kind=kind, text=text, rate_per_s=_rate_per_s(text, kind, rate), cv=_cv(text, cv))
        case "ramp":
            return Arrival(kind=kind, text=text, ramp=ramp_from_text(number))
        case "scaled":
            raise UsageError(
                f"arrival {text!r} cannot be read: {number!r} is not a factor", hint=_FACTOR_HINT
            )
        case _:
            raise UsageError(
                f"arrival {text!r} cannot be read, expected auto, recorded, together, scaled:FACTOR, poisson:RATE, "
                "gamma:RATE:CV, fixed:RATE or ramp:RATE@TIME,RATE@TIME",
                hint=_FORMS_HINT,
            )


def _rate_per_s(text: str, kind: str, rate: str) -> float:
    try:
        rate_per_s = per_s_from_rate(rate)
    except UsageError as error:
        hint = _CV_HINT if kind == "gamma" else _RATE_HINT.format(kind, " on average" * (kind == "poisson"))
        raise UsageError(f"arrival {text!r} cannot be read: {error}", hint=hint) from error
    if not 0 < rate_per_s < math.inf:
        raise UsageError(f"arrival {text!r} has a rate of {rate_per_s!r}, expected a finite one above 0")
    return rate_per_s


def _cv(text: str, number: str) -> float:
    cv = float(number) if _FACTOR.fullmatch(number) else 0.0
    if not 0 < cv < math.inf:
        raise UsageError(f"arrival {text!r} cannot be read: {number!r} is not a CV above 0", hint=_CV_HINT)
    return cv


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
    arrival: Arrival,
    recorded_ns: Sequence[int],
    count: int | None,
    *,
    time_scale: float,
    random: Random,
    until_ns: int | None,
) -> list[int]:
    """Start of each tree, ns from the start of the run, never falling.

    Args:
        recorded_ns: Recorded start of each tree of the trace, sorted. A recording that is played again follows
            itself one mean distance of its trees after its last one; that of a single tree starts together with it.
        count: How many to start at most; None for as many as the process has, which must then end: see `until_ns`.
        time_scale: Factor on recorded starts; has no say in the other processes.
        until_ns: Nothing starts from then on; None for no such moment.
    """
    starts = _starts(arrival, recorded_ns, time_scale, random)
    if until_ns is not None:
        starts = takewhile(lambda start_ns: start_ns < until_ns, starts)
    return list(islice(starts, count))


def goes_on(arrival: Arrival, recorded_ns: Sequence[int], *, time_scale: float) -> bool:
    """Whether time passes between starts, so that trees can be played again for as long as a run is to take."""
    match arrival.kind:
        case "recorded" | "scaled":
            factor = time_scale if arrival.kind == "recorded" else arrival.factor or 0.0
            return _period_ns(recorded_ns) * factor >= 1
        case "poisson" | "gamma" | "fixed" | "ramp":
            return True
        case "together" | "auto":
            return False
        case _:
            assert_never(arrival.kind)


def _starts(arrival: Arrival, recorded_ns: Sequence[int], time_scale: float, random: Random) -> Iterator[int]:
    rate_per_s = arrival.rate_per_s or 1.0
    match arrival.kind:
        case "recorded":
            return _recorded_starts(recorded_ns, time_scale)
        case "scaled":
            return _recorded_starts(recorded_ns, arrival.factor or 0.0)
        case "fixed":
            return (round(number * NS_PER_S / rate_per_s) for number in counting_from())
        case "poisson":
            return _random_starts(lambda: random.expovariate(rate_per_s))
        case "gamma":
            cv = arrival.cv or 1.0
            return _random_starts(lambda: random.gammavariate(cv**-2, cv**2 / rate_per_s))
        case "ramp":
            return (round(start_ns) for start_ns in ramp_starts(arrival.ramp, random))
        case "together" | "auto":
            return repeat(0)
        case _:
            assert_never(arrival.kind)


def _period_ns(recorded_ns: Sequence[int]) -> float:
    """From one playing of a recording to the next, ns; 0 of a single tree."""
    trees = len(recorded_ns)
    return (recorded_ns[-1] - recorded_ns[0]) * trees / (trees - 1) if trees > 1 else 0


def _recorded_starts(recorded_ns: Sequence[int], factor: float) -> Iterator[int]:
    period_ns = _period_ns(recorded_ns)
    for number in counting_from():
        playing, tree = divmod(number, len(recorded_ns))
        yield round((recorded_ns[tree] - recorded_ns[0] + playing * period_ns) * factor)


def _random_starts(distance_s: Callable[[], float]) -> Iterator[int]:
    start_ns = 0.0
    while True:
        yield round(start_ns)
        start_ns += distance_s() * NS_PER_S
