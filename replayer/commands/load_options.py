"""I/O: what `plan` and `replay` take in the same way: the options that shape the load, and the trace."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from aitrace.schema import Trace
from aitrace.store import read_trace
from replayer.options import LoadOptions, gap_caps_from_specs
from replayer.pacing import arrival_from_spec
from replayer.plan import MAX_CALLS

_OPTIONS = (
    click.option(
        "--arrival",
        default="auto",
        show_default=True,
        metavar="SPEC",
        help="When trees start: auto, recorded, scaled:FACTOR (0.5), poisson:RATE, fixed:RATE (0.2/s, 12/min), together.",
    ),
    click.option(
        "--concurrency",
        type=int,
        metavar="LANES",
        help="Play trees in this many lanes, each one tree after another, instead of --arrival.",
    ),
    click.option(
        "--trees",
        type=int,
        metavar="N",
        help="How many trees to play; more than the trace has plays them again as new ones, up to "
        f"{MAX_CALLS:,} calls. [default: each once]",
    ),
    click.option(
        "--time-scale",
        type=float,
        default=1.0,
        show_default=True,
        metavar="FACTOR",
        help="Factor on recorded gaps, tool times and recorded starts.",
    ),
    click.option(
        "--gap-cap",
        "gap_caps",
        multiple=True,
        metavar="CAUSE=DURATION",
        help="Longest gap of a cause (tool, user, harness, backoff, unknown, all), as in user=30s or all=5m; seconds "
        "if there is no unit. Repeatable.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0, max=(1 << 63) - 1),
        default=0,
        show_default=True,
        metavar="N",
        help="Seed of random arrivals.",
    ),
    click.option(
        "--share-system",
        is_flag=True,
        help="Give trees of one harness and agent kind the same tools and system prompt.",
    ),
    click.option(
        "--history",
        type=click.Choice(["recorded", "live"]),
        default="recorded",
        show_default=True,
        help="Whose answers go into the next prompt: generated ones of recorded size, or the target's own.",
    ),
    click.option(
        "--tool-messages",
        type=click.Choice(["user", "native"]),
        default="user",
        show_default=True,
        help="Write tool calls and results as plain text, or in the protocol's own form.",
    ),
    click.option(
        "--stream",
        type=click.Choice(["always", "recorded"]),
        default="always",
        show_default=True,
        help="Stream every answer, or those that were recorded so.",
    ),
)


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that shape the load; it gets them as one argument `load: LoadOptions`."""

    @wraps(command)
    def with_load(**arguments: Any) -> Any:
        load = LoadOptions(
            arrival=arrival_from_spec(arguments.pop("arrival")),
            gap_caps_ns=gap_caps_from_specs(arguments.pop("gap_caps")),
            **{name: arguments.pop(name) for name in _PLAIN},
        )
        return command(load=load, **arguments)

    decorated: Callable[..., Any] = with_load
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_PLAIN = (
    "concurrency",
    "trees",
    "time_scale",
    "seed",
    "share_system",
    "history",
    "tool_messages",
    "stream",
)
"""Options that go into LoadOptions under their own name."""


def trace_to_play(path: Path) -> Trace:
    """The trace in a file; says on stderr if its end is missing, since it is then played in part.

    Raises:
        InputError: As `read_trace`.
    """
    trace = read_trace(path)
    if trace.footer is None:
        name = "stdin" if str(path) == "-" else path
        click.echo(
            f"Warning: {name}: the trace is cut, or its recording did not end: {len(trace.calls):,} calls could be "
            "read, any that followed are not played",
            err=True,
        )
    return trace
