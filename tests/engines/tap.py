"""I/O: stands between a replay and an engine, hands on every byte, and keeps what went over the wire and when.

So what the replay says of a call is compared with what the engine answered to it, read by other code than ours.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httptools
import orjson

_READ_BYTES = 1 << 16


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request and its answer."""

    headers: dict[str, str] = field(default_factory=dict)
    """Of the request, names in lower case."""
    body: bytearray = field(default_factory=bytearray)
    """Of the request."""
    arrived_ns: int | None = None
    """When the request was whole; None if it never was."""
    answer: bytearray = field(default_factory=bytearray)
    """Body of the answer, without its chunks' framing."""
    ended_ns: int | None = None
    """When the answer was whole; None if it never was."""

    @property
    def payloads(self) -> list[Any]:
        """What the events of the answer carry, keep-alives and the end mark left out."""
        lines = bytes(self.answer).splitlines()
        data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
        return [orjson.loads(text) for text in data if text != b"[DONE]"]

    def said(self, name: str) -> dict[str, Any]:
        """The last object of this name at the top of an event; empty if there is none."""
        return next((payload[name] for payload in reversed(self.payloads) if payload.get(name)), {})


class Tap:
    """Where to send requests, and what became of them."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self.url = ""
        """Base URL of the tap."""
        self.exchanges: list[Exchange] = []
        """In the order in which requests began."""

    def by_request_id(self) -> dict[str, Exchange]:
        """The exchanges that carried an id; of several with one id the last."""
        return {one.headers["x-request-id"]: one for one in self.exchanges if "x-request-id" in one.headers}

    async def serve(self, started: threading.Event, ended: asyncio.Event) -> None:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await ended.wait()
        server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: list[Exchange] = []
        requests = httptools.HttpRequestParser(_Requests(connection, self.exchanges))
        answers = httptools.HttpResponseParser(_Answers(connection))
        try:
            there, back = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        except OSError:
            writer.close()
            return
        pumps: list[Coroutine[Any, Any, None]] = [
            _pump(reader, back, requests.feed_data),
            _pump(there, writer, answers.feed_data),
        ]
        # Whichever side closes first, the other is closed at once: a tap must not keep a connection alive.
        await asyncio.wait([asyncio.ensure_future(pump) for pump in pumps], return_when="FIRST_COMPLETED")
        back.close()
        writer.close()


class _Requests:
    def __init__(self, connection: list[Exchange], everything: list[Exchange]) -> None:
        self._connection = connection
        self._everything = everything

    def on_message_begin(self) -> None:
        self._connection.append(Exchange())
        self._everything.append(self._connection[-1])

    def on_header(self, name: bytes, value: bytes) -> None:
        self._connection[-1].headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._connection[-1].body += data

    def on_message_complete(self) -> None:
        self._connection[-1].arrived_ns = time.monotonic_ns()


class _Answers:
    def __init__(self, connection: list[Exchange]) -> None:
        self._connection = connection
        self._number = -1

    def on_message_begin(self) -> None:
        self._number += 1

    def on_body(self, data: bytes) -> None:
        self._connection[self._number].answer += data

    def on_message_complete(self) -> None:
        self._connection[self._number].ended_ns = time.monotonic_ns()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, feed: Callable[[bytes], None]
) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            feed(data)
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass


@contextmanager
def tapped(upstream: str) -> Iterator[Tap]:
    """A tap in front of an engine, on a thread of its own."""
    tap = Tap(upstream)
    loop, started, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(tap.serve(started, ended),))
    thread.start()
    assert started.wait(10)
    try:
        yield tap
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.run_until_complete(_cancel_rest())
        loop.close()


async def _cancel_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
