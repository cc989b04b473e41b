"""I/O: `aitrace plan`."""

from pathlib import Path

import click
import orjson

from replayer.commands.load_options import load_options, trace_to_play
from replayer.planning.options import LoadOptions, json_from_options
from replayer.planning.plan import build_plan
from replayer.planning.plan_summary import json_from_summary, summarise_plan
from replayer.planning.plan_text import text_from_summary


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@load_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, see docs/replay.md.")
def plan(*, trace: Path, load: LoadOptions, as_json: bool) -> None:
    """Show what a replay would send, before anything is sent.

    Times rest on answers that take as long as they did in the recording. TRACE may be - for stdin.

    \b
    Example:
      aitrace plan examples/claude-code.aitrace --arrival poisson:0.2/s --trees 100 --gap-cap user=60s
    """
    recorded = trace_to_play(trace).trace
    planned = build_plan(recorded, load)
    summary = summarise_plan(planned.trace, planned, share_system=load.share_system)
    if as_json:
        shown = {"trace": trace.name, "options": json_from_options(load), **json_from_summary(summary)}
        click.echo(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(text_from_summary(summary))
