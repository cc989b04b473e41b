"""Pure: what was run: target, load and identity."""

import datetime as dt

from aitrace.results import RunHeader
from aitrace.units import NS_PER_S
from reports.document import Pairs, Section
from reports.metric import Number
from reports.summary import Report
from reports.words import counted, text_from_ms, text_from_ratio, text_from_seconds


def run_section(report: Report) -> Section:
    """Target, load and identity of the run."""
    return Section(id="run", title="What was run", blocks=(Pairs(pairs=what_was_run(report)),))


def what_was_run(report: Report) -> tuple[tuple[str, str], ...]:
    """Target, load and identity of the run."""
    header, trace = report.facts.header, report.facts.trace
    calibration = header.calibration
    started = dt.datetime.fromtimestamp(header.started_unix_ns / NS_PER_S, tz=dt.UTC)
    facts = [
        ("endpoint", header.url),
        ("protocol", header.protocol),
        ("model", header.model),
        ("trace", header.trace),
        ("arrival", _arrival_text(header)),
        ("time scale of gaps", f"× {header.time_scale:g}"),
        ("seed", str(header.seed)),
        (
            "prompt sizes",
            (
                f"{_tokens_text(calibration.tokens_per_word)} per word, "
                f"{_tokens_text(calibration.request_overhead_tokens)} per request beyond words ({calibration.source})"
            ),
        ),
        ("answer length", "forced" if calibration.output_forced else "not forced"),
        ("history", f"{header.history} answers in the next prompt"),
        ("system prompts", "shared between trees" if header.share_system else "as the trace shares them"),
        ("started", f"{started:%Y-%m-%d %H:%M:%S} UTC"),
        ("duration", text_from_seconds(report.answers.numbers["duration_s"])),
        ("steady window", _steady_text(report.answers.numbers)),
        ("producer", header.producer),
    ]
    if header.text_seed is not None:
        facts.append(("seed of texts", str(header.text_seed)))
    if header.arrival_clock is not None:
        facts.append(("arrivals stamped by", header.arrival_clock))
    if trace is not None and trace.header.attribution is not None:
        facts.append(("source of the trace", trace.header.attribution))
    return tuple(facts)


def _arrival_text(header: RunHeader) -> str:
    if header.open_loop:
        arrival = header.options.get("arrival")
        return f"trees start by the clock{'' if arrival is None else f' ({arrival})'}"
    match header.options.get("concurrency"):
        case 1:
            return "1 lane, plays one tree after another"
        case int() as lanes:
            return f"{lanes:,} lanes, each plays one tree after another"
    return "lanes, each plays one tree after another"


def _steady_text(numbers: dict[str, Number]) -> str:
    begin_s, end_s = numbers["steady_from_s"], numbers["steady_until_s"]
    if begin_s is None or end_s is None:
        return "none, since no session was active"
    ttft = ", ".join(
        f"{name} {text_from_ms(value)}"
        for name in ("p50", "p95")
        if (value := numbers[f"steady_ttft_service_{name}_ms"]) is not None
    )
    return (
        f"{text_from_seconds(begin_s)} to {text_from_seconds(end_s)}, {text_from_ratio(numbers['steady_ratio'])} of the "
        f"run, about {counted(numbers['steady_sessions'], 'session')} active, {counted(numbers['steady_calls'], 'call')}"
        + (f", TTFT from sent {ttft}" if ttft else "")
        + _part_text(numbers["steady_cache_reported_ratio"], "of the prompt tokens cached")
        + _part_text(numbers["steady_refused_tries_ratio"] or None, "of the tries refused")
    )


def _part_text(ratio: Number, what: str) -> str:
    return "" if ratio is None else f", {text_from_ratio(ratio)} {what}"


def _tokens_text(amount: float) -> str:
    return f"{amount:.4g} token{'' if amount == 1 else 's'}"
