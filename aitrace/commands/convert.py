"""I/O: `aitrace convert`, from traces of other tools to one trace of aitrace."""

import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

import click
import orjson

from aitrace.assembly import Assembler
from aitrace.commands.output import check_output
from aitrace.errors import EXIT_IN_DOUBT, InputError, UsageError
from aitrace.formats.format import FORMAT_NAMES, HISTORIES, FormatName, Summary, sniffed_format
from aitrace.formats.history import BLOCK_BYTES, HistoryImporter, HistoryReading, HistorySurvey
from aitrace.formats.history_source import History, HistoryTree, find_history
from aitrace.formats.mooncake import DEFAULT_BLOCK_SIZE, MooncakeImporter, header_for, request_from_json
from aitrace.formats.source import UNREADABLE, SourceFile
from aitrace.formats.weka import WekaConversation, conversation_from_json
from aitrace.formats.weka_lines import WekaImporter, WekaSurvey
from aitrace.leak_check import leaks_in_file
from aitrace.leaks import warning_lines
from aitrace.no_text import ATTRIBUTION_CHARS, is_attribution
from aitrace.schema import Header, Line
from aitrace.store import TraceWriter, partial_path
from aitrace.units import ratio_text, size_from_count

_SHOWN_LEAKS = 20
_T = TypeVar("_T")


class _LeakError(Exception):
    """The trace holds something that must not be in one without text."""

    def __init__(self, leaks: Sequence[str], kept: Path | None) -> None:
        super().__init__(f"{len(leaks)} leaks")
        self.leaks = leaks
        """One sentence each, the found text masked."""
        self.kept = kept
        """Where the trace is; None if nowhere."""


class _Importer(Protocol):
    """What is left of an importer once it is bound to its input."""

    def summary(self) -> Summary: ...


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="OUT.aitrace",
    help="Trace to write; - for stdout.",
)
@click.option(
    "--from",
    "source_format",
    type=click.Choice(FORMAT_NAMES),
    help="Format of the input; told from the content if not given.",
)
@click.option(
    "--block-size",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help=f"Tokens of a block, for mooncake only, whose files do not say.  [default: {DEFAULT_BLOCK_SIZE}]",
)
@click.option(
    "--attribution",
    metavar="TEXT",
    help=f"Whose data this is and under which licence: one line of at most {ATTRIBUTION_CHARS} characters.",
)
@click.option("--force", is_flag=True, help="Replace OUT.aitrace if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON to stdout.")
def convert(  # noqa: PLR0917 - one parameter per option is click's way
    inputs: tuple[str, ...],
    output: Path,
    source_format: FormatName | None,
    block_size: int | None,
    attribution: str | None,
    force: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001
) -> None:
    """Turn traces of other tools, or local histories, into aitrace's format.

    Reads traces of kv-cache-tester and SemiAnalysis (weka) and of Mooncake, one JSON document or JSON lines per
    file, plain, .gz or .zst; IN may be - for stdin. Several weka inputs become one trace; of mooncake, each file is a
    trace of its own.

    Reads the histories of Claude Code (~/.claude/projects), Codex (~/.codex/sessions) and OpenCode
    (~/.local/share/opencode): directories, files of theirs, or the database. No text of theirs is written; if the
    trace holds something that looks like it nevertheless, it is left as OUT.aitrace.partial.

    \b
    Example:
      aitrace convert tests/data/weka/trace_0291.json.zst -o one.aitrace
    """
    if inputs.count("-") > 1:
        raise UsageError("stdin can be read only once, but '-' is given more often")
    if attribution is not None and not is_attribution(attribution):
        raise UsageError(
            f"--attribution {attribution[:40]!r}: expected one line of 1 to {ATTRIBUTION_CHARS} characters"
        )
    to_stdout = str(output) == "-"
    if to_stdout and as_json:
        raise UsageError("--json and -o - both write to stdout", hint="name a file for the trace")
    if not to_stdout:
        check_output(output, inputs, force=force)
    convert_to = _converter(inputs, source_format, block_size, attribution)
    try:
        summary = _through_file(convert_to) if to_stdout else convert_to(output)
    except _LeakError as error:
        kept = None if to_stdout else error.kept
        click.echo("\n".join(warning_lines(error.leaks, kept, most=_SHOWN_LEAKS)), err=True)
        sys.exit(EXIT_IN_DOUBT)
    if as_json:
        click.echo(orjson.dumps({"version": 1, "output": str(output), **asdict(summary)}))
    click.echo(summary_text(summary, "stdout" if to_stdout else str(output)), err=True)
    if any(remark.kind == UNREADABLE for remark in summary.remarks):
        sys.exit(EXIT_IN_DOUBT)


def _converter(
    inputs: Sequence[str], source_format: FormatName | None, block_size: int | None, attribution: str | None
) -> Callable[[Path], Summary]:
    """What writes the trace of the inputs, once it is known what they are."""
    history = find_history(inputs, source_format)
    sources = [SourceFile(path) for path in inputs] if history is None else []
    chosen = history.format if history is not None else source_format or _common_format(sources)
    if chosen != "mooncake" and block_size is not None:
        raise UsageError(
            "--block-size is for mooncake, weka files state theirs, histories are cut into blocks here"
        )

    def convert_to(path: Path) -> Summary:
        try:
            if history is not None:
                return _convert_history(history, path, attribution)
            if chosen == "mooncake":
                return _convert_mooncake(sources, path, block_size or DEFAULT_BLOCK_SIZE, attribution)
            return _convert_weka(sources, path, attribution)
        except InputError as error:
            error.hint = (
                error.hint or "correct the value at this place, or leave its document out of the input"
            )
            raise

    return convert_to


def _through_file(convert_to: Callable[[Path], Summary]) -> Summary:
    """Write to stdout, but nothing before the trace is whole."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "out.aitrace"
        summary = convert_to(path)
        with path.open("rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    return summary


def _common_format(sources: Sequence[SourceFile]) -> FormatName:
    formats: dict[FormatName, str] = {}
    for source in sources:
        place, document = next(source.documents(), (source.name, None))
        formats.setdefault(sniffed_format(document, place), source.name)
    if len(formats) > 1:
        told = ", ".join(f"{name} is {kind}" for kind, name in formats.items())
        raise UsageError(
            f"the inputs are of different formats: {told}", hint="convert each format on its own"
        )
    return next(iter(formats))


def _convert_weka(sources: Sequence[SourceFile], output: Path, attribution: str | None) -> Summary:
    survey = WekaSurvey()
    for conversation in _conversations(sources):
        survey.add(conversation)
    header = survey.header(producer=_producer(), attribution=attribution)
    importer = WekaImporter(header)
    # Read anew rather than kept: large sets do not fit into memory as Python objects.
    lines = (line for conversation in _conversations(sources) for line in importer.lines(conversation))
    return _write(output, header, lines, importer)


def _conversations(sources: Sequence[SourceFile]) -> Iterator[WekaConversation]:
    for source in sources:
        for place, document in source.documents():
            yield conversation_from_json(document, place)


def _convert_mooncake(
    sources: Sequence[SourceFile], output: Path, block_size: int, attribution: str | None
) -> Summary:
    if len(sources) > 1:
        raise UsageError(
            f"{len(sources)} mooncake files, expected one: each has a clock and block ids of its own",
            hint="convert each into a trace of its own",
        )
    requests = [request_from_json(document, place, block_size) for place, document in sources[0].documents()]
    header = header_for(requests, block_size=block_size, producer=_producer(), attribution=attribution)
    importer = MooncakeImporter(header)
    return _write(output, header, importer.lines(requests), importer)


def _convert_history(history: History, output: Path, attribution: str | None) -> Summary:
    click.echo(_told(history), err=True)
    survey = HistorySurvey(history.format)
    first = HistoryReading(tally=deepcopy(history.tally))
    starts: list[tuple[int, int, HistoryTree]] = []
    for number, tree in enumerate(_shown(history.trees, "looking")):
        calls = tree.read(first)
        for call in calls:
            survey.add(call)
        if calls:
            starts.append((min(call.request_ns for call in calls), number, tree))
    header = survey.header(producer=_producer(), attribution=attribution, remarks=first.tally.remarks)
    # The key is thrown away with the assembler: nobody can test a guess at somebody's text against the trace.
    assembler = Assembler(secrets.token_bytes(32), block_size=BLOCK_BYTES)
    importer = HistoryImporter(
        history.format,
        assembler,
        origin_ns=survey.origin_ns,
        reading=HistoryReading(tally=history.tally),
    )
    # Read anew rather than kept, as months of history do not fit into memory.
    lines = (
        line
        for _, _, tree in _shown(sorted(starts, key=lambda start: start[:2]), "writing")
        for line in importer.lines(tree.read(importer.reading))
    )
    return _write(output, header, lines, importer, lambda path: leaks_in_file(path, assembler.names))


def _shown(trees: Sequence[_T], label: str) -> Iterator[_T]:
    """The trees, with how far it has come on a terminal: months of history take minutes."""
    if not sys.stderr.isatty():
        yield from trees
        return
    with click.progressbar(trees, label=label, file=sys.stderr) as shown:
        yield from shown


def _told(history: History) -> str:
    """What is read, for people."""
    what = "databases or directories" if history.format == "opencode" else "files"
    others = f"; other files passed over: {history.others}" if history.others else ""
    return f"{history.format}: {len(history.trees)} trees in {history.sources} {what}{others}"


def _write(
    output: Path,
    header: Header,
    lines: Iterator[Line],
    importer: _Importer,
    find_leaks: Callable[[Path], Sequence[str]] = lambda _: (),
) -> Summary:
    try:
        with TraceWriter(output) as writer:
            writer.write(header)
            for line in lines:
                writer.write(line)
            writer.flush()
            leaks = find_leaks(writer.temporary_path)
            if leaks:
                raise _LeakError(leaks, _keep(writer.temporary_path, output))
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}") from error
    return importer.summary()


def _keep(written: Path, output: Path) -> Path | None:
    """Where the trace with a leak is kept; None if something else is there."""
    kept = partial_path(output)
    if kept.exists():
        return None
    written.chmod(0o600)
    return written.replace(kept)


def _producer() -> str:
    return f"aitrace {version('aitrace')} convert"


def summary_text(summary: Summary, output: str) -> str:
    """What a conversion did, for people."""
    lines = [
        f"{output}: {summary.calls} calls in {summary.sessions} sessions of {summary.trees} trees",
        f"  tokens    {size_from_count(summary.input_tokens)} in, {size_from_count(summary.output_tokens)} out",
    ]
    if summary.source in HISTORIES:
        lines += [
            f"  blocks    {summary.blocks} distinct in {summary.segments} segments",
            f"  history   {summary.resets} resets, {summary.retries} retries",
        ]
    else:
        shared = ratio_text(summary.shared_blocks, summary.block_references)
        lines += [
            f"  blocks    {summary.block_references} in prompts, {summary.blocks} distinct in {summary.segments} segments",
            f"  sharing   {summary.shared_blocks} blocks ({shared}) continue an earlier prompt of the same tree",
            f"  history   {summary.resets} resets, {summary.retokenised_tails} re-tokenised ends, {summary.returns} returns",
        ]
    lines.append(
        f"  agents    {summary.forks} forks, {summary.joins} joins, {summary.background_children} in the background"
    )
    lines += [
        f"  warning   {remark.explanation} ({remark.count}×, first at {remark.first_place})"
        for remark in summary.remarks
    ]
    return "\n".join(lines)
