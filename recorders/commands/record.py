"""I/O: `aitrace record`: a client runs as always, and its session becomes a trace."""

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aitrace.clock import Clock, SystemClock
from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, UsageError
from aitrace.schema import Privacy
from aitrace.store import partial_path
from aitrace.units import NS_PER_S
from recorders.addresses import Upstream, connect_to_from_text, proxy_from_environment, upstream_from_text
from recorders.clients import CLIENTS, SEEN_WITH, ClientName, Road, Setup, client_from_command, setup
from recorders.config_files import read_config
from recorders.ending import Session, ending
from recorders.launch import Signals, find_program
from recorders.no_proxy import entries_from_environment, entries_from_text, is_covered
from recorders.options import RecordOptions

_BYTES_PER_MB = 1_000_000
_HURRY_S = 1.0

if TYPE_CHECKING:
    from recorders.addon import RecorderAddon


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What the user asked for."""

    options: RecordOptions
    force: bool
    """Whether what is at the trace's path may be replaced."""
    command: tuple[str, ...]
    """The client's command; empty if the user starts it."""
    client: ClientName | None
    """The client; None if it is for the user to say."""
    is_guessed: bool
    """Whether the client was told from its command."""
    upstream: Upstream | None
    upstream_ca: tuple[Path, ...]
    connect_to: tuple[str, ...]
    port: int
    ca_dir: Path | None


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CLIENT ARGS…]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The trace; session-YYYYmmdd-HHMMSS.aitrace in the current folder if left out.",
)
@click.option("--force", is_flag=True, help="Replace FILE, and what an earlier recording left of it.")
@click.option(
    "--client", type=click.Choice(CLIENTS), help="The client; told from its command's name if left out."
)
@click.option(
    "--upstream",
    metavar="URL",
    help="Reverse mode: be the client's base URL and pass on to this endpoint. Forward mode, a proxy, if left out.",
)
@click.option(
    "--privacy",
    type=click.Choice(("hash", "content")),
    default="hash",
    show_default=True,
    help="`hash`: no text in the trace; `content`: all of it, for you alone.",
)
@click.option(
    "--upstream-ca",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Further authorities, in PEM, that endpoints are believed with; can be repeated.",
)
@click.option(
    "--connect-to",
    multiple=True,
    metavar="HOST:PORT=ADDR:PORT",
    help="Connect to ADDR:PORT where HOST:PORT is asked for, TLS names stay; can be repeated.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of the recorder on loopback; a free one if left out.",
)
@click.option(
    "--ca-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the recorder's certificate authority; in your XDG state folder if left out.",
)
@click.option(
    "--queue-size",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="MB",
    help="What may wait for the writer; what comes beyond it is dropped and counted.",
)
@click.option("--addon-path", is_flag=True, help="Print the file for `mitmdump -s` and end.")
def record(
    *,
    command: tuple[str, ...],
    output: Path | None,
    force: bool,
    client: ClientName | None,
    upstream: str | None,
    privacy: Privacy,
    queue_size: int,
    addon_path: bool,
    **rest: Any,
) -> None:
    """Record a coding agent's session as a trace, while it runs as always.

    Starts the client in this terminal with what it needs to be recorded, ends when it ends, and exits as it did; with 1
    if the client was fine but the recording is in doubt. Without a client, says what to export and records until
    Ctrl-C. Nothing of the client's configuration is changed.

    \b
    Example:
      aitrace record -o session.aitrace -- claude
    """
    if addon_path:
        spec = find_spec("recorders.addon")
        click.echo("" if spec is None else spec.origin)
        return
    clock = SystemClock()
    path = output if output is not None else _free_name(clock)
    if str(path) == "-":
        raise UsageError(
            "a recording cannot be written to standard output, which is the client's",
            hint="name a file with -o, or leave it out",
        )
    endpoint = None if upstream is None else upstream_from_text(upstream)
    if command:
        find_program(command, os.environ)
    _require_free(path, force=force)
    if privacy == "content":
        click.echo(
            f"warning: {path} will hold the whole text of prompts and answers; it is readable by you alone",
            err=True,
        )
    order = _Order(
        options=RecordOptions(
            path=str(path),
            privacy=privacy,
            capture="forward" if endpoint is None else "reverse",
            queue_bytes=queue_size * _BYTES_PER_MB,
        ),
        force=force,
        command=command,
        client=client or (client_from_command(command) if command else None),
        is_guessed=client is None,
        upstream=endpoint,
        **rest,
    )
    sys.exit(asyncio.run(_record(order, os.environ, clock)))


async def _record(order: _Order, environ: Mapping[str, str], clock: Clock) -> int:
    """Record one session; the exit code."""
    from recorders.addon import RecorderAddon  # noqa: PLC0415 - mitmproxy takes over a second to import
    from recorders.certificates import ca_folder, prepare_authority, trust_files  # noqa: PLC0415 - same
    from recorders.proxy import ProxyOptions, serve  # noqa: PLC0415 - same

    # What a client cannot do is said before anything starts; the address is not known yet.
    _prepared(order, _road(order, "http://127.0.0.1"), environ)
    folder = order.ca_dir or ca_folder(environ)
    authority = prepare_authority(folder)
    user_proxy = proxy_from_environment(environ)
    recorder = RecorderAddon(order.options)
    with (
        trust_files(authority, environ, order.upstream_ca) as files,
        Signals(partial(_leave, files.folder, recorder, order.options.path)) as signals,
    ):
        options = ProxyOptions(
            port=order.port,
            upstream=order.upstream,
            user_proxy=user_proxy,
            no_proxy=entries_from_environment(environ),
            connect_to=tuple(connect_to_from_text(text) for text in order.connect_to),
            ca_folder=folder,
            upstream_ca=files.upstream,
        )
        if order.force:
            # The writer never writes over anything.
            for there in _files(Path(order.options.path)):
                there.unlink(missing_ok=True)
        async with serve(options, recorder, clock) as proxy:
            if user_proxy is not None:
                _say(f"endpoints are reached through the proxy of {user_proxy.variable}")
            road = _road(order, proxy.url)
            road = replace(road, bundle=str(files.bundle), added=str(files.added))
            status = await _session(order, road, environ, signals)
    said = ending(
        Session(
            client=order.client,
            mode=order.options.capture,
            report=recorder.report,
            tally=recorder.tally,
            unread_hosts=proxy.traffic.unread_hosts,
            proxy_errors=proxy.traffic.errors,
            first_proxy_error=proxy.traffic.first_error,
            no_proxy=_no_proxy(order, road, environ),
        )
    )
    for line in (*said.lines, *(recorder.complaints if said.in_doubt else ())):
        _say(line)
    return EXIT_IN_DOUBT if status == EXIT_OK and said.in_doubt else status


async def _session(order: _Order, road: Road, environ: Mapping[str, str], signals: Signals) -> int:
    """What is recorded: the client from start to end, or whatever comes until Ctrl-C; the exit code."""
    if not order.command:
        click.echo("\n".join(_exports(order, road, environ)))
        sys.stdout.flush()
        await signals.stop.wait()
        return EXIT_OK
    prepared = _prepared(order, road, environ)
    _say(_beginning(order))
    for note in prepared.notes:
        _say(note)
    return await signals.run_client(prepared.command, {**environ, **prepared.environment})


def _beginning(order: _Order) -> str:
    """What is recorded, and how: a client that was taken for another is noticed before it is used."""
    is_unknown = order.is_guessed and order.client == "generic"
    doubt = " (no client is known by that name: --client says which it is)" if is_unknown else ""
    name = Path(order.command[0]).name
    return (
        f"recording {name} as {order.client}{doubt} in {order.options.capture} mode to {order.options.path}"
    )


def _leave(folder: Path, recorder: "RecorderAddon", path: str) -> None:
    """The last of a process that is ended at once: what its contexts would have done."""
    recorder.hurry(_HURRY_S)
    shutil.rmtree(folder, ignore_errors=True)
    # Not by click: the signal may have come in the middle of another line.
    os.write(2, f"aitrace: ended at once; the writer finishes {path} on its own\n".encode())


def _no_proxy(order: _Order, road: Road, environ: Mapping[str, str]) -> str | None:
    """The list that the client was given; that of a client started elsewhere as it was printed."""
    if order.options.capture == "reverse":
        return None
    client = order.client or "generic"
    return _setup(client, order.command, road, environ).environment.get("NO_PROXY")


def _road(order: _Order, url: str) -> Road:
    upstream = None if order.upstream is None else order.upstream.origin + order.upstream.path
    return Road(mode=order.options.capture, url=url, upstream=upstream)


def _prepared(order: _Order, road: Road, environ: Mapping[str, str]) -> Setup:
    if not order.command:
        return Setup(command=(), environment={})
    return _setup(order.client or "generic", order.command, road, environ)


def _setup(client: ClientName, command: tuple[str, ...], road: Road, environ: Mapping[str, str]) -> Setup:
    return setup(client, road, command, environ, read_config(client, command, environ, Path.cwd()))


def _exports(order: _Order, road: Road, environ: Mapping[str, str]) -> Iterator[str]:
    """What to type so that a client started elsewhere is recorded."""
    yield f"# recording to {order.options.path} until Ctrl-C; in another terminal, for the client that you use:"
    clients = CLIENTS if order.client is None else (order.client,)
    prepared = {client: _setup_or_error(client, road, environ) for client in clients}
    tables = [found.environment for found in prepared.values() if isinstance(found, Setup)]
    shared = _shared(tables) if len(tables) > 1 else {}
    if shared:
        yield ""
        yield "# every client"
        yield from _export_lines(shared)
    for client, found in prepared.items():
        yield ""
        yield f"# {client} (tried with {SEEN_WITH[client]})"
        if isinstance(found, UsageError):
            yield f"# {found}; {found.hint}"
            continue
        own = {name: value for name, value in found.environment.items() if name not in shared}
        yield from _export_lines(own)
        if len(found.command) > 1:
            yield shlex.join(found.command)
        elif not own:
            yield "# nothing more"
    if any(is_covered("localhost", entries_from_text(table.get("NO_PROXY"))) for table in tables):
        yield ""
        yield "# NO_PROXY keeps endpoints on this machine away from the recorder: record those with --upstream URL"


def _setup_or_error(client: ClientName, road: Road, environ: Mapping[str, str]) -> Setup | UsageError:
    try:
        return _setup(client, () if client == "generic" else (client,), road, environ)
    except UsageError as error:
        return error


def _shared(tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What is in all of them with the same value."""
    first, *others = tables
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _export_lines(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        yield f"export {name}={shlex.quote(value)}"


def _free_name(clock: Clock) -> Path:
    now = datetime.fromtimestamp(clock.unix_ns() // NS_PER_S, UTC).astimezone()
    return Path(f"session-{now:%Y%m%d-%H%M%S}.aitrace")


def _files(path: Path) -> tuple[Path, Path]:
    """The trace, and what it is called until it is finished."""
    return path, partial_path(path)


def _require_free(path: Path, *, force: bool) -> None:
    """Refuse to write over something, or where nothing can be written, before anything is started."""
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"{path}: cannot be written, {str(path.parent)!r} is no folder that you may write to"
        )
    for there in _files(path):
        if there.exists() and not force:
            raise UsageError(f"{there}: exists already", hint="name another file with -o, or use --force")


def _say(text: str) -> None:
    click.echo(f"aitrace: {text}", err=True)
