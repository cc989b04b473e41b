"""I/O: looks through a finished or growing trace file for what must not be in one that is shared."""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from aitrace.errors import InputError
from aitrace.leaks import LeakScan
from aitrace.no_text import find_text
from aitrace.store import TraceReader

_MOST_FINDINGS = 1000
_MODEL = re.compile(rb'"model":"([^"]*)"')


def leaks_in_file(path: Path, known: Collection[str]) -> tuple[str, ...]:
    """What a file holds that a trace without text must not, one sentence each, the found text masked.

    Args:
        path: The trace, whole or not; one that is missing or has no line holds nothing.
        known: Strings that must not be there, such as ids seen; see `LeakScan`. One that is part of a model's name is
            not looked for: people name agents after models, whose names are written.
    """
    models = {model.decode() for _, data in raw_lines(path) for model in _MODEL.findall(data)}
    scan = LeakScan({name for name in known if not any(name in model for model in models)})
    # All of the header is ours, sentences included, but for the attribution, which somebody has given for it.
    scan_of_header = LeakScan()
    findings = (
        f"line {number}: {finding}"
        for number, data in raw_lines(path)
        for finding in _findings(scan_of_header if number == 1 else scan, number, data)
    )
    return tuple(islice(findings, _MOST_FINDINGS))


def _findings(scan: LeakScan, number: int, data: bytes) -> Iterator[str]:
    yield from map(str, scan.leaks(number, data))
    for finding in find_text(number, data):
        # The finding's own text shows what it found.
        yield f"what might be text, in {finding.message.partition(':')[0]}"


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line; none if there is no file, or no line in it."""
    with suppress(InputError):
        yield from TraceReader(path).raw_lines()
