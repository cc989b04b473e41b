"""Pure: starts at a rate that changes in straight lines between points in time.

    good: `0/s@0,2/s@5m,2/s@20m` (up to 2 a second within 5 minutes, then that for a quarter of an hour)
    bad:  `0/s@0,2/s` (2 a second, from when on?)

Nothing starts before the first point or after the last one. Starts are those of a Poisson process: from a process of
rate 1, each moment is taken where the rates before it sum up to the same number of starts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from aitrace.errors import UsageError
from aitrace.units import NS_PER_S, ns_from_duration, per_s_from_rate

_HINT = "A ramp has two points or more: ramp:0/s@0,2/s@5m goes from no trees to 2 a second within 5 minutes."


@dataclass(frozen=True, slots=True, kw_only=True)
class RampPoint:
    """The rate at one moment."""

    at_ns: int
    """When, ns from the start of the run."""
    rate_per_s: float
    """Starts per second at that moment."""


def ramp_from_text(text: str) -> tuple[RampPoint, ...]:
    """The points of `RATE@TIME,RATE@TIME,…`.

    Raises:
        UsageError: Fewer than two points, times that do not rise, or no rate above 0.
    """
    points = tuple(_point(text, part) for part in text.split(","))
    if len(points) < 2:
        raise UsageError(f"ramp {text!r} has one point, expected two or more", hint=_HINT)
    if any(later.at_ns <= earlier.at_ns for earlier, later in pairwise(points)):
        raise UsageError(f"ramp {text!r} goes back in time, expected times that rise", hint=_HINT)
    if all(point.rate_per_s == 0 for point in points):
        raise UsageError(f"ramp {text!r} has no rate above 0", hint=_HINT)
    return points


def _point(text: str, part: str) -> RampPoint:
    rate, at, time = part.partition("@")
    if not at:
        raise UsageError(f"ramp {text!r} cannot be read: {part!r} is not RATE@TIME", hint=_HINT)
    try:
        point = RampPoint(at_ns=ns_from_duration(time), rate_per_s=per_s_from_rate(rate))
    except UsageError as error:
        raise UsageError(f"ramp {text!r} cannot be read: {error}", hint=_HINT) from error
    if not math.isfinite(point.rate_per_s):
        raise UsageError(f"ramp {text!r} has a rate that is not finite: {rate!r}", hint=_HINT)
    return point


def ramp_starts(points: Sequence[RampPoint], random: Random) -> Iterator[float]:
    """Moments of the starts, ns from the start of the run, in order; they end before the last point."""
    left = random.expovariate(1.0)
    for earlier, later in pairwise(points):
        length_s = (later.at_ns - earlier.at_ns) / NS_PER_S
        area = (earlier.rate_per_s + later.rate_per_s) / 2 * length_s
        slope = (later.rate_per_s - earlier.rate_per_s) / length_s
        sum_of_rates = 0.0
        while left < area - sum_of_rates:
            sum_of_rates += left
            yield earlier.at_ns + _time_of_sum_s(earlier.rate_per_s, slope, sum_of_rates) * NS_PER_S
            left = random.expovariate(1.0)
        left -= area - sum_of_rates


def _time_of_sum_s(rate_per_s: float, slope: float, total: float) -> float:
    """Seconds after which a rate that changes by `slope` per second has summed up to `total`, which is above 0."""
    # The root of rate·t + slope·t²/2 = total, in the form that does not divide by a slope of 0.
    root = math.sqrt(max(0.0, rate_per_s * rate_per_s + 2 * slope * total))
    return 2 * total / (rate_per_s + root)
