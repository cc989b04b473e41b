"""Pure: measures that every call, session or tree has one value of: times, speeds, lateness."""

from collections.abc import Callable

import polars as pl

from reports.metric import NS_PER_MS, NS_PER_S, Metric, Sample
from reports.sessions import IS_COMPLETE, IS_SENT
from reports.tables import Facts

_CLUSTER_SHIFT = 32


def _of_calls(value: pl.Expr, where: pl.Expr = IS_SENT) -> Callable[[Facts], Sample]:
    def compute(facts: Facts) -> Sample:
        return sample(facts.calls.filter(where), value)

    return compute


def _of_groups(table: str, value: pl.Expr) -> Callable[[Facts], Sample]:
    """A measure of sessions or trees of which every call is complete."""

    def compute(facts: Facts) -> Sample:
        frame: pl.DataFrame = getattr(facts, table)
        whole = frame.filter(pl.col("is_whole") & (pl.col("complete_calls") == pl.col("calls")))
        return sample(whole, value)

    return compute


def sample(frame: pl.DataFrame, value: pl.Expr) -> Sample:
    member = pl.col("session") if "session" in frame.columns else pl.col("root")
    measured = frame.select(
        value.cast(pl.Float64).alias("value"),
        (pl.col("instance") * (1 << _CLUSTER_SHIFT) + member).alias("cluster"),
    ).drop_nulls("value")
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
_STREAMED_TEXT = IS_COMPLETE & pl.col("events").is_not_null() & (pl.col("usage_output_tokens") >= 2)
_SLOWDOWN = pl.when(pl.col("expected_end_ns") > pl.col("expected_start_ns")).then(
    _between_s("first_due_ns", "last_end_ns") / _between_s("expected_start_ns", "expected_end_ns")
)

DISTRIBUTIONS: tuple[Metric[Sample], ...] = (
    Metric(
        name="ttft_service_ms",
        title="TTFT, service",
        unit="ms",
        formula="first_token − sent",
        population="sent calls with a first token, whatever became of them later",
        compute=_of_calls(between_ms("sent_ns", "first_token_ns")),
    ),
    Metric(
        name="ttft_user_ms",
        title="TTFT, user",
        unit="ms",
        formula="first_token − due",
        population="sent calls with a first token, whatever became of them later",
        compute=_of_calls(between_ms("due_ns", "first_token_ns")),
    ),
    Metric(
        name="first_visible_ms",
        title="Time to first visible text",
        unit="ms",
        formula="first_visible − sent",
        population="sent calls with answer text",
        compute=_of_calls(between_ms("sent_ns", "first_visible_ns")),
    ),
    Metric(
        name="headers_ms",
        title="Time to headers",
        unit="ms",
        formula="headers − sent",
        population="sent calls that were answered, refusals included",
        compute=_of_calls(between_ms("sent_ns", "headers_ns")),
    ),
    Metric(
        name="itl_ms",
        title="Time between tokens (ITL)",
        unit="ms",
        formula="(last_token − first_token) / (reported output tokens − 1)",
        population="complete streamed calls that report at least 2 output tokens",
        compute=_of_calls(
            between_ms("first_token_ns", "last_token_ns") / (pl.col("usage_output_tokens") - 1),
            _STREAMED_TEXT,
        ),
    ),
    Metric(
        name="longest_stall_ms",
        title="Longest stall in a call",
        unit="ms",
        formula="longest time between two events that carried tokens",
        population="sent calls with at least 2 such events",
        compute=_of_calls(pl.col("longest_stall_ns") / NS_PER_MS),
    ),
    Metric(
        name="output_speed_tokens_per_s",
        title="Output speed of a call",
        unit="tokens/s",
        formula="reported output tokens / (last_token − sent)",
        population="complete calls that report output tokens",
        compute=_of_calls(
            pl.col("usage_output_tokens") / _between_s("sent_ns", "last_token_ns"),
            IS_COMPLETE & (pl.col("last_token_ns") > pl.col("sent_ns")),
        ),
    ),
    Metric(
        name="call_duration_ms",
        title="Duration of a call",
        unit="ms",
        formula="end − sent",
        population="complete calls",
        compute=_of_calls(between_ms("sent_ns", "end_ns"), IS_COMPLETE),
    ),
    Metric(
        name="lateness_ms",
        title="Lateness",
        unit="ms",
        formula="sent − due",
        population="sent calls",
        compute=_of_calls(between_ms("due_ns", "sent_ns")),
    ),
    Metric(
        name="client_lateness_ms",
        title="Lateness without opening connections",
        unit="ms",
        formula="sent − due, less connected − dispatched where a connection was opened",
        population="sent calls",
        compute=_of_calls((pl.col("sent_ns") - pl.col("due_ns") - _CONNECT_NS) / NS_PER_MS),
    ),
    Metric(
        name="connect_ms",
        title="Opening a connection",
        unit="ms",
        formula="connected − dispatched",
        population="sent calls that opened a connection",
        compute=_of_calls(between_ms("dispatched_ns", "connected_ns"), IS_SENT & _OPENED_CONNECTION),
    ),
    Metric(
        name="upload_ms",
        title="Uploading the request",
        unit="ms",
        formula="uploaded − sent",
        population="sent calls whose body was handed over",
        compute=_of_calls(between_ms("sent_ns", "uploaded_ns")),
    ),
    Metric(
        name="session_duration_s",
        title="Session, in the run",
        unit="s",
        formula="last end − first due",
        population="sessions of which every planned call is complete",
        compute=_of_groups("sessions", _between_s("first_due_ns", "last_end_ns")),
    ),
    Metric(
        name="session_expected_s",
        title="Session, recorded durations and scaled gaps",
        unit="s",
        formula="(last planned + its recorded duration) − first planned",
        population="sessions of which every planned call is complete, where the trace tells every duration",
        compute=_of_groups("sessions", _between_s("expected_start_ns", "expected_end_ns")),
    ),
    Metric(
        name="session_recorded_s",
        title="Session, as recorded",
        unit="s",
        formula="last end − first request in the trace, gaps not scaled",
        population="sessions of which every planned call is complete, where the trace tells every end",
        compute=_of_groups("sessions", _between_s("recorded_start_ns", "recorded_end_ns")),
    ),
    Metric(
        name="session_slowdown_ratio",
        title="Session slowdown",
        unit="",
        formula="session_duration_s / session_expected_s",
        population="sessions that have both",
        compute=_of_groups("sessions", _SLOWDOWN),
    ),
    Metric(
        name="tree_duration_s",
        title="Tree, in the run",
        unit="s",
        formula="last end − first due",
        population="trees of which every planned call is complete",
        compute=_of_groups("trees", _between_s("first_due_ns", "last_end_ns")),
    ),
    Metric(
        name="tree_expected_s",
        title="Tree, recorded durations and scaled gaps",
        unit="s",
        formula="(last planned + its recorded duration) − first planned",
        population="trees of which every planned call is complete, where the trace tells every duration",
        compute=_of_groups("trees", _between_s("expected_start_ns", "expected_end_ns")),
    ),
    Metric(
        name="tree_slowdown_ratio",
        title="Tree slowdown",
        unit="",
        formula="tree_duration_s / tree_expected_s",
        population="trees that have both",
        compute=_of_groups("trees", _SLOWDOWN),
    ),
)
