"""What the report of a long run costs: time and memory, the weight of its page, how soon a browser has it ready; and what
a comparison of two such runs does.

    python bench/report.py
    python bench/report.py --aiperf AIPERF_PYTHON

The runs are made up (`bench/long_run.py`): the 24 Weka conversations under tests/data, 1,259 calls with sub-agents, played
80 and 795 times over, and a trace of 100,000 calls (`bench/long_trace.py`) that is played once. CPU is of the process and
of all its threads; its peak memory is what the kernel counted. A row is the median of `--rounds` runs.

The page is opened in headless Chromium, in a window of 1280 × 900 pixels; ready means that its figures can be drawn and
those in sight are. Without a browser these columns stay empty. The comparison is that of the first run with a copy of it.

AIPerf 0.13.0 has no command that aggregates records again; `bench/beside/aiperf_aggregation.py` puts as many records into
its accumulator. Give the Python of its environment to measure that too.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from reports.browser import CHROMIUM, open_browser

HERE = Path(__file__).parent
WEKA = sorted((HERE.parent / "tests" / "data" / "weka").glob("*.zst"))
AITRACE = [sys.executable, "-m", "aitrace"]
IN_DOUBT = 1
LONG_CALLS = 100_000
ANSWER_TOKENS = 500


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def cost(*arguments: str) -> Cost:
    begun_s = time.perf_counter()
    process = subprocess.Popen([*AITRACE, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, IN_DOUBT), arguments
    return Cost(
        wall_s=time.perf_counter() - begun_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / 1024,
    )


def middle(costs: list[Cost]) -> Cost:
    return Cost(
        wall_s=statistics.median(one.wall_s for one in costs),
        cpu_s=statistics.median(one.cpu_s for one in costs),
        peak_mib=statistics.median(one.peak_mib for one in costs),
    )


def cost_text(one: Cost) -> str:
    return f"{one.wall_s:.1f} · {one.cpu_s:.1f} · {one.peak_mib:,.0f}"


def weights(page: Path) -> tuple[float, float]:
    """MB of the page without the data of its figures, and of these."""
    text = page.read_text(encoding="utf-8")
    data = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    data_bytes = len(data[1].encode())
    return (page.stat().st_size - data_bytes) / 1e6, data_bytes / 1e6


def ready_s(page: Path, folder: Path, rounds: int) -> float | None:
    """Seconds from opening the page until it is ready; a browser of its own each time."""
    if CHROMIUM is None:
        return None
    times = []
    for number in range(rounds):
        with open_browser(folder / f"profile-{number}") as browser:
            times.append(browser.open(page).value("performance.now()") / 1000)
    return statistics.median(times)


def row(name: str, run: Path, rounds: int, folder: Path) -> str:
    page = folder / "page.html"
    numbers = middle([cost("report", str(run), "--no-html", "--json") for _ in range(rounds)])
    whole = middle([cost("report", str(run), "-o", str(page)) for _ in range(rounds)])
    frame_mb, data_mb = weights(page)
    ready = ready_s(page, folder, rounds)
    cells = [
        name,
        cost_text(numbers),
        cost_text(whole),
        f"{frame_mb:.2f} + {data_mb:.2f}",
        "–" if ready is None else f"{ready:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def comparison_row(run: Path, calls: int, rounds: int) -> str:
    again = run.with_name(f"{run.name}-again")
    shutil.copytree(run, again)
    compared = middle([cost("compare", str(run), str(again), "--json") for _ in range(rounds)])
    return f"| 2 × {calls:,} | {cost_text(compared)} |"


def aiperf_row(python: str, records: int, tokens: int) -> str:
    script = HERE / "beside" / "aiperf_aggregation.py"
    done = subprocess.run(
        [python, script, str(records), str(tokens)], capture_output=True, check=True, text=True
    )
    found = orjson.loads(done.stdout.splitlines()[-1])
    parts = [found[name] for name in ("read_s", "take_s", "summary_s")]
    return f"| {records:,} · {tokens} | {sum(parts):.1f} | {' + '.join(f'{part:.1f}' for part in parts)} | {found['peak_mib']:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3, help="runs of each row")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the calls, to see that it works")
    parser.add_argument("--aiperf", metavar="PYTHON", help="the Python of an environment with AIPerf")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weka, long = folder / "weka.aitrace", folder / "long.aitrace"
        long_calls = round(LONG_CALLS * options.scale)
        subprocess.run([*AITRACE, "convert", *WEKA, "-o", weka], check=True, capture_output=True)
        subprocess.run([sys.executable, HERE / "long_trace.py", long, str(long_calls)], check=True)
        print(
            "| run | numbers: s · CPU s · MiB | with the page: s · CPU s · MiB | page + data, MB | ready, s |"
        )
        print("| --- | --- | --- | --- | --- |")
        for title, calls, trace in (
            ("of 1,259 in the trace", long_calls, weka),
            ("of as many in the trace", long_calls, long),
            ("of 1,259 in the trace", 10 * long_calls, weka),
        ):
            run = folder / f"run-{calls}-{trace.stem}"
            subprocess.run([sys.executable, HERE / "long_run.py", run, str(calls), trace], check=True)
            print(row(f"{calls:,} calls, {title}", run, options.rounds, folder), flush=True)
        print("\n| comparison of runs of calls | s · CPU s · MiB |")
        print("| --- | --- |")
        print(comparison_row(folder / f"run-{long_calls}-weka", long_calls, options.rounds), flush=True)
    if options.aiperf:
        print("\n| records · tokens of an answer | AIPerf, CPU s | read + take in + summary | MiB |")
        print("| --- | --- | --- | --- |")
        for tokens in (1, ANSWER_TOKENS):
            print(aiperf_row(options.aiperf, long_calls, tokens), flush=True)


if __name__ == "__main__":
    main()
