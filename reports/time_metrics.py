"""Pure: measures over the time of a run: what was going on at each moment."""

from collections.abc import Callable

import numpy as np
import polars as pl

from reports.metric import NS_PER_S, Metric
from reports.run_metrics import duration_s
from reports.series import Line, level_over_time
from reports.sessions import IS_SENT
from reports.tables import Facts


def _calls_in_flight(facts: Facts) -> list[Line]:
    last_ns = round((duration_s(facts) or 0) * NS_PER_S)
    sent = facts.calls.filter(IS_SENT).select("sent_ns", pl.col("end_ns").fill_null(last_ns))
    return [
        level_over_time(sent["sent_ns"].to_numpy(), sent["end_ns"].to_numpy(), name="calls in flight"),
    ]


def _sessions_active(facts: Facts) -> list[Line]:
    begun = facts.sessions.drop_nulls(["first_due_ns", "last_end_ns"])
    return [
        level_over_time(
            begun["first_due_ns"].to_numpy(), begun["last_end_ns"].to_numpy(), name="sessions active"
        )
    ]


def _of_engines(column: str, title: str) -> Callable[[Facts], list[Line]]:
    def compute(facts: Facts) -> list[Line]:
        read = facts.scrapes.filter(pl.col(column).is_not_null())
        several = read["url"].n_unique() > 1
        return [
            Line(
                name=f"{title}, {url}" if several else title,
                at_s=readings["at_ns"].to_numpy() / NS_PER_S,
                values=readings[column].to_numpy().astype(np.float64),
            )
            for (url,), readings in read.group_by("url", maintain_order=True)
        ]

    return compute


SERIES: tuple[Metric[list[Line]], ...] = (
    Metric(
        name="calls_in_flight",
        title="Calls in flight",
        unit="calls",
        formula="calls sent and not ended, at each moment",
        population="sent calls",
        compute=_calls_in_flight,
    ),
    Metric(
        name="sessions_active",
        title="Sessions active",
        unit="sessions",
        formula="sessions between the first due and the last end of their calls, gaps included",
        population="sessions with an ended call",
        compute=_sessions_active,
    ),
    Metric(
        name="engine_running",
        title="Requests running, engine",
        unit="requests",
        formula="the engine's gauge as read",
        population="successful readings",
        compute=_of_engines("running", "running"),
    ),
    Metric(
        name="engine_waiting",
        title="Requests waiting, engine",
        unit="requests",
        formula="the engine's gauge as read",
        population="successful readings",
        compute=_of_engines("waiting", "waiting"),
    ),
    Metric(
        name="engine_kv_usage_ratio",
        title="KV cache in use, engine",
        unit="",
        formula="the engine's gauge as read, 0 to 1",
        population="successful readings",
        compute=_of_engines("kv_usage_ratio", "KV cache in use"),
    ),
)
