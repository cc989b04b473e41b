"""Pure: measures over the time of a run: what was going on at each moment."""

from collections.abc import Callable

import numpy as np
import polars as pl

from aitrace.units import NS_PER_S
from reports.measures.run_metrics import duration_s
from reports.metric import Metric, defined
from reports.series import Line, level_over_time
from reports.sessions import IS_SENT
from reports.tables import Facts, kept, once_per_run


@once_per_run
def _calls_in_flight(facts: Facts) -> list[Line]:
    last_ns = round((duration_s(facts) or 0) * NS_PER_S)
    sent = kept(facts.every_call, IS_SENT, "sent_ns", pl.col("end_ns").fill_null(last_ns))
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


def _calls_in_backoff(facts: Facts) -> list[Line]:
    waits = facts.tries.filter(pl.col("wait_ns") > 0)
    if waits.is_empty():
        return []
    ends_ns = waits["end_ns"].to_numpy()
    return [level_over_time(ends_ns, ends_ns + waits["wait_ns"].to_numpy(), name="calls in backoff")]


def _growths(facts: Facts, columns: tuple[str, ...], title: str, value: pl.Expr) -> list[Line]:
    """Of each engine, a value between each two readings that have the counters, at the earlier one of the two.

    There is none where a counter fell: the engine was restarted in between.
    """
    known = facts.scrapes.filter(pl.all_horizontal(pl.col(column).is_not_null() for column in columns))
    several = known["url"].n_unique() > 1
    lines = []
    for (url,), readings in known.group_by("url", maintain_order=True):
        # The growth up to the next reading, told from this one on: lines are drawn as steps.
        grown = readings.select(
            (pl.col("at_ns") / NS_PER_S).alias("at_s"),
            ((pl.col("at_ns").shift(-1) - pl.col("at_ns")) / NS_PER_S).alias("length_s"),
            *((pl.col(column).shift(-1) - pl.col(column)).alias(column) for column in columns),
        )
        is_growth = pl.all_horizontal((pl.col(column) >= 0).fill_null(value=False) for column in columns)
        values = grown.select(
            "at_s", pl.when(is_growth & (pl.col("length_s") > 0)).then(value).alias("value")
        )
        lines.append(
            Line(
                name=f"{title}, {url}" if several else title,
                at_s=values["at_s"].to_numpy(),
                values=values["value"].cast(pl.Float64).fill_null(float("nan")).to_numpy(),
            )
        )
    return [line for line in lines if not np.isnan(line.values).all()]


def _rate(counter: str, title: str) -> Callable[[Facts], list[Line]]:
    return lambda facts: _growths(facts, (counter,), title, pl.col(counter) / pl.col("length_s"))


def _hit_ratio(facts: Facts) -> list[Line]:
    hits, queries = "prefix_hit_tokens", "prefix_query_tokens"
    share = pl.when(pl.col(queries) > 0).then(pl.col(hits) / pl.col(queries))
    return _growths(facts, (hits, queries), "engine: hit rate", share)


_GAUGE = "the engine's gauge as read"
_READ = "successful readings"
_PER_S = "growth of the engine's counter from each reading to the next / the time between them"

# fmt: off
SERIES: tuple[Metric[list[Line]], ...] = defined(
    ("calls_in_flight", "Calls in flight", "calls", "calls sent and not ended, at each moment", "sent calls",
     _calls_in_flight),
    ("sessions_active", "Sessions active", "sessions",
     "sessions between the first due and the last end of their calls, gaps included",
     "sessions with an ended call", _sessions_active),
    ("calls_in_backoff", "Calls in backoff", "calls", "calls between the end of a try and the next one, at each moment",
     "calls that were tried again", _calls_in_backoff),
    ("engine_running", "Requests running, engine", "requests", _GAUGE, _READ,
     _of_engines("running", "engine: running")),
    ("engine_waiting", "Requests waiting, engine", "requests", _GAUGE, _READ,
     _of_engines("waiting", "engine: waiting")),
    ("engine_kv_usage_ratio", "KV cache in use, engine", "", f"{_GAUGE}, 0 to 1", _READ,
     _of_engines("kv_usage_ratio", "engine: KV cache in use")),
    ("engine_hit_ratio_over_time", "Hit rate, engine", "",
     "growth of the engine's counter of cached tokens / of looked-up tokens, from each reading to the next", _READ,
     _hit_ratio),
    ("engine_preemptions_per_s", "Preemptions, engine", "requests/s", _PER_S, _READ,
     _rate("preemptions", "engine: preemptions")),
    ("engine_rejections_per_s", "Rejections, engine", "requests/s", _PER_S, _READ,
     _rate("rejections", "engine: rejections")),
)
# fmt: on
