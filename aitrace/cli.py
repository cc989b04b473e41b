"""I/O: the root of the command line; attaches each package's commands lazily by name."""

import difflib
import errno
import importlib
import sys
from typing import Any

import click

from aitrace.errors import EXIT_WRONG_USE, AitraceError

COMMANDS = {
    "record": "recorders.commands.record:record",
    "demo": "aitrace.commands.demo:demo",
    "convert": "aitrace.commands.convert:convert",
    "inspect": "aitrace.commands.inspect:inspect",
    "check": "aitrace.commands.check:check",
    "plan": "replayer.commands.plan:plan",
    "identity": "replayer.commands.identity:identity",
    "calibrate": "replayer.commands.calibrate:calibrate",
    "replay": "replayer.commands.replay:replay",
    "search": "replayer.commands.search:search",
    "engine": "replayer.commands.engine:engine",
    "report": "reports.commands.report:report",
    "compare": "reports.commands.compare:compare",
    "export": "reports.commands.export:export",
}
"""Name of each command, and where it is; in the order of the help page."""

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are used, so that help and `check` need no network library."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = difflib.get_close_matches(args[0], COMMANDS, n=1)
        if near and args[0] not in COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - same
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AitraceError as error:
            click.echo(f"Error: {error}", err=True)
            if error.hint is not None:
                click.echo(f"Hint: {error.hint}", err=True)
            sys.exit(error.exit_code)
        except BrokenPipeError:
            # The reader of our output went away (`| head`): not a failure, and nothing more can be said.
            sys.stderr.close()
            sys.exit(0)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            click.echo(f"Error: {error.filename or 'output'}: cannot be written: {error.strerror}", err=True)
            sys.exit(EXIT_WRONG_USE)


SUMMARIES = {
    "record": "Record a coding agent's session as a trace, while it runs as always.",
    "demo": "Play a shipped trace against the built-in engine and write a report.",
    "convert": "Turn traces of other tools, or local histories, into aitrace's format.",
    "inspect": "Show what is in a trace: sessions, gaps, sizes, sharing.",
    "check": "Validate a trace, or prove that it holds no text.",
    "plan": "Show what a replay would send, before anything is sent.",
    "identity": "Show what the calls of one tree would carry to say whose they are.",
    "calibrate": "State the client's error bars at the busiest second of a plan, on this machine, now.",
    "replay": "Play a trace against an endpoint and keep every call.",
    "search": "Find the highest load that keeps to bounds, and play each step as a run.",
    "engine": "Serve the three protocols from a simulated engine on loopback.",
    "report": "Turn a run, or a recorded trace, into one HTML page and a summary.",
    "compare": "Compare runs of one plan call by call, and say what differs beyond noise.",
    "export": "Write a run in a form that other programs read.",
}
"""What the help page says of each command; a test compares it with the command's own first line."""


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="aitrace")
def main() -> None:
    """Record sessions of coding agents, replay them against LLM endpoints, and see what that does to time to first
    token, prefix cache and admission.

    \b
    Example:
      aitrace convert tests/data/weka/*.zst -o all.aitrace
      aitrace replay all.aitrace --url http://127.0.0.1:8000 --protocol chat -o run/
      aitrace report run/ -o report.html
    """
