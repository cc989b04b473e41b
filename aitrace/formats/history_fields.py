"""Pure: reads the fields of local histories; what is absurd is an error with its place, what is missing is not known."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from aitrace.errors import InputError, shown
from aitrace.formats.format import Tally
from aitrace.protocols.bodies import sorted_json
from aitrace.protocols.protocol import MalformedRequestError, RequestPart, WireProtocol
from aitrace.schema import MAX_COUNT, ErrorKind, Outcome
from aitrace.units import NS_PER_MS, NS_PER_S

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_YEAR_NS = 1_577_836_800 * NS_PER_S  # 2020: none of these programs is older
_LAST_YEAR_NS = 4_102_444_800 * NS_PER_S  # 2100
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,31}")
_REFUSALS = frozenset({429, 503, 529})

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
        tally.remark(
            "odd_message", "a message is not in the shape of its protocol; it counts as opaque", place
        )
        return (RequestPart(role="user", type="opaque", text=repr(message)),)


def tool_use_part(name: str, tool_input: Any, tool_id: str | None) -> RequestPart:
    """A tool call of a log that keeps no protocol's own form."""
    return RequestPart(
        role="assistant",
        type="tool_use",
        text=sorted_json({"input": tool_input, "name": name}, name),
        tool_id=tool_id,
        tool_name=name,
    )


def ns_from_iso(value: object, name: str, place: str) -> int:
    """A time such as `2026-11-30T03:08:55.778Z` in ns since 1970.

    Raises:
        InputError: If it is none, or outside of 2020 to 2100.
    """
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        elapsed = moment - _EPOCH
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{place}: {name!r} is {shown(value)}, expected a time such as 2026-01-31T10:20:30.000Z"
        ) from error
    at_ns = (elapsed.days * 86_400 + elapsed.seconds) * NS_PER_S + elapsed.microseconds * 1000
    return _sensible_ns(at_ns, value, name, place)


def ns_from_ms(value: object, name: str, place: str) -> int:
    """A time in ms since 1970, in ns.

    Raises:
        InputError: If it is none, or outside of 2020 to 2100.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**53:
        raise InputError(f"{place}: {name!r} is {shown(value)}, expected milliseconds since 1970")
    whole = int(value)
    return _sensible_ns(whole * NS_PER_MS + round((value - whole) * NS_PER_MS), value, name, place)


def _sensible_ns(at_ns: int, value: object, name: str, place: str) -> int:
    if not _FIRST_YEAR_NS <= at_ns < _LAST_YEAR_NS:
        raise InputError(f"{place}: {name!r} is {shown(value)}, expected a time between 2020 and 2100")
    return at_ns


def duration_from_ms(value: object) -> int | None:
    """A length in ms as ns; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**40:
        return None
    return round(value * NS_PER_MS)


def count_of(values: object, name: str, place: str) -> int | None:
    """A number of tokens in a report; None if it is not there.

    Raises:
        InputError: If it is no count.
    """
    value = values.get(name) if isinstance(values, Mapping) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise InputError(
            f"{place}: {name!r} is {shown(value)}, expected a whole number from 0 to {MAX_COUNT}"
        )
    return value


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
    return value if isinstance(value, str) and _VERSION.fullmatch(value) else None


def outcome_from_status(status: object) -> Outcome:
    """How an attempt ended that the endpoint, or the way to it, refused."""
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
        kind: ErrorKind = "refused" if status in _REFUSALS else "http_error"
        return Outcome(status=status, error=kind)
    return Outcome(error="connect")


def all_parts(parts: Iterable[RequestPart]) -> str:
    """The texts of parts as one."""
    return "\n".join(part.text for part in parts)
