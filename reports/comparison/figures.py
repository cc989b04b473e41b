"""Pure: the figures of a comparison: differences with their intervals, distributions side by side, pairs over the run."""

from typing import Any

import numpy as np

from reports.comparison.comparison import Comparison
from reports.comparison.measures import BASES
from reports.comparison.wording import finding_text, is_worse
from reports.document import Figure
from reports.figures.charts import plotly_text, rounded
from reports.stats import ecdf

_ECDF_POINTS = 400
_PAIR_POINTS = 3000
_ROW_PX = 26
_EDGES_PX = 130
_COLOURS = ("@wait", "@user", "@decode", "@failed", "@bound1")
_DASHES = ("solid", "dot", "dash", "dashdot", "longdash")


def forest_figure(comparison: Comparison, way: int) -> Figure:
    """Relative differences of a way to the first, a row per measure; of shares in points."""
    of_way = [
        each
        for each in reversed(comparison.differences[way - 1])
        if each.absolute is not None and (each.relative is not None or each.measure.basis.is_share)
    ]
    traces: list[dict[str, Any]] = []
    for name, colour, symbol, finds in (
        ("worse", "@failed", "diamond", True),
        ("better", "@decode", "square", False),
        ("no difference found", "@user", "circle", None),
    ):
        rows = [each for each in of_way if is_worse(each) is finds]
        effects = [each.absolute if each.measure.basis.is_share else each.relative for each in rows]
        known = [effect for effect in effects if effect is not None]
        if not known:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "marker": {"color": colour, "symbol": symbol, "size": 9},
                "x": [100 * effect.point for effect in known],
                "y": [each.measure.name for each in rows],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [100 * (effect.high - effect.point) for effect in known],
                    "arrayminus": [100 * (effect.point - effect.low) for effect in known],
                    "color": colour,
                },
                "text": [plotly_text(finding_text(each)) for each in rows],
                "hovertemplate": "%{y}: %{text}<extra></extra>",
            }
        )
    other, first = comparison.ways[way].label, comparison.ways[0].label
    return Figure(
        id=f"forest-{way}",
        title="Differences with their intervals",
        note=f"{other} against {first}; shares in points. {len(of_way)} of {len(comparison.measures)} measures; the others "
        "cannot be told or have no relative difference.",
        traces=traces,
        layout={
            "xaxis": {"title": {"text": "difference, %"}, "zeroline": True, "tickformat": ",~g"},
            "yaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": [each.measure.name for each in of_way],
                "automargin": True,
            },
        },
        height_px=_EDGES_PX + _ROW_PX * max(len(of_way), 1),
    )


def ecdf_figure(comparison: Comparison, name: str) -> Figure:
    """Distributions of a value in all ways, on what every run has a value of."""
    basis = BASES[name]
    values = comparison.matched.levels[basis.level].columns.get(basis.column)
    empty = Figure(id=f"ecdf-{name}", title=f"{basis.title}, cumulative", note="no way has a value of it")
    if values is None:
        return empty
    ways = [values[comparison.runs_of(way)] for way in range(len(comparison.ways))]
    is_shared = ~np.isnan(values).any(axis=0)
    traces: list[dict[str, Any]] = []
    counts = []
    for place, way in enumerate(ways):
        known = way[:, is_shared].ravel()
        counts.append(f"{comparison.ways[place].label}: n = {known.size:,}")
        if not known.size:
            continue
        x, share = ecdf(known, points=_ECDF_POINTS)
        style = place % len(_COLOURS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {"shape": "hv", "color": _COLOURS[style], "dash": _DASHES[style]},
                "name": plotly_text(comparison.ways[place].label),
                "x": rounded(x),
                "y": rounded(share),
                "hovertemplate": "%{fullData.name}: %{y:.1%} have at most %{x:,.3~g} "
                f"{plotly_text(basis.unit)}<extra></extra>",
            }
        )
    return Figure(
        id=empty.id,
        title=empty.title,
        note=f"{'; '.join(counts)}. Only {basis.level}s that every run has a value of; repeats together.",
        traces=traces,
        layout={
            "xaxis": {
                "title": {"text": f"{basis.title}, {basis.unit}"},
                "tickformat": ",~g",
                "rangemode": "tozero",
            },
            "yaxis": {"title": {"text": f"share of {basis.level}s"}, "tickformat": ".0%", "range": [0, 1.02]},
        },
    )


def pairs_figure(comparison: Comparison, way: int) -> Figure:
    """Paired differences of TTFT, by when the call was due in the first run: a drift or a disturbance shows."""
    calls = comparison.matched.levels["call"]
    values = calls.columns[BASES["ttft"].column]
    first = values[comparison.runs_of(0)].mean(axis=0)
    differences = values[comparison.runs_of(way)].mean(axis=0) - first
    is_known = ~np.isnan(differences) & ~np.isnan(calls.due_s)
    due_s, differences = calls.due_s[is_known], differences[is_known]
    step = -(-differences.size // _PAIR_POINTS) or 1
    thinned = f", one in {step} drawn" if step > 1 else ""
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "pair of calls",
        "marker": {"color": "@wait", "size": 5, "opacity": 0.6},
        "x": rounded(due_s[::step]),
        "y": rounded(differences[::step]),
        "hovertemplate": "due at %{x:,.4~g} s: %{y:,.3~g} ms<extra></extra>",
    }
    return Figure(
        id=f"pairs-{way}",
        title="TTFT of paired calls over the run",
        note=f"{comparison.ways[way].label} less {comparison.ways[0].label}, n = {differences.size:,} pairs{thinned}; means "
        "over repeats. A difference that only a part of the run shows has another cause than the way.",
        traces=[trace] if differences.size else [],
        layout={
            "xaxis": {"title": {"text": "call due, s since the start of the first run"}, "tickformat": ",~g"},
            "yaxis": {"title": {"text": "difference of TTFT, ms"}, "tickformat": ",~g", "zeroline": True},
        },
    )
