"""I/O: `aitrace plan`."""

from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import click
import orjson

from replayer.commands.grouped import GroupedCommand
from replayer.commands.load_options import load_options, trace_to_play
from replayer.commands.replay import replay
from replayer.planning.options import LoadOptions, json_from_options
from replayer.planning.plan import build_plan
from replayer.planning.plan_summary import json_from_summary, summarise_plan
from replayer.planning.plan_text import text_from_summary


@click.command(cls=GroupedCommand)
@click.argument("trace", type=click.Path(path_type=Path))
@load_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, see docs/replay.md.")
def plan(*, trace: Path, load: LoadOptions, as_json: bool, **_of_replay: Any) -> None:
    """Show what a replay would send, before anything is sent.

    Times rest on answers that take as long as they did in the recording. TRACE may be - for stdin. What else `replay`
    takes (--url, -o, …) is accepted and changes nothing, so that the line of a replay can be tried with `plan` in its
    place: nothing is sent, written or read of it.

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


def _unused(params: Iterable[click.Parameter]) -> Iterator[click.Parameter]:
    """Options that a plan takes and does not need."""
    for param in params:
        unused = copy(param)
        unused.required = False
        if isinstance(unused, click.Option):
            unused.hidden = True
        yield unused


_known = {param.name for param in plan.params}
plan.params += _unused(param for param in replay.params if param.name not in _known)
