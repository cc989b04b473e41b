"""I/O: sends the requests that tell a target of sessions that have ended; they are no calls of the plan."""

import asyncio
from http import HTTPStatus

from aitrace.clock import Clock
from aitrace.observe import ResponseObserver
from replayer.http.transport import OutgoingRequest, Stamps, Transport
from replayer.identity.session_ends import FinalRequest
from replayer.run_parts import Target


class FinalSender:
    """Those of one run: whether each was taken is counted, and nothing else of it."""

    def __init__(self, target: Target, transport: Transport, clock: Clock) -> None:
        self.sent = 0
        """Requests that were sent."""
        self.taken = 0
        """Those of them that were answered with status 200."""
        self._target = target
        self._transport = transport
        self._clock = clock
        self._waiting: list[FinalRequest] = []
        self._open: set[asyncio.Task[None]] = set()

    def add(self, request: FinalRequest) -> None:
        """Have it sent by the next `send`."""
        self._waiting.append(request)

    def send(self, group: asyncio.TaskGroup) -> None:
        """Send what waits, as tasks of the group."""
        while self._waiting:
            task = group.create_task(self._send(self._waiting.pop()))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    def stop(self) -> None:
        """Abort what is on its way."""
        for task in self._open:
            task.cancel()

    async def _send(self, final: FinalRequest) -> None:
        self.sent += 1
        observer = ResponseObserver(self._target.protocol, streamed=False)
        request = OutgoingRequest(
            url=self._target.url, headers={**self._target.headers, **final.headers}, body=final.body
        )
        failure = await self._transport.send(request, observer, Stamps())
        seen = observer.on_end(self._clock.monotonic_ns())
        self.taken += failure is None and seen.status == HTTPStatus.OK
