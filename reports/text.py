"""I/O: the report on a terminal, with rich; everything that came from outside is printed without control characters."""

import textwrap

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from reports.gap_text import gap_finding, gap_scale
from reports.page import (
    Table,
    cache_table,
    error_sentence,
    short_admission_table,
    sizes_table,
    spread_table,
    what_was_run,
)
from reports.summary import Report
from reports.words import printable

_TIMES = (
    "ttft_service_ms",
    "ttft_user_ms",
    "itl_ms",
    "longest_stall_ms",
    "output_speed_tokens_per_s",
    "client_lateness_ms",
    "session_duration_s",
    "session_slowdown_ratio",
)
_RUN_LINES = (
    ("endpoint", "protocol", "model"),
    ("trace", "time scale of gaps", "duration"),
    ("arrival",),
    ("steady window",),
)


def print_report(report: Report, console: Console) -> None:
    """Verdict first, then what the page says in its tables."""
    answers = report.answers
    _print_text(console, report.verdict, style="bold green" if report.is_fine else "bold yellow")
    for doubt in report.doubts:
        _print_text(console, doubt.what if doubt.weighs else f"{doubt.what} (note)", indent=2)
        _print_text(console, "; ".join(filter(None, (doubt.cause, doubt.action))), indent=4, style="dim")
    console.print()
    run = dict(what_was_run(report))
    for names in _RUN_LINES:
        _print_text(console, " · ".join(f"{name} {run[name]}" for name in names))
    console.print()
    _print_table(console, "Counts", sizes_table(answers))
    _print_table(console, "Admission", short_admission_table(answers))
    _print_table(console, "Times", spread_table(answers, _TIMES))
    _print_table(console, "Prefix cache", cache_table(answers))
    finding = gap_finding(report)
    if finding is not None:
        _print_text(console, " ".join(filter(None, (finding, gap_scale(report)))))
        console.print()
    if answers.tables["errors_by_kind"]:
        _print_text(console, "Errors and refusals", style="bold")
        for row in answers.tables["errors_by_kind"]:
            _print_text(console, error_sentence(row), indent=2)


def _print_text(console: Console, text: str, *, indent: int = 0, style: str = "") -> None:
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


def _print_table(console: Console, title: str, table: Table) -> None:
    drawn = RichTable(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for place, column in enumerate(table.columns):
        drawn.add_column(Text(column), justify="right" if place else "left", no_wrap=place > 0)
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(drawn)
