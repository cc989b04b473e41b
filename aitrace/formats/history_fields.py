"""Pure: reads the fields of local histories.

A history is months of what several versions of a program wrote, so nothing in it is refused: what is missing is not
known, and what cannot be is not known either, and noted.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from aitrace.formats.format import Tally
from aitrace.no_text import is_harness_version
from aitrace.observe import REFUSALS
from aitrace.protocols.bodies import sorted_json
from aitrace.protocols.protocol import MalformedRequestError, RequestPart, WireProtocol
from aitrace.schema import MAX_COUNT, ErrorKind, Outcome
from aitrace.units import NS_PER_MS, NS_PER_S

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_YEAR_NS = 1_577_836_800 * NS_PER_S  # 2020: none of these programs is older
_LAST_YEAR_NS = 4_102_444_800 * NS_PER_S  # 2100
_ODD_MESSAGE = "a message is not in the shape of its protocol; it counts as opaque"
_ODD_TIME = "a line without a possible time (2020 to 2100) counts as written with the one before it"
_ODD_VALUE = (
    "a number of tokens, or another number or time beside a line's own, cannot be and counts as not known"
)
# Counters are added up.
_MAX_COUNT = MAX_COUNT // 4

Row = tuple[str, Mapping[str, Any]]
"""A JSON object of a log, after its place."""


def parts_from_message(
    protocol: WireProtocol, field_name: str, message: Mapping[str, Any], place: str, tally: Tally
) -> tuple[RequestPart, ...]:
    """What one message or item is in a prompt, read as the protocol reads it from the wire.

    Args:
        field_name: Field of a request's body that lists messages.
    """
    try:
        return protocol.read_request(orjson.dumps({"model": "-", field_name: [message]})).parts
    except (MalformedRequestError, orjson.JSONEncodeError):
        note_odd_message(place, tally)
        return (RequestPart(role="user", type="opaque", text=_any_text(message)),)


def note_odd_message(place: str, tally: Tally) -> None:
    """Say that a message is not what its protocol has."""
    tally.remark("odd_message", _ODD_MESSAGE, place)


def text_from_json(value: Any, place: str, tally: Tally) -> str:
    """A value as JSON with sorted keys; of one that is nested too deep what can be had, with a note."""
    try:
        return sorted_json(value, place)
    except MalformedRequestError:
        note_odd_message(place, tally)
        return _any_text(value)


def _any_text(value: Any) -> str:
    try:
        return repr(value)
    except RecursionError:
        return ""  # nested deeper than Python goes


def ns_from_iso(value: object) -> int | None:
    """A time such as `2026-11-30T03:08:55.778Z` in ns since 1970; None for what is none from 2020 to 2100."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        elapsed = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    return _sensible_ns((elapsed.days * 86_400 + elapsed.seconds) * NS_PER_S + elapsed.microseconds * 1000)


def ns_from_ms(value: object) -> int | None:
    """A time in ms since 1970, in ns; None for what is none from 2020 to 2100."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**53:
        return None
    whole = int(value)
    return _sensible_ns(whole * NS_PER_MS + round((value - whole) * NS_PER_MS))


def _sensible_ns(at_ns: int) -> int | None:
    return at_ns if _FIRST_YEAR_NS <= at_ns < _LAST_YEAR_NS else None


def line_ns(at_ns: int | None, before_ns: int | None, place: str, tally: Tally) -> int | None:
    """When a line was written.

    Args:
        at_ns: Its own time; None if that cannot be.
        before_ns: Time of the line before it; None for the first.
    """
    if at_ns is not None:
        return at_ns
    tally.remark("odd_time", _ODD_TIME, place)
    return before_ns


def duration_from_ms(value: object) -> int | None:
    """A length in ms as ns; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**40:
        return None
    return round(value * NS_PER_MS)


def count_of(values: object, name: str, place: str, tally: Tally) -> int | None:
    """A number of tokens in a report; None if it is not there, or none."""
    value = values.get(name) if isinstance(values, Mapping) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
        note_odd_value(place, tally)
        return None
    return value


def last_input_ns(at_ns: int, *inputs_ns: int | None) -> int:
    """When an answer of which the first line was written at `at_ns` was asked for: the last input before it."""
    return max((moment for moment in inputs_ns if moment is not None and moment <= at_ns), default=at_ns)


def note_unknown_line(place: str, tally: Tally) -> None:
    """Say that a kind of line is not known."""
    tally.remark("unknown_line", "a kind of line that is not known was passed over", place)


def note_odd_value(place: str, tally: Tally) -> None:
    """Say that a value cannot be and is taken for not known."""
    tally.remark("odd_value", _ODD_VALUE, place)


def object_in(values: object, name: str) -> Mapping[str, Any]:
    """A field that is an object; empty if it is not there, or something else."""
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def text_in(values: object, name: str) -> str | None:
    """A field that is a text; None if it is not there, empty, or something else."""
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) and value else None


def version_from_name(value: object) -> str | None:
    """A program's version; None for what cannot be one."""
    return value if isinstance(value, str) and is_harness_version(value) else None


def outcome_from_status(status: object) -> Outcome:
    """How an attempt ended that the endpoint, or the way to it, refused."""
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
        kind: ErrorKind = "refused" if status in REFUSALS else "http_error"
        return Outcome(status=status, error=kind)
    return Outcome(error="connect")


def all_parts(parts: Iterable[RequestPart]) -> str:
    """The texts of parts as one."""
    return "\n".join(part.text for part in parts)
