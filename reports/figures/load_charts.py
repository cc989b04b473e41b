"""Pure: the load over the run: the client's calls and sessions, and the engines' gauges below on the same axis of time."""

from typing import Any

from reports.document import Figure
from reports.figures.charts import RUN_TIME, drawn_note, line_trace, panels
from reports.series import Line
from reports.summary import Report

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_PANELS: tuple[tuple[dict[str, Any], tuple[tuple[str, str], ...]], ...] = (
    (
        {"title": {"text": "calls, sessions"}},
        (("calls_in_flight", "@wait"), ("sessions_active", "@muted"), ("calls_in_backoff", "@user")),
    ),
    ({"title": {"text": "requests"}}, (("engine_running", "@decode"), ("engine_waiting", "@failed"))),
    (
        {"title": {"text": "share"}, "tickformat": ".0%", "range": [0, 1.05]},
        (("engine_kv_usage_ratio", "@engine"), ("engine_hit_ratio_over_time", "@reported")),
    ),
    (
        {"title": {"text": "per second"}},
        (("engine_preemptions_per_s", "@bound1"), ("engine_rejections_per_s", "@failed")),
    ),
)
"""Axis and lines, with their colours, of each panel."""


def load_over_time(report: Report) -> Figure:
    """Calls in flight and active sessions; below them what the engines had running, waiting, in use and turned away."""
    answers = report.answers
    axes: list[dict[str, Any]] = []
    traces: list[dict[str, Any]] = []
    for y_axis, names in _PANELS:
        lines = [
            (line, colour, number)
            for name, colour in names
            for number, line in enumerate(_drawn(answers.lines[name], name))
        ]
        if not lines:
            continue
        axes.append(y_axis)
        place = "y" if len(axes) == 1 else f"y{len(axes)}"
        # Engines differ by their dashes, what is shown of them by its colour.
        traces += [
            line_trace(line, colour, place, _DASHES[number % len(_DASHES)]) for line, colour, number in lines
        ]
    return Figure(
        id="load-time",
        title="Load over the run",
        note=drawn_note(
            f"sent calls, n = {answers.numbers['sent_calls']:,}; readings of the engine, n = {answers.numbers['scrapes']:,}",
            traces,
        ),
        traces=traces,
        layout=panels(RUN_TIME, axes or [_PANELS[0][0]]),
        height_px=140 + 130 * max(1, len(axes)),
    )


def _drawn(lines: list[Line], name: str) -> list[Line]:
    """Lines that show something: a counter that never grew is told by its number."""
    begun = [line for line in lines if line.at_s.size]
    return [line for line in begun if (line.values > 0).any()] if name.endswith("_per_s") else begun
