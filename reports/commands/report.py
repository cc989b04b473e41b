"""I/O: `aitrace report`."""

from pathlib import Path

import click
import orjson

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, InputError, UsageError
from aitrace.runstore import Run, read_run
from aitrace.schema import Trace
from aitrace.store import read_trace


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Page to write.  [default: RUN/report.html]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON instead of tables.")
@click.option("--no-html", is_flag=True, help="Write no page.")
@click.pass_context
def report(ctx: click.Context, run: Path, output: Path | None, *, as_json: bool, no_html: bool) -> None:
    """Turn a run into one HTML page and a summary.

    RUN is the directory that `aitrace replay` wrote. The exit code is 1 if the run is in doubt: the verdict and the
    page say why.

    \b
    Example:
      aitrace replay all.aitrace --url http://127.0.0.1:8000 --protocol chat -o run/
      aitrace report run/ -o report.html
    """
    if no_html and output is not None:
        raise UsageError("--no-html and --output exclude each other")
    from reports.summary import json_from_report, report_from_facts  # noqa: PLC0415 - polars only when needed
    from reports.tables import facts_from_run  # noqa: PLC0415 - same

    stored = read_run(run)
    facts = facts_from_run(
        stored.header,
        stored.end,
        stored.calls,
        stored.scrapes,
        _trace_of(stored),
        lines_lost=stored.lines_lost,
    )
    judged = report_from_facts(facts)
    page = None if no_html else output or run / "report.html"
    if page is not None:
        from reports.html import html_from_report  # noqa: PLC0415 - same

        _write(page, html_from_report(judged))
    if as_json:
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        click.echo(orjson.dumps(json_from_report(judged), option=options).decode(), nl=False)
    else:
        from rich.console import Console  # noqa: PLC0415 - same

        from reports.text import print_report  # noqa: PLC0415 - same

        print_report(judged, Console())
    if page is not None:
        # The last line, so that it is what stands above the next prompt.
        click.echo(f"wrote {page}", err=True)
    ctx.exit(EXIT_OK if judged.is_fine else EXIT_IN_DOUBT)


def _trace_of(run: Run) -> Trace | None:
    """The trace that was played; None if the directory no longer holds it in a form that can be read."""
    if not run.trace_path.exists():
        return None
    try:
        return read_trace(run.trace_path)
    except InputError as error:
        # The calls are there all the same; the report notes what it cannot tell without a trace.
        click.echo(f"Warning: reported without the trace: {error}", err=True)
        return None


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror}",
            hint="Name a file in a directory that you may write to with -o.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
