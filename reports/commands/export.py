"""I/O: `aitrace export`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

import click

from aitrace.commands.output import check_output, write_file
from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, InputError, UsageError
from aitrace.results import CallResult
from aitrace.runstore import RunReader
from aitrace.store import TraceReader
from reports.export.links import TraceLinks, links_from_lines
from reports.export.source import RunSource, public_source

FormatName = Literal["csv", "parquet", "json", "perfetto", "llm-d", "otlp"]
_NEEDS_TRACE = ("json", "perfetto", "llm-d", "otlp")


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(FormatName)),
    required=True,
    help="What to write: one row per call (csv, parquet), all of the run (json), a timeline for the Perfetto UI "
    "(perfetto), a benchmark report of llm-d 0.2.1 (llm-d), or OpenTelemetry spans (otlp).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="File to write, - for stdout.",
)
@click.option(
    "--error-texts", is_flag=True, help="Include what the endpoint said of errors; it may quote a prompt."
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.pass_context
def export(
    ctx: click.Context, run: Path, form: FormatName, output: Path, *, error_texts: bool, force: bool
) -> None:
    """Write a run in a form that other programs read.

    RUN is the directory that `aitrace replay` wrote. The exit code is 1 if the run was cut: what is there is exported.

    \b
    Example:
      aitrace export run/ --format perfetto -o timeline.json
    """
    to_stdout = str(output) == "-"
    if to_stdout and form == "parquet":
        raise UsageError("parquet is no text for stdout", hint="name a file with -o")
    if not to_stdout:
        check_output(output, force=force)
    from reports.export.writing import write_stdout  # noqa: PLC0415 - polars only when needed

    reader = RunReader(run)
    counted = _Counted(reader.calls)
    source = RunSource(
        header=reader.header,
        end=reader.end,
        calls=counted.calls,
        scrapes=reader.scrapes,
        links=_links_of(reader) if form in _NEEDS_TRACE else None,
    )
    write = _writer(form, public_source(source, error_texts=error_texts))
    if to_stdout:
        write_stdout(write)
    else:
        write_file(output, write)
    doubts = list(_doubts(source, counted.count, reader.lines_lost))
    for doubt in doubts:
        click.echo(f"Warning: {doubt}", err=True)
    click.echo(f"wrote {'stdout' if to_stdout else output}: {counted.count:,} calls as {form}", err=True)
    ctx.exit(EXIT_IN_DOUBT if doubts else EXIT_OK)


class _Counted:
    """The calls of a run, with how many the last pass over them gave."""

    def __init__(self, calls: Callable[[], Iterator[CallResult]]) -> None:
        self._calls = calls
        self.count = 0

    def calls(self) -> Iterator[CallResult]:
        self.count = 0
        for call in self._calls():
            self.count += 1
            yield call


def _writer(form: FormatName, source: RunSource) -> Callable[[Path], None]:
    from reports.export import json_text, llm_d, otlp, perfetto, rows, writing  # noqa: PLC0415 - as above

    if form == "parquet":
        return lambda path: writing.write_parquet(source, path)
    chunks = {
        "csv": rows.csv_chunks,
        "json": json_text.json_chunks,
        "perfetto": perfetto.perfetto_chunks,
        "llm-d": llm_d.llm_d_chunks,
        "otlp": otlp.otlp_chunks,
    }[form]
    return lambda path: writing.write_chunks(chunks(source), path)


def _links_of(reader: RunReader) -> TraceLinks | None:
    """What the trace adds; None if the directory no longer holds it in a form that can be read."""
    if not reader.trace_path.exists():
        click.echo(
            "Warning: exported without dependencies and names of agents: no trace in the run directory",
            err=True,
        )
        return None
    try:
        return links_from_lines(line for _, line in TraceReader(reader.trace_path))
    except InputError as error:
        click.echo(f"Warning: exported without dependencies and names of agents: {error}", err=True)
        return None


def _doubts(source: RunSource, calls: int, lines_lost: int) -> Iterator[str]:
    missing = max(0, source.planned_calls - calls)
    if source.end is None:
        yield f"the run has no end record: it was cut, {missing:,} of {source.planned_calls:,} planned calls left no result"
    elif missing:
        yield f"{missing:,} of {source.planned_calls:,} planned calls left no result"
    if lines_lost:
        yield f"a line at the end of {lines_lost} of the run's files was cut and is left out"
