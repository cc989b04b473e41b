"""An endpoint for recordings: answers /v1/messages as the request's own `X-Script` header says, with and without TLS.

    python scripted_upstream.py FOLDER

Writes into FOLDER: `ca.pem`, the authority of its certificate (for api.example.test), and `log.jsonl`, a line for each
request and each CONNECT. Prints one JSON line with its ports: `plain`, `tls`, and `proxy`, where it plays a corporate
proxy that leads every CONNECT to its own TLS port.
"""

import asyncio
import datetime as dt
import ipaddress
import ssl
import sys
from pathlib import Path

import orjson
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

KEY_USAGE_OF_AUTHORITY = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
NAMES = ("api.example.test", "other.example.test", "localhost")


def certificate(name, key, issuer, issuer_key, extensions):
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def server_context(folder):
    """A context with a new certificate; the authority's own goes to `ca.pem`."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    # Python 3.13 wants all of these.
    of_ca = [
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False),
        (KEY_USAGE_OF_AUTHORITY, True),
    ]
    (folder / "ca.pem").write_bytes(certificate("test authority", ca_key, "test authority", ca_key, of_ca))
    names = [*map(x509.DNSName, NAMES), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    extensions = [
        (x509.SubjectAlternativeName(names), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ]
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate("server", key, "test authority", ca_key, extensions)
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    return context


def events(number, model, tools):
    """The events of an answer: text, then one block for each tool."""
    yield {
        "type": "message_start",
        "message": {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 100, "output_tokens": 1},
        },
    }
    blocks = [{"type": "text", "text": ""}]
    blocks += [
        {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": t, "input": {}} for i, t in enumerate(tools)
    ]
    for index, block in enumerate(blocks):
        delta = (
            {"type": "text_delta", "text": "some words of the answer"}
            if block["type"] == "text"
            else {"type": "input_json_delta", "partial_json": '{"command": "do something"}'}
        )
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if tools else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


class Upstream:
    def __init__(self, folder):
        self.log = (folder / "log.jsonl").open("ab", buffering=0)
        self.count = 0

    def write(self, **fields):
        self.log.write(orjson.dumps(fields) + b"\n")

    async def answer(self, request):
        self.write(path=request.path, headers={k.lower(): v for k, v in request.headers.items()})
        if request.path.startswith("/missing/"):
            return web.Response(status=404)
        if request.path != "/v1/messages":
            return web.Response(text="a page that is no call")
        body = orjson.loads(await request.read())
        script = orjson.loads(request.headers.get("X-Script", "{}"))
        self.count += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events(self.count, body["model"], script.get("tools", [])):
            await response.write(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)))
            await asyncio.sleep(script.get("pause_s", 0.002))
        return response


async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def main(folder):
    upstream = Upstream(folder)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", upstream.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    sites = [
        web.TCPSite(runner, "127.0.0.1", 0),
        web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(folder)),
    ]
    for site in sites:
        await site.start()
    plain, tls = (site._server.sockets[0].getsockname()[1] for site in sites)

    async def tunnel(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        auth = [
            line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("proxy-auth")
        ]
        upstream.write(connect=head.split()[1], auth=auth)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", tls)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer), return_exceptions=True)

    proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    ports = {"plain": plain, "tls": tls, "proxy": proxy.sockets[0].getsockname()[1]}
    sys.stdout.buffer.write(orjson.dumps(ports) + b"\n")
    sys.stdout.buffer.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
