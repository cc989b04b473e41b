"""Pure: the gap before each call of a run as it was played: from the end of what the call waited for to its first try."""

import numpy as np
import polars as pl

from aitrace.columns import NOT_KNOWN, TRIGGERS, call_columns
from aitrace.schema import Trace
from aitrace.units import NS_PER_S
from reports.tables import Facts, kept, once_per_run

PLAYED_GAP = "the gap as played (first try sent − end of what the call waited for)"
"""What all that tells calls by their gaps takes; docs/metrics.md says it in full."""
_OF_GAPS = ("index", "instance", "call", "due_ns", "gap_ns")


@once_per_run
def first_sent(facts: Facts) -> pl.DataFrame:
    """When the first try of each call was sent; calls of which no try was are not there."""
    return (
        kept(facts.tries, pl.col("sent_ns").is_not_null(), "index", "sent_ns")
        .group_by("index")
        .agg(pl.col("sent_ns").min().alias("first_sent_ns"))
    )


@once_per_run
def gaps_as_played(facts: Facts) -> pl.DataFrame:
    """Measured calls with a try that was sent and that waited for something: `index`, `played_gap_ns`, `played_gap_s`, and
    as `is_timed` whether the run tells the ends of all that they waited for.
    """
    calls = facts.calls.select(_OF_GAPS).join(first_sent(facts), on="index", maintain_order="left")
    is_absolute = facts.header.options.get("schedule") == "absolute"
    # Where an end is not known, the plan says when a call that was due by it began to wait.
    begun_ns = pl.lit(None, pl.Int64) if is_absolute else pl.col("due_ns") - pl.col("gap_ns")
    ended_ns = pl.col("ended_ns")
    if not is_absolute:
        ended_ns = pl.when("is_timed").then(ended_ns)
    return (
        calls.hstack(_ends(facts, calls))
        .select(
            "index",
            "is_timed",
            (pl.col("first_sent_ns") - pl.coalesce(ended_ns, begun_ns))
            .clip(lower_bound=0)
            .alias("played_gap_ns"),
        )
        .with_columns((pl.col("played_gap_ns") / NS_PER_S).alias("played_gap_s"))
        .drop_nulls("played_gap_ns")
    )


def with_gaps(frame: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Measured calls or tries with `played_gap_s`; null where a call waited for nothing, or no try of it was sent."""
    gaps = gaps_as_played(facts).select("index", "played_gap_s")
    return frame.join(gaps, on="index", how="left", maintain_order="left")


def _ends(facts: Facts, calls: pl.DataFrame) -> pl.DataFrame:
    """Of each call the end of the last thing that it waited for, and whether all of these ends are known."""
    if facts.trace is None:
        nothing = pl.lit(None, pl.Int64).alias("ended_ns"), pl.lit(value=False).alias("is_timed")
        return calls.select("index").with_columns(*nothing).drop("index")
    moments = (
        kept(facts.every_call, pl.col("phase") != "prime", "index", "instance", "call", "end_ns")
        .join(first_sent(facts), on="index", how="left")
        .select("instance", "end_ns", waited_for="call", start_ns="first_sent_ns")
    )
    ends = (
        _waits(facts.trace, calls)
        .join(moments, on=["instance", "waited_for"], how="left")
        .select("row", at_ns=pl.when("is_end").then("end_ns").otherwise("start_ns"))
        .group_by("row")
        .agg(
            pl.col("at_ns").max().alias("ended_ns"),
            pl.col("at_ns").is_not_null().all().alias("is_timed"),
        )
    )
    rows = pl.DataFrame({"row": np.arange(calls.height)})
    return rows.join(ends, on="row", how="left", maintain_order="left").select(
        "ended_ns", pl.col("is_timed").fill_null(value=False)
    )


def _waits(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """All that the calls wait for by the trace: the `row` of the one that waits, the call `waited_for`, and whether it
    waits for the end of that one or only for its being sent.
    """
    columns, call = call_columns(trace), calls["call"].to_numpy()
    first = columns.after_first[call]
    count = columns.after_first[call + 1] - first
    row = np.repeat(np.arange(call.size), count)
    place = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(row.size)
    waited_for = columns.after_call[place]
    # A call that is timed from the one before it, for want of that one's end, waits for the end all the same.
    is_next = columns.session[waited_for] == columns.session[call[row]]
    is_end = (columns.after_trigger[place] == TRIGGERS.index("completion")) | (
        is_next & (columns.end_ns[waited_for] == NOT_KNOWN)
    )
    return pl.DataFrame(
        {
            "row": row,
            "instance": calls["instance"].to_numpy()[row],
            "waited_for": waited_for.astype(np.int64),
            "is_end": is_end,
        }
    )
