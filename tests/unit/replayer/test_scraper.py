import asyncio

import pytest

from aitrace.results import Scrape
from aitrace.testing import ManualClock
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.http.transport import Failure, Fetched
from replayer.scraper import LEAD_NS, MISSED_BEAT, Scraper, are_settled, read_metrics

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
        (Fetched(status=200, body=b"<html>hello</html>"), "an HTML or XML page, no metrics"),
        (Fetched(status=200, body=b"vllm:num_requests_running x\n"), "not in the Prometheus text format"),
    ],
)
async def test_a_reading_that_fails_is_kept_with_its_reason(page, error):
    scrape = await read_metrics(PAGE, Pages(page).fetch, ManualClock())
    assert scrape.values == {}
    assert error in (scrape.error or "")


async def test_a_reading_before_what_is_measured_is_one_beside_the_beat():
    clock, sink = ManualClock(), []
    scraper = Scraper([PAGE], Pages(text(1, 1)).fetch, clock, sink.append)
    tasks = [asyncio.ensure_future(scraper.read_on_the_beat())]
    tasks.append(asyncio.ensure_future(scraper.read_before(1500 * NS_PER_MS)))
    await clock.sleep_until(2 * NS_PER_S + 1)
    for task in tasks:
        task.cancel()
    assert [scrape.at_ns for scrape in sink] == [NS_PER_S, 1500 * NS_PER_MS - LEAD_NS, 2 * NS_PER_S]


async def test_readings_of_a_page_come_back_in_their_order():
    """The first takes 3 s, the next would take none."""
    clock, sink, asked = ManualClock(), [], []

    async def fetch(_url: str) -> Fetched:
        asked.append(clock.monotonic_ns())
        number = len(asked)
        await clock.sleep_until(clock.monotonic_ns() + (3 * NS_PER_S if number == 1 else 0))
        return Fetched(status=200, body=text(0, number).encode())

    scraper = Scraper([PAGE], fetch, clock, sink.append)
    await asyncio.gather(scraper.read_all(), scraper.read_all())
    assert [scrape.values["prefix_hit_tokens"] for scrape in sink] == [1.0, 2.0]
    assert asked == [0, 3 * NS_PER_S]


async def test_pages_are_read_on_a_fixed_beat():
    clock, sink = ManualClock(), []
    scraper = Scraper([PAGE, PAGE + "2"], Pages(text(1, 1)).fetch, clock, sink.append)
    task = asyncio.ensure_future(scraper.read_on_the_beat())
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


async def test_a_slow_page_misses_beats_in_writing_and_holds_up_no_other():
    clock, sink = ManualClock(), []

    async def fetch(url: str) -> Fetched:
        if url == PAGE:
            await clock.sleep_until(clock.monotonic_ns() + 5 * NS_PER_S // 2)
        return Fetched(status=200, body=text(1, 1).encode())

    scraper = Scraper([PAGE, PAGE + "2"], fetch, clock, sink.append)
    task = asyncio.ensure_future(scraper.read_on_the_beat())
    await clock.sleep_until(4 * NS_PER_S + 1)
    task.cancel()
    slow = [(scrape.at_ns, scrape.error) for scrape in sink if scrape.url == PAGE]
    assert slow == [
        (7 * NS_PER_S // 2, None),
        (2 * NS_PER_S, MISSED_BEAT),
        (3 * NS_PER_S, MISSED_BEAT),
    ]
    assert [s.at_ns for s in sink if s.url != PAGE] == [s * NS_PER_S for s in (1, 2, 3, 4)]


async def test_the_beat_can_be_another():
    clock, sink = ManualClock(), []
    scraper = Scraper([PAGE], Pages(text(1, 1)).fetch, clock, sink.append, every_ns=250 * NS_PER_MS)
    task = asyncio.ensure_future(scraper.read_on_the_beat())
    await clock.sleep_until(NS_PER_S + 1)
    task.cancel()
    assert [scrape.at_ns for scrape in sink] == [250 * NS_PER_MS * beat for beat in (1, 2, 3, 4)]
