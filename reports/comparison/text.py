"""I/O: a comparison on a terminal, with rich; everything that came from outside is printed without control characters."""

from collections.abc import Iterator

from rich.console import Console

from reports.comparison.comparison import Comparison, verdict
from reports.comparison.document import confidence_sentence, findings_table, noise_table
from reports.comparison.wording import checked_text
from reports.text import print_table, print_text, print_verdict
from reports.words import counted


def print_comparison(comparison: Comparison, console: Console) -> None:
    """What differs first, then what was found."""
    for each in comparison.plan:
        line = f"the plans differ: {each.option}: {each.first} → {each.other} ({each.run})"
        print_text(console, line, style="bold yellow")
    for line in _setup_lines(comparison):
        print_text(console, line)
    print_verdict(console, verdict(comparison), comparison.doubts, is_fine=comparison.is_good)
    for checked in comparison.checked:
        style = "green" if checked.outcome == "kept" else "bold yellow"
        print_text(console, checked_text(checked), style=style)
    if comparison.noise:
        print_table(console, "Noise between runs of one way", noise_table(comparison.noise))
        return
    for way in range(1, len(comparison.ways)):
        title = f"{comparison.ways[way].label} against {comparison.ways[0].label}"
        print_table(console, title, findings_table(comparison, way, with_runs=False))
    print_text(console, confidence_sentence(comparison), style="dim")


def _setup_lines(comparison: Comparison) -> Iterator[str]:
    """A line per option that differs, with the first of its other values."""
    for option in dict.fromkeys(each.option for each in comparison.setup):
        first, *others = (each for each in comparison.setup if each.option == option)
        more = f", and {counted(len(others), 'other value')}" if others else ""
        yield f"differs: {option}: {first.first} → {first.other} ({first.run}){more}"
