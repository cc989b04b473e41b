"""I/O: the engine on the network: routes, the timer that drives the simulation, and the life of a request."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import orjson
import xxhash
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.parser import text_string_to_metric_families

from aitrace.clock import Clock, SystemClock
from aitrace.errors import UsageError
from aitrace.protocols import PROTOCOLS, protocol_for_path
from aitrace.protocols.protocol import MalformedRequestError, Request, WireProtocol
from aitrace.schema import ProtocolName
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.engine.answers import Answer, plan_answer
from replayer.engine.body import BodyError, decode_body, too_large
from replayer.engine.exchange import FAULT_MESSAGE, EngineFaultError, Exchange, HeldTooLongError
from replayer.engine.metrics import Counters, exposition
from replayer.engine.options import EngineOptions, Fault, check_options, parse_fault, text_from_s
from replayer.engine.record import SESSION_HEADERS, EngineOutcome, EngineRecord
from replayer.engine.simulation import (
    Admitted,
    HoldEnded,
    PrefillStarted,
    Simulation,
    TakenIn,
    TokensDue,
    Work,
)
from replayer.engine.tokens import Digest, continue_digest, digest_steps, render_prompt
from replayer.engine.wire import ReplyPlan, ReplyWriter
from replayer.engine.wire_anthropic import AnthropicWriter
from replayer.engine.wire_chat import ChatWriter
from replayer.engine.wire_responses import ResponsesWriter

FAULT_HEADER = "X-Aitrace-Fault"
_WRITERS: dict[ProtocolName, type[ReplyWriter]] = {
    "anthropic": AnthropicWriter,
    "responses": ResponsesWriter,
    "chat": ChatWriter,
}
# Agents leave connections idle while their tools run; the engine never is the one to drop them.
_KEEPALIVE_S = 3600.0
# Room for the headers in which agents tell about themselves; aiohttp's own limit is 8190.
_MAX_HEADER_BYTES = 64 * 1024
_MALFORMED = (MalformedRequestError, UsageError)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class EngineServer:
    """Routes requests into a simulation and performs what it decides."""

    def __init__(
        self, options: EngineOptions, clock: Clock, on_record: Callable[[EngineRecord], None]
    ) -> None:
        self.options = options
        self.counters = Counters()
        self.simulation = Simulation(options)
        self.is_stopping = False
        self._clock = clock
        self._on_record = on_record
        self._exchanges: dict[int, Exchange] = {}
        self._served_sessions: set[str] = set()
        self._requests = 0
        self._fault_random = Random(options.seed)
        self._timer: asyncio.TimerHandle | None = None
        self._started_unix_s = clock.unix_ns() // NS_PER_S

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=self.options.max_body_bytes, middlewares=[_protocol_errors])
        for protocol in PROTOCOLS.values():
            app.router.add_post(protocol.path, self._generate)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{id:.+}", self._model)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    def metrics_text(self) -> str:
        """What `/metrics` answers."""
        return exposition(self.counters, self.simulation, self.options)

    # Generation

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        protocol = _protocol_of(request)
        number, self._requests = self._requests, self._requests + 1
        record = EngineRecord(
            request_id=_header(request, "X-Request-Id"),
            session=_header(request, *SESSION_HEADERS),
            protocol=protocol.name,
            head_ns=self._clock.monotonic_ns(),
        )
        try:
            return await self._serve(request, protocol, record, number)
        except _MALFORMED as error:
            record.status, record.outcome = _status_of(error), "malformed"
            raise
        except asyncio.CancelledError:
            record.outcome = record.outcome or self._reason_of_absence()
            raise
        except ConnectionError:
            # The client left while something was written to it; there is nobody to answer.
            record.outcome = record.outcome or self._reason_of_absence()
            return web.Response()
        finally:
            record.end_ns = self._clock.monotonic_ns()
            self._on_record(record)

    def _reason_of_absence(self) -> EngineOutcome:
        return "stopped" if self.is_stopping else "client_gone"

    async def _serve(
        self, request: web.Request, protocol: WireProtocol, record: EngineRecord, number: int
    ) -> web.StreamResponse:
        fault = self._pick_fault(request)
        record.fault = None if fault is None else fault.text
        body = await _read_body(request, self.options.max_body_bytes)
        record.body_ns = self._clock.monotonic_ns()
        if fault is not None and fault.kind == "refuse":
            self.counters.rejected["fault"] += 1
            return _refusal(protocol, record, fault.status or self.options.refuse, fault.retry_after_s)
        parsed = protocol.read_request(body)
        record.model, record.streamed = parsed.model, parsed.stream
        prompt = await self._digest(parsed)
        record.prompt_tokens = prompt.tokens
        answer = plan_answer(parsed, self.options, prompt.key)
        if fault is not None and fault.kind == "slow-headers":
            await self._clock.sleep_until(self._clock.monotonic_ns() + fault.duration_ns)
        plan = ReplyPlan(
            id=f"{xxhash.xxh3_64_intdigest(b'%d' % number, self.options.seed):016x}",
            model=parsed.model,
            created_unix_s=self._clock.unix_ns() // NS_PER_S,
            prompt_tokens=prompt.tokens,
            answer=answer,
            max_output_tokens=parsed.max_output_tokens,
            include_usage=_includes_usage(parsed),
        )
        end = fault if fault is not None and fault.kind in ("cut", "error") else None
        exchange = Exchange(request, _WRITERS[protocol.name](plan), record, self._clock, end)
        work = _work(number, prompt, answer, fault, self.options.block_size)
        return await self._run(protocol, exchange, work)

    async def _run(self, protocol: WireProtocol, exchange: Exchange, work: Work) -> web.StreamResponse:
        record = exchange.record
        now_ns = self._clock.monotonic_ns()
        is_protected = self.options.protect_returning and record.session in self._served_sessions
        match self.simulation.submit(work, now_ns, is_protected=is_protected):
            case "too_long":
                blocks = self.options.cache_blocks
                size = self.options.block_size
                text = f"prompt and answer need more than the {blocks} cache blocks of {size} tokens"
                raise MalformedRequestError(text)
            case "queue_full":
                self._pump()
                return self._no_room(protocol, record)
            case "held":
                record.held_ns = now_ns
            case None:
                self._take_in(exchange, now_ns)
        self._exchanges[work.id] = exchange
        try:
            self._pump()
            return await exchange.answer()
        except HeldTooLongError:
            return self._no_room(protocol, record)
        except EngineFaultError:
            return _error(protocol, record, 500, FAULT_MESSAGE, "fault")
        finally:
            # Still there if the handler was cancelled: the client left, or the engine stops.
            if self._exchanges.pop(work.id, None) is not None:
                if record.admitted_ns is not None:
                    self.counters.finished["abort"] += 1
                self.simulation.cancel(work.id, self._clock.monotonic_ns())
                self._pump()

    def _take_in(self, exchange: Exchange, at_ns: int) -> None:
        exchange.record.queued_ns = at_ns
        if self.options.headers == "early":
            exchange.begin()

    def _no_room(self, protocol: WireProtocol, record: EngineRecord) -> web.Response:
        self.counters.rejected["max_num_queued_reqs"] += 1
        return _refusal(protocol, record, self.options.refuse, self.options.retry_after_s)

    async def _digest(self, parsed: Request) -> Digest:
        steps = digest_steps(render_prompt(parsed.parts), self.options.block_size)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: Digest = stop.value
                return result
            # Lets other streams be served between pieces of a long prompt.
            await self._clock.sleep_until(0)

    def _pick_fault(self, request: web.Request) -> Fault | None:
        drawn = self.options.fault is not None and self._fault_random.random() < self.options.fault_ratio
        text = request.headers.get(FAULT_HEADER)
        if text is not None:
            return parse_fault(text)
        return self.options.fault if drawn else None

    # The timer

    def _pump(self) -> None:
        """Perform what is due and see to it that this happens again in time."""
        for event in self.simulation.advance(self._clock.monotonic_ns()):
            exchange = self._exchanges[event.id]
            match event:
                case TakenIn():
                    self._take_in(exchange, event.at_ns)
                case HoldEnded():
                    del self._exchanges[event.id]
                    exchange.refuse()
                case Admitted():
                    exchange.record.admitted_ns = event.at_ns
                    exchange.begin()
                case PrefillStarted():
                    self.counters.query_tokens += exchange.record.prompt_tokens or 0
                    self.counters.hit_tokens += event.cached_tokens
                    exchange.prefill_started(event.at_ns, event.cached_tokens)
                case TokensDue():
                    self._perform_tokens(exchange, event)
        self._arm()

    def _perform_tokens(self, exchange: Exchange, event: TokensDue) -> None:
        if event.first == 0:
            if exchange.record.session is not None:
                self._served_sessions.add(exchange.record.session)
            self.counters.prompt_tokens += exchange.record.prompt_tokens or 0
        self.counters.generation_tokens += event.end - event.first
        if event.is_last:
            self.counters.finished[exchange.finished_reason] += 1
            del self._exchanges[event.id]
        exchange.tokens_due(event)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_ns = self.simulation.next_at_ns()
        if at_ns is None:
            return
        # Event loops count in whole milliseconds; rounded down, they would wake in vain and again.
        wait_ms = max(0, -(-(at_ns - self._clock.monotonic_ns()) // NS_PER_MS))
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._pump)

    # Other routes

    async def _count_tokens(self, request: web.Request) -> web.StreamResponse:
        body = await _read_body(request, self.options.max_body_bytes)
        parsed = PROTOCOLS["anthropic"].read_request(body)
        counted = await self._digest(parsed)
        return _json_response(orjson.dumps({"input_tokens": counted.tokens}))

    async def _models(self, request: web.Request) -> web.StreamResponse:  # noqa: ARG002 - the signature is aiohttp's
        id_ = self.options.model
        page = {
            "object": "list",
            "data": [self._model_card(id_)],
            "first_id": id_,
            "last_id": id_,
            "has_more": False,
        }
        return _json_response(orjson.dumps(page))

    async def _model(self, request: web.Request) -> web.StreamResponse:
        return _json_response(orjson.dumps(self._model_card(request.match_info["id"])))

    def _model_card(self, id_: str) -> dict[str, str | int]:
        """One model in the shapes of both vendors at once, whose fields do not clash."""
        created = datetime.fromtimestamp(self._started_unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "id": id_,
            "object": "model",
            "created": self._started_unix_s,
            "owned_by": "aitrace",
            "type": "model",
            "display_name": id_,
            "created_at": created,
        }

    async def _health(self, request: web.Request) -> web.StreamResponse:  # noqa: ARG002 - same
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.StreamResponse:  # noqa: ARG002 - same
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self.metrics_text().encode(), headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """An engine that serves."""

    url: str
    """Base URL, without a slash at its end."""
    records: list[EngineRecord]
    """Requests that have ended, in this order; empty if another place was named for them."""
    server: EngineServer
    """The engine itself, for its counters and its simulation."""

    def metrics(self) -> dict[str, float]:
        """Value of each metric by name, added up over its labels."""
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(self.server.metrics_text()):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
        return values


@asynccontextmanager
async def serve(
    options: EngineOptions,
    *,
    on_record: Callable[[EngineRecord], None] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[RunningEngine]:
    """An engine on the network for as long as the block runs; streams that are open at its end are cut.

    Args:
        options: How it behaves and where it listens.
        on_record: Takes each request that has ended; without it they gather in `RunningEngine.records`.
        clock: The machine's, if none is given.

    Raises:
        UsageError: The options contradict each other, or the address cannot be bound.
    """
    check_options(options)
    records: list[EngineRecord] = []
    server = EngineServer(options, clock or SystemClock(), on_record or records.append)
    runner = web.AppRunner(
        server.application(),
        handler_cancellation=True,
        access_log=None,
        logger=_logger(),
        auto_decompress=False,
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
        keepalive_timeout=_KEEPALIVE_S,
        # 0 would mean without a limit.
        shutdown_timeout=0.05,
    )
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port, backlog=1024)
    try:
        try:
            await site.start()
        except OSError as error:
            hint = "Give another `--host` or `--port`; `--port 0` takes one that is free."
            raise UsageError(
                f"cannot listen on {options.host}:{options.port}: {error.strerror}", hint=hint
            ) from error
        host, port = runner.addresses[0][:2]
        shown = f"[{host}]" if ":" in host else host
        yield RunningEngine(url=f"http://{shown}:{port}", records=records, server=server)
    finally:
        server.is_stopping = True
        await runner.cleanup()


@web.middleware
async def _protocol_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Gives every error that has no answer yet the body of the protocol that the path is likely of."""
    name: ProtocolName = "anthropic" if "/messages" in request.path else "chat"
    protocol = protocol_for_path(request.path) or PROTOCOLS[name]
    try:
        return await handler(request)
    except _MALFORMED as error:
        status = _status_of(error)
        return _json_response(protocol.write_error(status, str(error)), status)
    except web.HTTPException as error:
        # Codex asks for a WebSocket first: after 426 it goes on without one at once, after 405 it tries 6 times more.
        wants_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        status = 426 if wants_socket and error.status == 405 else error.status
        reason = "WebSockets are not served" if status == 426 else error.reason
        response = _json_response(
            protocol.write_error(status, f"{request.method} {request.path}: {reason}"), status
        )
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response


def _status_of(error: Exception) -> int:
    return error.status if isinstance(error, BodyError) else 400


def _logger() -> logging.Logger:
    """Where aiohttp reports: a client's mistake in one line, the engine's with its traceback."""
    logger = logging.getLogger(__name__)
    logger.addFilter(_without_traceback)
    return logger


def _without_traceback(line: logging.LogRecord) -> bool:
    error = line.exc_info[1] if line.exc_info else None
    if isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
        line.msg = f"{line.getMessage()}: {' '.join(str(error).split())}"
        line.args, line.exc_info = None, None
    return True


def _protocol_of(request: web.Request) -> WireProtocol:
    return next(protocol for protocol in PROTOCOLS.values() if protocol.path == request.path)


async def _read_body(request: web.Request, most_bytes: int) -> bytes:
    """The decoded body.

    Raises:
        MalformedRequestError: It is too large, or cannot be read.
    """
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large(most_bytes) from error
    except web.RequestPayloadError as error:
        raise MalformedRequestError(f"body: cannot be read, {error}") from error
    return decode_body(raw, request.headers.get("Content-Encoding", ""), most_bytes)


def _header(request: web.Request, *names: str) -> str | None:
    """The first of these headers that is present, bytes that are no UTF-8 replaced."""
    value = next((request.headers[name] for name in names if name in request.headers), None)
    return None if value is None else value.encode(errors="surrogateescape").decode(errors="replace")


def _includes_usage(parsed: Request) -> bool:
    stream_options = parsed.body.get("stream_options")
    return isinstance(stream_options, dict) and stream_options.get("include_usage") is True


def _work(number: int, prompt: Digest, answer: Answer, fault: Fault | None, block_size: int) -> Work:
    output_tokens = len(answer.words)
    if fault is not None and fault.kind in ("cut", "error"):
        output_tokens = min(output_tokens, fault.after_tokens)
    # Nothing is computed on an answer's last token, so it is in no block.
    computed = answer.words[: max(0, output_tokens - 1)]
    stalls = fault is not None and fault.kind == "stall"
    return Work(
        id=number,
        prompt_tokens=prompt.tokens,
        output_tokens=output_tokens,
        blocks=continue_digest(prompt, b" ".join(computed), block_size).blocks,
        stall_after_tokens=fault.after_tokens if fault is not None and stalls else None,
        stall_ns=fault.duration_ns if fault is not None and stalls else 0,
    )


def _refusal(
    protocol: WireProtocol, record: EngineRecord, status: int, retry_after_s: float | None
) -> web.Response:
    response = _error(protocol, record, status, "the engine has no room for this request", "refused")
    if retry_after_s is not None:
        response.headers["Retry-After"] = text_from_s(retry_after_s)
    return response


def _error(
    protocol: WireProtocol, record: EngineRecord, status: int, message: str, outcome: EngineOutcome
) -> web.Response:
    record.status, record.outcome = status, outcome
    return _json_response(protocol.write_error(status, message), status)


def _json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
