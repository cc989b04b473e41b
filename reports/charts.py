"""Pure: the figures of a report as plotly's JSON, except the timeline; colours are names that the page resolves.

A colour `@wait` stands for the page's custom property `--wait`, so figures follow the light or dark scheme. Text that
came from outside is escaped here: plotly reads a few HTML tags in labels.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from reports.metric import NS_PER_S
from reports.series import Line, thinned
from reports.sessions import IS_SENT
from reports.stats import Floats, ecdf
from reports.summary import Report
from reports.words import gap_label, text_from_ratio

_ECDF_POINTS = 400
_SCATTER_POINTS = 3000
_LINE_POINTS = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the page."""

    id: str
    """Id of its element."""
    title: str
    """Heading."""
    note: str
    """Population and n, and what was left out of the drawing."""
    traces: list[dict[str, Any]]
    """Plotly traces; empty if the run has nothing to draw, and then the note says so."""
    layout: dict[str, Any] = field(default_factory=dict)
    """Plotly layout beyond the page's own."""
    height_px: int = 340
    """Height on the page."""


def ttft_ecdf(report: Report) -> Figure:
    """Both TTFTs as cumulative shares."""
    return _ecdf_figure(
        report,
        "ttft-ecdf",
        "TTFT, cumulative",
        [("ttft_service_ms", "service (from sent)", "@wait"), ("ttft_user_ms", "user (from due)", "@user")],
    )


def itl_ecdf(report: Report) -> Figure:
    """Time between tokens and longest stalls as cumulative shares."""
    return _ecdf_figure(
        report,
        "itl-ecdf",
        "Time between tokens and longest stalls, cumulative",
        [
            ("itl_ms", "mean time between tokens of a call", "@decode"),
            ("longest_stall_ms", "longest stall of a call", "@failed"),
        ],
    )


def lateness_ecdf(report: Report) -> Figure:
    """Lateness as a cumulative share."""
    return _ecdf_figure(
        report,
        "lateness-ecdf",
        "Lateness, cumulative",
        [
            ("lateness_ms", "sent − due", "@user"),
            ("client_lateness_ms", "without opening connections", "@wait"),
        ],
    )


def _ecdf_figure(report: Report, name: str, title: str, parts: list[tuple[str, str, str]]) -> Figure:
    traces: list[dict[str, Any]] = []
    counts: list[str] = []
    for metric, label, colour in parts:
        values = report.answers.samples[metric].values
        counts.append(f"{label}: n = {values.size:,}")
        if not values.size:
            continue
        x, share = ecdf(values, points=_ECDF_POINTS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {"shape": "hv", "color": colour, "dash": "dot" if traces else "solid"},
                "name": label,
                "x": _rounded(x),
                "y": _rounded(share),
                "hovertemplate": "%{y:.1%} of calls take at most %{x:,.4~g} ms<extra></extra>",
            }
        )
    everything = [report.answers.samples[metric].values for metric, _, _ in parts]
    layout = {
        "xaxis": {"title": {"text": "ms"}} | _scale(np.concatenate(everything)),
        "yaxis": {"title": {"text": "share of calls"}, "tickformat": ".0%", "range": [0, 1.02]},
    }
    return Figure(id=name, title=title, note=_note("; ".join(counts), traces), traces=traces, layout=layout)


def _scale(values: Floats) -> dict[str, Any]:
    """A logarithmic axis where values span more than two decades above 0."""
    is_wide = values.size > 0 and values.min() > 0 and values.max() / values.min() > 100
    return {"type": "log", "dtick": 1, "exponentformat": "none"} if is_wide else {"rangemode": "tozero"}


def ttft_over_time(report: Report) -> Figure:
    """Service TTFT of each call at the moment it was sent."""
    calls = report.facts.calls.filter(IS_SENT & pl.col("first_token_ns").is_not_null())
    kept = _thinned_rows(calls)
    ttft_ms = ((kept["first_token_ns"] - kept["sent_ns"]) / 1e6).to_numpy()
    return _scatter(
        Figure(
            id="ttft-time",
            title="Service TTFT over the run",
            note=_population("sent calls with a first token", calls.height, kept.height),
            traces=[_points((kept["sent_ns"] / NS_PER_S).to_numpy(), ttft_ms, _call_labels(kept), "@wait")]
            if kept.height
            else [],
            layout=_axes("s since the start of the run", "ms")
            | {"yaxis": {"title": {"text": "ms"}} | _scale(ttft_ms)},
        )
    )


def ttft_by_prefill(report: Report) -> Figure:
    """Service TTFT against the prompt tokens that were not cached."""
    calls = report.facts.calls.filter(
        IS_SENT
        & pl.col("first_token_ns").is_not_null()
        & pl.col("usage_input_tokens").is_not_null()
        & pl.col("usage_cache_read_tokens").is_not_null()
    )
    kept = _thinned_rows(calls)
    uncached = (kept["usage_input_tokens"] - kept["usage_cache_read_tokens"]).to_numpy()
    ttft_ms = ((kept["first_token_ns"] - kept["sent_ns"]) / 1e6).to_numpy()
    return _scatter(
        Figure(
            id="ttft-prefill",
            title="Service TTFT by prompt tokens that were not cached",
            note=_population("calls with a first token that report cached tokens", calls.height, kept.height),
            traces=[_points(uncached, ttft_ms, _call_labels(kept), "@wait")] if kept.height else [],
            layout=_axes("prompt tokens not cached, as reported", "ms"),
        )
    )


def lateness_over_time(report: Report) -> Figure:
    """Lateness of each call at the moment it was due."""
    calls = report.facts.calls.filter(IS_SENT & pl.col("due_ns").is_not_null())
    kept = _thinned_rows(calls)
    late_ms = ((kept["sent_ns"] - kept["due_ns"]) / 1e6).to_numpy()
    return _scatter(
        Figure(
            id="lateness-time",
            title="Lateness over the run",
            note=_population("sent calls", calls.height, kept.height),
            traces=[_points((kept["due_ns"] / NS_PER_S).to_numpy(), late_ms, _call_labels(kept), "@user")]
            if kept.height
            else [],
            layout=_axes("s since the start of the run", "sent − due, ms"),
        )
    )


def session_slowdown(report: Report) -> Figure:
    """Time of each session in the run against the time expected from the recording."""
    sessions = report.facts.sessions.filter(
        pl.col("is_whole")
        & (pl.col("complete_calls") == pl.col("calls"))
        & (pl.col("expected_end_ns") > pl.col("expected_start_ns"))
    )
    expected = ((sessions["expected_end_ns"] - sessions["expected_start_ns"]) / NS_PER_S).to_numpy()
    actual = ((sessions["last_end_ns"] - sessions["first_due_ns"]) / NS_PER_S).to_numpy()
    traces = []
    if sessions.height:
        labels = [
            f"instance {instance}, session {session}, {calls:,} calls"
            for instance, session, calls in sessions.select("instance", "session", "calls").iter_rows()
        ]
        ends = [float(expected.min()), float(expected.max())]
        traces = [
            {
                "type": "scatter",
                "mode": "lines",
                "x": ends,
                "y": ends,
                "name": "as recorded",
                "line": {"color": "@muted", "dash": "dash", "width": 1},
                "hoverinfo": "skip",
            },
            _points(expected, actual, labels, "@wait") | {"name": "session"},
        ]
    wide = _scale(np.concatenate([expected, actual]))
    return Figure(
        id="session-slowdown",
        title="Sessions: time in the run by time expected from the recording",
        note=_note(f"sessions of which every planned call is complete, n = {sessions.height:,}", traces),
        traces=traces,
        layout={
            "xaxis": {"title": {"text": "recorded durations and scaled gaps, s"}} | wide,
            "yaxis": {"title": {"text": "in the run, s"}} | wide,
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
    for place, name, whole, colour, label in bars:
        part = numbers[name]
        if part is None or not whole:
            continue
        share = part / whole
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": [round(share, 5)],
                "y": [place],
                "name": label,
                "marker": {"color": colour},
                "text": [text_from_ratio(share)] if share > 0.06 else [""],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "hovertemplate": f"{label}: {part:,} of {whole:,} tokens (%{{x:.2%}})<extra></extra>",
            }
        )
    return Figure(
        id="cache-rates",
        title="Prefix cache hit rate, three ways",
        note=_note(
            f"reported and bound: complete calls that report cached tokens, else all complete calls, "
            f"n = {numbers['cache_calls']:,}; engine: all it served between the first and the last reading",
            traces,
        ),
        traces=traces,
        layout={
            "barmode": "stack",
            "xaxis": {"title": {"text": "share of prompt tokens"}, "tickformat": ".0%", "range": [0, 1]},
            "yaxis": {"automargin": True, "autorange": "reversed"},
        },
        height_px=300,
    )


def cache_by_gap(report: Report) -> Figure:
    """Reported hit rate and bound by the gap before the call."""
    rows = report.answers.tables["cache_by_gap"]
    labels = [f"{gap_label(row['gap_from_s'], row['gap_to_s'])}<br>n = {row['calls']:,}" for row in rows]
    traces = []
    for key, name, colour in (("reported", "reported", "@reported"), ("bound", "unlimited cache", "@bound1")):
        shares = [row[f"{key}_ratio"] for row in rows]
        if all(share is None for share in shares):
            continue
        traces.append(
            {
                "type": "bar",
                "x": labels,
                "y": shares,
                "name": name,
                "marker": {"color": colour},
                "customdata": [[row[f"{key}_tokens"], row["input_tokens"]] for row in rows],
                "hovertemplate": "%{customdata[0]:,} of %{customdata[1]:,} tokens (%{y:.1%})<extra></extra>",
            }
        )
    return Figure(
        id="cache-gap",
        title="Hit rate by the gap before the call",
        note=_note(
            f"as above, n = {report.answers.numbers['cache_calls']:,}; gaps as played, after time scale and caps",
            traces,
        ),
        traces=traces,
        layout={
            "barmode": "group",
            "xaxis": {"title": {"text": "gap before the call"}, "type": "category"},
            "yaxis": {"title": {"text": "share of prompt tokens"}, "tickformat": ".0%", "range": [0, 1.02]},
        },
    )


def load_over_time(report: Report) -> Figure:
    """Calls in flight and active sessions, with the engine's own gauges on the same axis of time."""
    lines = report.answers.lines
    drawn = [
        *((line, "@wait", "y", "solid") for line in lines["calls_in_flight"]),
        *((line, "@muted", "y", "dot") for line in lines["sessions_active"]),
        *((line, "@decode", "y", "solid") for line in lines["engine_running"]),
        *((line, "@failed", "y", "solid") for line in lines["engine_waiting"]),
        *((line, "@engine", "y2", "dash") for line in lines["engine_kv_usage_ratio"]),
    ]
    traces = [_line(line, colour, axis, dash) for line, colour, axis, dash in drawn if line.at_s.size]
    layout: dict[str, Any] = _axes("s since the start of the run", "calls, sessions, requests")
    if lines["engine_kv_usage_ratio"]:
        layout["yaxis2"] = {
            "title": {"text": "KV cache in use"},
            "overlaying": "y",
            "side": "right",
            "tickformat": ".0%",
            "range": [0, 1.02],
            "dtick": 0.25,
            "showgrid": False,
        }
    numbers = report.answers.numbers
    return Figure(
        id="load-time",
        title="Load over the run",
        note=_note(
            f"sent calls, n = {numbers['sent_calls']:,}; readings of the engine, n = {numbers['scrapes']:,}",
            traces,
        ),
        traces=traces,
        layout=layout | {"hovermode": "x unified"},
    )


def _line(line: Line, colour: str, axis: str, dash: str) -> dict[str, Any]:
    kept = thinned(line, points=_LINE_POINTS)
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "color": colour, "dash": dash, "width": 1.5},
        "name": plotly_text(line.name),
        "x": _rounded(kept.at_s),
        "y": _rounded(kept.values),
        "yaxis": axis,
    }


def _points(x: Floats, y: Floats, labels: list[str], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "marker": {"color": colour, "size": 5, "opacity": 0.6},
        "x": _rounded(x),
        "y": _rounded(y),
        "text": labels,
        "hovertemplate": "%{text}<br>%{x:,.4~g}, %{y:,.4~g}<extra></extra>",
    }


def _scatter(figure: Figure) -> Figure:
    figure.layout.update({"hovermode": "closest", "showlegend": False})
    return figure


def _axes(x: str, y: str) -> dict[str, Any]:
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}, "rangemode": "tozero"}}


def _call_labels(calls: pl.DataFrame) -> list[str]:
    return [
        f"call {call}, instance {instance}, session {session}"
        for call, instance, session in calls.select("call", "instance", "session").iter_rows()
    ]


def _thinned_rows(calls: pl.DataFrame) -> pl.DataFrame:
    if calls.height <= _SCATTER_POINTS:
        return calls
    return calls[np.linspace(0, calls.height - 1, _SCATTER_POINTS).round().astype(np.int64)]


def _population(what: str, count: int, drawn: int) -> str:
    thinned_note = "" if drawn == count else f"; one in {count / drawn:.3g} is drawn"
    return _note(f"{what}, n = {count:,}{thinned_note}", [count] if count else [])


def _note(text: str, drawn: list[Any]) -> str:
    return text if drawn else f"nothing to draw: {text}"


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def plotly_text(text: str) -> str:
    """Text that plotly shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
