"""I/O: the tables of docs/metrics.md, made from the definitions; run as a program it brings the page up to date."""

import re
import sys
from pathlib import Path

from reports.measures.time_metrics import SERIES
from reports.metrics import DISTRIBUTIONS, NUMBERS, TABLES, AnyMetric

_PARTS: dict[str, tuple[AnyMetric, ...]] = {
    "distributions": DISTRIBUTIONS,
    "numbers": NUMBERS,
    "tables": TABLES,
    "series": SERIES,
}
_HEAD = ("name", "unit", "formula", "population")


def with_tables(page: str) -> str:
    """The page with each of its tables between the marks made anew."""
    for part, metrics in _PARTS.items():
        begin, end = f"<!-- {part}: made by `make docs` -->", f"<!-- end of {part} -->"
        between = f"{re.escape(begin)}.*?{re.escape(end)}"
        places = re.findall(between, page, flags=re.DOTALL)
        if len(places) != 1:
            raise ValueError(f"the page has {len(places)} places for {part}, expected 1")
        page = page.replace(places[0], f"{begin}\n\n{_table(metrics)}\n\n{end}")
    return page


def _table(metrics: tuple[AnyMetric, ...]) -> str:
    rows = ((f"`{metric.name}`", metric.unit or "1", metric.formula, metric.population) for metric in metrics)
    return "\n".join([_line(_HEAD), _line(("---",) * len(_HEAD)), *map(_line, rows)])


def _line(cells: tuple[str, ...]) -> str:
    row = " | ".join(cell.replace("|", "\\|") for cell in cells)
    return f"| {row} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
