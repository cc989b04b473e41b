"""Pure: time to first token, tokens in time, and both by what a call was."""

from collections.abc import Callable

from aitrace.quantiles import min_count
from reports.answers import Answers
from reports.bucket_text import class_label, gap_before_label, range_label
from reports.document import Beside, Block, Heading, Section, Table, Words
from reports.figures.charts import itl_ecdf, ttft_by_prefill, ttft_ecdf, ttft_over_time
from reports.figures.latency_charts import ttft_by_kind
from reports.measures.latency_metrics import STEMS
from reports.metric import Row
from reports.metrics import METRICS
from reports.sections.cells import spread_table
from reports.stats import Interval
from reports.summary import Report
from reports.words import NOT_KNOWN, text_from_float, text_from_value

_TTFT = ("ttft_service_ms", "ttft_user_ms", "headers_ms", "first_visible_ms")
_TOKENS = ("itl_ms", "longest_stall_ms", "output_speed_tokens_per_s", "call_duration_ms")
_KINDS: dict[str, tuple[str, str, Callable[[Row], str]]] = {
    "latency_by_class": ("By class of call", "class", class_label),
    "latency_by_turn": ("By turn", "turn", lambda row: range_label(row, "turn")),
    "latency_by_prompt": ("By prompt size", "prompt tokens", lambda row: range_label(row, "tokens")),
    "latency_by_uncached": (
        "By prompt tokens that were not cached", "tokens not cached", lambda row: range_label(row, "tokens"),
    ),
    "latency_by_gap": ("By the gap before the call", "gap as played", gap_before_label),
}  # fmt: skip
"""Heading, first head and labels of each table."""
_HEADS = {
    "ttft_service": "TTFT from sent, ms",
    "ttft_user": "from due, ms",
    "headers": "headers, ms",
    "itl": "ITL, ms",
    "longest_stall": "longest stall, ms",
    "output_speed": "output, tokens/s",
}
_SAME_COUNT = {"ttft_user": "ttft_service"}
"""Measures whose n is told already."""


def ttft_section(report: Report) -> Section:
    """Time to first token: quantiles, intervals, and what it depends on."""
    return Section(
        id="ttft",
        title="Time to first token",
        blocks=(
            spread_table(report.answers, _TTFT),
            *(Words(text=sentence, tone="note") for sentence in interval_sentences(report.answers)),
            Beside(figures=(ttft_ecdf(report), ttft_by_prefill(report))),
            ttft_over_time(report),
        ),
    )


def tokens_section(report: Report) -> Section:
    """Times between tokens, stalls and output speed."""
    return Section(
        id="tokens", title="Tokens in time", blocks=(spread_table(report.answers, _TOKENS), itl_ecdf(report))
    )


def kinds_section(report: Report) -> Section:
    """TTFT, headers, ITL, stalls and output speed by class, turn, prompt size, tokens not cached, and gap before."""
    blocks: list[Block] = [ttft_by_kind(report)]
    for name, (heading, _, _) in _KINDS.items():
        if report.answers.tables[name]:
            blocks += [Heading(text=heading), kind_table(report.answers, name)]
    return Section(id="latency-kinds", title="Latency by kind of call", blocks=tuple(blocks))


def kind_table(answers: Answers, name: str, stems: tuple[str, ...] = tuple(STEMS)) -> Table:
    """One of the break-downs: n, p50 and p95 of each measure."""
    _, head, label = _KINDS[name]
    columns = [head]
    for stem in stems:
        columns += [f"{_HEADS[stem]}: p50" if stem in _SAME_COUNT else f"{_HEADS[stem]}: n"]
        columns += ["p95"] if stem in _SAME_COUNT else ["p50", "p95"]
    return Table(
        caption=f"{METRICS[name].population}{_bucket_text(name)}.",
        columns=tuple(columns),
        rows=tuple((label(row), *_cells(row, stems)) for row in answers.tables[name]),
    )


def _bucket_text(name: str) -> str:
    """What the buckets are of, where the head does not say it all."""
    bucket = METRICS[name].formula.partition(", per ")[2]
    return f"; {bucket}" if bucket.startswith("bucket of reported") else ""


def _cells(row: Row, stems: tuple[str, ...]) -> list[str]:
    cells = []
    for stem in stems:
        count = int(row[f"{stem}_n"] or 0)
        if stem not in _SAME_COUNT:
            cells.append(f"{count:,}")
        for name, q in (("p50", 0.5), ("p95", 0.95)):
            value = row[f"{stem}_{name}_{STEMS[stem]}"]
            few = f"n < {min_count(q)}" if count else NOT_KNOWN
            cells.append(few if value is None else text_from_value(float(value), ""))
    return cells


def interval_sentences(answers: Answers) -> tuple[str, ...]:
    """Confidence intervals of TTFT, one sentence each."""
    sentences = []
    for name in ("ttft_service_ms", "ttft_user_ms"):
        spread = answers.spreads[name]
        parts = [
            f"{label} {_interval_text(interval)}"
            for label, interval in (("p50", spread.p50_interval), ("p95", spread.p95_interval))
            if interval is not None
        ]
        if parts:
            sentences.append(
                f"{METRICS[name].title}, 95 % intervals over {spread.sessions:,} sessions: {', '.join(parts)} ms."
            )
    return tuple(sentences)


def _interval_text(interval: Interval) -> str:
    return f"{text_from_float(interval.low)} to {text_from_float(interval.high)}"
