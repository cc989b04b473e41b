"""I/O: the report on a terminal, with rich; everything that came from outside is printed without control characters."""

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from reports.page import Table, cache_table, errors_table, sizes_table, spread_table, what_was_run
from reports.summary import Report
from reports.words import printable


def print_report(report: Report, console: Console) -> None:
    """Verdict first, then what the page says in its tables."""
    style = "bold green" if report.is_fine else "bold yellow"
    console.print(Text(printable(report.verdict), style=style))
    for doubt in report.doubts:
        head = doubt.what if doubt.weighs else f"{doubt.what} (note)"
        console.print(Text(f"  {printable(head)}: {doubt.cause}; {doubt.action}", style="dim"))
    run = dict(what_was_run(report))
    shown = ("endpoint", "protocol", "model", "trace", "arrival", "time scale of gaps", "duration")
    console.print(Text(printable(" · ".join(f"{name} {run[name]}" for name in shown))))
    _print_table(console, "Counts", sizes_table(report.answers))
    _print_table(
        console,
        "Times",
        spread_table(
            report.answers,
            (
                "ttft_service_ms",
                "ttft_user_ms",
                "itl_ms",
                "longest_stall_ms",
                "output_speed_tokens_per_s",
                "lateness_ms",
                "session_duration_s",
                "session_slowdown_ratio",
            ),
            "",
        ),
    )
    _print_table(console, "Prefix cache", cache_table(report.answers))
    errors = errors_table(report.answers)
    if errors.rows:
        _print_table(console, "Errors and refusals", errors)


def _print_table(console: Console, title: str, table: Table) -> None:
    drawn = RichTable(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        expand=False,
    )
    for place, column in enumerate(table.columns):
        # Numbers stay whole; names and the texts of errors may be long.
        is_text = place == 0 or column == "first text"
        drawn.add_column(
            Text(column), justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
        )
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(drawn)
