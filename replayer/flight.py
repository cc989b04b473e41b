"""I/O: a call on its way: what is known of it between its dispatch and its result, and the result that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aitrace.observe import Observation, ResponseObserver
from aitrace.results import Attempt, CallResult
from aitrace.units import NS_PER_MS
from replayer.http.transport import Failure, Stamps
from replayer.scheduler import Send

_LEAVING_LIMIT_NS = 5 * NS_PER_MS


@dataclass(slots=True, kw_only=True)
class Flight:
    """A call between its dispatch and its result."""

    send: Send
    """Which call it is, and when it was due."""
    dispatched_ns: int
    """When the latest try was dispatched."""
    request_id: str
    """That of all tries."""
    body: bytes
    """Of the latest try."""
    observer: ResponseObserver
    """Takes the answer to the latest try."""
    stamps: Stamps = field(default_factory=Stamps)
    """Of the latest try."""
    attempts: list[Attempt] = field(default_factory=list)
    """The tries before it."""
    retry_due_ns: int | None = None
    """When the latest try was due; None for the first one."""

    def seen(self, end_ns: int, failure: Failure | None) -> Observation:
        """What the try has shown, now that it is over."""
        kind, text = (None, None) if failure is None else (failure.kind, failure.text)
        return self.observer.on_end(end_ns, kind, text)

    def start_over(self, seen: Observation, *, wait_ns: int, observer: ResponseObserver) -> None:
        """Put a failed try away; the next one is due when the wait is over."""
        assert seen.error is not None  # noqa: S101 - only a failed try is followed by another
        self.attempts.append(
            Attempt(
                sent_ns=self.stamps.sent_ns,
                headers_ns=seen.headers_ns,
                first_token_ns=seen.first_token_ns,
                end_ns=seen.end_ns,
                status=seen.status,
                error=seen.error,
                error_text=seen.error_text,
                retry_after_ns=seen.retry_after_ns,
                wait_ns=wait_ns,
                signals=seen.signals,
            )
        )
        self.retry_due_ns = seen.end_ns + wait_ns
        self.observer = observer
        self.stamps = Stamps()

    def is_leaving(self, now_ns: int) -> bool:
        """Whether its request is about to be handed to the socket; not if that takes long, as opening a connection."""
        return self.stamps.sent_ns is None and now_ns - self.dispatched_ns < _LEAVING_LIMIT_NS


def sent_result(fields: Mapping[str, Any], flight: Flight, seen: Observation) -> CallResult:
    """The result of a call that was dispatched."""
    stamps = flight.stamps
    has_events = seen.first_event_ns is not None
    return CallResult(
        **fields,
        attempts=tuple(flight.attempts),
        due_ns=flight.send.due_ns,
        retry_due_ns=flight.retry_due_ns,
        dispatched_ns=flight.dispatched_ns,
        connected_ns=stamps.connected_ns,
        sent_ns=stamps.sent_ns,
        uploaded_ns=stamps.uploaded_ns,
        headers_ns=seen.headers_ns,
        first_byte_ns=seen.first_byte_ns,
        first_event_ns=seen.first_event_ns,
        first_token_ns=seen.first_token_ns,
        first_visible_ns=seen.first_visible_ns,
        last_token_ns=seen.last_token_ns,
        end_ns=seen.end_ns,
        new_connection=stamps.new_connection,
        stale_connections=stamps.stale_connections,
        request_bytes=len(flight.body),
        response_bytes=seen.response_bytes,
        events=seen.events if has_events else None,
        token_events=seen.token_events if has_events else None,
        longest_stall_ns=seen.longest_stall_ns if seen.token_events > 1 else None,
        unparsed_events=seen.unparsed_events + seen.unparsed_lines,
        status=seen.status,
        error=seen.error,
        error_text=seen.error_text,
        finish=seen.finish,
        retry_after_ns=seen.retry_after_ns,
        usage=seen.usage,
        signals=seen.signals,
    )
