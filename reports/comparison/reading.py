"""I/O: ways to compare, from what a user names: a run, a directory of runs that repeat one way, or a trace."""

import re
from collections.abc import Sequence
from pathlib import Path

import click
import xxhash

from aitrace.errors import InputError, UsageError
from aitrace.runstore import RUN_FILE, TRACE_FILE
from aitrace.store import TraceReader
from reports.comparison.comparison import Way, WayRun, labels_of
from reports.comparison.plan_check import PlayedPlan
from reports.comparison.values import RunValues, values_of_run, values_recorded
from reports.loading import facts_of_run
from reports.summary import report_from_facts


def read_ways(paths: Sequence[Path]) -> tuple[Way, ...]:
    """The ways, in the order named.

    Raises:
        InputError: One is neither a run, nor holds runs, nor is a trace; or a run is damaged.
        UsageError: Nothing but traces is named, or one way or run twice.
    """
    named = [path.resolve() for path in paths]
    twice = next((path for path, place in zip(paths, named, strict=True) if named.count(place) > 1), None)
    if twice is not None:
        raise UsageError(
            f"{twice}: is named twice", hint="compare runs of two ways, or repeats of one with --aa"
        )
    runs_of = [_runs_in(path) for path in paths]
    _check_runs_once(paths, runs_of)
    first = next((runs[0] for runs in runs_of if runs), None)
    if first is None:
        raise UsageError(
            "there is no run among what is to be compared",
            hint="what was recorded is compared with a run that played it",
        )
    recorded: dict[Path, RunValues] = {}
    ways = []
    labels = labels_of([str(path) for path in paths])
    for path, label, runs in zip(paths, labels, runs_of, strict=True):
        if runs:
            ways.append(_way(path, label, runs))
            continue
        if path not in recorded:
            recorded[path] = _recorded(path, first)
        run = WayRun(name=str(path), plan=None, values=recorded[path], doubts=())
        ways.append(Way(name=str(path), label=label, runs=(run,)))
    return tuple(ways)


def _check_runs_once(paths: Sequence[Path], runs_of: Sequence[Sequence[Path]]) -> None:
    """Refuse a run that is in two of the ways: it would be compared with itself."""
    seen: dict[Path, Path] = {}
    for path, runs in zip(paths, runs_of, strict=True):
        for run in runs:
            other = seen.setdefault(run.resolve(), path)
            if other is not path:
                raise UsageError(
                    f"{run}: is named twice, by {other} and by {path}", hint="name each run in one way only"
                )


def _runs_in(path: Path) -> list[Path]:
    """The run directories that are meant; empty of a trace."""
    if path.is_file():
        return []
    if not path.is_dir():
        raise InputError(
            f"{path}: no such directory or file", hint="name run directories, or a trace and a run"
        )
    if (path / RUN_FILE).exists():
        return [path]
    runs = sorted((each.parent for each in path.glob(f"*/{RUN_FILE}")), key=_in_order)
    if not runs:
        ways = sorted({str(each.parents[1]) for each in path.glob(f"*/*/{RUN_FILE}")})
        if ways:
            raise InputError(
                f"{path}: holds directories of runs, expected one of them",
                hint=f"aitrace compare {' '.join(ways)}",
            )
        raise InputError(
            f"{path}: is no run and holds none",
            hint="aitrace replay TRACE --url URL -o DIR writes a run directory",
        )
    return runs


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Numbers by their size: 2 comes before 10."""
    parts = re.split(r"([0-9]+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _way(path: Path, label: str, paths: Sequence[Path]) -> Way:
    runs = [_run(each) for each in paths]
    whole = [run for run in runs if _is_whole(run)]
    # If none is whole, parts are what there is; their doubts say so.
    kept = whole or runs
    left_out = tuple(run.name for run in runs if run not in kept)
    return Way(name=str(path), label=label, runs=tuple(kept), left_out=left_out)


def _is_whole(run: WayRun) -> bool:
    return run.plan is not None and run.plan.end is not None and not run.plan.end.interrupted


def _run(path: Path) -> WayRun:
    with facts_of_run(
        path, warn=lambda error: _say(f"Warning: {path}: compared without its trace: {error}")
    ) as facts:
        return WayRun(
            name=str(path),
            plan=PlayedPlan(
                name=str(path),
                header=facts.header,
                end=facts.end,
                trace_digest=None if facts.trace is None else _digest(path / TRACE_FILE),
            ),
            values=values_of_run(facts),
            doubts=report_from_facts(facts).doubts,
        )


def _recorded(path: Path, run: Path) -> RunValues:
    """What the trace tells of the calls that the run played, which must be of this trace."""
    played = run / TRACE_FILE
    if not played.exists():
        raise InputError(
            f"{run}: its {TRACE_FILE} is missing, so that {path} cannot be told to be what it played",
            hint=f"put the trace that was played there, as {played}",
        )
    if _digest(path) != _digest(played):
        raise UsageError(f"{path}: is not the trace that {run} played", hint=f"Name the run's own: {played}")
    with facts_of_run(run, warn=_raise) as facts:
        if facts.trace is None:
            raise InputError(f"{played}: no such file")
        return values_recorded(facts, facts.trace)


def _raise(error: InputError) -> None:
    raise error


def _say(text: str) -> None:
    click.echo(text, err=True)


def _digest(path: Path) -> str | None:
    """Digest of the lines of a trace, however they are packed; None if there is none."""
    if not path.exists():
        return None
    digest = xxhash.xxh3_64()
    for _, line in TraceReader(path).raw_lines():
        digest.update(line)
        digest.update(b"\n")
    return digest.hexdigest()
