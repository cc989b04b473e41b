"""Pure: admission over the time of a run: outcomes of tries in bins of time, and the sessions that were lost."""

import numpy as np
import polars as pl

from aitrace.outcomes import REFUSED
from aitrace.units import NS_PER_S
from reports.measures.run_metrics import IS_LOST, duration_s
from reports.metric import Metric, Row, defined
from reports.sessions import IS_COMPLETE, IS_FATAL
from reports.stats import Ints
from reports.tables import Facts, kept

MAX_BINS = 60
"""Bins of time at most."""
BIN_WIDTHS_S = (
    *(step * 10.0**power for power in range(-3, 0) for step in (1, 2, 5)), 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
    *(60.0 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440)),
)  # fmt: skip
"""Widths of a bin: the smallest that gives no more than `MAX_BINS`."""
OUTCOME_GROUPS: dict[str, tuple[str, ...]] = {
    "complete": ("complete",),
    "refused": REFUSED,
    "timeout": ("timeout_headers", "timeout_first_token", "timeout_stream"),
    "stopped": ("stopped",),
}
"""Outcomes taken together in a bin; all others are `failed`."""
MAX_LOST_SESSIONS = 200
"""Lost sessions that are told one by one."""
_TREE = ("instance", "root")
_SESSION = (*_TREE, "session")
_TOLD = ("lost_by_session", "turn_index", "call_class", "outcome", "status", "tries", "lost_s")
"""What is told of the call that a session was lost for."""
_WAS_REFUSED = pl.col("outcome").is_in(REFUSED)


def bin_width_s(length_s: float) -> float:
    """Width of the bins of a run of this length."""
    fitting = (width for width in BIN_WIDTHS_S if width * MAX_BINS >= length_s)
    return next(fitting, length_s / MAX_BINS)


def _over_time(facts: Facts) -> list[Row]:
    """One row per bin of time, from the start of the run; empty ones too."""
    tries = kept(facts.tries, pl.col("sent_ns").is_not_null())
    if tries.is_empty():
        return []
    sent_s = tries["sent_ns"].to_numpy() / NS_PER_S
    length_s = max(duration_s(facts) or 0.0, float(sent_s.max()))
    width_s = bin_width_s(length_s)
    place = (sent_s // width_s).astype(np.int64)
    count = int(max(place.max() + 1, -(-length_s // width_s)))
    counts = {name: _counts(tries, where, place, count) for name, where in _columns().items()}
    return [
        {
            "from_s": bin_ * width_s,
            "to_s": (bin_ + 1) * width_s,
            **{name: int(of[bin_]) for name, of in counts.items()},
        }
        for bin_ in range(count)
    ]


def _counts(tries: pl.DataFrame, where: pl.Expr, place: Ints, count: int) -> Ints:
    inside = tries.select(where.fill_null(value=False).alias("inside"))["inside"].to_numpy()
    return np.bincount(place[inside], minlength=count).astype(np.int64)


def _columns() -> dict[str, pl.Expr]:
    """What is counted in each bin: tries by outcome, then how first calls of sessions and returning ones fared."""
    groups = {name: pl.col("outcome").is_in(outcomes) for name, outcomes in OUTCOME_GROUPS.items()}
    known = [outcome for outcomes in OUTCOME_GROUPS.values() for outcome in outcomes]
    first, again = pl.col("is_first_call"), pl.col("number") > 1
    return {
        "tries": pl.col("sent_ns").is_not_null(),
        **groups,
        "failed": ~pl.col("outcome").is_in(known),
        "tries_again": again,
        "first_tries": first,
        "first_refused": first & _WAS_REFUSED,
        "returning_tries": ~first,
        "returning_refused": ~first & _WAS_REFUSED,
    }


def _lost_sessions(facts: Facts) -> list[Row]:
    """The lost sessions, those first with which the most prefill was lost."""
    lost = facts.sessions.filter(IS_LOST).select(*_SESSION)
    calls = facts.calls.join(lost, on=list(_SESSION), how="semi")
    input_tokens = pl.coalesce("usage_input_tokens", "prompt_tokens")
    prefill = (input_tokens - pl.col("usage_cache_read_tokens").fill_null(0)).clip(lower_bound=0)
    sessions = calls.group_by(*_SESSION, maintain_order=True).agg(
        IS_COMPLETE.sum().cast(pl.Int64).alias("complete_calls"),
        pl.col("unsent").is_not_null().sum().cast(pl.Int64).alias("unsent_calls"),
        prefill.filter(IS_COMPLETE).sum().cast(pl.Int64).alias("lost_prefill_tokens"),
    )
    rows = sessions.join(
        _fatal_calls(facts, calls, _SESSION), on=list(_SESSION), how="left", maintain_order="left"
    )
    # A session may be lost for a call of another one of its tree; then it has no call of its own that failed.
    of_tree = _fatal_calls(facts, calls, _TREE).rename({name: f"tree_{name}" for name in _TOLD})
    rows = rows.join(of_tree, on=list(_TREE), how="left", maintain_order="left")
    is_own = pl.col("lost_by_session").is_not_null()
    ordered = rows.sort("lost_prefill_tokens", descending=True, maintain_order=True).head(MAX_LOST_SESSIONS)
    return ordered.select(
        *_SESSION,
        *(pl.when(is_own).then(name).otherwise(f"tree_{name}").alias(name) for name in _TOLD),
        *("complete_calls", "unsent_calls", "lost_prefill_tokens"),
    ).to_dicts()


def _fatal_calls(facts: Facts, calls: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """The call that each group was lost for: of those it cannot do without, the one that failed first."""
    last = kept(facts.tries, pl.col("is_last"), "index", "outcome", pl.col("number").alias("tries"))
    first = calls.filter(IS_FATAL).sort("end_ns", "index").unique(list(by), keep="first", maintain_order=True)
    return first.join(last, on="index", how="left", maintain_order="left").select(
        *by,
        pl.col("session").alias("lost_by_session"),
        *("turn_index", "call_class", "outcome", "status", "tries"),
        (pl.col("end_ns") / NS_PER_S).alias("lost_s"),
    )


_BINNED = (
    "tries by outcome (refused: as refused_tries; timeout: of any kind; failed: all others but stopped), tries that were "
    "not the call's first, and tries and refusals of first and of returning calls as in admission_by_kind, per bin of the "
    "time when they were sent"
)
_EACH_LOST = (
    "session, place, class, outcome, status, tries and end of the call that it was lost for: the first of its own that "
    "was refused or failed, else the first of its tree; calls complete and not sent, lost_prefill_tokens, per session"
)

# fmt: off
ADMISSION_TIME_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("tries_over_time", "Tries over the run", "tries",
     _BINNED, "tries that were sent, measured or not", _over_time),
    ("lost_sessions_by_session", "Lost sessions", "sessions",
     _EACH_LOST,
     f"lost sessions, the {MAX_LOST_SESSIONS} with the most lost_prefill_tokens", _lost_sessions),
)
# fmt: on
