"""Pure: which sessions of a run are over, and the request that says so.

Dynamo wants to be told with a small request of its own that has `X-Dynamo-Session-Final: true`. The header is on no
call of the plan: ThunderAgent's first router took such a request for the end of its session and did not compute it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aitrace.protocols.protocol import RequestSpec, WireMessage, WirePart, WireProtocol
from aitrace.results import CallResult
from replayer.identity.wire_identity import WireIdentity, caller_of
from replayer.planning.planned import PlannedCall

_TEXT = b"end"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRequest:
    """What is to be sent to a target when a session is over."""

    headers: Mapping[str, str]
    """Beside those of every request."""
    body: bytes
    """It asks for next to nothing."""


class SessionEnds:
    """Sessions that go on."""

    def __init__(self) -> None:
        self._left: dict[tuple[int, int], int] = {}
        """Calls without a result, of sessions of which one has a result."""
        self._sent: set[tuple[int, int]] = set()

    def note(self, result: CallResult, calls: int) -> bool:
        """Take in a result; whether it ended a session of which the endpoint knows, since a call of it was sent.

        Args:
            calls: How many calls of the session are to have a result.
        """
        session = (result.instance, result.session)
        if result.unsent is None:
            self._sent.add(session)
        left = self._left.pop(session, calls) - 1
        if left > 0:
            self._left[session] = left
            return False
        is_known = session in self._sent
        self._sent.discard(session)
        return is_known


class FinalRequests:
    """The requests of a run that tell of the ends of its sessions."""

    def __init__(self, identity: WireIdentity, protocol: WireProtocol, *, model: str, run_id: str) -> None:
        self._identity = identity
        self._protocol = protocol
        self._model = model
        self._run_id = run_id
        self._ends = SessionEnds()

    def after(self, result: CallResult, planned: PlannedCall) -> FinalRequest | None:
        """What is to be sent now that this is known; None if the session goes on or nobody is to be told."""
        if not self._ends.note(result, planned.session_calls):
            return None
        ids = self._identity.final_headers(caller_of(planned, self._run_id))
        self._identity.forget(result.instance, result.session)
        if not ids:
            return None
        return FinalRequest(
            headers={"X-Request-Id": f"{result.request_id}-final", **ids},
            body=final_body(self._protocol, self._model),
        )


def final_body(protocol: WireProtocol, model: str) -> bytes:
    """Body of a request that carries a header and asks for next to nothing."""
    words = WirePart(kind="text", text=_TEXT)
    spec = RequestSpec(
        model=model,
        messages=[WireMessage(role="user", parts=(words,))],
        max_output_tokens=1,
        stream=False,
    )
    return protocol.write_request(spec)
