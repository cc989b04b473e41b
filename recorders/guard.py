"""I/O: what stands between the session and an exception of ours: it is counted, and costs an exchange of the trace."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Protocol, TypeVar

from aitrace.clock import SystemClock
from recorders.notes import Chunk
from recorders.tap import Tap

now_ns = SystemClock().monotonic_ns
"""The clock of all notes."""


class Tee:
    """Stands in the stream of a response: notes each chunk, and passes it on as it is."""

    __slots__ = ("_number", "_tap", "is_through")

    def __init__(self, number: int, tap: Tap) -> None:
        self._number = number
        self._tap = tap
        self.is_through = False
        """Whether the end of the stream came by."""

    def __call__(self, data: bytes) -> bytes:
        try:
            if data:
                self._tap.put(Chunk(self._number, now_ns(), data))
            else:
                self.is_through = True
        except Exception as error:  # noqa: BLE001  # mitmproxy would lose the chunk
            with suppress(Exception):
                self._tap.fail(error, self._number, now_ns())
        return data


class Failing(Protocol):
    """What has guarded hooks."""

    def fail(self, error: Exception, event: object) -> None:
        """Count an exception, and give up the exchange that the event is of."""
        ...


_Self = TypeVar("_Self", bound=Failing)
_Event = TypeVar("_Event")


def guarded(hook: Callable[[_Self, _Event], None]) -> Callable[[_Self, _Event], None]:
    """The hook, with its exceptions counted. mitmproxy would go on as well, but nobody would learn what is missing."""

    @wraps(hook)
    def safe(recorder: _Self, event: _Event) -> None:
        try:
            hook(recorder, event)
        except Exception as error:  # noqa: BLE001  # counted, and shown at the end
            with suppress(Exception):
                recorder.fail(error, event)

    return safe
