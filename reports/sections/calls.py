"""Pure: what became of the planned calls: counts, errors, calls not sent, classes."""

from dataclasses import replace

from aitrace.outcomes import OUTCOME_WORDS, UNSENT_WORDS
from reports.answers import Answers
from reports.bucket_text import class_label
from reports.document import Block, Heading, Section, Table, Words
from reports.metric import Number, Row
from reports.metrics import METRICS
from reports.sections.cells import rows_table
from reports.summary import Report
from reports.words import NOT_KNOWN, text_from_value

_RARE_FATES = ("unmeasured", "stopped", "missing", "censored")
"""Rows that only a run which did not end by itself needs, or one with a warm-up."""


def calls_section(report: Report) -> Section:
    """Counts of calls, sessions and trees, errors by kind, calls that were not sent, and calls by class."""
    answers = report.answers
    errors, unsent = errors_table(answers), unsent_table(answers)
    blocks: list[Block] = [sizes_table(answers), Heading(text="Errors and refusals")]
    blocks.append(errors if errors.rows else Words(text="No call failed."))
    if unsent.rows:
        blocks += [Heading(text="Calls not sent"), unsent]
    blocks += [Heading(text="Calls by class"), classes_table(answers)]
    return Section(id="calls", title="Calls, sessions and refusals", blocks=tuple(blocks))


def sizes_table(answers: Answers) -> Table:
    """What became of the planned calls, sessions and trees."""
    groups = ("calls", "sessions", "trees")
    fates = {
        "planned": "planned",
        "unmeasured": "not measured",
        "complete": "complete",
        "refused": "refused",
        "failed": "failed otherwise",
        "stopped": "in flight when stopped or cut",
        "unsent": "not sent",
        "missing": "without a result",
        "lost": "lost sessions",
        "censored": "cut by the end of the run",
    }
    return Table(
        caption="A session is complete if all its calls are, and lost if one of them was refused or failed, or was not "
        "sent because of such a call. Of one without a result calls are missing: the run was killed, or lines of its "
        "files were lost.",
        columns=("", *groups),
        rows=tuple(
            (title, *(_count_text(answers.numbers, f"{fate}_{group}") for group in groups))
            for fate, title in fates.items()
            if fate not in _RARE_FATES or any(answers.numbers.get(f"{fate}_{group}") for group in groups)
        ),
    )


def _count_text(numbers: dict[str, Number], name: str) -> str:
    return text_from_value(numbers[name], "") if name in numbers else NOT_KNOWN


def unsent_table(answers: Answers) -> Table:
    """Calls that were not sent by reason; without rows if there are none."""
    return rows_table(
        [row | {"unsent": UNSENT_WORDS[str(row["unsent"])]} for row in answers.tables["unsent_by_reason"]],
        {"unsent": "reason", "calls": "calls", "sessions": "sessions"},
    )


def classes_table(answers: Answers) -> Table:
    """Calls by class."""
    return rows_table(
        [row | {"call_class": class_label(row)} for row in answers.tables["by_class"]],
        {
            "call_class": "class",
            "calls": "calls",
            "complete_calls": "complete",
            "ttft_service_p50_ms": f"{METRICS['ttft_service_ms'].title}, p50, ms",
            "input_tokens": "prompt tokens",
            "output_tokens": "output tokens",
        },
        f"{METRICS['by_class'].population}.",
    )


def errors_table(answers: Answers) -> Table:
    """Errors by kind and status."""
    table = rows_table(
        [
            row | {"error": OUTCOME_WORDS[str(row["error"])], "overload": "yes" if row["overload"] else "no"}
            for row in answers.tables["errors_by_kind"]
        ],
        {
            "error": "kind",
            "status": "status",
            "overload": "overload",
            "calls": "calls",
            "sessions": "sessions",
            "retry_after_s": "Retry-After, s",
            "example": "first text",
        },
    )
    return replace(table, has_prose=True)


def error_sentence(row: Row) -> str:
    """One row of the errors in a line."""
    status = "" if row["status"] is None else f" {row['status']}"
    overload = " (overload)" if row["overload"] and row["error"] != "refused" else ""
    wait = "" if row["retry_after_s"] is None else f", Retry-After {row['retry_after_s']:g} s"
    text = "" if row["example"] is None else f": {row['example']}"
    return f"{row['calls']:,} {OUTCOME_WORDS[str(row['error'])]}{status}{overload}, sessions: {row['sessions']:,}{wait}{text}"
