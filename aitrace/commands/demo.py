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

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, AitraceError, UsageError

READY = "listening on "
ENGINE = (
    "--prefill-rate", "100000", "--decode-rate", "1500", "--batch", "8", "--queue", "16", "--cache-blocks", "48000",
)  # fmt: skip
"""Small enough that the demo's sessions compete: calls wait, and some prefixes are evicted, as the report then shows."""
LOAD = ("--trees", "9", "--concurrency", "9", "--share-system")
"""Nine sessions at a time: enough calls for a p99, and system prompts that are shared as they are in real use."""


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
    metavar="FACTOR",
    help="Factor on recorded gaps; the default ends within a minute.",
)
@click.option(
    "--protocol",
    default="anthropic",
    show_default=True,
    type=click.Choice(["anthropic", "responses", "chat"]),
    help="Wire protocol to play in.",
)
def demo(trace: Path | None, output: Path, force: bool, time_scale: float, protocol: str) -> None:  # noqa: FBT001 - click passes flags by name
    """Play a shipped trace against the built-in engine and write a report.

    Plays TRACE, or real Claude Code sessions that come with aitrace, against an engine started for it on loopback.
    Prints the verdict and the path of the report.

    \b
    Example:
      aitrace demo -o demo/
    """
    _prepare(output, replace=force)
    with contextlib.ExitStack() as stack:
        if trace is None:
            trace = stack.enter_context(
                resources.as_file(resources.files("aitrace.examples") / "claude-code.aitrace")
            )
        url = stack.enter_context(_engine(output / "engine.jsonl"))
        target = ("--url", url, "--protocol", protocol)
        load = ("--time-scale", str(time_scale), *LOAD)
        replayed = _aitrace("replay", str(trace), *target, *load, "-o", str(output / "run"))
    if replayed not in (EXIT_OK, EXIT_IN_DOUBT):
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
                f"{str(output)!r} is not empty{what}", hint="name another folder with -o, or use --force"
            )
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def _engine(log: Path) -> Iterator[str]:
    """Base URL of a built-in engine that runs as long as the context."""
    process = subprocess.Popen(
        [*_program(), "engine", "--port", "0", "--log", str(log), *ENGINE],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None  # noqa: S101 - it is a pipe, for the type checker
        ready = process.stdout.readline()
        if not ready.startswith(READY):
            raise AitraceError("the built-in engine did not start", hint="run `aitrace engine` to see why")
        yield ready.removeprefix(READY).strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _aitrace(*arguments: str) -> int:
    return subprocess.run([*_program(), *arguments], check=False).returncode


def _program() -> list[str]:
    return [sys.executable, "-m", "aitrace"]
