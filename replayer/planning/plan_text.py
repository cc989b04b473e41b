"""Pure: a plan's summary as text for a terminal."""

from collections.abc import Callable, Iterator, Sequence

from aitrace.units import duration_from_ns
from replayer.planning.plan_summary import LargestPrompt, PlanSummary, Window

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
    yield "Largest prompt", _largest_text(summary.largest_prompt)
    yield "Answers", f"{summary.output_tokens:,} tokens"
    yield (
        "Sending",
        _not_known_or(
            summary.sending_ns, lambda ns: f"{_length_text(ns)} from the first to the last call due"
        ),
    )
    yield (
        "Duration",
        _not_known_or(
            summary.duration_ns, lambda ns: f"{duration_from_ns(ns)} if answers take as long as recorded"
        ),
    )
    if summary.cut_ns is not None:
        yield "Cut", _cut_text(summary, summary.cut_ns)
    if summary.unmeasured_calls:
        names = ", ".join(
            f"{number:,} {_PHASES[phase]}" for phase, number in summary.unmeasured_calls.items()
        )
        yield "Not measured", f"{names} calls"
    if summary.untimed_calls:
        yield "Untimed", _untimed_text(summary)
    yield "Peaks", _peaks_text(summary)
    held = summary.working_set
    alive = _not_known_or(held.peak_tokens, lambda tokens: f"{tokens:,} tokens")
    yield "Working set", f"{alive} at a time, {held.distinct_tokens:,} distinct tokens in total"
    yield "Calls due", ", ".join(f"{count:,} by {_RULES[rule]}" for rule, count in summary.waits.items())
    if summary.gap_causes:
        yield "Gap causes", ", ".join(f"{count:,} {cause}" for cause, count in summary.gap_causes.items())
    if summary.capped_calls:
        yield "Gap caps", f"{summary.capped_calls:,} calls, {duration_from_ns(summary.capped_ns)} taken off"


def _largest_text(largest: LargestPrompt) -> str:
    label = "" if largest.label is None else f" ({largest.label})"
    return (
        f"{largest.tokens:,} tokens, then an answer of {largest.output_tokens:,}: call {largest.call}, "
        f"turn {largest.turn_index + 1} of session {largest.session}{label}"
    )


def _cut_text(summary: PlanSummary, cut_ns: int) -> str:
    text = (
        f"after {duration_from_ns(cut_ns)}; {summary.cut_calls:,} further calls of these trees are due later"
    )
    return text + (f"; {summary.spare_trees:,} trees in store" if summary.spare_trees else "")


def _untimed_text(summary: PlanSummary) -> str:
    text = f"{summary.untimed_calls:,} calls of which the plan does not know when they end"
    if summary.undated_calls:
        text += f", {summary.undated_calls:,} of them not even when they are due"
    return text


def _peaks_text(summary: PlanSummary) -> str:
    if summary.peak_calls is None:
        return "not known"
    return f"{summary.peak_calls:,} calls, {summary.peak_sessions:,} sessions, {summary.peak_trees:,} trees at a time"


def _not_known_or(value: int | None, text: Callable[[int], str]) -> str:
    return "not known" if value is None else text(value)


def _length_text(length_ns: int) -> str:
    return duration_from_ns(length_ns) if length_ns else "0 s"


_PHASES = {"prime": "priming", "warm_up": "warm-up", "measured": "measured"}
_RULES = {"start": "the start of their tree", "gap": "a recorded gap", "tools": "the times of tools"}


def _bars(windows: Sequence[Window]) -> Iterator[str]:
    yield f"{'from':>12}  {'calls':>7}  {'prompt tokens':>14}"
    highest = max(window.prompt_tokens for window in windows)
    for window in windows:
        bar = "█" * round(_BAR_CHARS * window.prompt_tokens / max(1, highest))
        row = f"{_length_text(window.start_ns):>12}  {window.calls:>7,}  {window.prompt_tokens:>14,}  {bar}"
        yield row.rstrip()
