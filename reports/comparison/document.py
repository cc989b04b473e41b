"""Pure: a comparison as a document, and the tables that the terminal shows of it too."""

from collections.abc import Iterator
from functools import partial

from aitrace.doubts import reasons_of
from reports.comparison.comparison import Comparison, verdict
from reports.comparison.figures import ecdf_figure, forest_figure, pairs_figure
from reports.comparison.measures import BASES
from reports.comparison.noise import MeasureNoise
from reports.comparison.plan_check import OptionDifference
from reports.comparison.wording import (
    checked_text,
    difference_text,
    effect_text,
    finding_text,
    pairs_text,
    percent_text,
    side_text,
    value_text,
)
from reports.document import QUANTILES, Block, Document, Headline, Section, Table, Words
from reports.words import NOT_KNOWN, counted

_HEADLINES = ("ttft_paired", "ttft_p50", "ttft_p95", "hit_ratio", "refused_tries", "session_p50")
_ECDFS = ("ttft", "user_ttft", "itl", "call", "session")


def document_of_comparison(comparison: Comparison) -> Document:
    """Everything to be said about the comparison."""
    names = [way.label for way in comparison.ways]
    title = (
        f"Noise of {', '.join(names)}"
        if comparison.noise
        else f"{' and '.join(names[1:])} against {names[0]}"
    )
    return Document(
        kind="aitrace compare",
        title=title,
        verdict=verdict(comparison),
        is_fine=comparison.is_fine,
        is_good=comparison.is_good,
        doubts=comparison.doubts,
        headlines=tuple(_headlines(comparison)),
        sections=tuple(_sections(comparison)),
        footer=f"{QUANTILES} How differences are told from noise is in docs/compare.md.",
    )


def confidence_sentence(comparison: Comparison) -> str:
    """What the intervals hold for."""
    runs = (
        "the spread between runs of one way is in them"
        if comparison.knows_runs
        else "they hold the spread between trees, not that between runs"
    )
    return (
        f"Confidence of {100 * comparison.setting.confidence:g} % that all intervals hold together "
        f"({counted(comparison.family, 'difference')}); {runs}."
    )


def ways_table(comparison: Comparison) -> Table:
    """What was compared."""
    return Table(
        caption="The first way is what the others are compared with.",
        columns=("way", "where", "runs", "in doubt"),
        rows=tuple(
            (
                way.label,
                way.name,
                "recorded" if way.is_recorded else f"{len(way.runs):,}",
                "; ".join(reason for run in way.runs for reason in reasons_of(run.doubts)) or "no",
            )
            for way in comparison.ways
        ),
        has_prose=True,
    )


def options_table(differences: tuple[OptionDifference, ...]) -> Table:
    """Values that differ."""
    return Table(
        caption="Each against the first run.",
        columns=("option", "first run", "other run", "which"),
        rows=tuple((each.option, each.first, each.other, each.run) for each in differences),
        has_prose=True,
    )


def findings_table(comparison: Comparison, way: int, *, with_runs: bool = True) -> Table:
    """A row per measure: values of both ways, of each run too if that is wanted, and what the difference amounts to."""
    first, second = comparison.ways[0].label, comparison.ways[way].label
    return Table(
        caption="",
        columns=("", first, second, "pairs", "finding"),
        rows=tuple(
            (
                each.measure.name,
                side_text(each.first, each.measure.basis, with_runs=with_runs),
                side_text(each.second, each.measure.basis, with_runs=with_runs),
                pairs_text(each),
                finding_text(each),
            )
            for each in comparison.differences[way - 1]
        ),
        has_prose=True,
    )


def effects_table(comparison: Comparison, way: int) -> Table:
    """A row per measure: absolute and relative difference with their intervals."""
    return Table(
        caption="Differences are those to the first way.",
        columns=("", "", "difference", "relative", "trees", "only first", "only second", "not in every run"),
        rows=tuple(
            (
                each.measure.name,
                each.measure.title,
                effect_text(each.absolute, partial(difference_text, basis=each.measure.basis)),
                effect_text(each.relative, percent_text),
                f"{each.trees:,}",
                f"{each.only_first:,}",
                f"{each.only_second:,}",
                f"{each.in_part:,}",
            )
            for each in comparison.differences[way - 1]
        ),
    )


def noise_table(noise: tuple[MeasureNoise, ...]) -> Table:
    """A row per measure: what two runs of one way stay within."""
    return Table(
        caption="Two runs of one way stay within this in 95 of 100 pairs, by the spread of these runs (Student's t): few "
        "runs give wide bounds. --noise takes it into the intervals of later comparisons.",
        columns=("", "two runs stay within", "relative", "runs"),
        rows=tuple(
            (
                each.measure.name,
                NOT_KNOWN if each.floor is None else difference_text(each.floor, each.measure.basis),
                NOT_KNOWN if each.floor_ratio is None else percent_text(each.floor_ratio),
                ", ".join(value_text(value, each.measure.basis) for value in each.values) or each.reason,
            )
            for each in noise
        ),
        has_prose=True,
    )


def _headlines(comparison: Comparison) -> Iterator[Headline]:
    for each in comparison.differences[0]:
        if each.measure.name in _HEADLINES and each.absolute is not None:
            effect = each.absolute if each.measure.basis.is_share else each.relative or each.absolute
            is_plain = each.measure.basis.is_share or each.relative is None
            value = (
                difference_text(effect.point, each.measure.basis) if is_plain else percent_text(effect.point)
            )
            sign = "+" if effect.point > 0 else ""
            yield Headline(name=each.measure.title, value=f"{sign}{value}", note=finding_text(each))


def _sections(comparison: Comparison) -> Iterator[Section]:
    if comparison.plan:
        yield Section(
            id="plan",
            title="Not the same plan",
            blocks=(
                Words(
                    text="What follows compares runs of different plans: only calls that both have are paired, and a "
                    "difference may come from the plan.",
                    tone="finding",
                ),
                options_table(comparison.plan),
            ),
        )
    yield Section(id="ways", title="What differs", blocks=tuple(_way_blocks(comparison)))
    if comparison.checked:
        lines = (Words(text=checked_text(each), tone="finding") for each in comparison.checked)
        yield Section(id="conditions", title="Conditions", blocks=tuple(lines))
    if comparison.noise:
        yield Section(id="noise", title="Noise", blocks=(noise_table(comparison.noise),))
    for way in range(1, len(comparison.ways)):
        yield Section(
            id=f"differences-{way}",
            title=f"{comparison.ways[way].label} against {comparison.ways[0].label}",
            blocks=(
                Words(text=confidence_sentence(comparison), tone="note"),
                forest_figure(comparison, way),
                findings_table(comparison, way),
                effects_table(comparison, way),
                *([pairs_figure(comparison, way)] if _has_ttft(comparison) else []),
            ),
        )
    figures = (ecdf_figure(comparison, name) for name in _ECDFS)
    yield Section(
        id="distributions", title="Distributions", blocks=tuple(figure for figure in figures if figure.traces)
    )


def _has_ttft(comparison: Comparison) -> bool:
    return BASES["ttft"].column in comparison.matched.levels["call"].columns


def _way_blocks(comparison: Comparison) -> Iterator[Block]:
    if comparison.setup:
        yield options_table(comparison.setup)
    elif not any(way.is_recorded for way in comparison.ways):
        yield Words(text="Nothing but the texts and the time of day: the runs have the same options.")
    yield ways_table(comparison)
