"""Pure: the timeline of sessions as a plotly figure: one row per session of the run, trees together."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from reports.charts import Figure, plotly_text
from reports.metric import NS_PER_S
from reports.summary import Report
from reports.words import counted

MAX_ROWS = 200
"""Sessions drawn; of more, whole trees are left out evenly."""
MAX_CALLS = 6000
"""Calls drawn."""

_ROW_PX = 17
_FRAME_PX = 120
_KINDS = {
    "tool": ("tool gap", "@toolgap"),
    "user": ("user gap", "@usergap"),
    "other": ("other gap", "@othergap"),
    "wait": ("waiting for the first token", "@wait"),
    "decode": ("first to last token", "@decode"),
    "failed": ("refused or failed", "@failed"),
}
_SHOWN_CAUSES = ("tool", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    row: int
    start_ns: int
    end_ns: int
    text: str


def timeline(report: Report) -> Figure:
    """One row per (instance, session); bars for gaps, waiting, decode and failure."""
    facts = report.facts
    begun = facts.every_session.filter(pl.col("sent_calls") > 0)
    shown = _thinned(begun)
    rows = {
        (instance, session): row
        for row, (instance, session) in enumerate(shown.select("instance", "session").iter_rows())
    }
    bars: dict[str, list[_Bar]] = {kind: [] for kind in _KINDS}
    for call in facts.every_call.filter(pl.col("sent_ns").is_not_null()).iter_rows(named=True):
        row = rows.get((call["instance"], call["session"]))
        if row is not None:
            _add_bars(bars, call, row)
    traces = [_bar_trace(kind, drawn) for kind, drawn in bars.items() if drawn]
    if bars["failed"]:
        traces.append(_cross_trace(bars["failed"]))
    is_played_again = shown["instance"].n_unique() > 1
    labels = [
        _label(session, facts.agents.get(session), is_root=session == root)
        + (f" · {instance}" if is_played_again else "")
        for instance, session, root in shown.select("instance", "session", "root").iter_rows()
    ]
    note = f"sessions with a sent call, n = {begun.height:,}"
    if shown.height < begun.height:
        note += (
            f"; {shown.height:,} of them in {_trees(shown):,} of {counted(_trees(begun), 'tree')} are drawn"
        )
    return Figure(
        id="timeline",
        title="Session timeline",
        note=note if traces else f"nothing to draw: {note}",
        traces=traces,
        layout=_layout(shown, labels),
        height_px=_FRAME_PX + _ROW_PX * max(4, len(rows)),
    )


def _trees(sessions: pl.DataFrame) -> int:
    return sessions.select("instance", "root").n_unique()


def _thinned(sessions: pl.DataFrame) -> pl.DataFrame:
    """Whole trees at even distances, so that rows and calls stay below the limits; sorted by start within a tree."""
    tree_start_ns = pl.col("first_due_ns").min().over("instance", "root")
    ordered = sessions.sort(tree_start_ns, "instance", "root", "first_due_ns", "session")
    trees = ordered.select("instance", "root").unique(maintain_order=True)
    keep_one_in = max(1, -(-ordered.height // MAX_ROWS), -(-int(ordered["sent_calls"].sum()) // MAX_CALLS))
    kept = trees.gather_every(keep_one_in)
    return ordered.join(kept, on=["instance", "root"], how="semi", maintain_order="left").head(MAX_ROWS)


def _add_bars(bars: dict[str, list[_Bar]], call: dict[str, Any], row: int) -> None:
    sent_ns, due_ns, gap_ns = call["sent_ns"], call["due_ns"], call["gap_ns"]
    text = _call_text(call)
    if gap_ns and due_ns is not None:
        kind = call["gap_cause"] if call["gap_cause"] in _SHOWN_CAUSES else "other"
        gap_text = f"{plotly_text(str(call['gap_cause']))} gap before call {call['call']}"
        bars[kind].append(_Bar(row=row, start_ns=due_ns - gap_ns, end_ns=due_ns, text=gap_text))
    end_ns = call["end_ns"] or call["last_token_ns"] or call["first_token_ns"] or sent_ns
    if call["error"] is not None:
        bars["failed"].append(_Bar(row=row, start_ns=sent_ns, end_ns=end_ns, text=text))
        return
    first_ns = call["first_token_ns"] or end_ns
    bars["wait"].append(_Bar(row=row, start_ns=sent_ns, end_ns=first_ns, text=text))
    last_ns = call["last_token_ns"] or first_ns
    if last_ns > first_ns:
        bars["decode"].append(_Bar(row=row, start_ns=first_ns, end_ns=last_ns, text=text))


def _call_text(call: dict[str, Any]) -> str:
    def tokens(reported: str, planned: str) -> str:
        value = call[reported]
        return f"{counted(call[planned], 'token')} by plan" if value is None else counted(value, "token")

    parts = [
        f"call {call['call']} ({plotly_text(call['request_id'])})",
        f"prompt {tokens('usage_input_tokens', 'prompt_tokens')}",
        f"output {tokens('usage_output_tokens', 'output_tokens')}",
    ]
    if call["usage_cache_read_tokens"] is not None:
        parts.insert(2, f"cached {counted(call['usage_cache_read_tokens'], 'token')}")
    if call["error"] is not None:
        status = "" if call["status"] is None else f" {call['status']}"
        parts.append(f"{call['error']}{status}: {plotly_text((call['error_text'] or '')[:120])}")
    return "<br>".join(parts)


def _label(session: int, agent: str | None, *, is_root: bool) -> str:
    name = "main" if is_root else plotly_text((agent or "agent")[:16])
    return f"{name} {session}"


def _bar_trace(kind: str, bars: list[_Bar]) -> dict[str, Any]:
    name, colour = _KINDS[kind]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [round(bar.start_ns / NS_PER_S, 4) for bar in bars],
        "x": [round((bar.end_ns - bar.start_ns) / NS_PER_S, 4) for bar in bars],
        "y": [bar.row for bar in bars],
        "width": 0.35 if kind in ("tool", "user", "other") else 0.8,
        "text": [bar.text for bar in bars],
        "textposition": "none",
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": f"{name}: %{{x:.4~g}} s<br>%{{text}}<extra></extra>",
    }


def _cross_trace(bars: list[_Bar]) -> dict[str, Any]:
    """Marks at failed calls: a refusal lasts milliseconds and its bar cannot be seen."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "refused or failed",
        "showlegend": False,
        "marker": {"color": "@failed", "symbol": "x", "size": 8},
        "x": [round(bar.start_ns / NS_PER_S, 4) for bar in bars],
        "y": [bar.row for bar in bars],
        "text": [bar.text for bar in bars],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _layout(shown: pl.DataFrame, labels: list[str]) -> dict[str, Any]:
    trees = shown.select("instance", "root").rows()
    borders = [row - 0.5 for row in range(1, len(trees)) if trees[row] != trees[row - 1]]
    return {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {"title": {"text": "s since the start of the run"}, "rangemode": "tozero"},
        "yaxis": {
            "tickmode": "array",
            "tickvals": list(range(len(labels))),
            "ticktext": labels,
            "range": [len(labels) - 0.5, -0.5],
            "tickfont": {"size": 10},
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
        },
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": border,
                "y1": border,
                "line": {"color": "@rule", "width": 1},
            }
            for border in borders
        ],
    }
