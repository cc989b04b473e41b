"""I/O: `aitrace search`: finds the highest load that keeps to bounds; each step is a run of its own."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, UsageError
from aitrace.runstore import SEARCH_FILE, read_run, require_unused
from aitrace.units import ns_from_duration, per_s_from_rate
from replayer.commands.grouped import GroupedCommand
from replayer.commands.replay import replay
from replayer.search.backlog import find_backlog
from replayer.search.bisection import Bisection, Levels
from replayer.search.child_runs import ChildEnd, ChildRuns, RunTail, arguments_of
from replayer.search.search_result import (
    SearchedLoad,
    SearchResult,
    Step,
    answer_lines,
    level_text,
    outcome_of_step,
    search_json,
    step_line,
    step_name,
)
from replayer.search.slo import Condition, Finding, conditions_from_text, findings

_STEP_TIME = "60s"
_WARM_UP_SHARE = 0.25
_ENDS = {"concurrency": ("1", "1024"), "rate": ("0.1/s", "100/s")}
_MAX_LANES = 1 << 20
_OWN = ("slo", "by", "lowest", "highest", "precision", "output", "as_json")
_SET_BY_SEARCH = (
    "concurrency",
    "arrival",
    "text_seed",
    "self_check",
    "ab",
    "repeat",
    "output",
    "as_json",
    "no_live",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What the user asked for."""

    slo: str
    conditions: tuple[Condition, ...]
    by: SearchedLoad
    output: Path
    arguments: list[str]
    """Of each run, but for its load and its directory."""


@click.command(cls=GroupedCommand)
@click.option(
    "--slo",
    required=True,
    metavar="CONDITIONS",
    help="What a load must keep to: 'ttft_p95<2s, refused<1%'. Times (ms, s): ttft, user_ttft, headers with _p50, _p95 or "
    "_p99; shares (%): refused, failed, lost_sessions.",
)
@click.option(
    "--by",
    type=click.Choice(tuple(_ENDS)),
    default="concurrency",
    show_default=True,
    help="What is searched: lanes that each play one tree after another, or the rate of trees (poisson).",
)
@click.option("--from", "lowest", metavar="N|RATE", help="Load to begin with. [default: 1 lane, 0.1/s]")
@click.option("--to", "highest", metavar="N|RATE", help="Highest load to try. [default: 1024 lanes, 100/s]")
@click.option(
    "--precision",
    type=click.FloatRange(min=1, max=100),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Width of the bracket at which the search is over, of its lower end; one lane is always enough.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="New directory for the runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON to stdout.")
@click.pass_context
def search(
    context: click.Context,
    /,
    *,
    slo: str,
    by: SearchedLoad,
    lowest: str | None,
    highest: str | None,
    precision: float,
    output: Path,
    as_json: bool,
    **_others: Any,
) -> None:
    """Find the highest load that keeps to bounds, and play each step as a run.

    Doubles the load until a run breaks a bound, then bisects, then repeats the answer. A run whose backlog grows is
    stopped early. All other options are those of `aitrace replay`; without them a step takes 60 s, and the first quarter
    of a step is its warm-up. Ctrl-C ends the search with what it has. Exits with 0 if there is an answer, 1 if it is in
    doubt, 4 if the endpoint cannot be used.

    \b
    Example:
      aitrace search examples/claude-code.aitrace --url http://127.0.0.1:8000 --protocol chat --slo 'ttft_p95<2s' -o found/
    """
    order = _Order(
        slo=slo,
        conditions=conditions_from_text(slo),
        by=by,
        output=output,
        arguments=[*_step_times(context.params), *arguments_of(context, without=(*_OWN, *_SET_BY_SEARCH))],
    )
    bisection = Bisection(_levels(by, lowest, highest, precision))
    require_unused(output)
    result, exit_code = _search(order, bisection)
    for line in answer_lines(result):
        _say(line)
    if as_json:
        click.echo(orjson.dumps(search_json(result), option=orjson.OPT_INDENT_2))
    sys.exit(exit_code)


# What a replay takes and a search does not set shapes each of its runs.
search.params += [param for param in replay.params if param.name not in (*_OWN, *_SET_BY_SEARCH)]


def _search(order: _Order, bisection: Bisection) -> tuple[SearchResult, int]:
    """Play steps until there is an answer; the result, and the exit code."""
    steps: list[Step] = []
    with ChildRuns() as runs:
        while (level := bisection.next_level()) is not None:
            number, is_repeat = len(steps) + 1, bisection.is_repeat
            run = order.output / step_name(number, level, order.by)
            _say(f"step {number:>2}  {level_text(level, order.by)}: playing")
            end = _play(runs, run, [*_load(level, order.by), *order.arguments])
            if runs.is_interrupted:
                return _kept(order, steps, bisection, "the search was stopped"), EXIT_IN_DOUBT
            if end.summary is None:
                _say(end.said)
                doubt = f"step {number} could not be played"
                return _kept(order, steps, bisection, doubt), _exit_code_of(end)
            ran_out = end.summary["ran_out_s"] is not None
            found = findings(order.conditions, read_run(run).calls, with_warm_up=ran_out)
            steps.append(_step(number, level, run, end.summary, found, end.stopped_for, is_repeat=is_repeat))
            smallest = min((one.count for one in found if one.verdict == "unclear"), default=None)
            bisection.note(level, steps[-1].outcome, sample=smallest)
            _say(step_line(steps[-1], order.by))
            _kept(order, steps, bisection, None)
    result = _kept(order, steps, bisection, bisection.doubt)
    return result, result.exit_code


def _levels(by: SearchedLoad, lowest: str | None, highest: str | None, precision: float) -> Levels:
    read = _lanes if by == "concurrency" else per_s_from_rate
    low, high = (read(text or usual) for text, usual in zip((lowest, highest), _ENDS[by], strict=True))
    if math.isnan(precision):
        raise UsageError(f"--precision is {precision!r}, expected a number")
    if not 0 < low <= high < math.inf:
        raise UsageError(f"the search goes from {low:g} to {high:g}, expected a range above 0")
    return Levels(low=low, high=high, whole=by == "concurrency", precision=precision / 100)


def _lanes(text: str) -> float:
    if not text.isdecimal() or not 0 < int(text) <= _MAX_LANES:
        raise UsageError(f"number of lanes is {text!r}, expected 1 to {_MAX_LANES:,}")
    return int(text)


def _load(level: float, by: SearchedLoad) -> list[str]:
    return [f"--concurrency={level:.0f}"] if by == "concurrency" else [f"--arrival=poisson:{level:.6f}/s"]


def _step_times(options: Mapping[str, Any]) -> list[str]:
    """How long a step takes and what of it is its warm-up, as far as the user did not say."""
    duration = options["duration"] or _STEP_TIME
    times = [] if options["duration"] else [f"--duration={duration}"]
    if options["warm_up"]:
        return times
    return [*times, f"--warm-up={round(_WARM_UP_SHARE * ns_from_duration(duration))}ns"]


def _play(runs: ChildRuns, run: Path, arguments: Sequence[str]) -> ChildEnd:
    tail = RunTail(run)

    def backlog() -> str | None:
        tail.read_on()
        return find_backlog(tail.calls, tail.scrapes)

    return runs.play([f"--output={run}", *arguments], stop_reason=backlog)


def _step(
    number: int,
    level: float,
    run: Path,
    summary: Mapping[str, Any],
    found: tuple[Finding, ...],
    stopped_for: str | None,
    *,
    is_repeat: bool,
) -> Step:
    return Step(
        number=number,
        level=level,
        is_repeat=is_repeat,
        run=str(run),
        outcome=outcome_of_step(
            found,
            stopped_for=stopped_for,
            is_client_limited=summary["client"]["is_limit"],
            ran_out=summary["ran_out_s"] is not None,
        ),
        findings=found,
        stopped_for=stopped_for,
        doubts=tuple(summary["in_doubt"]),
    )


def _kept(order: _Order, steps: Sequence[Step], bisection: Bisection, doubt: str | None) -> SearchResult:
    """The result so far, kept in a file beside the runs, which is there if the program is ended before its answer."""
    result = SearchResult(
        slo=order.slo, by=order.by, steps=tuple(steps), bracket=bisection.bracket, doubt=doubt
    )
    if steps:
        data = orjson.dumps(search_json(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        (order.output / SEARCH_FILE).write_bytes(data)
    return result


def _exit_code_of(end: ChildEnd) -> int:
    """That of a run that could not be played."""
    return end.exit_code if end.exit_code > EXIT_OK else EXIT_IN_DOUBT


def _say(text: str) -> None:
    click.echo(text, err=True)
