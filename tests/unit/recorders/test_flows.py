"""What is read off mitmproxy's flows."""

import pytest
from mitmproxy.connection import ConnectionState
from mitmproxy.flow import Error
from mitmproxy.http import Headers, Request, Response
from mitmproxy.test import tflow

from recorders.flows import (
    Reach,
    answered_from,
    asked_from,
    connected_from,
    how_broken,
    how_closed,
    is_recorded,
    reason_of,
)
from recorders.notes import Answered, Asked, Connected


def request(method="POST", path="/v1/messages", headers=(), body=b"{}"):
    made = Request.make(method, f"http://host{path}", body, Headers(headers))
    del made.headers["content-length"]
    return made


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("POST", "/v1/messages?beta=true", (), True),
        ("POST", "/any/v1/chat/completions", (), True),
        ("POST", "/v1/messages/count_tokens", (), True),
        ("GET", "/v1/responses", [(b"upgrade", b"websocket")], True),
        ("GET", "/v1/responses", (), False),
        ("GET", "/v1/models", (), False),
        ("POST", "/api/event_logging/v2/batch", (), False),
    ],
)
def test_generation_and_the_websocket_for_it_are_recorded(method, path, headers, expected):
    assert is_recorded(request(method, path, headers)) is expected


def test_a_request_is_noted_without_query_and_with_allowed_headers_only():
    headers = [
        (b"User-Agent", b"claude-cli/2"),
        (b"X-Api-Key", b"secret"),
        (b"Authorization", b"Bearer secret"),
        (b"X-Session-Id", b"a"),
        (b"x-session-id", b"b\xff"),
    ]
    assert asked_from(request(path="/v1/messages?key=secret", headers=headers), 3, 7, 1) == Asked(
        exchange=3,
        at_ns=7,
        method="POST",
        path="/v1/messages",
        headers={"user-agent": "claude-cli/2", "x-session-id": "a, b\ufffd"},
        body=b"{}",
        transport="http/1.1",
        connection=1,
    )


def test_transports_are_told_apart():
    h2 = request()
    h2.http_version = "HTTP/2.0"
    asked = [
        asked_from(each, 0, 0, 0).transport
        for each in (request(), h2, request(headers=[(b"Upgrade", b"WebSocket")]))
    ]
    assert asked == ["http/1.1", "h2", "websocket"]


def test_a_body_that_was_not_kept_is_no_empty_body():
    streamed = request()
    streamed.raw_content = None
    with pytest.raises(ValueError, match="stream_large_bodies"):
        asked_from(streamed, 0, 0, 0)


def test_an_answer_is_noted_with_allowed_headers_only():
    response = Response.make(429, b"", {"Retry-After": "3", "Set-Cookie": "secret", "request-id": "x"})
    assert answered_from(response, 3, 7) == Answered(3, 7, 429, {"retry-after": "3"})


@pytest.mark.parametrize(
    ("reach", "asked_ns", "expected"),
    [
        (Reach(start_ns=10, ready_ns=30), 5, Connected(0, 30, 20)),  # opened for this request
        (Reach(start_ns=10, ready_ns=30), 20, Connected(0, 30, 10)),  # being opened for another
        (Reach(start_ns=10, ready_ns=30), 40, Connected(0, 40, 0)),  # open
        (Reach(start_ns=10, ready_ns=30, end_ns=50), 40, Connected(0, 40, 0)),
        (Reach(start_ns=10, ready_ns=30, end_ns=50), 60, None),  # gone before
        (Reach(start_ns=10), 5, None),  # refused
    ],
)
def test_a_request_waits_for_a_connection_from_when_both_have_begun(reach, asked_ns, expected):
    assert connected_from(reach, 0, asked_ns) == expected


def broken(*, response=False, client_state=ConnectionState.OPEN, message="x", version="HTTP/1.1"):
    flow = tflow.tflow(resp=response, err=Error(message))
    flow.client_conn.state = client_state
    flow.request.http_version = version
    return flow


def answered(status):
    flow = tflow.tflow(resp=True)
    flow.response.status_code = status
    flow.request.path = "/path?key=secret"
    return flow


RESET = "stream reset by client (CANCEL)"


@pytest.mark.parametrize(
    ("flow", "was_connected", "expected"),
    [
        (broken(), False, "connect"),
        (broken(), True, "server"),
        (broken(response=True), True, "server"),
        # mitmproxy says so of either side
        (broken(message="Client disconnected."), True, "server"),
        (broken(client_state=ConnectionState.CAN_WRITE), True, "client"),
        (broken(client_state=ConnectionState.CLOSED), False, "client"),
        (broken(message=RESET, version="HTTP/2.0"), True, "client"),
        (broken(message=RESET), True, "server"),
    ],
)
def test_who_broke_an_exchange_is_read_off_the_connections(flow, was_connected, expected):
    assert how_broken(flow, was_connected=was_connected) == expected


@pytest.mark.parametrize(
    ("flow", "reason"),
    [
        (broken(message="[Errno 111] Connect call failed"), "address:22: connection refused"),
        (broken(client_state=ConnectionState.CLOSED), None),
        (broken(message=RESET, version="HTTP/2.0"), None),
        (tflow.tflow(resp=True), None),
        (tflow.tflow(), None),
        (answered(404), "404 from /path"),
    ],
)
def test_a_request_fails_by_its_error_or_its_status_but_not_by_the_clients_going(flow, reason):
    assert reason_of(flow) == reason


@pytest.mark.parametrize(
    ("by_client", "code", "expected"),
    [(True, 1006, ("client", "close code 1006")), (False, None, ("server", "no close code"))],
)
def test_a_websocket_says_who_closed_it(by_client, code, expected):
    flow = tflow.twebsocketflow()
    flow.websocket.closed_by_client, flow.websocket.close_code = by_client, code
    assert how_closed(flow) == expected


def test_a_flow_without_a_websocket_was_not_closed_by_the_client():
    assert how_closed(tflow.tflow()) == ("server", "no WebSocket")
