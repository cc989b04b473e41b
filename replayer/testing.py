"""I/O: a transport that answers by script instead of by network; for tests of anything that sends calls.

    clock = ManualClock()
    transport = ScriptedTransport(clock, lambda request, number: chat_reply(tokens=3, first_token_ns=2 * NS_PER_S))
    ...                        # give it to a Driver with the same clock
    transport.sent[0].body     # what was asked

Its delays pass on the clock, so under a ManualClock they take no time. A reply can be cut (`failure`), refused
(`status`), or hang (`hangs`) until its call is cancelled.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson

from aitrace.clock import Clock
from aitrace.units import NS_PER_MS
from replayer.http.transport import Failure, OutgoingRequest, ResponseSink, Stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """What happens to one request."""

    connect_ns: int = 0
    """Time until its connection is ready, ns."""
    headers_ns: int = 0
    """Time from then until status and headers, ns."""
    status: int | None = 200
    """HTTP status; None if the exchange fails before one."""
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    """Headers of the response."""
    chunks: tuple[tuple[int, bytes], ...] = ()
    """Pieces of the body, each with the time that passes before it, ns."""
    failure: Failure | None = None
    """What ends the exchange after the last chunk; None for a clean end."""
    hangs: bool = False
    """Whether nothing more comes after the last chunk, not even an end."""


Script = Callable[[OutgoingRequest, int], ScriptedReply]
"""Gives the reply to a request and its number, from 0."""


class ScriptedTransport:
    """A Transport whose endpoint is a script."""

    def __init__(self, clock: Clock, script: Script) -> None:
        self.sent: list[OutgoingRequest] = []
        """Requests in the order in which they were sent."""
        self.sent_at_ns: list[int] = []
        """When each was, on the clock."""
        self.cancelled = 0
        """Requests whose call was cancelled."""
        self._clock = clock
        self._script = script

    async def send(self, request: OutgoingRequest, sink: ResponseSink, stamps: Stamps) -> Failure | None:
        """See Transport."""
        try:
            return await self._play(request, sink, stamps)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _play(self, request: OutgoingRequest, sink: ResponseSink, stamps: Stamps) -> Failure | None:
        reply = self._script(request, len(self.sent))
        self.sent.append(request)
        self.sent_at_ns.append(self._clock.monotonic_ns())
        await self._pass(reply.connect_ns)
        if reply.failure is not None and reply.failure.kind == "connect":
            return reply.failure
        stamps.new_connection = True
        stamps.connected_ns = stamps.sent_ns = stamps.uploaded_ns = self._clock.monotonic_ns()
        await self._pass(reply.headers_ns)
        if reply.status is not None:
            sink.on_headers(reply.status, reply.headers, self._clock.monotonic_ns())
        for wait_ns, data in reply.chunks:
            await self._pass(wait_ns)
            sink.on_chunk(data, self._clock.monotonic_ns())
        if reply.hangs:
            await asyncio.Event().wait()
        return reply.failure

    async def _pass(self, wait_ns: int) -> None:
        if wait_ns:
            await self._clock.sleep_until(self._clock.monotonic_ns() + wait_ns)


def chat_reply(
    *,
    tokens: int = 2,
    first_token_ns: int = 100 * NS_PER_MS,
    token_every_ns: int = 10 * NS_PER_MS,
    prompt_tokens: int = 10,
    cached_tokens: int = 0,
) -> ScriptedReply:
    """A whole streamed answer of the `chat` protocol; its text is ` w0 w1 …`, one word for each token.

    The last chunk carries finish reason, usage and the end of the stream, with the last token.
    """
    events = [_event({"choices": [{"index": 0, "delta": {"content": f" w{n}"}}]}) for n in range(tokens)]
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    end = _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    end += _event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    events[-1] += end
    waits_ns = [first_token_ns] + [token_every_ns] * (tokens - 1)
    return ScriptedReply(chunks=tuple(zip(waits_ns, events, strict=True)))


def _event(fields: Mapping[str, object]) -> bytes:
    return b"data: " + orjson.dumps({"id": "scripted", "object": "chat.completion.chunk", **fields}) + b"\n\n"
