"""Pure: the report of a run as a document."""

from reports.document import QUANTILES, Document, Section
from reports.figures.timeline import timeline
from reports.sections.admission import admission_section
from reports.sections.cache import cache_section
from reports.sections.calls import calls_section
from reports.sections.findings import findings_section
from reports.sections.headlines import headlines
from reports.sections.identities import identities_section
from reports.sections.latency import kinds_section, tokens_section, ttft_section
from reports.sections.load import load_section
from reports.sections.run import run_section
from reports.sections.schedule import schedule_section
from reports.sections.sessions import sessions_section
from reports.summary import Report

SECTIONS = (
    findings_section,
    run_section,
    calls_section,
    admission_section,
    identities_section,
    ttft_section,
    tokens_section,
    kinds_section,
    sessions_section,
    cache_section,
    load_section,
    schedule_section,
    lambda report: Section(id="timelines", title="Sessions over time", blocks=(timeline(report),)),
)
"""Sections in order; one that has nothing to say is None."""


def document_of_run(report: Report) -> Document:
    """Everything to be said about the run."""
    sections = (make(report) for make in SECTIONS)
    return Document(
        kind="aitrace report",
        title=f"{report.facts.header.model} – {report.facts.header.trace}",
        verdict=report.verdict,
        is_fine=report.is_fine,
        doubts=report.doubts,
        headlines=headlines(report),
        sections=tuple(section for section in sections if section is not None),
        footer=f"{QUANTILES} Intervals are 95 % percentile intervals from 500 resamplings of whole sessions. Every number "
        "is defined in docs/metrics.md.",
    )
