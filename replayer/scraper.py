"""I/O: reads engines' metrics pages before, during and after a run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aitrace.clock import Clock
from aitrace.results import Scrape
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.http.transport import Failure, Fetched
from replayer.promtext import PromTextError, common_values

SCRAPE_EVERY_NS = NS_PER_S
LEAD_NS = 50 * NS_PER_MS
"""So long before what is measured begins its engines are read."""
MISSED_BEAT = "missed: the reading before it had not come back"
PAGE_TIMEOUT_NS = 5 * NS_PER_S
_SETTLE_EVERY_NS = 200 * NS_PER_MS
_SETTLE_LIMIT_NS = 5 * NS_PER_S
_ERROR_CHARS = 200

Fetch = Callable[[str], Awaitable[Fetched | Failure]]
"""Gets a page; `AiohttpTransport.fetch` is one."""


class Scraper:
    """Reads some metrics pages and hands each reading on; a reading that fails is one too."""

    def __init__(
        self,
        urls: Sequence[str],
        fetch: Fetch,
        clock: Clock,
        sink: Callable[[Scrape], None],
        *,
        every_ns: int = SCRAPE_EVERY_NS,
    ) -> None:
        self._urls = urls
        self._fetch = fetch
        self._clock = clock
        self._sink = sink
        self._every_ns = every_ns
        # Two readings of a page at a time could come back in the other order, and its counters would seem to fall.
        self._turns = {url: asyncio.Lock() for url in urls}

    async def read_all(self) -> list[Scrape]:
        """One reading of each page."""
        return list(await asyncio.gather(*map(self._read, self._urls)))

    async def read_on_the_beat(self) -> None:
        """Read until cancelled, each page by itself."""
        await asyncio.gather(*(self._read_page_on_the_beat(url) for url in self._urls))

    async def read_before(self, at_ns: int) -> None:
        """One reading of each page that is back by then, if reading takes no longer than `LEAD_NS`."""
        await self._clock.sleep_until(at_ns - LEAD_NS)
        await self.read_all()

    async def _read(self, url: str) -> Scrape:
        async with self._turns[url]:
            scrape = await read_metrics(url, self._fetch, self._clock)
            self._sink(scrape)
        return scrape

    async def _read_page_on_the_beat(self, url: str) -> None:
        beat_ns = self._clock.monotonic_ns()
        while True:
            beat_ns += self._every_ns
            if beat_ns < self._clock.monotonic_ns():
                # What was missed is not caught up, but it is no secret.
                self._sink(Scrape(at_ns=beat_ns, url=url, error=MISSED_BEAT))
                continue
            await self._clock.sleep_until(beat_ns)
            await self._read(url)

    async def read_until_settled(self) -> None:
        """Read until no engine works on anything and two readings agree, for 5 s at most.

        Engines update their counters some time after the answer has left; only then do the differences between the
        first and the last reading count the same calls as the run.
        """
        give_up_ns = self._clock.monotonic_ns() + _SETTLE_LIMIT_NS
        before = await self.read_all()
        while self._clock.monotonic_ns() < give_up_ns:
            await self._clock.sleep_until(self._clock.monotonic_ns() + _SETTLE_EVERY_NS)
            now = await self.read_all()
            if are_settled(before, now):
                return
            before = now


def are_settled(before: Sequence[Scrape], now: Sequence[Scrape]) -> bool:
    """Whether nothing runs or waits and no value has changed since the reading before; failed readings count as so."""
    is_idle = all(
        scrape.values.get("running", 0.0) == 0.0 and scrape.values.get("waiting", 0.0) == 0.0
        for scrape in now
    )
    return is_idle and [scrape.values for scrape in before] == [scrape.values for scrape in now]


async def read_metrics(url: str, fetch: Fetch, clock: Clock) -> Scrape:
    """One reading of one page."""
    fetched = await fetch(url)
    at_ns = clock.monotonic_ns()
    if isinstance(fetched, Failure):
        return Scrape(at_ns=at_ns, url=url, error=f"{fetched.kind}: {fetched.text}"[:_ERROR_CHARS])
    if fetched.status != 200:
        return Scrape(at_ns=at_ns, url=url, error=f"status {fetched.status}")
    try:
        return Scrape(at_ns=at_ns, url=url, values=common_values(fetched.body.decode(errors="replace")))
    except PromTextError as error:
        return Scrape(at_ns=at_ns, url=url, error=str(error)[:_ERROR_CHARS])
