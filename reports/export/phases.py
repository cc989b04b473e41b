"""Pure: one call of a run as a row of phases, in order and without overlap.

| phase | from | to |
| --- | --- | --- |
| `lateness` | the try is due | its head is handed to the socket |
| `queue/headers` | sent | headers, or the end if none came |
| `prefill` | headers of a stream | its first token, or the end if none came |
| `decode` | first token | last token; of an earlier try, its end |
| `answer` | headers of an answer that is no stream | end |
| `connect` | the try is due | its end, if it was never sent |
| `backoff` | end of a try that failed | when the harness tries again |

A client sees when headers come, not when a prompt leaves the queue: engines that send headers at once queue and compute
in `prefill`, those that send them with the first token do both in `queue/headers`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aitrace.outcomes import Outcome, outcome_of
from aitrace.results import Attempt, CallResult, waits_ns

PhaseName = Literal["lateness", "queue/headers", "prefill", "decode", "answer", "connect", "backoff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a call."""

    name: PhaseName
    """What went on."""
    start_ns: int
    """Since the start of the run."""
    end_ns: int
    """Since the start of the run; after the start."""
    number: int
    """Try that it belongs to, from 1."""


def outcome_of_call(call: CallResult) -> Outcome | None:
    """How the last try ended; None if the call was not sent on purpose."""
    return outcome_of(call) if call.unsent is None else None


def span_ns(call: CallResult) -> tuple[int, int] | None:
    """Start and end of a call, waits for a connection and for tries included; None if it never began."""
    if call.unsent is not None:
        return None
    first_ns = call.attempts[0].sent_ns if call.attempts else call.dispatched_ns
    starts = [at for at in (call.due_ns, first_ns, call.sent_ns) if at is not None]
    ends = (call.end_ns, call.last_token_ns, call.first_token_ns, call.headers_ns, call.sent_ns)
    end_ns = next((at for at in ends if at is not None), None)
    if not starts or end_ns is None:
        return None
    return starts[0], max(starts[0], end_ns)


def phases(call: CallResult) -> Iterator[Phase]:
    """What a call consisted of; nothing if it never began."""
    span = span_ns(call)
    if span is None:
        return
    at_ns, end_ns = span
    for number, (attempt, wait_ns) in enumerate(zip(call.attempts, waits_ns(call), strict=True), 1):
        tried_ns = min(attempt.end_ns, end_ns)
        yield from _phases_of_try(
            attempt, number, at_ns, tried_ns, is_stream=attempt.first_token_ns is not None
        )
        at_ns = max(at_ns, tried_ns)
        yield from _phase("backoff", number, at_ns, min(at_ns + wait_ns, end_ns))
        at_ns = min(max(at_ns, at_ns + wait_ns), end_ns)
    yield from _phases_of_try(call, len(call.attempts) + 1, at_ns, end_ns, is_stream=call.events is not None)


def _phases_of_try(
    one: CallResult | Attempt, number: int, at_ns: int, end_ns: int, *, is_stream: bool
) -> Iterator[Phase]:
    if one.sent_ns is None:
        yield from _phase("connect", number, at_ns, end_ns)
        return
    last_token_ns = one.last_token_ns if isinstance(one, CallResult) else end_ns
    ends: list[tuple[PhaseName, int | None]] = [("lateness", one.sent_ns), ("queue/headers", one.headers_ns)]
    if one.headers_ns is not None and is_stream:
        ends += [("prefill", one.first_token_ns)]
        ends += [("decode", last_token_ns)] if one.first_token_ns is not None else []
    elif one.headers_ns is not None:
        ends += [("answer", end_ns)]
    for name, until_ns in ends:
        # Stamps of two clocks may lie the wrong way round by some µs; phases never do.
        until_ns = max(at_ns, min(end_ns if until_ns is None else until_ns, end_ns))  # noqa: PLW2901
        yield from _phase(name, number, at_ns, until_ns)
        at_ns = until_ns


def _phase(name: PhaseName, number: int, start_ns: int, end_ns: int) -> Iterator[Phase]:
    if end_ns > start_ns:
        yield Phase(name=name, start_ns=start_ns, end_ns=end_ns, number=number)
