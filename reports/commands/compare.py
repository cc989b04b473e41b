"""I/O: `aitrace compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from aitrace.commands.output import write_text_file
from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, InputError, UsageError
from aitrace.quantiles import MIN_CLUSTERS
from aitrace.runstore import TRACE_FILE
from aitrace.units import counted

if TYPE_CHECKING:
    from reports.comparison.comparison import Comparison, Way
    from reports.comparison.differences import RunNoise

_FEWEST = 2
"""Ways to compare, or runs of one way to tell the noise of, at least."""


@click.command()
@click.argument("ways", metavar="A B…", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Page to write."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON instead of tables.")
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="JUnit XML to write."
)
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 if it is met or cannot be told: 'ttft_p95 > +5%', 'hit_ratio < -2 points'. Repeatable; without "
    "--measure these are all that is compared.",
)
@click.option(
    "--measure",
    "names",
    multiple=True,
    metavar="NAME",
    help="Compare by this and by nothing else: ttft_p95, session_p50, hit_ratio. Repeatable. The fewer, the narrower are "
    "the intervals.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(min=50, max=99.99),
    default=95.0,
    show_default=True,
    metavar="PERCENT",
    help="Confidence that all intervals have together.",
)
@click.option(
    "--floor",
    type=click.FloatRange(min=0, max=1000),
    metavar="PERCENT",
    help="Differences below it count as none, of shares in points. [default: 0 where there are repeats, else 3, and 1 "
    "point of shares]",
)
@click.option(
    "--aa",
    is_flag=True,
    help="All are runs of one way: show how far they are apart, the noise of a comparison.",
)
@click.option(
    "--noise",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="What `--aa --json` printed of runs like these; it goes into the intervals.",
)
@click.option("--any-plan", is_flag=True, help="Compare even if the plans differ; the page says so first.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the draws that the intervals come from.",
)
@click.pass_context
def compare(
    ctx: click.Context,
    ways: tuple[Path, ...],
    output: Path | None,
    fail_if: tuple[str, ...],
    names: tuple[str, ...],
    *,
    as_json: bool,
    junit: Path | None,
    confidence: float,
    floor: float | None,
    aa: bool,
    noise: Path | None,
    any_plan: bool,
    seed: int,
) -> None:
    """Compare runs of one plan call by call, and say what differs beyond noise.

    Each argument is a way: a run directory, a directory of runs that repeat one way, or the trace that was played, for
    what was recorded. The first is what the others are compared with. Exits with 1 if a condition of --fail-if is met or
    cannot be told, or, without conditions, if a run is in doubt.

    \b
    Example:
      aitrace replay all.aitrace --url http://127.0.0.1:8000 --protocol chat -o before/
      aitrace replay all.aitrace --url http://127.0.0.1:8000 --protocol chat -o after/
      aitrace compare before/ after/ --fail-if 'ttft_p95 > +5%' -o comparison.html
    """
    from reports.comparison.comparison import Wish  # noqa: PLC0415 - polars only when needed
    from reports.comparison.comparison import compare as compare_ways  # noqa: PLC0415 - same
    from reports.comparison.conditions import conditions_from_texts  # noqa: PLC0415 - same
    from reports.comparison.differences import Setting  # noqa: PLC0415 - same
    from reports.comparison.measures import measures_from_names  # noqa: PLC0415 - same
    from reports.comparison.reading import read_ways  # noqa: PLC0415 - same

    measures_from_names(names)  # a misspelt one is told before runs are read
    wish = Wish(
        names=names,
        conditions=conditions_from_texts(fail_if),
        setting=Setting(
            confidence=confidence / 100,
            floor_ratio=None if floor is None else floor / 100,
            noise=None if noise is None else _noise_from_file(noise),
            seed=seed,
        ),
        is_noise_asked=aa,
    )
    read = read_ways(ways)
    _check_count(read, is_noise_asked=aa)
    _check_traces(read, any_plan=any_plan)
    comparison = compare_ways(read, wish)
    if comparison.plan and not any_plan:
        _refuse(comparison)
    _warn_of_few_trees(comparison)
    _write_files(comparison, output, junit)
    _show(comparison, as_json=as_json)
    for path in filter(None, (output, junit)):
        click.echo(f"wrote {path}", err=True)
    ctx.exit(_exit_code(comparison))


def _check_count(ways: "Sequence[Way]", *, is_noise_asked: bool) -> None:
    """Refuse what leaves nothing to compare."""
    runs = sum(len(way.runs) for way in ways)
    if is_noise_asked and runs < _FEWEST:
        left_out = [name for way in ways for name in way.left_out]
        why = (
            f"; left out, since cut, stopped or still being played: {', '.join(left_out)}" if left_out else ""
        )
        raise UsageError(
            f"{', '.join(way.name for way in ways)}: {counted(runs, 'run')}, --aa needs {_FEWEST} or more{why}",
            hint="play the plan again into a further directory, as before/2 beside before/1",
        )
    if not is_noise_asked and len(ways) < _FEWEST:
        raise UsageError(
            "one way alone leaves nothing to compare",
            hint="name two, as in aitrace compare before/ after/, or show the noise of its runs with --aa",
        )


def _check_traces(ways: "Sequence[Way]", *, any_plan: bool) -> None:
    """Refuse runs of which it cannot be told what they played, unless one insists."""
    from reports.comparison.plan_check import without_trace  # noqa: PLC0415 - polars only when needed

    names = without_trace(run.plan for way in ways for run in way.runs if run.plan is not None)
    if not names:
        return
    what = f"{', '.join(names)}: no readable {TRACE_FILE}, so nothing tells whether all played the same trace"
    if not any_plan:
        raise InputError(
            what, hint="put the trace that was played there; --any-plan compares them all the same"
        )
    click.echo(f"Warning: {what}", err=True)


def _warn_of_few_trees(comparison: "Comparison") -> None:
    trees = comparison.matched.trees
    if trees < MIN_CLUSTERS:
        click.echo(
            f"Warning: the runs have {counted(trees, 'tree')}, {MIN_CLUSTERS} are needed to tell a difference: "
            f"play them with --trees {MIN_CLUSTERS} or more",
            err=True,
        )


def _exit_code(comparison: "Comparison") -> int:
    if comparison.checked:
        return EXIT_OK if all(each.outcome == "kept" for each in comparison.checked) else EXIT_IN_DOUBT
    return EXIT_OK if comparison.is_fine else EXIT_IN_DOUBT


def _refuse(comparison: "Comparison") -> None:
    from reports.comparison.plan_check import options_of  # noqa: PLC0415 - polars only when needed

    raise UsageError(
        f"the runs did not play the same plan: {options_of(comparison.plan)}",
        hint="Play both with the same trace, options and --seed; --any-plan compares them all the same.",
    )


def _noise_from_file(path: Path) -> "dict[str, RunNoise]":
    from reports.comparison.noise import noise_from_json  # noqa: PLC0415 - polars only when needed

    try:
        return noise_from_json(orjson.loads(path.read_bytes()), str(path))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}", hint="--aa --json prints such a file"
        ) from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: is no JSON: {error}", hint="--aa --json prints such a file") from error


def _write_files(comparison: "Comparison", output: Path | None, junit: Path | None) -> None:
    if output is not None:
        from reports.comparison.document import document_of_comparison  # noqa: PLC0415 - polars only when needed
        from reports.html import html_from_document  # noqa: PLC0415 - same

        write_text_file(output, html_from_document(document_of_comparison(comparison)))
    if junit is not None:
        from reports.comparison.junit import junit_from_comparison  # noqa: PLC0415 - same

        write_text_file(junit, junit_from_comparison(comparison))


def _show(comparison: "Comparison", *, as_json: bool) -> None:
    if as_json:
        from reports.comparison.json_form import json_from_comparison  # noqa: PLC0415 - polars only when needed

        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        click.echo(orjson.dumps(json_from_comparison(comparison), option=options).decode(), nl=False)
        return
    from aitrace.commands.terminal import Terminal  # noqa: PLC0415 - same
    from reports.comparison.text import print_comparison  # noqa: PLC0415 - same

    print_comparison(comparison, Terminal())
