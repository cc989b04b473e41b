"""Pure: a page as values: a verdict, figures to be seen first, and sections of words, tables, pairs and charts.

Reports of runs, reports of traces and comparisons are such documents; `reports/html.py` draws any of them. No text in one
is escaped yet, except in what plotly is given: see `reports.figures.charts.plotly_text`.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from aitrace.doubts import Doubt

QUANTILES = (
    "Quantiles are values that were measured (inverted CDF). p90, p95 and p99 need 20, 40 and 200 values; with fewer, "
    "“n < 20” and the like stands in their place."
)
"""How quantiles are to be read, in any document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A paragraph."""

    kind: ClassVar[str] = "words"
    """Which block it is."""
    text: str
    """What it says."""
    tone: Literal["plain", "note", "finding"] = "plain"
    """How it is set: a note is smaller, a finding stands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a part of a section."""

    kind: ClassVar[str] = "heading"
    """Which block it is."""
    text: str
    """What it says."""
    id: str = ""
    """Id of its element; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts."""

    kind: ClassVar[str] = "table"
    """Which block it is."""
    caption: str
    """Population and what else must be known to read it; empty if its heading says it."""
    columns: tuple[str, ...]
    """Heads."""
    rows: tuple[tuple[str, ...], ...]
    """Cells; the first of each row names it."""
    has_prose: bool = False
    """Whether the last column holds sentences rather than numbers."""

    def of_columns(self, *heads: str, rows: int | None = None) -> "Table":
        """Some of the columns, and the first rows.

        Args:
            heads: Of columns; of several with one head the first is meant.
            rows: How many; None for all.
        """
        places = [self.columns.index(head) for head in heads]
        kept = tuple(tuple(row[place] for place in places) for row in self.rows[:rows])
        has_prose = self.has_prose and places[-1] == len(self.columns) - 1
        return replace(self, columns=heads, rows=kept, has_prose=has_prose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Names, each with its value."""

    kind: ClassVar[str] = "pairs"
    """Which block it is."""
    pairs: tuple[tuple[str, str], ...]
    """Name and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart."""

    kind: ClassVar[str] = "figure"
    """Which block it is."""
    id: str
    """Id of its element, one of its own within the page."""
    title: str
    """Heading."""
    note: str = ""
    """Population and n, and what was left out of the drawing."""
    traces: list[dict[str, Any]] = field(default_factory=list)
    """Plotly traces; empty if there is nothing to draw, and then the note says so."""
    layout: dict[str, Any] = field(default_factory=dict)
    """Plotly layout beyond the page's own."""
    height_px: int = 340
    """Height on the page."""
    columns: dict[str, str] = field(default_factory=dict)
    """Heads in the table of its data where no title of an axis gives them, by what the traces hold: `x`, `y`, `base` and
    `length` of bars that begin elsewhere than at 0, `text`, `customdata[0]` and so on, `series` for their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Two charts in one row, where there is room for both."""

    kind: ClassVar[str] = "beside"
    """Which block it is."""
    figures: tuple[Figure, Figure]
    """Left and right."""


Block = Words | Heading | Table | Pairs | Figure | Beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page with a heading of its own."""

    id: str
    """Id of its element, one of its own within the page."""
    title: str
    """Heading."""
    blocks: tuple[Block, ...]
    """What it holds, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure to be seen first."""

    name: str
    """What it is."""
    value: str
    """The figure with its unit."""
    note: str
    """What to read it by: a second figure, n, a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A page."""

    kind: str
    """What it is, above its title: `aitrace report`."""
    title: str
    """Title."""
    verdict: str
    """The verdict in a line."""
    is_fine: bool
    """Whether no doubt weighs."""
    is_good: bool = True
    """Whether what was found is no reason for concern either: nothing got worse, and every condition is kept."""
    doubts: tuple[Doubt, ...]
    """Reasons to distrust it, those that weigh first."""
    headlines: tuple[Headline, ...]
    """Figures to be seen first."""
    sections: tuple[Section, ...]
    """The rest, in order."""
    footer: str
    """How its numbers are to be read, at the end."""

    def figures(self) -> list[Figure]:
        """All charts, in order."""
        blocks = [block for section in self.sections for block in section.blocks]
        return [
            figure
            for block in blocks
            for figure in (
                block.figures if isinstance(block, Beside) else (block,) if isinstance(block, Figure) else ()
            )
        ]
