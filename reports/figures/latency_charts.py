"""Pure: the figure of latency by what a call was."""

from collections.abc import Callable
from typing import Any

import numpy as np

from reports.bucket_text import class_label, gap_before_label, range_label
from reports.document import Figure
from reports.figures.charts import axis, drawn_note, scale_of
from reports.metric import Row
from reports.metrics import METRICS
from reports.summary import Report

_ROW_PX = 21
_FRAME_PX = 130


def _gap(row: Row) -> str:
    label = gap_before_label(row)
    return f"gap {label}" if row["kind"] == "continuing" else label


_GROUPS: dict[str, Callable[[Row], str]] = {
    "latency_by_class": class_label,
    "latency_by_turn": lambda row: f"turn {range_label(row, 'turn')}",
    "latency_by_prompt": lambda row: f"prompt {range_label(row, 'tokens')}",
    "latency_by_uncached": lambda row: f"not cached {range_label(row, 'tokens')}",
    "latency_by_gap": _gap,
}


def ttft_by_kind(report: Report) -> Figure:
    """Median and 95th percentile of service TTFT, per class, turn, prompt size, tokens not cached and gap before."""
    rows = [
        (f"{label(row)} (n = {row['ttft_service_n']:,})", row)
        for table, label in _GROUPS.items()
        for row in report.answers.tables[table]
        if row["ttft_service_n"]
    ]
    title = METRICS["ttft_service_ms"].title
    traces = [
        _quantiles(rows, "p50", "@wait", "circle"),
        _quantiles(rows, "p95", "@user", "diamond"),
    ]  # fmt: skip
    drawn = [trace for trace in traces if trace["x"]]
    values = np.array([value for trace in drawn for value in trace["x"]], dtype=np.float64)
    return Figure(
        id="ttft-kinds",
        title=f"{title}, by class, turn, prompt, tokens not cached and gap before",
        note=drawn_note(
            f"calls with a first token, n = {report.answers.spreads['ttft_service_ms'].count:,}; the 95th percentile is "
            "drawn where n is at least 40",
            drawn,
        ),
        traces=drawn,
        layout={
            "xaxis": axis(f"{title}, ms") | scale_of(values),
            "yaxis": {
                "title": {"text": ""},
                "type": "category",
                "automargin": True,
                "autorange": "reversed",
                "categoryorder": "array",
                "categoryarray": [label for label, _ in rows],
                "tickfont": {"size": 11},
                "dtick": 1,
            },
            "hovermode": "closest",
        },
        height_px=_FRAME_PX + _ROW_PX * max(4, len(rows)),
    )


def _quantiles(rows: list[tuple[str, Row]], name: str, colour: str, symbol: str) -> dict[str, Any]:
    key = f"ttft_service_{name}_ms"
    known = [(label, float(row[key] or 0)) for label, row in rows if row[key] is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "marker": {"color": colour, "symbol": symbol, "size": 9},
        "x": [float(f"{value:.6g}") for _, value in known],
        "y": [label for label, _ in known],
        "hovertemplate": f"%{{y}}<br>{name} %{{x:,.4~g}} ms<extra></extra>",
    }
