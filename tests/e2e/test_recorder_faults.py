"""mitmproxy with the recorder, on a real socket: the client gets what it would have got, and what is lost is counted."""

import asyncio
import re
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import brotli
import orjson
import pytest
import zstandard
from aiohttp import web

import recorders
from aitrace.store import read_trace

ADDON = Path(recorders.__file__).with_name("addon.py")
MITMDUMP = [sys.executable, "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()"]
BODY = orjson.dumps(
    {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "x" * 999}]}
)
EVENTS = [
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}\n\n',
    *[
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"%d"}}\n\n' % number
        for number in range(5)
    ],
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]
PATIENCE_S = 30


class Gzip:
    def __init__(self, window_bits: int) -> None:
        self._coder = zlib.compressobj(wbits=window_bits)

    def __call__(self, data: bytes) -> bytes:
        return self._coder.compress(data) + self._coder.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._coder.flush()


class Brotli:
    def __init__(self) -> None:
        self._coder = brotli.Compressor()

    def __call__(self, data: bytes) -> bytes:
        return self._coder.process(data) + self._coder.flush()

    def end(self) -> bytes:
        return self._coder.finish()


class Zstd:
    def __init__(self) -> None:
        self._coder = zstandard.ZstdCompressor().compressobj()

    def __call__(self, data: bytes) -> bytes:
        return self._coder.compress(data) + self._coder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._coder.flush()


class Plain:
    def __call__(self, data: bytes) -> bytes:
        return data

    def end(self) -> bytes:
        return b""


CODINGS: dict[str, Callable[[], Plain]] = {
    "identity": Plain,
    "gzip": lambda: Gzip(31),
    "deflate": lambda: Gzip(15),
    "br": Brotli,
    "zstd": Zstd,
}


class Upstream:
    """Sends each chunk of an answer only when the client says that it has the one before."""

    def __init__(self) -> None:
        self.seen = asyncio.Semaphore(0)
        self.left = asyncio.Event()
        self.app = web.Application(client_max_size=1 << 30)
        self.app.router.add_post("/v1/messages", self.stream)
        self.app.router.add_post("/cut/v1/messages", self.cut)
        self.app.router.add_post("/mute/v1/messages", self.mute)
        self.app.router.add_post("/endless/v1/messages", self.endless)
        self.app.router.add_post("/other", self.stream)
        self.app.router.add_get("/v1/responses", self.socket)

    async def begin(self, request: web.Request, coding: str = "identity") -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", "content-encoding": coding}
        )
        await response.prepare(request)
        return response

    async def stream(self, request: web.Request) -> web.StreamResponse:
        name = request.headers.get("x-coding", "identity")
        response, coding = await self.begin(request, name), CODINGS[name]()
        for event in EVENTS:
            await response.write(coding(event))
            await asyncio.wait_for(self.seen.acquire(), PATIENCE_S)
        if end := coding.end():
            await response.write(end)
        return response

    async def cut(self, request: web.Request) -> web.StreamResponse:
        response = await self.begin(request)
        await response.write(EVENTS[0])
        await asyncio.wait_for(self.seen.acquire(), PATIENCE_S)
        request.transport.abort()
        return response

    async def mute(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        request.transport.close()
        return web.Response()

    async def endless(self, request: web.Request) -> web.StreamResponse:
        response = await self.begin(request)
        try:
            await response.write(EVENTS[0])
            while True:
                await response.write(EVENTS[1])
                await asyncio.sleep(0.01)
        finally:
            self.left.set()

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f'{{"type":"response.output_text.delta","delta":"{len(message.data)}"}}')
        return socket


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Proxy:
    """mitmdump with an addon, in front of an upstream."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.trace = folder / "t.aitrace"
        self.url = ""
        self.log: list[str] = []

    async def ready(self) -> None:
        while not self.url:
            line = (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S)).decode()
            assert line, self.log
            self.log.append(line)
            if found := re.search(r"listening at (?:http://)?(127\.0\.0\.1:\d+)", line):
                self.url = f"http://{found[1]}"

    async def stop(self) -> str:
        """Ctrl-C; what the proxy said."""
        if self.process.returncode is None:
            self.process.terminate()
        rest, _ = await asyncio.wait_for(self.process.communicate(), 2 * PATIENCE_S)
        self.log.append(rest.decode())
        return "".join(self.log)

    def calls(self):
        return read_trace(self.trace).calls


@asynccontextmanager
async def recording(folder: Path, upstream: str, script: str | None = None) -> AsyncIterator[Proxy]:
    path = ADDON
    if script is not None:
        path = folder / "script.py"
        path.write_text(script)
    process = await asyncio.create_subprocess_exec(
        *MITMDUMP,
        *("-s", str(path), "--mode", f"reverse:{upstream}", "--listen-host", "127.0.0.1", "-p", "0"),
        *(
            "--set",
            f"aitrace_out={folder / 't.aitrace'}",
            "--set",
            f"confdir={folder}",
            "--set",
            "flow_detail=0",
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    proxy = Proxy(process, folder)
    try:
        await proxy.ready()
        yield proxy
    finally:
        await proxy.stop()


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(PATIENCE_S))


async def ask(
    session: aiohttp.ClientSession, url: str, upstream: Upstream, coding: str = "identity"
) -> list[bytes]:
    """One call; the pieces in which the answer came, each of which had to come before the next was sent."""
    pieces: list[bytes] = []
    upstream.seen = asyncio.Semaphore(0)
    async with session.post(url, data=BODY, headers={"x-coding": coding}) as response:
        while piece := await response.content.readany():
            pieces.append(piece)
            upstream.seen.release()
    return pieces


def coded(coding: str) -> list[bytes]:
    coder = CODINGS[coding]()
    return [*map(coder, EVENTS), *filter(None, [coder.end()])]


@pytest.fixture
async def upstream():
    made = Upstream()
    async with listening(made.app) as url:
        made.url = url
        yield made


async def test_answers_pass_unchanged_and_as_they_come(upstream, tmp_path):
    async with recording(tmp_path, upstream.url) as proxy, client() as session:
        got = {each: await ask(session, f"{proxy.url}/v1/messages", upstream, each) for each in CODINGS}
        other = await ask(session, f"{proxy.url}/other", upstream)
        log = await proxy.stop()
    assert got == {each: coded(each) for each in CODINGS}
    assert other == EVENTS
    calls = proxy.calls()
    assert [call.wire.response_encoding or "identity" for call in calls] == [*CODINGS]
    assert {(call.outcome.error, call.outcome.finish) for call in calls} == {(None, "end_turn")}
    assert {len(call.events.at_ns) for call in calls} == {len(EVENTS)}
    assert "recorded 5 calls" in log


async def test_the_trace_tells_who_ended_an_answer(upstream, tmp_path):
    async with recording(tmp_path, upstream.url) as proxy, client() as session:
        async with session.post(f"{proxy.url}/endless/v1/messages", data=BODY) as response:
            await response.content.readany()
        await asyncio.wait_for(upstream.left.wait(), PATIENCE_S)
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(session, f"{proxy.url}/cut/v1/messages", upstream)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(session, f"{proxy.url}/mute/v1/messages", upstream)
        await proxy.stop()
    outcomes = [(call.outcome.status, call.outcome.error, call.outcome.ended_by) for call in proxy.calls()]
    assert outcomes == [(200, "client_abort", "client"), (200, "cut", "server"), (None, "cut", "server")]


async def test_a_refused_endpoint_is_a_broken_connection_and_a_call(tmp_path):
    async with listening(web.Application()) as url:
        pass
    async with recording(tmp_path, url) as proxy, client() as session:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.post(f"{proxy.url}/v1/messages", data=BODY)
        # What is not recorded is left to mitmproxy.
        assert (await session.post(f"{proxy.url}/other", data=BODY)).status == 502
        await proxy.stop()
    (call,) = proxy.calls()
    assert (call.outcome.status, call.outcome.error) == (None, "connect")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "no file is named, add `--set aitrace_out=FILE.aitrace`"),
        ("there.aitrace", "exists, name a file that does not"),
        ("none/t.aitrace", "is no folder that you may write to"),
    ],
)
async def test_a_mitmdump_without_a_file_to_write_ends_with_one_sentence(tmp_path, name, words):
    (tmp_path / "there.aitrace").touch()
    out = [] if name is None else ["--set", f"aitrace_out={tmp_path / name}"]
    process = await asyncio.create_subprocess_exec(
        *MITMDUMP,
        *("-s", str(ADDON), "--listen-host", "127.0.0.1", "-p", "0", "--set", f"confdir={tmp_path}", *out),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await asyncio.wait_for(process.communicate(), PATIENCE_S))[0].decode()
    assert process.returncode == 1
    assert words in said
    assert "Traceback" not in said


WATCHED = """
from pathlib import Path
from recorders.addon import addons

class Watch:
    most = 0
    def websocket_message(self, flow):
        self.most = max(self.most, len(flow.websocket.messages))
    def done(self):
        Path({path!r}).write_text(str(self.most))

addons = [Watch(), *addons]
"""


async def test_ten_thousand_messages_take_no_memory(upstream, tmp_path):
    most = tmp_path / "most"
    async with (
        recording(tmp_path, upstream.url, WATCHED.format(path=str(most))) as proxy,
        client() as session,
    ):
        async with session.ws_connect(f"{proxy.url}/v1/responses") as socket:
            for number in range(5_000):
                await socket.send_str("x" * (number % 100))
                assert str(number % 100) in await socket.receive_str()
        log = await proxy.stop()
    assert most.read_text() == "2"  # the one that was kept, and the new one
    assert "Traceback" not in log


def writer_script(*lines: str) -> str:
    program = "\n".join(lines)
    return (
        "import sys\nfrom recorders.addon import RecorderAddon\nfrom recorders.tap import Tap\n"
        f"def tap(options):\n    return Tap(options, command=[sys.executable, '-c', {program!r}], patience_s=1)\n"
        "addons = [RecorderAddon(None, tap)]\n"
    )


UNSTARTED = """
from recorders.addon import RecorderAddon
from recorders.tap import Tap

addons = [RecorderAddon(None, lambda options: Tap(options, command=["/none"]))]
"""
FAULTS = {
    "hangs": (
        writer_script("import signal; signal.pause()"),
        "the writer did not finish within 1 s and was killed",
    ),
    "dies": (writer_script("raise SystemExit('out of order')"), "(out of order)"),
    "does not start": (UNSTARTED, "the writer did not start"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_writer_that_fails_costs_the_trace_and_nothing_else(upstream, tmp_path, fault):
    script, words = FAULTS[fault]
    async with recording(tmp_path, upstream.url, script) as proxy, client() as session:
        got = [await ask(session, f"{proxy.url}/v1/messages", upstream) for _ in range(3)]
        log = await proxy.stop()
    assert got == [EVENTS] * 3
    assert words in log
    assert "3 calls could not be recorded" in log


FULL_DISK = (
    "import resource, signal",
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
    "resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))",
    "from recorders.writer import main",
    "raise SystemExit(main())",
)


async def test_a_full_disk_costs_the_trace_and_nothing_else(upstream, tmp_path):
    script = writer_script(*FULL_DISK).replace("patience_s=1", "patience_s=30")
    async with recording(tmp_path, upstream.url, script) as proxy, client() as session:
        got = [await ask(session, f"{proxy.url}/v1/messages", upstream) for _ in range(3)]
        log = await proxy.stop()
    assert got == [EVENTS] * 3
    assert "File too large" in log
    assert "calls could not be recorded" in log
    assert not proxy.trace.exists()


BROKEN = """
from recorders.addon import RecorderAddon
from recorders.tap import Tap

class BrokenTap(Tap):
    def put(self, note):
        if type(note).__name__ == {name!r}:
            raise KeyError("planted")
        super().put(note)

addons = [RecorderAddon(None, BrokenTap)]
"""


@pytest.mark.parametrize("name", ["Asked", "Chunk"])
async def test_an_exception_of_ours_costs_the_trace_and_nothing_else(upstream, tmp_path, name):
    async with recording(tmp_path, upstream.url, BROKEN.format(name=name)) as proxy, client() as session:
        got = await ask(session, f"{proxy.url}/v1/messages", upstream)
        log = await proxy.stop()
    assert got == EVENTS
    assert "KeyError: 'planted'" in log
    assert "1 call came through and could not be written" in log or "1 call had not ended" in log


async def test_a_proxy_that_is_killed_leaves_a_trace(upstream, tmp_path):
    async with recording(tmp_path, upstream.url) as proxy, client() as session:
        await ask(session, f"{proxy.url}/v1/messages", upstream)
        async with session.post(f"{proxy.url}/endless/v1/messages", data=BODY) as response:
            await response.content.readany()
            await asyncio.sleep(0.5)  # the notes are on their way by then
            proxy.process.kill()
            await proxy.process.wait()
        async with asyncio.timeout(PATIENCE_S):
            while not proxy.trace.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)
    assert [call.outcome.error for call in proxy.calls()] == [None, "unrecorded"]
