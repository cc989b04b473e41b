"""I/O: one request being answered: what is written to its connection, and when."""

import asyncio

from aiohttp import HttpVersion11, web

from aitrace.clock import Clock
from replayer.engine.options import Fault
from replayer.engine.record import EngineRecord
from replayer.engine.simulation import TokensDue
from replayer.engine.wire import ReplyWriter

FAULT_MESSAGE = "the engine was told to fail here"
_STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_JSON_HEADERS = {"Content-Type": "application/json"}


class Exchange:
    """The connection's side of one request. The engine tells it what is due, `answer` returns when all is written."""

    def __init__(
        self,
        request: web.Request,
        writer: ReplyWriter,
        record: EngineRecord,
        clock: Clock,
        fault: Fault | None,
    ) -> None:
        """`fault` takes the place of the answer's end; None if it ends as it should."""
        self.record = record
        self._request = request
        self._writer = writer
        self._clock = clock
        self._fault = fault
        self._transport: asyncio.Transport | None = None
        self._is_chunked = request.version >= HttpVersion11
        self._held: list[TokensDue] = []
        self._begun = False
        self._may_begin: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def finished_reason(self) -> str:
        """How the answer ends, in vLLM's word."""
        if self._fault is not None:
            return "abort"
        return "length" if self._writer.plan.answer.finish == "length" else "stop"

    def begin(self) -> None:
        """Let the headers go."""
        if not self._may_begin.done():
            self._may_begin.set_result(True)

    def refuse(self) -> None:
        """There will be no answer: it was held for too long."""
        self._may_begin.set_result(False)

    def prefill_started(self, at_ns: int, cached_tokens: int) -> None:
        self.record.prefill_ns = at_ns
        self.record.cached_tokens = cached_tokens
        self._writer.cached_tokens = cached_tokens

    def tokens_due(self, event: TokensDue) -> None:
        """Write these tokens now, or as soon as the headers are out."""
        if self.record.streamed and self._transport is None:
            self._held.append(event)
        elif self.record.streamed:
            self._write_tokens(event)
        if event.is_last and not self._ended.done():
            self._ended.set_result(None)

    async def answer(self) -> web.StreamResponse:
        """Send the answer as its tokens come due.

        Raises:
            HeldTooLongError: It was held for as long as it may be, and nothing was sent.
        """
        if not await self._may_begin:
            raise HeldTooLongError
        if self.record.streamed:
            return await self._answer_streamed()
        return await self._answer_whole()

    async def _answer_streamed(self) -> web.StreamResponse:
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        if self._is_chunked:
            response.enable_chunked_encoding()
        await response.prepare(self._request)
        self.record.status = response.status
        # Events go to the transport itself: a stream's write method costs a task switch for each of them.
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client left before the headers were written")
        self._transport = transport
        self._write(self._writer.prelude())
        for event in self._held:
            self._write_tokens(event)
        await self._ended
        if self._fault is not None:
            self.record.outcome = "fault"
        if self._fault is not None and self._fault.kind == "cut":
            transport.close()
            return response
        await response.write_eof()
        self.record.outcome = self.record.outcome or "complete"
        return response

    async def _answer_whole(self) -> web.StreamResponse:
        await self._ended
        if self._fault is not None:
            self.record.outcome = "fault"
            if self._fault.kind == "error":
                raise EngineFaultError
            if self._request.transport is not None:
                self._request.transport.close()
            return web.StreamResponse()
        response = web.Response(body=self._writer.whole(), headers=_JSON_HEADERS)
        await response.prepare(self._request)
        self._stamp(len(self._writer.plan.answer.words))
        self.record.status = response.status
        await response.write_eof()
        self.record.outcome = "complete"
        return response

    def _write_tokens(self, event: TokensDue) -> None:
        data = b"" if self._begun else self._writer.begin()
        self._begun = True
        data += self._writer.tokens(event.first, event.end)
        if event.is_last:
            data += self._last_events()
        if event.end > event.first:
            self._stamp(event.end)
        self._write(data)

    def _last_events(self) -> bytes:
        if self._fault is None:
            return self._writer.end()
        return self._writer.fail(500, FAULT_MESSAGE) if self._fault.kind == "error" else b""

    def _stamp(self, output_tokens: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if self.record.first_token_ns is None:
            self.record.first_token_ns = now_ns
        self.record.last_token_ns = now_ns
        self.record.output_tokens = output_tokens

    def _write(self, data: bytes) -> None:
        # An empty chunk would end a chunked body. A closing transport belongs to a client that left.
        if not data or self._transport is None or self._transport.is_closing():
            return
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)


class HeldTooLongError(Exception):
    """A request that found no room in the time for which it could be held."""


class EngineFaultError(Exception):
    """A fault that is answered with status 500."""
