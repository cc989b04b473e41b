"""I/O: connections to endpoints on plain sockets, whose bytes carry the time at which the kernel received them.

When an event loop is busy it reads late, and a time taken then says more about the client than about the endpoint. On
Linux the kernel stamps what arrives (`SO_TIMESTAMPNS`, socket(7)); elsewhere the time of reading has to do. TLS runs
over the same socket, through memory.
"""

import asyncio
import errno
import os
import resource
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aitrace.clock import Clock
from aitrace.units import NS_PER_S

HAS_KERNEL_TIMES = sys.platform == "linux"
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = 64
_READ_BYTES = 1 << 16
_OWN_FILES = 32
"""Files that a run opens beside its connections: modules that are imported late, pages of metrics, tables."""

# Bytes are used up before the next read, so all connections share one buffer: a stream costs no memory of its own.
_buffer = bytearray(_READ_BYTES)
_view = memoryview(_buffer)

AddressInfo = tuple[Any, ...]
"""An address as `getaddrinfo` gives it."""
OnBytes = Callable[[bytes | memoryview, int], None]
"""Takes bytes and when they came, ns; the memory is used again after the call."""
OnClose = Callable[[OSError | None], None]
"""Is told that the connection is gone; None if the endpoint closed it in order."""


class Connection:
    """An open connection. Whoever uses it sets `on_bytes` and `on_close`; both are called from the event loop."""

    def __init__(self, sock: socket.socket, clock: Clock, *, kernel_times: bool) -> None:
        self.on_bytes: OnBytes | None = None
        self.on_close: OnClose | None = None
        self.is_open = True
        self.idle_since_ns = 0
        """Since when nobody has used it, ns."""
        self.last_send_ns = 0
        """When the last bytes were handed to the socket: just before, as the answer may come before the call returns."""
        self._sock = sock
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._kernel_times = kernel_times
        self._left: list[memoryview] = []
        self._is_deaf = False
        self._drained: asyncio.Future[None] | None = None
        self._loop.add_reader(sock, self._on_readable)

    @property
    def is_writing(self) -> bool:
        """Whether something is left to be handed over."""
        return bool(self._left)

    async def write(self, *pieces: bytes) -> bool:
        """Hand pieces to the socket; whether the last byte has left the program, False if the connection is gone."""
        self._left += [memoryview(piece) for piece in pieces]
        if not self._send_some():
            self._drained = self._loop.create_future()
            self._loop.add_writer(self._sock, self._on_writable)
            try:
                await self._drained
            finally:
                self._drained = None
        return self.is_open and not self._is_deaf

    def close(self) -> None:
        """Give up the connection; nobody is told."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _take(self, data: bytes | memoryview, at_ns: int) -> None:
        if self.on_bytes is None:
            self._lose(None)  # bytes that nobody asked for
        else:
            self.on_bytes(data, at_ns)

    def _lose(self, error: OSError | None) -> None:
        told = self.on_close
        self.close()
        if told is not None:
            told(error)

    def _on_readable(self) -> None:
        try:
            count, ancillary, _, _ = self._sock.recvmsg_into([_buffer], _ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if count == 0:
            self._lose(None)
            return
        self._received(_view[:count], self._received_ns(ancillary))

    def _received(self, data: memoryview, at_ns: int) -> None:
        self._take(data, at_ns)

    def _received_ns(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        now_ns = self._clock.monotonic_ns()
        if not self._kernel_times:
            return now_ns
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) == _TIMESPEC.size:
                seconds, rest_ns = _TIMESPEC.unpack(data)
                # The kernel stamps wall time. Its distance from now holds unless the wall clock was set in between.
                age_ns = self._clock.unix_ns() - (seconds * NS_PER_S + rest_ns)
                return now_ns - age_ns if 0 <= age_ns < NS_PER_S else now_ns
        return now_ns

    def _send_some(self) -> bool:
        """Whether all that was left to send has been handed over."""
        while self._left:
            self.last_send_ns = self._clock.monotonic_ns()
            try:
                sent = self._sock.sendmsg(self._left)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # What the endpoint said before it closed may still be read; the reader finds the end.
                self._is_deaf = True
                self._left.clear()
                return True
            while self._left and sent >= len(self._left[0]):
                sent -= len(self._left.pop(0))
            if self._left:
                self._left[0] = self._left[0][sent:]
        return True

    def _on_writable(self) -> None:
        if self._send_some():
            self._loop.remove_writer(self._sock)
            if self._drained is not None and not self._drained.done():
                self._drained.set_result(None)


class TlsConnection(Connection):
    """A connection under TLS."""

    def __init__(
        self, sock: socket.socket, clock: Clock, *, kernel_times: bool, context: ssl.SSLContext, host: str
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        super().__init__(sock, clock, kernel_times=kernel_times)

    async def handshake(self) -> None:
        """Agree on keys.

        Raises:
            ssl.SSLError: The endpoint's certificate is not trusted, or it speaks no TLS.
            OSError: The connection was lost.
        """
        self.on_close = self._on_lost_early
        self._shake()
        await self._shaken
        self.on_close = None

    async def write(self, *pieces: bytes) -> bool:
        for piece in pieces:
            self._tls.write(piece)
        return await super().write(self._outgoing.read())

    def _received(self, data: memoryview, at_ns: int) -> None:
        self._incoming.write(data)
        if not self._shaken.done():
            self._shake()
        if not self._shaken.done() or not self.is_open:
            return
        try:
            while self.is_open:
                plain = self._tls.read(_READ_BYTES)
                if not plain:
                    self._lose(None)
                    return
                self._take(plain, at_ns)
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._lose(None if isinstance(error, ssl.SSLZeroReturnError) else error)

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._flush()
            self.close()
            self._shaken.set_exception(error)
        else:
            self._flush()
            self._shaken.set_result(None)

    def _flush(self) -> None:
        """Send what TLS itself has to say; a few hundred bytes, which a socket takes at once."""
        data = self._outgoing.read()
        if data:
            self._left.append(memoryview(data))
            if not self._send_some():
                self._loop.add_writer(self._sock, self._on_writable)

    def _on_lost_early(self, error: OSError | None) -> None:
        if not self._shaken.done():
            self._shaken.set_exception(error or ConnectionResetError("closed during the TLS handshake"))


async def open_connection(
    host: str, port: int, clock: Clock, *, context: ssl.SSLContext | None, kernel_times: bool
) -> Connection:
    """A connection to the first address of `host` that takes one; under TLS if there is a context.

    Raises:
        OSError: No address takes one, or TLS failed (`ssl.SSLError`).
    """
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failures: list[OSError] = []
    for found in addresses:
        address = found[4]
        sock = new_socket(found)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            failures.append(error)
            sock.close()
            continue
        except BaseException:
            sock.close()
            raise
        stamped = kernel_times and _asked_for_times(sock)
        if context is None:
            return Connection(sock, clock, kernel_times=stamped)
        secure = TlsConnection(sock, clock, kernel_times=stamped, context=context, host=host)
        try:
            await secure.handshake()
        except BaseException:
            secure.close()
            raise
        return secure
    raise failures[0]


def new_socket(found: AddressInfo) -> socket.socket:
    """A socket for an address, unless it would take one of the last files that may be open: the run needs those itself.

    Raises:
        OSError: There are no more.
    """
    sock = socket.socket(*found[:3])
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The lowest free number is taken.
    if limit != resource.RLIM_INFINITY and sock.fileno() >= limit - _OWN_FILES:
        sock.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return sock


def _asked_for_times(sock: socket.socket) -> bool:
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        return True
    return False
