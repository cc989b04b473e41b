"""Pure: the tables of a recorded trace's report; the page and the terminal show the same."""

from collections.abc import Sequence

from aitrace.outcomes import OUTCOME_WORDS
from aitrace.quantiles import min_count
from reports.bucket_text import CAUSE_WORDS, CLASS_WORDS
from reports.document import Table
from reports.metric import Row
from reports.recorded.gaps import JOINED, NAMELESS
from reports.recorded.prefixes import CLASSES, KINDS
from reports.recorded.reuse import REASONS
from reports.recorded.spans import STATES
from reports.recorded.summary import TraceReport
from reports.sections.cells import rows_table, share_text
from reports.words import (
    KIND_NAMES,
    NOT_KNOWN,
    counted,
    gap_label,
    text_from_ratio,
    text_from_seconds,
    text_from_value,
)

MAX_ROWS = 100
"""Rows of the tables of sessions, trees and tools on the page; JSON has all."""
MAX_BREAKS = 25
"""Rows of the table of prefix breaks."""
_INDENT = "\u2003"
_GROUPS = {"all": "all sessions", "main": "main agents", "subagent": "sub-agents"}


def session_table(rows: Sequence[Row], *, limit: int) -> Table:
    """One row per session."""
    # A column of one word tells nothing that is not told above.
    has_harness = len({row["harness"] for row in rows}) > 1
    return Table(
        caption=_limit_caption(rows, limit, "session")
        + "Indented: sub-agents. With the model: share of the session's time in which a call was answered. Cached: share "
        "of prompt tokens that the provider reported; possible: share that an unlimited cache could have served.",
        columns=(
            "session", "agent", *(("harness",) if has_harness else ()), "calls", "turns", "tools", "duration",
            "with the model", "prompt tokens", "longest", "output", "cached", "possible", "breaks",
        ),
        rows=tuple(_session_cells(row, has_harness=has_harness) for row in rows[:limit]),
    )  # fmt: skip


def short_session_table(rows: Sequence[Row], *, limit: int) -> Table:
    """The same without what does not fit on a terminal."""
    table = session_table(rows, limit=limit)
    return table.of_columns(*(head for head in table.columns if head not in ("tools", "longest", "output")))


def _session_cells(row: Row, *, has_harness: bool) -> tuple[str, ...]:
    return (
        _INDENT * int(row["depth"] or 0) + f"{row['session']} {row['label'] or ''}".rstrip(),
        str(row["agent"] or (NOT_KNOWN if row["depth"] else "main")),
        *((str(row["harness"] or NOT_KNOWN),) if has_harness else ()),
        *(value_cell(row[name]) for name in ("calls", "turns", "tools")),
        seconds_cell(row["duration_s"]),
        ratio_cell(row["model_ratio"]),
        *(value_cell(row[name]) for name in ("prompt_tokens", "largest_prompt_tokens", "output_tokens")),
        *(ratio_cell(row[name]) for name in ("reported_ratio", "possible_ratio")),
        value_cell(row["prefix_breaks"]),
    )


def tree_table(rows: Sequence[Row]) -> Table:
    return Table(
        caption=_limit_caption(rows, MAX_ROWS, "tree")
        + "At once: the most sessions of the tree that had a call in flight at the same time.",
        columns=(
            "tree",
            "sessions",
            "depth",
            "at once",
            "calls",
            "turns",
            "duration",
            "prompt tokens",
            "cached",
            "possible",
        ),
        rows=tuple(
            (
                str(row["root"]),
                *(value_cell(row[name]) for name in ("sessions", "depth", "most_at_once", "calls", "turns")),
                seconds_cell(row["duration_s"]),
                value_cell(row["prompt_tokens"]),
                *(ratio_cell(row[name]) for name in ("reported_ratio", "possible_ratio")),
            )
            for row in rows[:MAX_ROWS]
        ),
    )


def time_table(rows: Sequence[Row]) -> Table:
    """Time by what a session did, for all, main agents and sub-agents."""
    found = {(str(row["sessions"]), str(row["state"])): row for row in rows}
    groups = [group for group in _GROUPS if any(name == group for name, _ in found)]
    lines = []
    for state, name in STATES.items():
        cells = []
        for group in groups:
            row = found.get((group, state))
            cells += (
                [NOT_KNOWN, NOT_KNOWN]
                if row is None
                else [seconds_cell(row["time_s"]), ratio_cell(row["time_ratio"])]
            )
        if any(cell != NOT_KNOWN for cell in cells):
            lines.append((name, *cells))
    heads = [head for group in groups for head in (_GROUPS[group], "share")]
    return Table(
        caption="From the first request of a session to its last known end; where calls overlap, the earlier one counts.",
        columns=("", *heads),
        rows=tuple(lines),
    )


def length_table(rows: Sequence[Row], name: str, caption: str, *, has_calls: bool = False) -> Table:
    """Quantiles of lengths by name."""
    return Table(
        caption=caption,
        columns=(name, *(("calls",) if has_calls else ()), "n", "p50", "p90", "p99", "max", "total"),
        rows=tuple(
            (
                CAUSE_WORDS[str(row[name])] if name == "cause" else str(row[name]),
                *((value_cell(row["calls"]),) if has_calls else ()),
                f"{row['n']:,}",
                *(_quantile_cell(row, quantile) for quantile in ("p50", "p90", "p99")),
                seconds_cell(row["max_s"]),
                seconds_cell(row["total_s"]),
            )
            for row in rows[:MAX_ROWS]
        ),
    )


def _quantile_cell(row: Row, name: str) -> str:
    value = _number(row[f"{name}_s"])
    if value is None and row["n"]:
        return f"n < {min_count(int(name[1:]) / 100)}"
    return text_from_seconds(value)


def growth_table(report: TraceReport) -> Table:
    """New tokens by who brought them in."""
    return Table(
        caption="First prompts of sessions, and what each later call adds that the prompt before it did not hold. "
        + _size_note(report),
        columns=("", "first prompts, tokens", "added later, tokens", "per call, mean", "p50", "p90"),
        rows=tuple(
            (
                KINDS[str(row["kind"])],
                *(value_cell(row[f"{name}_tokens"]) for name in ("first", "later", "per_call", "p50")),
                f"n < {min_count(0.9)}"
                if row["p90_tokens"] is None and row["later_calls"]
                else value_cell(row["p90_tokens"]),
            )
            for row in report.answers.tables["new_tokens_by_kind"]
        ),
    )


def _size_note(report: TraceReport) -> str:
    if report.trace.header.unit == "tokens":
        return "Sizes are tokens as the trace counts them."
    return "Sizes are bytes in the trace; tokens of a part are its share of the bytes times the tokens of the call."


def tells_tools(rows: Sequence[Row]) -> bool:
    """Whether tool gaps have tools: not those of a source that names none."""
    return any(row["tool"] not in (JOINED, NAMELESS) for row in rows)


def class_table(rows: Sequence[Row]) -> Table:
    """How prompts go on from the ones before them, by harness."""
    return Table(
        caption="Lost: what the earlier prompt had beyond the common start. Again: what of it the new prompt holds further "
        "back, computed again though it did not change.",
        columns=(
            "how prompts go on",
            "harness",
            "calls",
            "share",
            "sessions",
            "lost, tokens",
            "again, tokens",
        ),
        rows=tuple(
            (
                CLASSES[str(row["class"])],
                str(row["harness"] or NOT_KNOWN),
                f"{row['calls']:,}",
                ratio_cell(row["calls_ratio"]),
                f"{row['sessions']:,}",
                *(value_cell(row[name]) for name in ("lost_tokens", "again_tokens")),
            )
            for row in rows
        ),
    )


def break_table(rows: Sequence[Row], unit: str) -> Table:
    """The worst breaks."""
    return Table(
        caption=(f"{MAX_BREAKS} of {counted(len(rows), 'break')}. " if len(rows) > MAX_BREAKS else "")
        + f"Segment: place within the new prompt, from 0, of the first one that differs, and its size in {unit}.",
        columns=(
            "call", "session", "agent", "how", "segment", "what it is", "size", "kept, tokens", "lost, tokens",
            "again, tokens",
        ),
        rows=tuple(
            (
                str(row["call"]),
                str(row["session"]),
                str(row["agent"] or ("main" if row["session"] == row["root"] else NOT_KNOWN)),
                CLASSES[str(row["class"])],
                NOT_KNOWN if row["segment"] is None else str(row["segment"]),
                _segment_name(row),
                value_cell(row["segment_size"]),
                *(value_cell(row[f"{name}_tokens"]) for name in ("kept", "lost", "again")),
            )
            for row in rows[:MAX_BREAKS]
        ),
    )  # fmt: skip


def _segment_name(row: Row) -> str:
    """What the first differing segment is; the role tells more than the type only of texts."""
    if row["segment_type"] is None:
        return "end of the prompt"
    return f"{row['segment_role']} text" if row["segment_type"] == "text" else str(row["segment_type"])


def reuse_table(report: TraceReport) -> Table:
    """Reported against possible."""
    numbers = report.answers.numbers
    total = numbers["cache_prompt_tokens"]
    parts = (
        ("reported by the API", "cache_reported_tokens"),
        ("unlimited cache", "cache_possible_tokens"),
        ("… within the session", "cache_possible_session_tokens"),
        ("… between agents of a tree", "cache_possible_tree_tokens"),
        ("… between trees", "cache_possible_other_tokens"),
        ("possible, not reported", "cache_lost_tokens"),
        ("reported, beyond what was possible", "cache_above_possible_tokens"),
    )
    return Table(
        caption=f"Complete calls that report prompt and cached tokens (all complete ones if none does): n = "
        f"{numbers['cache_calls']:,}. Possible: an earlier prompt to the same model began alike. The last two rows are sums "
        "over calls of what exceeds the other.",
        columns=("", "tokens", "of tokens", "share"),
        rows=tuple(
            (name, value_cell(numbers[key]), value_cell(total), share_text(numbers[key], total))
            for name, key in parts
        ),
    )


def loss_table(rows: Sequence[Row]) -> Table:
    """What was possible and not reported, by the likeliest reason."""
    return Table(
        caption="Share: of the prompt tokens of all calls compared.",
        columns=("possible, not reported, by the likeliest reason", "calls", "tokens", "share"),
        rows=tuple(
            (
                REASONS[str(row["reason"])],
                f"{row['calls']:,}",
                value_cell(row["lost_tokens"]),
                ratio_cell(row["lost_ratio"]),
            )
            for row in rows
        ),
    )


_RATES = {
    "calls": "calls",
    "prompt_tokens": "prompt tokens",
    "reported_tokens": "reported",
    "possible_tokens": "possible",
    "reported_ratio": "reported share",
    "possible_ratio": "possible share",
}
"""Columns of reuse tables."""


def reuse_by_gap_table(rows: Sequence[Row]) -> Table:
    """Reported and possible tokens by what came before the call."""
    return Table(
        caption="First calls have no gap to survive; – in the second column: the length of the gap is not known.",
        columns=("call", "gap before", *_RATES.values()),
        rows=tuple(
            (KIND_NAMES[str(row["kind"])], gap_label(row["gap_from_s"], row["gap_to_s"]), *_rate_cells(row))
            for row in rows
        ),
    )


def reuse_by_depth_table(rows: Sequence[Row]) -> Table:
    """The same by the depth of the agent."""
    return Table(
        caption="Depth 0: main agents.",
        columns=("depth", *_RATES.values()),
        rows=tuple((str(row["depth"]), *_rate_cells(row)) for row in rows),
    )


def _rate_cells(row: Row) -> tuple[str, ...]:
    return tuple(
        ratio_cell(row[name]) if name.endswith("_ratio") else value_cell(row[name]) for name in _RATES
    )


def model_table(rows: Sequence[Row]) -> Table:
    """Tokens by model and class of call."""
    heads = {
        "model": "model",
        "call_class": "calls for",
        "calls": "calls",
        "prompt_tokens": "prompt tokens",
        "largest_prompt_tokens": "longest prompt",
        "output_tokens": "output tokens",
        "reported_tokens": "cached tokens",
        "reported_ratio": "cached",
    }
    words = [
        row | {"model": row["model"] or NOT_KNOWN, "call_class": CLASS_WORDS[str(row["call_class"])]}
        for row in rows
    ]
    return rows_table(words, heads)


def outcome_table(rows: Sequence[Row]) -> Table:
    """Calls by how they ended."""
    heads = {
        "outcome": "outcome",
        "status": "status",
        "calls": "calls",
        "sessions": "sessions",
        "repeated_calls": "tried again",
        "retries": "of them retries",
        "retry_after_s": "Retry-After up to, s",
    }
    caption = "Tried again: calls that a later one repeats. Retries: calls that repeat an earlier one."
    return rows_table([row | {"outcome": OUTCOME_WORDS[str(row["outcome"])]} for row in rows], heads, caption)


def _limit_caption(rows: Sequence[Row], limit: int, noun: str) -> str:
    return f"The first {limit:,} of {counted(len(rows), noun)}. " if len(rows) > limit else ""


def value_cell(value: float | str | None) -> str:
    """An amount."""
    return text_from_value(_number(value), "")


def ratio_cell(value: float | str | None) -> str:
    """A share."""
    return text_from_ratio(_number(value))


def seconds_cell(value: float | str | None) -> str:
    """A length of time."""
    return text_from_seconds(_number(value))


def _number(value: float | str | None) -> float | None:
    return None if isinstance(value, str) else value
