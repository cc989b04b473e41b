"""I/O: what `plan` and `replay` take in the same way: the options that shape the load, and the trace."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from aitrace.errors import InputError, UsageError
from aitrace.results import IdentityFault
from aitrace.stored_trace import StoredTrace, stored_trace
from aitrace.units import ns_from_duration
from replayer.identity.hints import HintRule, hints_from_json
from replayer.identity.identity_names import (
    IDENTITY_NAMES,
    PLACE,
    faults_from_spec,
    header_template,
)
from replayer.planning.context_window import OverContext
from replayer.planning.mid_start import start_range_from_text
from replayer.planning.options import LoadOptions, Schedule, gap_caps_from_specs, warm_up_from_text
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import MAX_TREES
from replayer.planning.tree_filter import tree_condition
from replayer.retry import RETRY_NAMES

_Value = TypeVar("_Value")

_OPTIONS = (
    click.option(
        "--arrival",
        default="auto",
        show_default=True,
        metavar="SPEC",
        help="When trees start: auto, recorded, scaled:FACTOR (0.5), poisson:RATE, gamma:RATE:CV, fixed:RATE (0.2/s, "
        "12/min), ramp:RATE@TIME,RATE@TIME, together.",
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
        f"{MAX_TREES:,} trees. [default: each once]",
    ),
    click.option(
        "--duration",
        metavar="DURATION",
        help="Play for so long (30m), trees again as new ones, then cut what is in flight. [default: until the trees "
        "have ended]",
    ),
    click.option(
        "--warm-up",
        metavar="DURATION|'N trees'",
        help="Play the first time (5m) or the first trees ('20 trees') without measuring.",
    ),
    click.option(
        "--start-at",
        metavar="LOW..HIGH",
        help="Start each tree in the middle, at a seeded point between these shares of its recorded time (0.25..0.75).",
    ),
    click.option(
        "--prime",
        is_flag=True,
        help="With --start-at, send the prompts that a tree goes on from first, each for an answer of 1 token.",
    ),
    click.option(
        "--select",
        multiple=True,
        metavar="CONDITION",
        help="Play only trees that meet this: harness=codex, calls>=20, depth>0 (sub-agents) or tokens<200k (largest "
        "prompt). Repeatable, all must hold.",
    ),
    click.option(
        "--context",
        "context_tokens",
        type=click.IntRange(min=1),
        metavar="TOKENS",
        help="Tokens of the model's window, where it is smaller than the trace's prompts with their answers.",
    ),
    click.option(
        "--over-context",
        type=click.Choice(get_args(OverContext)),
        default="stop",
        show_default=True,
        help="What becomes of a session that does not fit into --context: it is left out, ends before the first such "
        "call, or is compacted there.",
    ),
    click.option(
        "--schedule",
        type=click.Choice(get_args(Schedule)),
        default="causal",
        show_default=True,
        help="When calls are due: a gap after what they had waited for, or (absolute) at their recorded time from "
        "the tree's start, whatever happened to the ones before.",
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
        help="Seed of random arrivals, and of where --start-at starts trees.",
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
        "--identity",
        type=click.Choice(IDENTITY_NAMES),
        default="native",
        show_default=True,
        help="Ids that calls carry, always fresh ones: those of the session's harness (of routers, if it is not "
        "known), Dynamo's, those of routers, or none.",
    ),
    click.option(
        "--identity-faults",
        metavar="FAULT=PERCENT%,…",
        help="Give a part of the sessions ids that cannot be trusted: missing (none), shared (one for all of them) or "
        "churn (another with every call), as in missing=10%,shared=5%.",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="'NAME: VALUE'",
        help="A header of every call; {session}, {parent}, {root} and {call} stand for ids. Repeatable.",
    ),
    click.option(
        "--hints",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Body fields and headers for routers and engines, by harness, class or agent: a JSON list of rules, see "
        "docs/replay-reference.md.",
    ),
    click.option(
        "--retries",
        type=click.Choice(["harness", *RETRY_NAMES]),
        default="harness",
        show_default=True,
        help="How a call that was refused or failed is tried again: as the session's own harness does, as one of "
        "these for all, or not.",
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
            headers=tuple(map(header_template, arguments.pop("headers"))),
            identity_faults=_identity_faults(arguments.pop("identity_faults")),
            hints=hints_from_file(arguments.pop("hints")),
            duration_ns=_read(ns_from_duration, arguments.pop("duration")),
            warm_up=_read(warm_up_from_text, arguments.pop("warm_up")),
            start_at=_read(start_range_from_text, arguments.pop("start_at")),
            select=tuple(map(tree_condition, arguments.pop("select"))),
            **{name: arguments.pop(name) for name in _PLAIN},
        )
        _check(load, click.get_current_context())
        return command(load=load, **arguments)

    decorated: Callable[..., Any] = with_load
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def hints_from_file(path: Path | None) -> tuple[HintRule, ...]:
    """The rules of a file of hints; none if there is no file.

    Raises:
        InputError: It cannot be read.
    """
    if path is None:
        return ()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return hints_from_json(data, place=str(path))


def _check(load: LoadOptions, context: click.Context) -> None:
    """Refuse options that would have no effect.

    Raises:
        UsageError: There is one.
    """
    is_given = context.get_parameter_source("over_context") is ParameterSource.COMMANDLINE
    if is_given and load.context_tokens is None:
        raise UsageError(
            "--over-context has nothing to decide without --context",
            hint="Give the tokens of the model's window with --context.",
        )
    names_ids = any(PLACE.search(header.value) for header in load.headers) or bool(load.hints)
    if load.identity_faults and load.identity == "none" and not names_ids:
        raise UsageError(
            "--identity-faults has no ids to spoil with --identity none", hint="Choose another --identity."
        )


def _identity_faults(spec: str | None) -> dict[IdentityFault, float]:
    return {} if spec is None else faults_from_spec(spec)


_PLAIN = (
    "concurrency",
    "trees",
    "time_scale",
    "seed",
    "share_system",
    "history",
    "tool_messages",
    "stream",
    "retries",
    "identity",
    "prime",
    "context_tokens",
    "over_context",
    "schedule",
)
"""Options that go into LoadOptions under their own name."""


def _read(read: Callable[[str], _Value], text: str | None) -> _Value | None:
    """What an option's text says; None if it was not given."""
    return None if text is None else read(text)


def trace_to_play(path: Path) -> StoredTrace:
    """The trace in a file, until the command ends; says on stderr if its end is missing, since it is then played in
    part.

    Raises:
        InputError: As `stored_trace`.
    """
    stored = click.get_current_context().with_resource(stored_trace(path))
    trace = stored.trace
    if trace.footer is None:
        name = "stdin" if str(path) == "-" else path
        click.echo(
            f"Warning: {name}: the trace is cut, or its recording did not end: {len(trace.calls):,} calls could be "
            "read, any that followed are not played",
            err=True,
        )
    return stored
