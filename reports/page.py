"""Pure: the words and tables of the page, section by section; the terminal's summary uses the same."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from aitrace.results import ClientCheck, RunHeader
from aitrace.units import NS_PER_MS
from reports.answers import Answers, Spread
from reports.gap_text import gap_finding, gap_scale
from reports.metric import Number, Row
from reports.metrics import METRICS
from reports.run_metrics import lateness_bound_ms
from reports.stats import Interval
from reports.summary import Report
from reports.words import (
    KIND_NAMES,
    NOT_KNOWN,
    counted,
    gap_label,
    quantile_texts,
    text_from_float,
    text_from_ms,
    text_from_ratio,
    text_from_seconds,
    text_from_value,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts."""

    caption: str
    """Population and what else must be known to read it; empty if its heading says it."""
    columns: tuple[str, ...]
    """Heads."""
    rows: tuple[tuple[str, ...], ...]
    """Cells; the first of each row names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure to be seen first."""

    name: str
    """What it is."""
    value: str
    """The figure with its unit."""
    note: str
    """What to read it by: a second figure, n, a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageText:
    """All text of the page that depends on the run; nothing in it is escaped yet."""

    title: str
    """Title of the page."""
    report: Report
    """For the verdict and its doubts."""
    headlines: tuple[Headline, ...]
    """How fast, how much cached, who was refused, how late the client was."""
    what_was_run: tuple[tuple[str, str], ...]
    """Name and value."""
    tables: dict[str, Table]
    """By the names that the template uses."""
    intervals: tuple[str, ...]
    """Confidence intervals of TTFT, one sentence each."""
    time_scale: str
    """What the time scale did to the gaps."""
    cache_notes: tuple[str, ...]
    """What must be known to read the hit rates."""
    gap_finding: str | None
    """Whether the prefix survives the gap, in a sentence; None if the run cannot tell."""
    gap_scale: str | None
    """What the gaps as played stand for; None where they are as recorded."""
    admission: tuple[tuple[str, str], ...]
    """What refusals cost: name and value."""
    client: tuple[tuple[str, str], ...]
    """How the replaying process and the engine fared: name and value."""


_SPREADS = {
    "ttft": ("ttft_service_ms", "ttft_user_ms", "headers_ms", "first_visible_ms"),
    "tokens": ("itl_ms", "longest_stall_ms", "output_speed_tokens_per_s", "call_duration_ms"),
    "sessions": (
        "session_duration_s", "session_expected_s", "session_recorded_s", "session_slowdown_ratio",
        "tree_duration_s", "tree_expected_s", "tree_slowdown_ratio",
    ),
    "admission_times": ("headers_ms", "headers_to_token_ms", "tries_per_call", "session_backoff_s"),
    "lateness": ("lateness_ms", "client_lateness_ms", "connect_ms", "upload_ms"),
}  # fmt: skip
"""Distributions by the table that shows them."""


def page_text(report: Report) -> PageText:
    """Everything to be said about the run."""
    answers = report.answers
    return PageText(
        title=f"{report.facts.header.model} – {report.facts.header.trace}",
        report=report,
        headlines=headlines(report),
        what_was_run=what_was_run(report),
        tables=_tables(report),
        intervals=_interval_sentences(answers),
        time_scale=_time_scale_sentence(report),
        cache_notes=_cache_notes(report),
        gap_finding=gap_finding(report),
        gap_scale=gap_scale(report),
        client=(*_client(answers), *_client_check(report.facts.header.client_check)),
        admission=_admission_facts(answers),
    )


def _tables(report: Report) -> dict[str, Table]:
    answers = report.answers
    return {
        **{name: spread_table(answers, metrics) for name, metrics in _SPREADS.items()},
        "sizes": sizes_table(answers),
        "cache": cache_table(answers),
        "gaps": _gap_table(report),
        "admission": admission_table(answers),
        "turns": _admission_rows(answers.tables["admission_by_turn"], "turn", _turn_label),
        "admission_gaps": _admission_rows(
            answers.tables["admission_by_gap"],
            "gap as played",
            lambda row: gap_label(row["gap_from_s"], row["gap_to_s"]),
        ),
        "outcomes": outcomes_table(answers),
        "identities": identities_table(answers),
        "errors": errors_table(answers),
        "unsent": _rows_table(
            [row | {"unsent": _UNSENT[str(row["unsent"])]} for row in answers.tables["unsent_by_reason"]],
            {"unsent": "reason", "calls": "calls", "sessions": "sessions"},
        ),
        "classes": _rows_table(
            answers.tables["by_class"],
            {
                "call_class": "class",
                "calls": "calls",
                "complete_calls": "complete",
                "ttft_service_p50_ms": f"{METRICS['ttft_service_ms'].title}, p50, ms",
                "input_tokens": "prompt tokens",
                "output_tokens": "output tokens",
            },
            f"{METRICS['by_class'].population}.",
        ),
    }


def headlines(report: Report) -> tuple[Headline, ...]:
    """The figures that say in one look how the run went."""
    answers, numbers = report.answers, report.answers.numbers
    ttft, itl = answers.spreads["ttft_service_ms"], answers.spreads["itl_ms"]
    lateness, slowdown = answers.spreads["client_lateness_ms"], answers.spreads["session_slowdown_ratio"]
    engine, bound = (
        text_from_ratio(numbers["engine_hit_ratio"]),
        text_from_ratio(numbers["cache_bound_ratio"]),
    )
    return (
        Headline(
            name=METRICS["ttft_service_ms"].title,
            value=f"p50 {text_from_ms(ttft.quantiles['p50'])}",
            note=f"{_upper(ttft)} · n = {ttft.count:,}",
        ),
        Headline(
            name="ITL, mean of a call",
            value=f"p50 {text_from_ms(itl.quantiles['p50'])}",
            note=_upper(itl),
        ),
        Headline(
            name="prompt tokens cached",
            value=text_from_ratio(numbers["cache_reported_ratio"]),
            note=f"engine {engine} · unlimited cache {bound}",
        ),
        Headline(
            name="calls refused",
            value=f"{numbers['refused_calls']:,} of {numbers['sent_calls']:,}",
            note=_refused_tries(numbers) + f"{(numbers['failed_calls'] or 0):,} failed otherwise",
        ),
        Headline(
            name="lost sessions",
            value=f"{numbers['lost_sessions']:,} of {numbers['planned_sessions']:,}",
            note=f"time in run / expected: p50 {text_from_value(slowdown.quantiles['p50'], '')}",
        ),
        Headline(
            name="lateness, client",
            value=_upper(lateness),
            note=f"{numbers['late_calls']:,} of {counted(numbers['sent_calls'], 'call')} more than "
            f"{lateness_bound_ms(report.facts):g} ms late",
        ),
    )


def _upper(spread: Spread) -> str:
    """The highest quantile that is known, of times in ms; the largest value where only the median is."""
    known = [name for name, value in spread.quantiles.items() if value is not None]
    if not known or known[-1] == "p50":
        return f"max {text_from_ms(spread.largest)}"
    return f"{known[-1]} {text_from_ms(spread.quantiles[known[-1]])}"


def what_was_run(report: Report) -> tuple[tuple[str, str], ...]:
    """Target, load and identity of the run."""
    header, trace = report.facts.header, report.facts.trace_header
    calibration = header.calibration
    started = dt.datetime.fromtimestamp(header.started_unix_ns / 1e9, tz=dt.UTC)
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
    if trace is not None and trace.attribution is not None:
        facts.append(("source of the trace", trace.attribution))
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
        + _steady_share(numbers["steady_cache_reported_ratio"], "of the prompt tokens cached")
        + _steady_share(numbers["steady_refused_tries_ratio"] or None, "of the tries refused")
    )


def _refused_tries(numbers: dict[str, Number]) -> str:
    """What refusals there were beside those that ended a call."""
    refused = numbers["refused_tries"] or 0
    return (
        "" if refused <= (numbers["refused_calls"] or 0) else f"{refused:,} of {numbers['tries']:,} tries · "
    )


def _steady_share(ratio: Number, what: str) -> str:
    return "" if ratio is None else f", {text_from_ratio(ratio)} {what}"


def _tokens_text(amount: float) -> str:
    return f"{amount:.4g} token{'' if amount == 1 else 's'}"


_UNSENT = {
    "session_lost": "its session was lost",
    "interrupted": "the run was stopped",
    "duration": "the run's duration was over",
    "worker_lost": "its process was lost",
}
_RARE_FATES = ("unmeasured", "stopped", "missing", "censored")
"""Rows that only a run which did not end by itself needs, or one with a warm-up."""


def sizes_table(answers: Answers) -> Table:
    """What became of the planned calls, sessions and trees."""
    groups = ("calls", "sessions", "trees")
    fates = {
        "planned": "planned",
        "unmeasured": "not measured",
        "complete": "complete",
        "refused": "refused",
        "failed": "failed otherwise",
        "stopped": "in flight when stopped or cut",
        "unsent": "not sent",
        "missing": "without a result",
        "lost": "lost sessions",
        "censored": "cut by the end of the run",
    }
    return Table(
        caption="A session is complete if all its calls are, and lost if one of them was refused or failed, or was not "
        "sent because of such a call.",
        columns=("", *groups),
        rows=tuple(
            (title, *(_count_cell(answers.numbers, f"{fate}_{group}") for group in groups))
            for fate, title in fates.items()
            if fate not in _RARE_FATES or any(answers.numbers.get(f"{fate}_{group}") for group in groups)
        ),
    )


def _count_cell(numbers: dict[str, Number], name: str) -> str:
    return text_from_value(numbers[name], "") if name in numbers else NOT_KNOWN


def spread_table(answers: Answers, names: tuple[str, ...]) -> Table:
    """Quantiles of distributions, one per row."""
    rows = []
    titles_of: dict[str, list[str]] = {}
    for name in names:
        metric = METRICS[name]
        title = metric.title + (f", {metric.unit}" if metric.unit else "")
        rows.append((title, *quantile_texts(answers.spreads[name])))
        titles_of.setdefault(metric.population, []).append(metric.title)
    populations = "; ".join(f"{' and '.join(titles)}: {of}" for of, titles in titles_of.items())
    return Table(
        caption=f"{populations}.",
        columns=("", "n", *answers.spreads[names[0]].quantiles, "max"),
        rows=tuple(rows),
    )


def cache_table(answers: Answers) -> Table:
    """Numerator, denominator and ratio of each of the three."""
    numbers = answers.numbers
    total = numbers["cache_input_tokens"]
    engine = numbers["engine_query_tokens"]
    rows = [
        ("reported by the API", numbers["cache_reported_tokens"], total),
        ("counted by the engine", numbers["engine_hit_tokens"], engine),
        ("unlimited cache", numbers["cache_bound_tokens"], total),
        ("… within the session", numbers["cache_bound_session_tokens"], total),
        ("… between agents of a tree", numbers["cache_bound_tree_tokens"], total),
        ("… between trees", numbers["cache_bound_other_tokens"], total),
        ("possible, not served from cache", numbers["cache_lost_tokens"], total),
    ]
    return Table(
        caption=f"{METRICS['cache_calls'].population}: n = {text_from_value(numbers['cache_calls'], '')}; "
        "engine: all requests it served between the first and the last reading; possible, not served: unlimited "
        "cache less reported.",
        columns=("", "tokens", "of tokens", "share"),
        rows=tuple(
            (name, text_from_value(part, ""), text_from_value(whole, ""), _share(part, whole))
            for name, part, whole in rows
        ),
    )


_ADMISSION_KINDS = {"first": "first calls of a session", "returning": "returning calls"}
_OUTCOMES = {
    "refused_in_stream": "refused in the stream",
    "timeout_headers": "timeout before headers",
    "timeout_first_token": "timeout before the first token",
    "timeout_stream": "timeout in mid-stream",
    "connect": "no connection",
    "error_event": "error event",
    "http_error": "HTTP error",
    "stopped": "in flight when stopped",
}
"""Outcomes that are not told by their own name."""


def admission_table(answers: Answers) -> Table:
    """First calls of sessions against returning ones."""
    return _admission_rows(
        answers.tables["admission_by_kind"], "", lambda row: _ADMISSION_KINDS[str(row["kind"])]
    )


def short_admission_table(answers: Answers) -> Table:
    """The same without what does not fit on a terminal."""
    columns = (0, 1, 2, 4, 8)
    table = admission_table(answers)
    return Table(
        caption=table.caption,
        columns=tuple(table.columns[column] for column in columns),
        rows=tuple(tuple(row[column] for column in columns) for row in table.rows),
    )


def _admission_rows(rows: list[Row], head: str, label: Callable[[Row], str]) -> Table:
    return Table(
        caption="Refused: first tries with status 429, 503 or 529, or an overload error in the stream; 95 % intervals "
        "(Wilson). Headers: of tries with status 200.",
        columns=(
            head, "calls", "refused at first", "share", "95 % interval", "tries", "refused", "given up", "headers p50, ms",
        ),
        rows=tuple(
            (
                label(row),
                *(_cell(row[key], key) for key in ("calls", "refused_calls", "refused_ratio")),
                " to ".join(_cell(row[key], key) for key in ("refused_low_ratio", "refused_high_ratio")),
                *(
                    _cell(row[key], key)
                    for key in ("tries", "refused_tries", "given_up_calls", "headers_p50_ms")
                ),
            )
            for row in rows
        ),
    )  # fmt: skip


def _turn_label(row: Row) -> str:
    first, last = row["turn_from"], row["turn_to"]
    if last is None:
        return f"{first} and later"
    return str(first) if first == last else f"{first} – {last}"


def outcomes_table(answers: Answers) -> Table:
    """What became of each try."""
    rows = answers.tables["tries_by_outcome"]
    return _rows_table(
        [row | {"outcome": _OUTCOMES.get(str(row["outcome"]), str(row["outcome"]))} for row in rows],
        {
            "outcome": "outcome",
            "tries": "tries",
            "calls": "calls",
            "last_tries": "of them the last of the call",
        },
    )


def identities_table(answers: Answers) -> Table:
    """Sessions whose ids were faulty beside honest ones; without rows if there are none."""
    return _rows_table(
        answers.tables["by_identity_fault"],
        {
            "ids": "ids",
            "sessions": "sessions",
            "lost_sessions": "lost",
            "calls": "calls",
            "refused_calls": "refused",
            "refused_ratio": "share refused",
            "reported_ratio": "prompt tokens cached",
            "bound_ratio": "unlimited cache",
            "cache_calls": "of calls",
            "ttft_service_p50_ms": "TTFT from sent, p50, ms",
            "ttft_service_p95_ms": "p95, ms",
            "ttft_calls": "n",
        },
        f"{METRICS['by_identity_fault'].population}. A call is refused if one of its tries was.",
    )


def _admission_facts(answers: Answers) -> tuple[tuple[str, str], ...]:
    names = (
        "tries", "refused_tries", "retried_calls", "backoff_s", "backoff_sessions", "waiting_sessions",
        "refused_tries_ratio", "refused_once_ratio", "lost_prefill_tokens", "slow_headers_calls",
        "headers_queue_correlation",
    )  # fmt: skip
    return tuple((METRICS[name].title, _fact_text(name, answers.numbers[name])) for name in names)


def _fact_text(name: str, value: Number) -> str:
    if name.endswith("_ratio"):
        return text_from_ratio(value)
    # What is counted stands in the title already.
    unit = METRICS[name].unit
    return text_from_value(value, unit if unit in ("s", "tokens", "ρ") else "")


def errors_table(answers: Answers) -> Table:
    """Errors by kind and status."""
    return _rows_table(
        [row | {"overload": "yes" if row["overload"] else "no"} for row in answers.tables["errors_by_kind"]],
        {
            "error": "kind",
            "status": "status",
            "overload": "overload",
            "calls": "calls",
            "sessions": "sessions",
            "retry_after_s": "Retry-After, s",
            "example": "first text",
        },
    )


def error_sentence(row: Row) -> str:
    """One row of the errors in a line."""
    status = "" if row["status"] is None else f" {row['status']}"
    overload = " (overload)" if row["overload"] and row["error"] != "refused" else ""
    wait = "" if row["retry_after_s"] is None else f", Retry-After {row['retry_after_s']:g} s"
    text = "" if row["example"] is None else f": {row['example']}"
    return f"{row['calls']:,} {row['error']}{status}{overload}, sessions: {row['sessions']:,}{wait}{text}"


def _share(part: Number, whole: Number) -> str:
    return text_from_ratio(None if part is None or not whole else part / whole)


def _rows_table(rows: list[Row], heads: dict[str, str], caption: str = "") -> Table:
    return Table(
        caption=caption,
        columns=tuple(heads.values()),
        rows=tuple(tuple(_cell(row[key], key) for key in heads) for row in rows),
    )


def _cell(value: float | str | None, key: str) -> str:
    if isinstance(value, str):
        return value
    if key.endswith("_ratio"):
        return text_from_ratio(value)
    # A status is a name, not an amount: its digits are not grouped.
    return str(value) if key == "status" and value is not None else text_from_value(value, "")


def _gap_table(report: Report) -> Table:
    """Rows by kind of call and gap; the gap in the recording has a column of its own where it was another."""
    scale = report.facts.header.time_scale
    is_scaled = scale not in (0, 1)
    counts_and_shares = (
        "calls", "input_tokens", "reported_tokens", "bound_tokens", "reported_ratio", "bound_ratio",
    )  # fmt: skip
    return Table(
        caption="Sub-agents and trees begin with a prompt of their own; no gap of theirs is to be survived.",
        columns=(
            "call",
            "gap as played",
            *(("gap in the recording",) if is_scaled else ()),
            "calls",
            "prompt tokens",
            "reported",
            "unlimited cache",
            "reported share",
            "unlimited share",
        ),
        rows=tuple(
            (
                KIND_NAMES[str(row["kind"])],
                gap_label(row["gap_from_s"], row["gap_to_s"]),
                *((_recorded_gap(row, scale),) if is_scaled else ()),
                *(_cell(row[key], key) for key in counts_and_shares),
            )
            for row in report.answers.tables["cache_by_gap"]
        ),
    )


def _recorded_gap(row: Row, scale: float) -> str:
    low, high = (
        None if row[border] is None else float(row[border] or 0) / scale
        for border in ("gap_from_s", "gap_to_s")
    )
    return gap_label(low, high)


def _interval_sentences(answers: Answers) -> tuple[str, ...]:
    sentences = []
    for name in ("ttft_service_ms", "ttft_user_ms"):
        spread = answers.spreads[name]
        parts = [
            f"{label} {_interval_text(interval)}"
            for label, interval in (("p50", spread.p50_interval), ("p95", spread.p95_interval))
            if interval is not None
        ]
        if parts:
            sentences.append(
                f"{METRICS[name].title}, 95 % intervals over {spread.sessions:,} sessions: {', '.join(parts)} ms."
            )
    return tuple(sentences)


def _interval_text(interval: Interval) -> str:
    return f"{text_from_float(interval.low)} to {text_from_float(interval.high)}"


def _time_scale_sentence(report: Report) -> str:
    scale = report.facts.header.time_scale
    if scale == 1:
        effect = "Gaps were played as recorded, up to caps."
    else:
        effect = (
            f"Gaps were played × {scale:g}, up to caps. Cached prefixes therefore had "
            f"{'less' if scale < 1 else 'more'} time to be evicted than in the recording."
        )
    return (
        f"{effect} Sessions are compared with what they would take at recorded durations of answers and these gaps; "
        "slowdown is the time in this run / the time expected from the recording at this time scale, so below 1 = faster "
        "than the recorded endpoint. The time as recorded, gaps not scaled, is given for reference."
    )


def _cache_notes(report: Report) -> tuple[str, ...]:
    trace = report.facts.trace_header
    notes = [
        (
            "The bound is what a cache without limits could have served, had every prompt been reusable from the moment "
            "it was sent. What it had and the endpoint did not serve from its cache is what eviction, routing, block "
            "alignment and overlap in time cost."
        )
    ]
    if trace is not None:
        notes.append(
            f"Prefixes are matched in the trace's blocks of {trace.block_size:,} {trace.unit}; what two prompts share "
            "of the block in which they part is not counted."
        )
        if trace.block_scope == "tree" and not report.facts.header.share_system:
            notes.append(
                "The trace's source cannot tell equal content in two trees, so the bound has nothing between trees; "
                "real trees of one harness share tools and system prompt (see --share-system of the replay)."
            )
        if trace.unit == "bytes":
            notes.append("Shares of prompts are shares of bytes, applied to the tokens of each call.")
    if report.facts.header.history == "live":
        notes.append(
            "History is live: the endpoint may have kept its own answers, which the bound does not count."
        )
    return tuple(notes)


def _client_check(check: ClientCheck | None) -> tuple[tuple[str, str], ...]:
    """What a trial before the run said of the client's times; nothing if there was none."""
    if check is None:
        return ()
    load = f"at {check.calls_per_s:g} calls/s and {check.reached_events_per_s:,.0f} events/s"

    def spread(p50_ns: int, p99_ns: int) -> str:
        return f"p50 {text_from_value(p50_ns / NS_PER_MS, 'ms')}, p99 {text_from_value(p99_ns / NS_PER_MS, 'ms')}"

    return (
        (f"TTFT error in a trial {load}", spread(check.ttft_error_p50_ns, check.ttft_error_p99_ns)),
        ("lateness in that trial", spread(check.lateness_p50_ns, check.lateness_p99_ns)),
    )


def _client(answers: Answers) -> tuple[tuple[str, str], ...]:
    numbers = answers.numbers
    return (
        (METRICS["loop_lag_p99_ms"].title, text_from_value(numbers["loop_lag_p99_ms"], "ms")),
        (METRICS["cpu_ratio"].title, text_from_ratio(numbers["cpu_ratio"])),
        (METRICS["prompt_size_ratio"].title, text_from_ratio(numbers["prompt_size_ratio"])),
        (METRICS["output_size_ratio"].title, text_from_ratio(numbers["output_size_ratio"])),
        (METRICS["output_tokens_per_s"].title, text_from_value(numbers["output_tokens_per_s"], "tokens/s")),
        (METRICS["unparsed_events"].title, text_from_value(numbers["unparsed_events"], "")),
        (METRICS["scrapes"].title, _scrapes_text(numbers)),
        (METRICS["engine_preemptions"].title, text_from_value(numbers["engine_preemptions"], "")),
        (METRICS["engine_rejections"].title, text_from_value(numbers["engine_rejections"], "")),
    )


def _scrapes_text(numbers: dict[str, Number]) -> str:
    if not numbers["scrapes"]:
        return "none were taken"
    longest = text_from_seconds(numbers["longest_scrape_gap_s"])
    return f"{numbers['scrapes']:,}, {numbers['failed_scrapes']:,} failed, longest time without one {longest}"
