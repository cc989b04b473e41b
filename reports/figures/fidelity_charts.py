"""Pure: figures of how well the schedule was kept: gaps and arrivals as planned and as played."""

from typing import Any

import numpy as np
import polars as pl

from aitrace.units import NS_PER_S
from reports.bucket_text import CAUSE_WORDS
from reports.document import Figure
from reports.figures.charts import RUN_TIME, axis, drawn_note, points_trace, rounded, scale_of, thinned_rows
from reports.measures.fidelity import played_gaps, tree_starts
from reports.stats import Floats
from reports.summary import Report

_LINE_POINTS = 600
_COLOURS = {"tool": "@wait", "user": "@user", "harness": "@bound1", "backoff": "@failed", "unknown": "@muted"}


def gaps_planned_and_played(report: Report) -> Figure:
    """The gap before each call as played, against the plan."""
    gaps = played_gaps(report.facts)
    kept, thinned_note = thinned_rows(gaps)
    traces = [_cause_trace(kept, cause) for cause in CAUSE_WORDS if (kept["gap_cause"] == cause).any()]
    both = kept.select(x=pl.col("gap_ns") / NS_PER_S, y=pl.col("played_gap_ns") / NS_PER_S)
    values = np.concatenate([both["x"].to_numpy(), both["y"].to_numpy()])
    wide = scale_of(values[values > 0])
    return Figure(
        id="gaps-played",
        title="Gaps, planned and played",
        note=drawn_note(
            f"calls that waited for the end of one call of their session, n = {gaps.height:,}{thinned_note}",
            traces,
        ),
        traces=[*traces, _as_planned(both["x"].to_numpy())] if traces else [],
        layout={
            "xaxis": axis("gap as planned, s") | wide,
            "yaxis": axis("gap as played, s") | wide,
            "hovermode": "closest",
        },
    )


def _cause_trace(gaps: pl.DataFrame, cause: str) -> dict[str, Any]:
    of_cause = gaps.filter(pl.col("gap_cause") == cause)
    labels = [
        f"call {call}, instance {instance}, session {session}"
        for call, instance, session in of_cause.select("call", "instance", "session").iter_rows()
    ]
    columns = of_cause.select(x=pl.col("gap_ns") / NS_PER_S, y=pl.col("played_gap_ns") / NS_PER_S)
    points = points_trace(columns["x"].to_numpy(), columns["y"].to_numpy(), labels, _COLOURS[cause])
    return points | {
        "name": f"gap filled by: {CAUSE_WORDS[cause]}",
        "hovertemplate": "%{text}<br>played %{y:,.4~g} s, planned %{x:,.4~g} s<extra></extra>",
    }


def _as_planned(planned_s: Floats) -> dict[str, Any]:
    ends = rounded(np.array([planned_s.min(), planned_s.max()]))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": ends,
        "y": ends,
        "name": "as planned",
        "line": {"color": "@muted", "dash": "dash", "width": 1},
        "hoverinfo": "skip",
    }


def arrivals_planned_and_played(report: Report) -> Figure:
    """Trees started by then, as planned and as played."""
    starts = tree_starts(report.facts)
    traces = []
    for column, name, colour, dash in (
        ("planned_ns", "planned", "@muted", "solid"),
        ("first_sent_ns", "played", "@wait", "dot"),
    ):
        at_s = np.sort(starts[column].to_numpy()) / NS_PER_S
        if at_s.size:
            traces.append(_started(at_s, name, colour, dash))
    note = f"trees whose first call was sent, n = {starts.height:,}"
    if not report.facts.header.open_loop:
        note = "in this run a lane starts a tree when the one before has ended, not the clock"
    if starts.height > _LINE_POINTS:
        note += f"; {_LINE_POINTS:,} of them are drawn"
    return Figure(
        id="arrivals-played",
        title="Arrival of trees, planned and played",
        note=drawn_note(note, traces),
        traces=traces,
        layout={
            "xaxis": axis(RUN_TIME),
            "yaxis": axis("trees started") | {"rangemode": "tozero"},
            "hovermode": "closest",
        },
    )


def _started(at_s: Floats, name: str, colour: str, dash: str) -> dict[str, Any]:
    counts = np.arange(1, at_s.size + 1)
    kept = np.unique(np.linspace(0, at_s.size - 1, min(at_s.size, _LINE_POINTS)).round().astype(np.int64))
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "color": colour, "dash": dash, "width": 2},
        "name": name,
        "x": rounded(at_s[kept]),
        "y": counts[kept].tolist(),
        "hovertemplate": f"{name}: %{{y:,}} trees by %{{x:,.4~g}} s<extra></extra>",
    }
