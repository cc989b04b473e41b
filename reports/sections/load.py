"""Pure: the load over the run, how the client and the engine fared, and who served the calls."""

from aitrace.results import ClientCheck
from aitrace.units import NS_PER_MS
from reports.answers import Answers
from reports.document import Block, Heading, Pairs, Section, Table, Words
from reports.figures.load_charts import load_over_time
from reports.metric import Number
from reports.metrics import METRICS
from reports.sections.cells import rows_table
from reports.summary import Report
from reports.words import text_from_ratio, text_from_seconds, text_from_value


def load_section(report: Report) -> Section:
    """Load over the run with the engines' gauges, workers, and the client's numbers."""
    workers, processes = workers_table(report.answers), processes_table(report.answers)
    blocks: list[Block] = [load_over_time(report)]
    if not report.answers.numbers["scrapes"]:
        blocks.append(
            Words(text="The engine's metrics were not read; --metrics names their page.", tone="note")
        )
    blocks.append(Pairs(pairs=client_pairs(report)))
    if workers.rows:
        blocks += [Heading(text="By the worker that computed the prompt", id="workers"), workers]
    if processes.rows:
        blocks += [Heading(text="Processes of the client"), processes]
    return Section(id="load", title="Load, engine and client", blocks=tuple(blocks))


def workers_table(answers: Answers) -> Table:
    """Calls, cached share and TTFT per worker; without rows if no call tells its worker."""
    rows = [
        row | {"worker": "not told" if row["worker"] is None else row["worker"]}
        for row in answers.tables["by_worker"]
    ]
    return rows_table(
        rows,
        {
            "worker": "worker",
            "calls": "calls",
            "complete_calls": "complete",
            "sessions": "sessions",
            "input_tokens": "prompt tokens",
            "reported_ratio": "cached",
            "cache_calls": "of calls",
            "ttft_service_n": "TTFT from sent: n",
            "ttft_service_p50_ms": "p50, ms",
            "ttft_service_p95_ms": "p95, ms",
        },
        f"{METRICS['by_worker'].population}.",
    )


def processes_table(answers: Answers) -> Table:
    """The processes that played the run; without rows if it was one."""
    return rows_table(
        [
            row | {"process": str(row["process"]), "lost": "yes" if row["lost"] else "no"}
            for row in answers.tables["client_processes"]
        ],
        {
            "process": "process",
            "sent_calls": "calls sent",
            "cpu_ratio": "CPU",
            "loop_lag_p99_ms": "event loop lag, p99, ms",
            "late_bodies": "requests built late",
            "lost": "lost",
        },
    )


def client_pairs(report: Report) -> tuple[tuple[str, str], ...]:
    """How the replaying process and the engine fared: name and value."""
    return (*_client(report.answers), *client_check_pairs(report.facts.header.client_check))


def client_check_pairs(check: ClientCheck | None) -> tuple[tuple[str, str], ...]:
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
