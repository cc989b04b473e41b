"""Clients that write and count nothing, as a measure of what the rest costs: aiohttp's, and a bare protocol on uvloop.

    python bench/beside/bare.py aiohttp URL CALLS LANES RATE OUT

Plays CALLS equal calls in LANES lanes, or RATE a second if that is not 0, and writes each request id with its TTFT in
ms. The bare protocol does not read HTTP: its first token is the first byte, and an answer ends with the last chunk.
"""

import asyncio
import csv
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import orjson
import uvloop

from aitrace.clock import SystemClock

BODY = orjson.dumps({"model": "mock", "stream": True, "messages": [{"role": "user", "content": "hi " * 30}]})
LEAD_NS = 200_000_000


class Answers(asyncio.Protocol):
    """One connection: one request at a time."""

    def connection_made(self, transport):
        self.transport = transport

    def send(self, data: bytes) -> asyncio.Future:
        self.first_ns, self.tail, self.ended = None, b"", asyncio.get_running_loop().create_future()
        self.sent_ns = time.monotonic_ns()
        self.transport.write(data)
        return self.ended

    def data_received(self, data):
        if self.first_ns is None:
            self.first_ns = time.monotonic_ns()
        self.tail = (self.tail + data)[-5:]
        if self.tail == b"0\r\n\r\n":
            self.ended.set_result((self.first_ns - self.sent_ns) / 1e6)


@asynccontextmanager
async def bare_protocol(url: str):
    parts, free = urlsplit(url), []
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(BODY)}\r\nx-request-id: "
    ).encode()
    loop = asyncio.get_running_loop()

    async def call(name: str) -> float:
        one = free.pop() if free else (await loop.create_connection(Answers, parts.hostname, parts.port))[1]
        ms = await one.send(head + name.encode() + b"\r\n\r\n" + BODY)
        free.append(one)
        return ms

    yield call
    for one in free:
        one.transport.close()


@asynccontextmanager
async def bare_aiohttp(url: str):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(name: str) -> float:
            headers = {"x-request-id": name, "content-type": "application/json"}
            sent_ns, first_ns = time.monotonic_ns(), None
            async with session.post(f"{url}/v1/chat/completions", data=BODY, headers=headers) as response:
                async for _ in response.content.iter_any():
                    first_ns = first_ns or time.monotonic_ns()
            return (first_ns - sent_ns) / 1e6

        yield call


CLIENTS = {"aiohttp": bare_aiohttp, "protocol": bare_protocol}


async def play(client: str, url: str, calls: int, lanes: int, rate: int) -> list[tuple[str, float]]:
    rows, numbers, clock = [], iter(range(calls)), SystemClock()

    async def one(call, number):
        rows.append((f"bare-{number}", await call(f"bare-{number}")))

    async def lane(call):
        for number in numbers:
            await one(call, number)

    async with CLIENTS[client](url) as call, asyncio.TaskGroup() as tasks:
        if not rate:
            for _ in range(lanes):
                tasks.create_task(lane(call))
            return rows
        start_ns = clock.monotonic_ns() + LEAD_NS
        for number in numbers:
            await clock.sleep_until(start_ns + number * 10**9 // rate)
            tasks.create_task(one(call, number))
    return rows


def main():
    client, url, calls, lanes, rate, out = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows = runner.run(play(client, url, int(calls), int(lanes), int(rate)))
    with Path(out).open("w") as stream:
        csv.writer(stream).writerows(rows)


if __name__ == "__main__":
    main()
