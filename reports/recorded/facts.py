"""Pure: what a trace holds, as frames: one row per session, call and tool call.

The calls are decoded once; whatever a report says of them is computed from the rows. A prompt's tokens are those that
the endpoint reported, else its size where the trace counts tokens; sizes in bytes become tokens by the ratio of the
call they belong to.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from aitrace.columns import GAP_CAUSES, NOT_KNOWN, RELATIONS, CallColumns, call_columns
from aitrace.schema import Call, Trace

COUNTED_APART = ("auxiliary", "count_tokens")
"""Classes of calls that are beside the conversation of their session."""

_USAGE = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)
_TIMES = ("request_ns", "first_token_ns", "last_token_ns", "end_ns")
_CALL_SCHEMA: dict[str, Any] = {
    "call": pl.Int64,
    "session": pl.Int64,
    "turn": pl.Int64,
    "window": pl.Int64,
    "call_class": pl.String,
    "protocol": pl.String,
    "model": pl.String,
    "status": pl.Int64,
    "error": pl.String,
    "retry_after_ns": pl.Int64,
    "retry_of": pl.Int64,
    "tools": pl.Int64,
    "unseen_start": pl.Boolean,
    **dict.fromkeys(_USAGE, pl.Int64),
    **dict.fromkeys(_TIMES, pl.Int64),
}
_TOOL_SCHEMA: dict[str, Any] = {"call": pl.Int64, "name": pl.String, "duration_ns": pl.Int64}
_SESSION_SCHEMA: dict[str, Any] = {
    "session": pl.Int64,
    "parent": pl.Int64,
    "root": pl.Int64,
    "depth": pl.Int64,
    "harness": pl.String,
    "agent": pl.String,
    "label": pl.String,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trace and its rows."""

    trace: Trace
    """Where they come from."""
    sessions: pl.DataFrame
    """One row per session, by id: `session`, `parent`, `root`, `depth`, `harness`, `agent`, `label`."""
    calls: pl.DataFrame
    """One row per call, by id: fields of the call; `root`, `depth`, `harness`, `agent` of its session; `place`, its
    number within the session, from 0, by the time of the request; `prompt_size` in the trace's unit, `prompt_tokens`
    (None if not known), `tokens_per_unit`; `gap_ns`, `gap_cause`, `gap_relation`, `waited_call` of the wait that ended
    last (None if its length is not known), and `joins`, whether it took in a sub-agent's result."""
    tools: pl.DataFrame
    """One row per tool call of an answer: `call`, `name`, `duration_ns`."""


def recorded_from_trace(trace: Trace) -> Recorded:
    """The rows of a trace."""
    columns = call_columns(trace)
    sessions = _sessions_frame(trace)
    rows: list[tuple[Any, ...]] = []
    tools: list[tuple[Any, ...]] = []
    for call in trace.calls:
        rows.append(tuple(_call_row(call)))
        tools.extend((call.id, tool.name, tool.duration_ns) for tool in call.tool_calls or ())
    calls = pl.DataFrame(rows, schema=_CALL_SCHEMA, orient="row")
    calls = calls.with_columns(pl.Series("prompt_size", columns.prompt_size, pl.Int64))
    calls = calls.join(
        sessions.select("session", "root", "depth", "harness", "agent"),
        on="session",
        how="left",
        maintain_order="left",
    ).join(_gaps_frame(columns), on="call", how="left", maintain_order="left")
    return Recorded(
        trace=trace,
        sessions=sessions,
        calls=_with_tokens(_with_places(calls), is_tokens=trace.header.unit == "tokens"),
        tools=pl.DataFrame(tools, schema=_TOOL_SCHEMA, orient="row"),
    )


def is_of_chain() -> pl.Expr:
    """Whether a call is part of the conversation of its session."""
    return ~pl.col("call_class").is_in(COUNTED_APART)


def is_complete() -> pl.Expr:
    """Whether a call was answered completely."""
    return pl.col("error").is_null()


def tells_no_tools() -> pl.Expr:
    """Whether it is not known how many tools a complete answer of a conversation called."""
    return is_complete() & is_of_chain() & pl.col("tools").is_null()


def _call_row(call: Call) -> Iterator[Any]:
    usage, times, outcome = call.usage, call.times, call.outcome
    yield from (call.id, call.session, call.turn, call.window, call.call_class, call.protocol, call.model)
    yield from (outcome.status, outcome.error, outcome.retry_after_ns, call.retry_of)
    yield None if call.tool_calls is None else len(call.tool_calls)
    yield call.prompt.unseen_start
    yield from (getattr(usage, name) for name in _USAGE)
    yield from (getattr(times, name) for name in _TIMES)


def _sessions_frame(trace: Trace) -> pl.DataFrame:
    depths: list[int] = []
    rows = []
    for session in trace.sessions:
        # A parent stands before its children.
        depths.append(0 if session.parent is None else depths[session.parent] + 1)
        rows.append(
            (
                session.id,
                session.parent,
                session.root,
                depths[-1],
                session.harness,
                session.agent,
                session.label,
            )
        )
    return pl.DataFrame(rows, schema=_SESSION_SCHEMA, orient="row")


def _gaps_frame(columns: CallColumns) -> pl.DataFrame:
    """Of each call that waited for an end, the shortest gap: it belongs to what ended last."""
    waits = pl.DataFrame(
        {
            "call": columns.waiting(),
            "waited_call": columns.after_call,
            "gap_ns": columns.after_gap_ns,
            "gap_relation": np.array(RELATIONS)[columns.after_relation],
            "gap_cause": np.array(GAP_CAUSES)[columns.after_cause],
            "is_end": columns.after_trigger == 0,
        },
        schema_overrides={"gap_relation": pl.String, "gap_cause": pl.String},
    )
    joins = waits.group_by("call").agg(joins=(pl.col("gap_relation") == "join").any())
    shortest = (
        waits.filter(pl.col("is_end") & (pl.col("gap_ns") != NOT_KNOWN))
        .sort("call", "gap_ns", "gap_cause")
        .unique("call", keep="first", maintain_order=True)
        .drop("is_end")
    )
    return joins.join(shortest, on="call", how="left")


def _with_places(calls: pl.DataFrame) -> pl.DataFrame:
    ordered = calls.select("call", "session", "request_ns").sort("session", "request_ns", "call")
    places = ordered.with_columns(place=pl.int_range(pl.len()).over("session"))
    return calls.join(places.select("call", "place"), on="call", how="left", maintain_order="left")


def _with_tokens(calls: pl.DataFrame, *, is_tokens: bool) -> pl.DataFrame:
    size = pl.col("prompt_size") if is_tokens else pl.lit(None, pl.Int64)
    per_unit = pl.when((pl.col("prompt_size") > 0) & ~pl.col("unseen_start")).then(
        pl.col("prompt_tokens") / pl.col("prompt_size")
    )
    return calls.with_columns(prompt_tokens=pl.coalesce("input_tokens", size)).with_columns(
        tokens_per_unit=per_unit
    )
