"""Pure: a plan's summary as text for a terminal."""

from collections.abc import Iterator, Sequence

from aitrace.units import duration_from_ns
from replayer.plan_summary import PlanSummary, Window

_BAR_CHARS = 40
_LABEL_CHARS = 16


def text_from_summary(summary: PlanSummary) -> str:
    """The summary as lines of label and value, a bar for each window, and the notes."""
    lines = [f"{label:<{_LABEL_CHARS}}{value}" for label, value in _facts(summary)]
    if summary.windows:
        lines += ["", *_bars(summary.windows)]
    if summary.notes:
        lines += ["", "Notes", *(f"- {note}" for note in summary.notes)]
    return "\n".join(lines)


def _facts(summary: PlanSummary) -> Iterator[tuple[str, str]]:
    yield "Trees", f"{summary.trees:,}, {summary.sessions:,} sessions, {summary.calls:,} calls"
    yield "Start", "by the clock (open loop)" if summary.lanes is None else f"in {summary.lanes:,} lanes"
    yield "Prompts", f"{summary.prompt_tokens:,} tokens"
    yield "Answers", f"{summary.output_tokens:,} tokens"
    yield "Duration", "not known" if summary.duration_ns is None else duration_from_ns(summary.duration_ns)
    if summary.untimed_calls:
        yield "Untimed", f"{summary.untimed_calls:,} calls, left out of duration and peaks"
    yield (
        "Peaks",
        f"{summary.peak_calls:,} calls, {summary.peak_sessions:,} sessions, {summary.peak_trees:,} trees at a time",
    )
    held = summary.working_set
    alive = "not known" if held.peak_tokens is None else f"{held.peak_tokens:,}"
    yield "Working set", f"{alive} tokens at a time, {held.distinct_tokens:,} distinct tokens in total"
    yield "Calls due", ", ".join(f"{count:,} by {_RULES[rule]}" for rule, count in summary.waits.items())
    if summary.gap_causes:
        yield "Gap causes", ", ".join(f"{count:,} {cause}" for cause, count in summary.gap_causes.items())
    if summary.capped_calls:
        yield "Gap caps", f"{summary.capped_calls:,} calls, {duration_from_ns(summary.capped_ns)} taken off"


_RULES = {"start": "the start of their tree", "gap": "a recorded gap", "tools": "the times of tools"}


def _bars(windows: Sequence[Window]) -> Iterator[str]:
    yield f"{'from':>12}  {'calls':>7}  {'prompt tokens':>14}"
    highest = max(window.prompt_tokens for window in windows)
    for window in windows:
        bar = "█" * round(_BAR_CHARS * window.prompt_tokens / max(1, highest))
        row = f"{_start_text(window):>12}  {window.calls:>7,}  {window.prompt_tokens:>14,}  {bar}"
        yield row.rstrip()


def _start_text(window: Window) -> str:
    return duration_from_ns(window.start_ns) if window.start_ns else "0 s"
