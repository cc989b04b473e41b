"""I/O: a scripted endpoint on loopback that speaks the three protocols and keeps what truly happened.

    with Upstream(SCENARIOS["session"], project=project, certificate=certificate) as upstream:
        ...                     # point a client at upstream.port, or upstream.tls_port
    upstream.seen               # every request: when it came, who asked, how it ended

It keeps no conversations: how far an agent is, its request's own history tells. So retries, resumed sessions and
several agents at once need no care; only faults are counted.
"""

import asyncio
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import orjson
import zstandard
from aiohttp import WSMsgType, web
from answers import (
    Planned,
    Timed,
    completion,
    completion_events,
    message,
    message_events,
    response,
    response_events,
)
from asked import SUMMARY, Asked, Purpose, planned_step, read_chat, read_messages, read_responses, tool_use
from scenarios import Fault, Scenario, Step, Tool

from aitrace.schema import ProtocolName

FIRST_EVENT_S = 0.1
EVENTS_BEFORE_FAULT = 7
EVENTS_BEFORE_INTERRUPT = 7
ID = re.compile(
    r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:ses|msg|resp|toolu|call|fc|ctc|rs|cmp)_[0-9A-Za-z]{12,})\b"
)
End = Literal["complete", "refused", "cut", "error_event", "client_abort"]


@dataclass(slots=True, kw_only=True)
class Seen:
    """One request for an answer, and how it was answered."""

    number: int
    """From 0 in order of arrival."""
    protocol: ProtocolName
    """Wire protocol."""
    is_websocket: bool = False
    """Whether it came as a WebSocket message."""
    asked: Asked
    """What it was for."""
    model: str
    """Model asked for."""
    streamed: bool
    """Whether the answer is a stream."""
    names: frozenset[str]
    """Ids in the request's headers and body."""
    arrived_ns: int
    """The request was complete here, on the machine's monotonic clock."""
    tools: tuple[Tool, ...] = ()
    """Tools called in the answer."""
    input_tokens: int | None = None
    """Size of the prompt as reported; None if there was no answer."""
    output_tokens: int | None = None
    """Size of the answer as reported; None if there was none."""
    ended_ns: int | None = None
    """The last byte of the answer was handed to the system; None while it runs."""
    end: End | None = None
    """How it ended; None while it runs."""
    status: int = 200
    """HTTP status, also where a WebSocket message carried it."""
    retry_after_s: int | None = None
    """As the answer said; None if it did not."""

    @property
    def agent(self) -> str | None:
        return self.asked.agent

    @property
    def purpose(self) -> Purpose:
        return self.asked.purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Files for the TLS port."""

    chain: Path
    """Certificate, PEM."""
    key: Path
    """Its key, PEM."""


class Upstream:
    """The endpoint, in a thread of its own."""

    def __init__(
        self, scenario: Scenario, *, project: Path, certificate: Certificate, websocket: bool = True
    ) -> None:
        self.seen: list[Seen] = []
        """Requests for answers, in order of arrival."""
        self.counted: list[int] = []
        """When a request to count tokens came, ns."""
        self.is_mid_stream = threading.Event()
        """Set in the middle of the step at which the user presses Ctrl-C."""
        self.problems: list[str] = []
        """Requests that the script could not answer."""
        self._scenario = scenario
        self._project = str(project)
        self._websocket = websocket
        self._faults: Counter[Fault] = Counter()
        self._histories: dict[str, list[dict[str, Any]]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._plain, self._tls = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate.chain, certificate.key)
        self._runner: web.AppRunner | None = None
        self.port: int = self._plain.getsockname()[1]
        self.tls_port: int = self._tls.getsockname()[1]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._route)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        await web.SockSite(self._runner, self._plain).start()
        await web.SockSite(self._runner, self._tls, ssl_context=self._context).start()

    async def _stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path.endswith("/messages/count_tokens"):
            self.counted.append(time.monotonic_ns())
            return web.json_response({"input_tokens": len(await request.read()) // 4})
        if path.endswith("/responses") and request.method == "GET":
            return await self._serve_websocket(request)
        if path.endswith("/models"):
            return web.json_response({"object": "list", "data": [], "models": []})
        if request.method != "POST" or not path.endswith(("/messages", "/responses", "/chat/completions")):
            return web.json_response({"error": {"message": "no such route"}}, status=404)
        try:
            return await self._serve_http(request)
        except LookupError as error:
            self.problems.append(f"{path}: {error}")
            return web.json_response({"error": {"message": str(error)}}, status=400)

    async def _serve_http(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        arrived_ns = time.monotonic_ns()
        if request.headers.get("content-encoding") == "zstd":
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        body = orjson.loads(data)
        headers = {name.lower(): value for name, value in request.headers.items()}
        protocol: ProtocolName
        if request.path.endswith("/messages"):
            protocol, asked = "anthropic", read_messages(body, headers)
        elif request.path.endswith("/responses"):
            protocol, asked = "responses", read_responses(body, body["input"])
        else:
            protocol, asked = "chat", read_chat(body, headers)
        seen = self._note(protocol, asked, body, arrived_ns, is_websocket=False)
        seen.names |= ids_in(*headers.values())
        fault = self._fault(asked)
        if fault is not None and fault.end == "refused":
            return self._refuse(seen, fault)
        planned = self._plan(seen, len(data))
        if not seen.streamed:
            whole = {"anthropic": message, "responses": response, "chat": completion}[protocol](planned)
            self._close(seen, "complete")
            return web.json_response(whole)
        return await self._stream(request, seen, planned, fault)

    def _note(
        self,
        protocol: ProtocolName,
        asked: Asked,
        body: dict[str, Any],
        arrived_ns: int,
        *,
        is_websocket: bool,
    ) -> Seen:
        seen = Seen(
            number=len(self.seen),
            protocol=protocol,
            asked=asked,
            model=body["model"],
            names=ids_in(orjson.dumps(body).decode()),
            streamed=is_websocket or bool(body.get("stream")),
            arrived_ns=arrived_ns,
            is_websocket=is_websocket,
        )
        self.seen.append(seen)
        return seen

    def _close(self, seen: Seen, end: End) -> None:
        seen.ended_ns = time.monotonic_ns()
        seen.end = end

    def _fault(self, asked: Asked) -> Fault | None:
        for fault in self._scenario.faults:
            is_due = asked.purpose == "turn" and (asked.agent, asked.step) == ("main", fault.step)
            if is_due and self._faults[fault] < fault.times:
                self._faults[fault] += 1
                return fault
        return None

    def _plan(self, seen: Seen, request_bytes: int) -> Planned:
        asked = seen.asked
        if asked.purpose == "compaction":
            step = Step(text=SUMMARY)
        elif asked.purpose == "auxiliary":
            step = Step(text='{"title":"Scripted"}' if asked.wants_json else "Scripted", pieces=1)
        elif asked.purpose == "prewarm":
            step = Step(text="")
        else:
            step = planned_step(self._scenario.agents[asked.agent or "main"], asked)
        planned = Planned(
            number=seen.number,
            model=seen.model,
            step=step,
            uses=[tool_use(tool, asked, self._project) for tool in step.tools],
            input_tokens=step.input_tokens or max(2, request_bytes // 4),
            is_compaction_item=asked.wants_item,
        )
        seen.tools = step.tools
        seen.input_tokens, seen.output_tokens = planned.input_tokens, planned.output_tokens
        return planned

    def _refuse(self, seen: Seen, fault: Fault) -> web.Response:
        seen.status, seen.retry_after_s = fault.status, fault.retry_after_s
        headers = {} if fault.retry_after_s is None else {"retry-after": str(fault.retry_after_s)}
        refused = web.json_response(error_body(fault), status=fault.status, headers=headers)
        self._close(seen, "refused")
        return refused

    async def _stream(
        self, request: web.Request, seen: Seen, planned: Planned, fault: Fault | None
    ) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        events = {
            "anthropic": message_events,
            "responses": response_events,
            "chat": completion_events,
        }[seen.protocol](planned)
        end: End = "client_abort"
        try:
            await asyncio.sleep(FIRST_EVENT_S)
            await reply.prepare(request)
            async for event in self._paced(events, seen, fault):
                await reply.write(_framed(event, seen.protocol))
            end = "complete" if fault is None else fault.end
            if end == "cut":
                assert request.transport is not None
                request.transport.close()
                return reply
            if seen.protocol == "chat":
                await reply.write(b"data: [DONE]\n\n")
            await reply.write_eof()
        except ConnectionResetError:
            pass
        finally:
            self._close(seen, end)
        return reply

    async def _paced(
        self, events: Iterator[Timed], seen: Seen, fault: Fault | None
    ) -> AsyncIterator[dict[str, Any]]:
        """Events at their times, up to where the fault strikes."""
        is_interrupted = (seen.agent, seen.asked.step) == ("main", self._scenario.interrupt_step)
        for sent, (pause_s, event) in enumerate(events):
            if fault is not None and sent == EVENTS_BEFORE_FAULT:
                if fault.end == "error_event":
                    yield error_event(seen.protocol)
                return
            await asyncio.sleep(pause_s)
            yield event
            if is_interrupted and sent == EVENTS_BEFORE_INTERRUPT:
                self.is_mid_stream.set()

    async def _serve_websocket(self, request: web.Request) -> web.StreamResponse:
        if not self._websocket:
            return web.Response(status=426)
        socket_ = web.WebSocketResponse(max_msg_size=1 << 28)
        await socket_.prepare(request)
        async for received in socket_:
            if received.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                continue
            arrived_ns = time.monotonic_ns()
            body = orjson.loads(received.data)
            if body.get("type") != "response.create":
                continue
            history = [*self._histories.get(body.get("previous_response_id"), []), *body["input"]]
            asked = read_responses(body, history)
            seen = self._note("responses", asked, body, arrived_ns, is_websocket=True)
            if not await self._answer_message(socket_, seen, history):
                assert request.transport is not None
                request.transport.close()
                break
        return socket_

    async def _answer_message(
        self, socket_: web.WebSocketResponse, seen: Seen, history: list[dict[str, Any]]
    ) -> bool:
        """Whether the connection is to live on."""
        fault = self._fault(seen.asked)
        if fault is not None and fault.end == "refused":
            seen.status, seen.retry_after_s = fault.status, fault.retry_after_s
            headers = {} if fault.retry_after_s is None else {"retry-after": str(fault.retry_after_s)}
            refusal = {"type": "error", "status": fault.status, "headers": headers, **error_body(fault)}
            await socket_.send_str(orjson.dumps(refusal).decode())
            self._close(seen, "refused")
            return True
        planned = self._plan(seen, len(orjson.dumps(history)))
        end: End = "client_abort"
        try:
            await asyncio.sleep(FIRST_EVENT_S)
            async for event in self._paced(response_events(planned), seen, fault):
                await socket_.send_str(orjson.dumps(event).decode())
            end = "complete" if fault is None else fault.end
        except ConnectionResetError:
            pass
        finally:
            self._close(seen, end)
        whole = response(planned)
        self._histories[whole["id"]] = [*history, *whole["output"]]
        return end != "cut"


def ids_in(*texts: str) -> frozenset[str]:
    """What in these texts names a session, a message, a tool call."""
    return frozenset(name for text in texts for name in ID.findall(text))


def error_body(fault: Fault) -> dict[str, Any]:
    """A refusal that each of the clients understands."""
    kinds = {429: "rate_limit_error", 529: "overloaded_error"}
    kind = kinds.get(fault.status, "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "code": kind, "message": f"scripted {fault.status}", "param": None},
    }


def error_event(protocol: ProtocolName) -> dict[str, Any]:
    """An error inside a stream after which each of the clients tries again."""
    error = {"type": "overloaded_error", "code": "internal_server_error", "message": "scripted"}
    if protocol == "responses":
        return {
            "type": "response.failed",
            "response": {"id": "resp_failed", "object": "response", "status": "failed", "error": error},
        }
    return {"type": "error", "error": error} if protocol == "anthropic" else {"error": error}


def _framed(event: dict[str, Any], protocol: ProtocolName) -> bytes:
    name = b"" if protocol == "chat" else b"event: %s\n" % event["type"].encode()
    return name + b"data: %s\n\n" % orjson.dumps(event)
