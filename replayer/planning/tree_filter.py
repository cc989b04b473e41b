"""Pure: which trees of a trace are played, by conditions on a tree; it must meet all of them.

    good: `harness=codex`, `calls>=20`, `depth>0`, `tokens<200k`
    bad:  `tokens~200k` (no such comparison), `turns>3` (no such field)

`harness` is that of the root session (only `=` and `!=`; one that is not known equals none), `calls` how many calls of
the tree a replay sends, `depth` how deep its sub-agents are nested (0 = it has none), `tokens` the size of its largest
prompt. Numbers may end in k or M.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from aitrace.errors import UsageError
from aitrace.schema import Session
from replayer.planning.selection import SelectedCall

TreeField = Literal["harness", "calls", "depth", "tokens"]
FIELDS: tuple[TreeField, ...] = get_args(TreeField)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_CONDITION = re.compile(r"\s*([a-z]+)\s*(<=|>=|!=|<|>|=)\s*([^\s<>=!]\S*)\s*")
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kM]?)")
_FACTORS = {"": 1, "k": 1_000, "M": 1_000_000}
_HINT = "Conditions are harness=codex, calls>=20, depth>0 or tokens<200k; repeat --select for several."


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCondition:
    """One condition on a tree."""

    text: str
    """As it was written."""
    field: TreeField
    """What it looks at."""
    comparison: str
    """A key of the table of comparisons."""
    value: str | float
    """What that is compared with: a text for `harness`, else a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTraits:
    """What conditions look at."""

    harness: str | None
    """Harness of the root session; None if not known."""
    calls: int
    """Calls of it that a replay sends."""
    depth: int
    """How deep its sub-agents are nested; 0 without any."""
    tokens: float
    """Size of its largest prompt, tokens."""


def tree_condition(text: str) -> TreeCondition:
    """The condition that a text states.

    Raises:
        UsageError: It cannot be read.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"condition {text!r} cannot be read, expected FIELD, a comparison, VALUE", hint=_HINT
        )
    field, comparison, value = match.groups()
    if field == "harness":
        if comparison not in ("=", "!="):
            raise UsageError(f"condition {text!r} orders names, expected harness= or harness!=", hint=_HINT)
        return TreeCondition(text=text, field="harness", comparison=comparison, value=value)
    number = _NUMBER.fullmatch(value)
    for name in FIELDS:
        if name == field and number is not None:
            amount = float(number[1]) * _FACTORS[number[2]]
            return TreeCondition(text=text, field=name, comparison=comparison, value=amount)
    if field in FIELDS:
        raise UsageError(f"condition {text!r} cannot be read: {value!r} is not a number", hint=_HINT)
    raise UsageError(
        f"condition {text!r} cannot be read: {field!r} is none of {', '.join(FIELDS)}", hint=_HINT
    )


def meets(traits: TreeTraits, conditions: Iterable[TreeCondition]) -> bool:
    """Whether a tree meets all conditions."""
    return all(
        _COMPARISONS[condition.comparison](getattr(traits, condition.field), condition.value)
        for condition in conditions
    )


def traits_of(
    root: int,
    members: Sequence[SelectedCall],
    sessions: Sequence[Session],
    prompt_tokens: Mapping[int, float],
) -> TreeTraits:
    """Traits of one tree.

    Args:
        members: Its calls that a replay sends.
        prompt_tokens: Size of each call's prompt by id.
    """
    return TreeTraits(
        harness=sessions[root].harness,
        calls=len(members),
        depth=max(_depth(member.call.session, sessions) for member in members),
        tokens=max(prompt_tokens[member.call.id] for member in members),
    )


def _depth(session: int, sessions: Sequence[Session]) -> int:
    depth, parent = 0, sessions[session].parent
    while parent is not None:
        depth, parent = depth + 1, sessions[parent].parent
    return depth
