"""Pure: what a user may ask of the load of a replay, checked once.

Gap caps are written `cause=duration`:

    good: `user=30s`, `all=1.5m`
    bad:  `users=30s` (no such cause)
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from aitrace.errors import UsageError
from aitrace.schema import GapCause
from aitrace.units import ns_from_duration
from replayer.pacing import AUTO, Arrival

History = Literal["recorded", "live"]
ToolMessages = Literal["user", "native"]
Streaming = Literal["always", "recorded"]

GAP_CAUSES: tuple[GapCause, ...] = get_args(GapCause)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What is played, when, and as which text."""

    arrival: Arrival = AUTO
    """When trees start; has no say where `concurrency` is given."""
    concurrency: int | None = None
    """Number of lanes that each play one tree after another; None = trees start by `arrival`."""
    trees: int | None = None
    """How many trees to play; more than the trace has plays them again with fresh identity. None = each once."""
    time_scale: float = 1.0
    """Factor on recorded gaps, tool times and recorded arrivals; 0 leaves no waits."""
    gap_caps_ns: Mapping[GapCause, int] = field(default_factory=dict)
    """Longest gap by cause, ns, applied after scaling; a cause that is absent has no cap."""
    seed: int = 0
    """Seed of random arrivals."""
    share_system: bool = False
    """Whether trees of one harness and agent kind get the same tools and system prompt."""
    history: History = "recorded"
    """Whose answers go into the next prompt: generated text of the recorded size, or what the target said."""
    tool_messages: ToolMessages = "user"
    """Whether tool calls and results are written as plain text or in the protocol's own form."""
    stream: Streaming = "always"
    """Whether every answer is streamed, or those that were recorded so."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.time_scale) and self.time_scale >= 0):
            raise UsageError(f"time scale is {self.time_scale!r}, expected a number of 0 or more")
        if self.concurrency is not None and self.concurrency < 1:
            raise UsageError(f"concurrency is {self.concurrency!r}, expected 1 or more")
        if self.concurrency is not None and self.arrival != AUTO:
            raise UsageError(
                f"arrival {self.arrival.text!r} and concurrency {self.concurrency!r} exclude each other",
                hint="Give --arrival for trees that start by the clock, or --concurrency for trees that wait.",
            )
        if self.trees is not None and self.trees < 1:
            raise UsageError(f"number of trees is {self.trees!r}, expected 1 or more")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed!r}, expected 0 or more")
        if any(cap_ns < 0 for cap_ns in self.gap_caps_ns.values()):
            raise UsageError(f"gap caps are {dict(self.gap_caps_ns)!r}, expected lengths of 0 or more")
        if self.history == "live" and self.tool_messages == "native":
            raise UsageError(
                "live history cannot be written with native tool messages: the answers hold no recorded tool calls",
                hint="Use --tool-messages user with --history live.",
            )


def gap_caps_from_specs(specs: Iterable[str]) -> dict[GapCause, int]:
    """Caps by cause from `cause=duration`; `all` stands for every cause that is not named itself.

    Raises:
        UsageError: A spec that cannot be read, or a cause named twice.
    """
    caps_ns: dict[str, int] = {}
    for spec in specs:
        cause, equals, duration = spec.partition("=")
        if not equals or cause not in (*GAP_CAUSES, "all"):
            raise UsageError(
                f"gap cap {spec!r} cannot be read, expected CAUSE=DURATION with a cause of "
                f"{', '.join(GAP_CAUSES)} or all"
            )
        if cause in caps_ns:
            raise UsageError(f"gap cap {spec!r} names {cause!r} a second time")
        caps_ns[cause] = ns_from_duration(duration)
    for_all_ns = caps_ns.get("all")
    capped = {cause: caps_ns.get(cause, for_all_ns) for cause in GAP_CAUSES}
    return {cause: cap_ns for cause, cap_ns in capped.items() if cap_ns is not None}


def json_from_options(options: LoadOptions) -> dict[str, Any]:
    """The options by name, defaults included, as a run keeps them."""
    return {
        "arrival": None if options.concurrency is not None else options.arrival.text,
        "concurrency": options.concurrency,
        "trees": options.trees,
        "time_scale": options.time_scale,
        "gap_caps_ns": dict(options.gap_caps_ns),
        "seed": options.seed,
        "share_system": options.share_system,
        "history": options.history,
        "tool_messages": options.tool_messages,
        "stream": options.stream,
    }
