"""Pure: what importers have in common: the names of formats, how one is told from the content, and the summary."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from aitrace.errors import InputError
from aitrace.no_text import WELL_KNOWN_AGENTS

FormatName = Literal["weka", "mooncake"]
FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)

_LABEL = re.compile(
    r"[a-z]{1,16}_[0-9]{1,9}(_s[0-9]{1,4})?|[0-9a-f]{8,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_MODEL = re.compile(r"(?=.{1,100}$)[A-Za-z0-9][A-Za-z0-9._:@+-]*(/[A-Za-z0-9][A-Za-z0-9._:@+-]*){0,3}")
_FINISH = re.compile(r"(?=.{1,40}$)[A-Za-z]+(_[A-Za-z]+){0,5}")
_CUSTOM_AGENT = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something in the source that is not plain, with what was made of it."""

    kind: str
    """Short name, stable for programs."""
    explanation: str
    """What was found and what was done about it."""
    count: int
    """How often."""
    first_place: str
    """Where it was met first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a conversion has written, in counts."""

    source: FormatName
    """Format of the input."""
    trees: int
    """Root sessions."""
    sessions: int
    """Sessions, sub-agents included."""
    calls: int
    """Calls."""
    input_tokens: int
    """Sum of the prompts' sizes."""
    output_tokens: int
    """Sum of the answers' sizes, where told."""
    block_references: int
    """Block ids in all prompts as the source lists them."""
    blocks: int
    """Distinct block ids in the trace, those of unknown tails included."""
    segments: int
    """Segments written."""
    shared_blocks: int
    """Blocks of prompts that are a prefix of an earlier prompt of the same tree, summed over calls."""
    resets: int
    """Calls whose history was replaced: a new window."""
    retokenised_tails: int
    """Calls that changed only the last blocks of the history before them."""
    returns: int
    """Calls that continue another call of their session than the one before them."""
    forks: int
    """Sub-agents tied to the call that created them."""
    joins: int
    """Sub-agents whose end a later call of the parent waits for."""
    background_children: int
    """Sub-agents that no later call of the parent waits for."""
    remarks: tuple[Remark, ...]
    """What was not plain."""


class Tally:
    """Collects the counts of a `Summary`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._remarks: dict[str, Remark] = {}

    def add(self, name: str, amount: int = 1) -> None:
        """Raise the count of a field of `Summary`."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def remark(self, kind: str, explanation: str, place: str) -> None:
        """Note one more case of `kind`."""
        known = self._remarks.get(kind)
        count = 1 if known is None else known.count + 1
        first_place = place if known is None else known.first_place
        self._remarks[kind] = Remark(kind=kind, explanation=explanation, count=count, first_place=first_place)

    def summary(self, source: FormatName) -> Summary:
        """All that was collected."""
        names = [name for name in Summary.__dataclass_fields__ if name not in ("source", "remarks")]
        counts = {name: self.counts.get(name, 0) for name in names}
        return Summary(source=source, remarks=tuple(self._remarks.values()), **counts)


def sniffed_format(document: object, place: str) -> FormatName:
    """The format of a source, from its first JSON document.

    Raises:
        InputError: If it is neither.
    """
    if isinstance(document, Mapping):
        if "requests" in document:
            return "weka"
        if "timestamp" in document and "input_length" in document:
            return "mooncake"
    raise InputError(
        f"{place}: not a known trace format, expected an object with 'requests' (weka) or with 'timestamp' and "
        "'input_length' (mooncake)",
        hint="aitrace's own traces need no conversion; name the format with --from if the content is unusual",
    )


def label_from_name(name: object) -> str | None:
    """`trace_0015`, or an id of hexadecimal digits; None for anything that might say more than a number does."""
    return _name_like(_LABEL, name)


def model_from_name(name: object) -> str | None:
    """The name of a model; None for what cannot be one."""
    return _name_like(_MODEL, name)


def finish_from_name(name: object) -> str | None:
    """The reason for the end of an answer; None for what is not one word."""
    return _name_like(_FINISH, name)


def _name_like(pattern: re.Pattern[str], name: object) -> str | None:
    return name if isinstance(name, str) and pattern.fullmatch(name) else None


def agent_kind_from_name(name: object) -> str | None:
    """A kind of agent that harnesses bring along; `custom` for one that somebody named; None if there is no name."""
    if not isinstance(name, str) or not name:
        return None
    return name if name in WELL_KNOWN_AGENTS else _CUSTOM_AGENT


def whole_number(row: Mapping[str, Any], key: str, place: str) -> int:
    """A required count.

    Raises:
        InputError: If it is missing, negative, or not a whole number.
    """
    value = row.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{place}: {key!r} is {value!r}, expected a whole number from 0")
    return value


def optional_whole_number(row: Mapping[str, Any], key: str, place: str) -> int | None:
    """A count that may be missing or null."""
    return None if row.get(key) is None else whole_number(row, key, place)


def ns_from_number(value: object, *, per_unit_ns: int, name: str, place: str) -> int:
    """A time or length in ns.

    Args:
        per_unit_ns: Nanoseconds in one unit of the source.

    Raises:
        InputError: If it is not a number from 0.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise InputError(f"{place}: {name!r} is {value!r}, expected a number from 0")
    return round(value * per_unit_ns)


def block_ids(row: Mapping[str, Any], place: str) -> tuple[int, ...]:
    """The `hash_ids` of a row; empty if it has none."""
    value = row.get("hash_ids")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(i) is int for i in value):
        raise InputError(f"{place}: 'hash_ids' is not a list of whole numbers")
    return tuple(value)
