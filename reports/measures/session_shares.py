"""Pure: what the time of each session went into: the endpoint, the harness, the user, or the client.

The parts of a session add up to its duration, from its first due call to its last end. Calls are taken in the order in
which they were due; a moment at which two of them were going on counts for the one that was due first, so what is counted
of a call begins where those before it had ended.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from aitrace.columns import call_columns
from aitrace.schema import Trace
from aitrace.units import NS_PER_S
from reports.metric import Metric, Row, defined
from reports.sessions import IS_PLAYED
from reports.stats import quantile, shown_quantile
from reports.tables import Facts, kept, once_per_run

PARTS = (
    "prefill", "decode", "tool_gap", "user_gap", "other_gap", "agents", "backoff", "failed_tries", "lateness",
)  # fmt: skip
"""What a session's time goes into. `prefill`: sent to first token; `decode`: first token to end; gaps by what filled them;
`agents`: waiting for other agents of the tree; `backoff`: the harness's waits between tries; `failed_tries`: tries that
were followed by another one; `lateness`: the rest from due to sent."""
SESSION = ("instance", "root", "session")
_DECILES = 10
_BETWEEN = (
    "index", "call", "gap_ns", "gap_cause", "sent_ns", "first_token_ns", "before_ns", "tried_ns", "waited_ns", "idle_ns",
    "head_ns", "played_gap_ns",
)  # fmt: skip
_OF_CALLS = (
    *SESSION, "index", "call", "gap_ns", "gap_cause", "due_ns", "sent_ns", "first_token_ns", "end_ns", "output_tokens",
    "usage_input_tokens", "usage_cache_read_tokens", "usage_output_tokens",
)  # fmt: skip


@once_per_run
def call_parts(facts: Facts) -> pl.DataFrame:
    """One row per call of the sessions that are complete: what it added to each part of its session's time, ns.

    `visible_ratio` is the share of its time from sent to end that was counted for it.
    """
    session = pl.col("end_ns").cum_max().shift(1).over(*SESSION)
    calls = (
        facts.calls.select(_OF_CALLS)
        .join(facts.sessions.filter(IS_PLAYED), on=list(SESSION), how="semi")
        .sort(*SESSION, "due_ns", "index")
        .with_columns(session.alias("before_ns"))
    )
    # Before the first call of a session nothing of it is missing.
    before = pl.col("before_ns").fill_null(pl.col("due_ns"))
    first = pl.coalesce("first_token_ns", "end_ns")
    idle = (pl.col("due_ns") - before).clip(lower_bound=0)
    calls = calls.with_columns(
        idle.alias("idle_ns"),
        _beyond(pl.col("due_ns"), pl.col("sent_ns"), before).alias("head_ns"),
        _beyond(pl.col("sent_ns"), first, before).alias("prefill_ns"),
        _beyond(first, pl.col("end_ns"), before).alias("decode_ns"),
    )
    calls = calls.with_columns(_gap_ns(facts, calls).alias("played_gap_ns"))
    calls = calls.join(_failed_tries(facts, calls), on="index", how="left", maintain_order="left")
    answer = pl.col("end_ns") - pl.col("sent_ns")
    seen = pl.col("prefill_ns") + pl.col("decode_ns")
    cause = pl.col("gap_cause").fill_null("unknown")
    return (
        calls.with_columns(
            (pl.col("idle_ns") - pl.col("played_gap_ns")).alias("agents_ns"),
            pl.when(cause == "tool").then("played_gap_ns").otherwise(0).alias("tool_gap_ns"),
            pl.when(cause == "user").then("played_gap_ns").otherwise(0).alias("user_gap_ns"),
            pl.when(~cause.is_in(["tool", "user"])).then("played_gap_ns").otherwise(0).alias("other_gap_ns"),
            pl.col("waited_ns").fill_null(0).alias("backoff_ns"),
            pl.col("tried_ns").fill_null(0).alias("failed_tries_ns"),
            pl.when(answer > 0).then(seen / answer).otherwise(0.0).alias("visible_ratio"),
        )
        .with_columns(
            (pl.col("head_ns") - pl.col("backoff_ns") - pl.col("failed_tries_ns")).alias("lateness_ns"),
        )
        .drop(_BETWEEN)
    )


def _failed_tries(facts: Facts, calls: pl.DataFrame) -> pl.DataFrame:
    """Of each call that was tried more than once, its earlier tries and the waits after them beyond the calls before, ns."""
    earlier = kept(facts.tries, ~pl.col("is_last"), "index", "sent_ns", "end_ns", "wait_ns")
    tries = earlier.join(calls.select("index", "due_ns", "before_ns"), on="index")
    sent, end = pl.col("sent_ns"), pl.col("end_ns")
    before = pl.max_horizontal("due_ns", "before_ns")
    # A try without a connection was not sent.
    tried_ns = pl.when(sent.is_not_null()).then(_beyond(sent, end, before))
    waited_ns = _beyond(end, end + pl.col("wait_ns"), before)
    return tries.group_by("index").agg(tried_ns.sum().alias("tried_ns"), waited_ns.sum().alias("waited_ns"))


def _beyond(start: pl.Expr, end: pl.Expr, before: pl.Expr) -> pl.Expr:
    """What of the time from start to end lies after a moment."""
    return (end - pl.max_horizontal(start, before)).clip(lower_bound=0)


def _gap_ns(facts: Facts, calls: pl.DataFrame) -> pl.Expr:
    """What of the idle time before a call its gap took; the rest was spent on waiting for other agents.

    The gap of a call that waits for none may be longer than planned: the known times of its tools are played instead.
    """
    gap, idle = pl.col("gap_ns").fill_null(0), pl.col("idle_ns")
    alone = (
        pl.lit(value=False)
        if facts.trace is None
        else pl.lit(pl.Series(~_waits_for_agents(facts.trace)[calls["call"].to_numpy()]))
    )
    return pl.when(alone).then(idle).otherwise(pl.min_horizontal(gap, idle))


def _waits_for_agents(trace: Trace) -> npt.NDArray[np.bool_]:
    """Of each call of a trace, whether it waits for a call of another session."""
    columns = call_columns(trace)
    waiting = columns.waiting()
    is_other = columns.session[columns.after_call] != columns.session[waiting]
    return np.bincount(waiting[is_other], minlength=columns.session.size) > 0


@once_per_run
def session_parts(facts: Facts) -> pl.DataFrame:
    """One row per complete session: `duration_s`, and the parts of it as `<part>_s`."""
    parts = call_parts(facts).group_by(*SESSION, maintain_order=True)
    return parts.agg(
        ((pl.col("end_ns").max() - pl.col("due_ns").min()) / NS_PER_S).alias("duration_s"),
        *((pl.col(f"{part}_ns").sum() / NS_PER_S).alias(f"{part}_s") for part in PARTS),
    )


def _shares(facts: Facts) -> list[Row]:
    sessions = session_parts(facts).filter(pl.col("duration_s") > 0)
    whole_s = float(sessions["duration_s"].sum())
    rows: list[Row] = []
    for part in PARTS if sessions.height else ():
        part_s = sessions[f"{part}_s"]
        ratios = (part_s / sessions["duration_s"]).to_numpy()
        rows.append(
            {
                "part": part,
                "sessions": sessions.height,
                "time_s": float(part_s.sum()),
                "time_ratio": float(part_s.sum()) / whole_s,
                "share_p50_ratio": quantile(ratios, 0.5),
                "share_p95_ratio": shown_quantile(ratios, 0.95),
                "share_max_ratio": quantile(ratios, 1.0),
                "p50_s": quantile(part_s.to_numpy(), 0.5),
                "p95_s": shown_quantile(part_s.to_numpy(), 0.95),
            }
        )
    return rows


def _by_duration(facts: Facts) -> list[Row]:
    """Sessions in ten groups of about one size, the shortest first; fewer groups of fewer sessions."""
    sessions = session_parts(facts).filter(pl.col("duration_s") > 0).sort("duration_s", *SESSION)
    groups = min(_DECILES, sessions.height)
    place = np.arange(sessions.height) * groups // max(1, sessions.height)
    return [_group(sessions.filter(pl.Series(place == group))) for group in range(groups)]


def _group(sessions: pl.DataFrame) -> Row:
    whole_s = float(sessions["duration_s"].sum())
    durations_s = sessions["duration_s"].to_numpy()
    row: Row = {
        "duration_from_s": quantile(durations_s, 0.0),
        "duration_to_s": quantile(durations_s, 1.0),
        "sessions": sessions.height,
    }
    return row | {f"{part}_ratio": float(sessions[f"{part}_s"].sum()) / whole_s for part in PARTS}


_SESSIONS = "sessions of which every planned call is complete, that took any time"
_OF_PARTS = (
    "sum over sessions and its share of their duration, quantiles over sessions of the share and of the time, per part: "
    "prefill, decode, gap by cause, waiting for other agents, backoff, earlier tries, lateness"
)

# fmt: off
SHARE_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("session_time_by_part", "Time of sessions by what it went into", "s",
     _OF_PARTS, _SESSIONS, _shares),
    ("session_time_by_duration", "Time of sessions by their duration", "",
     "share of each part in the sum of durations, per tenth of the sessions by duration", _SESSIONS, _by_duration),
)
# fmt: on
