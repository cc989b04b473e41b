"""Pure: the calls on one WebSocket that speaks the Responses protocol.

Each `response.create` of the client begins a call; what the server says then belongs to it until the answer's own end or
an error. Calls follow one another; should a client ask again before it has its answer, the answers come in the order
of the questions.
"""

from collections import deque
from typing import Any

import orjson

from aitrace.harnesses.routes import Route
from aitrace.protocols import PROTOCOLS
from aitrace.schema import Wire
from recorders.chains import ResponseChains
from recorders.exchange import Requested, WatchedCall
from recorders.notes import Asked


class ResponsesSocket:
    """One connection, from its handshake to its end.

    Args:
        asked: The handshake.
        route: Where it went.
        chains: Answers that a request on this connection may continue.
    """

    def __init__(self, asked: Asked, route: Route, chains: ResponseChains) -> None:
        self._asked = asked
        self._route = route
        self._chains = chains
        self._running: deque[WatchedCall] = deque()

    def on_client_message(self, data: bytes, at_ns: int) -> WatchedCall | None:
        """The call that a message of the client begins; None if it begins none.

        Raises:
            MalformedRequestError: It is one, but not of the protocol.
        """
        if not _begins_call(data):
            return None
        request = PROTOCOLS["responses"].read_request(data)
        call = WatchedCall(
            Requested(
                route=self._route,
                path=self._asked.path,
                headers=self._asked.headers,
                request=request,
                prompt=self._chains.whole_prompt(request),
                request_ns=at_ns,
                # Bytes as sent are not known: messages come to us decompressed.
                wire=Wire(
                    transport="websocket",
                    connection=self._asked.connection,
                    connect_ns=0,
                ),
            )
        )
        self._running.append(call)
        return call

    def on_server_message(self, data: bytes, at_ns: int) -> WatchedCall | None:
        """The call that a message of the server ends; None if it ends none."""
        if not self._running or not self._running[0].on_message(data, at_ns):
            return None
        return self._running.popleft()

    def close(self) -> tuple[WatchedCall, ...]:
        """The connection is over: the calls that were under way."""
        left = tuple(self._running)
        self._running.clear()
        return left


def _begins_call(data: bytes) -> bool:
    try:
        message: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(message, dict) and message.get("type") == "response.create"
