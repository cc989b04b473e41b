"""I/O: sends requests over HTTP/1.1 on plain sockets: the transport of runs, whose cost per event a run can afford.

One task switch per call, none per event: what arrives goes from the socket through the parser to the sink at once.
The rules are those of `replayer.http.transport`: no retries, redirects, cookies or proxies; a request on a kept
connection that its server had closed meanwhile goes out once more on another one, and is counted.
"""

import asyncio
import ssl
from collections import defaultdict
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from aitrace.clock import Clock
from aitrace.results import ArrivalClock
from aitrace.units import NS_PER_S
from replayer.endpoint import TLS_FAILED
from replayer.http.http_response import HttpResponse, MalformedHttpError
from replayer.http.sockets import HAS_KERNEL_TIMES, Connection, open_connection
from replayer.http.transport import (
    KEEP_ALIVE_S,
    NO_LIMIT_NS,
    SPOILT,
    Failure,
    OutgoingRequest,
    ResponseSink,
    Stamps,
    connect_error_text,
    no_end_within,
    tls_text,
)

_SWEEPS = 100
"""Looks at open exchanges within the time that one may be silent: it may be a hundredth of that time longer."""

_Origin = tuple[str, str, int]


class SocketTransport:
    """The network; to be used as an async context manager."""

    def __init__(
        self,
        clock: Clock,
        *,
        timeout_ns: int,
        limit_ns: int = NO_LIMIT_NS,
        kernel_times: bool = HAS_KERNEL_TIMES,
    ) -> None:
        """Take on the limits of a run.

        Args:
            timeout_ns: Longest wait for the response's headers, counted from the dispatch, and then for each further
                piece of its body.
            limit_ns: Longest time from the dispatch to the end of the response.
            kernel_times: Whether to take arrival times from the kernel instead of the moment of reading.
        """
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._limit_ns = limit_ns
        self._kernel_times = kernel_times and HAS_KERNEL_TIMES
        self._idle: defaultdict[_Origin, list[Connection]] = defaultdict(list)
        self._tls_context: ssl.SSLContext | None = None
        self._heads: dict[str, tuple[_Origin, bytes]] = {}
        self._open: set[_Exchange] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_ns = 0
        self._is_open = False

    @property
    def arrival_clock(self) -> ArrivalClock:
        """Who stamps what arrives."""
        return "kernel" if self._kernel_times else "loop"

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if self._sweep is not None:
            self._sweep.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def send(self, request: OutgoingRequest, sink: ResponseSink, stamps: Stamps) -> Failure | None:
        """See `replayer.http.transport.Transport`."""
        if not self._is_open:
            raise RuntimeError("the transport is used outside its async with block")
        origin, head = self._head(request)
        while True:
            exchange = _Exchange(sink, self._clock.monotonic_ns())
            failure = await self._exchange(origin, (head, request.body), exchange, stamps)
            if failure is None or not exchange.is_stale or stamps.new_connection is not False:
                return failure
            stamps.start_over()

    async def _exchange(
        self, origin: _Origin, pieces: tuple[bytes, bytes], exchange: "_Exchange", stamps: Stamps
    ) -> Failure | None:
        kept = self._kept(origin)
        connection = kept or await self._opened(origin, exchange.started_ns)
        if isinstance(connection, Failure):
            return connection
        stamps.new_connection = kept is None
        stamps.connected_ns = self._clock.monotonic_ns()
        exchange.begin(connection)
        self._watch(exchange)
        try:
            stamps.sent_ns = self._clock.monotonic_ns()
            if await connection.write(*pieces):
                stamps.uploaded_ns = connection.last_send_ns
            failure = await exchange.ended
        except BaseException:
            connection.close()
            raise
        finally:
            self._open.discard(exchange)
            exchange.finish()
        if failure is None and exchange.can_be_followed and connection.is_open:
            self._keep(origin, connection)
        else:
            connection.close()
        return failure

    def _watch(self, exchange: "_Exchange") -> None:
        """See to it that an exchange does not take too long: one timer for all costs less than one for each."""
        self._open.add(exchange)
        over_ns = exchange.over_ns(self._timeout_ns, self._limit_ns)
        if self._sweep is None or over_ns < self._sweep_ns:
            self._sweep_at(over_ns)

    def _sweep_at(self, at_ns: int) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        left_s = max(0, at_ns - self._clock.monotonic_ns()) / NS_PER_S
        self._sweep = asyncio.get_running_loop().call_later(left_s, self._end_overdue)
        self._sweep_ns = at_ns

    def _end_overdue(self) -> None:
        self._sweep = None
        now_ns = self._clock.monotonic_ns()
        for exchange in self._open:
            if exchange.over_ns(self._timeout_ns, self._limit_ns) <= now_ns:
                exchange.give_up(now_ns, self._timeout_ns, self._limit_ns)
        left = [exchange for exchange in self._open if not exchange.ended.done()]
        if left:
            next_ns = min(exchange.over_ns(self._timeout_ns, self._limit_ns) for exchange in left)
            soonest_ns = now_ns + min(self._timeout_ns, self._limit_ns) // _SWEEPS
            self._sweep_at(max(next_ns, soonest_ns))

    def _head(self, request: OutgoingRequest) -> tuple[_Origin, bytes]:
        known = self._heads.get(request.url)
        if known is None:
            known = self._heads[request.url] = _head_from_url(request.url)
        origin, start = known
        lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        if lines.count("\n") != len(request.headers) or lines.count("\r") != len(request.headers):
            raise ValueError("a header holds a line break")
        return origin, b"%b%bContent-Length: %d\r\n\r\n" % (start, lines.encode("latin-1"), len(request.body))

    def _kept(self, origin: _Origin) -> Connection | None:
        connections = self._idle[origin]
        oldest_ns = self._clock.monotonic_ns() - round(KEEP_ALIVE_S * NS_PER_S)
        while connections:
            connection = connections.pop()
            if connection.is_open and connection.idle_since_ns >= oldest_ns:
                return connection
            connection.close()
        return None

    def _keep(self, origin: _Origin, connection: Connection) -> None:
        connection.on_bytes = connection.on_close = None
        connection.idle_since_ns = self._clock.monotonic_ns()
        self._idle[origin].append(connection)

    async def _opened(self, origin: _Origin, started_ns: int) -> Connection | Failure:
        scheme, host, port = origin
        context = self._context() if scheme == "https" else None
        left_s = (started_ns + self._timeout_ns - self._clock.monotonic_ns()) / NS_PER_S
        try:
            async with asyncio.timeout(left_s):
                return await open_connection(
                    host, port, self._clock, context=context, kernel_times=self._kernel_times
                )
        except TimeoutError:
            return Failure(kind="connect", text=f"no connection within {self._timeout_ns / NS_PER_S:g} s")
        except ssl.SSLError as error:
            return Failure(kind="connect", text=f"{TLS_FAILED}: {tls_text(error)}")
        except OSError as error:
            return Failure(kind="connect", text=connect_error_text(error))

    def _context(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = ssl.create_default_context()
        return self._tls_context


class _Exchange:
    """One request and its response on a connection."""

    def __init__(self, sink: ResponseSink, started_ns: int) -> None:
        self.started_ns = started_ns
        self.ended: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        """None if the response came to its end."""
        self._sink = sink
        self._response = HttpResponse(sink)
        self._connection: Connection | None = None
        self._last_ns = started_ns
        self._is_lost = False

    @property
    def is_stale(self) -> bool:
        """Whether the connection was gone before a byte of the response."""
        return self._is_lost and not self._response.is_begun

    @property
    def can_be_followed(self) -> bool:
        """Whether another request may use the connection."""
        return self._response.can_be_followed

    def begin(self, connection: Connection) -> None:
        self._connection = connection
        connection.on_bytes = self._on_bytes
        connection.on_close = self._on_close

    def finish(self) -> None:
        """It is over, and nothing that still comes belongs to it."""
        self._response.release()

    def over_ns(self, timeout_ns: int, limit_ns: int) -> int:
        """When it will have taken too long, unless something comes before."""
        return min(self._last_ns + timeout_ns, self.started_ns + limit_ns)

    def give_up(self, now_ns: int, timeout_ns: int, limit_ns: int) -> None:
        """End it, since it took too long."""
        if now_ns >= self.started_ns + limit_ns:
            self._end(no_end_within(limit_ns))
        else:
            self._end(Failure(kind="timeout", text=f"nothing came for {timeout_ns / NS_PER_S:g} s"))

    def _on_bytes(self, data: bytes | memoryview, at_ns: int) -> None:
        self._last_ns = at_ns
        try:
            self._response.feed(data, at_ns)
        except MalformedHttpError as error:
            self._end(Failure(kind="malformed", text=f"not HTTP: {error}"))
            return
        if self._response.is_complete:
            self._end(None)
        elif self._sink.is_spoilt:
            self._end(SPOILT)

    def _on_close(self, error: OSError | None) -> None:
        self._is_lost = True
        self._response.close()
        if self._response.is_complete:
            self._end(None)
            return
        place = "the end of the response" if self._response.has_head else "a response"
        text = f"the connection was closed before {place}"
        self._end(Failure(kind="cut", text=text if error is None else f"{text}: {error.strerror or error}"))

    def _end(self, failure: Failure | None) -> None:
        if self.ended.done():
            return
        self.ended.set_result(failure)
        if self._connection is not None and (failure is not None or self._connection.is_writing):
            # An answer that is over before the request has left: the rest of it would be taken for the next request.
            self._connection.close()


def _head_from_url(url: str) -> tuple[_Origin, bytes]:
    """Where a URL leads, and the request's head as far as it is the same for all calls."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown_host = parts.netloc.rpartition("@")[2]
    lines = (
        f"POST {target} HTTP/1.1",
        f"Host: {shown_host}",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
        "",
    )
    return (parts.scheme, host, port), "\r\n".join(lines).encode("latin-1")
