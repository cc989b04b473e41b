"""Pure: whether the prefix survives the gap before a call, in sentences."""

from aitrace.quantiles import MIN_CLUSTERS, min_count
from reports.cache.metrics import GAP_EDGES_S
from reports.metric import Row
from reports.summary import Report
from reports.words import counted, text_from_ratio, text_from_seconds

_MIN_CALLS = min_count(0.9)
"""Calls that a finding rests on at least; they are of at least `MIN_CLUSTERS` sessions."""


def gap_finding(report: Report) -> str | None:
    """The hit rate after the longest gaps that enough calls follow; None if too few do or report cached tokens."""
    known = [
        row
        for row in report.answers.tables["cache_after_gap"]
        if _is_enough(row) and _ratio(row, "reported") is not None
    ]
    if not known:
        return None
    every, longest = known[0], known[-1]
    gap_s = float(longest["gap_from_s"] or 0)
    n = f"n = {counted(int(longest['calls'] or 0), 'call')} of {longest['sessions']} sessions"
    finding = (
        f"After {f'gaps of {text_from_seconds(gap_s)} and more' if gap_s else 'gaps of any length'}, "
        f"{text_from_ratio(_ratio(longest, 'reported'))} of prompt tokens came from the cache{_possible(longest)} ({n})"
    )
    return (
        f"{finding}; after all gaps {text_from_ratio(_ratio(every, 'reported'))}{_possible(every)}."
        if gap_s
        else f"{finding}."
    )


def gap_scale(report: Report) -> str | None:
    """What the gaps as played stand for; None where they are as recorded."""
    header = report.facts.header
    is_capped = bool(header.options.get("gap_caps_ns"))
    if header.time_scale == 1:
        return "Gaps are shown as played; caps cut longer ones short." if is_capped else None
    if header.time_scale == 0:
        return "The time scale was 0: no gap took any time, so this run cannot tell what one costs."
    recorded_s = GAP_EDGES_S[-1]
    return (
        f"Gaps are shown as played, × {header.time_scale:g}: {text_from_seconds(recorded_s * header.time_scale)} here "
        f"stands for {text_from_seconds(recorded_s)} in the recording"
        f"{', or for more where a cap cut the gap short' if is_capped else ''}."
    )


def _possible(row: Row) -> str:
    bound = _ratio(row, "bound")
    return "" if bound is None else f", of a possible {text_from_ratio(bound)}"


def _is_enough(row: Row) -> bool:
    return int(row["calls"] or 0) >= _MIN_CALLS and int(row["sessions"] or 0) >= MIN_CLUSTERS


def _ratio(row: Row, of: str) -> float | None:
    value = row[f"{of}_ratio"]
    return None if value is None else float(value)
