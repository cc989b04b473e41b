"""I/O: mitmproxy inside our own event loop, on loopback only, with the recorder as one of its addons.

Nothing of it reaches the terminal, which is the client's: its log is kept, and the caller says at the end what of it
matters. Whatever the recorder is not interested in is passed on as it comes, and a program that does not trust our
certificates is left alone from its second try on: the session goes before the recording.
"""

import asyncio
import base64
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import http, tls
from mitmproxy.addons import default_addons
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Server
from mitmproxy.exceptions import OptionsError
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from aitrace.clock import Clock
from aitrace.errors import UsageError
from aitrace.units import NS_PER_MS, NS_PER_S
from recorders.addresses import ConnectTo, Upstream, UserProxy
from recorders.no_proxy import is_covered, is_loopback
from recorders.plain import prepare_proxy

HOST = "127.0.0.1"
_LEAVING_LIMIT_NS = NS_PER_S
_LEAVING_POLL_NS = 10 * NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """What the proxy is to do besides recording."""

    port: int = 0
    """Port on loopback; 0 for a free one."""
    upstream: Upstream | None = None
    """The endpoint in reverse mode; None in forward mode."""
    user_proxy: UserProxy | None = None
    """The proxy to go through; None to connect directly."""
    no_proxy: tuple[str, ...] = ()
    """What is not sent through `user_proxy`."""
    connect_to: tuple[ConnectTo, ...] = ()
    """Places to connect to instead of others."""
    ca_folder: Path
    """Folder of the recorder's certificate authority."""
    upstream_ca: Path
    """Certificates that endpoints are believed with."""


@dataclass(slots=True, kw_only=True)
class Traffic:
    """What went through the proxy beside the recorder."""

    unread_hosts: Counter[str] = field(default_factory=Counter)
    """Hosts of connections that were passed on unread, since the program did not trust the recorder; with their
    number."""
    errors: int = 0
    """Errors in the proxy's log."""
    first_error: str | None = None
    """First line of the first of them; None if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProxy:
    """A proxy that accepts connections."""

    url: str
    """Its address."""
    traffic: Traffic
    """What goes through it."""


@asynccontextmanager
async def serve(options: ProxyOptions, recorder: object, clock: Clock) -> AsyncIterator[RunningProxy]:
    """A proxy that runs as long as the context, with the recorder as an addon.

    Raises:
        UsageError: It cannot listen, or not with these options.
    """
    traffic = Traffic()
    log = _Log(traffic)
    logging.getLogger().addHandler(log)
    logging.captureWarnings(capture=True)
    try:
        async with asyncio.TaskGroup() as group:
            master = _Master(options, recorder, traffic)
            task = group.create_task(_run(master))
            await master.ready.wait()
            if master.failure is not None:
                raise master.failure
            try:
                yield RunningProxy(url=f"http://{HOST}:{master.port}", traffic=traffic)
            finally:
                await master.wait_for_clients(clock)
                master.should_exit.set()
                await task
                log.is_over = True
                await master.close_connections(clock)
    except BaseExceptionGroup as group_error:
        raise _only_error(group_error) from None
    finally:
        logging.captureWarnings(capture=False)
        logging.getLogger().removeHandler(log)


async def _run(master: "_Master") -> None:
    try:
        await master.run()
    except UsageError as error:
        master.failure = error
    finally:
        master.ready.set()


def _only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error itself where there is one, so that callers see no group."""
    if len(group.exceptions) > 1:
        return group
    inner = group.exceptions[0]
    return _only_error(inner) if isinstance(inner, BaseExceptionGroup) else inner


class _Master(Master):
    """mitmproxy without its terminal, and without what ends the process when something cannot start."""

    def __init__(self, options: ProxyOptions, recorder: object, traffic: Traffic) -> None:
        super().__init__(Options(), with_termlog=False)
        self.ready = asyncio.Event()
        self.failure: UsageError | None = None
        self._port_wanted = options.port
        self._recorder = recorder
        self._passage = Passage(options, traffic)
        self.addons.add(*default_addons())
        values: dict[str, Any] = {
            "confdir": str(options.ca_folder),
            "listen_host": HOST,
            "listen_port": options.port,
            "mode": [_mode(options)],
            "ssl_verify_upstream_trusted_ca": str(options.upstream_ca),
        }
        prepare_proxy(self.options)
        try:
            self.options.update(**values)
        except (OptionsError, ValueError) as error:
            raise UsageError(f"the proxy cannot be set up: {error}") from error

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return int(self._server.listen_addrs()[0][1])

    async def running(self) -> None:
        """Add the recorder, which need not be told of a proxy that could not start."""
        if not self._server.listen_addrs():
            failures = [s.last_exception for s in self._server.servers if s.last_exception is not None]
            raise UsageError(
                f"cannot listen on port {self._port_wanted} of {HOST}: {_listening_error(failures)}",
                hint="leave out --port for a free one",
            )
        self.addons.add(self._recorder, self._passage)
        await super().running()
        self.ready.set()

    async def wait_for_clients(self, clock: Clock) -> None:
        """Let the ends of the client's connections arrive, for a second at most."""
        await self._wait_until_unused(clock)

    async def close_connections(self, clock: Clock) -> None:
        """Close what is still open, in order: cancelled by the end of the loop it would leave a traceback behind."""
        for handler in list(self._server.connections.values()):
            ends = handler.transports.get(handler.client)
            if ends is not None and ends.handler is not None:
                ends.handler.cancel()
        await self._wait_until_unused(clock)

    async def _wait_until_unused(self, clock: Clock) -> None:
        until_ns = clock.monotonic_ns() + _LEAVING_LIMIT_NS
        while self._server.connections and clock.monotonic_ns() < until_ns:
            await clock.sleep_until(clock.monotonic_ns() + _LEAVING_POLL_NS)

    @property
    def _server(self) -> Proxyserver:
        server: Proxyserver = self.addons.get("proxyserver")
        return server


def _listening_error(failures: list[Exception]) -> str:
    """What the system says, without mitmproxy's advice about options of its own."""
    for failure in failures:
        if isinstance(failure, OSError) and failure.errno is not None:
            return os.strerror(failure.errno).lower()
    return "; ".join(str(failure).partition("\n")[0] for failure in failures) or "no reason given"


def _mode(options: ProxyOptions) -> str:
    if options.upstream is not None:
        return f"reverse:{options.upstream.origin}"
    if options.user_proxy is not None:
        return f"upstream:{options.user_proxy.origin}"
    return "regular"


class Passage:
    """An addon for the way to endpoints: the user's own proxy, other addresses, and what is not to be looked into.

    Its hooks come after the recorder's.
    """

    def __init__(self, options: ProxyOptions, traffic: Traffic) -> None:
        self._proxy = options.user_proxy
        self._no_proxy = options.no_proxy
        self._connect_to = {
            (item.host, item.port): (item.to_host, item.to_port) for item in options.connect_to
        }
        self._traffic = traffic
        self._moved: WeakKeyDictionary[Server, tuple[str, int]] = WeakKeyDictionary()
        self._trusting: set[str] = set()
        self._distrusting: set[str] = set()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Choose between the user's proxy and a direct connection."""
        if self._proxy is None:
            return
        host = flow.request.host
        if is_loopback(host) or is_covered(host, self._no_proxy):
            flow.server_conn.via = None
            return
        flow.server_conn.via = (self._proxy.scheme, (self._proxy.host, self._proxy.port))
        if flow.request.scheme == "http":
            self.http_connect_upstream(flow)

    def http_connect_upstream(self, flow: http.HTTPFlow) -> None:
        """Show the user's proxy who asks."""
        if self._proxy is not None and self._proxy.credentials is not None:
            token = base64.b64encode(self._proxy.credentials.encode()).decode()
            flow.request.headers["Proxy-Authorization"] = f"Basic {token}"

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Hold nothing back: what the recorder did not take is passed on as it comes."""
        if flow.response is not None and not flow.response.stream:
            flow.response.stream = True

    def server_connect(self, data: ServerConnectionHookData) -> None:
        """Connect elsewhere where the user says so; the endpoint's name stays for TLS."""
        address = data.server.address
        other = self._connect_to.get((address[0].lower(), address[1])) if address is not None else None
        if address is None or other is None:
            return
        if data.server.sni is None:
            data.server.sni = address[0]
        self._moved[data.server] = (address[0], address[1])
        data.server.address = other

    def server_connected(self, data: ServerConnectionHookData) -> None:
        """Give the connection its own name again, by which mitmproxy finds it for the next request."""
        if data.server in self._moved:
            data.server.__dict__["address"] = self._moved[
                data.server
            ]  # an open connection refuses an assignment

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """Pass on unread what a program would refuse to say to us."""
        host = _host(data.client_hello.sni, data.context)
        if host in self._distrusting and host not in self._trusting:
            self._traffic.unread_hosts[host] += 1
            data.ignore_connection = True

    def tls_established_client(self, data: tls.TlsData) -> None:
        """A program trusts our certificate for this host."""
        self._trusting.add(_host(data.conn.sni, data.context))

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """A program does not: from its next try on it gets the endpoint's own certificate."""
        if "does not trust" in (data.conn.error or ""):
            self._distrusting.add(_host(data.conn.sni, data.context))


def _host(sni: str | None, context: Context) -> str:
    """The host that a client asks for: the name it gives, or the address of its request."""
    return sni or (context.server.address[0] if context.server.address is not None else "")


class _Log(logging.Handler):
    """Counts errors; as there is no other handler, nothing is printed."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(logging.ERROR)
        self._traffic = traffic
        self.is_over = False
        """Whether what comes now is of no interest any more."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.is_over:
            return
        self._traffic.errors += 1
        if self._traffic.first_error is None:
            self._traffic.first_error = next(iter(record.getMessage().splitlines()), record.name)
