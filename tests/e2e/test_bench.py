"""The table of docs/performance.md can be made: each row gives figures for our own client. Nothing is timed here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[2] / "bench" / "peers.py"


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
