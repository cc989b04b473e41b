"""I/O: `aitrace engine`."""

import asyncio
import ipaddress
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import click
from uvloop import new_event_loop

from aitrace.units import NS_PER_MS
from replayer.engine.log import RecordLog
from replayer.engine.options import (
    FAULT_FORMS,
    MAX_BODY_BYTES,
    REFUSAL_STATUSES,
    EngineOptions,
    RefusalStatus,
    check_options,
    parse_fault,
)
from replayer.engine.record import EngineRecord
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
    type=_rate,
    default=f"{_DEFAULTS.prefill_tokens_per_s:g}",
    metavar="TOKENS/S",
    help="Prompt tokens computed per second by all requests together, or `unlimited`.",
)
@click.option(
    "--decode-rate",
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
    "--retry-after", type=click.FloatRange(min=0), metavar="SECONDS", help="`Retry-After` to send with it."
)
@click.option(
    "--step",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.step_ns / NS_PER_MS,
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
    default=_DEFAULTS.reasoning_tokens,
    metavar="TOKENS",
    help="Reasoning at the start of each answer.",
)
@click.option(
    "--tool-call", is_flag=True, help="End answers with a tool call where the request offers tools."
)
@click.option("--seed", default=_DEFAULTS.seed, metavar="NUMBER", help="Decides answers, ids and faults.")
@click.option("--fault", metavar="FAULT", help=f"Fault for some requests: {FAULT_FORMS}.")
@click.option(
    "--fault-rate", default=0.0, metavar="RATIO", help="Share of requests that the fault strikes, 0-1."
)
@click.option(
    "--max-body", default=MAX_BODY_BYTES, metavar="BYTES", help="Largest request body; above it: 413."
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for one JSON line per request.",
)
def engine(*, log_path: Path | None, **values: Any) -> None:
    """Serve the three protocols from a simulated engine on loopback.

    HTTP, prefix cache and queue are real, computing is simulated at the given rates. Nothing but loopback is
    listened on unless --host says so.

    \b
    Example:
      aitrace engine --port 8000 --cache-blocks 20000 --batch 8 --queue 16 --refuse 429 --retry-after 2
    """
    options = _options_from_values(values)
    check_options(options)
    if not _is_loopback(options.host):
        click.echo(f"note: {options.host} can be reached from other machines, without a key", err=True)
    summary = _Summary()
    with ExitStack() as stack:
        log = None if log_path is None else stack.enter_context(RecordLog(log_path))
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_run(options, summary, log))
    click.echo(summary.text(), err=True)


def _options_from_values(values: dict[str, Any]) -> EngineOptions:
    fault = values["fault"]
    return EngineOptions(
        host=values["host"],
        port=values["port"],
        model=values["model"],
        block_size=values["block_size"],
        cache_blocks=values["cache_blocks"],
        prefill_tokens_per_s=values["prefill_rate"],
        decode_tokens_per_s=values["decode_rate"],
        batch=values["batch"],
        queue=values["queue"],
        refuse=cast("RefusalStatus", int(values["refuse"])),
        retry_after_s=values["retry_after"],
        step_ns=round(values["step"] * NS_PER_MS),
        answer_tokens=values["answer_tokens"],
        reasoning_tokens=values["reasoning"],
        tool_call=values["tool_call"],
        seed=values["seed"],
        fault=None if fault is None else parse_fault(fault),
        fault_ratio=values["fault_rate"],
        max_body_bytes=values["max_body"],
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Summary:
    """Counts of the requests that have ended."""

    def __init__(self) -> None:
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


async def _run(options: EngineOptions, summary: _Summary, log: RecordLog | None) -> None:
    def take(record: EngineRecord) -> None:
        summary.add(record)
        if log is not None:
            log.write(record)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serve(options, on_record=take) as running:
        # A parent process reads the port from this line.
        click.echo(f"listening on {running.url}")
        sys.stdout.flush()
        await stop.wait()
