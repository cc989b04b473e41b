"""The aiohttp transport on a real socket: what it stamps, and what it makes of connections that break."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from aitrace.clock import SystemClock
from aitrace.units import NS_PER_S
from replayer.endpoint import TLS_FAILED
from replayer.http.socket_transport import SocketTransport
from replayer.http.transport import AiohttpTransport, Failure, Fetched, OutgoingRequest, Stamps, tls_text

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Sink:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers_ns = 0
        self.began = asyncio.Event()
        self.chunks: list[tuple[int, bytes]] = []

    def on_headers(self, status, _headers, at_ns) -> None:
        self.status, self.headers_ns = status, at_ns

    is_spoilt = False

    def on_chunk(self, data, at_ns) -> None:
        self.chunks.append((at_ns, data))
        self.began.set()

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.chunks)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    return head, await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x"
    finally:
        server.close()


def pages(timeout_s: float = 5.0) -> AiohttpTransport:
    return AiohttpTransport(SystemClock(), timeout_ns=round(timeout_s * NS_PER_S))


@pytest.fixture(params=["aiohttp", "socket", "socket-loop"])
def transport(request):
    """Makes a transport; every rule holds for each kind."""

    def made(timeout_s: float = 5.0) -> AiohttpTransport | SocketTransport:
        if request.param == "aiohttp":
            return pages(timeout_s)
        kernel_times = request.param == "socket"
        return SocketTransport(
            SystemClock(), timeout_ns=round(timeout_s * NS_PER_S), kernel_times=kernel_times
        )

    return made


async def test_every_step_of_a_call_is_stamped_in_order(transport):
    async def serve(reader, writer):
        await read_request(reader)
        writer.write(HEAD + chunk(b"one"))
        await asyncio.sleep(0.05)
        writer.write(chunk(b"two") + b"0\r\n\r\n")

    sink, stamps = Sink(), Stamps()
    async with listening(serve) as url, transport() as network:
        assert await network.send(OutgoingRequest(url=url, body=b"{}"), sink, stamps) is None
    assert stamps.new_connection
    order = [stamps.connected_ns, stamps.sent_ns, stamps.uploaded_ns, sink.headers_ns, sink.chunks[0][0]]
    assert order == sorted(order)
    assert (sink.status, [data for _, data in sink.chunks]) == (200, [b"one", b"two"])
    assert sink.chunks[1][0] - sink.chunks[0][0] > 40_000_000


async def test_the_request_is_plain_and_complete(transport):
    seen: list[tuple[bytes, bytes]] = []

    async def serve(reader, writer):
        seen.append(await read_request(reader))
        writer.write(HEAD + b"0\r\n\r\n")

    async with listening(serve) as url, transport() as network:
        request = OutgoingRequest(url=url, headers={"X-Request-Id": "run-7"}, body=b'{"a":1}')
        await network.send(request, Sink(), Stamps())
    head, body = seen[0]
    assert body == b'{"a":1}'
    lines = {line.lower() for line in head.split(b"\r\n")}
    assert {b"post /v1/x http/1.1", b"x-request-id: run-7", b"accept-encoding: identity"} <= lines
    assert {b"content-type: application/json", b"content-length: 7"} <= lines


async def test_a_connection_is_used_again(transport):
    async def serve(reader, writer):
        while True:
            await read_request(reader)
            writer.write(HEAD + b"0\r\n\r\n")

    stamps = [Stamps(), Stamps()]
    async with listening(serve) as url, transport() as network:
        for each in stamps:
            await network.send(OutgoingRequest(url=url, body=b"{}"), Sink(), each)
    assert [each.new_connection for each in stamps] == [True, False]
    assert stamps[1].connected_ns is not None


async def test_a_body_counts_as_uploaded_when_its_last_byte_has_left(transport):
    async def serve(reader, writer):
        await asyncio.sleep(0.2)
        await read_request(reader)
        writer.write(HEAD + b"0\r\n\r\n")

    stamps = Stamps()
    async with listening(serve) as url, transport() as network:
        request = OutgoingRequest(url=url, body=b"x" * 30_000_000)
        assert await network.send(request, Sink(), stamps) is None
    assert stamps.sent_ns is not None
    assert stamps.uploaded_ns is not None
    # More than the system's buffers hold, so it cannot have left before the server began to read.
    assert stamps.uploaded_ns - stamps.sent_ns > 150_000_000


async def test_an_answer_that_is_compressed_all_the_same_is_not_unpacked(transport):
    async def serve(reader, writer):
        await read_request(reader)
        writer.write(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"))
        writer.write(chunk(b"\x1f\x8b not really") + b"0\r\n\r\n")

    sink = Sink()
    async with listening(serve) as url, transport() as network:
        assert await network.send(OutgoingRequest(url=url, body=b"{}"), sink, Stamps()) is None
    assert sink.body == b"\x1f\x8b not really"


async def test_a_redirect_is_an_answer_and_not_followed(transport):
    requests = 0

    async def serve(reader, writer):
        nonlocal requests
        await read_request(reader)
        requests += 1
        writer.write(b"HTTP/1.1 307 Go\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    sink = Sink()
    async with listening(serve) as url, transport() as network:
        assert await network.send(OutgoingRequest(url=url, body=b"{}"), sink, Stamps()) is None
    assert (sink.status, requests) == (307, 1)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"", Failure(kind="cut", text="the connection was closed before a response")),
        (
            HEAD + chunk(b"one"),
            Failure(kind="cut", text="the connection was closed before the end of the response"),
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None),
    ],
)
async def test_a_broken_answer_is_told_by_kind_and_tried_once(transport, answer, failure):
    requests = 0

    async def serve(reader, writer):
        nonlocal requests
        await read_request(reader)
        requests += 1
        writer.write(answer)

    async with listening(serve) as url, transport() as network:
        got = await network.send(OutgoingRequest(url=url, body=b"{}"), Sink(), Stamps())
    assert got is not None
    assert failure in (got, None)
    assert got.kind == ("malformed" if failure is None else "cut")
    assert requests == 1


async def test_chunks_before_a_cut_are_kept(transport):
    async def serve(reader, writer):
        await read_request(reader)
        writer.write(HEAD + chunk(b"one"))
        await writer.drain()

    sink = Sink()
    async with listening(serve) as url, transport() as network:
        await network.send(OutgoingRequest(url=url, body=b"{}"), sink, Stamps())
    assert sink.body == b"one"


async def test_nobody_listening_is_told_in_the_systems_words(transport):
    async with listening(lambda _reader, _writer: asyncio.sleep(0)) as url:
        pass
    stamps = Stamps()
    async with transport() as network:
        got = await network.send(OutgoingRequest(url=url, body=b"{}"), Sink(), stamps)
    assert got == Failure(kind="connect", text="Connection refused")
    assert stamps == Stamps()


async def test_a_name_that_does_not_resolve_is_no_connection(transport):
    async with transport() as network:
        request = OutgoingRequest(url="http://no-such-host.invalid/v1/x", body=b"{}")
        got = await network.send(request, Sink(), Stamps())
    assert got is not None
    assert got.kind == "connect"


async def test_a_server_that_does_not_speak_tls_is_told_as_such():
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with listening(serve) as url, pages() as network:
        got = await network.fetch(url.replace("http:", "https:"))
    assert got == Failure(kind="connect", text=f"{TLS_FAILED}: wrong version number")


def test_a_certificate_that_is_not_trusted_is_told_as_such():
    refused = ssl.SSLCertVerificationError(1, "certificate verify failed")
    refused.verify_message = "self-signed certificate"
    assert tls_text(refused) == "the certificate is not trusted (self-signed certificate)"


@pytest.mark.parametrize("before", [b"", HEAD, HEAD + chunk(b"one")])
async def test_silence_runs_into_the_timeout_whenever_it_falls(transport, before):
    async def serve(reader, writer):
        await read_request(reader)
        writer.write(before)
        await reader.read()

    async with listening(serve) as url, transport(timeout_s=0.2) as network:
        got = await network.send(OutgoingRequest(url=url, body=b"{}"), Sink(), Stamps())
    assert got == Failure(kind="timeout", text="nothing came for 0.2 s")


async def test_each_of_several_silences_runs_into_its_own_timeout(transport):
    """Some begin later than others, and one ends in time."""

    async def serve(reader, writer):
        _, body = await read_request(reader)
        if body == b"answered":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()

    async with listening(serve) as url, transport(timeout_s=0.2) as network, asyncio.TaskGroup() as group:
        calls = []
        for body in (b"first", b"answered", b"second", b"third"):
            calls.append(
                group.create_task(network.send(OutgoingRequest(url=url, body=body), Sink(), Stamps()))
            )
            await asyncio.sleep(0.05)
        silent = Failure(kind="timeout", text="nothing came for 0.2 s")
        assert [silent, None, silent, silent] == [await call for call in calls]


async def test_an_answer_may_take_longer_than_the_timeout_if_it_never_pauses_so_long(transport):
    async def serve(reader, writer):
        await read_request(reader)
        writer.write(HEAD)
        for _ in range(8):
            await asyncio.sleep(0.06)
            writer.write(chunk(b"x"))
        writer.write(b"0\r\n\r\n")

    sink = Sink()
    async with listening(serve) as url, transport(timeout_s=0.3) as network:
        assert await network.send(OutgoingRequest(url=url, body=b"{}"), sink, Stamps()) is None
    assert sink.body == b"x" * 8


async def test_a_cancelled_call_closes_its_connection_and_keeps_what_came(transport):
    gone = asyncio.Event()

    async def serve(reader, writer):
        await read_request(reader)
        writer.write(HEAD + chunk(b"one"))
        await reader.read()
        gone.set()

    sink, stamps = Sink(), Stamps()
    async with listening(serve) as url, transport() as network:
        task = asyncio.ensure_future(network.send(OutgoingRequest(url=url, body=b"{}"), sink, stamps))
        await asyncio.wait_for(sink.began.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 5)
    assert sink.body == b"one"
    assert stamps.uploaded_ns is not None


async def test_a_page_is_fetched_with_its_status():
    async def serve(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nnope\n")

    async with listening(serve) as url, pages() as network:
        assert await network.fetch(url) == Fetched(status=404, body=b"nope\n")


async def test_a_page_without_end_is_given_up():
    async def serve(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(40):
            writer.write(b"x" * (1 << 20))
            await writer.drain()

    async with listening(serve) as url, pages() as network:
        got = await network.fetch(url)
    assert got == Failure(kind="malformed", text="a page of more than 16 MiB")


async def test_a_page_that_cannot_be_fetched_is_a_failure():
    async with listening(lambda _reader, _writer: asyncio.sleep(0)) as url, pages() as network:
        got = await network.fetch(url)
    assert isinstance(got, Failure)
    assert got.kind == "cut"


async def test_outside_its_block_a_transport_is_of_no_use(transport):
    with pytest.raises(RuntimeError, match="outside its async with block"):
        await transport().send(OutgoingRequest(url="http://h", body=b""), Sink(), Stamps())


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_and_counted(transport):
    """As llama-server does: it keeps a connection by its headers, and closes it after the answer."""
    served = 0

    async def serve(reader, writer):
        nonlocal served
        await read_request(reader)
        served += 1
        writer.write(HEAD + chunk(b"one") + b"0\r\n\r\n")

    first, second = Stamps(), Stamps()
    async with listening(serve) as url, transport() as network:
        request = OutgoingRequest(url=url, body=b"{}")
        assert await network.send(request, Sink(), first) is None
        # Before the event loop could see the close, so that the connection is still taken for a good one.
        sink = Sink()
        assert await network.send(request, sink, second) is None
    assert sink.body == b"one"
    assert (first.stale_connections, second.stale_connections, second.new_connection) == (0, 1, True)
    assert served == 2


async def test_a_close_of_a_connection_opened_for_the_call_is_the_servers_answer(transport):
    served = 0

    async def serve(reader, writer):
        nonlocal served
        await read_request(reader)
        served += 1

    stamps = Stamps()
    async with listening(serve) as url, transport() as network:
        failure = await network.send(OutgoingRequest(url=url, body=b"{}"), Sink(), stamps)
    assert failure is not None
    assert (failure.kind, stamps.stale_connections, served) == ("cut", 0, 1)
