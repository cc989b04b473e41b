"""I/O: the help of commands that play a trace: their many options under headings, each under the same one everywhere."""

from collections.abc import Iterable

import click

GROUPS: dict[str, tuple[str, ...]] = {
    "Target": ("url", "protocol", "model", "api_key_env", "api_key_file"),
    "Search": ("slo", "by", "lowest", "highest", "precision"),
    "Output": ("output", "as_json", "no_live"),
    "Load": (
        "arrival",
        "concurrency",
        "trees",
        "select",
        "duration",
        "warm_up",
        "start_at",
        "prime",
        "seed",
    ),
    "Timing": ("time_scale", "gap_caps", "schedule", "retries", "timeout", "call_limit"),
    "Text and sizes": (
        "share_system",
        "history",
        "tool_messages",
        "stream",
        "context_tokens",
        "over_context",
        "text_seed",
        "force_output",
        "tokens_per_word",
    ),
    "Identity": ("identity", "identity_faults", "headers", "hints", "router_token"),
    "Measuring": (
        "metrics",
        "metrics_every",
        "no_metrics",
        "max_lateness",
        "self_check",
        "workers",
        "transport",
        "arrivals",
        "ab",
        "repeat",
    ),
}
"""Options by name, under the heading that stands above them, in the order of the help."""
_OTHER = "Help"


class GroupedCommand(click.Command):
    """A command whose help shows its options under the headings of `GROUPS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, as click does, but under headings."""
        left = {param.name: param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        for heading, names in GROUPS.items():
            _write(ctx, formatter, heading, [left.pop(name) for name in names if name in left])
        _write(ctx, formatter, _OTHER, left.values())


def _write(
    ctx: click.Context, formatter: click.HelpFormatter, heading: str, params: Iterable[click.Option]
) -> None:
    records = [record for param in params if (record := param.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(heading):
            formatter.write_dl(records)
