"""Pure: what stands out in a run, in sentences above all sections."""

from collections.abc import Iterator

from reports.answers import Answers
from reports.cache.text import curve_finding, losses_finding
from reports.document import Section, Words
from reports.sections.sessions import slowdown_sentence
from reports.summary import Report
from reports.words import text_from_ratio, text_from_seconds

NOTED_RATIO = 0.01
"""Share of the sessions' time in backoff, or of the tries refused, from which it is told."""


def findings_section(report: Report) -> Section | None:
    """The sentences; None if there are none."""
    blocks = tuple(Words(text=text) for text in findings(report))
    return Section(id="findings", title="What stands out", blocks=blocks) if blocks else None


def findings(report: Report) -> tuple[str, ...]:
    """Why prompts were not cached and what size of a cache that is, what refusals cost, how long sessions took."""
    found = (
        losses_finding(report),
        curve_finding(report),
        *_refusals(report.answers),
        slowdown_sentence(report.answers) if report.answers.spreads["session_slowdown_ratio"].count else None,
    )
    return tuple(sentence for sentence in found if sentence)


def _refusals(answers: Answers) -> Iterator[str]:
    numbers = answers.numbers
    refused, tries = numbers["refused_tries"] or 0, numbers["tries"] or 0
    if not tries or refused / tries < NOTED_RATIO:
        return
    sentence = f"{refused:,} of {tries:,} tries were refused ({text_from_ratio(refused / tries)})"
    shares = {str(row["part"]): row["time_ratio"] for row in answers.tables["session_time_by_part"]}
    share = shares.get("backoff")
    backoff = (
        f"; sessions waited {text_from_seconds(numbers['backoff_s'])} in backoff"
        if numbers["backoff_s"]
        else ""
    )
    if backoff and share is not None:
        backoff += f", {text_from_ratio(float(share))} of the time of those that were complete"
    yield f"{sentence}{backoff}."
