"""Pure: how well the schedule was kept: gaps and arrivals as planned and as played, and what caps cut off.

Gaps are compared where both ends are the client's own: calls that waited for nothing but the end of one call of their
own session. The gap as played is that of `reports/gaps.py`.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from aitrace.columns import TRIGGERS, call_columns
from aitrace.schema import Trace
from aitrace.units import NS_PER_MS, NS_PER_S
from reports.gaps import first_sent, gaps_as_played
from reports.measures.call_metrics import sample
from reports.metric import Metric, Number, Row, Sample, defined, ratio
from reports.sessions import IS_SENT
from reports.stats import Ints, quantile, shown_quantile
from reports.tables import Facts, kept, once_per_run

_OF_GAPS = ("index", "call", "session", "instance", "gap_ns", "gap_cause")
_OF_STARTS = ("instance", "root", "session", "turn_index", "planned_ns")
_ROUNDING_NS = 1
_CAUSES = ("tool", "user", "harness", "backoff", "unknown")


@once_per_run
def played_gaps(facts: Facts) -> pl.DataFrame:
    """Measured calls that waited for the end of one call of their session, and for nothing else: the gap before each as
    recorded, planned and played, ns. `recorded_gap_ns` is not scaled.
    """
    # Calls of an absolute schedule wait for nothing.
    is_absolute = facts.header.options.get("schedule") == "absolute"
    waits = None if is_absolute else _waits(facts.trace)
    is_asked = IS_SENT if waits is not None else pl.lit(value=False)
    sent = kept(facts.calls, is_asked, *_OF_GAPS)
    places = sent["call"].to_numpy()
    calls = sent.with_columns(
        pl.Series("waited_for", [] if waits is None else waits.call[places], dtype=pl.Int64),
        pl.Series("recorded_gap_ns", [] if waits is None else waits.gap_ns[places], dtype=pl.Int64),
    )
    timed = kept(gaps_as_played(facts), pl.col("is_timed"), "index", "played_gap_ns")
    return (
        calls.filter(pl.col("waited_for") >= 0)
        .join(timed, on="index", maintain_order="left")
        .drop_nulls("gap_ns")
        .drop("index", "waited_for")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """Of each call of a trace, the one call whose end it waits for."""

    call: Ints
    """That call, of the same session; −1 if it waits for another session, another moment, several calls or none."""
    gap_ns: Ints
    """The recorded gap after it, ns; 0 if that is not known, or below it."""


def _waits(trace: Trace | None) -> _Waits | None:
    if trace is None:
        return None
    columns = call_columns(trace)
    first, count = columns.after_first[:-1], np.diff(columns.after_first)
    # A call that waits for nothing has no place of its own; any other one does for it, since it is passed over.
    place = np.minimum(first, max(0, columns.after_call.size - 1))
    if not columns.after_call.size:
        return _Waits(call=np.full(first.size, -1), gap_ns=np.zeros(first.size, dtype=np.int64))
    waited_for = columns.after_call[place]
    is_lone = (
        (count == 1)
        & (columns.after_trigger[place] == TRIGGERS.index("completion"))
        & (columns.session[waited_for] == columns.session)
    )
    return _Waits(
        call=np.where(is_lone, waited_for, -1),
        gap_ns=np.where(is_lone, columns.after_gap_ns[place].clip(min=0), 0),
    )


def _error_ms() -> pl.Expr:
    return (pl.col("played_gap_ns") - pl.col("gap_ns")) / NS_PER_MS


def _is_capped(facts: Facts) -> pl.Expr:
    return pl.col("gap_ns") + _ROUNDING_NS < pl.col("recorded_gap_ns") * facts.header.time_scale


def _capped(facts: Facts) -> int | None:
    return None if facts.trace is None else played_gaps(facts).filter(_is_capped(facts)).height


def _cut_s(facts: Facts) -> float | None:
    if facts.trace is None:
        return None
    capped = played_gaps(facts).filter(_is_capped(facts))
    scaled_ns = float(capped["recorded_gap_ns"].sum()) * facts.header.time_scale
    return (scaled_ns - float(capped["gap_ns"].sum())) / NS_PER_S


def _by_cause(facts: Facts) -> list[Row]:
    gaps = played_gaps(facts)
    rows = [_row(facts, cause, gaps.filter(pl.col("gap_cause") == cause)) for cause in _CAUSES]
    return [row for row in rows if row["calls"]]


def _row(facts: Facts, cause: str, gaps: pl.DataFrame) -> Row:
    errors_ms = gaps.select(_error_ms().alias("ms"))["ms"].to_numpy()
    scaled_s = float(gaps["recorded_gap_ns"].sum()) * facts.header.time_scale / NS_PER_S
    return {
        "cause": cause,
        "calls": gaps.height,
        "recorded_s": scaled_s,
        "planned_s": float(gaps["gap_ns"].sum()) / NS_PER_S,
        "played_s": float(gaps["played_gap_ns"].sum()) / NS_PER_S,
        "capped_calls": gaps.filter(_is_capped(facts)).height,
        "error_p50_ms": quantile(errors_ms, 0.5),
        "error_p95_ms": shown_quantile(errors_ms, 0.95),
        "error_max_ms": quantile(errors_ms, 1.0),
    }


@once_per_run
def tree_starts(facts: Facts) -> pl.DataFrame:
    """The first call of each measured tree: when it was planned and when its first try was sent, ns; empty unless trees
    start by the clock.
    """
    first = (
        facts.calls.select("index", *_OF_STARTS)
        .sort("index")
        .unique(["instance", "root"], keep="first", maintain_order=True)
    )
    starts = first.join(first_sent(facts), on="index", how="inner", maintain_order="left")
    planned = starts.filter((pl.col("turn_index") == 0) & (pl.col("session") == pl.col("root")))
    known = planned.drop_nulls(["planned_ns"]).sort("planned_ns")
    return known if facts.header.open_loop else known.clear()


def _start_error(facts: Facts) -> Sample:
    return sample(tree_starts(facts), (pl.col("first_sent_ns") - pl.col("planned_ns")) / NS_PER_MS)


def _gap_error(facts: Facts) -> Sample:
    return sample(played_gaps(facts), _error_ms())


def _behind_s(facts: Facts) -> Sample:
    return sample(facts.calls.lazy().filter(IS_SENT), (pl.col("due_ns") - pl.col("planned_ns")) / NS_PER_S)


_WAITED = "sent calls that waited for the end of one call of their own session and for nothing else"
_GAPS = (
    "count; sums of recorded gaps × time scale, of planned and of played gaps; gaps that a cap cut; p50, p95 and largest "
    "gap_error_ms, per cause"
)

# fmt: off
FIDELITY_DISTRIBUTIONS: tuple[Metric[Sample], ...] = defined(
    ("gap_error_ms", "Gap, played − planned", "ms",
     "gap as played (first try sent − end of the call waited for) − gap as planned", _WAITED, _gap_error),
    ("tree_start_error_ms", "Start of a tree, played − planned", "ms", "first try sent − planned, of its first call",
     "trees of a run whose trees start by the clock", _start_error),
    ("behind_schedule_s", "Behind the recorded schedule", "s",
     "due − planned: how much later a call was due than if every answer had taken its recorded time",
     "sent calls whose planned time is known", _behind_s),
)

FIDELITY_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("compared_gaps", "Gaps compared", "gaps", "count", _WAITED,
     lambda facts: None if facts.trace is None else played_gaps(facts).height),
    ("capped_gaps", "Gaps cut by a cap", "gaps", "count of gaps planned shorter than recorded × time scale", _WAITED, _capped),
    ("capped_gaps_ratio", "Share of gaps cut by a cap", "", "capped_gaps / compared_gaps", _WAITED,
     lambda facts: ratio(_capped(facts), played_gaps(facts).height)),
    ("capped_gaps_s", "Time that caps cut off gaps", "s", "sum of recorded gap × time scale − planned gap",
     f"{_WAITED}, and whose gap was cut", _cut_s),
)

FIDELITY_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("gaps_by_cause", "Gaps as recorded, planned and played", "calls, s, ms",
     _GAPS, _WAITED, _by_cause),
)
# fmt: on
