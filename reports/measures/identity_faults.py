"""Pure: sessions whose ids were faulty on purpose beside honest ones: what a stack makes hang on ids."""

import polars as pl

from aitrace.outcomes import REFUSED
from reports.cache.metrics import cache_population, rates
from reports.measures.admission import measured_tries
from reports.measures.call_metrics import between_ms, sample
from reports.measures.run_metrics import IS_LOST
from reports.metric import Metric, Row, defined, ratio
from reports.sessions import IS_SENT
from reports.stats import shown_quantile
from reports.tables import Facts

HONEST = "honest"
_SESSION = ["instance", "session"]


def _by_fault(facts: Facts) -> list[Row]:
    """Honest sessions first; empty if no ids were faulty."""
    faults = facts.calls["identity_fault"].drop_nulls().unique(maintain_order=True).to_list()
    return [_row(facts, fault) for fault in (None, *sorted(faults))] if faults else []


def _row(facts: Facts, fault: str | None) -> Row:
    calls = facts.calls.filter(pl.col("identity_fault").eq_missing(pl.lit(fault)))
    cached = rates(cache_population(facts).filter(pl.col("identity_fault").eq_missing(pl.lit(fault))))
    ttft = sample(calls.filter(IS_SENT), between_ms("sent_ns", "first_token_ns")).values
    of_fault = calls.select(_SESSION).unique()
    sessions = facts.sessions.join(of_fault, on=_SESSION, how="semi")
    tries = measured_tries(facts).join(of_fault, on=_SESSION, how="semi")
    refused = tries.filter(pl.col("outcome").is_in(REFUSED))["index"].n_unique()
    sent = tries["index"].n_unique()
    return {
        "ids": fault or HONEST,
        "sessions": sessions.height,
        "lost_sessions": sessions.filter(IS_LOST).height,
        "calls": sent,
        "refused_calls": refused,
        "refused_ratio": ratio(refused, sent),
        "cache_calls": cached["calls"],
        "reported_ratio": cached["reported_ratio"],
        "bound_ratio": cached["bound_ratio"],
        "ttft_calls": ttft.size,
        "ttft_service_p50_ms": shown_quantile(ttft, 0.5),
        "ttft_service_p95_ms": shown_quantile(ttft, 0.95),
    }


_FORMULA = (
    "sessions, lost ones, calls, those with a try refused and their share; reported and bound tokens over "
    "input tokens, as cache_by_gap; p50 and p95 of ttft_service_ms; per fault of the ids, `honest` without one"
)

# fmt: off
IDENTITY_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("by_identity_fault", "Sessions by their ids", "sessions, calls, ms", _FORMULA,
     "calls with a try that was sent; empty if no ids were faulty", _by_fault),
)
# fmt: on
