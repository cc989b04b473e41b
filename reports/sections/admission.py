"""Pure: who was let in, when, and what was lost with those who were not."""

from collections.abc import Callable

from aitrace.outcomes import OUTCOME_WORDS
from reports.answers import Answers
from reports.bucket_text import class_label, range_label
from reports.document import Block, Heading, Pairs, Section, Table
from reports.figures.admission_charts import tries_over_time
from reports.metric import Number, Row
from reports.metrics import METRICS
from reports.sections.cells import cell_text, rows_table, spread_table
from reports.summary import Report
from reports.words import NOT_KNOWN, gap_label, text_from_ratio, text_from_value

_TIMES = ("headers_ms", "headers_to_token_ms", "tries_per_call", "session_backoff_s")
_MAX_LOST_ROWS = 30
"""Lost sessions in the table of the page."""
_ADMISSION_KINDS = {"first": "first calls of a session", "returning": "returning calls"}


def admission_section(report: Report) -> Section:
    """First calls of sessions against returning ones, what refusals cost, and the tries by outcome, turn and gap."""
    answers = report.answers
    turns = _admission_rows(answers.tables["admission_by_turn"], "turn", lambda row: range_label(row, "turn"))
    gaps = _admission_rows(
        answers.tables["admission_by_gap"],
        "gap as played",
        lambda row: gap_label(row["gap_from_s"], row["gap_to_s"]),
    )
    blocks: list[Block] = [
        admission_table(answers),
        Pairs(pairs=_admission_facts(answers)),
        tries_over_time(report),
        spread_table(answers, _TIMES),
        Heading(text="Tries by outcome"),
        outcomes_table(answers),
        Heading(text="By turn"),
        turns,
    ]
    if gaps.rows:
        blocks += [Heading(text="Returning calls by the gap before"), gaps]
    lost = lost_table(answers)
    if lost.rows:
        blocks += [Heading(text="Lost sessions", id="lost-sessions"), lost]
    return Section(id="admission", title="Admission", blocks=tuple(blocks))


def admission_table(answers: Answers) -> Table:
    """First calls of sessions against returning ones."""
    return _admission_rows(
        answers.tables["admission_by_kind"], "", lambda row: _ADMISSION_KINDS[str(row["kind"])]
    )


def _admission_rows(rows: list[Row], head: str, label: Callable[[Row], str]) -> Table:
    return Table(
        caption="Refused: first tries with status 429, 503 or 529, or an overload error in the stream; 95 % intervals "
        "(Wilson). Headers: of tries with status 200.",
        columns=(
            head, "calls", "refused at first", "share", "95 % interval", "tries", "refused", "given up", "headers p50, ms",
        ),
        rows=tuple(
            (
                label(row),
                *(cell_text(row[key], key) for key in ("calls", "refused_calls", "refused_ratio")),
                " to ".join(cell_text(row[key], key) for key in ("refused_low_ratio", "refused_high_ratio")),
                *(
                    cell_text(row[key], key)
                    for key in ("tries", "refused_tries", "given_up_calls", "headers_p50_ms")
                ),
            )
            for row in rows
        ),
    )  # fmt: skip


def outcomes_table(answers: Answers) -> Table:
    """What became of each try."""
    rows = answers.tables["tries_by_outcome"]
    return rows_table(
        [row | {"outcome": OUTCOME_WORDS[str(row["outcome"])]} for row in rows],
        {
            "outcome": "outcome",
            "tries": "tries",
            "calls": "calls",
            "last_tries": "of them the last of the call",
        },
    )


def lost_table(answers: Answers) -> Table:
    """Which sessions were lost, at which of their turns, why, and what had been computed for them."""
    rows = answers.tables["lost_sessions_by_session"]
    lost = int(answers.numbers["lost_sessions"] or 0)
    shown = rows[:_MAX_LOST_ROWS]
    left_out = f" The {len(shown):,} of {lost:,} with the most prefill lost." if lost > len(shown) else ""
    counts = ("tries", "complete_calls", "unsent_calls", "lost_prefill_tokens")
    return Table(
        caption="Calls and prompt tokens computed in vain are those of the session; it may have been lost with another "
        f"session of its tree.{left_out}",
        columns=(
            "session", "lost at, s", "turn", "class", "why", "status", "tries", "calls complete", "not sent",
            "prefill tokens lost",
        ),
        rows=tuple(
            (
                f"{row['session']}, instance {row['instance']}",
                cell_text(row["lost_s"], "lost_s"),
                _turn_text(row),
                NOT_KNOWN if row["call_class"] is None else class_label(row),
                NOT_KNOWN if row["outcome"] is None else OUTCOME_WORDS[str(row["outcome"])],
                cell_text(row["status"], "status"),
                *(cell_text(row[key], key) for key in counts),
            )
            for row in shown
        ),
    )  # fmt: skip


def _turn_text(row: Row) -> str:
    if row["turn_index"] is None:
        return NOT_KNOWN
    place = "" if row["lost_by_session"] == row["session"] else f" of session {row['lost_by_session']}"
    return f"{row['turn_index']}{place}"


def _admission_facts(answers: Answers) -> tuple[tuple[str, str], ...]:
    names = (
        "tries", "refused_tries", "retried_calls", "backoff_s", "backoff_sessions", "waiting_sessions",
        "refused_tries_ratio", "refused_once_ratio", "lost_prefill_tokens", "slow_headers_calls",
        "headers_queue_correlation",
    )  # fmt: skip
    return tuple((METRICS[name].title, _fact_text(name, answers.numbers[name])) for name in names)


def _fact_text(name: str, value: Number) -> str:
    if name.endswith("_ratio"):
        return text_from_ratio(value)
    # What is counted stands in the title already.
    unit = METRICS[name].unit
    return text_from_value(value, unit if unit in ("s", "tokens", "ρ") else "")
