"""I/O: the built-in engine on a thread of its own, for tests whose command under test has the main one."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from replayer.engine.options import EngineOptions
from replayer.engine.server import RunningEngine, serve

_START_LIMIT_S = 10


@contextmanager
def engine_on_thread(options: EngineOptions) -> Iterator[RunningEngine]:
    """An engine that runs as long as the context."""
    started = threading.Event()
    engines: list[RunningEngine] = []
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def run() -> None:
        async with serve(options) as running:
            engines.append(running)
            started.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    if not started.wait(_START_LIMIT_S):
        raise RuntimeError(f"the engine did not start within {_START_LIMIT_S} s")
    try:
        yield engines[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
