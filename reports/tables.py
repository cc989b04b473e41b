"""Pure: calls, sessions, trees and scrapes of a run as polars frames; units are in the names of the columns.

Every figure and every number of a report is computed from these frames, see `reports/metrics.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import polars as pl

from aitrace.columns import NOT_KNOWN, CallColumns, call_columns
from aitrace.errors import InputError
from aitrace.results import CallResult, RunEnd, RunHeader, Scrape
from aitrace.schema import Trace
from reports.cache.bound import SentCalls, bound_sizes
from reports.cache.paths import TracePaths
from reports.call_lines import CallRows, rows_from_calls
from reports.sessions import grouped, planned_counts
from reports.tries import tries_frame

Value = TypeVar("Value")
_Schema = dict[str, type[pl.DataType]]

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

TURNED_AWAY = ("refused", "connect", "http_error")
"""Errors after which nothing of a prompt was computed."""


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
    trace: Trace | None
    """The trace that was played; None if it is not there."""
    unloaded: "Facts | None" = None
    """A run at the same endpoint with less load, to tell its speed from; None if none was given."""
    known: dict[Callable[["Facts"], Any], Any] = field(default_factory=dict, init=False)
    """What `once_per_run` has computed; facts that are changed by `dataclasses.replace` begin anew."""


def once_per_run(compute: Callable[[Facts], Value]) -> Callable[[Facts], Value]:
    """A function of the facts that several numbers need, and that is computed but once for each run."""

    @wraps(compute)
    def known(facts: Facts) -> Value:
        if compute not in facts.known:
            facts.known[compute] = compute(facts)
        value: Value = facts.known[compute]
        return value

    return known


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
    return facts_from_rows(header, end, [rows_from_calls(calls)], scrapes, trace, lines_lost=lines_lost)


def facts_from_rows(
    header: RunHeader,
    end: RunEnd | None,
    parts: Iterable[CallRows],
    scrapes: Iterable[Scrape],
    trace: Trace | None,
    *,
    lines_lost: int = 0,
) -> Facts:
    """As `facts_from_run`, of calls that come part by part."""
    frame, tries = _joined(parts)
    frame = frame.hstack(trace_frame(frame, trace, share_system=header.share_system))
    played = kept(frame, pl.col("phase") != "prime")
    # Only a run that was cut has calls without a row.
    is_cut = frame.height < planned_calls(header, end)
    missing = _is_missing(played, trace) if is_cut else pl.lit(value=False)
    sessions = grouped(played, ["instance", "root", "session"], missing)
    trees = grouped(played, ["instance", "root"], missing)
    return Facts(
        header=header,
        end=end,
        lines_lost=lines_lost,
        calls=kept(frame, pl.col("phase") == "measured"),
        sessions=sessions.filter(pl.col("warm_up_calls") == 0),
        trees=trees.filter(pl.col("warm_up_calls") == 0),
        every_call=frame,
        every_session=sessions,
        every_tree=trees,
        tries=tries,
        scrapes=scrapes_frame(scrapes),
        trace=trace,
    )


def _joined(parts: Iterable[CallRows]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The calls and the tries of all parts."""
    calls, tries = [], []
    for part in parts:
        calls.append(part.calls.to_dict())
        tries.append(part.tries)
    # Column by column, so that no more than one of them is there twice.
    columns = {name: pl.concat([part.pop(name) for part in calls], rechunk=True) for name in list(calls[0])}
    return pl.DataFrame(columns), tries_frame(tries)


def kept(frame: pl.DataFrame, where: pl.Expr, *columns: str | pl.Expr) -> pl.DataFrame:
    """These columns of the rows that fit, all columns if none is named; no more is copied than that takes.

    A copy of a million calls takes half a gigabyte, and most filters keep nearly all of them.
    """
    if columns:
        return frame.lazy().filter(where).select(*columns).collect()
    is_wanted = frame.select(where).to_series()
    return frame if is_wanted.all() and not is_wanted.has_nulls() else frame.filter(is_wanted)


def planned_calls(header: RunHeader, end: RunEnd | None) -> int:
    """Calls that were to be sent, without those of trees that a plan held in store and no lane took."""
    return header.planned_calls - (0 if end is None else end.unstarted_calls)


def measured_from_ns(facts: Facts) -> int | None:
    """When the first measured call was due, ns; None if everything is measured."""
    if facts.calls.height == facts.every_call.height:
        return None
    first_ns: int | None = facts.calls.select(pl.col("due_ns").min()).item()
    return first_ns


def scrapes_frame(scrapes: Iterable[Scrape]) -> pl.DataFrame:
    """One row per reading, in order of time."""
    rows = [
        {"at_ns": scrape.at_ns, "url": scrape.url, "error": scrape.error}
        | {name: scrape.values.get(name) for name in list(SCRAPE_SCHEMA)[3:]}
        for scrape in scrapes
    ]
    return pl.DataFrame(rows, schema=SCRAPE_SCHEMA).sort("at_ns", maintain_order=True)


def trace_frame(calls: pl.DataFrame, trace: Trace | None, *, share_system: bool) -> pl.DataFrame:
    """What the trace says of each call, row by row; nulls throughout without a trace."""
    if trace is None:
        return pl.DataFrame({name: [None] * calls.height for name in TRACE_SCHEMA}, schema=TRACE_SCHEMA)
    columns, call = call_columns(trace), calls["call"].to_numpy()
    _demand_calls(calls, columns)
    known = {
        "recorded_start_ns": columns.request_ns,
        "recorded_end_ns": columns.end_ns,
        "prompt_size": columns.prompt_size,
    }
    frame = pl.DataFrame({name: values[call] for name, values in known.items()}).with_columns(
        pl.all().replace(NOT_KNOWN, None), calls["planned_ns"].alias("expected_start_ns")
    )
    paths = TracePaths(trace, share_system=share_system)
    return frame.hstack(_bound(calls, columns, paths)).select(*TRACE_SCHEMA)


def _demand_calls(calls: pl.DataFrame, columns: CallColumns) -> None:
    """Check that each call is one of the trace."""
    sessions = columns.session
    call, session = calls["call"].to_numpy(), calls["session"].to_numpy()
    is_there = (call >= 0) & (call < len(sessions))
    is_there[is_there] = sessions[call[is_there]] == session[is_there]
    if not is_there.all():
        wrong = calls.row(int(np.argmin(is_there)), named=True)
        raise InputError(
            f"call {wrong['index']} of the run plays call {wrong['call']}, session {wrong['session']} of the trace, "
            f"which has no such call among its {len(sessions):,}",
            hint="trace.aitrace in the run directory is not the trace that was played; put that one there.",
        )


def _bound(calls: pl.DataFrame, columns: CallColumns, paths: TracePaths) -> pl.DataFrame:
    """What an unlimited cache had of the calls that were sent, in the order in which they were."""
    sent = (
        calls.lazy()
        .with_row_index("row")
        .filter(pl.col("sent_ns").is_not_null())
        .select(
            "row", "sent_ns", "index", "call", "instance", is_turned_away=pl.col("error").is_in(TURNED_AWAY)
        )
        .sort("sent_ns", "index", "row")
        .collect()
    )
    sizes = bound_sizes(
        SentCalls(
            call=sent["call"].to_numpy(),
            instance=sent["instance"].to_numpy(),
            is_stored=~sent["is_turned_away"].fill_null(value=False).to_numpy(),
        ),
        columns,
        paths,
    )
    found = {"session": sizes.session, "tree": sizes.tree, "other": sizes.other}
    bound = pl.DataFrame({f"bound_{origin}_size": values for origin, values in found.items()})
    rows = pl.DataFrame({"row": np.arange(calls.height, dtype=np.uint32)})
    return rows.join(sent.select("row").hstack(bound), on="row", how="left", maintain_order="left").drop(
        "row"
    )


def _is_missing(played: pl.DataFrame, trace: Trace | None) -> pl.Expr:
    """Whether planned calls of a call's tree may have left no row."""
    rows = played.group_by("instance", "root").len()
    wanted = planned_counts(trace)
    whole = [
        {"instance": instance, "root": root}
        for instance, root, count in rows.iter_rows()
        if count >= wanted.get(root, count + 1)
    ]
    return ~pl.struct("instance", "root").is_in(whole)
