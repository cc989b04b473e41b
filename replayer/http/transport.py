"""I/O: sends requests over HTTP/1.1 and stamps what happens to them; the only user of aiohttp's client.

No retries, no redirects, no cookies, no proxies from the environment, no limit on connections, and no decompression:
what a call costs must not depend on anything that is not in its result. One thing is done again, and counted: a request
on a kept connection that its server had closed meanwhile, without a byte of an answer, goes out on another one.
llama-server closes after every streamed answer and does not say so.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any, Protocol, Self

import aiohttp
from aiohttp import hdrs

from aitrace.clock import Clock
from aitrace.results import ArrivalClock
from aitrace.schema import ErrorKind
from aitrace.units import NS_PER_S
from replayer.endpoint import TLS_FAILED
from replayer.http.http_response import MAX_HEAD_BYTES, HeadAndBody

_READ_BUFFER_BYTES = 1 << 20
_MAX_PAGE_BYTES = 1 << 24
NO_LIMIT_NS = 1 << 62
"""So long that no response takes longer."""
KEEP_ALIVE_S = 4.0
"""uvicorn, under vLLM and SGLang, closes a connection idle for 5 s; a request sent at that moment would be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """A POST to be sent."""

    url: str
    """Full URL."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers beyond those of every request."""
    body: bytes
    """JSON."""


@dataclass(slots=True, kw_only=True)
class Stamps:
    """When the steps of a sending took place, ns on the transport's clock; filled in as they do.

    Not frozen: a call that is aborted half way keeps the stamps it got so far.
    """

    connected_ns: int | None = None
    """Its connection was ready."""
    new_connection: bool | None = None
    """Whether it had to be opened; None if none came about."""
    sent_ns: int | None = None
    """The request's head was handed to the socket."""
    uploaded_ns: int | None = None
    """The last byte of the body had left the program."""
    stale_connections: int = 0
    """Kept connections that turned out to have been closed; the times above are those of the last sending."""

    def start_over(self) -> None:
        """Forget the steps taken on a connection that had been closed."""
        self.connected_ns = self.new_connection = self.sent_ns = self.uploaded_ns = None
        self.stale_connections += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an exchange did not come to the end of its response."""

    kind: ErrorKind
    """What kind of failure."""
    text: str
    """What the network said."""


def no_end_within(limit_ns: int) -> Failure:
    """Why a response that goes on and on was given up."""
    return Failure(kind="timeout", text=f"no end within {limit_ns / NS_PER_S:g} s")


SPOILT = Failure(kind="malformed", text="the answer has no end")


class ResponseSink(HeadAndBody, Protocol):
    """What a transport hands a response to; `aitrace.observe.ResponseObserver` is one."""

    @property
    def is_spoilt(self) -> bool:
        """Whether nothing that still comes could be used, so that the exchange may as well end."""
        ...


class Transport(Protocol):
    """Something that carries requests to an endpoint. `replayer.testing.ScriptedTransport` is the fake."""

    async def send(self, request: OutgoingRequest, sink: ResponseSink, stamps: Stamps) -> Failure | None:
        """Send a request and feed the response to `sink` as it comes; None if it came to its end.

        A cancelled call closes its connection and leaves `stamps` and `sink` as they were at that moment.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer to a GET."""

    status: int
    """HTTP status."""
    body: bytes
    """Body, as it came."""


class AiohttpTransport:
    """The network, through one aiohttp session; to be used as an async context manager."""

    def __init__(
        self,
        clock: Clock,
        *,
        timeout_ns: int,
        limit_ns: int = NO_LIMIT_NS,
        socket_factory: Callable[[Any], socket.socket] | None = None,
    ) -> None:
        """Take on the limits of a run.

        Args:
            timeout_ns: Longest wait for the response's headers, counted from the dispatch, and then for each further
                piece of its body.
            limit_ns: Longest time from the dispatch to the end of the response to a POST.
            socket_factory: Makes sockets for addresses; None for the usual ones.
        """
        self._clock = clock
        self._socket_factory = socket_factory
        self._timeout_s = timeout_ns / NS_PER_S
        self._limit_ns = limit_ns
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(self._on_created)
        tracing.on_connection_reuseconn.append(self._on_reused)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE_S, socket_factory=self._socket_factory
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=self._timeout_s),
            headers={hdrs.ACCEPT_ENCODING: "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER_BYTES,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            trace_configs=[tracing],
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def arrival_clock(self) -> ArrivalClock:
        """Who stamps what arrives."""
        return "loop"

    @property
    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the transport is used outside its async with block")
        return self._session

    async def send(self, request: OutgoingRequest, sink: ResponseSink, stamps: Stamps) -> Failure | None:
        """See Transport."""
        try:
            async with asyncio.timeout(self._limit_ns / NS_PER_S) as limit:
                return await self._send(request, sink, stamps)
        except TimeoutError as error:
            return (
                no_end_within(self._limit_ns)
                if limit.expired()
                else _failure_from_error(error, stamps, self._timeout_s)
            )
        except (aiohttp.ClientError, OSError) as error:
            return _failure_from_error(error, stamps, self._timeout_s)

    async def _send(self, request: OutgoingRequest, sink: ResponseSink, stamps: Stamps) -> Failure | None:
        async with asyncio.timeout(self._timeout_s):
            response = await self._response(request, stamps)
        async with response:
            sink.on_headers(response.status, _headers_of(response), self._clock.monotonic_ns())
            async for chunk in response.content.iter_any():
                sink.on_chunk(chunk, self._clock.monotonic_ns())
                if sink.is_spoilt:
                    response.close()
                    return SPOILT
        return None

    async def _response(self, request: OutgoingRequest, stamps: Stamps) -> aiohttp.ClientResponse:
        """The head of the answer, on a connection that is open."""
        while True:
            try:
                return await self._open_session.post(
                    request.url,
                    data=_StampingPayload(request.body, self._clock, stamps),
                    headers=request.headers,
                    allow_redirects=False,
                    trace_request_ctx=stamps,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # Of a connection opened for this call it is the server's answer, and ends it.
                if stamps.new_connection is not False:
                    raise
                stamps.start_over()

    async def fetch(self, url: str, headers: Mapping[str, str] | None = None) -> Fetched | Failure:
        """The answer to a GET, within the same time limit."""
        stamps = Stamps()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._open_session.get(
                    url, headers=headers, allow_redirects=False, trace_request_ctx=stamps
                ) as response,
            ):
                return await _fetched(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _failure_from_error(error, stamps, self._timeout_s)

    async def _on_created(
        self, _session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any
    ) -> None:
        self._stamp_connection(context.trace_request_ctx, is_new=True)

    async def _on_reused(
        self, _session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any
    ) -> None:
        self._stamp_connection(context.trace_request_ctx, is_new=False)

    def _stamp_connection(self, stamps: Stamps, *, is_new: bool) -> None:
        stamps.connected_ns = self._clock.monotonic_ns()
        stamps.new_connection = is_new


class _StampingPayload(aiohttp.Payload):
    """A body that notes when its first byte, together with the head, and its last byte go to the socket.

    aiohttp's tracing hooks fire when the head is buffered, up to a turn of the loop before anything is written.
    """

    def __init__(self, body: bytes, clock: Clock, stamps: Stamps) -> None:
        super().__init__(body, content_type="application/json")
        self._size = len(body)
        self._body = body
        self._clock = clock
        self._stamps = stamps

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._body.decode(encoding, errors)

    async def write(self, writer: Any) -> None:
        # Without this the transport would take up to 64 KiB off our hands before they have left.
        writer.transport.set_write_buffer_limits(high=0)
        self._stamps.sent_ns = self._clock.monotonic_ns()
        await writer.write(self._body)
        await writer.drain()
        self._stamps.uploaded_ns = self._clock.monotonic_ns()


def _headers_of(response: aiohttp.ClientResponse) -> dict[str, str]:
    """The headers of a response, names in lower case; bytes that are no ASCII as ISO 8859-1, which files can hold."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.raw_headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _fetched(response: aiohttp.ClientResponse) -> Fetched | Failure:
    """A response with its body, if that is not longer than any page should be."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_PAGE_BYTES:
            return Failure(kind="malformed", text=f"a page of more than {_MAX_PAGE_BYTES >> 20} MiB")
    return Fetched(status=response.status, body=bytes(body))


def _failure_from_error(error: Exception, stamps: Stamps, timeout_s: float) -> Failure:
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ClientConnectorCertificateError():
            return Failure(kind="connect", text=_connect_text(error))
        case TimeoutError():
            if stamps.connected_ns is None:
                return Failure(kind="connect", text=f"no connection within {timeout_s:g} s")
            return Failure(kind="timeout", text=f"nothing came for {timeout_s:g} s")
        case aiohttp.ServerDisconnectedError():
            return Failure(kind="cut", text="the connection was closed before a response")
        case aiohttp.ClientPayloadError():
            return Failure(kind="cut", text="the connection was closed before the end of the response")
        case aiohttp.ClientResponseError():
            # What follows is the bytes that it stumbled over.
            reason = " ".join(error.message.partition("\n\n")[0].partition(": b'")[0].split()).rstrip(":")
            return Failure(kind="malformed", text=f"not HTTP: {reason}")
        case _ if stamps.connected_ns is None:
            return Failure(kind="connect", text=str(error) or type(error).__name__)
        case _:
            return Failure(kind="cut", text=str(error) or type(error).__name__)


def _connect_text(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
    """The system's own words; the numbers of a resolver's and TLS's errors are not the system's."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"{TLS_FAILED}: {tls_text(error.certificate_error)}"
    if isinstance(error.os_error, ssl.SSLError):
        return f"{TLS_FAILED}: {tls_text(error.os_error)}"
    return connect_error_text(error.os_error)


def connect_error_text(error: OSError) -> str:
    """Why a connection did not come about, in the system's own words; a resolver's numbers are not the system's."""
    if error.errno == errno.EMFILE:
        return f"{os.strerror(error.errno)} here (ulimit -n)"
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def tls_text(error: Exception) -> str:
    """What TLS said against a connection, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message.rstrip('.')})"
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return error.reason.replace("_", " ").lower()
    return str(error)
