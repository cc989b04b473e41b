"""Pure: what two ways of playing a plan are compared by, and the names under which it is asked for.

A name is a measure and a statistic of it, or a share:

    good: `ttft_p95`, `session_paired`, `hit_ratio`
    bad:  `ttft` (which percentile?), `hit_ratio_p95` (a share has no percentiles)
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from aitrace.errors import UsageError

Level = Literal["call", "session", "tree"]
Statistic = Literal["p50", "p90", "p95", "p99", "mean", "paired", "share"]
Unit = Literal["ms", "s", "tokens/s", ""]

QUANTILES: dict[Statistic, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Statistics that are quantiles."""
_STATISTICS: tuple[Statistic, ...] = ("p50", "p90", "p95", "p99", "mean", "paired")
_STATISTIC_TITLES: dict[Statistic, str] = {"mean": "mean", "paired": "median of the paired differences"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """A value that every call, session or tree has, or two whose sums make a share."""

    name: str
    """First part of the names of its measures; of a share all of it."""
    title: str
    """Name on the page."""
    unit: Unit
    """Unit of its values; empty for a share."""
    level: Level
    """What has one value of it."""
    definition: str
    """What it is, in the words of docs/compare.md; values of a report by their names there."""
    words: tuple[str, str]
    """What a way with more of it is, and one with less."""
    is_better_low: bool
    """Whether less of it is better for who waits or pays."""
    clock_floor: float = 0.0
    """Differences up to this are within what the client's clock and loop can tell, in the unit."""

    @property
    def is_share(self) -> bool:
        return self.unit == ""

    @property
    def column(self) -> str:
        """Column that has a value where there is one; of a share that of the wholes."""
        return f"{self.name}_{'whole' if self.is_share else 'value'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number to compare."""

    name: str
    """Its name in options, JSON and tables."""
    basis: Basis
    """What it is a number of."""
    statistic: Statistic
    """Which number."""

    @property
    def title(self) -> str:
        if self.basis.is_share:
            return self.basis.title
        return f"{self.basis.title}, {_STATISTIC_TITLES.get(self.statistic, self.statistic)}"


_SLOW, _LONG, _MORE = ("slower", "faster"), ("longer", "shorter"), ("higher", "lower")

# fmt: off
BASES: dict[str, Basis] = {basis.name: basis for basis in (
    Basis(name="ttft", title="TTFT from sent", unit="ms", level="call", definition="`ttft_service_ms`", words=_SLOW,
          is_better_low=True, clock_floor=1.0),
    Basis(name="user_ttft", title="TTFT from due", unit="ms", level="call", definition="`ttft_user_ms`", words=_SLOW,
          is_better_low=True, clock_floor=1.0),
    Basis(name="headers", title="Headers", unit="ms", level="call", definition="`headers_ms`", words=_SLOW,
          is_better_low=True, clock_floor=1.0),
    Basis(name="itl", title="ITL", unit="ms", level="call", definition="`itl_ms`", words=_SLOW, is_better_low=True,
          clock_floor=0.5),
    Basis(name="stall", title="Longest stall", unit="ms", level="call", definition="`longest_stall_ms`", words=_LONG,
          is_better_low=True, clock_floor=1.0),
    Basis(name="speed", title="Output speed", unit="tokens/s", level="call", definition="`output_speed_tokens_per_s`",
          words=("faster", "slower"), is_better_low=False),
    Basis(name="call", title="Duration of a call", unit="ms", level="call", definition="`call_duration_ms`", words=_LONG,
          is_better_low=True, clock_floor=1.0),
    Basis(name="gap", title="Gap before a call", unit="s", level="call",
          definition="first try sent − end of what the call waited for", words=_LONG, is_better_low=True,
          clock_floor=0.001),
    Basis(name="session", title="Duration of a session", unit="s", level="session", definition="`session_duration_s`",
          words=_LONG, is_better_low=True, clock_floor=0.01),
    Basis(name="tree", title="Duration of a tree", unit="s", level="tree", definition="`tree_duration_s`", words=_LONG,
          is_better_low=True, clock_floor=0.01),
    Basis(name="backoff", title="Backoff of a session", unit="s", level="session", definition="`session_backoff_s`",
          words=_LONG, is_better_low=True, clock_floor=0.01),
    Basis(name="hit_ratio", title="Prompt tokens cached, reported", unit="", level="call",
          definition="reported cached tokens / reported input tokens, complete calls that report both", words=_MORE,
          is_better_low=False),
    Basis(name="refused_tries", title="Tries refused", unit="", level="call",
          definition="refused tries / tries that were sent", words=_MORE, is_better_low=True),
    Basis(name="complete_calls", title="Calls complete", unit="", level="call",
          definition="complete calls / calls, those that the end of a run cut left out", words=_MORE,
          is_better_low=False),
    Basis(name="lost_sessions", title="Sessions lost", unit="", level="session",
          definition="lost sessions / sessions, those that the end of a run cut left out", words=_MORE,
          is_better_low=True),
)}
# fmt: on
"""By name."""

DEFAULT_NAMES = (
    "ttft_p50", "ttft_p95", "ttft_p99", "ttft_paired", "user_ttft_p50", "user_ttft_p95", "user_ttft_paired",
    "headers_p50", "itl_p50", "itl_p95", "stall_p95", "speed_p50", "call_p50", "call_p95", "session_p50",
    "session_paired", "tree_p50", "backoff_mean", "hit_ratio", "refused_tries", "complete_calls", "lost_sessions",
)  # fmt: skip
"""Measures that are compared unless others are named."""
TRACE_BASES = frozenset({"ttft", "headers", "itl", "speed", "call", "gap", "session", "hit_ratio"})
"""What a trace can have recorded."""
TRACE_NAMES = ("gap_p50", "gap_paired")
"""Measures that are compared beside the others where a way is what was recorded."""


def measure_from_name(name: str) -> Measure:
    """The measure of that name.

    Raises:
        UsageError: There is none.
    """
    basis = BASES.get(name)
    if basis is not None and basis.is_share:
        return Measure(name=name, basis=basis, statistic="share")
    start, _, end = name.rpartition("_")
    if basis is not None:
        raise UsageError(
            f"measure {name!r} is without a statistic",
            hint=f"Give one of {', '.join(f'{name}_{each}' for each in _STATISTICS)}.",
        )
    basis = BASES.get(start)
    statistic = next((each for each in _STATISTICS if each == end), None)
    if basis is None or basis.is_share or statistic is None:
        raise UsageError(f"measure {name!r} is not known", hint=_hint(name))
    return Measure(name=name, basis=basis, statistic=statistic)


def measures_from_names(names: Iterable[str]) -> tuple[Measure, ...]:
    """The measures of those names, each once, in order.

    Raises:
        UsageError: There is none of a name.
    """
    return tuple(measure_from_name(name) for name in dict.fromkeys(names))


def all_names() -> list[str]:
    """Every name that there is."""
    return [
        name
        for basis in BASES.values()
        for name in (
            [basis.name] if basis.is_share else [f"{basis.name}_{statistic}" for statistic in _STATISTICS]
        )
    ]


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, all_names(), n=3, cutoff=0.5)
    values = ", ".join(basis.name for basis in BASES.values() if not basis.is_share)
    shares = ", ".join(basis.name for basis in BASES.values() if basis.is_share)
    meant = f"Did you mean {', '.join(near)}? " if near else ""
    return (
        f"{meant}There are {values}, each with {', '.join(f'_{each}' for each in _STATISTICS)}; and {shares}."
    )
