"""Pure: the steady part of a run: the fullest time in which about the same number of sessions was active.

The rule: for each number m of active sessions that the run had, look at the times in which that number stayed within
10 % of m, at least within one session, and never at 0. The one of all these with the most session time (active sessions
× time) is the steady window, m its number of sessions: the long tail in which a closed loop's last sessions end has less
of it than the loop had. A session is active from its first due call to its last end, gaps included. Of more than 200
different numbers, 200 are tried, evenly spread over time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from aitrace.units import NS_PER_MS, NS_PER_S
from reports.cache.metrics import cache_population, reported_ratio
from reports.measures.admission import measured_tries, refused_tries_ratio
from reports.measures.run_metrics import duration_s
from reports.metric import Metric, Number, defined, ratio
from reports.series import Line, level_over_time
from reports.sessions import IS_COMPLETE
from reports.stats import Floats, shown_quantile
from reports.tables import Facts, kept, once_per_run

BAND_RATIO = 0.1
"""How far the number of active sessions may be from the window's."""
_LEVELS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWindow:
    """A time of about the same load."""

    from_s: float
    """Its begin, s from the start of the run."""
    until_s: float
    """Its end."""
    sessions: int
    """Number of active sessions that all numbers in it are near."""


def steady_window(active: Line) -> SteadyWindow | None:
    """The steady window of a number of active sessions over time; None if there never was one."""
    lengths_s = np.diff(active.at_s)
    values = active.values[:-1]
    session_s = np.concatenate(([0.0], (values * lengths_s).cumsum()))
    best, most_s = None, 0.0
    for level in _levels(values, lengths_s):
        band = max(1.0, BAND_RATIO * level)
        inside = (values >= max(1.0, level - band)) & (values <= level + band)
        begin, end = _fullest_run(inside, session_s)
        if session_s[end] - session_s[begin] > most_s:
            most_s = session_s[end] - session_s[begin]
            best = SteadyWindow(
                from_s=float(active.at_s[begin]), until_s=float(active.at_s[end]), sessions=level
            )
    return best


def _levels(values: Floats, lengths_s: Floats) -> list[int]:
    """Numbers to try, those first that held for longest."""
    levels, place = np.unique(values, return_inverse=True)
    held_s = np.bincount(place, weights=lengths_s, minlength=levels.size)
    if levels.size > _LEVELS:
        shares = np.linspace(0, held_s.sum(), _LEVELS)
        chosen = np.unique(np.searchsorted(held_s.cumsum(), shares).clip(max=levels.size - 1))
        levels, held_s = levels[chosen], held_s[chosen]
    order = np.argsort(-held_s, kind="stable")
    return [int(level) for level in levels[order] if level >= 1]


def _fullest_run(inside: np.ndarray[tuple[int], np.dtype[np.bool_]], session_s: Floats) -> tuple[int, int]:
    """Begin and end of the steps that are inside one after another and have the most session time.

    Args:
        inside: Of each step; at least one is.
        session_s: Session time until the begin of each step, and until the end of the last one.
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([False], inside, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    fullest = int(np.argmax(session_s[ends] - session_s[begins]))
    return int(begins[fullest]), int(ends[fullest])


@once_per_run
def window_of(facts: Facts) -> SteadyWindow | None:
    """The steady window of a run, the warm-up included in the search."""
    begun = facts.every_session.drop_nulls(["first_due_ns", "last_end_ns"])
    if begun.is_empty():
        return None
    starts_ns, ends_ns = begun["first_due_ns"].to_numpy(), begun["last_end_ns"].to_numpy()
    return steady_window(level_over_time(starts_ns, ends_ns, name="sessions active"))


def _of_window(field: str) -> Callable[[Facts], Number]:
    def compute(facts: Facts) -> Number:
        window = window_of(facts)
        return None if window is None else getattr(window, field)

    return compute


@once_per_run
def _calls_in(facts: Facts) -> pl.DataFrame:
    window = window_of(facts)
    is_in = pl.lit(value=False) if window is None else IS_COMPLETE & _is_inside(window)
    return kept(facts.calls, is_in, "sent_ns", "first_token_ns")


def _is_inside(window: SteadyWindow) -> pl.Expr:
    """Whether a call or a try was sent in the window."""
    sent_s = pl.col("sent_ns") / NS_PER_S
    return (sent_s >= window.from_s) & (sent_s < window.until_s)


def _cached_ratio(facts: Facts) -> float | None:
    window = window_of(facts)
    return None if window is None else reported_ratio(cache_population(facts).filter(_is_inside(window)))


def _refused_ratio(facts: Facts) -> float | None:
    window = window_of(facts)
    return None if window is None else refused_tries_ratio(measured_tries(facts).filter(_is_inside(window)))


def _share(facts: Facts) -> float | None:
    window = window_of(facts)
    return None if window is None else ratio(window.until_s - window.from_s, duration_s(facts))


def _ttft_ms(facts: Facts, q: float) -> float | None:
    inside = _calls_in(facts)
    ttft_ms = (inside["first_token_ns"] - inside["sent_ns"]).drop_nulls().to_numpy() / NS_PER_MS
    return shown_quantile(ttft_ms, q)


_WINDOW = (
    "the time with most session time among those in which the number of active sessions stays within 10 % of one number, "
    "at least within 1"
)

# fmt: off
STEADY_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("steady_from_s", "Steady window, begin", "s", f"begin of {_WINDOW}", "sessions with an ended call",
     _of_window("from_s")),
    ("steady_until_s", "Steady window, end", "s", "end of the same", "sessions with an ended call",
     _of_window("until_s")),
    ("steady_sessions", "Sessions active in the steady window", "sessions", "the number that it stays near",
     "sessions with an ended call", _of_window("sessions")),
    ("steady_ratio", "Steady part of the run", "", "(steady_until_s − steady_from_s) / duration_s", "the run", _share),
    ("steady_calls", "Calls complete, sent in the steady window", "calls", "count", "complete calls",
     lambda facts: _calls_in(facts).height),
    ("steady_ttft_service_p50_ms", "TTFT, service, in the steady window, p50", "ms", "median of first_token − sent",
     "complete calls sent in the steady window", lambda facts: _ttft_ms(facts, 0.5)),
    ("steady_ttft_service_p95_ms", "TTFT, service, in the steady window, p95", "ms",
     "95th percentile of first_token − sent", "complete calls sent in the steady window",
     lambda facts: _ttft_ms(facts, 0.95)),
    ("steady_cache_reported_ratio", "Hit rate, reported, in the steady window", "",
     "sum of reported cached tokens / sum of input tokens", "as cache_calls, sent in the steady window", _cached_ratio),
    ("steady_refused_tries_ratio", "Share of tries refused in the steady window", "", "tries refused / tries",
     "tries of measured calls, sent in the steady window", _refused_ratio),
)
# fmt: on
