"""Pure: measures over the time of a run: what was going on at each moment."""

from collections.abc import Callable

import numpy as np
import polars as pl

from reports.metric import NS_PER_S, Metric, defined
from reports.run_metrics import duration_s
from reports.series import Line, level_over_time
from reports.sessions import IS_SENT
from reports.tables import Facts


def _calls_in_flight(facts: Facts) -> list[Line]:
    last_ns = round((duration_s(facts) or 0) * NS_PER_S)
    sent = facts.every_call.filter(IS_SENT).select("sent_ns", pl.col("end_ns").fill_null(last_ns))
    return [
        level_over_time(sent["sent_ns"].to_numpy(), sent["end_ns"].to_numpy(), name="calls in flight"),
    ]


def _sessions_active(facts: Facts) -> list[Line]:
    begun = facts.every_session.drop_nulls(["first_due_ns", "last_end_ns"])
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


_GAUGE = "the engine's gauge as read"
_READ = "successful readings"

# fmt: off
SERIES: tuple[Metric[list[Line]], ...] = defined(
    ("calls_in_flight", "Calls in flight", "calls", "calls sent and not ended, at each moment", "sent calls",
     _calls_in_flight),
    ("sessions_active", "Sessions active", "sessions",
     "sessions between the first due and the last end of their calls, gaps included",
     "sessions with an ended call", _sessions_active),
    ("engine_running", "Requests running, engine", "requests", _GAUGE, _READ,
     _of_engines("running", "engine: running")),
    ("engine_waiting", "Requests waiting, engine", "requests", _GAUGE, _READ,
     _of_engines("waiting", "engine: waiting")),
    ("engine_kv_usage_ratio", "KV cache in use, engine", "", f"{_GAUGE}, 0 to 1", _READ,
     _of_engines("kv_usage_ratio", "engine: KV cache in use")),
)
# fmt: on
