"""Pure: the figures of a recorded trace, as plotly's JSON; colours are names that the page resolves."""

from typing import Any

import polars as pl

from aitrace.outcomes import OUTCOME_WORDS
from reports.bucket_text import CAUSE_WORDS, CLASS_WORDS, turn_label
from reports.document import Figure
from reports.figures.charts import axis, cached_bars, drawn_note, line_trace, plotly_text, rounded, scale_of
from reports.figures.timeline import (
    ROW_COLUMNS,
    Bar,
    bar_trace,
    cross_trace,
    row_label,
    rows_height_px,
    rows_layout,
    thinned_trees,
)
from reports.recorded.answers import Answers
from reports.recorded.gaps import gap_values_s
from reports.recorded.growth import prompt_sizes
from reports.recorded.prefixes import KINDS
from reports.recorded.spans import STATES
from reports.series import level_over_time
from reports.stats import ecdf
from reports.words import counted, gap_label, text_from_value

MAX_LINES = 40
"""Sessions whose prompts are drawn."""
_POINTS = 400
_LINE_POINTS = 300
_COLOURS = {
    "wait": "@wait",
    "decode": "@decode",
    "answer": "@bound2",
    "failed": "@failed",
    "tool": "@toolgap",
    "agents": "@bound3",
    "user": "@usergap",
    "backoff": "@user",
    "harness": "@engine",
    "unknown": "@othergap",
}
_CAUSE_COLOURS = {
    "tool": "@wait",
    "user": "@user",
    "harness": "@decode",
    "backoff": "@failed",
    "unknown": "@engine",
}
_KIND_COLOURS = {"system": "@bound1", "user": "@user", "assistant": "@decode", "tool": "@wait"}
_GROUPS = {"all": "all sessions", "main": "main agents", "subagent": "sub-agents"}
_AT_WORK = ("wait", "decode", "answer", "failed")


def time_shares(answers: Answers) -> Figure:
    """What sessions did, as shares of their time."""
    rows = answers.tables["time_by_state"]
    traces = []
    for state, name in STATES.items():
        inside = [row for row in rows if row["state"] == state]
        if inside:
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": name,
                    "y": [_GROUPS[str(row["sessions"])] for row in inside],
                    "x": [round(float(row["time_ratio"] or 0), 5) for row in inside],
                    "marker": {"color": _COLOURS[state]},
                    "hovertemplate": f"{name}: %{{x:.1%}} of the time of %{{y}}<extra></extra>",
                }
            )
    return Figure(
        id="time-shares",
        title="Where the time of sessions goes",
        note=drawn_note(f"sessions with calls, n = {answers.numbers['sessions_with_calls']:,}", traces),
        traces=traces,
        layout={
            "barmode": "stack",
            "xaxis": {"title": {"text": "share of time"}, "tickformat": ".0%", "range": [0, 1]},
            "yaxis": {"automargin": True, "autorange": "reversed"},
        },
        height_px=300,
    )


def gap_ecdf(answers: Answers) -> Figure:
    """Gaps by cause as cumulative shares; those of 0 and below have no place on a logarithmic axis."""
    traces = []
    counts = []
    values_by_cause = gap_values_s(answers.recorded)
    for cause, values in values_by_cause.items():
        x, share = ecdf(values, points=_POINTS)
        name = CAUSE_WORDS[cause]
        counts.append(f"{name}: n = {values.size:,}")
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {"shape": "hv", "color": _CAUSE_COLOURS[cause]},
                "name": name,
                "x": rounded(x),
                "y": rounded(share),
                "hovertemplate": f"{name}: %{{y:.1%}} of gaps are at most %{{x:,.3~g}} s<extra></extra>",
            }
        )
    every = pl.Series(
        [value for values in values_by_cause.values() for value in values if value > 0], dtype=pl.Float64
    )
    return Figure(
        id="gap-ecdf",
        title="Gaps before calls by cause, cumulative",
        note=drawn_note("; ".join(counts) or "no gap of known length", traces),
        traces=traces,
        layout={
            "xaxis": axis("gap, s") | scale_of(every.to_numpy()),
            "yaxis": {"title": {"text": "share of gaps"}, "tickformat": ".0%", "range": [0, 1.02]},
        },
    )


def prompt_growth(answers: Answers) -> Figure:
    """Prompt tokens over the calls of each session; of many sessions those with the most calls."""
    sizes = prompt_sizes(answers.recorded)
    lengths = sizes.group_by("session").len().sort(["len", "session"], descending=[True, False])
    shown = lengths.head(MAX_LINES)["session"].sort().to_list()
    about = {row["session"]: row for row in answers.tables["sessions"]}
    # One trace for all lines of a kind, parted by gaps: a legend of forty sessions tells nothing.
    traces = []
    for is_main, name, colour in ((True, "main agents", "@wait"), (False, "sub-agents", "@user")):
        x: list[int | None] = []
        y: list[int | None] = []
        text: list[str] = []
        for session in shown:
            if (about[session]["depth"] == 0) is not is_main:
                continue
            line = sizes.filter(pl.col("session") == session)
            step = max(1, -(-line.height // _LINE_POINTS))
            places, tokens = (
                line[column].gather_every(step).to_list() for column in ("place", "prompt_tokens")
            )
            x += [place + 1 for place in places] + [None]
            y += [*tokens, None]
            text += [f"session {session}"] * (len(places) + 1)
        if x:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": name,
                    "x": x,
                    "y": y,
                    "text": text,
                    "line": {"color": colour, "width": 1.2},
                    "marker": {"color": colour, "size": 3},
                    "hovertemplate": "%{text}, call %{x}: %{y:,} prompt tokens<extra></extra>",
                }
            )
    left_out = "" if lengths.height <= MAX_LINES else f"; the {MAX_LINES} with the most calls are drawn"
    return Figure(
        id="prompt-growth",
        title="Prompt size over the calls of a session",
        note=drawn_note(f"sessions with known prompt tokens, n = {lengths.height:,}{left_out}", traces),
        traces=traces,
        layout={
            "xaxis": axis("call of the session"),
            "yaxis": axis("prompt tokens") | {"rangemode": "tozero"},
            "hovermode": "closest",
        },
    )


def new_by_turn(answers: Answers) -> Figure:
    """Mean new tokens of a call by who brought them in, by its place within the session."""
    rows = answers.tables["new_tokens_by_turn"]
    labels = [f"{turn_label(row)}<br>n = {row['calls']:,}" for row in rows]
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": labels,
            "y": [round(float(row[f"{kind}_tokens"] or 0), 1) for row in rows],
            "marker": {"color": _KIND_COLOURS[kind]},
            "hovertemplate": f"{name}: %{{y:,.0f}} tokens a call<extra></extra>",
        }
        for kind, name in KINDS.items()
        if rows
    ]
    return Figure(
        id="new-tokens",
        title="New prompt tokens of a call, mean",
        note=drawn_note(f"calls of conversations with known tokens, n = {answers.new.height:,}", traces),
        traces=traces,
        layout={
            "barmode": "stack",
            "xaxis": {"title": {"text": "call of the session"}, "type": "category"},
            "yaxis": axis("tokens"),
        },
    )


def cache_survival(answers: Answers) -> Figure:
    """Share of calls that found their session's prefix in the cache, by the gap before, with intervals."""
    rows = answers.tables["cache_survival"]
    shares = [float(row["survived_ratio"] or 0) for row in rows]
    lows, highs = ([float(row[f"survived_{end}_ratio"] or 0) for row in rows] for end in ("low", "high"))
    traces: list[dict[str, Any]] = []
    if rows:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "found the prefix of its session",
                "x": [
                    f"{gap_label(row['gap_from_s'], row['gap_to_s'])}<br>n = {row['calls']:,}" for row in rows
                ],
                "y": shares,
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [round(high - share, 5) for high, share in zip(highs, shares, strict=True)],
                    "arrayminus": [round(share - low, 5) for share, low in zip(shares, lows, strict=True)],
                    "color": "@muted",
                },
                "marker": {"color": "@reported", "size": 9},
                "line": {"color": "@reported"},
                "hovertemplate": "%{y:.1%} of calls<extra></extra>",
            }
        )
    asking = sum(int(row["calls"] or 0) for row in rows)
    return Figure(
        id="cache-survival",
        title="Calls that found their session's prefix in the cache, by the gap before",
        note=drawn_note(
            f"calls with a known gap and a prefix to find, n = {asking:,}; bars: 95 % interval",
            traces,
        ),
        traces=traces,
        layout={
            "showlegend": False,
            "xaxis": {"title": {"text": "gap before the call"}, "type": "category"},
            "yaxis": {"title": {"text": "share of calls"}, "tickformat": ".0%", "range": [0, 1.05]},
        },
    )


def cache_by_turn(answers: Answers) -> Figure:
    """Reported within possible, by place within the session."""
    rows = answers.tables["cache_by_turn"]
    return cached_bars(
        Figure(
            id="cache-turn",
            title="Cached share of prompt tokens, by call of the session",
            note=f"n = {answers.numbers['cache_calls']:,}",
        ),
        rows,
        [f"{turn_label(row)}<br>n = {row['calls']:,}" for row in rows],
        {"title": {"text": "call of the session"}, "type": "category"},
        possible="possible",
        total="prompt_tokens",
    )


def in_flight(answers: Answers) -> Figure:
    """Calls in flight and sessions between their first request and last end, where trees share a clock."""
    calls = answers.recorded.calls.filter(pl.col("end_ns") > pl.col("request_ns"))
    is_apart = answers.recorded.trace.header.clock_scope == "tree"
    traces = []
    if calls.height and not is_apart:
        start_ns = calls.select(pl.col("request_ns").min()).item()
        shifted = calls.select("session", *(pl.col(name) - start_ns for name in ("request_ns", "end_ns")))
        extents = shifted.group_by("session").agg(pl.col("request_ns").min(), pl.col("end_ns").max())
        for frame, name, colour, dash in (
            (shifted, "calls in flight", "@wait", "solid"),
            (extents, "sessions under way", "@muted", "dot"),
        ):
            line = level_over_time(frame["request_ns"].to_numpy(), frame["end_ns"].to_numpy(), name=name)
            traces.append(line_trace(line, colour, "y", dash))
    note = "each tree has a clock of its own" if is_apart else f"calls with a known end, n = {calls.height:,}"
    return Figure(
        id="in-flight",
        title="Calls in flight",
        note=drawn_note(note, traces),
        traces=traces,
        layout={
            "xaxis": axis("s since the first request"),
            "yaxis": axis("calls, sessions") | {"rangemode": "tozero"},
            "hovermode": "x unified",
        },
    )


def timeline(answers: Answers) -> Figure:
    """One row per session, trees together."""
    calls, is_apart = answers.calls, answers.recorded.trace.header.clock_scope == "tree"
    begun = calls.group_by("session", "root").agg(
        first_due_ns=pl.col("request_ns").min(), sent_calls=pl.len(), instance=pl.lit(1)
    )
    shown = thinned_trees(begun)
    sessions = shown["session"].to_list()
    place_of = {session: row for row, session in enumerate(sessions)}
    start_ns = dict(begun.group_by("root").agg(pl.col("first_due_ns").min()).iter_rows())
    first_ns = min(start_ns.values(), default=0)
    texts = {
        row["call"]: _call_text(row)
        for row in calls.filter(pl.col("session").is_in(sessions)).iter_rows(named=True)
    }
    bars: dict[str, list[Bar]] = {state: [] for state in STATES}
    roots = dict(shown.select("session", "root").iter_rows())
    for session, call, state, from_ns, to_ns in answers.spans.filter(
        pl.col("session").is_in(sessions)
    ).iter_rows():
        origin_ns = start_ns[roots[session]] if is_apart else first_ns
        text = texts[call] if state in _AT_WORK else f"before call {call}"
        bars[state].append(
            Bar(row=place_of[session], start_ns=from_ns - origin_ns, end_ns=to_ns - origin_ns, text=text)
        )
    traces = [
        bar_trace(STATES[state], _COLOURS[state], drawn, is_gap=state not in _AT_WORK)
        for state, drawn in bars.items()
        if drawn
    ]
    if bars["failed"]:
        traces.append(cross_trace(bars["failed"]))
    about = answers.recorded.sessions.filter(pl.col("session").is_in(sessions))
    agents = dict(about.select("session", "agent").iter_rows())
    labels = [row_label(session, agents[session], is_root=roots[session] == session) for session in sessions]
    trees, drawn_trees = begun["root"].n_unique(), shown["root"].n_unique()
    note = f"sessions with calls, n = {begun.height:,}"
    if shown.height < begun.height:
        note += f"; {shown.height:,} of them in {drawn_trees:,} of {counted(trees, 'tree')} are drawn"
    return Figure(
        id="timeline",
        title="Session timeline",
        note=drawn_note(note, traces),
        traces=traces,
        layout=rows_layout(
            shown,
            labels,
            x_title="s since the start of each tree" if is_apart else "s since the first request",
        ),
        height_px=rows_height_px(len(sessions)),
        columns=ROW_COLUMNS,
    )


def _call_text(call: dict[str, Any]) -> str:
    """What is shown of a call."""
    parts = [f"call {call['call']}: {CLASS_WORDS[call['call_class']]}"]
    if call["model"] is not None:
        parts.append(plotly_text(call["model"]))
    for name, column in (
        ("prompt", "prompt_tokens"),
        ("cached", "cache_read_tokens"),
        ("output", "output_tokens"),
    ):
        parts.append(f"{name} {text_from_value(call[column], 'tokens')}")
    if call["error"] is not None:
        parts.append(
            f"{OUTCOME_WORDS[call['error']]} {'' if call['status'] is None else call['status']}".rstrip()
        )
    return "<br>".join(parts)
