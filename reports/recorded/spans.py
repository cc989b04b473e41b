"""Pure: what each session did at each moment between its first request and its last end.

A moment belongs to the earliest call that is in flight: waiting until its first token, then decoding until its end; all of
it is `answer` where the first token is not known, and `failed` where the call was not answered completely. Between two
calls it belongs to the cause of the gap before the next one, to `agents` where that one takes in a sub-agent's result.
What follows a call whose end is not known is `unknown` up to the next request.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from aitrace.units import NS_PER_S
from reports.recorded.facts import Recorded

STATES = {
    "wait": "waiting for the first token",
    "decode": "first token to end",
    "answer": "answering, first token not known",
    "failed": "calls refused or failed",
    "tool": "tool gap",
    "agents": "gap until sub-agents are done",
    "user": "user gap",
    "backoff": "backoff",
    "harness": "harness gap",
    "unknown": "gap of unknown cause",
}
"""What a session may be doing."""

_SCHEMA: dict[str, Any] = {
    "session": pl.Int64,
    "call": pl.Int64,
    "state": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}
Span = tuple[int, int, str, int, int]
"""Session, call, state, start and end, ns."""


def spans_frame(recorded: Recorded) -> pl.DataFrame:
    """One row per stretch of time in one state; those of one session do not overlap and leave nothing out."""
    calls = recorded.calls.sort("session", "place")
    rows: list[Span] = []
    at_ns: int | None = None
    last_session, is_open = -1, False
    for call in calls.iter_rows(named=True):
        if call["session"] != last_session:
            last_session, at_ns, is_open = call["session"], None, False
        request_ns: int = call["request_ns"]
        if at_ns is not None and request_ns > at_ns:
            state = "unknown" if is_open else _gap_state(call)
            rows.append((last_session, call["call"], state, at_ns, request_ns))
        at_ns = request_ns if at_ns is None else max(at_ns, request_ns)
        is_open = call["end_ns"] is None
        for state, until_ns in _stretches(call):
            if until_ns > at_ns:
                rows.append((last_session, call["call"], state, at_ns, until_ns))
                at_ns = until_ns
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _gap_state(call: dict[str, Any]) -> str:
    if call["joins"]:
        return "agents"
    return call["gap_cause"] or "unknown"


def _stretches(call: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """States of a call in order, each with its end."""
    first_ns, end_ns = call["first_token_ns"], call["end_ns"]
    if end_ns is None:
        return
    if call["error"] is not None:
        yield "failed", end_ns
    elif first_ns is None:
        yield "answer", end_ns
    else:
        yield "wait", first_ns
        yield "decode", end_ns


def shares_of(spans: pl.DataFrame, sessions: pl.DataFrame) -> list[dict[str, Any]]:
    """Time in each state of all sessions, of main agents and of sub-agents: state, seconds, share."""
    rows = []
    known = spans.join(sessions.select("session", "depth"), on="session", how="left")
    groups = {
        "all": known,
        "main": known.filter(pl.col("depth") == 0),
        "subagent": known.filter(pl.col("depth") > 0),
    }
    for group, inside in groups.items():
        total_ns = int((inside["end_ns"] - inside["start_ns"]).sum())
        by_state = dict(
            inside.group_by("state")
            .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
            .iter_rows()
        )
        rows += [
            {
                "sessions": group,
                "state": state,
                "time_s": by_state[state] / NS_PER_S,
                "time_ratio": by_state[state] / total_ns,
            }
            for state in STATES
            if by_state.get(state)
        ]
    return rows


def most_at_once(recorded: Recorded) -> pl.DataFrame:
    """One row per tree: the most of its sessions that had a call in flight at once; calls without an end left out."""
    calls = recorded.calls.filter(pl.col("end_ns") > pl.col("request_ns"))
    events = pl.concat(
        [
            calls.select("root", "session", at_ns="request_ns", change=pl.lit(1)),
            calls.select("root", "session", at_ns="end_ns", change=pl.lit(-1)),
        ]
    ).sort("root", "at_ns", "change")
    # A session with two calls in flight is one session.
    inside = events.with_columns(open=pl.col("change").cum_sum().over("session"))
    steps = inside.filter(
        ((pl.col("change") == 1) & (pl.col("open") == 1)) | ((pl.col("change") == -1) & (pl.col("open") == 0))
    ).with_columns(at_once=pl.col("change").cum_sum().over("root"))
    return steps.group_by("root").agg(most_at_once=pl.col("at_once").max()).sort("root")
