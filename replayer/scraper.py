"""I/O: reads engines' metrics pages before, during and after a run."""

from collections.abc import Awaitable, Callable, Sequence

from aitrace.clock import Clock
from aitrace.results import Scrape
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.promtext import PromTextError, common_values
from replayer.transport import Failure, Fetched

SCRAPE_EVERY_NS = NS_PER_S
PAGE_TIMEOUT_NS = 5 * NS_PER_S
_SETTLE_EVERY_NS = 200 * NS_PER_MS
_SETTLE_LIMIT_NS = 5 * NS_PER_S
_ERROR_CHARS = 200

Fetch = Callable[[str], Awaitable[Fetched | Failure]]
"""Gets a page; `AiohttpTransport.fetch` is one."""


class Scraper:
    """Reads some metrics pages and hands each reading on; a reading that fails is one too."""

    def __init__(
        self, urls: Sequence[str], fetch: Fetch, clock: Clock, sink: Callable[[Scrape], None]
    ) -> None:
        self._urls = urls
        self._fetch = fetch
        self._clock = clock
        self._sink = sink

    async def read_all(self) -> list[Scrape]:
        """One reading of each page."""
        scrapes = []
        for url in self._urls:
            scrape = await read_metrics(url, self._fetch, self._clock)
            self._sink(scrape)
            scrapes.append(scrape)
        return scrapes

    async def read_every_second(self) -> None:
        """Read until cancelled; what a slow page costs is not caught up."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic_ns() + SCRAPE_EVERY_NS)
            await self.read_all()

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
