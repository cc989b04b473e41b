import asyncio

import pytest

from aitrace.results import Scrape
from aitrace.testing import ManualClock
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.scraper import Scraper, are_settled, read_metrics
from replayer.transport import Failure, Fetched

PAGE = "http://engine/metrics"


class Pages:
    """A metrics page that tells a script's values one after the other, and then the last for ever."""

    def __init__(self, *pages: str | Fetched | Failure) -> None:
        self.fetched = 0
        self._pages = pages

    async def fetch(self, _url: str) -> Fetched | Failure:
        page = self._pages[min(self.fetched, len(self._pages) - 1)]
        self.fetched += 1
        return Fetched(status=200, body=page.encode()) if isinstance(page, str) else page


def text(running: int, hits: int) -> str:
    return f"vllm:num_requests_running {running}\nvllm:prefix_cache_hits_total {hits}\n"


async def test_a_reading_has_the_time_it_came_back_and_common_names():
    clock = ManualClock(start_ns=7)
    scrape = await read_metrics(PAGE, Pages(text(2, 30)).fetch, clock)
    assert scrape == Scrape(at_ns=7, url=PAGE, values={"running": 2.0, "prefix_hit_tokens": 30.0})


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (Failure(kind="connect", text="Connection refused"), "connect: Connection refused"),
        (Fetched(status=404, body=b"nothing here"), "status 404"),
        (Fetched(status=200, body=b"<html>hello</html>"), "no metric of an engine known here"),
        (Fetched(status=200, body=b"vllm:num_requests_running x\n"), "not in the Prometheus text format"),
    ],
)
async def test_a_reading_that_fails_is_kept_with_its_reason(page, error):
    scrape = await read_metrics(PAGE, Pages(page).fetch, ManualClock())
    assert scrape.values == {}
    assert error in (scrape.error or "")


async def test_pages_are_read_every_second():
    clock, sink = ManualClock(), []
    scraper = Scraper([PAGE, PAGE + "2"], Pages(text(1, 1)).fetch, clock, sink.append)
    task = asyncio.ensure_future(scraper.read_every_second())
    await clock.sleep_until(3 * NS_PER_S + 1)
    task.cancel()
    assert [scrape.at_ns for scrape in sink] == [s * NS_PER_S for s in (1, 1, 2, 2, 3, 3)]
    assert [scrape.url for scrape in sink[:2]] == [PAGE, PAGE + "2"]


async def test_reading_ends_when_nothing_runs_and_nothing_changes():
    sink: list[Scrape] = []
    pages = Pages(text(1, 10), text(0, 15), text(0, 20), text(0, 20), text(0, 99))
    await Scraper([PAGE], pages.fetch, ManualClock(), sink.append).read_until_settled()
    assert [scrape.values["prefix_hit_tokens"] for scrape in sink] == [10.0, 15.0, 20.0, 20.0]


async def test_reading_is_given_up_on_an_engine_that_never_comes_to_rest():
    clock, sink = ManualClock(), []
    await Scraper([PAGE], Pages(text(3, 10)).fetch, clock, sink.append).read_until_settled()
    assert clock.monotonic_ns() == 5 * NS_PER_S
    assert sink[1].at_ns - sink[0].at_ns == 200 * NS_PER_MS


@pytest.mark.parametrize(
    ("before", "now", "settled"),
    [
        ({"running": 0.0}, {"running": 0.0}, True),
        ({"running": 1.0}, {"running": 1.0}, False),
        ({"waiting": 1.0}, {"waiting": 1.0}, False),
        ({"prompt_tokens": 1.0}, {"prompt_tokens": 2.0}, False),
        ({}, {}, True),
    ],
)
def test_an_engine_is_settled_when_it_is_idle_and_its_counters_stand(before, now, settled):
    readings = [[Scrape(at_ns=at, url=PAGE, values=values)] for at, values in enumerate((before, now))]
    assert are_settled(*readings) is settled
