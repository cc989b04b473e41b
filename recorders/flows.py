"""Pure: what mitmproxy's flows and connections say, as values."""

from dataclasses import dataclass

from mitmproxy import connection, http

from aitrace.harnesses.routes import REQUEST_HEADERS, RESPONSE_HEADERS, recorded_route
from aitrace.schema import Transport
from recorders.notes import Answered, Asked, Connected, How
from recorders.tally import reason_from_error, reason_from_status

_RESET = "stream reset by client (CANCEL)"
"""What mitmproxy says when an HTTP/2 client takes back one request and keeps its connection."""


@dataclass(slots=True, kw_only=True)
class Reach:
    """One connection to an endpoint, in ns of the monotonic clock."""

    start_ns: int
    """Connecting began."""
    ready_ns: int | None = None
    """It could be used, TLS included; None if that did not come about."""
    end_ns: int | None = None
    """It was gone; None if it still is there."""


def connected_from(reach: Reach, number: int, asked_ns: int) -> Connected | None:
    """The note that a request, complete at `asked_ns`, could be passed on; None if not over this connection."""
    ready_ns = reach.ready_ns
    if ready_ns is None or (reach.end_ns is not None and reach.end_ns < asked_ns):
        return None
    wait_ns = ready_ns - max(reach.start_ns, asked_ns)
    return Connected(number, max(asked_ns, ready_ns), max(0, wait_ns))


def is_recorded(request: http.Request) -> bool:
    """Whether a request asks for something that is generated, or opens a WebSocket for such requests."""
    if request.method == "GET" and _transport(request) != "websocket":
        return False
    return recorded_route(request.method, request.path) is not None


def asked_from(request: http.Request, number: int, at_ns: int, client: int) -> Asked:
    """The note of a request.

    Raises:
        ValueError: The proxy passed its body on without keeping it.
    """
    if request.raw_content is None:
        raise ValueError("the body of a request was streamed: leave mitmproxy's stream_large_bodies unset")
    return Asked(
        exchange=number,
        at_ns=at_ns,
        method=request.method,
        path=request.path.partition("?")[0],
        headers=_kept(request.headers, REQUEST_HEADERS),
        body=request.raw_content,
        transport=_transport(request),
        connection=client,
    )


def answered_from(response: http.Response, number: int, at_ns: int) -> Answered:
    """The note of status and headers."""
    return Answered(number, at_ns, response.status_code, _kept(response.headers, RESPONSE_HEADERS))


def how_broken(flow: http.HTTPFlow, *, was_connected: bool) -> How:
    """Who ended an exchange for which mitmproxy reports an error.

    Its text does not tell: both sides of a connection use the same words.
    """
    if _has_left(flow):
        return "client"
    return "server" if was_connected or flow.response is not None else "connect"


def reason_of(flow: http.HTTPFlow) -> str | None:
    """Why a request that is over has no good answer, in words; None if it has one, or the client wanted none."""
    if flow.error is not None:
        request = flow.request
        return None if _has_left(flow) else reason_from_error(flow.error.msg, request.host, request.port)
    return None if flow.response is None else reason_from_status(flow.response.status_code, flow.request.path)


def how_closed(flow: http.HTTPFlow) -> tuple[How, str]:
    """Who closed a WebSocket, and with what code."""
    socket = flow.websocket
    if socket is None:
        return "server", "no WebSocket"
    text = f"close code {socket.close_code}" if socket.close_code is not None else "no close code"
    return ("client" if socket.closed_by_client else "server"), text


def _has_left(flow: http.HTTPFlow) -> bool:
    is_reset = flow.request.is_http2 and flow.error is not None and flow.error.msg == _RESET
    return is_reset or not flow.client_conn.state & connection.ConnectionState.CAN_READ


def _transport(request: http.Request) -> Transport:
    if request.headers.get("upgrade", "").lower() == "websocket":
        return "websocket"
    return "h2" if request.is_http2 else "http/1.1"


def _kept(headers: http.Headers, allowed: frozenset[str]) -> dict[str, str]:
    """The allowed headers by lower-case name; what came several times is joined, as HTTP has it."""
    kept: dict[str, str] = {}
    for raw_name, raw_value in headers.fields:
        name = raw_name.decode("latin-1").lower()
        if name in allowed:
            value = raw_value.decode(errors="replace")
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept
