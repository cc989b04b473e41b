"""Pure: a recorded trace judged, and its report as JSON; docs/report-trace.md describes the shape."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aitrace.doubts import Doubt, is_fine, verdict_line
from aitrace.schema import Trace
from reports.recorded.answers import Answers, answers_from_recorded
from reports.recorded.doubts import find_doubts
from reports.recorded.facts import recorded_from_trace
from reports.recorded.prices import Prices

REPORT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """A trace judged."""

    name: str
    """Name of its file."""
    answers: Answers
    """All that was computed."""
    doubts: tuple[Doubt, ...]
    """Reasons to distrust it, those that weigh first."""
    prices: Prices | None
    """What money was counted by; None without prices."""

    @property
    def trace(self) -> Trace:
        return self.answers.recorded.trace

    @property
    def is_fine(self) -> bool:
        return is_fine(self.doubts)

    @property
    def verdict(self) -> str:
        return verdict_line(self.doubts)


def report_from_trace(trace: Trace, name: str, prices: Prices | None = None) -> TraceReport:
    """Compute and judge."""
    answers = answers_from_recorded(recorded_from_trace(trace), prices)
    return TraceReport(name=name, answers=answers, doubts=find_doubts(answers), prices=prices)


def json_from_trace_report(report: TraceReport) -> dict[str, Any]:
    """The report as JSON values."""
    answers = report.answers
    header = report.trace.header
    names = (
        "producer", "source", "capture", "attribution", "privacy", "unit", "block_size", "block_scope", "clock_scope",
        "clock_resolution_ns", "clock_unix_ns",
    )  # fmt: skip
    return {
        "version": REPORT_VERSION,
        "kind": "trace",
        "verdict": {
            "fine": report.is_fine,
            "line": report.verdict,
            "doubts": [asdict(doubt) for doubt in report.doubts],
        },
        "trace": {
            "name": report.name,
            **{name: getattr(header, name) for name in names},
            "normalised": list(header.normalised),
            "unknown": list(header.unknown),
            "has_footer": report.trace.footer is not None,
        },
        "prices": None if report.prices is None else _plain(report.prices.by_model),
        "unpriced_calls": None if answers.money is None else answers.money.unpriced,
        "numbers": answers.numbers,
        "tables": answers.tables,
    }


def _plain(prices: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {model: dict(table) for model, table in prices.items()}
