"""Pure: figures of sessions: what their time went into, and how long they took beside an idle endpoint."""

from typing import Any

from reports.bucket_text import PART_WORDS
from reports.document import Figure
from reports.figures.charts import axis, drawn_note, number_of
from reports.measures.session_shares import PARTS
from reports.summary import Report
from reports.words import counted, text_from_seconds

_COLOURS = {
    "prefill": "@wait",
    "decode": "@decode",
    "tool_gap": "@toolgap",
    "user_gap": "@usergap",
    "other_gap": "@othergap",
    "agents": "@bound2",
    "backoff": "@user",
    "failed_tries": "@failed",
    "lateness": "@engine",
}


def time_by_duration(report: Report) -> Figure:
    """Shares of the parts of sessions' time, a bar for each tenth of the sessions by duration."""
    rows = report.answers.tables["session_time_by_duration"]
    labels = [
        f"{number}. {text_from_seconds(number_of(row['duration_from_s']))} – "
        f"{text_from_seconds(number_of(row['duration_to_s']))} ({counted(int(number_of(row['sessions'])), 'session')})"
        for number, row in enumerate(rows, 1)
    ]
    traces: list[dict[str, Any]] = []
    for part in PARTS:
        shares = [number_of(row[f"{part}_ratio"]) for row in rows]
        if any(shares):
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": PART_WORDS[part],
                    "marker": {"color": _COLOURS[part]},
                    "x": [round(share, 5) for share in shares],
                    "y": labels,
                    "hovertemplate": f"{PART_WORDS[part]}: %{{x:.1%}}<br>%{{y}}<extra></extra>",
                }
            )
    count = sum(int(number_of(row["sessions"])) for row in rows)
    return Figure(
        id="session-parts",
        title="What the time of sessions went into, by their duration",
        note=drawn_note(f"sessions of which every planned call is complete, n = {count:,}", traces),
        traces=traces,
        layout={
            "barmode": "stack",
            "hovermode": "closest",
            "xaxis": axis("share of the sessions' time") | {"tickformat": ".0%", "range": [0, 1]},
            "yaxis": {"title": {"text": ""}, "type": "category", "automargin": True, "autorange": "reversed"},
        },
        height_px=160 + 26 * max(3, len(rows)),
    )
