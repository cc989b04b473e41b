"""I/O: the client as a child in the same terminal: it alone reacts to keys, and its exit status becomes ours.

Child and recorder are in one process group, so a terminal's signals reach both. Ctrl-C is for the client: the recorder
waits for what it makes of it. What is sent to the recorder alone (SIGTERM, SIGHUP) is passed on. A client that stops
itself (Ctrl-Z in a terminal UI) stops the recorder too, or the shell would wait for a job that does nothing.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from aitrace.errors import UsageError

_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def find_program(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Make sure that there is such a program.

    Raises:
        UsageError: There is none.
    """
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        raise UsageError(
            f"{command[0]!r} is not a program that can be found",
            hint="give the command as you would type it, after `--`: `aitrace record -- claude`",
        )


class Signals:
    """Who gets a signal; use as a context manager inside a running loop.

    While a client runs, the keyboard's signals are the client's, and SIGTERM and SIGHUP are passed on to it. Without one
    the first signal asks for the end and a second ends the process at once.

    Args:
        at_once: Runs before the process ends at once.
    """

    def __init__(self, at_once: Callable[[], None]) -> None:
        self._at_once = at_once
        self.stop = asyncio.Event()
        """Set by the first signal that was not the client's."""
        self._loop = asyncio.get_running_loop()
        self._client: subprocess.Popen[bytes] | None = None
        self._is_asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Handlers of Python's own: they run even while the loop waits for the writer, so that a second Ctrl-C works
        # there too. Not SIG_IGN, which the child would inherit; what is ignored already (nohup) stays so for both.
        for number in (*_KEYBOARD, *_FORWARDED):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    async def run_client(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run the client to its end; its exit status, 128 + n if signal n ended it.

        Raises:
            UsageError: It cannot be started.
        """
        try:
            # Ours are closed in the child anyway; those that the user gave us (`<(…)` of a shell) are the client's.
            self._client = subprocess.Popen(list(command), env=dict(environ), close_fds=False)  # noqa: ASYNC220 - a thread waits
        except OSError as error:
            raise UsageError(f"{command[0]!r} cannot be started: {error.strerror}") from error
        return await asyncio.to_thread(_wait, self._client)

    def _take(self, number: int, _frame: object) -> None:
        if self._client is not None and self._client.returncode is None:
            if number in _FORWARDED:
                self._client.send_signal(number)
        elif self._is_asked:
            signal.signal(number, signal.SIG_IGN)
            self._at_once()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            self._is_asked = True
            self._loop.call_soon_threadsafe(self.stop.set)


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        # Without job control there is nobody to continue us; the kernel then ignores this.
        os.kill(os.getpid(), signal.SIGTSTP)
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    return code if code >= 0 else 128 - code
