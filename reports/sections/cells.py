"""Pure: tables of a report from spreads and rows of metrics."""

from aitrace.quantiles import min_count
from reports.answers import Answers
from reports.document import Table
from reports.metric import Number, Row
from reports.metrics import METRICS
from reports.words import NOT_KNOWN, quantile_texts, text_from_ratio, text_from_value


def spread_table(answers: Answers, names: tuple[str, ...]) -> Table:
    """Quantiles of distributions, one per row."""
    rows = []
    titles_of: dict[str, list[str]] = {}
    for name in names:
        metric = METRICS[name]
        title = metric.title + (f", {metric.unit}" if metric.unit else "")
        rows.append((title, *quantile_texts(answers.spreads[name])))
        titles_of.setdefault(metric.population, []).append(metric.title)
    populations = "; ".join(f"{' and '.join(titles)}: {of}" for of, titles in titles_of.items())
    return Table(
        caption=f"{populations}.",
        columns=("", "n", *answers.spreads[names[0]].quantiles, "max"),
        rows=tuple(rows),
    )


def spread_line(answers: Answers, name: str) -> str:
    """The median, the 99th percentile and the largest value of a distribution, in a line."""
    metric, spread = METRICS[name], answers.spreads[name]
    count, p50, *_, p99, largest = quantile_texts(spread)
    if not spread.count:
        return f"{metric.title} {NOT_KNOWN}"
    told = ", ".join(
        f"{label} ({text})" if text.startswith("n <") else f"{label} {text}"
        for label, text in (("p50", p50), ("p99", p99), ("max", largest))
    )
    return f"{metric.title}, {metric.unit}: {told} (n = {count})"


def rows_table(rows: list[Row], heads: dict[str, str], caption: str = "") -> Table:
    """Rows of a table of metrics under these heads, by the names of their columns."""
    return Table(
        caption=caption,
        columns=tuple(heads.values()),
        rows=tuple(tuple(row_cell(row, key) for key in heads) for row in rows),
    )


def row_cell(row: Row, key: str) -> str:
    """A cell of a row; a 95th percentile that is withheld says how many values it needs, one of no values is not known."""
    if row[key] is None and "p95" in key and row[key.replace("p95", "p50")] is not None:
        return f"n < {min_count(0.95)}"
    return cell_text(row[key], key)


def cell_text(value: float | str | None, key: str) -> str:
    if isinstance(value, str):
        return value
    if key.endswith("_ratio"):
        return text_from_ratio(value)
    # A status is a name, not an amount: its digits are not grouped.
    return str(value) if key == "status" and value is not None else text_from_value(value, "")


def share_text(part: Number, whole: Number) -> str:
    return text_from_ratio(None if part is None or not whole else part / whole)
