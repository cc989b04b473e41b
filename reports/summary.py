"""Pure: a report as JSON; docs/report.md describes the shape."""

from dataclasses import asdict, dataclass
from typing import Any

from aitrace.doubts import Doubt, find_doubts, is_fine, verdict_line, weighty_first
from aitrace.results import RunEnd
from reports.answers import Answers, Spread, answers_from_facts
from reports.evidence import evidence_of
from reports.metrics import METRICS
from reports.reference_notes import reference_notes
from reports.stats import Interval
from reports.tables import Facts

REPORT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run judged."""

    facts: Facts
    """What it was computed from."""
    answers: Answers
    """All metrics."""
    doubts: tuple[Doubt, ...]
    """Reasons to distrust it, those that weigh first."""

    @property
    def is_fine(self) -> bool:
        return is_fine(self.doubts)

    @property
    def verdict(self) -> str:
        return verdict_line(self.doubts)


def report_from_facts(facts: Facts) -> Report:
    """Compute and judge."""
    answers = answers_from_facts(facts)
    doubts = (*find_doubts(evidence_of(facts, answers)), *reference_notes(facts))
    return Report(facts=facts, answers=answers, doubts=weighty_first(doubts))


def json_from_report(report: Report) -> dict[str, Any]:
    """The report as JSON values; times over the run are left to the page."""
    facts, answers = report.facts, report.answers
    header, end = facts.header, facts.end
    return {
        "version": REPORT_VERSION,
        "kind": "run",
        "verdict": {
            "fine": report.is_fine,
            "line": report.verdict,
            "doubts": [asdict(doubt) for doubt in report.doubts],
        },
        "run": asdict(header) | {"end": _json_from_end(end), "lines_lost": facts.lines_lost},
        "trace": _json_from_trace(facts),
        "distributions": {
            name: {"unit": METRICS[name].unit} | _json_from_spread(spread)
            for name, spread in answers.spreads.items()
        },
        "numbers": answers.numbers,
        "tables": answers.tables,
    }


def _json_from_end(end: RunEnd | None) -> dict[str, Any] | None:
    return None if end is None else asdict(end) | {"workers": [asdict(worker) for worker in end.workers]}


def _json_from_spread(spread: Spread) -> dict[str, Any]:
    return {
        "n": spread.count,
        "sessions": spread.sessions,
        **spread.quantiles,
        "max": spread.largest,
        "p50_interval": _json_from_interval(spread.p50_interval),
        "p95_interval": _json_from_interval(spread.p95_interval),
    }


def _json_from_interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _json_from_trace(facts: Facts) -> dict[str, Any] | None:
    if facts.trace is None:
        return None
    header = facts.trace.header
    return {
        "source": header.source,
        "attribution": header.attribution,
        "unit": header.unit,
        "block_size": header.block_size,
        "block_scope": header.block_scope,
        "clock_scope": header.clock_scope,
        "unknown": list(header.unknown),
    }
