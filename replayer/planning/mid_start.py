"""Pure: trees that start in the middle: which calls are left of one, and what their prompts go on from.

    good: `0.25..0.75` (between a quarter and three quarters of the tree's recorded time), `0.5..0.5`
    bad:  `0.75..0.25` (backwards), `25..75` (shares, not percent)

The time of a tree runs from its first request to its last one. Calls that were sent before the point are not played;
those after it keep their distance from the first of them, or wait for each other as they did.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from aitrace.errors import UsageError
from replayer.planning.selection import SelectedCall, without_the_rest

_RANGE = re.compile(r"(0?\.[0-9]+|[01](?:\.0*)?)\.\.(0?\.[0-9]+|[01](?:\.0*)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRange:
    """Where in their recorded time trees start."""

    low: float
    """Earliest point, as a share of the tree's recorded time."""
    high: float
    """Latest point."""

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.low:g}..{self.high:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MidStart:
    """One tree from a point on."""

    calls: tuple[SelectedCall, ...]
    """What is played, at least one call."""
    before: tuple[SelectedCall, ...]
    """Of each session that goes on after the point, the last call before it: the prompt that its next one extends."""


def start_range_from_text(text: str) -> StartRange:
    """The range that a text states.

    Raises:
        UsageError: It is not two shares in their order.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None or float(match[1]) > float(match[2]):
        raise UsageError(
            f"start {text!r} cannot be read, expected two shares from 0 to 1 with two dots between them",
            hint="--start-at 0.25..0.75 starts each tree between a quarter and three quarters of its recorded time.",
        )
    return StartRange(low=float(match[1]), high=float(match[2]))


def start_midway(members: Sequence[SelectedCall], where: StartRange, random: Random) -> MidStart:
    """A tree from a point in this range on.

    Args:
        members: Calls of the tree, at least one.
    """
    first_ns = min(member.request_ns for member in members)
    last_ns = max(member.request_ns for member in members)
    point_ns = first_ns + random.uniform(where.low, where.high) * (last_ns - first_ns)
    kept = {member.call.id for member in members if member.request_ns >= point_ns}
    left = without_the_rest(members, kept)
    going_on = {member.call.session for member in left}
    before = {
        member.call.session: member
        for member in members
        if member.call.id not in kept and member.call.session in going_on
    }
    return MidStart(calls=left, before=tuple(before.values()))
