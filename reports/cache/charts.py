"""Pure: the figures of the prefix cache over time, size and place: survival, losses, curves, turns and depths."""

from dataclasses import replace
from typing import Any

import numpy as np

from reports.bucket_text import turn_label
from reports.cache.curve import Curve, by_capacity, by_lifetime
from reports.cache.metrics import CONTINUING
from reports.cache.text import CAUSE_NAMES
from reports.document import Figure
from reports.figures.charts import axis, cached_bars, drawn_note, rounded
from reports.metric import Row
from reports.stats import Floats
from reports.summary import Report
from reports.words import KIND_NAMES, text_from_ratio

_CURVE_POINTS = 300
_KIND_COLOURS = {"tool": "@wait", "user": "@user", "other": "@muted"}
_KIND_SYMBOLS = {"tool": "circle", "user": "diamond", "other": "square"}
_FEW_DECADES = 2.5
_SHARE = {"tickformat": ".0%", "range": [0, 1.02]}
_LOST = "@failed"
_NEVER_HAD = "@toolgap"


def survival_curve(report: Report) -> Figure:
    """Share of prefixes that survive by the time they were idle, with its interval, by what filled the gap."""
    rows = report.answers.tables["cache_survival"]
    every = [row for row in rows if row["kind"] == "all"]
    traces = [*_band(every), _survival_line(every, "all calls", "@text", "circle")] if every else []
    kinds = [kind for kind in CONTINUING if any(row["kind"] == kind for row in rows)]
    for kind in kinds if len(kinds) > 1 else []:
        of_kind = [row for row in rows if row["kind"] == kind]
        traces.append(_survival_line(of_kind, KIND_NAMES[kind], _KIND_COLOURS[kind], _KIND_SYMBOLS[kind]))
    calls = sum(int(row["calls"] or 0) for row in every)
    times = np.array([float(row["idle_p50_s"] or 0) for row in every])
    return Figure(
        id="cache-survival",
        title="Prefixes that survive, by the time since their last use",
        note=drawn_note(
            f"calls that go on with a prefix of their session, n = {calls:,}; at the median idle time of each bucket, band: "
            "95 % interval",
            traces,
        ),
        traces=traces,
        layout={
            "xaxis": axis("idle before the call, as played, s")
            | (_logarithmic(times) if (times > 0).all() else {}),
            "yaxis": {"title": {"text": "share that survived"}} | _SHARE,
            "hovermode": "closest",
        },
        height_px=380,
    )


def _survival_line(rows: list[Row], name: str, colour: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "line": {"color": colour, "width": 1.5},
        "marker": {"color": colour, "symbol": symbol, "size": 7},
        "x": [row["idle_p50_s"] for row in rows],
        "y": [row["survived_ratio"] for row in rows],
        "text": [f"{row['survived_calls']:,} of {row['calls']:,} calls" for row in rows],
        "hovertemplate": f"{name}<br>idle %{{x:,.3~g}} s: %{{y:.1%}} survived (%{{text}})<extra></extra>",
    }


def _band(rows: list[Row]) -> list[dict[str, Any]]:
    """The interval as the area between its ends."""
    known = [row for row in rows if row["survived_low_ratio"] is not None]
    ends: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("low", "lower end of the 95 % interval", {}),
        ("high", "upper end", {"fill": "tonexty"}),
    )
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "line": {"width": 0.5, "color": "@reported"},
            "fillcolor": "@rule",
            "showlegend": False,
            "x": [row["idle_p50_s"] for row in known],
            "y": [row[f"survived_{end}_ratio"] for row in known],
            "hoverinfo": "skip",
            **fill,
        }
        for end, name, fill in ends
    ]


def loss_bars(report: Report) -> Figure:
    """Uncached prompt tokens by cause."""
    rows = [row for row in report.answers.tables["cache_losses"] if row["tokens"]]
    total = sum(int(row["tokens"] or 0) for row in report.answers.tables["cache_losses"])
    traces = []
    for is_lost, name, colour in ((0, "never had been sent", _NEVER_HAD), (1, "lost", _LOST)):
        mine = [row for row in rows if row["is_lost"] == is_lost]
        if mine:
            traces.append(_loss_trace(mine, name, colour))
    return Figure(
        id="cache-losses",
        title="Prompt tokens not served from cache, by cause",
        note=drawn_note(f"each token has one cause; together {total:,} tokens", traces),
        traces=traces,
        layout={
            "barmode": "stack",
            "xaxis": {
                "title": {"text": "share of the prompt tokens not served from cache"},
                "tickformat": ".0%",
                "rangemode": "tozero",
            },
            "yaxis": {
                "automargin": True,
                "autorange": "reversed",
                "categoryorder": "array",
                "categoryarray": [CAUSE_NAMES[str(row["cause"])] for row in rows],
            },
        },
        height_px=140 + 28 * max(3, len(rows)),
        columns={"y": "cause", "text": "share", "customdata[0]": "tokens", "customdata[1]": "calls"},
    )


def _loss_trace(rows: list[Row], name: str, colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "marker": {"color": colour},
        "x": [row["uncached_ratio"] for row in rows],
        "y": [CAUSE_NAMES[str(row["cause"])] for row in rows],
        "text": [text_from_ratio(float(row["uncached_ratio"] or 0)) for row in rows],
        "textposition": "auto",
        "customdata": [[row["tokens"], row["calls"]] for row in rows],
        "hovertemplate": "%{y}: %{customdata[0]:,} tokens of %{customdata[1]:,} calls<extra></extra>",
    }


def capacity_curve(report: Report) -> Figure:
    """Hit rate of an LRU cache by its size, with today's place on it."""
    return _curve_figure(
        report,
        Figure(id="cache-capacity", title="Hit rate by the size of the cache"),
        by_capacity(report.facts),
        ("size of a least-recently-used cache, tokens", "tokens"),
        report.answers.numbers["cache_equivalent_tokens"],
    )


def lifetime_curve(report: Report) -> Figure:
    """Hit rate of a cache that forgets by time, with today's place on it."""
    return _curve_figure(
        report,
        Figure(id="cache-lifetime", title="Hit rate by the lifetime of the cache"),
        by_lifetime(report.facts),
        ("time that everything is kept after its last use, s", "s"),
        report.answers.numbers["cache_equivalent_s"],
    )


def _curve_figure(
    report: Report, empty: Figure, curve: Curve | None, x: tuple[str, str], today: float | None
) -> Figure:
    title, unit = x
    traces: list[dict[str, Any]] = []
    reported = report.answers.numbers["cache_reported_ratio"]
    at = np.zeros(0) if curve is None else _points_of(curve)
    if curve is not None and at.size:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "model",
                "line": {"color": "@bound1", "width": 2},
                "x": rounded(at),
                "y": rounded(np.interp(at, curve.at, curve.hit_ratio)),
                "hovertemplate": f"%{{x:,.4~g}} {unit}: %{{y:.1%}}<extra></extra>",
            }
        )
        if reported is not None:
            traces.append(_level(at, float(reported)))
        if today is not None:
            traces.append(_working_point(today, curve.ratio_at(today), unit))
    return Figure(
        id=empty.id,
        title=empty.title,
        note=drawn_note(f"n = {report.answers.numbers['cache_calls']:,}", traces),
        traces=traces,
        layout={
            "xaxis": axis(title) | _logarithmic(at),
            "yaxis": {"title": {"text": "share of prompt tokens"}} | _SHARE,
            "hovermode": "closest",
        },
        height_px=380,
    )


def _logarithmic(values: Floats) -> dict[str, Any]:
    """A logarithmic axis with labels at 1, 2 and 5, at whole decades where there are many."""
    is_short = not values.size or np.log10(values.max() / values.min()) <= _FEW_DECADES
    return {"type": "log", "dtick": "D2" if is_short else 1}


def _points_of(curve: Curve) -> Floats:
    """Places on a logarithmic axis: where the curve is above 0, not more than are seen."""
    above = curve.at[(curve.at > 0) & (curve.hit_ratio > 0)]
    if not above.size:
        return above
    # Beyond the last point nothing is gained; some of that shows that the curve is flat.
    end = 1.5 * above[-1]
    if above.size <= _CURVE_POINTS:
        return np.append(above, end)
    even: Floats = np.geomspace(max(above[0], end / 1e6), end, _CURVE_POINTS)
    return even


def _level(at: Floats, reported: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "reported by the API",
        "line": {"color": "@reported", "dash": "dash", "width": 1.5},
        "x": rounded(at[[0, -1]]),
        "y": [round(reported, 5)] * 2,
        "hovertemplate": "reported: %{y:.1%}<extra></extra>",
    }


def _working_point(at: float, ratio: float, unit: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "loses as much as today",
        "marker": {"color": "@failed", "symbol": "x", "size": 11},
        "x": [float(f"{at:.6g}")],
        "y": [round(ratio, 5)],
        "hovertemplate": f"loses as much as today: %{{x:,.3~g}} {unit}<extra></extra>",
    }


def by_turn(report: Report) -> Figure:
    """Reported hit rate within the bound, by the call's place in its session."""
    rows = report.answers.tables["cache_by_turn"]
    empty = Figure(id="cache-turn", title="By the call's place in its session")
    return _places_figure(empty, rows, [turn_label(row) for row in rows], "call of the session")


def by_depth(report: Report) -> Figure:
    """Reported hit rate within the bound, by how deep the agent is in the tree."""
    rows = report.answers.tables["cache_by_depth"]
    empty = Figure(id="cache-depth", title="By the depth of the agent")
    return _places_figure(empty, rows, [depth_label(row) for row in rows], "depth of the agent")


def depth_label(row: Row) -> str:
    """`main agent`, `sub-agent, 1 deep`."""
    return f"sub-agent, {row['depth']} deep" if row["depth"] else "main agent"


def _places_figure(empty: Figure, rows: list[Row], labels: list[str], x_title: str) -> Figure:
    return cached_bars(
        replace(empty, note=f"n = {sum(int(row['calls'] or 0) for row in rows):,}"),
        rows,
        [f"{label}<br>n = {row['calls']:,}" for label, row in zip(labels, rows, strict=True)],
        {"title": {"text": x_title}, "type": "category"},
    )
