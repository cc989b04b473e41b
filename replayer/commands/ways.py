"""I/O: `aitrace replay --ab`: plays one plan in several ways, each into a directory of its own, and compares them.

What is said of them is what `aitrace compare` says of the directories.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, UsageError
from aitrace.quantiles import MIN_CLUSTERS
from aitrace.runstore import require_unused
from aitrace.units import counted
from replayer.commands.load_options import hints_from_file
from replayer.identity.identity_names import IDENTITY_NAMES
from replayer.retry import RETRY_NAMES
from replayer.search.child_runs import ChildEnd, ChildRuns, arguments_of, show_comparison
from replayer.search.ways import Ways, turns, ways_from_text

_OFF = "off"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CHOICES: dict[str, tuple[str, ...]] = {"identity": IDENTITY_NAMES, "retries": ("harness", *RETRY_NAMES)}


def play_ways(
    context: click.Context,
    text: str,
    repeats: int,
    output: Path,
    *,
    count_trees: Callable[[], int],
    as_json: bool,
) -> int:
    """Play what `replay` was given in the ways that `text` names; the exit code.

    Args:
        count_trees: Trees of the plan.

    Raises:
        UsageError: The ways cannot be read, or the options leave nothing to compare.
    """
    ways = ways_from_text(text)
    if context.get_parameter_source(ways.option) is ParameterSource.COMMANDLINE:
        raise UsageError(f"--{ways.option} is what --ab varies", hint=f"Leave out --{ways.option}, or --ab.")
    _check(ways, context.params)
    require_unused(output)
    _warn_of_few(count_trees())
    given = arguments_of(context, without=("ab", "repeat", "output", "as_json", "no_live", ways.option))
    directories = [output / letter for letter in _LETTERS[: len(ways.values)]]
    whole = [0 for _ in ways.values]
    codes = [EXIT_OK]
    with ChildRuns() as runs:
        for way, repeat in turns(len(ways.values), repeats):
            run = directories[way] / str(repeat + 1)
            _say(f"{run}: {ways.option} {ways.values[way]}")
            end = runs.play([f"--output={run}", *_option(ways, way), *given])
            codes.append(end.exit_code if end.summary is not None else max(end.exit_code, EXIT_IN_DOUBT))
            is_whole = _is_whole(end, run, is_interrupted=runs.is_interrupted)
            whole[way] += is_whole
            if end.summary is None or runs.is_interrupted:
                break
    if not all(whole):
        _say("There is nothing to compare: not every way was played")
    else:
        codes.append(show_comparison(directories, as_json=as_json))
    return max(codes)


def _is_whole(end: ChildEnd, run: Path, *, is_interrupted: bool) -> bool:
    """Whether a run was played to its end, which is told."""
    if end.summary is None:
        if not is_interrupted:
            _say(end.said)
        return False
    doubts = "; ".join(end.summary["in_doubt"])
    _say(f"   {f'in doubt: {doubts}' if doubts else 'fine'}")
    if end.summary["interrupted"]:
        _say(f"{run} was stopped, and is left out of the comparison")
        return False
    return True


def _check(ways: Ways, params: dict[str, Any]) -> None:
    if params["text_seed"] is not None:
        raise UsageError("with one --text-seed the runs of --ab would find each other's prompts in the cache")
    if len(ways.values) > len(_LETTERS):
        raise UsageError(f"--ab names {len(ways.values)} ways, expected at most {len(_LETTERS)}")
    for value in ways.values:
        known = _CHOICES.get(ways.option)
        if known is not None and value not in known:
            raise UsageError(f"{ways.option} {value!r} is not known, expected one of {', '.join(known)}")
        if known is None and value != _OFF:
            hints_from_file(Path(value))


def _warn_of_few(trees: int) -> None:
    if trees < MIN_CLUSTERS:
        _say(
            f"Warning: the plan has {counted(trees, 'tree')}, {MIN_CLUSTERS} are needed to tell a difference: "
            f"give --trees N with {MIN_CLUSTERS} or more"
        )


def _option(ways: Ways, way: int) -> list[str]:
    value = ways.values[way]
    return [] if ways.option == "hints" and value == _OFF else [f"--{ways.option}={value}"]


def _say(text: str) -> None:
    click.echo(text, err=True)
