"""I/O: made-up runs as what the writers of exports read, for tests."""

from collections.abc import Sequence
from typing import Any

from aitrace.results import CallResult, RunEnd, RunHeader, Scrape
from aitrace.testing import make_run_end, make_run_header
from reports.export.links import TraceLinks, links_from_lines
from reports.export.source import RunSource
from reports.testing import MadeUpRun


def make_source(calls: Sequence[CallResult] = (), **fields: Any) -> RunSource:
    """A run of these calls that ended; `header`, `end`, `scrapes` and `links` may be given."""
    header: RunHeader = fields.get("header", make_run_header(planned_calls=len(calls)))
    end: RunEnd | None = fields.get("end", make_run_end())
    scrapes: Sequence[Scrape] = fields.get("scrapes", ())
    links: TraceLinks | None = fields.get("links")
    return RunSource(
        header=header, end=end, calls=lambda: iter(calls), scrapes=lambda: iter(scrapes), links=links
    )


def source_of_run(run: MadeUpRun) -> RunSource:
    """A made-up run, with its trace."""
    links = links_from_lines([*run.trace.sessions, *run.trace.calls])
    return make_source(run.calls, header=run.header, end=run.end, scrapes=run.scrapes, links=links)
