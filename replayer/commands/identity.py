"""I/O: `aitrace identity`."""

from dataclasses import asdict
from pathlib import Path

import click
import orjson

from aitrace.errors import UsageError
from aitrace.protocols import PROTOCOLS
from aitrace.schema import ProtocolName
from replayer.commands.load_options import hints_from_file, trace_to_play
from replayer.identity.identity_names import IDENTITY_NAMES, IdentityName, faults_from_spec, header_template
from replayer.identity.identity_view import protocol_of_tree, text_from_views, tree_view
from replayer.identity.wire_identity import WireIdentity

_RUN_ID = "shown"


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--tree",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Tree to show, counted from 1 in the order of the trace.",
)
@click.option(
    "--protocol",
    type=click.Choice(tuple(PROTOCOLS)),
    help="Wire protocol of the bodies. [default: that of the tree's first call, else anthropic]",
)
@click.option(
    "--identity",
    "name",
    type=click.Choice(IDENTITY_NAMES),
    default="native",
    show_default=True,
    help="Ids that calls carry, as in `replay`.",
)
@click.option(
    "--identity-faults", metavar="FAULT=PERCENT%,…", help="Ids that cannot be trusted, as in `replay`."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header of every call, as in `replay`.",
)
@click.option(
    "--hints", type=click.Path(path_type=Path), metavar="FILE", help="A file of hints, as in `replay`."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Says which sessions have faulty ids, as in `replay`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, see docs/replay-reference.md.")
def identity(
    *,
    trace: Path,
    tree: int,
    protocol: ProtocolName | None,
    name: IdentityName,
    identity_faults: str | None,
    headers: tuple[str, ...],
    hints: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Show what the calls of one tree would carry to say whose they are.

    Nothing is sent. A run makes ids of its own in the same form. TRACE may be - for stdin.

    \b
    Example:
      aitrace identity examples/claude-code.aitrace --identity dynamo
    """
    templates, rules = tuple(map(header_template, headers)), hints_from_file(hints)
    faults = {} if identity_faults is None else faults_from_spec(identity_faults)
    played = trace_to_play(trace).trace
    roots = [session.id for session in played.sessions if session.parent is None]
    if tree > len(roots):
        raise UsageError(f"tree is {tree!r}, and the trace has {len(roots):,}")
    ids = WireIdentity(
        played.sessions,
        name,
        run_id=_RUN_ID,
        templates=templates,
        hints=rules,
        faults=faults,
        seed=seed,
    )
    root = roots[tree - 1]
    protocol = protocol or protocol_of_tree(played.sessions, played.calls, root) or "anthropic"
    views = tree_view(played.sessions, played.calls, ids, root=root, protocol=protocol)
    if as_json:
        shown = {
            "tree": tree,
            "identity": name,
            "protocol": protocol,
            "sessions": [asdict(view) for view in views],
        }
        click.echo(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(text_from_views(views))
