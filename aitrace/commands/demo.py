"""I/O: `aitrace demo`, the whole road in one command: built-in engine, replay of a trace, report."""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, EndpointError, UsageError
from aitrace.protocols import PROTOCOLS
from aitrace.store import read_trace

SHIPPED = "claude-code.aitrace"
READY = "listening on "
ENGINE = (
    "--prefill-rate", "100000", "--decode-rate", "1500", "--batch", "8", "--queue", "16", "--cache-blocks", "48000",
)  # fmt: skip
"""Small enough that the demo's sessions compete: calls wait, and some prefixes are evicted, as the report then shows."""
LOAD = ("--trees", "9", "--concurrency", "9")
"""Nine trees at a time: with the shipped trace enough calls for a p99."""


@click.command()
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    default="aitrace-demo",
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the run, the engine's log and the report.",
)
@click.option("--force", is_flag=True, help="Replace what an earlier demo left in DIR.")
@click.option(
    "--time-scale",
    default=0.01,
    show_default=True,
    type=click.FloatRange(min=0),
    metavar="FACTOR",
    help="Factor on recorded gaps; the default ends within a minute.",
)
@click.option(
    "--protocol",
    default="anthropic",
    show_default=True,
    type=click.Choice(tuple(PROTOCOLS)),
    help="Wire protocol to play in.",
)
def demo(trace: Path | None, output: Path, force: bool, time_scale: float, protocol: str) -> None:  # noqa: FBT001 - click passes flags by name
    """Play a shipped trace against the built-in engine and write a report.

    Plays nine trees at a time, of TRACE or of real Claude Code sessions that come with aitrace, against an engine
    started for it on loopback. Prints the verdict and the path of the report.

    \b
    Example:
      aitrace demo -o demo/
    """
    load = ["--time-scale", str(time_scale), *LOAD]
    with contextlib.ExitStack() as stack:
        if trace is None:
            shipped = resources.files("aitrace.examples") / SHIPPED
            trace = stack.enter_context(resources.as_file(shipped))
            # Its ids are local to one conversation; in real use the system prompts are the same.
            load.append("--share-system")
        read_trace(trace)
        _prepare(output, replace=force)
        url = stack.enter_context(_engine(output / "engine.jsonl"))
        target = ["--url", url, "--protocol", protocol]
        replayed = _aitrace("replay", str(trace), *target, *load, "-o", str(output / "run"))
    if replayed not in (EXIT_OK, EXIT_IN_DOUBT):
        if not (output / "run").exists():
            shutil.rmtree(output)
        sys.exit(replayed)
    page = output / "report.html"
    reported = _aitrace("report", str(output / "run"), "-o", str(page))
    if page.exists():
        click.echo(f"report: {page}")
    sys.exit(reported)


def _prepare(output: Path, *, replace: bool) -> None:
    if output.exists() and any(output.iterdir()):
        known = {"run", "engine.jsonl", "report.html"}
        strangers = sorted(path.name for path in output.iterdir() if path.name not in known)
        if not replace or strangers:
            what = f" (it also holds {strangers[0]!r})" if strangers else ""
            raise UsageError(
                f"{output}: is not empty{what}", hint="name another folder with -o, or use --force"
            )
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def _engine(log: Path) -> Iterator[str]:
    """Base URL of a built-in engine that runs as long as the context."""
    command = [*_program(), "engine", "--port", "0", "--log", str(log), *ENGINE]
    # In a session of its own, so that a Ctrl-C at the terminal does not take the engine from under the replay.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe, for the type checker
            ready = process.stdout.readline()
            if not ready.startswith(READY):
                raise EndpointError(
                    "the built-in engine did not start", hint="run `aitrace engine --port 0` to see why"
                )
            yield ready.removeprefix(READY).strip()
        finally:
            process.send_signal(signal.SIGTERM)


def _aitrace(*arguments: str) -> int:
    """Exit code of another command; a Ctrl-C while it runs is for it alone, and ends a replay with what it has."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run([*_program(), *arguments], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _program() -> list[str]:
    return [sys.executable, "-m", "aitrace"]
