"""Pure: what importers have in common: the names of formats, how one is told from the content, and the summary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from aitrace.errors import InputError, shown
from aitrace.no_text import WELL_KNOWN_AGENTS, is_finish, is_label, is_model
from aitrace.schema import MAX_COUNT

FormatName = Literal["weka", "mooncake", "claude-code", "codex", "opencode"]
FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
HISTORIES: tuple[FormatName, ...] = ("claude-code", "codex", "opencode")
"""Local histories of harnesses, which may be directories."""

_CUSTOM_AGENT = "custom"
_MAX_NS = 2**62


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
    """Sum of the prompts' sizes, where told."""
    output_tokens: int
    """Sum of the answers' sizes, where told."""
    block_references: int
    """Block ids in all prompts as the source lists them; 0 for histories, which have none."""
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
    retries: int
    """Calls that repeat a refused or failed one."""
    remarks: tuple[Remark, ...]
    """What was not plain."""


class Tally:
    """Collects the counts of a `Summary`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """By field of `Summary`; a count of 0 may be absent."""
        self._remarks: dict[str, Remark] = {}

    def add(self, name: str, amount: int = 1) -> None:
        """Raise the count of a field of `Summary`."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def remark(self, kind: str, explanation: str, place: str) -> None:
        """Note one more case of `kind`."""
        # A name of a file need not be a text.
        place = place.encode(errors="backslashreplace").decode()
        known = self._remarks.get(kind)
        count = 1 if known is None else known.count + 1
        first_place = place if known is None else known.first_place
        self._remarks[kind] = Remark(kind=kind, explanation=explanation, count=count, first_place=first_place)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What was noted, in the order in which it was met."""
        return tuple(self._remarks.values())

    def summary(self, source: FormatName) -> Summary:
        """All that was collected."""
        names = [name for name in Summary.__dataclass_fields__ if name not in ("source", "remarks")]
        counts = {name: self.counts.get(name, 0) for name in names}
        return Summary(source=source, remarks=self.remarks, **counts)


def sniffed_format(document: object, place: str) -> FormatName:
    """The format of a source, from its first JSON document.

    Raises:
        InputError: If it is neither.
    """
    found = _looks_like(document) if isinstance(document, Mapping) else None
    if found is not None:
        return found
    raise InputError(
        f"{place}: not a known trace format, expected an object with 'requests' (weka) or with 'timestamp' and "
        "'input_length' (mooncake)",
        hint="aitrace's own traces need no conversion; name the format with --from if the content is unusual",
    )


def history_of_row(row: Mapping[str, Any]) -> FormatName | None:
    """The history that a line of a log belongs to; None if it does not tell."""
    kind = row.get("type")
    if not isinstance(kind, str):
        return None
    if isinstance(row.get("payload"), Mapping) and isinstance(row.get("timestamp"), str):
        return "codex"
    return "claude-code" if isinstance(row.get("sessionId"), str) else None


def demand_format(document: Mapping[str, Any], place: str, expected: FormatName) -> None:
    """Refuse a document that is plainly of the other format.

    Raises:
        InputError: It is.
    """
    found = _looks_like(document)
    if found not in (None, expected):
        raise InputError(
            f"{place}: looks like {found}, expected {expected}", hint=f"name the format with --from {found}"
        )


def _looks_like(document: Mapping[str, Any]) -> FormatName | None:
    if "requests" in document:
        return "weka"
    if "timestamp" in document and "input_length" in document:
        return "mooncake"
    return None


def label_from_name(name: object) -> str | None:
    """`trace_0015`, or an id of hexadecimal digits; None for anything that might say more than a number does."""
    return _name_like(is_label, name)


def model_from_name(name: object) -> str | None:
    """The name of a model; None for what cannot be one."""
    return _name_like(is_model, name)


def finish_from_name(name: object) -> str | None:
    """The reason for the end of an answer; None for what is not one word."""
    return _name_like(is_finish, name)


def _name_like(is_allowed: Callable[[str], bool], name: object) -> str | None:
    return name if isinstance(name, str) and is_allowed(name) else None


def agent_kind_from_name(name: object) -> str | None:
    """A kind of agent that harnesses bring along; `custom` for one that somebody named; None if there is no name."""
    if not isinstance(name, str) or not name:
        return None
    return name if name in WELL_KNOWN_AGENTS else _CUSTOM_AGENT


def whole_number(row: Mapping[str, Any], key: str, place: str) -> int:
    """A required count.

    Raises:
        InputError: If it is missing, not a whole number, or of no possible size.
    """
    value = row.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise InputError(f"{place}: {key!r} is {shown(value)}, expected a whole number from 0 to {MAX_COUNT}")
    return value


def optional_whole_number(row: Mapping[str, Any], key: str, place: str) -> int | None:
    """A count that may be missing or null."""
    return None if row.get(key) is None else whole_number(row, key, place)


def ns_from_number(value: object, *, per_unit_ns: int, name: str, place: str) -> int:
    """A time or length in ns.

    Args:
        per_unit_ns: Nanoseconds in one unit of the source.

    Raises:
        InputError: If it is not a number from 0, or more than 146 years.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value * per_unit_ns <= _MAX_NS
    ):
        limit = _MAX_NS // per_unit_ns
        raise InputError(f"{place}: {name!r} is {shown(value)}, expected a number from 0 to {limit}")
    return round(value * per_unit_ns)


def block_ids(row: Mapping[str, Any], place: str) -> tuple[int, ...]:
    """The `hash_ids` of a row; empty if it has none."""
    value = row.get("hash_ids")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(i) is int for i in value):
        raise InputError(f"{place}: 'hash_ids' is not a list of whole numbers")
    return tuple(value)
