"""I/O: `aitrace replay`: plays a trace against an endpoint."""

import asyncio
import math
import os
import resource
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import orjson
import uvloop
from rich.console import Console

from aitrace.clock import SystemClock
from aitrace.errors import UsageError
from aitrace.identity import BlockIdentity
from aitrace.protocols import PROTOCOLS
from aitrace.results import RunEnd, RunHeader
from aitrace.runstore import RunWriter, require_unused
from aitrace.schema import ProtocolName, Trace
from aitrace.units import NS_PER_S
from replayer.calibrate import Calibrated, CalibrationOptions, Calibrator
from replayer.commands.load_options import load_options, trace_to_play
from replayer.driver import Driver, RunClock, RunParts, Target
from replayer.endpoint import Endpoint, base_url_from_text, check_page_url, credential_headers
from replayer.options import LoadOptions, json_from_options
from replayer.plan import Plan, build_plan
from replayer.progress import ProgressView
from replayer.requests import Adjustment, RequestBuilder
from replayer.scraper import PAGE_TIMEOUT_NS, Scraper, read_metrics
from replayer.text import TextSource
from replayer.transport import AiohttpTransport
from replayer.verdict import Summary, summarise, summary_json, summary_lines

_EXIT_KILLED_BY_INTERRUPT = 130
_TEXT_SEED_BITS = 32
_MAX_TIMEOUT_S = 86_400
_MAX_LATENESS_MS = 3_600_000
_SHOW_CURSOR = b"\x1b[?25h"
_ADJUSTMENTS: dict[Adjustment, str] = {
    "opened_with_user": "requests got an opening line of the user, which their protocol asks for",
    "closed_with_user": "requests got a closing line of the user, which their protocol asks for",
    "tool_messages_as_text": "tool calls and results were written as text, since they could not be paired",
    "empty_live_answers": "live answers held no text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What the user asked for."""

    trace_path: Path
    run_path: Path
    endpoint: Endpoint
    load: LoadOptions
    text_seed: int
    calibration: CalibrationOptions
    timeout_ns: int
    metrics_urls: tuple[str, ...]
    """Empty to try the target's own."""
    reads_metrics: bool
    max_lateness_ms: float
    is_live: bool


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--url", required=True, metavar="URL", help="Base URL of the target, with or without /v1.")
@click.option(
    "--protocol",
    required=True,
    type=click.Choice(tuple(PROTOCOLS)),
    help="Wire protocol to speak.",
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="New run directory."
)
@load_options
@click.option(
    "--text-seed",
    type=click.IntRange(min=0, max=(1 << 63) - 1),
    metavar="N",
    help="Seed of generated text; the same one makes an endpoint's cache know the prompts of an earlier run. "
    "[default: another one for each run, kept in run.json]",
)
@click.option(
    "--model",
    metavar="NAME",
    help="Model to ask for. [default: the first the target lists, else the trace's]",
)
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=_MAX_TIMEOUT_S),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for an answer's headers, and then for each further piece of it.",
)
@click.option(
    "--metrics",
    multiple=True,
    metavar="URL",
    help="Metrics page of an engine, read every second. Repeatable. [default: URL/metrics, if it is there]",
)
@click.option("--no-metrics", is_flag=True, help="Read no metrics.")
@click.option(
    "--force-output",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Send the fields that force an answer's length (ignore_eos, min_tokens); auto: if the target takes them.",
)
@click.option(
    "--tokens-per-word",
    type=click.FloatRange(min=0.01, max=100),
    metavar="RATIO",
    help="Tokens of one word of generated text. [default: measured at the target]",
)
@click.option(
    "--max-lateness",
    type=click.FloatRange(min=0, max=_MAX_LATENESS_MS),
    default=50.0,
    show_default=True,
    metavar="MS",
    help="Lateness that more than 1 % of the calls must not exceed; if they do, the run is in doubt.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON to stdout.")
@click.option("--no-live", is_flag=True, help="Print a line now and then instead of the live view.")
def replay(trace: Path, output: Path, load: LoadOptions, as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click
    """Play a trace against an endpoint and keep every call.

    Exits with 0 if every call was complete and the client kept up, 1 if the run is in doubt, 4 if the endpoint cannot
    be used. Ctrl-C ends the run with what it has; a second one ends the program at once.

    \b
    Example:
      aitrace replay all.aitrace --url http://127.0.0.1:8000 --protocol chat --time-scale 0.1 -o run/
    """
    order = _order_from_options(trace, output, load, options)
    if str(trace) == "-":
        raise UsageError("a replay needs the trace as a file, since the run keeps a copy of it")
    require_unused(output)
    played = trace_to_play(trace)
    plan = build_plan(played, load)
    for note in plan.notes:
        click.echo(f"Note: {note}", err=True)
    summary = _play(order, played, plan)
    for line in summary_lines(summary, str(output)):
        click.echo(line, err=True)
    if as_json:
        click.echo(orjson.dumps(summary_json(summary, str(output)), option=orjson.OPT_INDENT_2))
    sys.exit(summary.exit_code)


def _order_from_options(trace: Path, output: Path, load: LoadOptions, options: dict[str, Any]) -> _Order:
    protocol: ProtocolName = options["protocol"]
    if options["metrics"] and options["no_metrics"]:
        raise UsageError("--metrics and --no-metrics exclude each other")
    for name in ("timeout", "tokens_per_word", "max_lateness"):
        if options[name] is not None and math.isnan(options[name]):
            raise UsageError(f"--{name.replace('_', '-')} is {options[name]!r}, expected a number")
    return _Order(
        trace_path=trace,
        run_path=output,
        endpoint=Endpoint(
            url=base_url_from_text(options["url"], protocol),
            protocol=protocol,
            headers=credential_headers(protocol, _key(options["api_key_env"])),
        ),
        load=load,
        text_seed=secrets.randbits(_TEXT_SEED_BITS) if options["text_seed"] is None else options["text_seed"],
        calibration=CalibrationOptions(
            model=options["model"],
            tokens_per_word=options["tokens_per_word"],
            force_output=options["force_output"],
        ),
        timeout_ns=round(options["timeout"] * NS_PER_S),
        metrics_urls=tuple(check_page_url(url) for url in options["metrics"]),
        reads_metrics=not options["no_metrics"],
        max_lateness_ms=options["max_lateness"],
        is_live=sys.stderr.isatty() and not options["no_live"],
    )


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise UsageError(f"environment variable {name!r} is not set", hint=f"export {name}=…")
    return key


def _play(order: _Order, trace: Trace, plan: Plan) -> Summary:
    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_play_on_loop(order, trace, plan))
    except OSError as error:
        raise _not_writable(order, error) from error
    except ExceptionGroup as group:
        # The driver's tasks fail as a group; a full disk among them is the user's to mend, anything else is ours.
        writing, other = group.split(OSError)
        if writing is None or other is not None:
            raise
        raise _not_writable(order, writing.exceptions[0]) from group


def _not_writable(order: _Order, error: Exception) -> UsageError:
    return UsageError(
        f"{order.run_path}: cannot be written: {error}",
        hint="What had ended before is in calls.jsonl; `aitrace report` reads it.",
    )


async def _play_on_loop(order: _Order, trace: Trace, plan: Plan) -> Summary:
    calibrated = await _calibrate(order, trace)
    for note in calibrated.notes:
        _say(f"Note: {note}")
    clock = RunClock(SystemClock())
    async with (
        AiohttpTransport(clock, timeout_ns=order.timeout_ns) as transport,
        # A page that hangs must not take as long as a call may.
        AiohttpTransport(clock, timeout_ns=PAGE_TIMEOUT_NS) as pages,
    ):
        urls = await _metrics_urls(order, pages, clock)
        header = _header(order, plan, calibrated, clock)
        with RunWriter(order.run_path, header, order.trace_path) as writer:
            bodies = _request_builder(order, trace, calibrated)
            view = _view(order)
            parts = RunParts(
                plan=plan,
                target=_target(order, calibrated),
                bodies=bodies,
                transport=transport,
                write_call=writer.write_call,
                run_id=secrets.token_hex(6),
                history_is_live=order.load.history == "live",
                scraper=Scraper(urls, pages.fetch, clock, writer.write_scrape) if urls else None,
                watch=view.update,
            )
            driver = Driver(parts, clock)
            end = await _drive(driver, view, writer)
    for name, count in bodies.counts.items():
        if count:
            _say(f"Note: {count:,} {_ADJUSTMENTS[name]}")
    return summarise(driver.tally, end, plan, lateness_bound_ms=order.max_lateness_ms)


async def _drive(driver: Driver, view: ProgressView, writer: RunWriter) -> RunEnd:
    with _stopping_on_signals(driver):
        with view:
            end = await driver.run()
        writer.finish(end)
    return end


async def _calibrate(order: _Order, trace: Trace) -> Calibrated:
    models = Counter(call.model for call in trace.calls if call.model is not None)
    usual = models.most_common(1)[0][0] if models else None
    clock = SystemClock()
    _say(f"Trying {order.endpoint.url} (an answer may take {order.timeout_ns / NS_PER_S:g} s, see --timeout)")
    async with (
        AiohttpTransport(clock, timeout_ns=order.timeout_ns) as transport,
        AiohttpTransport(clock, timeout_ns=min(order.timeout_ns, PAGE_TIMEOUT_NS)) as pages,
    ):
        calibrator = Calibrator(order.endpoint, transport, pages, clock)
        return await calibrator.calibrate(order.calibration, trace_model=usual)


async def _metrics_urls(order: _Order, pages: AiohttpTransport, clock: RunClock) -> tuple[str, ...]:
    """The pages to read: those given, else the target's own if it can be read."""
    if not order.reads_metrics:
        return ()
    urls = order.metrics_urls or (f"{order.endpoint.url}/metrics",)
    errors = {url: (await read_metrics(url, pages.fetch, clock)).error for url in urls}
    for url, error in errors.items():
        if error is not None:
            _say(f"Note: no metrics from {url}: {error}")
    return order.metrics_urls or tuple(url for url in urls if errors[url] is None)


def _target(order: _Order, calibrated: Calibrated) -> Target:
    protocol = PROTOCOLS[order.endpoint.protocol]
    return Target(
        url=order.endpoint.url + protocol.path,
        protocol=protocol,
        model=calibrated.model,
        output_forced=calibrated.calibration.output_forced,
        headers=order.endpoint.headers,
    )


def _request_builder(order: _Order, trace: Trace, calibrated: Calibrated) -> RequestBuilder:
    return RequestBuilder(
        trace,
        BlockIdentity(trace, share_system=order.load.share_system),
        TextSource(order.text_seed, calibrated.calibration.tokens_per_word),
        order.load,
        PROTOCOLS[order.endpoint.protocol],
    )


def _header(order: _Order, plan: Plan, calibrated: Calibrated, clock: RunClock) -> RunHeader:
    return RunHeader(
        producer=f"aitrace {version('aitrace')}",
        started_unix_ns=clock.started_unix_ns,
        url=order.endpoint.url,
        protocol=order.endpoint.protocol,
        model=calibrated.model,
        trace=order.trace_path.name,
        options={
            **json_from_options(order.load),
            "timeout_s": order.timeout_ns / NS_PER_S,
            "metrics": list(order.metrics_urls),
            "reads_metrics": order.reads_metrics,
            "force_output": order.calibration.force_output,
            "tokens_per_word": order.calibration.tokens_per_word,
            "max_lateness_ms": order.max_lateness_ms,
        },
        open_loop=plan.open_loop,
        time_scale=order.load.time_scale,
        seed=order.load.seed,
        text_seed=order.text_seed,
        share_system=order.load.share_system,
        history=order.load.history,
        calibration=calibrated.calibration,
        planned_trees=len(plan.trees),
        planned_sessions=plan.sessions,
        planned_calls=len(plan.calls),
    )


def _view(order: _Order) -> ProgressView:
    title = f"{order.trace_path.name} → {order.endpoint.url} → {order.run_path}"
    return ProgressView(Console(stderr=True), title, is_live=order.is_live)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _raise_file_limit() -> None:
    """Let every call have a connection: the usual limit is 1,024 open files, the hard one far above."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _stopping_on_signals(driver: Driver) -> Iterator[None]:
    """Stop the run at the first SIGINT or SIGTERM, end the program at the second."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            # Not through the loop, which may be busy writing the run's end.
            signal.signal(number, _end_at_once)
        driver.stop()

    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_at_once(_number: int, _frame: object) -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    os._exit(_EXIT_KILLED_BY_INTERRUPT)
