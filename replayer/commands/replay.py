"""I/O: `aitrace replay`: plays a trace against an endpoint."""

import asyncio
import errno
import math
import os
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click
import orjson
import uvloop
from rich.console import Console

from aitrace.clock import SystemClock
from aitrace.errors import UsageError
from aitrace.protocols import PROTOCOLS
from aitrace.results import LATENESS_BOUND_MS, ArrivalClock, ClientCheck, RunEnd, RunHeader, Scrape
from aitrace.runstore import RunWriter, require_unused
from aitrace.schema import ProtocolName, Trace
from aitrace.stored_trace import StoredTrace, stored_trace
from aitrace.units import NS_PER_S
from replayer.calibrate import Calibrated, CalibrationOptions, Calibrator
from replayer.check_client import TrialError, check_client
from replayer.client_check import check_doubts, check_lines
from replayer.commands.api_key import forget_key, read_key
from replayer.commands.grouped import GroupedCommand
from replayer.commands.load_options import load_options, trace_to_play
from replayer.commands.ways import play_ways
from replayer.driver import Driver
from replayer.endpoint import Endpoint, base_url_from_text, check_page_url, credential_headers
from replayer.evidence import ScrapeEvidence
from replayer.http.transport import AiohttpTransport
from replayer.identity.router_tokens import token_header
from replayer.job import (
    MAX_WORKERS,
    Job,
    TransportName,
    open_transport,
    parts_of,
    raise_file_limit,
    usable_cores,
)
from replayer.planning.options import LoadOptions, json_from_options
from replayer.planning.peak import CALLS_PER_S, EVENTS_PER_S, Peak, peak_of, workers_for
from replayer.planning.plan import Plan, build_plan
from replayer.planning.shards import most_parts
from replayer.progress import ProgressView
from replayer.run_clock import RunClock
from replayer.scraper import PAGE_TIMEOUT_NS, SCRAPE_EVERY_NS, Scraper, read_metrics
from replayer.verdict import Summary, summarise, summary_json, summary_lines
from replayer.workers.fleet import Fleet

_EXIT_KILLED_BY_INTERRUPT = 130
_TEXT_SEED_BITS = 32
_CALLS_FOR_MODEL = 1_000
"""Of so many calls the usual model is asked for, unless another one is named."""
_MAX_REPEATS = 100
_MAX_TIMEOUT_S = 86_400
_MAX_LATENESS_MS = 3_600_000
_SHOW_CURSOR = b"\x1b[?25h"
_ADJUSTMENTS: dict[str, str] = {
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
    call_limit_ns: int
    transport: TransportName
    workers: int | None
    """None for as many as the plan's peak needs."""
    checks_itself: bool
    client_check: ClientCheck | None = None
    arrivals: ArrivalClock
    router_token: str | None
    metrics_urls: tuple[str, ...]
    """Empty to try the target's own."""
    metrics_every_ns: int
    reads_metrics: bool
    max_lateness_ms: float
    is_live: bool


@click.command(cls=GroupedCommand)
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
    "--api-key-file", type=click.Path(path_type=Path), metavar="FILE", help="File that holds the API key."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=_MAX_TIMEOUT_S),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for an answer's headers, and then for each further piece of it.",
)
@click.option(
    "--call-limit",
    type=click.FloatRange(min=0, min_open=True, max=_MAX_TIMEOUT_S),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time of one try of a call, however much still comes; a stream without an end is cut there.",
)
@click.option(
    "--transport",
    type=click.Choice(get_args(TransportName)),
    default="socket",
    show_default=True,
    help="What carries calls: plain sockets, or aiohttp's client, at three times the cost of an event.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=MAX_WORKERS),
    metavar="N",
    help="Processes that share the trees of the plan. [default: one for each "
    f"{CALLS_PER_S:,} calls or {EVENTS_PER_S:,} tokens of the plan's busiest second, at most one for each core]",
)
@click.option(
    "--self-check",
    is_flag=True,
    help="First try the client at the plan's busiest second, as `aitrace calibrate` does, and keep the result with "
    "the run.",
)
@click.option(
    "--arrivals",
    type=click.Choice(get_args(ArrivalClock)),
    default="kernel",
    show_default=True,
    help="Who stamps what arrives on plain sockets: the kernel (Linux only, else as `loop`), or the event loop "
    "when it comes to read.",
)
@click.option(
    "--router-token",
    metavar="NAME",
    help="Response header whose value goes back with the next calls of the session, and of its sub-agents as long as "
    "they have none of their own; llm-d: x-session-token.",
)
@click.option(
    "--metrics",
    multiple=True,
    metavar="URL",
    help="Metrics page of an engine, read on a fixed beat. Repeatable. [default: URL/metrics, if it is there]",
)
@click.option(
    "--metrics-every",
    type=click.FloatRange(min=0.05, max=3600),
    default=SCRAPE_EVERY_NS / NS_PER_S,
    show_default=True,
    metavar="SECONDS",
    help="Beat on which metrics pages are read.",
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
    default=LATENESS_BOUND_MS,
    show_default=True,
    metavar="MS",
    help="Lateness that more than 1 % of the calls must not exceed; if they do, the run is in doubt.",
)
@click.option(
    "--ab",
    metavar="OPTION=VALUE,VALUE",
    help="Play the plan once with each value of one option (identity, hints, retries), into DIR/a/1, DIR/b/1, …, and "
    "compare the ways as `aitrace compare DIR/a DIR/b` does: identity=native,none or hints=FILE,off.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1, max=_MAX_REPEATS),
    default=1,
    show_default=True,
    metavar="N",
    help="With --ab, runs of each value, in the order a b b a: DIR/a/1, DIR/b/1, DIR/b/2, DIR/a/2.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON to stdout.")
@click.option("--no-live", is_flag=True, help="Print a line now and then instead of the live view.")
def replay(trace: Path, output: Path, load: LoadOptions, as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click
    """Play a trace against an endpoint and keep every call.

    Exits with 0 if the run is fine, 1 if it is in doubt by the rules of `aitrace report` (calls failed, the client was
    late, …), 4 if the endpoint cannot be used. Ctrl-C ends the run with what it has; a second one ends the program at
    once.

    \b
    Example:
      aitrace replay all.aitrace --url http://127.0.0.1:8000 --protocol chat --time-scale 0.1 -o run/
    """
    order = _order_from_options(trace, output, load, options)
    if str(trace) == "-":
        raise UsageError("a replay needs the trace as a file, since the run keeps a copy of it")
    if options["repeat"] > 1 and options["ab"] is None:
        raise UsageError("--repeat has nothing to repeat without --ab")
    if options["ab"] is not None:
        context = click.get_current_context()
        ways, repeats = options["ab"], options["repeat"]
        trees = partial(_count_trees, trace, load)
        sys.exit(play_ways(context, ways, repeats, output, count_trees=trees, as_json=as_json))
    forget_key(options["api_key_env"])
    require_unused(output)
    stored = trace_to_play(trace)
    plan = build_plan(stored.trace, load)
    for note in plan.notes:
        click.echo(f"Note: {note}", err=True)
    peak = cache(lambda: peak_of(plan))  # a pass over the plan, so once, and only if it is asked for
    workers = min(most_parts(plan), order.workers or workers_for(plan, peak(), usable_cores()))
    if order.checks_itself:
        order = replace(order, client_check=_client_check(order, peak(), workers))
    summary = _play(order, stored, plan, workers)
    for line in summary_lines(summary, str(output)):
        click.echo(line, err=True)
    if as_json:
        click.echo(orjson.dumps(summary_json(summary, str(output)), option=orjson.OPT_INDENT_2))
    sys.exit(summary.exit_code)


def _count_trees(trace: Path, load: LoadOptions) -> int:
    with stored_trace(trace) as stored:
        return len(build_plan(stored.trace, load).trees)


def _order_from_options(trace: Path, output: Path, load: LoadOptions, options: dict[str, Any]) -> _Order:
    protocol: ProtocolName = options["protocol"]
    key = read_key(options["api_key_env"], options["api_key_file"])
    if options["metrics"] and options["no_metrics"]:
        raise UsageError("--metrics and --no-metrics exclude each other")
    for name in ("timeout", "call_limit", "tokens_per_word", "max_lateness", "metrics_every"):
        if options[name] is not None and math.isnan(options[name]):
            raise UsageError(f"--{name.replace('_', '-')} is {options[name]!r}, expected a number")
    return _Order(
        trace_path=trace,
        run_path=output,
        endpoint=Endpoint(
            url=base_url_from_text(options["url"], protocol),
            protocol=protocol,
            headers=credential_headers(protocol, key),
            key=key,
        ),
        load=load,
        text_seed=secrets.randbits(_TEXT_SEED_BITS) if options["text_seed"] is None else options["text_seed"],
        calibration=CalibrationOptions(
            model=options["model"],
            tokens_per_word=options["tokens_per_word"],
            force_output=options["force_output"],
        ),
        timeout_ns=round(options["timeout"] * NS_PER_S),
        call_limit_ns=round(options["call_limit"] * NS_PER_S),
        transport=options["transport"],
        workers=options["workers"],
        checks_itself=options["self_check"],
        arrivals=options["arrivals"],
        router_token=None if options["router_token"] is None else token_header(options["router_token"]),
        metrics_urls=tuple(check_page_url(url) for url in options["metrics"]),
        metrics_every_ns=round(options["metrics_every"] * NS_PER_S),
        reads_metrics=not options["no_metrics"],
        max_lateness_ms=options["max_lateness"],
        is_live=sys.stderr.isatty() and not options["no_live"],
    )


def _play(order: _Order, stored: StoredTrace, plan: Plan, workers: int) -> Summary:
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_play_on_loop(order, stored, plan, workers))
    except OSError as error:
        raise _not_writable(order, error) from error
    except ExceptionGroup as group:
        # The driver's tasks fail as a group; a full disk among them is the user's to mend, anything else is ours.
        writing, other = group.split(OSError)
        if writing is None or other is not None:
            raise
        raise _not_writable(order, _first_of(writing)) from group


def _first_of(group: ExceptionGroup[Any]) -> Exception:
    first: Exception = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def _not_writable(order: _Order, error: Exception) -> UsageError:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return UsageError(
            f"the run ended early: {error.strerror}",
            hint="Raise the limit of open files (ulimit -n), or have fewer calls at once.",
        )
    return UsageError(
        f"{order.run_path}: cannot be written: {error}",
        hint="What had ended before is in calls.jsonl; `aitrace report` reads it.",
    )


async def _play_on_loop(order: _Order, stored: StoredTrace, plan: Plan, workers: int) -> Summary:
    trace = stored.trace
    calibrated = await _calibrate(order, trace)
    for note in calibrated.notes:
        _say(f"Note: {note}")
    job = _job(order, calibrated, stored.spool)
    clock = RunClock(SystemClock())
    # A page that hangs must not take as long as a call may.
    async with AiohttpTransport(clock, timeout_ns=PAGE_TIMEOUT_NS) as pages:
        urls = await _metrics_urls(order, pages, clock)
        async with open_transport(job, clock) as transport:
            header = _header(order, plan, calibrated, clock, transport.arrival_clock)
            changed = None if plan.trace is trace else plan.trace
            with RunWriter(order.run_path, header, order.trace_path, played=changed) as writer:
                readings = ScrapeEvidence()
                scraper = _scraper(order, urls, pages, clock, _to_both(writer.write_scrape, readings.add))
                parts = parts_of(job, plan, trace, transport, writer.write_call)
                view = _view(order)
                parts = replace(parts, scraper=scraper, watch=view.update)
                player = (
                    Driver(parts, clock)
                    if workers == 1
                    else Fleet(job, parts, workers, clock, write_line=writer.write_call_line)
                )
                end = await _drive(player, view, writer)
    for name, count in player.adjustments.items():
        if count:
            _say(f"Note: {count:,} {_ADJUSTMENTS[name]}")
    if end.failed_final_requests:
        failed, of = end.failed_final_requests, end.final_requests
        _say(f"Note: {failed:,} of {of:,} requests that tell of a session's end failed (no status 200)")
    return summarise(player.tally, readings, header, end)


def _client_check(order: _Order, peak: Peak, workers: int) -> ClientCheck | None:
    """A trial of the client at the plan's peak; None, with a note, if it came to nothing."""
    _say("Trying the client at the plan's busiest second against the built-in engine")
    options = ("--transport", order.transport, "--arrivals", order.arrivals)
    try:
        check = check_client(peak, protocol=order.endpoint.protocol, workers=workers, options=options)
    except TrialError as error:
        _say(f"Note: the client could not be tried: {error}")
        return None
    for line in check_lines(check):
        _say(f"  {line}")
    for doubt in check_doubts(check, order.max_lateness_ms):
        _say(f"Note: {doubt}")
    return check


def _job(order: _Order, calibrated: Calibrated, spool: Path) -> Job:
    return Job(
        spool=spool,
        load=order.load,
        endpoint=order.endpoint,
        model=calibrated.model,
        calibration=calibrated.calibration,
        text_seed=order.text_seed,
        run_id=secrets.token_hex(6),
        timeout_ns=order.timeout_ns,
        call_limit_ns=order.call_limit_ns,
        transport=order.transport,
        arrivals=order.arrivals,
        router_token=order.router_token,
    )


async def _drive(driver: Driver | Fleet, view: ProgressView, writer: RunWriter) -> RunEnd:
    with _stopping_on_signals(driver):
        with view:
            end = await driver.run()
        writer.finish(end)
    return end


async def _calibrate(order: _Order, trace: Trace) -> Calibrated:
    first_calls = islice(trace.calls, _CALLS_FOR_MODEL)
    models = Counter(call.model for call in first_calls if call.model is not None)
    usual = models.most_common(1)[0][0] if models else None
    clock = SystemClock()
    _say(f"Trying {order.endpoint.url} (an answer may take {order.timeout_ns / NS_PER_S:g} s, see --timeout)")
    async with (
        AiohttpTransport(
            clock, timeout_ns=order.timeout_ns, limit_ns=min(2 * order.timeout_ns, order.call_limit_ns)
        ) as transport,
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


def _to_both(first: Callable[[Scrape], None], second: Callable[[Scrape], None]) -> Callable[[Scrape], None]:
    def sink(scrape: Scrape) -> None:
        first(scrape)
        second(scrape)

    return sink


def _scraper(
    order: _Order,
    urls: tuple[str, ...],
    pages: AiohttpTransport,
    clock: RunClock,
    sink: Callable[[Scrape], None],
) -> Scraper | None:
    return Scraper(urls, pages.fetch, clock, sink, every_ns=order.metrics_every_ns) if urls else None


def _header(
    order: _Order, plan: Plan, calibrated: Calibrated, clock: RunClock, arrival_clock: ArrivalClock
) -> RunHeader:
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
            "call_limit_s": order.call_limit_ns / NS_PER_S,
            "transport": order.transport,
            "workers": order.workers,
            "router_token": order.router_token,
            "metrics": list(order.metrics_urls),
            "metrics_every_s": order.metrics_every_ns / NS_PER_S,
            "reads_metrics": order.reads_metrics,
            "force_output": order.calibration.force_output,
            "tokens_per_word": order.calibration.tokens_per_word,
            "max_lateness_ms": order.max_lateness_ms,
        },
        open_loop=plan.open_loop,
        time_scale=order.load.time_scale,
        seed=order.load.seed,
        text_seed=order.text_seed,
        arrival_clock=arrival_clock,
        share_system=order.load.share_system,
        history=order.load.history,
        calibration=calibrated.calibration,
        planned_trees=len(plan.trees),
        planned_sessions=plan.sessions,
        planned_calls=plan.call_count,
        client_check=order.client_check,
    )


def _view(order: _Order) -> ProgressView:
    title = f"{order.trace_path.name} → {order.endpoint.url} → {order.run_path}"
    return ProgressView(Console(stderr=True), title, is_live=order.is_live)


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _stopping_on_signals(driver: Driver | Fleet) -> Iterator[None]:
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
