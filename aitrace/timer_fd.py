"""I/O: sleeping to the microsecond on Linux, through a timer of the kernel (timerfd_create(2)).

Timers of event loops are rounded to whole milliseconds, which makes every call of a replay late by half of one.
Python has timerfd from 3.13 on; libc has had it for longer.
"""

import asyncio
import ctypes
import heapq
import os
import sys
from contextlib import suppress

from aitrace.units import NS_PER_S

HAS_TIMER_FD = sys.platform == "linux"
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_EXPIRATIONS_BYTES = 8


class _Setting(ctypes.Structure):
    """`struct itimerspec`: interval, then first expiration, each as seconds and ns."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class TimerFd:
    """Sleepers of one event loop on one kernel timer; times are those of CLOCK_MONOTONIC, ns.

    Raises:
        OSError: The kernel gives no timer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        """The loop whose tasks may sleep here."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._setting = _Setting()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = 0
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._fd, self._ring)

    def __del__(self) -> None:
        # The loop holds the reader as long as it is open, so nobody sleeps here any more.
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)

    async def sleep_until(self, at_ns: int) -> None:
        """Return at or shortly after this time."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (at_ns, self._order, future))
        if self._sleepers[0][2] is future:
            self._set(at_ns)
        await future

    def _set(self, at_ns: int) -> None:
        setting = self._setting
        setting.at_s, setting.at_ns = divmod(at_ns, NS_PER_S)
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(setting), None)

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, _EXPIRATIONS_BYTES)
        set_ns = self._setting.at_s * NS_PER_S + self._setting.at_ns
        sleepers = self._sleepers
        while sleepers and (sleepers[0][0] <= set_ns or sleepers[0][2].done()):
            future = heapq.heappop(sleepers)[2]
            if not future.done():  # else it was cancelled
                future.set_result(None)
        if sleepers:
            self._set(sleepers[0][0])
