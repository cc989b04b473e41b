"""I/O: `aitrace calibrate`: states how far the client's own numbers can be trusted at a plan's peak."""

import sys
from dataclasses import asdict
from pathlib import Path

import click
import orjson

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, UsageError
from aitrace.protocols import PROTOCOLS
from aitrace.results import LATENESS_BOUND_MS
from aitrace.schema import ProtocolName
from replayer.check_client import TrialError, check_client
from replayer.client_check import check_doubts, check_lines
from replayer.commands.grouped import GroupedCommand
from replayer.commands.load_options import load_options, trace_to_play
from replayer.job import MAX_WORKERS, usable_cores
from replayer.planning.options import LoadOptions
from replayer.planning.peak import peak_of, workers_for
from replayer.planning.plan import build_plan


@click.command(cls=GroupedCommand)
@click.argument("trace", type=click.Path(path_type=Path))
@load_options
@click.option(
    "--protocol",
    type=click.Choice(tuple(PROTOCOLS)),
    default="chat",
    show_default=True,
    help="Wire protocol to speak.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=MAX_WORKERS),
    metavar="N",
    help="Processes that share the trees. [default: as in `replay`]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, see docs/replay-run.md.")
def calibrate(
    *, trace: Path, load: LoadOptions, protocol: ProtocolName, workers: int | None, as_json: bool
) -> None:
    """State the client's error bars at the busiest second of a plan, on this machine, now.

    Plays that second over and over for five seconds against the built-in engine, and compares the client's times with
    the engine's log. Both share this machine, so the errors are bounds. Exits with 1 if a run at that load may be limited
    by the client. TRACE may be - for stdin.

    \b
    Example:
      aitrace calibrate examples/claude-code.aitrace --arrival poisson:0.2/s --trees 100
    """
    plan = build_plan(trace_to_play(trace).trace, load)
    peak = peak_of(plan)
    try:
        check = check_client(
            peak, protocol=protocol, workers=workers or workers_for(plan, peak, usable_cores())
        )
    except TrialError as error:
        raise UsageError(f"the client could not be tried: {error}") from error
    doubts = check_doubts(check, LATENESS_BOUND_MS)
    if as_json:
        shown = {**asdict(check), "in_doubt": doubts}
        click.echo(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode())
    else:
        for line in check_lines(check):
            click.echo(line)
        click.echo("verdict     " + ("in doubt: " + "; ".join(doubts) if doubts else "fine"))
    sys.exit(EXIT_IN_DOUBT if doubts else EXIT_OK)
