"""Pure: measures that a run has one value of: counts, totals, and how well it went to plan."""

from collections.abc import Callable
from itertools import pairwise

import polars as pl

from aitrace.outcomes import OVERLOAD
from aitrace.units import NS_PER_MS, NS_PER_S
from reports.measures.call_metrics import CLIENT_LATENESS_MS, between_ms, sample
from reports.metric import Metric, Number, Row, defined, ratio
from reports.sessions import IS_COMPLETE, IS_FAILED, IS_PLAYED, IS_SENT, IS_STOPPED
from reports.stats import quantile
from reports.tables import Facts, kept, measured_from_ns, planned_calls

_IS_OVERLOAD = (pl.col("error") == "refused") | (
    (pl.col("error") == "error_event")
    & pl.col("error_text").str.contains(f"(?i){OVERLOAD.pattern}").fill_null(value=False)
)
_OF_CLASS = (
    "call_class", "sent_ns", "first_token_ns", "end_ns", "error", "unsent", "usage_input_tokens", "usage_output_tokens",
)  # fmt: skip
_IS_CENSORED = pl.col("cut_calls") > 0
IS_LOST = (pl.col("fatal_calls") > 0) | (pl.col("lost_calls") > 0)
"""Of sessions: a call that it cannot do without was refused or failed, or one was not sent because of such a call."""


def _count(where: pl.Expr, table: str = "calls") -> Callable[[Facts], int]:
    def compute(facts: Facts) -> int:
        frame: pl.DataFrame = getattr(facts, table)
        return int(kept(frame, where, pl.len()).item())

    return compute


def duration_s(facts: Facts) -> float | None:
    if facts.end is not None:
        return facts.end.ended_ns / NS_PER_S
    last = facts.every_call.select(pl.max_horizontal(pl.col("^(sent|end)_ns$").max())).item()
    return None if last is None else last / NS_PER_S


def measured_s(facts: Facts) -> float | None:
    """Time from the first measured call due to the end of the run; the whole duration without a warm-up."""
    whole_s = duration_s(facts)
    return None if whole_s is None else whole_s - (measured_from_ns(facts) or 0) / NS_PER_S


def _late_calls(facts: Facts) -> int:
    lateness_ms, bound_ms = CLIENT_LATENESS_MS, facts.header.lateness_bound_ms
    return int(kept(facts.calls, IS_SENT & (lateness_ms > bound_ms), pl.len()).item())


def _missing_calls(facts: Facts) -> int:
    return max(0, planned_calls(facts.header, facts.end) - facts.every_call.height)


def _missing_sessions(facts: Facts) -> int:
    if not _missing_calls(facts):
        return 0
    is_open = ~pl.col("is_whole") & ~IS_LOST & ~_IS_CENSORED
    begun = int(kept(facts.sessions, is_open, pl.len()).item())
    return begun + max(0, _planned("sessions")(facts) - facts.every_session.height)


def _planned(group: str) -> Callable[[Facts], int]:
    def compute(facts: Facts) -> int:
        unstarted: int = 0 if facts.end is None else getattr(facts.end, f"unstarted_{group}")
        planned: int = getattr(facts.header, f"planned_{group}")
        return planned - unstarted

    return compute


def _unmeasured(group: str) -> Callable[[Facts], int]:
    def compute(facts: Facts) -> int:
        every: pl.DataFrame = getattr(facts, f"every_{group}")
        measured: pl.DataFrame = getattr(facts, f"{group}s")
        return every.height - measured.height

    return compute


def _total(column: str) -> Callable[[Facts], int | None]:
    def compute(facts: Facts) -> int | None:
        known = kept(facts.calls, IS_COMPLETE, column)[column].drop_nulls()
        return None if known.is_empty() else int(known.sum())

    return compute


def _size_ratio(reported: str, planned: str) -> Callable[[Facts], float | None]:
    def compute(facts: Facts) -> float | None:
        known = kept(facts.calls, IS_COMPLETE & pl.col(reported).is_not_null(), reported, planned)
        return ratio(int(known[reported].sum()), int(known[planned].sum())) if known.height else None

    return compute


def _usage_ratio(column: str) -> Callable[[Facts], float | None]:
    def compute(facts: Facts) -> float | None:
        complete = kept(facts.calls, IS_COMPLETE, column)
        return ratio(complete[column].drop_nulls().len(), complete.height)

    return compute


def _size_error_ratio(facts: Facts) -> float | None:
    is_planned = IS_COMPLETE & (pl.col("prompt_tokens") > 0)
    known = kept(facts.calls, is_planned, "usage_input_tokens", "prompt_tokens")
    off = (known["usage_input_tokens"] / known["prompt_tokens"] - 1).abs().drop_nulls()
    return quantile(off.to_numpy(), 0.5)


def _contradicting_usage_calls(facts: Facts) -> int:
    parts = (
        ("usage_cache_read_tokens", "usage_input_tokens"),
        ("usage_reasoning_tokens", "usage_output_tokens"),
    )
    is_wrong = pl.any_horizontal(
        (pl.col(part) > pl.col(whole)).fill_null(value=False) for part, whole in parts
    )
    return int(kept(facts.calls, IS_COMPLETE & is_wrong, pl.len()).item())


def _loop_lag_ms(facts: Facts) -> float | None:
    end = facts.end
    return None if end is None or end.loop_lag_p99_ns is None else end.loop_lag_p99_ns / NS_PER_MS


def _cpu_ratio(facts: Facts) -> float | None:
    return None if facts.end is None else ratio(facts.end.cpu_ns, facts.end.ended_ns)


def _longest_scrape_gap_s(facts: Facts) -> float | None:
    ended_ns = 0 if facts.end is None else facts.end.ended_ns
    longest_ns = 0
    for _, readings in facts.scrapes.group_by("url", maintain_order=True):
        tried_ns = readings["at_ns"]
        read_ns = readings.filter(pl.col("error").is_null())["at_ns"].to_list()
        times_ns = [tried_ns[0], *read_ns, max(tried_ns[-1], ended_ns)]
        longest_ns = max(longest_ns, *(later - earlier for earlier, later in pairwise(times_ns)))
    return longest_ns / NS_PER_S if longest_ns else None


def _median_scrape_gap_s(facts: Facts) -> float | None:
    gaps = facts.scrapes.select(pl.col("at_ns").diff().over("url"))["at_ns"].drop_nulls()
    return quantile(gaps.to_numpy() / NS_PER_S, 0.5)


def _errors_by_kind(facts: Facts) -> list[Row]:
    failed = facts.calls.filter(IS_FAILED)
    return (
        failed.group_by("error", "status", _IS_OVERLOAD.alias("overload"), maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.struct("instance", "session").n_unique().cast(pl.Int64).alias("sessions"),
            (pl.col("retry_after_ns").quantile(0.5, "lower") / NS_PER_S).alias("retry_after_s"),
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
    columns = ("instance", "session", *_OF_CLASS)
    for (name,), calls in facts.calls.select(columns).group_by("call_class", maintain_order=True):
        ttft = sample(calls.lazy().filter(IS_SENT), between_ms("sent_ns", "first_token_ns")).values
        complete = kept(calls, IS_COMPLETE, "usage_input_tokens", "usage_output_tokens")
        rows.append(
            {
                "call_class": str(name),
                "calls": calls.height,
                "complete_calls": complete.height,
                "ttft_service_p50_ms": quantile(ttft, 0.5),
                "input_tokens": int(complete["usage_input_tokens"].sum()),
                "output_tokens": int(complete["usage_output_tokens"].sum()),
            }
        )
    return sorted(rows, key=lambda row: -int(row["calls"] or 0))


_RUN = "calls of the run"
_REPORTING = "complete calls that report them"
_REPORTING_INPUT = "complete calls that report input tokens"
_READINGS = "all readings, failed ones included"
_CENSORED = (
    "count of sessions that are not lost and have a call in flight or yet to be sent when the run was cut or stopped, or "
    "when the process that played them was lost"
)
_WITHOUT_RESULT = (
    "planned_sessions − sessions with a call that the run tells of, + those of them that are neither lost nor censored and "
    "of whose tree a call is missing; 0 if missing_calls is 0"
)
_WITHOUT_READING = (
    "longest time of one engine without a successful reading, from the first one tried to the later of the last one tried "
    "and the end of the run"
)

# fmt: off
RUN_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("planned_calls", "Calls planned", "calls",
     "count, from the run's header, without those of trees in store that no lane took", "the plan", _planned("calls")),
    ("unmeasured_calls", "Calls not measured", "calls", "count of calls of the warm-up, and of calls that primed prompts",
     "all calls; other numbers count them only where their population says so",
     _unmeasured("call")),
    ("sent_calls", "Calls sent", "calls", "count of calls with a sent time", _RUN, _count(IS_SENT)),
    ("late_calls", "Calls sent late", "calls",
     "count of calls whose client_lateness_ms is above the run's --max-lateness, 50 ms if it named none",
     "sent calls", _late_calls),
    ("complete_calls", "Calls complete", "calls", "count of sent calls that ended without an error", _RUN,
     _count(IS_COMPLETE)),
    ("refused_calls", "Calls refused", "calls", "count of calls with status 429, 503 or 529", _RUN,
     _count(pl.col("error") == "refused")),
    ("overload_calls", "Calls ended by overload", "calls",
     "refused_calls, and calls whose stream ended in an error of code 429, 503 or 529 or with the word overload",
     _RUN, _count(_IS_OVERLOAD)),
    ("stopped_calls", "Calls stopped", "calls", "count of calls in flight when the replay was stopped", _RUN,
     _count(IS_STOPPED)),
    ("failed_calls", "Calls failed otherwise", "calls", "count of calls with any other error than a refusal or a stop",
     _RUN, _count(IS_FAILED & ~IS_STOPPED & (pl.col("error") != "refused"))),
    ("malformed_calls", "Calls with an answer of no known form", "calls",
     "count of calls of whose answer nothing could be read", _RUN, _count(pl.col("error") == "malformed")),
    ("unparsed_events", "Events that could not be read", "events", "sum over calls", "sent calls",
     lambda facts: int(kept(facts.calls, IS_SENT, pl.col("unparsed_events").sum()).item())),
    ("unsent_calls", "Calls not sent", "calls", "count of calls with a reason for not being sent", _RUN,
     _count(pl.col("unsent").is_not_null())),
    ("missing_calls", "Calls without a result", "calls", "planned_calls − calls of the run", "the plan",
     _missing_calls),
    ("planned_sessions", "Sessions planned", "sessions", "count, as planned_calls", "the plan", _planned("sessions")),
    ("unmeasured_sessions", "Sessions not measured", "sessions", "count of sessions with a call in the warm-up",
     "all sessions", _unmeasured("session")),
    ("censored_sessions", "Sessions cut by the end of the run", "sessions",
     _CENSORED, "sessions of the run", _count(_IS_CENSORED & ~IS_LOST, "sessions")),
    ("missing_sessions", "Sessions without a result", "sessions", _WITHOUT_RESULT, "the plan", _missing_sessions),
    ("complete_sessions", "Sessions complete", "sessions",
     "count of sessions of which every planned call is complete", "sessions of the run",
     _count(IS_PLAYED, "sessions")),
    ("lost_sessions", "Sessions lost", "sessions",
     "count of sessions with a refused or failed call that was not auxiliary, or with calls not sent because of one",
     "sessions of the run", _count(IS_LOST, "sessions")),
    ("planned_trees", "Trees planned", "trees", "count, as planned_calls", "the plan", _planned("trees")),
    ("unmeasured_trees", "Trees not measured", "trees", "count of trees with a call in the warm-up", "all trees",
     _unmeasured("tree")),
    ("complete_trees", "Trees complete", "trees", "count of trees of which every planned call is complete",
     "trees of the run", _count(IS_PLAYED, "trees")),
    ("duration_s", "Duration of the run", "s",
     "end of the run; the last sent or end of a call if the run was cut", "the run", duration_s),
    ("input_tokens", "Prompt tokens reported", "tokens", "sum of reported input tokens, cached ones included",
     _REPORTING, _total("usage_input_tokens")),
    ("output_tokens", "Output tokens reported", "tokens", "sum of reported output tokens", _REPORTING,
     _total("usage_output_tokens")),
    ("output_tokens_per_s", "Output of the run", "tokens/s",
     "output_tokens / duration_s, from the first measured call due if there was a warm-up", _REPORTING,
     lambda facts: ratio(_total("usage_output_tokens")(facts), measured_s(facts))),
    ("usage_ratio", "Calls that report their prompt tokens", "",
     "complete calls that report input tokens / complete calls", "complete calls",
     _usage_ratio("usage_input_tokens")),
    ("cache_usage_ratio", "Calls that report their cached tokens", "",
     "complete calls that report cached tokens / complete calls", "complete calls",
     _usage_ratio("usage_cache_read_tokens")),
    ("contradicting_usage_calls", "Calls whose usage contradicts itself", "calls",
     "count of calls that report more cached than input tokens, or more reasoning than output tokens",
     "complete calls", _contradicting_usage_calls),
    ("prompt_size_ratio", "Prompt tokens, reported over plan", "",
     "sum of reported input tokens / sum of planned prompt tokens", _REPORTING_INPUT,
     _size_ratio("usage_input_tokens", "prompt_tokens")),
    ("prompt_size_error_ratio", "Prompt size off plan, median call", "",
     "median of |reported input tokens / planned prompt tokens − 1|", _REPORTING_INPUT, _size_error_ratio),
    ("output_size_ratio", "Output tokens, reported over plan", "",
     "sum of reported output tokens / sum of planned output tokens",
     "complete calls that report output tokens", _size_ratio("usage_output_tokens", "output_tokens")),
    ("loop_lag_p99_ms", "Event loop lag of the client, p99", "ms",
     "99th percentile of how late the event loop woke a timer, from the run's end record",
     "samples during the run", _loop_lag_ms),
    ("cpu_ratio", "CPU of the client", "", "CPU time of the replaying process / duration of the run",
     "the run", _cpu_ratio),
    ("scrapes", "Readings of the engine's metrics", "readings", "count", _READINGS,
     lambda facts: facts.scrapes.height),
    ("failed_scrapes", "Failed readings", "readings", "count", "readings with an error",
     lambda facts: facts.scrapes.filter(pl.col("error").is_not_null()).height),
    ("longest_scrape_gap_s", "Longest time without a reading", "s",
     _WITHOUT_READING, _READINGS, _longest_scrape_gap_s),
    ("median_scrape_gap_s", "Usual time between readings", "s",
     "median time between two readings of one engine", _READINGS, _median_scrape_gap_s),
)

RUN_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("by_class", "Calls by class", "calls, ms, tokens",
     "count, median ttft_service_ms, and sums of reported tokens per class of call",
     "calls of the run; tokens over complete calls", _by_class),
    ("errors_by_kind", "Errors and refusals", "calls",
     "count, distinct sessions, median of the wait asked for, first text, per kind, status and whether it was overload",
     "calls with an error", _errors_by_kind),
    ("unsent_by_reason", "Calls not sent", "calls", "count and distinct sessions per reason",
     "calls that were not sent", _unsent_by_reason),
)
# fmt: on
