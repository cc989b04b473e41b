"""Pure: the timeline of sessions as a plotly figure: one row per session of the run, trees together."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from aitrace.outcomes import OUTCOME_WORDS
from aitrace.units import NS_PER_S
from reports.bucket_text import CAUSE_WORDS
from reports.document import Figure
from reports.figures.charts import plotly_text
from reports.summary import Report
from reports.tables import Facts, kept
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
    "backoff": ("backoff after a try", "@backoff"),
    "wait": ("waiting for the first token", "@wait"),
    "decode": ("first to last token", "@decode"),
    "failed": ("refused or failed", "@failed"),
}
_SHOWN_CAUSES = ("tool", "user")
_GAPS = (*_SHOWN_CAUSES, "other", "backoff")

ROW_COLUMNS = {"y": "session", "base": "from, s", "length": "length, s", "text": "what"}
"""Heads of the table of a timeline's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of time in a row."""

    row: int
    """Row, from 0 at the top."""
    start_ns: int
    """Where it begins."""
    end_ns: int
    """Where it ends."""
    text: str
    """What is shown on it; escaped for plotly."""


def timeline(report: Report) -> Figure:
    """One row per (instance, session); bars for gaps, backoff, waiting, decode and failure."""
    facts = report.facts
    begun = facts.every_session.filter(pl.col("sent_calls") > 0)
    shown = thinned_trees(begun)
    rows = {
        (instance, session): row
        for row, (instance, session) in enumerate(shown.select("instance", "session").iter_rows())
    }
    bars: dict[str, list[Bar]] = {kind: [] for kind in _KINDS}
    drawn = facts.every_call.join(shown.select("instance", "session"), on=["instance", "session"], how="semi")
    for call in drawn.filter(pl.col("sent_ns").is_not_null()).iter_rows(named=True):
        _add_bars(bars, call, rows[call["instance"], call["session"]])
    _add_earlier_tries(bars, facts, rows)
    traces = [bar_trace(*_KINDS[kind], drawn, is_gap=kind in _GAPS) for kind, drawn in bars.items() if drawn]
    if bars["failed"]:
        traces.append(cross_trace(bars["failed"]))
    agents = {} if facts.trace is None else {session.id: session.agent for session in facts.trace.sessions}
    is_played_again = shown["instance"].n_unique() > 1
    labels = [
        row_label(session, agents.get(session), is_root=session == root)
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
        layout=rows_layout(shown, labels),
        height_px=rows_height_px(len(rows)),
        columns=ROW_COLUMNS,
    )


def rows_height_px(rows: int) -> int:
    """Height of a figure with so many rows."""
    return _FRAME_PX + _ROW_PX * max(4, rows)


def _trees(sessions: pl.DataFrame) -> int:
    return sessions.select("instance", "root").n_unique()


def thinned_trees(sessions: pl.DataFrame) -> pl.DataFrame:
    """Whole trees at even distances, so that rows and calls stay below the limits; sorted by start within a tree."""
    tree_start_ns = pl.col("first_due_ns").min().over("instance", "root")
    ordered = sessions.sort(tree_start_ns, "instance", "root", "first_due_ns", "session")
    trees = ordered.select("instance", "root").unique(maintain_order=True)
    keep_one_in = max(1, -(-ordered.height // MAX_ROWS), -(-int(ordered["sent_calls"].sum()) // MAX_CALLS))
    kept = trees.gather_every(keep_one_in)
    return ordered.join(kept, on=["instance", "root"], how="semi", maintain_order="left").head(MAX_ROWS)


def _add_bars(bars: dict[str, list[Bar]], call: dict[str, Any], row: int) -> None:
    sent_ns, due_ns, gap_ns = call["sent_ns"], call["due_ns"], call["gap_ns"]
    text = _call_text(call)
    if gap_ns and due_ns is not None:
        kind = call["gap_cause"] if call["gap_cause"] in _SHOWN_CAUSES else "other"
        gap_text = f"gap before call {call['call']}: {CAUSE_WORDS[call['gap_cause'] or 'unknown']}"
        bars[kind].append(Bar(row=row, start_ns=due_ns - gap_ns, end_ns=due_ns, text=gap_text))
    end_ns = call["end_ns"] or call["last_token_ns"] or call["first_token_ns"] or sent_ns
    if call["error"] is not None:
        bars["failed"].append(Bar(row=row, start_ns=sent_ns, end_ns=end_ns, text=text))
        return
    first_ns = call["first_token_ns"] or end_ns
    bars["wait"].append(Bar(row=row, start_ns=sent_ns, end_ns=first_ns, text=text))
    last_ns = call["last_token_ns"] or first_ns
    if last_ns > first_ns:
        bars["decode"].append(Bar(row=row, start_ns=first_ns, end_ns=last_ns, text=text))


def _add_earlier_tries(bars: dict[str, list[Bar]], facts: Facts, rows: dict[tuple[int, int], int]) -> None:
    """Tries that were followed by another one, and the harness's wait after each."""
    drawn = pl.DataFrame(list(rows), schema={"instance": pl.Int64, "session": pl.Int64}, orient="row")
    earlier = kept(facts.tries, ~pl.col("is_last"), pl.all()).join(
        drawn, on=["instance", "session"], how="semi"
    )
    if earlier.is_empty():
        return
    calls = facts.every_call.select("index", "call")
    for one in earlier.join(calls, on="index", maintain_order="left").iter_rows(named=True):
        row = rows[one["instance"], one["session"]]
        end_ns, wait_ns = one["end_ns"], one["wait_ns"]
        sent_ns = end_ns if one["sent_ns"] is None else one["sent_ns"]
        status = "" if one["status"] is None else f" {one['status']}"
        text = f"try {one['number']} of call {one['call']}: {OUTCOME_WORDS[one['outcome']]}{status}"
        bars["failed"].append(Bar(row=row, start_ns=sent_ns, end_ns=end_ns, text=text))
        if wait_ns:
            after = f"after try {one['number']} of call {one['call']}"
            bars["backoff"].append(Bar(row=row, start_ns=end_ns, end_ns=end_ns + wait_ns, text=after))


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
        parts.append(
            f"{OUTCOME_WORDS[call['error']]}{status}: {plotly_text((call['error_text'] or '')[:120])}"
        )
    return "<br>".join(parts)


def row_label(session: int, agent: str | None, *, is_root: bool) -> str:
    """Name of a row, escaped for plotly."""
    name = "main" if is_root else plotly_text((agent or "agent")[:16])
    return f"{name} {session}"


def bar_trace(name: str, colour: str, bars: list[Bar], *, is_gap: bool) -> dict[str, Any]:
    """The bars of one kind; those of gaps are thin."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [round(bar.start_ns / NS_PER_S, 4) for bar in bars],
        "x": [round((bar.end_ns - bar.start_ns) / NS_PER_S, 4) for bar in bars],
        "y": [bar.row for bar in bars],
        "width": 0.35 if is_gap else 0.8,
        "text": [bar.text for bar in bars],
        "textposition": "none",
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": f"{name}: %{{x:.4~g}} s<br>%{{text}}<extra></extra>",
    }


def cross_trace(bars: list[Bar]) -> dict[str, Any]:
    """Marks at failed calls: a refusal lasts milliseconds and its bar cannot be seen."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "refused or failed",
        "showlegend": False,
        # They stand in the table of the data as bars.
        "meta": {"in_table": False},
        "marker": {"color": "@failed", "symbol": "x", "size": 6},
        "x": [round(bar.start_ns / NS_PER_S, 4) for bar in bars],
        "y": [bar.row for bar in bars],
        "text": [bar.text for bar in bars],
        "hovertemplate": "%{text}<extra></extra>",
    }


def rows_layout(
    shown: pl.DataFrame, labels: list[str], *, x_title: str = "s since the start of the run"
) -> dict[str, Any]:
    """One row per session, with a line between trees."""
    trees = shown.select("instance", "root").rows()
    borders = [row - 0.5 for row in range(1, len(trees)) if trees[row] != trees[row - 1]]
    return {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {"title": {"text": x_title}, "rangemode": "tozero"},
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
