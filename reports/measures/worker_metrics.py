"""Pure: calls by the worker that served them, and the client's own processes."""

import polars as pl

from aitrace.units import NS_PER_MS
from reports.cache.metrics import cache_population, reported_ratio
from reports.measures.call_metrics import CALL_VALUES
from reports.metric import Metric, Number, Row, defined, ratio
from reports.sessions import IS_COMPLETE, IS_SENT
from reports.stats import quantile, shown_quantile
from reports.tables import Facts, kept

_OF_CALLS = ("sent_ns", "due_ns", "first_token_ns", "end_ns", "error", "unsent")
MAX_WORKERS = 100
"""Workers that are told one by one."""


def _by_worker(facts: Facts) -> list[Row]:
    """A row per worker, the busiest first, and one for calls that do not tell theirs; none if no call tells it."""
    sent = kept(facts.calls, IS_SENT, "worker", "instance", "session", *_OF_CALLS)
    if sent["worker"].null_count() == sent.height:
        return []
    population = cache_population(facts)
    counts = sent.group_by("worker", maintain_order=True).agg(pl.len().alias("calls"))
    workers = counts.sort("calls", descending=True, maintain_order=True)["worker"].head(MAX_WORKERS)
    return [_row(worker, sent, population) for worker in workers.to_list()]


def _row(worker: str | None, sent: pl.DataFrame, population: pl.DataFrame) -> Row:
    is_its = pl.col("worker").eq_missing(pl.lit(worker, dtype=pl.String))
    calls, compared = sent.filter(is_its), population.filter(is_its)
    ttft_ms = calls.select(CALL_VALUES["ttft_service_ms"].alias("ms"))["ms"].drop_nulls().to_numpy()
    return {
        "worker": worker,
        "calls": calls.height,
        "complete_calls": calls.filter(IS_COMPLETE).height,
        "sessions": calls.select("instance", "session").n_unique(),
        "cache_calls": compared.height,
        "input_tokens": int(compared["input_tokens"].sum()),
        "reported_ratio": reported_ratio(compared),
        "ttft_service_n": int(ttft_ms.size),
        "ttft_service_p50_ms": quantile(ttft_ms, 0.5),
        "ttft_service_p95_ms": shown_quantile(ttft_ms, 0.95),
    }


def _workers(facts: Facts) -> Number:
    known = kept(facts.calls, IS_SENT, "worker")["worker"].drop_nulls()
    return None if known.is_empty() else known.n_unique()


def _processes(facts: Facts) -> list[Row]:
    end = facts.end
    return [
        {
            "process": number,
            "sent_calls": worker.sent_calls,
            "cpu_ratio": ratio(worker.cpu_ns, None if end is None else end.ended_ns),
            "loop_lag_p99_ms": None if worker.loop_lag_p99_ns is None else worker.loop_lag_p99_ns / NS_PER_MS,
            "late_bodies": worker.late_bodies,
            "lost": worker.lost,
        }
        for number, worker in enumerate(() if end is None else end.workers, 1)
    ]


_OF_WORKER = (
    "calls, complete ones, distinct sessions; cache_reported_ratio with its calls and input tokens; n, p50 and p95 of "
    "ttft_service_ms, per worker that the endpoint's signals name"
)
_OF_PROCESS = (
    "calls sent, CPU time / duration of the run, 99th percentile of event loop lag, requests built late, whether it was "
    "lost, per process"
)

# fmt: off
WORKER_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("workers", "Workers that computed prompts", "workers", "count of distinct workers", "sent calls that tell theirs",
     _workers),
)

WORKER_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("by_worker", "Calls by the worker that computed the prompt", "calls, tokens, ms",
     _OF_WORKER,
     f"sent calls, those whose worker is not told in a row of their own; the {MAX_WORKERS} workers with the most calls",
     _by_worker),
    ("client_processes", "Processes of the client", "calls, ms",
     _OF_PROCESS, "the processes that played the run, if it was more than one", _processes),
)
# fmt: on
