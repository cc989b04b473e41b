"""Pure: measures that a run has one value of: counts, totals, and how well it went to plan."""

from collections.abc import Callable

import polars as pl

from reports.call_metrics import between_ms, sample
from reports.metric import NS_PER_MS, NS_PER_S, Metric, Number, Row, ratio
from reports.sessions import IS_COMPLETE, IS_FAILED, IS_SENT
from reports.stats import quantile
from reports.tables import Facts


def _count(where: pl.Expr, table: str = "calls") -> Callable[[Facts], int]:
    def compute(facts: Facts) -> int:
        frame: pl.DataFrame = getattr(facts, table)
        return frame.filter(where).height

    return compute


def duration_s(facts: Facts) -> float | None:
    if facts.end is not None:
        return facts.end.ended_ns / NS_PER_S
    last = facts.calls.select(pl.max_horizontal(pl.col("^(sent|end)_ns$").max())).item()
    return None if last is None else last / NS_PER_S


def _missing_calls(facts: Facts) -> int:
    return max(0, facts.header.planned_calls - facts.calls.height)


def _per_s(column: str) -> Callable[[Facts], float | None]:
    def compute(facts: Facts) -> float | None:
        return ratio(_total(column)(facts), duration_s(facts))

    return compute


def _total(column: str) -> Callable[[Facts], int | None]:
    def compute(facts: Facts) -> int | None:
        known = facts.calls.filter(IS_COMPLETE)[column].drop_nulls()
        return None if known.is_empty() else int(known.sum())

    return compute


def _size_ratio(reported: str, planned: str) -> Callable[[Facts], float | None]:
    def compute(facts: Facts) -> float | None:
        known = facts.calls.filter(IS_COMPLETE & pl.col(reported).is_not_null())
        return ratio(int(known[reported].sum()), int(known[planned].sum())) if known.height else None

    return compute


def _usage_ratio(column: str) -> Callable[[Facts], float | None]:
    def compute(facts: Facts) -> float | None:
        complete = facts.calls.filter(IS_COMPLETE)
        return ratio(complete[column].drop_nulls().len(), complete.height)

    return compute


def _size_error_ratio(facts: Facts) -> float | None:
    known = facts.calls.filter(IS_COMPLETE & (pl.col("prompt_tokens") > 0))
    off = (known["usage_input_tokens"] / known["prompt_tokens"] - 1).abs().drop_nulls()
    return quantile(off.to_numpy(), 0.5)


def _loop_lag_ms(facts: Facts) -> float | None:
    end = facts.end
    return None if end is None or end.loop_lag_p99_ns is None else end.loop_lag_p99_ns / NS_PER_MS


def _cpu_ratio(facts: Facts) -> float | None:
    return None if facts.end is None else ratio(facts.end.cpu_ns, facts.end.ended_ns)


def _longest_scrape_gap_s(facts: Facts) -> float | None:
    read = facts.scrapes.filter(pl.col("error").is_null())
    gap_ns = read.select(pl.col("at_ns").diff().over("url").max()).item() if read.height else None
    return None if gap_ns is None else gap_ns / NS_PER_S


def _median_scrape_gap_s(facts: Facts) -> float | None:
    gaps = facts.scrapes.select(pl.col("at_ns").diff().over("url"))["at_ns"].drop_nulls()
    return quantile(gaps.to_numpy() / NS_PER_S, 0.5)


_IS_LOST = (pl.col("failed_calls") > 0) | (pl.col("lost_calls") > 0)
_IS_WHOLE_AND_COMPLETE = pl.col("is_whole") & (pl.col("complete_calls") == pl.col("calls"))

RUN_NUMBERS: tuple[Metric[Number], ...] = (
    Metric(
        name="planned_calls",
        title="Calls planned",
        unit="calls",
        formula="count, from the run's header",
        population="the plan",
        compute=lambda facts: facts.header.planned_calls,
    ),
    Metric(
        name="sent_calls",
        title="Calls sent",
        unit="calls",
        formula="count of calls with a sent time",
        population="calls of the run",
        compute=_count(IS_SENT),
    ),
    Metric(
        name="complete_calls",
        title="Calls complete",
        unit="calls",
        formula="count of sent calls that ended without an error",
        population="calls of the run",
        compute=_count(IS_COMPLETE),
    ),
    Metric(
        name="refused_calls",
        title="Calls refused",
        unit="calls",
        formula="count of calls with status 429, 503 or 529",
        population="calls of the run",
        compute=_count(pl.col("error") == "refused"),
    ),
    Metric(
        name="failed_calls",
        title="Calls failed otherwise",
        unit="calls",
        formula="count of calls with any other error",
        population="calls of the run",
        compute=_count(IS_FAILED & (pl.col("error") != "refused")),
    ),
    Metric(
        name="unsent_calls",
        title="Calls not sent",
        unit="calls",
        formula="count of calls with a reason for not being sent",
        population="calls of the run",
        compute=_count(pl.col("unsent").is_not_null()),
    ),
    Metric(
        name="missing_calls",
        title="Calls without a result",
        unit="calls",
        formula="planned_calls − calls of the run",
        population="the plan",
        compute=_missing_calls,
    ),
    Metric(
        name="planned_sessions",
        title="Sessions planned",
        unit="sessions",
        formula="count, from the run's header",
        population="the plan",
        compute=lambda facts: facts.header.planned_sessions,
    ),
    Metric(
        name="complete_sessions",
        title="Sessions complete",
        unit="sessions",
        formula="count of sessions of which every planned call is complete",
        population="sessions of the run",
        compute=_count(_IS_WHOLE_AND_COMPLETE, "sessions"),
    ),
    Metric(
        name="lost_sessions",
        title="Sessions lost",
        unit="sessions",
        formula="count of sessions with a failed call, or with calls not sent because of one",
        population="sessions of the run",
        compute=_count(_IS_LOST, "sessions"),
    ),
    Metric(
        name="planned_trees",
        title="Trees planned",
        unit="trees",
        formula="count, from the run's header",
        population="the plan",
        compute=lambda facts: facts.header.planned_trees,
    ),
    Metric(
        name="complete_trees",
        title="Trees complete",
        unit="trees",
        formula="count of trees of which every planned call is complete",
        population="trees of the run",
        compute=_count(_IS_WHOLE_AND_COMPLETE, "trees"),
    ),
    Metric(
        name="duration_s",
        title="Duration of the run",
        unit="s",
        formula="end of the run; the last sent or end of a call if the run was cut",
        population="the run",
        compute=duration_s,
    ),
    Metric(
        name="input_tokens",
        title="Prompt tokens reported",
        unit="tokens",
        formula="sum of reported input tokens, cached ones included",
        population="complete calls that report them",
        compute=_total("usage_input_tokens"),
    ),
    Metric(
        name="output_tokens",
        title="Output tokens reported",
        unit="tokens",
        formula="sum of reported output tokens",
        population="complete calls that report them",
        compute=_total("usage_output_tokens"),
    ),
    Metric(
        name="output_tokens_per_s",
        title="Output of the run",
        unit="tokens/s",
        formula="output_tokens / duration_s",
        population="complete calls that report them",
        compute=_per_s("usage_output_tokens"),
    ),
    Metric(
        name="usage_ratio",
        title="Calls that report their prompt tokens",
        unit="",
        formula="complete calls that report input tokens / complete calls",
        population="complete calls",
        compute=_usage_ratio("usage_input_tokens"),
    ),
    Metric(
        name="cache_usage_ratio",
        title="Calls that report their cached tokens",
        unit="",
        formula="complete calls that report cached tokens / complete calls",
        population="complete calls",
        compute=_usage_ratio("usage_cache_read_tokens"),
    ),
    Metric(
        name="prompt_size_ratio",
        title="Prompt tokens, reported over plan",
        unit="",
        formula="sum of reported input tokens / sum of planned prompt tokens",
        population="complete calls that report input tokens",
        compute=_size_ratio("usage_input_tokens", "prompt_tokens"),
    ),
    Metric(
        name="prompt_size_error_ratio",
        title="Prompt size off plan, median call",
        unit="",
        formula="median of |reported input tokens / planned prompt tokens − 1|",
        population="complete calls that report input tokens",
        compute=_size_error_ratio,
    ),
    Metric(
        name="output_size_ratio",
        title="Output tokens, reported over plan",
        unit="",
        formula="sum of reported output tokens / sum of planned output tokens",
        population="complete calls that report output tokens",
        compute=_size_ratio("usage_output_tokens", "output_tokens"),
    ),
    Metric(
        name="loop_lag_p99_ms",
        title="Event loop lag of the client, p99",
        unit="ms",
        formula="99th percentile of how late the event loop woke a timer, from the run's end record",
        population="samples during the run",
        compute=_loop_lag_ms,
    ),
    Metric(
        name="cpu_ratio",
        title="CPU of the client",
        unit="",
        formula="CPU time of the replaying process / duration of the run",
        population="the run",
        compute=_cpu_ratio,
    ),
    Metric(
        name="scrapes",
        title="Readings of the engine's metrics",
        unit="readings",
        formula="count",
        population="all readings, failed ones included",
        compute=lambda facts: facts.scrapes.height,
    ),
    Metric(
        name="failed_scrapes",
        title="Failed readings",
        unit="readings",
        formula="count",
        population="readings with an error",
        compute=lambda facts: facts.scrapes.filter(pl.col("error").is_not_null()).height,
    ),
    Metric(
        name="longest_scrape_gap_s",
        title="Longest time without a reading",
        unit="s",
        formula="longest time between two successful readings of one engine",
        population="successful readings",
        compute=_longest_scrape_gap_s,
    ),
    Metric(
        name="median_scrape_gap_s",
        title="Usual time between readings",
        unit="s",
        formula="median time between two readings of one engine",
        population="all readings, failed ones included",
        compute=_median_scrape_gap_s,
    ),
)


def _errors_by_kind(facts: Facts) -> list[Row]:
    failed = facts.calls.filter(IS_FAILED)
    return (
        failed.group_by("error", "status", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.struct("instance", "session").n_unique().cast(pl.Int64).alias("sessions"),
            (pl.col("retry_after_ns").median() / NS_PER_S).alias("retry_after_s"),
            pl.col("error_text").drop_nulls().first().alias("example"),
        )
        .sort("calls", descending=True, maintain_order=True)
        .to_dicts()
    )


def _unsent_by_reason(facts: Facts) -> list[Row]:
    unsent = facts.calls.filter(pl.col("unsent").is_not_null())
    return (
        unsent.group_by("unsent", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.struct("instance", "session").n_unique().cast(pl.Int64).alias("sessions"),
        )
        .sort("calls", descending=True, maintain_order=True)
        .to_dicts()
    )


def _by_class(facts: Facts) -> list[Row]:
    rows: list[Row] = []
    for (name,), calls in facts.calls.group_by("call_class", maintain_order=True):
        ttft = sample(calls.filter(IS_SENT), between_ms("sent_ns", "first_token_ns")).values
        rows.append(
            {
                "call_class": str(name),
                "calls": calls.height,
                "complete_calls": calls.filter(IS_COMPLETE).height,
                "ttft_service_p50_ms": quantile(ttft, 0.5),
                "input_tokens": int(calls.filter(IS_COMPLETE)["usage_input_tokens"].sum()),
                "output_tokens": int(calls.filter(IS_COMPLETE)["usage_output_tokens"].sum()),
            }
        )
    return sorted(rows, key=lambda row: -int(row["calls"] or 0))


RUN_TABLES: tuple[Metric[list[Row]], ...] = (
    Metric(
        name="by_class",
        title="Calls by class",
        unit="calls, ms, tokens",
        formula="count, median ttft_service_ms, and sums of reported tokens per class of call",
        population="calls of the run; tokens over complete calls",
        compute=_by_class,
    ),
    Metric(
        name="errors_by_kind",
        title="Errors and refusals",
        unit="calls",
        formula="count, distinct sessions, median of the wait asked for, first text, per kind and status",
        population="calls with an error",
        compute=_errors_by_kind,
    ),
    Metric(
        name="unsent_by_reason",
        title="Calls not sent",
        unit="calls",
        formula="count and distinct sessions per reason",
        population="calls that were not sent",
        compute=_unsent_by_reason,
    ),
)
