"""I/O: `aitrace engine`."""

import asyncio
import ipaddress
import math
import signal
import sys
from collections import Counter
from contextlib import nullcontext
from io import FileIO
from pathlib import Path
from typing import Any, cast

import click
from uvloop import new_event_loop

from aitrace.errors import EXIT_IN_DOUBT, UsageError
from aitrace.units import NS_PER_MS
from replayer.engine.options import (
    FAULT_FORMS,
    HEADER_TIMES,
    MAX_BODY_BYTES,
    REFUSAL_STATUSES,
    EngineOptions,
    RefusalStatus,
    check_options,
    parse_fault,
)
from replayer.engine.record import EngineRecord, line_from_record
from replayer.engine.server import serve

_DEFAULTS = EngineOptions()


def _count(text: str) -> int | None:
    """A whole number; None for `unlimited`."""
    if text == "unlimited":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither a whole number nor `unlimited`") from error


def _rate(text: str) -> float | None:
    """A number; None for `unlimited`."""
    if text == "unlimited":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither a number nor `unlimited`") from error


def _hold(text: str) -> float:
    """Seconds; inf for `until-free`."""
    if text == "until-free":
        return math.inf
    try:
        seconds = float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither a number of seconds nor `until-free`") from error
    if not math.isfinite(seconds):
        raise click.BadParameter(f"{text!r} is neither a number of seconds nor `until-free`")
    return seconds


def _ns_from_ms(text: str) -> int:
    try:
        step_ns = round(float(text) * NS_PER_MS)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{text!r} is no number of milliseconds") from error
    if step_ns < 0:
        raise click.BadParameter(f"{text!r} is below 0")
    return step_ns


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    try:
        return int(low), int(high)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not of the form MIN:MAX") from error


@click.command(context_settings={"show_default": True})
@click.option("--host", default=_DEFAULTS.host, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", default=_DEFAULTS.port, metavar="PORT", help="Port to listen on; 0 takes a free one.")
@click.option(
    "--model", default=_DEFAULTS.model, metavar="NAME", help="Model to offer; any may be asked for."
)
@click.option("--block-size", default=_DEFAULTS.block_size, metavar="TOKENS", help="Size of a cache block.")
@click.option(
    "--cache-blocks",
    type=_count,
    default="unlimited",
    metavar="BLOCKS",
    help="Blocks of the cache, or `unlimited`.",
)
@click.option(
    "--prefill-rate",
    "prefill_tokens_per_s",
    type=_rate,
    default=f"{_DEFAULTS.prefill_tokens_per_s:g}",
    metavar="TOKENS/S",
    help="Prompt tokens computed per second by all requests together, or `unlimited`.",
)
@click.option(
    "--decode-rate",
    "decode_tokens_per_s",
    type=_rate,
    default=f"{_DEFAULTS.decode_tokens_per_s:g}",
    metavar="TOKENS/S",
    help="Output tokens per second of each request, or `unlimited`.",
)
@click.option("--batch", default=_DEFAULTS.batch, metavar="REQUESTS", help="Requests running at once.")
@click.option(
    "--queue",
    type=_count,
    default="unlimited",
    metavar="REQUESTS",
    help="Requests waiting at most, or `unlimited`.",
)
@click.option(
    "--refuse",
    type=click.Choice([str(status) for status in REFUSAL_STATUSES]),
    default=str(_DEFAULTS.refuse),
    help="Status for a request that finds the queue full.",
)
@click.option(
    "--retry-after", "retry_after_s", type=float, metavar="SECONDS", help="`Retry-After` to send with it."
)
@click.option(
    "--hold",
    "hold_s",
    type=_hold,
    metavar="SECONDS",
    help="Hold a request that finds the queue full outside it, without headers, for so long before it is refused; "
    "`until-free` for as long as it takes.",
)
@click.option(
    "--headers",
    type=click.Choice(HEADER_TIMES),
    default=_DEFAULTS.headers,
    help="When the headers of a stream come: as it is taken in, or with its place in the batch.",
)
@click.option(
    "--protect-returning",
    is_flag=True,
    help="Take in requests of a session that was served before however full the queue is.",
)
@click.option(
    "--step",
    "step_ns",
    type=_ns_from_ms,
    default=f"{_DEFAULTS.step_ns / NS_PER_MS:g}",
    metavar="MS",
    help="Tokens of one request due within a step are sent as one event.",
)
@click.option(
    "--answer-tokens",
    type=_range,
    default="{}:{}".format(*_DEFAULTS.answer_tokens),
    metavar="MIN:MAX",
    help="Length of answers, where the request leaves it open.",
)
@click.option(
    "--reasoning",
    "reasoning_tokens",
    default=_DEFAULTS.reasoning_tokens,
    metavar="TOKENS",
    help="Reasoning at the start of each answer.",
)
@click.option(
    "--tool-call",
    is_flag=True,
    help="End answers with a tool call where the request offers tools and brings no result of one.",
)
@click.option("--seed", default=_DEFAULTS.seed, metavar="NUMBER", help="Decides answers, ids and faults.")
@click.option("--fault", type=parse_fault, metavar="FAULT", help=f"Fault for some requests: {FAULT_FORMS}.")
@click.option(
    "--fault-rate",
    "fault_ratio",
    default=0.0,
    metavar="RATIO",
    help="Share of requests that the fault strikes, 0-1.",
)
@click.option(
    "--max-body",
    "max_body_bytes",
    default=MAX_BODY_BYTES,
    metavar="BYTES",
    help="Largest request body; above it: 413.",
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for one JSON line per request.",
)
def engine(*, log_path: Path | None, refuse: str, **values: Any) -> None:
    """Serve the three protocols from a simulated engine on loopback.

    HTTP, prefix cache and queue are real, computing is simulated at the given rates. Nothing but loopback is
    listened on unless --host says so.

    \b
    Example:
      aitrace engine --port 8000 --cache-blocks 20000 --batch 8 --queue 16 --refuse 429 --retry-after 2
    """
    options = EngineOptions(refuse=cast("RefusalStatus", int(refuse)), **values)
    check_options(options)
    if not _is_loopback(options.host):
        click.echo(f"note: {options.host} can be reached from other machines, without a key", err=True)
    summary = _Summary()
    opened = nullcontext() if log_path is None else _opened(log_path)
    with opened as log, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(options, summary, log))
    click.echo(summary.text(), err=True)
    if summary.lost_lines:
        click.echo(f"{summary.lost_lines} of them are not in the log: {summary.loss}", err=True)
        sys.exit(EXIT_IN_DOUBT)


def _opened(path: Path) -> FileIO:
    """The log's file, begun anew. Without a buffer: what was written survives the engine."""
    try:
        return path.open("wb", buffering=0)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Summary:
    """Counts of the requests that have ended."""

    def __init__(self) -> None:
        self.lost_lines = 0
        self.loss = ""
        self._outcomes: Counter[str] = Counter()
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._output_tokens = 0

    def add(self, record: EngineRecord) -> None:
        self._outcomes[record.outcome or "unknown"] += 1
        if record.cached_tokens is not None:
            self._prompt_tokens += record.prompt_tokens or 0
            self._cached_tokens += record.cached_tokens
        self._output_tokens += record.output_tokens

    def text(self) -> str:
        """One line for the end."""
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._outcomes.items()))
        return (
            f"{self._outcomes.total()} requests ({outcomes or 'none'}); {self._prompt_tokens} prompt tokens, "
            f"{self._cached_tokens} of them cached; {self._output_tokens} output tokens"
        )


async def _run(options: EngineOptions, summary: _Summary, log: FileIO | None) -> None:
    def take(record: EngineRecord) -> None:
        summary.add(record)
        if log is None:
            return
        try:
            log.write(line_from_record(record))
        except OSError as error:
            # The client has its answer; what the log has lost is told at the end.
            summary.lost_lines += 1
            summary.loss = error.strerror or str(error)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serve(options, on_record=take) as running:
        # A parent process reads the port from this line.
        click.echo(f"listening on {running.url}")
        sys.stdout.flush()
        await stop.wait()
