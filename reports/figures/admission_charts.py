"""Pure: the figure of admission over the time of a run."""

from typing import Any

from reports.document import Figure
from reports.figures.charts import RUN_TIME, drawn_note, line_trace, number_of, panels
from reports.metric import Row
from reports.summary import Report

_GROUPS = {
    "complete": ("complete", "@decode"),
    "refused": ("refused", "@failed"),
    "timeout": ("timed out", "@user"),
    "failed": ("failed otherwise", "@bound1"),
    "stopped": ("in flight when the run was stopped", "@muted"),
}
_KINDS = {
    "first": ("first calls of sessions: share refused", "@bound1"),
    "returning": ("returning calls: share refused", "@wait"),
}


def tries_over_time(report: Report) -> Figure:
    """Tries by outcome, the share refused of first and of returning calls, and calls in backoff, one below the other."""
    rows = report.answers.tables["tries_over_time"]
    backoff = report.answers.lines["calls_in_backoff"]
    # Bars of nothing but complete tries say how the load was; the other panels are about what was not let in.
    is_refused = any(row["refused"] for row in rows)
    traces = [
        _bars(rows, key, name, colour)
        for key, (name, colour) in _GROUPS.items()
        if any(row[key] for row in rows)
    ]
    axes: list[dict[str, Any]] = [{"title": {"text": "tries per bin"}}]
    if is_refused:
        axes.append({"title": {"text": "share refused"}, "tickformat": ".0%", "range": [0, 1.05]})
        traces += [_shares(rows, kind, name, colour) for kind, (name, colour) in _KINDS.items()]
    again = any(row["tries_again"] for row in rows)
    if again or backoff:
        axes.append({"title": {"text": "calls, tries"}})
        place = f"y{len(axes)}"
        traces += [line_trace(line, "@user", place, "solid") for line in backoff]
        traces.append(
            _steps(
                rows,
                [row["tries_again"] for row in rows],
                "tries that were not the first, per bin",
                "@muted",
                place,
            )
        )
    width_s = number_of(rows[0]["to_s"]) if rows else 0.0
    count = sum(int(number_of(row["tries"])) for row in rows)
    return Figure(
        id="admission-time",
        title="Tries over the run",
        note=drawn_note(
            f"tries that were sent, measured or not, n = {count:,}; bins of {width_s:g} s", traces
        ),
        traces=traces,
        layout=panels(RUN_TIME, axes) | {"barmode": "stack", "bargap": 0},
        height_px=170 + 130 * len(axes),
    )


def _bars(rows: list[Row], key: str, name: str, colour: str) -> dict[str, Any]:
    width_s = number_of(rows[0]["to_s"])
    return {
        "type": "bar",
        "name": name,
        "marker": {"color": colour, "line": {"width": 0}},
        "x": [number_of(row["from_s"]) for row in rows],
        "y": [row[key] for row in rows],
        "width": width_s,
        "offset": 0,
        "hovertemplate": f"{name}: %{{y:,}}<extra></extra>",
    }


def _shares(rows: list[Row], kind: str, name: str, colour: str) -> dict[str, Any]:
    shares: list[float | None] = [
        number_of(row[f"{kind}_refused"]) / number_of(row[f"{kind}_tries"]) if row[f"{kind}_tries"] else None
        for row in rows
    ]
    return _steps(rows, shares, name, colour, "y2") | {
        "mode": "lines+markers",
        "marker": {"size": 4, "color": colour},
    }


def _steps(rows: list[Row], values: list[Any], name: str, colour: str, y_axis: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "color": colour, "width": 1.5},
        "name": name,
        "x": [number_of(row["from_s"]) for row in rows],
        "y": values,
        "yaxis": y_axis,
    }
