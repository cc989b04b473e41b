"""Pure: the words and tables of the page, section by section; the terminal's summary uses the same."""

import datetime as dt
from dataclasses import dataclass

from reports.answers import Answers
from reports.metric import Number, Row
from reports.metrics import METRICS
from reports.stats import Interval
from reports.summary import Report
from reports.words import (
    NOT_KNOWN,
    gap_label,
    quantile_texts,
    text_from_float,
    text_from_ratio,
    text_from_seconds,
    text_from_value,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts."""

    caption: str
    """Population and what else must be known to read it."""
    columns: tuple[str, ...]
    """Heads."""
    rows: tuple[tuple[str, ...], ...]
    """Cells; the first of each row names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageText:
    """All text of the page that depends on the run; nothing in it is escaped yet."""

    title: str
    """Title of the page."""
    report: Report
    """For the verdict and its doubts."""
    what_was_run: tuple[tuple[str, str], ...]
    """Name and value."""
    sizes: Table
    """Trees, sessions and calls: planned, complete, lost."""
    ttft: Table
    """TTFT and its parts."""
    intervals: tuple[str, ...]
    """Confidence intervals of TTFT, one sentence each."""
    tokens: Table
    """ITL, stalls, output speed."""
    sessions: Table
    """Sessions and trees against the recording."""
    time_scale: str
    """What the time scale did to the gaps."""
    cache: Table
    """Three hit rates with numerator and denominator."""
    cache_notes: tuple[str, ...]
    """What must be known to read them."""
    gaps: Table
    """Hit rate by gap."""
    lateness: Table
    """Lateness and its parts."""
    errors: Table
    """Errors by kind and status; no rows if there are none."""
    unsent: Table
    """Calls not sent; no rows if there are none."""
    classes: Table
    """Calls by class."""
    client: tuple[tuple[str, str], ...]
    """How the replaying process fared: name and value."""


def page_text(report: Report) -> PageText:
    """Everything to be said about the run."""
    answers = report.answers
    return PageText(
        title=f"{report.facts.header.model} – {report.facts.header.trace}",
        report=report,
        what_was_run=what_was_run(report),
        sizes=sizes_table(answers),
        ttft=spread_table(
            answers, ("ttft_service_ms", "ttft_user_ms", "headers_ms", "first_visible_ms"), "Times in ms"
        ),
        intervals=_interval_sentences(answers),
        tokens=spread_table(
            answers,
            ("itl_ms", "longest_stall_ms", "output_speed_tokens_per_s", "call_duration_ms"),
            "Units by row",
        ),
        sessions=spread_table(
            answers,
            (
                "session_duration_s",
                "session_expected_s",
                "session_recorded_s",
                "session_slowdown_ratio",
                "tree_duration_s",
                "tree_expected_s",
                "tree_slowdown_ratio",
            ),
            "Times in s; a slowdown of 1 is as fast as the recording",
        ),
        time_scale=_time_scale_sentence(report),
        cache=cache_table(answers),
        cache_notes=_cache_notes(report),
        gaps=_gap_table(answers),
        lateness=spread_table(
            answers, ("lateness_ms", "client_lateness_ms", "connect_ms", "upload_ms"), "Times in ms"
        ),
        errors=errors_table(answers),
        unsent=_rows_table(
            answers.tables["unsent_by_reason"],
            ("unsent", "calls", "sessions"),
            ("reason", "calls", "sessions"),
            "unsent_by_reason",
        ),
        classes=_rows_table(
            answers.tables["by_class"],
            ("call_class", "calls", "complete_calls", "ttft_service_p50_ms", "input_tokens", "output_tokens"),
            ("class", "calls", "complete", "TTFT p50, ms", "prompt tokens", "output tokens"),
            "by_class",
        ),
        client=_client(answers),
    )


def what_was_run(report: Report) -> tuple[tuple[str, str], ...]:
    """Target, load and identity of the run."""
    header, trace = report.facts.header, report.facts.trace_header
    calibration = header.calibration
    arrival = header.options.get("arrival") or header.options.get("concurrency")
    loop = "open loop: trees start by the clock" if header.open_loop else "closed loop: lanes start trees"
    started = dt.datetime.fromtimestamp(header.started_unix_ns / 1e9, tz=dt.UTC)
    facts = [
        ("endpoint", header.url),
        ("protocol", header.protocol),
        ("model", header.model),
        ("trace", header.trace),
        ("arrival", f"{loop}{'' if arrival is None else f' ({arrival})'}"),
        ("time scale of gaps", f"× {header.time_scale:g}"),
        ("seed", str(header.seed)),
        (
            "prompt sizes",
            (
                f"{calibration.tokens_per_word:.4g} tokens per word ({calibration.source}), "
                f"{calibration.request_overhead_tokens:.4g} tokens per request beyond words"
            ),
        ),
        ("answer length", "forced" if calibration.output_forced else "not forced"),
        ("history", f"{header.history} answers in the next prompt"),
        ("system prompts", "shared between trees" if header.share_system else "as the trace shares them"),
        ("started", f"{started:%Y-%m-%d %H:%M:%S} UTC"),
        ("duration", text_from_value(report.answers.numbers["duration_s"], "s")),
        ("producer", header.producer),
    ]
    if trace is not None and trace.attribution is not None:
        facts.append(("source of the trace", trace.attribution))
    return tuple(facts)


def sizes_table(answers: Answers) -> Table:
    """Planned and complete, of calls, sessions and trees."""

    def count(name: str) -> str:
        return text_from_value(answers.numbers[name], "")

    return Table(
        caption="Failed: for another reason than a refusal. A session is lost if one of its calls failed or was not sent because of one",
        columns=("", "planned", "complete", "refused", "failed", "lost", "not sent", "no result"),
        rows=(
            (
                "calls",
                count("planned_calls"),
                count("complete_calls"),
                count("refused_calls"),
                count("failed_calls"),
                "",
                count("unsent_calls"),
                count("missing_calls"),
            ),
            (
                "sessions",
                count("planned_sessions"),
                count("complete_sessions"),
                "",
                "",
                count("lost_sessions"),
                "",
                "",
            ),
            ("trees", count("planned_trees"), count("complete_trees"), "", "", "", "", ""),
        ),
    )


def spread_table(answers: Answers, names: tuple[str, ...], caption: str) -> Table:
    """Quantiles of distributions, one per row."""
    rows = []
    for name in names:
        unit = METRICS[name].unit
        title = METRICS[name].title + (f", {unit}" if unit else "")
        rows.append((title, *quantile_texts(answers.spreads[name])))
    populations = "; ".join(f"{METRICS[name].title}: {METRICS[name].population}" for name in names)
    return Table(
        caption=f"{caption}. {populations}.",
        columns=("", "n", "p50", "p90", "p95", "p99", "max"),
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
        ("lost: bound less reported", numbers["cache_lost_tokens"], total),
    ]
    return Table(
        caption=f"{METRICS['cache_calls'].population}: n = {text_from_value(numbers['cache_calls'], '')}; "
        f"engine: {METRICS['engine_hit_tokens'].population}",
        columns=("", "tokens", "of tokens", "share"),
        rows=tuple(
            (name, text_from_value(part, ""), text_from_value(whole, ""), _share(part, whole))
            for name, part, whole in rows
        ),
    )


def errors_table(answers: Answers) -> Table:
    """Errors by kind and status."""
    return _rows_table(
        answers.tables["errors_by_kind"],
        ("error", "status", "calls", "sessions", "retry_after_s", "example"),
        ("kind", "status", "calls", "sessions", "Retry-After, median s", "first text"),
        "errors_by_kind",
    )


def _share(part: Number, whole: Number) -> str:
    return text_from_ratio(None if part is None or not whole else part / whole)


def _rows_table(rows: list[Row], keys: tuple[str, ...], heads: tuple[str, ...], metric: str) -> Table:
    return Table(
        caption=f"{METRICS[metric].population}.",
        columns=heads,
        rows=tuple(tuple(_cell(row[key], key) for key in keys) for row in rows),
    )


def _cell(value: float | str | None, key: str) -> str:
    if isinstance(value, str):
        return value
    # A status is a name, not an amount: its digits are not grouped.
    return str(value) if key == "status" and value is not None else text_from_value(value, "")


def _gap_table(answers: Answers) -> Table:
    rows = tuple(
        (
            gap_label(row["gap_from_s"], row["gap_to_s"]),
            *(_cell(row[key], key) for key in ("calls", "input_tokens", "reported_tokens", "bound_tokens")),
            *(_ratio_cell(row[key]) for key in ("reported_ratio", "bound_ratio")),
        )
        for row in answers.tables["cache_by_gap"]
    )
    return Table(
        caption="The same calls; those without a gap are the first of their tree.",
        columns=(
            "gap as played",
            "calls",
            "prompt tokens",
            "reported",
            "bound",
            "reported share",
            "bound share",
        ),
        rows=rows,
    )


def _ratio_cell(value: float | str | None) -> str:
    return value if isinstance(value, str) else text_from_ratio(value)


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
        "the time as recorded, gaps not scaled, is given for reference."
    )


def _cache_notes(report: Report) -> tuple[str, ...]:
    trace = report.facts.trace_header
    notes = [
        (
            "The bound is what a cache without limits could have served, had every prompt been reusable from the moment "
            "it was sent. Lost tokens are what eviction, routing, block alignment and overlap in time cost."
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


def _client(answers: Answers) -> tuple[tuple[str, str], ...]:
    numbers = answers.numbers
    return (
        (METRICS["loop_lag_p99_ms"].title, text_from_value(numbers["loop_lag_p99_ms"], "ms")),
        (METRICS["cpu_ratio"].title, text_from_ratio(numbers["cpu_ratio"])),
        (METRICS["scrapes"].title, _scrapes_text(numbers)),
        (METRICS["prompt_size_ratio"].title, text_from_ratio(numbers["prompt_size_ratio"])),
        (METRICS["output_size_ratio"].title, text_from_ratio(numbers["output_size_ratio"])),
        (METRICS["output_tokens_per_s"].title, text_from_value(numbers["output_tokens_per_s"], "tokens/s")),
    )


def _scrapes_text(numbers: dict[str, Number]) -> str:
    if not numbers["scrapes"]:
        return "none were taken"
    longest = numbers["longest_scrape_gap_s"]
    gap = NOT_KNOWN if longest is None else text_from_seconds(longest)
    return f"{numbers['scrapes']:,}, {numbers['failed_scrapes']:,} failed, longest time without one {gap}"
