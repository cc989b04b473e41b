"""What recording adds to a session, against no proxy, mitmdump alone, and mitmdump with a bare streaming tee.

    python bench/record.py            about six minutes
    python bench/record.py --quick    one round, to see that it works

The upstream and the client are processes of their own; every chunk carries the time at which it was sent, on the clock
that all processes of a machine share. The ways take turns within each round. CPU is what the kernel counted for the
proxy and for the writer, apart from each other. All share this machine's cores, so delays are upper bounds.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import recorders
from aitrace.store import read_trace

MITMDUMP = [sys.executable, "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()"]
WAYS = ("direct", "mitmdump", "bare tee", "recorder")
BARE_TEE = """
chunks = []

def tee(data):
    chunks.append(len(data))
    if len(chunks) > 1000:
        chunks.clear()
    return data

def responseheaders(flow):
    flow.response.stream = tee
"""
ROUNDS = 1 if "--quick" in sys.argv else 5
SESSION_CALLS = 100 if "--quick" in sys.argv else 1000
BODY_BYTES = 1_000_000
LOADS = (
    # streams, calls of each per round, chunks of an answer, ms between two
    (1, 8, 40, 10),
    (10, 4, 40, 10),
    (50, 2, 80, 25),
)
CHUNK_LOAD = (1, 1, 3000, 1)
SENT = re.compile(rb'"sent":(\d+)')


@dataclass(kw_only=True)
class Sample:
    """One batch of calls over one way."""

    first_ns: list[int] = field(default_factory=list)
    delay_ns: list[int] = field(default_factory=list)
    calls: int = 0
    chunks: int = 0
    proxy_s: float = 0.0
    writer_s: float = 0.0


async def serve_upstream() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await answer(reader, writer)
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        number, gap_ms = (int(each) for each in re.search(rb"x-load: (\d+),(\d+)", head).groups())
        await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        due = time.monotonic()
        for _ in range(number):
            event = (
                b"event: content_block_delta\ndata: "
                b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"some words"},"sent":%d}\n\n'
                % time.monotonic_ns()
            )
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            due += gap_ms / 1000
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        end = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Conversation:
    """A session whose history grows with every call; bodies are made before they are timed."""

    def __init__(self, number: int, size: int, step: int = 1000) -> None:
        words = np.random.default_rng(number).integers(0, 1 << 32, size // 10)
        self._words = [f"{word:08x} " for word in words]
        self._number = number
        self._step = step
        self._calls = 0
        text = "".join(self._words)
        self._messages = [
            b'{"role":"user","content":"%s"}' % text[i : i + 4000].encode() for i in range(0, len(text), 4000)
        ]

    def request(self, chunks: int, gap_ms: int) -> bytes:
        self._calls += 1
        for role in (b"assistant", b"user"):
            text = f"{role.decode()} {self._calls} " + "more " * (self._step // 10)
            self._messages.append(b'{"role":"%s","content":"%s"}' % (role, text.encode()))
        body = b'{"model":"m","max_tokens":1000,"stream":true,"messages":[%s]}' % b",".join(self._messages)
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-claude-code-session-id: {self._number}\r\n"
            f"user-agent: claude-cli/2.1.332\r\nx-load: {chunks},{gap_ms}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, sample: Sample
) -> None:
    began = time.monotonic_ns()
    writer.write(request)
    first, tail = None, b""
    while not tail.endswith(b"0\r\n\r\n"):
        data = await reader.read(1 << 16)
        now = time.monotonic_ns()
        assert data, "the connection was closed"
        sent = [int(each) for each in SENT.findall(data)]
        if sent and first is None:
            first = now - began
        sample.delay_ns += [now - each for each in sent]
        sample.chunks += len(sent)
        tail = (tail + data)[-16:]
    sample.first_ns.append(first)
    sample.calls += 1


async def run_load(
    port: int, conversations: list[Conversation], load: tuple[int, int, int, int], sample: Sample
) -> None:
    streams, calls, chunks, gap_ms = load

    async def stream(number: int) -> None:
        # Sessions are not in step.
        await asyncio.sleep(number / streams * chunks * gap_ms / 1000)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        for _ in range(calls):
            await call(reader, writer, conversations[number].request(chunks, gap_ms), sample)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(stream(number))


class Way:
    """A port, and the processes behind it."""

    def __init__(self, port: int, process: subprocess.Popen | None, trace: Path | None = None) -> None:
        self.port, self.process, self.trace = port, process, trace

    @property
    def writer(self) -> int | None:
        if self.process is None or self.trace is None:
            return None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def cpu_s(self) -> tuple[float, float]:
        """CPU of the proxy and of the writer."""
        pids = (None if self.process is None else self.process.pid, self.writer)
        return tuple(0.0 if pid is None else cpu_s(pid) for pid in pids)

    def memory_mib(self) -> tuple[float, float]:
        pids = (None if self.process is None else self.process.pid, self.writer)
        return tuple(0.0 if pid is None else rss_mib(pid) for pid in pids)

    def settle(self) -> None:
        """Wait until the writer has caught up."""
        before = -1.0
        while self.writer is not None and (now := cpu_s(self.writer)) - before > 0.002:
            before = now
            time.sleep(0.5)


def cpu_s(pid: int) -> float:
    """Time on a core, of all threads; /proc/PID/stat would count in steps of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def rss_mib(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


@contextmanager
def upstream() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, __file__, "--upstream"], stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


@contextmanager
def proxy(folder: Path, port: int, *options: str, trace: Path | None = None) -> Iterator[Way]:
    process = subprocess.Popen(
        [
            *MITMDUMP,
            *("--mode", f"reverse:http://127.0.0.1:{port}", "--listen-host", "127.0.0.1", "-p", "0"),
            *("--set", "flow_detail=0", "--set", f"confdir={folder}", *options),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        while not (
            found := re.search(r"listening at (?:http://)?127\.0\.0\.1:(\d+)", process.stdout.readline())
        ):
            assert process.poll() is None
        # Its log of every connection has to go somewhere.
        drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
        yield Way(int(found[1]), process, trace)
        process.terminate()
        process.wait()
        drain.wait()
    finally:
        process.kill()


@contextmanager
def ways(folder: Path, port: int, names: tuple[str, ...] = WAYS) -> Iterator[dict[str, Way]]:
    tee, trace = folder / "tee.py", folder / "t.aitrace"
    tee.write_text(BARE_TEE)
    addon = str(Path(recorders.__file__).with_name("addon.py"))
    options = {
        "mitmdump": (),
        "bare tee": ("-s", str(tee)),
        "recorder": ("-s", addon, "--set", f"aitrace_out={trace}"),
    }
    with ExitStack() as stack:
        made = {"direct": Way(port, None)}
        for name in names:
            if name != "direct":
                mine = trace if name == "recorder" else None
                made[name] = stack.enter_context(proxy(folder, port, *options[name], trace=mine))
        yield {name: made[name] for name in names}


def measure(way: Way, conversations: list[Conversation], load: tuple[int, int, int, int]) -> Sample:
    sample = Sample()
    before = way.cpu_s()
    asyncio.run(run_load(way.port, conversations, load, sample))
    way.settle()
    after = way.cpu_s()
    sample.proxy_s, sample.writer_s = (late - early for early, late in zip(before, after, strict=True))
    return sample


def rounds(table: dict[str, Way], load: tuple[int, int, int, int], size: int) -> dict[str, list[Sample]]:
    """The ways in turn, each round beginning with another."""
    conversations = {name: [Conversation(number, size) for number in range(load[0])] for name in table}
    samples: dict[str, list[Sample]] = {name: [] for name in table}
    for number in range(ROUNDS):
        names = [*table][number % len(table) :] + [*table][: number % len(table)]
        for name in names:
            samples[name].append(measure(table[name], conversations[name], load))
    return samples


def quantiles_ms(values: list[int]) -> str:
    return " / ".join(f"{np.quantile(values, q) / 1e6:.2f}" for q in (0.5, 0.99))


def ratio_to_tee(samples: dict[str, list[Sample]], name: str) -> str:
    """Proxy CPU per call against the bare tee's of the same round, median; nothing for ways without a tee."""
    if name != "recorder":
        return ""
    pairs = zip(samples[name], samples["bare tee"], strict=True)
    return f" (× {statistics.median(mine.proxy_s / mine.calls / (tee.proxy_s / tee.calls) for mine, tee in pairs):.2f})"


def print_delays(table: dict[str, Way]) -> None:
    print(
        "| streams | way | first byte p50 / p99 ms | chunk delay p50 / p99 ms | proxy CPU ms per call | writer's |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for load in LOADS:
        every = rounds(table, load, BODY_BYTES)
        for name, samples in every.items():
            first = quantiles_ms([each for sample in samples for each in sample.first_ns])
            delay = quantiles_ms([each for sample in samples for each in sample.delay_ns])
            proxy_ms = statistics.median(sample.proxy_s / sample.calls * 1e3 for sample in samples)
            writer_ms = statistics.median(sample.writer_s / sample.calls * 1e3 for sample in samples)
            cpu = f"{proxy_ms:.1f}{ratio_to_tee(every, name)} | {writer_ms:.1f}"
            print(f"| {load[0]} | {name} | {first} | {delay} | {cpu} |", flush=True)


def print_chunks(table: dict[str, Way]) -> None:
    print("\n| way | proxy CPU µs per chunk | writer's |")
    print("| --- | --- | --- |")
    every = rounds(table, CHUNK_LOAD, 100)
    for name, samples in every.items():
        proxy_us = statistics.median(sample.proxy_s / sample.chunks * 1e6 for sample in samples)
        writer_us = statistics.median(sample.writer_s / sample.chunks * 1e6 for sample in samples)
        print(f"| {name} | {proxy_us:.0f}{ratio_to_tee(every, name)} | {writer_us:.0f} |", flush=True)


def print_session(port: int) -> None:
    """One session that grows from nothing, in proxies of their own."""
    print(f"\n| way | proxy MiB at the start, after {SESSION_CALLS:,} calls | writer MiB | trace / traffic |")
    print("| --- | --- | --- | --- |")
    for name in ("bare tee", "recorder"):
        with tempfile.TemporaryDirectory() as folder:
            with ways(Path(folder), port, (name,)) as table:
                way = table[name]
                time.sleep(2)  # until the writer has imported what it needs
                start = way.memory_mib()
                conversation, sample = Conversation(0, 20_000), Sample()
                asyncio.run(run_load(way.port, [conversation], (1, SESSION_CALLS, 20, 0), sample))
                way.settle()
                end = way.memory_mib()
            share = "–"
            if way.trace is not None:
                size, traffic = way.trace.stat().st_size, read_trace(way.trace).footer.notes["traffic_bytes"]
                share = f"{size / 1e6:.2f} MB / {traffic / 1e6:.0f} MB = {100 * size / traffic:.2f} %"
        print(
            f"| {name} | {start[0]:.0f}, {end[0]:.0f} | {start[1]:.0f}, {end[1]:.0f} | {share} |", flush=True
        )


def main() -> None:
    with upstream() as port:
        with tempfile.TemporaryDirectory() as folder, ways(Path(folder), port) as table:
            print_delays(table)
            print_chunks(table)
        print_session(port)


if __name__ == "__main__":
    if "--upstream" in sys.argv:
        asyncio.run(serve_upstream())
    else:
        main()
