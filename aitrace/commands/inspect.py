"""I/O: `aitrace inspect`, what is in a trace, as tables or as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import click
import orjson
from rich.console import Console
from rich.table import Table

from aitrace.errors import EXIT_IN_DOUBT, InputError
from aitrace.inspection import GapFacts, Inspection, SessionFacts, TreeFacts, inspect_trace
from aitrace.store import ReadReport, read_trace_reported
from aitrace.units import duration_from_ns, ratio_text, size_from_count

_WIDTH = 110
_CAPTURES = {
    "forward": "recorded as a forward proxy, with a certificate authority of its own",
    "reverse": "recorded as a reverse proxy, in the place of the endpoint",
}


@click.command()
@click.argument("trace", metavar="TRACE")
@click.option("--json", "as_json", is_flag=True, help="Print all facts as JSON to stdout.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="TREES",
    help="Trees to list; 0 lists all. JSON always has all.",
)
def inspect(trace: str, as_json: bool, limit: int) -> None:  # noqa: FBT001 - click passes flags by name
    """Show what is in a trace: sessions, gaps, sizes, sharing.

    TRACE may be - for stdin. Exits 1 if the file is cut or damaged: it is shown as far as it is good.

    \b
    Example:
      aitrace inspect examples/claude-code.aitrace --limit 3
    """
    read, report = read_trace_reported(trace)
    inspection = inspect_trace(read)
    if as_json:
        click.echo(_json_bytes(inspection_json(inspection, report), trace))
    else:
        _print_tables(inspection, limit or len(inspection.trees))
    if not report.clean_end:
        click.echo(loss_text(trace, report), err=True)
        click.get_current_context().exit(EXIT_IN_DOUBT)


def _json_bytes(facts: dict[str, object], trace: str) -> bytes:
    """The facts as JSON.

    Raises:
        InputError: Gaps or lengths of the trace add up to more than 64 bits, which is 292 years.
    """
    try:
        return orjson.dumps(facts)
    except orjson.JSONEncodeError as error:
        raise InputError(
            f"{trace}: its times add up to more than 64 bits hold",
            hint="aitrace inspect without --json shows the sums; the largest gap tells which times are wrong",
        ) from error


def inspection_json(inspection: Inspection, report: ReadReport) -> dict[str, object]:
    """The shape of `--json`, version 1; docs/inspect.md describes it."""
    file = {
        "lines": report.lines,
        "bytes_lost": report.bytes_lost,
        "lines_lost": report.lines_lost,
        "clean_end": report.clean_end,
        "damage": None if report.damage is None else str(report.damage),
    }
    return {"version": 1, **asdict(inspection), "file": file}


def loss_text(trace: str, report: ReadReport) -> str:
    """What a file without a clean end has lost."""
    good = f"{report.lines} whole lines"
    if report.damage is not None:
        lost = f"{report.lines_lost} lines and {report.bytes_lost} bytes are lost"
        return f"{report.damage}\nHint: shown are the {good} before it, {lost}; aitrace check {trace} lists what is wrong"
    if report.cut:
        return f"{trace}: cut after {good}: {report.bytes_lost} bytes and all that followed are lost"
    return f"{trace}: has no footer after {good}: the writer did not end cleanly, or the end is missing"


def _print_tables(inspection: Inspection, limit: int) -> None:
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    # rich would take a reader who left (`| head`) for a failure; click writes the text, as it does elsewhere.
    with console.capture() as captured:
        _print_parts(console, inspection, limit)
    click.echo(captured.get(), nl=False)


def _print_parts(console: Console, inspection: Inspection, limit: int) -> None:
    for line in _overview(inspection):
        console.print(line, markup=False)
    console.print(_tree_table(inspection.trees[:limit]))
    if len(inspection.trees) > limit:
        console.print(f"… and {len(inspection.trees) - limit} more trees (--limit 0 lists all)", markup=False)
    if inspection.gaps:
        console.print(_gap_table(inspection.gaps))
    if inspection.start_to_start:
        console.print(
            f"{inspection.start_to_start} calls are timed from the start of another one", markup=False
        )
    if inspection.unknown_gaps:
        console.print(f"{inspection.unknown_gaps} calls waited for an unknown time", markup=False)
    console.print(_sharing_table(inspection))
    for sentence in inspection.header.unknown:
        console.print(f"not known: {sentence}", markup=False)


def _overview(inspection: Inspection) -> Iterator[str]:
    header = inspection.header
    yield f"{header.source or 'no source named'}, blocks of {header.block_size} {inspection.unit}, privacy {header.privacy}"
    if header.attribution:
        yield header.attribution
    if header.capture:
        yield _CAPTURES[header.capture]
    yield (
        f"{inspection.calls} calls in {inspection.sessions} sessions of {len(inspection.trees)} trees; "
        f"{inspection.segments} segments, {inspection.blocks} blocks"
    )
    if inspection.sessions_by_harness:
        yield "sessions: " + _counted(inspection.sessions_by_harness)
    if inspection.sessions_by_evidence:
        yield "told by: " + _counted(inspection.sessions_by_evidence, "{name} ({count})")
    yield "calls: " + _counted(inspection.calls_by_class)
    failed = {name: count for name, count in inspection.calls_by_error.items() if name != "unrecorded"}
    if failed:
        yield "failed: " + _counted(failed)
    if inspection.retries:
        yield f"retries: {inspection.retries} of these calls"
    unrecorded = inspection.calls_by_error.get("unrecorded", 0)
    if unrecorded:
        yield f"still open when the recording ended, or lost to it: {unrecorded} calls"
    if inspection.calls_with_unseen_start:
        yield f"prompts that began before the recording: {inspection.calls_with_unseen_start}"
    if inspection.calls_by_transport:
        yield "carried by: " + _counted(inspection.calls_by_transport, "{name} ({count})")
    if inspection.compressed_answers:
        yield (
            "compressed answers: "
            + _counted(inspection.compressed_answers, "{name} ({count})")
            + "; their events may have been made earlier than they could be seen"
        )
    if inspection.models:
        yield "models: " + _counted(inspection.models, "{name} ({count})")
    yield f"tokens reported: {_size(inspection.input_tokens)} in, {_size(inspection.output_tokens)} out"
    sizes = inspection.prompt_sizes
    if sizes is not None:
        yield (
            f"prompt {inspection.unit}: p50 {_size(sizes.p50)}, p90 {_size(sizes.p90)}, p99 {_size(sizes.p99)}, "
            f"max {_size(sizes.max)}, total {_size(sizes.total)}"
        )
    if inspection.dropped_calls:
        yield f"dropped by the recorder: {inspection.dropped_calls} calls"


def _counted(counts: Mapping[str, int], form: str = "{count} {name}") -> str:
    return ", ".join(form.format(name=name, count=count) for name, count in counts.items())


def _tree_table(trees: Sequence[TreeFacts]) -> Table:
    table = Table(title="sessions", title_justify="left", box=None, pad_edge=False)
    for name in ("session", "agent", "name"):
        table.add_column(name, no_wrap=True)
    for name in ("calls", "turns", "windows", "prompt first", "max", "out tokens", "duration"):
        table.add_column(name, justify="right", no_wrap=True)
    for tree in trees:
        for session in tree.sessions:
            table.add_row(*_session_row(session, tree))
    return table


def _session_row(session: SessionFacts, tree: TreeFacts) -> Sequence[str]:
    turns = "" if session.depth else "–" if tree.turns is None else str(tree.turns)
    return (
        "  " * session.depth + str(session.id),
        session.agent or ("–" if session.depth else "main"),
        session.label or "–",
        str(session.calls),
        turns,
        str(session.windows),
        _size(session.first_prompt),
        _size(session.largest_prompt),
        _size(session.output_tokens),
        "–" if session.duration_ns is None else duration_from_ns(session.duration_ns),
    )


def _gap_table(gaps: Sequence[GapFacts]) -> Table:
    table = Table(title="\ngaps by cause", title_justify="left", box=None, pad_edge=False)
    table.add_column("cause", no_wrap=True)
    for name in ("count", "below 0", "p50", "p90", "p99", "max", "total"):
        table.add_column(name, justify="right", no_wrap=True)
    for gap in gaps:
        lengths = (gap.p50_ns, gap.p90_ns, gap.p99_ns, gap.max_ns, gap.total_ns)
        table.add_row(gap.cause, str(gap.count), str(gap.negative), *map(duration_from_ns, lengths))
    return table


def _sharing_table(inspection: Inspection) -> Table:
    sharing = inspection.sharing
    table = Table(title="\nsharing of prompts", title_justify="left", box=None, pad_edge=False)
    table.add_column("same prefix sent before by", no_wrap=True)
    table.add_column(inspection.unit, justify="right", no_wrap=True)
    table.add_column(f"of {sharing.prompt_units}", justify="right", no_wrap=True)
    rows = {
        "the same session": sharing.within_session,
        "another agent of the tree": sharing.between_agents,
        "another tree": sharing.between_trees,
        "nobody": sharing.new,
    }
    for name, units in rows.items():
        if units is None:
            table.add_row(name, "not known", "–")
        else:
            table.add_row(name, str(units), ratio_text(units, sharing.prompt_units))
    return table


def _size(count: int | None) -> str:
    return "–" if count is None else size_from_count(count)
