"""What the commands that work on files cost, in CPU seconds and memory of the whole process.

    python bench/commands.py

The input is the 24 Weka conversations under tests/data (1,259 calls, 118 million prompt tokens), the same trace played
forty times over for `plan`, and a trace of 100,000 calls in 2,000 sessions that share a system prompt. A row is the
median of five runs.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WEKA = sorted((Path(__file__).parent.parent / "tests" / "data" / "weka").glob("*.zst"))
RUNS = 5
LONG_TRACE = Path(__file__).with_name("long_trace.py")
LONG_CALLS = 100_000


def cost(*arguments: str) -> tuple[float, float]:
    """CPU seconds and peak MiB of one run of the command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aitrace", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, arguments
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    print("| command | CPU s | peak MiB |")
    print("| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        trace, long = str(Path(folder, "weka.aitrace")), str(Path(folder, "long.aitrace"))
        # In a process of its own: what this one needs would count as the least that each command needs.
        subprocess.run([sys.executable, LONG_TRACE, long, str(LONG_CALLS)], check=True)
        commands = {
            "aitrace --help": ["--help"],
            "aitrace convert (24 files)": ["convert", *map(str, WEKA), "-o", trace, "--force"],
            "aitrace check": ["check", trace, "--no-text"],
            "aitrace inspect": ["inspect", trace, "--json"],
            "aitrace plan": ["plan", trace, "--json"],
            "aitrace plan --trees 960": ["plan", trace, "--json", "--trees", "960"],
            "aitrace check (100,000 calls)": ["check", long],
            "aitrace plan (100,000 calls)": ["plan", long, "--json"],
        }
        for name, arguments in commands.items():
            cpu, memory = (
                statistics.median(column)
                for column in zip(*[cost(*arguments) for _ in range(RUNS)], strict=True)
            )
            print(f"| `{name}` | {cpu:.2f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
