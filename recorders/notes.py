"""Pure: what the addon tells the writer: plain values in the order in which they happened.

They are made on the proxy's event loop between two reads, so they hold bytes as they came and nothing is looked into.
All times are ns of the machine's monotonic clock. An exchange is one HTTP request with its response, or one WebSocket
connection; its number counts from 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from aitrace.schema import Transport

How = Literal["complete", "client", "server", "connect", "unrecorded"]
"""How an exchange ended: whole, the client went away, the endpoint cut it, no connection came about, or we lost it."""


class Asked(NamedTuple):
    """A request is complete at the proxy."""

    exchange: int
    at_ns: int
    method: str
    path: str
    """Without the query."""
    headers: dict[str, str]
    """Those of the allow-list, by lower-case name."""
    body: bytes
    """As on the wire, that is, compressed if it was."""
    transport: Transport
    connection: int
    """The client's connection, counted from 0 in order of appearance."""


class Connected(NamedTuple):
    """The proxy has a connection to the endpoint for this exchange and passes the request on."""

    exchange: int
    at_ns: int
    connect_ns: int
    """How long connecting took; 0 if there was a connection."""


class Answered(NamedTuple):
    """Status and headers of the response."""

    exchange: int
    at_ns: int
    status: int
    headers: dict[str, str]
    """Those of the allow-list, by lower-case name."""


class Chunk(NamedTuple):
    """Bytes of the response's body, as on the wire."""

    exchange: int
    at_ns: int
    data: bytes


class Message(NamedTuple):
    """A WebSocket message, whole and decompressed."""

    exchange: int
    at_ns: int
    from_client: bool
    data: bytes


class Ended(NamedTuple):
    """The exchange is over; for a WebSocket, the connection."""

    exchange: int
    at_ns: int
    how: How
    text: str
    """What the proxy says about it; empty for a complete one."""


class Stopped(NamedTuple):
    """The recording ends; the last note."""

    at_ns: int
    counts: dict[str, int]
    """The addon's own counts, by name with unit, for the footer."""


Note = Asked | Connected | Answered | Chunk | Message | Ended | Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterReport:
    """What the writer says at the end, as one line of JSON on its standard output."""

    path: str
    """The trace; `FILE.partial` if it could not be finished or holds something that looks like text."""
    calls: int = 0
    """Calls written."""
    sessions: int = 0
    """Sessions written."""
    trees: int = 0
    """Root sessions written."""
    dropped_calls: int = 0
    """Calls seen but not written."""
    unrecorded_calls: int = 0
    """Calls written without their end."""
    trace_bytes: int = 0
    """Size of the file."""
    traffic_bytes: int = 0
    """Bodies of requests and responses, as on the wire."""
    leaks: tuple[str, ...] = ()
    """What the scan found, one sentence each, the found text masked; empty if nothing, or not in `hash` mode."""
    error: str | None = None
    """Why the trace is not whole, in one sentence; None if it is."""
    unreadable_calls: int = 0
    """Those of `dropped_calls` whose request is not of its protocol."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Calls that failed, their number by the `ErrorKind` of their outcome."""
