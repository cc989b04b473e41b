"""Pure: measures that every call, session or tree has one value of: times, speeds, lateness."""

from collections.abc import Callable

import polars as pl

from aitrace.units import NS_PER_MS, NS_PER_S
from reports.metric import Metric, Sample, defined
from reports.sessions import IS_COMPLETE, IS_PLAYED, IS_SENT
from reports.tables import Facts

_CLUSTER_SHIFT = 32


def _of_calls(value: pl.Expr, where: pl.Expr = IS_SENT) -> Callable[[Facts], Sample]:
    def compute(facts: Facts) -> Sample:
        return sample(facts.calls.lazy().filter(where), value)

    return compute


def _of_groups(table: str, value: pl.Expr) -> Callable[[Facts], Sample]:
    """A measure of sessions or trees of which every call is complete."""

    def compute(facts: Facts) -> Sample:
        frame: pl.DataFrame = getattr(facts, table)
        return sample(frame.filter(IS_PLAYED), value)

    return compute


def sample(frame: pl.DataFrame | pl.LazyFrame, value: pl.Expr) -> Sample:
    """Of a lazy frame only the columns that the value needs are made."""
    member = pl.col("session") if "session" in frame.collect_schema() else pl.col("root")
    measured = (
        frame.lazy()
        .select(
            value.cast(pl.Float64).alias("value"),
            (pl.col("instance") * (1 << _CLUSTER_SHIFT) + member).alias("cluster"),
        )
        .drop_nulls("value")
        .collect()
    )
    return Sample(values=measured["value"].to_numpy(), sessions=measured["cluster"].to_numpy())


def between_ms(start: str, end: str) -> pl.Expr:
    return (pl.col(end) - pl.col(start)) / NS_PER_MS


def _between_s(start: str, end: str) -> pl.Expr:
    return (pl.col(end) - pl.col(start)) / NS_PER_S


_OPENED_CONNECTION = pl.col("new_connection").fill_null(value=False)
_CONNECT_NS = (
    pl.when(_OPENED_CONNECTION)
    .then(pl.col("connected_ns") - pl.col("dispatched_ns"))
    .otherwise(0)
    .fill_null(0)
)
_TRY_DUE_NS = pl.coalesce("retry_due_ns", "due_ns")
LATENESS_MS = (pl.col("sent_ns") - _TRY_DUE_NS) / NS_PER_MS
CLIENT_LATENESS_MS = (pl.col("sent_ns") - _TRY_DUE_NS - _CONNECT_NS) / NS_PER_MS
"""How late a call was sent, without the opening of a connection."""
_STREAMED_TEXT = IS_COMPLETE & pl.col("events").is_not_null() & (pl.col("usage_output_tokens") >= 2)
_SLOWDOWN = pl.when(pl.col("expected_end_ns") > pl.col("expected_start_ns")).then(
    _between_s("first_due_ns", "last_end_ns") / _between_s("expected_start_ns", "expected_end_ns")
)

CALL_VALUES: dict[str, pl.Expr] = {
    "ttft_service_ms": pl.when(IS_SENT).then(between_ms("sent_ns", "first_token_ns")),
    "ttft_user_ms": pl.when(IS_SENT).then(between_ms("due_ns", "first_token_ns")),
    "headers_ms": pl.when(IS_SENT).then(between_ms("sent_ns", "headers_ns")),
    "itl_ms": pl.when(_STREAMED_TEXT).then(
        between_ms("first_token_ns", "last_token_ns") / (pl.col("usage_output_tokens") - 1)
    ),
    "longest_stall_ms": pl.when(IS_SENT).then(pl.col("longest_stall_ns") / NS_PER_MS),
    "output_speed_tokens_per_s": pl.when(IS_COMPLETE & (pl.col("last_token_ns") > pl.col("sent_ns"))).then(
        pl.col("usage_output_tokens") / _between_s("sent_ns", "last_token_ns")
    ),
}
"""Measures of calls that are also told by what a call was, see `reports/measures/latency_metrics.py`; null of other calls."""

_ANSWERED = "sent calls with a first token, whatever became of them later"
_SESSIONS = "sessions of which every planned call is complete"
_TREES = "trees of which every planned call is complete"
_TIMED = "where the trace tells the duration of the last call"
_EXPECTED = "latest (planned + recorded duration) − first planned"

# fmt: off
CALL_DISTRIBUTIONS: tuple[Metric[Sample], ...] = defined(
    ("ttft_service_ms", "TTFT, service (from sent)", "ms", "first_token − sent", _ANSWERED,
     _of_calls(CALL_VALUES["ttft_service_ms"])),
    ("ttft_user_ms", "TTFT, user (from due)", "ms", "first_token − due", _ANSWERED,
     _of_calls(CALL_VALUES["ttft_user_ms"])),
    ("first_visible_ms", "First visible text", "ms", "first_visible − sent", "sent calls with answer text",
     _of_calls(between_ms("sent_ns", "first_visible_ns"))),
    ("headers_ms", "Headers", "ms", "headers − sent", "sent calls that were answered, refusals included",
     _of_calls(CALL_VALUES["headers_ms"])),
    ("itl_ms", "ITL, mean of a call", "ms", "(last_token − first_token) / (reported output tokens − 1)",
     "complete streamed calls that report at least 2 output tokens",
     _of_calls(CALL_VALUES["itl_ms"])),
    ("longest_stall_ms", "Longest stall", "ms",
     "longest time between two events that carried tokens, or from the last of them to the end of the call",
     "sent calls with at least 2 events that carried tokens",
     _of_calls(CALL_VALUES["longest_stall_ms"])),
    ("output_speed_tokens_per_s", "Output speed", "tokens/s", "reported output tokens / (last_token − sent)",
     "complete calls that report output tokens",
     _of_calls(CALL_VALUES["output_speed_tokens_per_s"])),
    ("call_duration_ms", "Duration of a call", "ms", "end − sent", "complete calls",
     _of_calls(between_ms("sent_ns", "end_ns"), IS_COMPLETE)),
    ("lateness_ms", "Lateness", "ms", "sent − due, of the last try", "sent calls", _of_calls(LATENESS_MS)),
    ("client_lateness_ms", "Lateness, client", "ms",
     "sent − due of the last try, less connected − dispatched where a connection was opened", "sent calls",
     _of_calls(CLIENT_LATENESS_MS)),
    ("connect_ms", "Opening a connection", "ms", "connected − dispatched",
     "sent calls that opened a connection",
     _of_calls(between_ms("dispatched_ns", "connected_ns"), IS_SENT & _OPENED_CONNECTION)),
    ("upload_ms", "Uploading the request", "ms", "uploaded − sent", "sent calls whose body was handed over",
     _of_calls(between_ms("sent_ns", "uploaded_ns"))),
    ("session_duration_s", "Session, in the run", "s", "last end − first due", _SESSIONS,
     _of_groups("sessions", _between_s("first_due_ns", "last_end_ns"))),
    ("session_expected_s", "Session, expected", "s", _EXPECTED, f"{_SESSIONS}, {_TIMED}",
     _of_groups("sessions", _between_s("expected_start_ns", "expected_end_ns"))),
    ("session_recorded_s", "Session, as recorded", "s", "last end − first request in the trace, gaps not scaled",
     f"{_SESSIONS}, {_TIMED}",
     _of_groups("sessions", _between_s("recorded_start_ns", "recorded_end_ns"))),
    ("session_slowdown_ratio", "Session time, × expected (below 1: faster)", "", "session_duration_s / session_expected_s",
     "sessions that have both", _of_groups("sessions", _SLOWDOWN)),
    ("tree_duration_s", "Tree, in the run", "s", "last end − first due", _TREES,
     _of_groups("trees", _between_s("first_due_ns", "last_end_ns"))),
    ("tree_expected_s", "Tree, expected", "s", _EXPECTED, f"{_TREES}, {_TIMED}",
     _of_groups("trees", _between_s("expected_start_ns", "expected_end_ns"))),
    ("tree_slowdown_ratio", "Tree time, × expected (below 1: faster)", "", "tree_duration_s / tree_expected_s",
     "trees that have both", _of_groups("trees", _SLOWDOWN)),
)
# fmt: on
