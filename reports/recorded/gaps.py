"""Pure: gaps by cause and by tool, and how long tools ran, as rows of tables."""

from typing import Any

import polars as pl

from aitrace.units import NS_PER_S
from reports.metric import Row
from reports.recorded.facts import Recorded
from reports.stats import Floats, shown_quantile

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""Quantiles of tables of lengths."""
SEVERAL = "several tools"
"""Stands for the name of the tool where an answer called different ones."""
JOINED = "sub-agent's end"
"""Stands for it where a sub-agent's result was what the call waited for last."""
NAMELESS = "tool not named"
"""Stands for a name that is not known."""


def gaps_by_cause(recorded: Recorded) -> list[Row]:
    """Gaps after the end of what a call waited for, by what filled them, the most time first."""
    gaps = recorded.calls.filter(pl.col("gap_ns").is_not_null())
    return _rows_by(gaps, "gap_cause", "cause", "gap_ns")


def gaps_by_tool(recorded: Recorded) -> list[Row]:
    """Tool gaps by the tool that the answer before called."""
    called = (
        recorded.tools.group_by("call")
        .agg(names=pl.col("name").n_unique(), first=pl.col("name").first())
        .with_columns(
            tool=pl.when(pl.col("names") > 1)
            .then(pl.lit(SEVERAL))
            .otherwise(pl.col("first").fill_null(NAMELESS))
        )
    )
    gaps = recorded.calls.filter((pl.col("gap_cause") == "tool") & pl.col("gap_ns").is_not_null())
    gaps = gaps.join(called.select("tool", waited_call="call"), on="waited_call", how="left")
    named = (
        pl.when(pl.col("gap_relation") == "join")
        .then(pl.lit(JOINED))
        .otherwise(pl.col("tool").fill_null(NAMELESS))
    )
    return _rows_by(gaps.with_columns(tool=named), "tool", "tool", "gap_ns")


def tool_times(recorded: Recorded) -> list[Row]:
    """How long tools ran, by name, where the trace tells; `calls` counts those without a time too."""
    named = recorded.tools.with_columns(pl.col("name").fill_null(NAMELESS))
    counts = dict(named.group_by("name").len().iter_rows())
    timed = _rows_by(named.filter(pl.col("duration_ns").is_not_null()), "name", "tool", "duration_ns")
    rows = [{"tool": row["tool"], "calls": counts.pop(row["tool"]), **row} for row in timed]
    nothing: Row = dict.fromkeys(("total_s", *(f"{name}_s" for name in QUANTILES), "max_s"))
    untimed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return rows + [{"tool": name, "calls": count, "n": 0, **nothing} for name, count in untimed]


def gap_values_s(recorded: Recorded) -> dict[str, Floats]:
    """Gaps by cause, s, for a figure; those of the causes with the most time first."""
    gaps = recorded.calls.filter(pl.col("gap_ns").is_not_null())
    return {
        str(row["cause"]): _seconds(gaps.filter(pl.col("gap_cause") == row["cause"])["gap_ns"])
        for row in gaps_by_cause(recorded)
    }


def _rows_by(frame: pl.DataFrame, column: str, name: str, value: str) -> list[Row]:
    rows: list[Row] = []
    for (key,), inside in frame.group_by(column, maintain_order=True):
        rows.append({name: str(key), **length_row(_seconds(inside[value]))})
    return sorted(rows, key=lambda row: (-_number(row["total_s"]), str(row[name])))


def length_row(values_s: Floats) -> Row:
    """Count, sum, quantiles (None where the sample is too small) and maximum of lengths."""
    return {
        "n": values_s.size,
        "total_s": float(values_s.sum()),
        **{f"{name}_s": shown_quantile(values_s, ratio) for name, ratio in QUANTILES.items()},
        "max_s": float(values_s.max()) if values_s.size else None,
    }


def _seconds(lengths_ns: pl.Series) -> Floats:
    # numpy divides; polars multiplies by the reciprocal, and whole seconds would not stay whole.
    return lengths_ns.to_numpy() / NS_PER_S


def _number(value: Any) -> float:
    return float(value or 0)
