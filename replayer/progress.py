"""I/O: shows a run while it goes on: a live panel on a terminal, a line every 10 s elsewhere; always on stderr.

It reads the driver's counts and owns none. What it shows is made from a `Snapshot` by `panel` and `plain_line`.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aitrace.outcomes import OUTCOME_WORDS
from aitrace.quantiles import min_count, quantile
from aitrace.units import NS_PER_S, duration_from_ns
from replayer.run_parts import Snapshot

PLAIN_EVERY_NS = 10 * NS_PER_S
_RECENT = 2000
"""Percentiles are of the latest calls: they cost the same however long the run is, and show what is now."""


class ProgressView:
    """Shows snapshots on a console; to be used as a context manager.

    Args:
        title: What is played, and where the run goes.
        is_live: Whether to draw a panel; else a line is printed now and then.
    """

    def __init__(self, console: Console, title: str, *, is_live: bool) -> None:
        self._console = console
        self._title = title
        self._live = Live(console=console, auto_refresh=False, transient=True) if is_live else None
        self._next_line_ns = PLAIN_EVERY_NS

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, snapshot: Snapshot) -> None:
        """Show the state of the run."""
        if self._live is not None:
            self._live.update(panel(snapshot, self._title), refresh=True)
        elif snapshot.elapsed_ns >= self._next_line_ns:
            self._next_line_ns = snapshot.elapsed_ns + PLAIN_EVERY_NS
            self._console.print(plain_line(snapshot), highlight=False, markup=False, soft_wrap=True)


def panel(snapshot: Snapshot, title: str) -> Table:
    """The live panel: a title and a row for each question a waiting person has."""
    progress, tally = snapshot.progress, snapshot.tally
    sessions = {
        "active": progress.sessions_active,
        "waiting": progress.sessions_waiting,
        "to come": progress.sessions_idle,
        "done": progress.sessions_done,
        _lost(snapshot): progress.sessions_lost,
    }
    trees = {"active": progress.trees_active, "done": progress.trees_done}
    calls = {
        "in flight": progress.calls_in_flight - snapshot.in_backoff,
        "in backoff": snapshot.in_backoff,
        "sent": progress.calls_sent,
        "to come": progress.calls_remaining,
        "never sent": progress.calls_unsent,
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=len("lateness"))
    table.add_column()
    table.add_row("stopping" if snapshot.is_stopping else "replay", Text(title, style="cyan"))
    table.add_row("time", _time(snapshot))
    table.add_row("trees", f"{_named(trees)}  of {snapshot.planned_trees}")
    table.add_row("sessions", f"{_named(sessions)}  of {snapshot.planned_sessions}")
    table.add_row("calls", f"{_named(calls)}  of {snapshot.planned_calls}")
    table.add_row("retries", _kinds(snapshot.earlier_tries))
    table.add_row("TTFT", _percentiles(tally.service_ttft_ns, 0.5, 0.95))
    table.add_row("lateness", _percentiles(tally.lateness_ns, 0.5, 0.99))
    table.add_row("failed", _kinds(tally.failed_calls))
    return table


def plain_line(snapshot: Snapshot) -> str:
    """The state of the run in one line."""
    progress, tally = snapshot.progress, snapshot.tally
    in_flight = (
        f"{progress.calls_in_flight - snapshot.in_backoff} in flight, {snapshot.in_backoff} in backoff"
    )
    sessions = f"{progress.sessions_done} of {snapshot.planned_sessions} sessions done"
    parts = [
        _time(snapshot),
        f"{progress.calls_sent} of {snapshot.planned_calls} calls sent, {in_flight}",
        f"{sessions}, {progress.sessions_lost} {_lost(snapshot)}",
        f"TTFT {_percentiles(tally.service_ttft_ns, 0.5, 0.95)}",
        f"lateness {_percentiles(tally.lateness_ns, 0.5, 0.99)}",
    ]
    if snapshot.earlier_tries:
        parts.append(f"retries: {_kinds(snapshot.earlier_tries)}")
    if tally.failed_calls:
        parts.append(f"failed: {_kinds(tally.failed_calls)}")
    return "; ".join(parts)


def _lost(snapshot: Snapshot) -> str:
    # A stop leaves sessions without their last calls, whatever became of the ones before.
    return "lost or cut" if snapshot.is_stopping else "lost"


def _time(snapshot: Snapshot) -> str:
    left = "" if snapshot.left_ns is None else f", about {_whole_seconds(snapshot.left_ns)} left"
    return f"{_whole_seconds(snapshot.elapsed_ns)} elapsed{left}"


def _whole_seconds(span_ns: int) -> str:
    return duration_from_ns(round(span_ns / NS_PER_S) * NS_PER_S) if span_ns >= NS_PER_S // 2 else "0 s"


def _named(counts: Mapping[str, int]) -> str:
    return "  ".join(f"{count} {name}" for name, count in counts.items())


def _percentiles(values_ns: Sequence[int], *ratios: float) -> str:
    recent = values_ns[-_RECENT:]
    if not recent:
        return "none yet"
    return ", ".join(
        f"p{ratio * 100:.0f} "
        + (
            duration_from_ns(quantile(recent, ratio))
            if len(recent) >= min_count(ratio)
            else f"(n < {min_count(ratio)})"
        )
        for ratio in ratios
    )


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {OUTCOME_WORDS[kind]}" for kind, count in sorted(counts.items())) or "none"
