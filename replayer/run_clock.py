"""I/O: the clock of a run, on which all its times are."""

from aitrace.clock import Clock


class RunClock:
    """A clock whose times are ns since the start of the run."""

    def __init__(self, clock: Clock, *, zero_ns: int | None = None) -> None:
        """Take on a clock; its time `zero_ns`, or now, becomes 0."""
        self._clock = clock
        self.zero_ns = clock.monotonic_ns() if zero_ns is None else zero_ns
        """Time of 0 on the other clock."""
        self.started_unix_ns = clock.unix_ns()
        """Wall time of 0."""

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns() - self.zero_ns

    def unix_ns(self) -> int:
        return self._clock.unix_ns()

    async def sleep_until(self, at_ns: int) -> None:
        await self._clock.sleep_until(at_ns + self.zero_ns)
