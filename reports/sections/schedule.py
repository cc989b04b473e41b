"""Pure: how well the schedule was kept: lateness, gaps and arrivals as planned and as played, and caps."""

from reports.answers import Answers
from reports.bucket_text import CAUSE_WORDS
from reports.document import Beside, Block, Section, Table, Words
from reports.figures.charts import lateness_ecdf, lateness_over_time
from reports.figures.fidelity_charts import arrivals_planned_and_played, gaps_planned_and_played
from reports.metrics import METRICS
from reports.sections.cells import rows_table, spread_table
from reports.summary import Report
from reports.words import counted, text_from_ratio, text_from_seconds

_SPREADS = (
    "lateness_ms", "client_lateness_ms", "connect_ms", "upload_ms", "gap_error_ms", "tree_start_error_ms",
    "behind_schedule_s",
)  # fmt: skip


def schedule_section(report: Report) -> Section:
    """Lateness, then gaps and arrivals of trees, planned against played."""
    answers = report.answers
    gaps = gaps_table(answers)
    blocks: list[Block] = [spread_table(answers, _SPREADS)]
    blocks.append(Beside(figures=(lateness_ecdf(report), lateness_over_time(report))))
    blocks.append(Words(text=caps_sentence(answers)))
    if gaps.rows:
        blocks.append(gaps)
    blocks.append(Beside(figures=(gaps_planned_and_played(report), arrivals_planned_and_played(report))))
    return Section(id="schedule", title="Was the schedule kept?", blocks=tuple(blocks))


def gaps_table(answers: Answers) -> Table:
    """Gaps by cause: as recorded, as planned, as played."""
    rows = [row | {"cause": CAUSE_WORDS[str(row["cause"])]} for row in answers.tables["gaps_by_cause"]]
    return rows_table(
        rows,
        {
            "cause": "gap filled by",
            "calls": "n",
            "recorded_s": "recorded × time scale, s",
            "planned_s": "planned, s",
            "played_s": "played, s",
            "capped_calls": "cut by a cap",
            "error_p50_ms": "played − planned: p50, ms",
            "error_p95_ms": "p95, ms",
            "error_max_ms": "max, ms",
        },
        f"{METRICS['gaps_by_cause'].population}. Where the recording tells how long each tool ran, the tools are played: a gap "
        "then also differs from the plan by how fast the answer came.",
    )


def caps_sentence(answers: Answers) -> str:
    """How often a cap cut a gap."""
    numbers = answers.numbers
    compared, capped = numbers["compared_gaps"], numbers["capped_gaps"]
    if compared is None:
        return "Without the trace, gaps as recorded are not known."
    if not compared:
        return "No call waited for the end of just one call of its session, so no gap can be compared."
    if not capped:
        return f"No cap cut a gap (n = {compared:,})."
    return (
        f"Caps cut {capped:,} of {counted(compared, 'gap')} ({text_from_ratio(numbers['capped_gaps_ratio'])}), together by "
        f"{text_from_seconds(numbers['capped_gaps_s'])}."
    )
