"""The tables of docs/performance.md can be made: each row gives figures for our own program. Nothing is timed here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
PEERS = BENCH / "peers.py"


@pytest.mark.parametrize("row", ["cpu", "burst", "low", "late", "first", "memory", "prompts"])
def test_each_row_of_the_table_gives_figures_for_aitrace(row):
    done = subprocess.run(
        [sys.executable, PEERS, "--only", "aitrace", "--rounds", "1", "--scale", "0.002", "--rows", row],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    head, _, *lines = done.stdout.splitlines()
    assert head == "| same work | aitrace | goal |"
    figures = re.split(r" [/·] ", " / ".join(line.split(" | ")[1] for line in lines))
    assert all(re.fullmatch(r"-?[\d,]+(\.\d+)?", figure) for figure in figures), done.stdout + done.stderr


def test_each_row_of_the_table_of_reports_gives_figures():
    done = subprocess.run(
        [sys.executable, BENCH / "report.py", "--rounds", "1", "--scale", "0.005"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reports, comparisons = (table.splitlines()[2:] for table in done.stdout.split("\n\n"))
    assert [line.split()[1] for line in reports] == ["500", "500", "5,000"]
    # The last column of reports needs a browser.
    cells = [re.split(r" \| | · | \+ ", line.strip("| "))[1:-1] for line in reports]
    (comparison,) = comparisons
    cells.append(re.split(r" \| | · ", comparison.strip("| "))[1:])
    assert [len(row) for row in cells] == [8, 8, 8, 3], done.stdout
    assert all(re.fullmatch(r"[\d,]+(\.\d+)?", figure) for row in cells for figure in row), done.stdout
