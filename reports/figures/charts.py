"""Pure: the figures of a report as plotly's JSON, except the timeline; colours are names that the page resolves.

A colour `@wait` stands for the page's custom property `--wait`, so figures follow the light or dark scheme. Text that
came from outside is escaped here: plotly reads a few HTML tags in labels.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from aitrace.units import NS_PER_S
from reports.answers import sample_of
from reports.cache.metrics import CONTINUING
from reports.document import Figure
from reports.measures.call_metrics import LATENESS_MS, between_ms
from reports.metric import Row
from reports.metrics import METRICS
from reports.series import Line, thinned
from reports.sessions import IS_PLAYED, IS_SENT
from reports.stats import Floats, ecdf
from reports.summary import Report
from reports.words import KIND_NAMES, counted, gap_label, text_from_ratio

PART_COLUMNS = {"customdata[0]": "tokens", "customdata[1]": "of tokens"}
"""Heads of the table of a figure's data, where shares come with what they were computed from."""

_ECDF_POINTS = 400
SCATTER_POINTS = 3000
_LINE_POINTS = 1200
_WIDE_FACTOR = 20
_PANEL_GAP = 0.06
_NO_WIDTH = "\u200b"
_TTFT_SERVICE = METRICS["ttft_service_ms"].title
_TTFT_USER = METRICS["ttft_user_ms"].title
RUN_TIME = "s since the start of the run"


def ttft_ecdf(report: Report) -> Figure:
    """Both TTFTs as cumulative shares."""
    return _ecdf_figure(
        report,
        Figure(id="ttft-ecdf", title="TTFT, cumulative"),
        "time to first token, ms",
        [("ttft_service_ms", _TTFT_SERVICE, "@wait"), ("ttft_user_ms", _TTFT_USER, "@user")],
    )


def itl_ecdf(report: Report) -> Figure:
    """Time between tokens and longest stalls as cumulative shares."""
    return _ecdf_figure(
        report,
        Figure(id="itl-ecdf", title="Time between tokens (ITL) and longest stalls, cumulative"),
        "time without a token, ms",
        [
            ("itl_ms", "mean time between tokens of a call", "@decode"),
            ("longest_stall_ms", "longest stall of a call", "@failed"),
        ],
    )


def lateness_ecdf(report: Report) -> Figure:
    """Lateness as a cumulative share."""
    return _ecdf_figure(
        report,
        Figure(id="lateness-ecdf", title="Lateness, cumulative"),
        "lateness, ms",
        [
            ("lateness_ms", "sent − due", "@user"),
            ("client_lateness_ms", "client: without opening connections", "@wait"),
        ],
    )


def _ecdf_figure(report: Report, empty: Figure, x_title: str, parts: list[tuple[str, str, str]]) -> Figure:
    traces: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    values_of = {metric: sample_of(report.facts, metric).values for metric, _, _ in parts}
    for metric, label, colour in parts:
        values = values_of[metric]
        counts[label] = values.size
        if not values.size:
            continue
        x, share = ecdf(values, points=_ECDF_POINTS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {"shape": "hv", "color": colour, "dash": "dot" if traces else "solid"},
                "name": label,
                "x": rounded(x),
                "y": rounded(share),
                "hovertemplate": f"{label}: %{{y:.1%}} of calls have at most %{{x:,.3~g}} ms<extra></extra>",
            }
        )
    everything = np.concatenate(list(values_of.values()))
    return replace(
        empty,
        note=drawn_note(_counts_text(counts), traces),
        traces=traces,
        layout={
            # Values of 0 have no place on a logarithmic axis; the curve then begins at their share.
            "xaxis": axis(x_title) | scale_of(everything[everything > 0]),
            "yaxis": {"title": {"text": "share of calls"}, "tickformat": ".0%", "range": [0, 1.02]},
        },
    )


def _counts_text(counts: dict[str, int]) -> str:
    """`n = 5`, or one n per label where they differ."""
    if len(set(counts.values())) == 1:
        return f"n = {next(iter(counts.values())):,}"
    return "; ".join(f"{label}: n = {count:,}" for label, count in counts.items())


def axis(title: str) -> dict[str, Any]:
    """A numeric axis with its title."""
    return {"title": {"text": title}, "tickformat": ",~g"}


def scale_of(values: Floats) -> dict[str, Any]:
    """A logarithmic axis where values above 0 span more than a factor of 20."""
    is_wide = values.size > 0 and values.min() > 0 and values.max() / values.min() > _WIDE_FACTOR
    # Labels at 1, 2 and 5: an axis of two decades would have but one or two labels.
    return {"type": "log", "dtick": "D2"} if is_wide else {"rangemode": "tozero"}


def ttft_over_time(report: Report) -> Figure:
    """Service TTFT of each call at the moment it was sent."""
    return _calls_figure(
        report.facts.calls.lazy().filter(IS_SENT & pl.col("first_token_ns").is_not_null()),
        Figure(id="ttft-time", title=f"{_TTFT_SERVICE}, over the run"),
        (RUN_TIME, pl.col("sent_ns") / NS_PER_S),
        (f"{_TTFT_SERVICE}, ms", between_ms("sent_ns", "first_token_ns")),
        colour="@wait",
    )


def ttft_by_prefill(report: Report) -> Figure:
    """Service TTFT against the prompt tokens that were not cached."""
    uncached = pl.col("usage_input_tokens") - pl.col("usage_cache_read_tokens")
    return _calls_figure(
        report.facts.calls.lazy().filter(
            IS_SENT & pl.col("first_token_ns").is_not_null() & uncached.is_not_null()
        ),
        Figure(
            id="ttft-prefill",
            title=f"{_TTFT_SERVICE}, by prompt tokens that were not cached",
            note="calls that report cached tokens",
        ),
        ("prompt tokens not cached, as reported", uncached.cast(pl.Float64)),
        (f"{_TTFT_SERVICE}, ms", between_ms("sent_ns", "first_token_ns")),
        colour="@wait",
    )


def lateness_over_time(report: Report) -> Figure:
    """Lateness of each call at the moment it was due."""
    return _calls_figure(
        report.facts.calls.lazy().filter(IS_SENT & pl.col("due_ns").is_not_null()),
        Figure(id="lateness-time", title="Lateness over the run"),
        (RUN_TIME, pl.col("due_ns") / NS_PER_S),
        ("lateness (sent − due), ms", LATENESS_MS),
        colour="@user",
    )


def _calls_figure(
    calls: pl.LazyFrame, empty: Figure, x: tuple[str, pl.Expr], y: tuple[str, pl.Expr], *, colour: str
) -> Figure:
    """One point per call, or per so many calls; axes are given by title and value."""
    values = calls.select("call", "instance", "session", x=x[1], y=y[1]).collect()
    kept, thinned_note = thinned_rows(values)
    labels = [
        f"call {call}, instance {instance}, session {session}"
        for call, instance, session in kept.select("call", "instance", "session").iter_rows()
    ]
    ys = kept["y"].to_numpy()
    points = points_trace(kept["x"].to_numpy(), ys, labels, colour)
    points["hovertemplate"] = f"%{{text}}<br>{y[0]}: %{{y:,.3~g}}<br>{x[0]}: %{{x:,.4~g}}<extra></extra>"
    return replace(
        empty,
        note=drawn_note(
            f"{empty.note}{', ' if empty.note else ''}n = {values.height:,}{thinned_note}", labels
        ),
        traces=[points] if labels else [],
        layout={
            "xaxis": axis(x[0]),
            "yaxis": axis(y[0]) | scale_of(ys),
            "hovermode": "closest",
            "showlegend": False,
        },
    )


def session_slowdown(report: Report) -> Figure:
    """Time of each session in the run against the time expected from the recording."""
    timed = report.facts.sessions.filter(
        IS_PLAYED & (pl.col("expected_end_ns") > pl.col("expected_start_ns"))
    )
    sessions, thinned_note = thinned_rows(timed)
    expected = ((sessions["expected_end_ns"] - sessions["expected_start_ns"]) / NS_PER_S).to_numpy()
    actual = ((sessions["last_end_ns"] - sessions["first_due_ns"]) / NS_PER_S).to_numpy()
    traces = []
    if sessions.height:
        labels = [
            f"instance {instance}, session {session}, {counted(calls, 'call')}"
            for instance, session, calls in sessions.select("instance", "session", "calls").iter_rows()
        ]
        ends = [float(expected.min()), float(expected.max())]
        traces = [
            {
                "type": "scatter",
                "mode": "lines",
                "x": ends,
                "y": ends,
                "name": "as expected",
                "line": {"color": "@muted", "dash": "dash", "width": 1},
                "hoverinfo": "skip",
            },
            points_trace(expected, actual, labels, "@wait")
            | {
                "name": "session",
                "hovertemplate": "%{text}<br>in the run %{y:,.3~g} s, expected %{x:,.3~g} s<extra></extra>",
            },
        ]
    wide = scale_of(np.concatenate([expected, actual]))
    return Figure(
        id="session-slowdown",
        title="Sessions: time in the run by expected time",
        note=drawn_note(f"sessions that have both times, n = {timed.height:,}{thinned_note}", traces),
        traces=traces,
        layout={
            "xaxis": axis("expected (recorded durations, gaps as played), s") | wide,
            "yaxis": axis("in the run, s") | wide,
            "hovermode": "closest",
        },
    )


def cache_three_ways(report: Report) -> Figure:
    """Hit rates as reported, as the engine counted, and as an unlimited cache could have had."""
    numbers = report.answers.numbers
    total = numbers["cache_input_tokens"]
    bars = [
        ("reported by the API", "cache_reported_tokens", total, "@reported", "reported"),
        ("counted by the engine", "engine_hit_tokens", numbers["engine_query_tokens"], "@engine", "engine"),
        ("unlimited cache", "cache_bound_session_tokens", total, "@bound1", "bound: within the session"),
        ("unlimited cache", "cache_bound_tree_tokens", total, "@bound2", "bound: between agents of a tree"),
        ("unlimited cache", "cache_bound_other_tokens", total, "@bound3", "bound: between trees"),
    ]
    traces = []
    totals: dict[str, float] = {}
    for place, name, whole, colour, label in bars:
        part = numbers[name]
        if part is None or not whole:
            continue
        share = part / whole
        totals[place] = totals.get(place, 0) + share
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": [round(share, 5)],
                "y": [place],
                "name": label,
                "marker": {"color": colour},
                "hovertemplate": f"{label}: {part:,} of {whole:,} tokens (%{{x:.2%}})<extra></extra>",
            }
        )
    if totals:
        traces.append(_bar_labels(totals))
    return Figure(
        id="cache-rates",
        title="Prefix cache hit rate, three ways",
        note=drawn_note(f"n = {numbers['cache_calls']:,}", traces),
        traces=traces,
        layout={
            "barmode": "stack",
            # Room beyond 100 % for the label of a full bar.
            "xaxis": {
                "title": {"text": "share of prompt tokens"},
                "tickformat": ".0%",
                "range": [0, 1.1],
                "dtick": 0.2,
            },
            "yaxis": {"automargin": True, "autorange": "reversed"},
        },
        height_px=300,
    )


def _bar_labels(totals: dict[str, float]) -> dict[str, Any]:
    """The total of each bar at its end: a label within would be that of a part."""
    return {
        "type": "scatter",
        "mode": "text",
        "x": [round(share, 5) for share in totals.values()],
        "y": list(totals),
        "text": [f" {text_from_ratio(share)}" for share in totals.values()],
        "textposition": "middle right",
        "showlegend": False,
        "hoverinfo": "skip",
    }


def cache_by_gap(report: Report) -> Figure:
    """Reported hit rate within the bound, by what came before the call and the length of the gap."""
    rows = report.answers.tables["cache_by_gap"]
    places = [_gap_place(row) for row in rows]
    return cached_bars(
        Figure(
            id="cache-gap",
            title="Cached share of prompt tokens, by the gap before the call",
            note=f"n = {report.answers.numbers['cache_calls']:,}",
            height_px=380,
        ),
        rows,
        [[group for group, _ in places], [label for _, label in places]],
        {"title": {"text": "gap before the call, as played"}, "type": "multicategory"},
    )


def cached_bars(
    empty: Figure,
    rows: list[Row],
    x: list[Any],
    x_axis: dict[str, Any],
    *,
    possible: str = "bound",
    total: str = "input_tokens",
) -> Figure:
    """Reported cached tokens within those of an unlimited cache, as shares of prompt tokens; a place for each row.

    Args:
        x: The places, or their groups and their names.
        possible: What the rows call the unlimited cache.
        total: What they call the prompt tokens.
    """
    # The bound is drawn first and wider: what the cache missed is the part of it that stays in sight.
    traces = [
        {
            "type": "bar",
            "x": x,
            "y": [row[f"{key}_ratio"] for row in rows],
            "width": width,
            "name": name,
            "marker": {"color": colour},
            "customdata": [[row[f"{key}_tokens"], row[total]] for row in rows],
            "hovertemplate": f"{name}: %{{customdata[0]:,}} of %{{customdata[1]:,}} tokens (%{{y:.1%}})<extra></extra>",
        }
        for key, name, colour, width in (
            (possible, "unlimited cache", "@bound3", 0.8),
            ("reported", "reported by the API", "@reported", 0.5),
        )
        if any(row[f"{key}_ratio"] is not None for row in rows)
    ]
    return replace(
        empty,
        note=drawn_note(empty.note, traces),
        traces=traces,
        layout={
            "barmode": "overlay",
            "xaxis": x_axis,
            "yaxis": {"title": {"text": "share of prompt tokens"}, "tickformat": ".0%", "range": [0, 1.02]},
        },
        columns=PART_COLUMNS,
    )


def _gap_place(row: Row) -> tuple[str, str]:
    """Group and label of a row; first calls of sessions are one group.

    Plotly orders labels by their first appearance in any group, so each group has labels of its own: they differ by
    spaces of no width.
    """
    kind = str(row["kind"])
    name = KIND_NAMES[kind]
    if kind in CONTINUING:
        group, label = name, gap_label(row["gap_from_s"], row["gap_to_s"])
    else:
        group, label = "first call of", name.removeprefix("first call of ")
    return group, f"{label}<br>n = {row['calls']:,}{_NO_WIDTH * list(KIND_NAMES).index(kind)}"


def line_trace(line: Line, colour: str, y_axis: str, dash: str) -> dict[str, Any]:
    """A line of steps, thinned; a value that is not known leaves a gap."""
    kept = thinned(line, points=_LINE_POINTS)
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "color": colour, "dash": dash, "width": 1.5},
        "name": plotly_text(line.name),
        "x": rounded(kept.at_s),
        "y": rounded(kept.values),
        "yaxis": y_axis,
    }


def thinned_rows(frame: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """At most `SCATTER_POINTS` rows at even distances, and what the note of the figure says of that."""
    if frame.height <= SCATTER_POINTS:
        return frame, ""
    rows = frame[np.linspace(0, frame.height - 1, SCATTER_POINTS).round().astype(np.int64)]
    return rows, f"; one in {frame.height / rows.height:.3g} is drawn"


def points_trace(x: Floats, y: Floats, labels: list[str], colour: str) -> dict[str, Any]:
    """Points with a text each."""
    return {
        "type": "scatter",
        "mode": "markers",
        "marker": {"color": colour, "size": 5, "opacity": 0.6},
        "x": rounded(x),
        "y": rounded(y),
        "text": labels,
    }


def panels(x_title: str, y_axes: list[dict[str, Any]]) -> dict[str, Any]:
    """Axes of panels one below the other on one axis of time, the first on top: `y`, `y2`, `y3` of the traces."""
    height = 1 / max(1, len(y_axes))
    layout: dict[str, Any] = {"hovermode": "x unified"}
    for number, y_axis in enumerate(y_axes, 1):
        top = 1 - (number - 1) * height
        layout["yaxis" if number == 1 else f"yaxis{number}"] = {
            "anchor": "x",
            "domain": [max(0.0, top - height + (_PANEL_GAP if number < len(y_axes) else 0)), top],
            "rangemode": "tozero",
            "tickformat": ",~g",
            "gridcolor": "@rule",
            "linecolor": "@rule",
            "zerolinecolor": "@rule",
            "automargin": True,
            "nticks": 5,
        } | y_axis
    # The axis of time stands below the lowest panel.
    layout["xaxis"] = axis(x_title) | {"anchor": f"y{len(y_axes)}" if len(y_axes) > 1 else "y"}
    return layout


def drawn_note(text: str, drawn: list[Any]) -> str:
    """The note of a figure; says so if nothing is drawn."""
    return text if drawn else f"nothing to draw: {text}"


def number_of(value: float | str | None) -> float:
    """A number of a row; 0 for what is none."""
    return 0.0 if value is None or isinstance(value, str) else float(value)


def rounded(values: Floats) -> list[float | None]:
    """Six digits that matter; None where there is no value."""
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in values.tolist()]


def plotly_text(text: str) -> str:
    """Text that plotly shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
