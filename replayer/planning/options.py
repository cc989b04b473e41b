"""Pure: what a user may ask of the load of a replay, checked once.

Gap caps are written `cause=duration`:

    good: `user=30s`, `all=1.5m`
    bad:  `users=30s` (no such cause)

A warm-up is a time or a number of trees:

    good: `5m`, `20 trees`
    bad:  `20 calls` (neither of them)
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from aitrace.errors import UsageError
from aitrace.results import IdentityFault
from aitrace.schema import GapCause
from aitrace.units import ns_from_duration
from replayer.identity.hints import HintRule, json_from_hints
from replayer.identity.identity_names import HeaderTemplate, IdentityName
from replayer.planning.context_window import OverContext
from replayer.planning.mid_start import StartRange
from replayer.planning.pacing import AUTO, Arrival
from replayer.planning.tree_filter import TreeCondition
from replayer.retry import RetryName

History = Literal["recorded", "live"]
ToolMessages = Literal["user", "native"]
Streaming = Literal["always", "recorded"]
Retries = Literal["harness", RetryName]

Schedule = Literal["causal", "absolute"]
"""Whether a call waits for what it had waited for, or goes out at its recorded time whatever happened before."""

GAP_CAUSES: tuple[GapCause, ...] = get_args(GapCause)
_TREES = re.compile(r"([0-9]+)\s*trees?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What of a run is played and not measured: its first time, or its first trees."""

    text: str
    """As it was written."""
    length_ns: int | None = None
    """Calls due before that, ns from the start of the run; None if trees are counted."""
    trees: int | None = None
    """Calls of so many trees, the first to start; None if time is counted."""


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
    """Seed of random arrivals, and of where trees start that start in the middle."""
    share_system: bool = False
    """Whether trees of one harness and agent kind get the same tools and system prompt."""
    history: History = "recorded"
    """Whose answers go into the next prompt: generated text of the recorded size, or what the target said."""
    tool_messages: ToolMessages = "user"
    """Whether tool calls and results are written as plain text or in the protocol's own form."""
    retries: Retries = "harness"
    """Whose way of trying again a call that failed: that of the session's own harness, or that of one for all; a
    harness that is not known gives up, as `none` does."""
    identity: IdentityName = "native"
    """Which ids calls carry: those of the session's harness, Dynamo's, those of routers, or none."""
    headers: tuple[HeaderTemplate, ...] = ()
    """Further headers, with ids in them."""
    hints: tuple[HintRule, ...] = ()
    """Further body fields and headers, by harness, class or agent."""
    identity_faults: Mapping[IdentityFault, float] = field(default_factory=dict)
    """Share of the sessions whose ids cannot be trusted, by what is wrong with them."""
    stream: Streaming = "always"
    """Whether every answer is streamed, or those that were recorded so."""
    duration_ns: int | None = None
    """How long the run goes on, trees played again, before it is cut, ns; None = to the end of its trees."""
    warm_up: WarmUp | None = None
    """What is played first and not measured; None = nothing."""
    start_at: StartRange | None = None
    """Where in its recorded time each tree starts; None = at its beginning."""
    prime: bool = False
    """Whether the prompts that such a tree goes on from are sent before it."""
    select: tuple[TreeCondition, ...] = ()
    """What trees must meet, all of it, to be played."""
    context_tokens: int | None = None
    """Tokens of the model's window; None = every prompt fits."""
    over_context: OverContext = "stop"
    """What becomes of sessions that do not fit into it."""
    schedule: Schedule = "causal"
    """What makes calls due."""

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
        self._check_length()
        self._check_schedule()

    def _check_length(self) -> None:
        warm_up = self.warm_up
        if self.duration_ns is not None and self.duration_ns < 1:
            raise UsageError(f"duration is {self.duration_ns!r} ns, expected more than 0")
        if self.context_tokens is not None and self.context_tokens < 1:
            raise UsageError(f"context is {self.context_tokens!r} tokens, expected 1 or more")
        if warm_up is None:
            return
        if not (warm_up.length_ns or warm_up.trees):
            raise UsageError("the warm-up is empty, expected a time or a number of trees above 0")
        length_ns, duration_ns = warm_up.length_ns, self.duration_ns
        if length_ns is not None and duration_ns is not None and length_ns >= duration_ns:
            raise UsageError(
                "the warm-up takes the whole duration, so nothing would be measured",
                hint="Give --warm-up less time than --duration.",
            )
        if self.trees is not None and warm_up.trees is not None and warm_up.trees >= self.trees:
            raise UsageError(
                f"the warm-up takes all {self.trees} trees, so nothing would be measured",
                hint="Give --warm-up fewer trees than --trees.",
            )

    def _check_schedule(self) -> None:
        if self.prime and self.start_at is None:
            raise UsageError(
                "there is nothing to prime where trees start at their beginning",
                hint="Give --start-at with --prime.",
            )
        if self.schedule == "causal":
            return
        if self.history == "live":
            raise UsageError(
                "an absolute schedule cannot have live history: a call may be due before the answer that it carries",
                hint="Use --history recorded with --schedule absolute.",
            )
        if self.gap_caps_ns or self.prime:
            raise UsageError(
                f"an absolute schedule has no {'gaps to cap' if self.gap_caps_ns else 'call that waits for a primed one'}",
                hint="Leave out --gap-cap and --prime with --schedule absolute.",
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


def warm_up_from_text(text: str) -> WarmUp:
    """The warm-up that `5m` or `20 trees` states.

    Raises:
        UsageError: It is neither a time nor a number of trees.
    """
    trees = _TREES.fullmatch(text.strip())
    if trees is not None:
        return WarmUp(text=text, trees=int(trees[1]))
    try:
        return WarmUp(text=text, length_ns=ns_from_duration(text))
    except UsageError as error:
        raise UsageError(
            f"warm-up {text!r} cannot be read, expected a time or a number of trees",
            hint="--warm-up 5m leaves out the first 5 minutes, --warm-up '20 trees' the first 20 trees.",
        ) from error


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
        "retries": options.retries,
        "identity": options.identity,
        "headers": [f"{header.name}: {header.kept_value}" for header in options.headers],
        "hints": json_from_hints(options.hints),
        "identity_faults": dict(options.identity_faults),
        "duration_ns": options.duration_ns,
        "warm_up": None if options.warm_up is None else options.warm_up.text,
        "start_at": None if options.start_at is None else options.start_at.text,
        "prime": options.prime,
        "select": [condition.text for condition in options.select],
        "context_tokens": options.context_tokens,
        "over_context": None if options.context_tokens is None else options.over_context,
        "schedule": options.schedule,
    }
