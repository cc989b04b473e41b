"""I/O: the one place that reads clocks and sleeps; everything else is handed a time."""

import asyncio
import time
from typing import Protocol

from aitrace.timer_fd import HAS_TIMER_FD, TimerFd
from aitrace.units import NS_PER_S


class Clock(Protocol):
    """What the program asks of time. `aitrace.testing.ManualClock` is the fake."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on a clock that never steps; only differences mean something."""
        ...

    def unix_ns(self) -> int:
        """Wall time in nanoseconds since 1970, used once to anchor the monotonic clock."""
        ...

    async def sleep_until(self, at_ns: int) -> None:
        """Return at or shortly after the monotonic time `at_ns`."""
        ...


class SystemClock:
    """The machine's clocks. Sleeps are as precise as the platform has them: to about 0.1 ms on Linux, else to 1 ms."""

    def __init__(self) -> None:
        self._timer: TimerFd | None = None

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        return time.time_ns()

    async def sleep_until(self, at_ns: int) -> None:
        wait_ns = at_ns - time.monotonic_ns()
        if wait_ns <= 0 or not HAS_TIMER_FD:
            await asyncio.sleep(max(0, wait_ns) / NS_PER_S)
            return
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.loop is not loop:
            self._timer = TimerFd(loop)
        await self._timer.sleep_until(at_ns)
