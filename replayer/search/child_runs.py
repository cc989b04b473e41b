"""I/O: runs of `aitrace replay` as processes of their own, one after another, as `search` and `--ab` need them."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import click
import orjson
from click.core import ParameterSource

from aitrace.codec import decode_record
from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK
from aitrace.results import CallResult, Scrape
from aitrace.runstore import CALLS_FILE, SCRAPES_FILE

_AITRACE = (sys.executable, "-m", "aitrace")
_REPLAY = (*_AITRACE, "replay")
_LOOK_EVERY_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How a run ended."""

    exit_code: int
    """Exit code of its process; below 0 if a signal ended it."""
    summary: dict[str, Any] | None
    """What it printed, see `replayer.verdict.summary_json`; None if it was not played to its end."""
    said: str
    """What it said on stderr."""
    stopped_for: str | None
    """Why it was stopped early; None if it was not."""


class ChildRuns:
    """Plays runs one after another; use as a context manager, so that signals reach the one that is going on."""

    def __init__(self) -> None:
        self.is_interrupted = False
        """Whether the user stopped a run; none is to follow."""
        self._process: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def play(
        self, arguments: Sequence[str], *, stop_reason: Callable[[], str | None] = lambda: None
    ) -> ChildEnd:
        """Play one run.

        Args:
            arguments: Those of `aitrace replay`.
            stop_reason: Asked every 2 s; a text stops the run.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            # In a process group of its own: a Ctrl-C at the terminal reaches it once, through us.
            self._process = subprocess.Popen(
                [*_REPLAY, "--json", "--no-live", *arguments], stdout=out, stderr=err, process_group=0
            )
            try:
                if self.is_interrupted:
                    self._process.send_signal(signal.SIGINT)
                stopped_for = _wait(self._process, stop_reason)
            finally:
                if self._process.poll() is None:
                    self._process.kill()
                    self._process.wait()
            exit_code = self._process.returncode
            self._process = None
            out.seek(0)
            err.seek(0)
            printed, said = out.read(), err.read().decode(errors="replace")
        is_played = exit_code in (EXIT_OK, EXIT_IN_DOUBT) and bool(printed.strip())
        return ChildEnd(
            exit_code=exit_code,
            summary=orjson.loads(printed) if is_played else None,
            said=said.strip(),
            stopped_for=stopped_for,
        )

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._pass_on) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self.is_interrupted = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


class RunTail:
    """What a run that goes on has written so far.

    Args:
        directory: Its run directory, which may not be there yet.
    """

    def __init__(self, directory: Path) -> None:
        self.calls: list[CallResult] = []
        """Calls that have ended."""
        self.scrapes: list[Scrape] = []
        """Readings of metrics."""
        self._calls = _LineTail(directory / CALLS_FILE)
        self._scrapes = _LineTail(directory / SCRAPES_FILE)

    def read_on(self) -> None:
        """Take in what has been written since."""
        self.calls += [decode_record(CallResult, line, place=CALLS_FILE) for line in self._calls.lines()]
        self.scrapes += [decode_record(Scrape, line, place=SCRAPES_FILE) for line in self._scrapes.lines()]


class _LineTail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[bytes]:
        """Whole lines since the last time."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()


def arguments_of(context: click.Context, *, without: Sequence[str]) -> list[str]:
    """The arguments of a command as they were given, but for some, by name; arguments without a name come last."""
    options: list[str] = []
    others: list[str] = []
    for param in context.command.params:
        name = param.name or ""
        if name in without or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if isinstance(param, click.Argument):
            others.append(str(value))
        elif isinstance(param, click.Option) and param.is_flag:
            options.append(param.opts[-1])
        else:
            options += [f"{param.opts[-1]}={each}" for each in (value if param.multiple else [value])]
    return [*options, "--", *others]


def show_comparison(ways: Sequence[Path], *, as_json: bool) -> int:
    """Show what `aitrace compare` says of directories of runs; its exit code."""
    command = [*_AITRACE, "compare", *(["--json"] if as_json else []), *map(str, ways)]
    if sys.stdout.isatty():
        # The terminal's width and colours are the child's to ask for.
        return subprocess.run(command, check=False).returncode
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    click.echo(done.stdout, nl=False)
    click.echo(done.stderr, nl=False, err=True)
    return done.returncode


def _wait(process: subprocess.Popen[bytes], stop_reason: Callable[[], str | None]) -> str | None:
    """Wait for the end of a process; the reason for which it was stopped, if it was."""
    stopped_for: str | None = None
    while True:
        try:
            process.wait(_LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if stopped_for is None and (stopped_for := stop_reason()) is not None:
                process.send_signal(signal.SIGINT)
        else:
            return stopped_for
