"""I/O: the report on a terminal, with rich; everything that came from outside is printed without control characters."""

import textwrap
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from aitrace.doubts import Doubt
from reports.cache.gap_text import gap_finding, gap_scale
from reports.cache.text import losses_finding, survival_finding
from reports.document import Table
from reports.sections.admission import admission_table, lost_table
from reports.sections.cache import cache_table
from reports.sections.calls import error_sentence, sizes_table
from reports.sections.cells import spread_line, spread_table
from reports.sections.latency import kind_table
from reports.sections.load import client_pairs, workers_table
from reports.sections.run import what_was_run
from reports.sections.schedule import caps_sentence
from reports.sections.sessions import number_pairs, parts_table, slowdown_sentence
from reports.summary import Report
from reports.words import printable

_LATENCY = (
    "ttft_service_ms",
    "ttft_user_ms",
    "headers_ms",
    "itl_ms",
    "longest_stall_ms",
    "output_speed_tokens_per_s",
)
_SESSIONS = (
    "session_duration_s",
    "session_expected_s",
    "session_slowdown_ratio",
    "session_unloaded_slowdown_ratio",
    "tree_duration_s",
)
_SCHEDULE = ("client_lateness_ms", "gap_error_ms", "tree_start_error_ms")
_RATES = (
    "trees_per_h",
    "output_tokens_per_s",
    "calls_in_flight_max",
    "sessions_active_max",
    "slowdown_jain_ratio",
)
_RUN_LINES = (
    ("endpoint", "protocol", "model"),
    ("trace", "time scale of gaps", "duration"),
    ("arrival",),
    ("steady window",),
)
_ADMISSION_COLUMNS = ("", "calls", "refused at first", "95 % interval", "headers p50, ms")
_LOST_COLUMNS = ("session", "turn", "why", "tries", "prefill tokens lost")
_PART_COLUMNS = ("part", "n", "complete sessions, s", "share", "share of a session: p50", "p95")
_WORKER_COLUMNS = ("worker", "calls", "cached", "TTFT from sent: n", "p50, ms", "p95, ms")
_LOST_ROWS = 5
_ON_THE_PAGE = "Latency by turn, prompt size, tokens not cached and gap before is on the page and in --json."
_COLUMN_GAP = 3


def print_report(report: Report, console: Console) -> None:
    """Verdict first, then what the page's sections say, in short."""
    answers = report.answers
    print_verdict(console, report.verdict, report.doubts, is_fine=report.is_fine)
    run = dict(what_was_run(report))
    for names in _RUN_LINES:
        print_text(console, " · ".join(f"{name} {run[name]}" for name in names))
    console.print()
    print_table(console, "Counts", sizes_table(answers))
    if answers.numbers["refused_tries"]:
        print_table(console, "Admission", admission_table(answers).of_columns(*_ADMISSION_COLUMNS))
    lost = lost_table(answers)
    if lost.rows:
        print_table(console, "Lost sessions", lost.of_columns(*_LOST_COLUMNS, rows=_LOST_ROWS))
        left_out = int(answers.numbers["lost_sessions"] or 0) - _LOST_ROWS
        if left_out > 0:
            print_text(console, f"And {left_out:,} more: see the page and --json.", style="dim")
            console.print()
    print_table(console, "Latency", spread_table(answers, _LATENCY))
    if answers.tables["latency_by_class"]:
        print_table(console, "", kind_table(answers, "latency_by_class", ("ttft_service", "itl")))
        print_text(console, _ON_THE_PAGE, style="dim")
        console.print()
    print_text(console, "Sessions", style="bold")
    print_text(console, slowdown_sentence(answers))
    print_text(console, _line(number_pairs(answers, _RATES)))
    known = tuple(name for name in _SESSIONS if answers.spreads[name].count)
    if known:
        print_table(console, "", spread_table(answers, known))
    parts = parts_table(answers, with_empty=False)
    if parts.rows:
        print_table(console, "What their time went into", parts.of_columns(*_PART_COLUMNS))
    if not known and not parts.rows:
        console.print()
    print_table(console, "Prefix cache", cache_table(answers))
    finding = gap_finding(report)
    gaps = None if finding is None else " ".join(filter(None, (finding, gap_scale(report))))
    findings = [text for text in (gaps, survival_finding(report), losses_finding(report)) if text is not None]
    for text in findings:
        print_text(console, text)
    if findings:
        console.print()
    print_text(console, "Engine and client", style="bold")
    print_text(console, _line(client_pairs(report)))
    console.print()
    workers = workers_table(answers)
    if workers.rows:
        print_table(console, "By worker", workers.of_columns(*_WORKER_COLUMNS))
    print_text(console, "Schedule", style="bold")
    print_text(console, " · ".join(spread_line(answers, name) for name in _SCHEDULE))
    print_text(console, caps_sentence(answers))
    if answers.tables["errors_by_kind"]:
        console.print()
        print_text(console, "Errors and refusals", style="bold")
        for row in answers.tables["errors_by_kind"]:
            print_text(console, error_sentence(row), indent=2)


def _line(pairs: tuple[tuple[str, str], ...]) -> str:
    return " · ".join(f"{name} {value}" for name, value in pairs)


def print_verdict(console: Console, verdict: str, doubts: Sequence[Doubt], *, is_fine: bool) -> None:
    """The verdict, and each doubt with its cause and what to do."""
    print_text(console, verdict, style="bold green" if is_fine else "bold yellow")
    for doubt in doubts:
        print_text(console, doubt.what if doubt.weighs else f"{doubt.what} (note)", indent=2)
        print_text(console, "; ".join(filter(None, (doubt.cause, doubt.action))), indent=4, style="dim")
    console.print()


def print_text(console: Console, text: str, *, indent: int = 0, style: str = "") -> None:
    margin = " " * indent
    wrapped = textwrap.fill(
        printable(text),
        width=console.width,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print(Text(wrapped, style=style), soft_wrap=True)


def print_table(console: Console, title: str, table: Table) -> None:
    """A table, or, where the terminal is too narrow for one, a paragraph for each of its rows.

    Heads, the names of rows, and sentences in the last column may take several lines; numbers may not.
    """
    if _least_width(table) > console.width:
        _print_rows(console, title, table)
        return
    drawn = RichTable(
        title=Text(printable(title)) if title else None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
    )
    for place, (column, least) in enumerate(zip(table.columns, _least_widths(table), strict=True)):
        justify: JustifyMethod = "left" if _may_wrap(table, place) else "right"
        drawn.add_column(Text(printable(column)), justify=justify, min_width=least)
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(drawn)
    console.print()


def _least_width(table: Table) -> int:
    """Width of a terminal in which the table breaks no number and no word."""
    widths = _least_widths(table)
    return sum(widths) + _COLUMN_GAP * len(widths)


def _least_widths(table: Table) -> list[int]:
    widths = []
    for place, head in enumerate(table.columns):
        cells = [printable(row[place]) for row in table.rows]
        parts = [*printable(head).split(), *(" ".join(cells).split() if _may_wrap(table, place) else cells)]
        widths.append(max(map(cell_len, parts), default=0))
    return widths


def _may_wrap(table: Table, place: int) -> bool:
    return place == 0 or (table.has_prose and place == len(table.columns) - 1)


def _print_rows(console: Console, title: str, table: Table) -> None:
    if title:
        print_text(console, title, style="bold")
    for row in table.rows:
        told = ", ".join(f"{head} {cell}" for head, cell in zip(table.columns[1:], row[1:], strict=True))
        print_text(console, f"{row[0]}: {told}", indent=2)
    console.print()
