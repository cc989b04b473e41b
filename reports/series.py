"""Pure: levels over time (calls in flight, active sessions), as steps."""

from dataclasses import dataclass

import numpy as np

from aitrace.units import NS_PER_S
from reports.stats import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart over time."""

    name: str
    """What it shows."""
    at_s: Floats
    """Seconds since the start of the run, ascending."""
    values: Floats
    """Value from that moment on."""


def level_over_time(starts_ns: Ints, ends_ns: Ints, *, name: str) -> Line:
    """How many of the intervals [start, end) hold at each moment where that number changes."""
    moments = np.concatenate([starts_ns, ends_ns])
    changes = np.concatenate([np.ones(starts_ns.size), -np.ones(ends_ns.size)])
    at_ns, place = np.unique(moments, return_inverse=True)
    change = np.bincount(place, weights=changes, minlength=at_ns.size)
    return Line(name=name, at_s=at_ns / NS_PER_S, values=change.cumsum().astype(np.float64))


def thinned(line: Line, *, points: int) -> Line:
    """At most about `points` steps; of each stretch of time the highest value is kept, so peaks survive."""
    if line.at_s.size <= points:
        return line
    edges = np.linspace(line.at_s[0], line.at_s[-1], points, endpoint=False)
    starts = np.unique(np.searchsorted(line.at_s, edges))
    return Line(name=line.name, at_s=line.at_s[starts], values=np.fmax.reduceat(line.values, starts))
