"""The socket transport under TLS, against a server with a certificate of our own making."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aitrace.clock import SystemClock
from aitrace.units import NS_PER_S
from replayer.endpoint import TLS_FAILED
from replayer.http.socket_transport import SocketTransport
from replayer.http.transport import OutgoingRequest, Stamps

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Sink:
    def __init__(self) -> None:
        self.body = b""

    def on_headers(self, _status, _headers, _at_ns) -> None: ...

    is_spoilt = False

    def on_chunk(self, data, _at_ns) -> None:
        self.body += bytes(data)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of `localhost` with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@asynccontextmanager
async def secure_server(certificate, serve):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def handle(reader, writer):
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}/v1/x"
    finally:
        server.close()


async def read_body(reader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.split(b":")[1]))


def transport() -> SocketTransport:
    return SocketTransport(SystemClock(), timeout_ns=5 * NS_PER_S)


async def test_calls_go_over_one_trusted_connection_whole(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    bodies: list[bytes] = []

    async def serve(reader, writer):
        while True:
            bodies.append(await read_body(reader))
            writer.write(HEAD)
            for _ in range(50):
                writer.write(b"%x\r\n%b\r\n" % (9_000, b"y" * 9_000))
            writer.write(b"0\r\n\r\n")

    sent = [b"x" * 3_000_000, b"{}"]
    stamps = [Stamps(), Stamps()]
    sinks = [Sink(), Sink()]
    async with secure_server(certificate, serve) as url, transport() as network:
        for body, stamp, sink in zip(sent, stamps, sinks, strict=True):
            assert await network.send(OutgoingRequest(url=url, body=body), sink, stamp) is None
    assert bodies == sent
    assert [sink.body for sink in sinks] == [b"y" * 450_000] * 2
    assert [stamp.new_connection for stamp in stamps] == [True, False]


async def test_a_certificate_that_nobody_vouches_for_is_told_as_such(certificate, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    server = secure_server(certificate, lambda reader, _writer: read_body(reader))
    async with server as url, transport() as network:
        failure = await network.send(OutgoingRequest(url=url, body=b"{}"), Sink(), Stamps())
    assert failure is not None
    assert failure.kind == "connect"
    assert failure.text.startswith(f"{TLS_FAILED}: the certificate is not trusted")


async def test_a_stream_cut_under_tls_is_cut(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def serve(reader, writer):
        await read_body(reader)
        writer.write(HEAD + b"3\r\none\r\n")
        await writer.drain()

    sink = Sink()
    async with secure_server(certificate, serve) as url, transport() as network:
        failure = await network.send(OutgoingRequest(url=url, body=b"{}"), sink, Stamps())
    assert failure is not None
    assert (failure.kind, sink.body) == ("cut", b"one")
