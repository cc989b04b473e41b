"""Pure: calls, sessions, trees and scrapes of a run as polars frames; units are in the names of the columns.

Every figure and every number of a report is computed from these frames, see `reports/metrics.py`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

import polars as pl

from aitrace.errors import InputError
from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver, prompt_size
from aitrace.results import NO_COLUMNS, CallResult, RunEnd, RunHeader, Scrape, call_columns
from aitrace.schema import Header, Trace, Usage
from reports.cache_model import CachePrompt, Hits, PromptRuns, unlimited_cache
from reports.sessions import grouped, planned_counts
from reports.tries import tries_frame

_Schema = dict[str, type[pl.DataType]]


def _schema_of(record: type, prefix: str = "") -> _Schema:
    """A column per field; fields are integers, flags or texts, or None beside them."""
    schema: _Schema = {}
    for name, hint in get_type_hints(record).items():
        types = get_args(hint) or (hint,)
        schema[prefix + name] = pl.Int64 if int in types else pl.Boolean if bool in types else pl.String
    return schema


USAGE_SCHEMA = _schema_of(Usage, "usage_")
"""One column per field of `Usage`, in its order."""

CALL_SCHEMA: _Schema = {
    **{name: kind for name, kind in _schema_of(CallResult).items() if name not in NO_COLUMNS},
    "earlier_tries": pl.Int64,
    "backoff_ns": pl.Int64,
}
"""One column per field of `CallResult`, and of its earlier tries their number and waits; `usage` follows as
`USAGE_SCHEMA`."""

TRACE_SCHEMA: _Schema = {
    "recorded_start_ns": pl.Int64,
    "recorded_end_ns": pl.Int64,
    "expected_start_ns": pl.Int64,
    "prompt_size": pl.Int64,
    "bound_session_size": pl.Int64,
    "bound_tree_size": pl.Int64,
    "bound_other_size": pl.Int64,
}
"""What the trace says of each call, and the prefix that an unlimited cache had of it, in the trace's unit; null
without a trace, and for the bound of calls that were never sent."""

SCRAPE_SCHEMA: _Schema = {
    "at_ns": pl.Int64,
    "url": pl.String,
    "error": pl.String,
    "running": pl.Float64,
    "waiting": pl.Float64,
    "kv_usage_ratio": pl.Float64,
    "prefix_query_tokens": pl.Float64,
    "prefix_hit_tokens": pl.Float64,
    "preemptions": pl.Float64,
    "rejections": pl.Float64,
}
"""One row per reading; null where the engine does not have the value or the reading failed."""

_TURNED_AWAY = ("refused", "connect", "http_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a report is computed from."""

    header: RunHeader
    """What was to be played."""
    end: RunEnd | None
    """How it ended; None if the program did not get to write it."""
    lines_lost: int
    """Lines of the run's files that could not be read."""
    calls: pl.DataFrame
    """One row per planned call that the run tells of and measures: `CALL_SCHEMA`, `USAGE_SCHEMA`, `TRACE_SCHEMA`."""
    sessions: pl.DataFrame
    """One row per instance and session without a call in the warm-up, see `reports/sessions.py`."""
    trees: pl.DataFrame
    """One row per instance and root session without a call in the warm-up, see `reports/sessions.py`."""
    every_call: pl.DataFrame
    """As `calls`, with those of the warm-up and those that primed prompts: for what was going on, and for nothing else."""
    every_session: pl.DataFrame
    """As `sessions`, with those of the warm-up."""
    every_tree: pl.DataFrame
    """As `trees`, with those of the warm-up."""
    tries: pl.DataFrame
    """One row per try of the calls that were dispatched, measured or not, see `reports/tries.py`."""
    scrapes: pl.DataFrame
    """`SCRAPE_SCHEMA`, in order of time."""
    trace_header: Header | None
    """Header of the trace that was played; None if it is not there."""
    agents: dict[int, str | None]
    """Kind of agent of each session of the trace; empty without a trace."""


def facts_from_run(
    header: RunHeader,
    end: RunEnd | None,
    calls: Sequence[CallResult],
    scrapes: Sequence[Scrape],
    trace: Trace | None,
    *,
    lines_lost: int = 0,
) -> Facts:
    """Frames of a run, with what its trace adds."""
    frame = calls_frame(calls).hstack(trace_frame(calls, trace, share_system=header.share_system))
    played = frame.filter(pl.col("phase") != "prime")
    missing = _is_missing(calls, trace, planned_calls=planned_calls(header, end))
    sessions = grouped(played, ["instance", "root", "session"], missing)
    trees = grouped(played, ["instance", "root"], missing)
    return Facts(
        header=header,
        end=end,
        lines_lost=lines_lost,
        calls=frame.filter(pl.col("phase") == "measured"),
        sessions=sessions.filter(pl.col("warm_up_calls") == 0),
        trees=trees.filter(pl.col("warm_up_calls") == 0),
        every_call=frame,
        every_session=sessions,
        every_tree=trees,
        tries=tries_frame(calls),
        scrapes=scrapes_frame(scrapes),
        trace_header=None if trace is None else trace.header,
        agents={} if trace is None else {session.id: session.agent for session in trace.sessions},
    )


def planned_calls(header: RunHeader, end: RunEnd | None) -> int:
    """Calls that were to be sent, without those of trees that a plan held in store and no lane took."""
    return header.planned_calls - (0 if end is None else end.unstarted_calls)


def measured_from_ns(facts: Facts) -> int | None:
    """When the first measured call was due, ns; None if everything is measured."""
    if facts.calls.height == facts.every_call.height:
        return None
    first_ns: int | None = facts.calls.select(pl.col("due_ns").min()).item()
    return first_ns


def calls_frame(calls: Sequence[CallResult]) -> pl.DataFrame:
    """One row per call, in the order given."""
    return pl.DataFrame(call_columns(calls), schema=CALL_SCHEMA | USAGE_SCHEMA)


def scrapes_frame(scrapes: Sequence[Scrape]) -> pl.DataFrame:
    """One row per reading, in order of time."""
    rows = [
        {"at_ns": scrape.at_ns, "url": scrape.url, "error": scrape.error}
        | {name: scrape.values.get(name) for name in list(SCRAPE_SCHEMA)[3:]}
        for scrape in scrapes
    ]
    return pl.DataFrame(rows, schema=SCRAPE_SCHEMA).sort("at_ns", maintain_order=True)


def trace_frame(calls: Sequence[CallResult], trace: Trace | None, *, share_system: bool) -> pl.DataFrame:
    """What the trace says of each call, row by row; nulls throughout without a trace."""
    if trace is None:
        return pl.DataFrame({name: [None] * len(calls) for name in TRACE_SCHEMA}, schema=TRACE_SCHEMA)
    for call in calls:
        if not 0 <= call.call < len(trace.calls) or trace.calls[call.call].session != call.session:
            raise InputError(
                f"call {call.index} of the run plays call {call.call}, session {call.session} of the trace, "
                f"which has no such call among its {len(trace.calls):,}",
                hint="trace.aitrace in the run directory is not the trace that was played; put that one there.",
            )
    prompts = PromptResolver(trace.calls)
    hits = _bound(calls, trace, prompts, share_system=share_system)
    rows = []
    for row, call in enumerate(calls):
        times = trace.calls[call.call].times
        hit = hits.get(row)
        rows.append(
            (
                times.request_ns,
                times.end_ns,
                call.planned_ns,
                prompt_size(trace, prompts.segment_ids(call.call)),
                *((None, None, None) if hit is None else (hit.session_size, hit.tree_size, hit.other_size)),
            )
        )
    return pl.DataFrame(rows, schema=TRACE_SCHEMA, orient="row")


def _bound(
    calls: Sequence[CallResult], trace: Trace, prompts: PromptResolver, *, share_system: bool
) -> dict[int, Hits]:
    """Hits of an unlimited cache by row, for the calls that were sent, in the order in which they were."""
    identity = BlockIdentity(trace, share_system=share_system)
    runs = PromptRuns(trace.segments, identity, trace.header.block_size)
    sent = sorted(
        (call.sent_ns, call.index, row) for row, call in enumerate(calls) if call.sent_ns is not None
    )
    order = [row for _, _, row in sent]
    hits = unlimited_cache(
        CachePrompt(
            instance=calls[row].instance,
            root=calls[row].root,
            session=calls[row].session,
            runs=runs.of_prompt(prompts.segment_ids(calls[row].call), calls[row].instance),
            is_stored=calls[row].error not in _TURNED_AWAY,
        )
        for row in order
    )
    return dict(zip(order, hits, strict=True))


def _is_missing(calls: Sequence[CallResult], trace: Trace | None, *, planned_calls: int) -> pl.Expr:
    """Whether planned calls of a call's tree may have left no row: only in a run that was cut."""
    if len(calls) >= planned_calls:
        return pl.lit(value=False)
    rows = Counter((call.instance, call.root) for call in calls if call.phase != "prime")
    wanted = planned_counts(trace)
    whole = [
        {"instance": instance, "root": root}
        for (instance, root), count in rows.items()
        if count >= wanted.get(root, count + 1)
    ]
    return ~pl.struct("instance", "root").is_in(whole)
