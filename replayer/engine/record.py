"""Pure: what the engine knows of one request, in the shape of its log."""

from dataclasses import asdict, dataclass
from typing import Literal

import orjson

from aitrace.schema import ProtocolName

EngineOutcome = Literal["complete", "refused", "malformed", "fault", "client_gone", "stopped"]
SESSION_HEADERS = (
    "x-dynamo-session-id",
    "x-session-id",
    "x-claude-code-session-id",
    "thread-id",
    "session-id",
)


@dataclass(slots=True, kw_only=True)
class EngineRecord:
    """One generation request; filled in while it is served. Times are CLOCK_MONOTONIC, ns; None = did not happen."""

    request_id: str | None
    """`X-Request-Id`; None if the client sent none."""
    session: str | None
    """The first header present of `SESSION_HEADERS`; None if there is none."""
    protocol: ProtocolName
    """Protocol of the path."""
    model: str | None = None
    """Model asked for; None if the body could not be read."""
    streamed: bool | None = None
    """Whether a stream was asked for; None if the body could not be read."""
    head_ns: int
    """The request's head was received."""
    body_ns: int | None = None
    """The last byte of its body was received."""
    held_ns: int | None = None
    """The queue was full, and it was held outside it from here on; None if it was not held."""
    queued_ns: int | None = None
    """It was taken in, to wait or to run; None if it was refused or could not be read."""
    admitted_ns: int | None = None
    """It got a place in the batch."""
    prefill_ns: int | None = None
    """Its prefill began, and its cache hits were counted."""
    first_token_ns: int | None = None
    """Just before the first token was handed to the socket; for an answer in one piece, the body."""
    last_token_ns: int | None = None
    """The same of the last token."""
    end_ns: int | None = None
    """The engine was done with it."""
    prompt_tokens: int | None = None
    """Tokens of the prompt; None if the body could not be read."""
    cached_tokens: int | None = None
    """Prompt tokens from the cache; None if prefill did not begin."""
    output_tokens: int = 0
    """Tokens handed to the socket."""
    status: int | None = None
    """HTTP status; None if no headers were sent."""
    outcome: EngineOutcome | None = None
    """How it ended; None while it has not."""
    fault: str | None = None
    """The fault it was subject to, as on the command line; None for none."""


def line_from_record(record: EngineRecord) -> bytes:
    """The record as one line of JSON."""
    return orjson.dumps(asdict(record), option=orjson.OPT_APPEND_NEWLINE)
