"""Pure: what can become of one try of a call, finer than its error: what was refused where, what ran out when.

| outcome | error of the try, and what else is known |
| --- | --- |
| `complete` | none |
| `refused` | `refused`: status 429, 503 or 529 |
| `refused_in_stream` | `error_event` that speaks of overload or carries code 429, 503 or 529 |
| `timeout_headers`, `timeout_first_token`, `timeout_stream` | `timeout` before headers, before the first token, after it |
| `stopped` | `client_abort`: the run was stopped |
| any other | the error's own name |
"""

import re
from typing import Literal

from aitrace.results import Attempt, CallResult

Outcome = Literal[
    "complete",
    "refused",
    "refused_in_stream",
    "timeout_headers",
    "timeout_first_token",
    "timeout_stream",
    "connect",
    "cut",
    "error_event",
    "http_error",
    "malformed",
    "stopped",
    "unrecorded",
]
OUTCOME_WORDS: dict[str, str] = {
    "complete": "complete",
    "refused": "refused",
    "refused_in_stream": "refused in the stream",
    "timeout_headers": "timeout before headers",
    "timeout_first_token": "timeout before the first token",
    "timeout_stream": "timeout in mid-stream",
    "timeout": "timeout",
    "connect": "no connection",
    "cut": "stream cut",
    "error_event": "error in the stream",
    "http_error": "HTTP error",
    "malformed": "unreadable answer",
    "stopped": "in flight when the run was stopped",
    "client_abort": "in flight when the run was stopped",
    "unrecorded": "end not known",
}
"""Outcomes, and kinds of errors, as people read them."""
UNSENT_WORDS: dict[str, str] = {
    "session_lost": "its session was lost",
    "interrupted": "the run was stopped",
    "duration": "the run's duration was over",
    "worker_lost": "its process was lost",
}
"""Why a call was not sent, as people read it."""
PHASE_WORDS: dict[str, str] = {"measured": "measured", "warm_up": "warm-up", "prime": "priming"}
"""What a call counts for, as people read it."""
REFUSED: tuple[Outcome, ...] = ("refused", "refused_in_stream")
"""Outcomes by which an endpoint says that it has no room."""

OVERLOAD = re.compile(r"\((429|503|529)\)$|'code': (429|503|529)\b|overload", re.IGNORECASE)
"""Found in the text of an error that says so: vLLM puts the status into the stream it had begun, in Messages within the
text of another error; others name it.
"""


def outcome_of(end: CallResult | Attempt) -> Outcome:
    """The outcome of a try that is over; of a call's result, that of its last one."""
    match end.error:
        case None:
            return "complete"
        case "error_event" if OVERLOAD.search(end.error_text or ""):
            return "refused_in_stream"
        case "timeout" if end.headers_ns is None:
            return "timeout_headers"
        case "timeout" if end.first_token_ns is None:
            return "timeout_first_token"
        case "timeout":
            return "timeout_stream"
        case "client_abort":
            return "stopped"
        case other:
            return other
