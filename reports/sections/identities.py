"""Pure: sessions whose ids could not be trusted, in a table."""

from reports.answers import Answers
from reports.document import Section, Table
from reports.metrics import METRICS
from reports.sections.cells import rows_table
from reports.summary import Report


def identities_section(report: Report) -> Section | None:
    """Sessions with faulty ids beside honest ones; None if there are none."""
    table = identities_table(report.answers)
    return (
        Section(id="identities", title="Ids that could not be trusted", blocks=(table,))
        if table.rows
        else None
    )


def identities_table(answers: Answers) -> Table:
    """Sessions whose ids were faulty beside honest ones; without rows if there are none."""
    return rows_table(
        answers.tables["by_identity_fault"],
        {
            "ids": "ids",
            "sessions": "sessions",
            "lost_sessions": "lost",
            "calls": "calls",
            "refused_calls": "refused",
            "refused_ratio": "share refused",
            "reported_ratio": "prompt tokens cached",
            "bound_ratio": "unlimited cache",
            "cache_calls": "of calls",
            "ttft_service_p50_ms": "TTFT from sent, p50, ms",
            "ttft_service_p95_ms": "p95, ms",
            "ttft_calls": "n",
        },
        f"{METRICS['by_identity_fault'].population}. A call is refused if one of its tries was.",
    )
