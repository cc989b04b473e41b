"""Pure: the ways in which one plan is to be played, and in which order.

Ways are written `OPTION=VALUE,VALUE`:

    good: `identity=native,none`, `hints=hints.json,off`
    bad:  `identity=native` (nothing to compare), `seed=1,2` (not the same plan)
"""

from dataclasses import dataclass
from typing import Literal, get_args

from aitrace.errors import UsageError

WayOption = Literal["identity", "hints", "retries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Values of one option, each of them a way to play."""

    option: WayOption
    """Which option."""
    values: tuple[str, ...]
    """Its values."""


def ways_from_text(text: str) -> Ways:
    """The ways to play that `identity=native,none` names.

    Raises:
        UsageError: It cannot be read, or names fewer than two.
    """
    option, equals, rest = text.partition("=")
    values = tuple(value.strip() for value in rest.split(","))
    if not equals or option not in get_args(WayOption):
        known = ", ".join(get_args(WayOption))
        raise UsageError(
            f"ways {text!r} cannot be read, expected OPTION=VALUE,VALUE with an option of {known}"
        )
    if len(values) < 2 or not all(values) or len(set(values)) < len(values):
        raise UsageError(f"ways {text!r} name no two values to compare")
    return Ways(option=option, values=values)  # type: ignore[arg-type] # it is one of them


def turns(ways: int, repeats: int) -> list[tuple[int, int]]:
    """Way and repeat of each run in turn, both from 0: A B, then B A, so that what drifts with time favours none."""
    return [
        (way, repeat)
        for repeat in range(repeats)
        for way in (range(ways) if repeat % 2 == 0 else reversed(range(ways)))
    ]
