"""I/O: `aitrace report`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from aitrace.commands.output import write_text_file
from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, InputError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from reports.document import Document

_STDIN = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A run or a trace judged, and the ways to show it."""

    is_fine: bool
    """Whether no doubt weighs."""
    page: Path | None
    """Where its page goes if nothing else is said; None if there is no place for it."""
    document: "Callable[[], Document]"
    """Makes the page."""
    values: Callable[[], dict[str, Any]]
    """Makes the JSON."""
    show: "Callable[[Console], None]"
    """Prints the tables."""


@click.command()
@click.argument("source", metavar="RUN|TRACE", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Page to write.  [default: RUN/report.html; beside the trace, TRACE with .report.html]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON instead of tables.")
@click.option("--no-html", is_flag=True, help="Write no page.")
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="JSON with USD per million tokens by model, to count what a trace cost; see docs/report-trace.md.",
)
@click.option(
    "--unloaded",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Run at the same endpoint without load, to estimate what sessions would take without any.  [default: the calls of "
    "the run itself that had the endpoint for themselves]",
)
@click.pass_context
def report(
    ctx: click.Context,
    source: Path,
    output: Path | None,
    *,
    as_json: bool,
    no_html: bool,
    prices: Path | None,
    unloaded: Path | None,
) -> None:
    """Turn a run, or a recorded trace, into one HTML page and a summary.

    RUN is the directory that `aitrace replay` wrote; TRACE is a file, and then the report tells what was recorded. TRACE
    may be - for stdin. The exit code is 1 if it is in doubt: the verdict and the page say why.

    \b
    Example:
      aitrace replay all.aitrace --url http://127.0.0.1:8000 --protocol chat -o run/
      aitrace report run/ -o report.html
      aitrace report examples/claude-code.aitrace -o recorded.html
    """
    if no_html and output is not None:
        raise UsageError("--no-html and --output exclude each other")
    is_trace = source == _STDIN or source.is_file()
    if prices is not None and not is_trace:
        raise UsageError("--prices is for traces, and this is a run", hint="give the trace that was recorded")
    if unloaded is not None and is_trace:
        raise UsageError(
            "--unloaded is for runs, and this is a trace", hint="give the directory that a replay wrote"
        )
    judged = _judged_trace(ctx, source, prices) if is_trace else _judged_run(ctx, source, unloaded)
    page = None if no_html else output or judged.page
    if page is not None:
        from reports.html import html_from_document  # noqa: PLC0415 - polars and plotly only when needed

        write_text_file(page, html_from_document(judged.document()))
    if as_json:
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        click.echo(orjson.dumps(judged.values(), option=options).decode(), nl=False)
    else:
        from aitrace.commands.terminal import Terminal  # noqa: PLC0415 - same

        judged.show(Terminal())
    if page is not None:
        # The last line, so that it is what stands above the next prompt.
        click.echo(f"wrote {page}", err=True)
    ctx.exit(EXIT_OK if judged.is_fine else EXIT_IN_DOUBT)


def _judged_run(ctx: click.Context, run: Path, unloaded: Path | None) -> _Judged:
    from reports.loading import facts_of_run  # noqa: PLC0415 - polars only when needed
    from reports.run_document import document_of_run  # noqa: PLC0415 - same
    from reports.summary import json_from_report, report_from_facts  # noqa: PLC0415 - same
    from reports.text import print_report  # noqa: PLC0415 - same

    facts = ctx.with_resource(facts_of_run(run, warn=_warn_of_trace))
    if unloaded is not None:
        facts = replace(facts, unloaded=ctx.with_resource(facts_of_run(unloaded, warn=_warn_of_trace)))
    judged = report_from_facts(facts)
    return _Judged(
        is_fine=judged.is_fine,
        page=run / "report.html",
        document=lambda: document_of_run(judged),
        values=lambda: json_from_report(judged),
        show=lambda console: print_report(judged, console),
    )


def _judged_trace(ctx: click.Context, path: Path, prices: Path | None) -> _Judged:
    from aitrace.stored_trace import stored_trace  # noqa: PLC0415 - polars only when needed
    from reports.recorded.document import document_of_trace  # noqa: PLC0415 - same
    from reports.recorded.prices import prices_from_json  # noqa: PLC0415 - same
    from reports.recorded.summary import json_from_trace_report, report_from_trace  # noqa: PLC0415 - same
    from reports.recorded.text import print_trace_report  # noqa: PLC0415 - same

    table = None if prices is None else prices_from_json(_read(prices), place=str(prices))
    stored = ctx.with_resource(stored_trace(path))
    name = "standard input" if path == _STDIN else path.name
    judged = report_from_trace(stored.trace, name, table)
    return _Judged(
        is_fine=judged.is_fine,
        page=None if path == _STDIN else path.with_name(f"{path.stem}.report.html"),
        document=lambda: document_of_trace(judged),
        values=lambda: json_from_trace_report(judged),
        show=lambda console: print_trace_report(judged, console),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}", hint="see --prices in --help"
        ) from error


def _warn_of_trace(error: InputError) -> None:
    # The calls are there all the same; the report notes what it cannot tell without a trace.
    click.echo(f"Warning: reported without the trace: {error}", err=True)
