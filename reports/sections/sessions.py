"""Pure: how long sessions took, against the recording and an idle endpoint, what the time went into, and how evenly."""

from reports.answers import Answers
from reports.bucket_text import PART_WORDS, range_label
from reports.document import Heading, Pairs, Section, Table, Words
from reports.figures.charts import session_slowdown
from reports.figures.session_charts import time_by_duration
from reports.measures.unloaded import MIN_CALLS
from reports.metric import Row
from reports.metrics import METRICS
from reports.sections.cells import cell_text, row_cell, rows_table, spread_table
from reports.summary import Report
from reports.words import (
    NOT_KNOWN,
    counted,
    text_from_float,
    text_from_ms,
    text_from_slowdown,
    text_from_value,
)

_SESSIONS = (
    "session_duration_s", "session_expected_s", "session_recorded_s", "session_slowdown_ratio",
    "session_unloaded_s", "session_unloaded_slowdown_ratio",
    "tree_duration_s", "tree_expected_s", "tree_slowdown_ratio", "tree_output_tokens_per_s",
)  # fmt: skip
_RATES = (
    "trees_per_h", "sessions_per_h", "output_tokens_per_s", "calls_in_flight_mean", "calls_in_flight_max",
    "sessions_active_mean", "sessions_active_max",
)  # fmt: skip
_FAIRNESS = (
    "slowdown_jain_ratio",
    "slowdown_p95_over_p50",
    "tree_speed_jain_ratio",
    "tree_speed_p95_over_p50",
)
_SIZE_CELLS = (
    "slowdown_n", "slowdown_p50_ratio", "slowdown_p95_ratio", "slowdown_jain_ratio",
    "speed_n", "speed_p50_tokens_per_s", "speed_p95_tokens_per_s", "speed_jain_ratio",
)  # fmt: skip
"""Columns of the table of trees by size."""


def sessions_section(report: Report) -> Section:
    """Times of sessions and trees, what they went into, how many in an hour, and how evenly they were served."""
    answers = report.answers
    return Section(
        id="sessions",
        title="Sessions and trees",
        blocks=(
            Words(text=slowdown_sentence(answers), tone="finding"),
            Words(text=time_scale_sentence(report)),
            Pairs(pairs=number_pairs(answers, _RATES)),
            spread_table(answers, _SESSIONS),
            Words(text=unloaded_sentence(report), tone="note"),
            session_slowdown(report),
            Heading(text="What the time of sessions went into", id="session-time"),
            parts_table(answers),
            time_by_duration(report),
            Heading(text="How evenly it was shared out", id="fairness"),
            Pairs(pairs=number_pairs(answers, _FAIRNESS)),
            sizes_table(answers),
        ),
    )


def slowdown_sentence(answers: Answers) -> str:
    """How long sessions took, in words."""
    expected = answers.spreads["session_slowdown_ratio"]
    unloaded = answers.spreads["session_unloaded_slowdown_ratio"]
    if not expected.count:
        return "No complete session has a recorded time to be compared with."
    p95 = expected.quantiles["p95"]
    worst = "" if p95 is None else f", p95 {text_from_slowdown(p95, 'expected')}"
    idle = f" Against an idle endpoint: median {text_from_slowdown(unloaded.quantiles['p50'], 'unloaded')}."
    return (
        f"The median session took {text_from_slowdown(expected.quantiles['p50'], 'expected')}{worst} "
        f"(n = {expected.count:,})."
    ) + (idle if unloaded.count else "")


def number_pairs(answers: Answers, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Titles and values of numbers."""
    return tuple((METRICS[name].title, _number_text(answers, name)) for name in names)


def _number_text(answers: Answers, name: str) -> str:
    value = answers.numbers[name]
    if value is None:
        return NOT_KNOWN
    # An index is no share of anything: 1 stands for all equal.
    return f"{value:.3f}" if "jain" in name else text_from_value(value, METRICS[name].unit)


def parts_table(answers: Answers, *, with_empty: bool = True) -> Table:
    """What the time of sessions went into, over all of them and per session; parts that took no time are there if wanted."""
    rows = [
        row | {"part": PART_WORDS[str(row["part"])]}
        for row in answers.tables["session_time_by_part"]
        if row["time_s"] or with_empty
    ]
    return rows_table(
        rows,
        {
            "part": "part",
            "time_s": "complete sessions, s",
            "time_ratio": "share",
            "sessions": "n",
            "share_p50_ratio": "share of a session: p50",
            "share_p95_ratio": "p95",
            "share_max_ratio": "max",
            "p50_s": "time in a session: p50, s",
            "p95_s": "p95, s",
        },
        f"{METRICS['session_time_by_part'].population}. The parts add up to the sessions' durations. A moment at which two "
        "calls of a session were going on counts for the one that was due first; sessions of one tree count each.",
    )


def sizes_table(answers: Answers) -> Table:
    """Fairness between trees by the number of their calls."""
    return Table(
        caption=f"{METRICS['trees_by_size'].population}. Jain's index: 1 if all are equal, 1/n if one has everything.",
        columns=(
            "calls of a tree", "trees", "slowdown: n", "p50", "p95", "Jain's index", "output, tokens/s: n", "p50", "p95",
            "Jain's index",
        ),
        rows=tuple(
            (
                range_label(row, "calls"),
                cell_text(row["trees"], "trees"),
                *(_size_cell(row, name) for name in _SIZE_CELLS),
            )
            for row in answers.tables["trees_by_size"]
        ),
    )  # fmt: skip


def _size_cell(row: Row, key: str) -> str:
    value = row[key]
    if not isinstance(value, float):
        return row_cell(row, key)
    # A slowdown and an index are no shares of anything.
    return f"{value:.3f}" if "jain" in key else text_from_float(value)


def unloaded_sentence(report: Report) -> str:
    """Where the times of an idle endpoint come from, or why there are none."""
    numbers = report.answers.numbers
    calls = counted(int(numbers["unloaded_calls"] or 0), "call")
    source = (
        f"{calls} of this run that no other one overlapped"
        if report.facts.unloaded is None
        else f"{calls} of the run given by --unloaded"
    )
    if numbers["unloaded_base_ms"] is None:
        return (
            f"The times of an idle endpoint are told from at least {MIN_CALLS} calls, and there were {source}. Play some trees "
            "with --concurrency 1 and name that run with --unloaded."
        )
    rate = numbers["unloaded_prefill_tokens_per_s"]
    prefill = (
        "no time for prompt tokens" if rate is None else f"prefill of {text_from_value(rate, 'tokens/s')}"
    )
    return (
        f"Unloaded is an estimate from {source}: first token after {text_from_ms(numbers['unloaded_base_ms'])}, {prefill}, "
        f"{text_from_ms(numbers['unloaded_itl_ms'])} per output token. What load had evicted from the cache is computed again "
        "in it."
    )


def time_scale_sentence(report: Report) -> str:
    """What the time scale did to the gaps."""
    scale = report.facts.header.time_scale
    if scale == 1:
        effect = "Gaps were played as recorded, up to caps."
    else:
        effect = (
            f"Gaps were played × {scale:g}, up to caps. Cached prefixes therefore had "
            f"{'less' if scale < 1 else 'more'} time to be evicted than in the recording."
        )
    return (
        f"{effect} Sessions are compared with what they would take at recorded durations of answers and these gaps; "
        "× expected is the time in this run / the time expected from the recording at this time scale: above 1 slower than "
        "the recorded endpoint, below 1 faster. The time as recorded, gaps not scaled, is given for reference."
    )
