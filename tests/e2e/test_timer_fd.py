"""Sleeping on the kernel's timer, with the real clock; how precise it is, is a matter of bench/."""

import asyncio
import sys

import pytest
import uvloop

from aitrace.clock import SystemClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other platforms have no timerfd")
MS = 1_000_000


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_sleepers_wake_in_the_order_of_their_times_and_none_too_early(factory):
    clock = SystemClock()
    woken = []

    async def sleep(wait_ms):
        at_ns = clock.monotonic_ns() + wait_ms * MS
        await clock.sleep_until(at_ns)
        woken.append((wait_ms, clock.monotonic_ns() >= at_ns))

    async def run():
        await asyncio.gather(*map(sleep, [30, 10, 40, 20, 0, -5]))

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())
    assert woken == [(0, True), (-5, True), (10, True), (20, True), (30, True), (40, True)]


async def test_a_sleep_that_is_cancelled_wakes_nobody_and_keeps_no_other_asleep():
    clock = SystemClock()
    now_ns = clock.monotonic_ns()
    first = asyncio.ensure_future(clock.sleep_until(now_ns + 10 * MS))
    second = asyncio.ensure_future(clock.sleep_until(now_ns + 30 * MS))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
    assert clock.monotonic_ns() >= now_ns + 30 * MS


def test_one_clock_serves_one_loop_after_another():
    clock = SystemClock()
    for _ in range(2):
        asyncio.run(clock.sleep_until(clock.monotonic_ns() + MS))
