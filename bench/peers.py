"""The client beside other load generators: the same work, one server, one program after another, round by round.

    python bench/peers.py --only aitrace --rounds 1 --quick
    python bench/peers.py --k6 K6 --aiperf AIPERF --inference-perf INFERENCE_PERF --guidellm GUIDELLM --locust LOCUST \
        --tokenizer FOLDER --rounds 3 --keep peers.jsonl

The programs are installed by the reader, each into an environment of its own; those not given are left out. AIPerf
makes prompts with tiktoken's files, which it downloads or finds in TIKTOKEN_CACHE_DIR; inference-perf and GuideLLM with
a Hugging Face tokenizer folder. `aiohttp` and `protocol` are clients of a few lines that write and count nothing.

What each row does is told in bench/beside/rows.py, how a program is asked to do it in bench/beside/programs.py. CPU is
that of all processes of a program, by the difference of two lengths of run where starting up is no part of the row.
TTFT error is the client's TTFT less the one that the kernel stamped at the server: for each call where the client tells
its id, else the difference of the percentiles. k6 tells the time to the first byte, since it reads answers whole.
"""

import argparse
import functools
import math
import os
import resource
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson
from beside import programs
from beside.rows import MEASURES, Bench, Client

QUICK = 0.1
ALL = tuple(MEASURES)
WITHOUT_FILES = ("cpu", "burst", "low", "late", "memory")
OURS = "aitrace"


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    title: str
    measure: str
    figures: tuple[str, ...]
    goal: str
    between: str = " / "
    has_ratio: bool = False
    """Whether each cell also says how many times ours it is."""


LINES = (
    Line("CPU per streamed event, µs", "cpu", ("event_us",), "≤ 35", has_ratio=True),
    Line("CPU per call, µs", "cpu", ("call_us",), "≤ 200", has_ratio=True),
    Line(
        "TTFT error, 1,000 streams at 50 tok/s started at once, p50 / p99 ms",
        "burst",
        ("error_ms_p50", "error_ms_p99"),
        "≤ 0.2 / 1",
    ),
    Line(
        "– the server's last events late meanwhile, p50 / p99 ms",
        "burst",
        ("server_late_ms_p50", "server_late_ms_p99"),
        "",
    ),
    Line("– CPU of that run, s", "burst", ("cpu_s",), "", has_ratio=True),
    Line("TTFT error at 20 calls/s, p50 / p99 ms", "low", ("error_ms_p50", "error_ms_p99"), "≤ 0.2 / 0.6"),
    Line("lateness at 1,000 calls/s, p50 / p99 ms", "late", ("late_ms_p50", "late_ms_p99"), "≤ 0.1 / 1.5"),
    Line(
        "first call of a 100,000-call trace, s · CPU s by then · MB",
        "first",
        ("first_s", "cpu_s", "peak_mb"),
        "≤ 1 · – · 200",
        " · ",
    ),
    Line("memory per open stream, KB", "memory", ("stream_kb",), "≤ 4", has_ratio=True),
    Line("– MB of all processes then", "memory", ("peak_mb",), "", has_ratio=True),
    Line(
        "100 prompts of 50,000 tokens: first call, s · CPU s by then · CPU s in all",
        "prompts",
        ("first_s", "cpu_s", "total_cpu_s"),
        "≤ 0.5",
        " · ",
    ),
)


def clients(given: argparse.Namespace) -> list[Client]:
    """Ours, those that come with this repository, and those that were given."""

    def program(function, *values):
        return functools.partial(function, *values)

    def ours(*options):
        return lambda url, work, folder: programs.aitrace(url, work, folder, *options)

    found = [
        Client(OURS, ours(), ALL, has_probes=True),
        Client("aitrace-aiohttp", ours("--transport", "aiohttp"), WITHOUT_FILES, has_probes=True),
        Client("aiohttp", program(programs.bare, "aiohttp"), WITHOUT_FILES),
        Client("protocol", program(programs.bare, "protocol"), WITHOUT_FILES),
    ]
    if given.k6:
        found.append(Client("k6", program(programs.k6, given.k6), WITHOUT_FILES))
    if given.locust:  # it has users, and no rate
        found.append(Client("locust", program(programs.locust, given.locust), ("cpu", "burst", "memory")))
    if given.aiperf:
        found.append(Client("aiperf", program(programs.aiperf, given.aiperf), ALL, is_slow=True))
    if given.inference_perf:
        start = program(programs.inference_perf, given.inference_perf, given.tokenizer)
        found.append(Client("inference-perf", start, ALL, is_slow=True))
    if given.guidellm:
        start = program(programs.guidellm, given.guidellm, given.tokenizer)
        found.append(Client("guidellm", start, ALL, is_slow=True))
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("--k6", "--locust", "--aiperf", "--inference-perf", "--guidellm"):
        parser.add_argument(name, metavar="PROGRAM")
    parser.add_argument("--tokenizer", metavar="FOLDER")
    parser.add_argument("--only", metavar="CLIENT,…", help="default: all that there are")
    parser.add_argument("--rows", metavar="ROW,…", default=",".join(ALL), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument(
        "--scale", type=float, default=1, help="share of the calls; below 1 only to see that it works"
    )
    parser.add_argument(
        "--quick", action="store_const", dest="scale", const=QUICK, help=f"the same as --scale {QUICK}"
    )
    parser.add_argument(
        "--pin", action="store_true", help="the first core for the server, the others for programs"
    )
    parser.add_argument(
        "--keep", metavar="FILE", type=Path, help="add each result here; the table is of all in it"
    )
    given = parser.parse_args()
    for name, known in (("rows", ALL), ("only", [client.name for client in clients(given)])):
        if unknown := set((getattr(given, name) or "").split(",")) - {"", *known}:
            parser.error(f"--{name}: {', '.join(sorted(unknown))} not among {', '.join(known)}")
    if (given.inference_perf or given.guidellm) and not given.tokenizer:
        parser.error("--inference-perf and --guidellm need --tokenizer")
    if given.pin and (os.cpu_count() or 1) < 2:
        parser.error("--pin needs two cores")
    return given


def measure(given: argparse.Namespace) -> Iterable[dict]:
    """All clients of a row one after another, row by row, round by round."""
    only = given.only.split(",") if given.only else None
    chosen = [client for client in clients(given) if only is None or client.name in only]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.scale, given.pin)
        for number in range(given.rounds):
            for row in given.rows.split(","):
                for client in chosen:
                    if row in client.measures:
                        figures = MEASURES[row](bench, client)
                        shown = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
                        print(
                            f"round {number + 1}, {row}, {client.name}: {shown}", file=sys.stderr, flush=True
                        )
                        yield {"round": number, "row": row, "client": client.name, "figures": figures}


def table(results: list[dict]) -> list[str]:
    """Markdown: a line per figure, a column per client, medians of the rounds."""
    names = list(dict.fromkeys(result["client"] for result in results))
    by_row = {}
    for result in results:
        by_row.setdefault((result["row"], result["client"]), []).append(result["figures"])
    lines = ["| same work | " + " | ".join(names) + " | goal |", "| --- " * (len(names) + 2) + "|"]
    for line in LINES:
        if any((line.measure, name) in by_row for name in names):
            cells = [
                cell(line, by_row.get((line.measure, name)), by_row.get((line.measure, OURS)), name)
                for name in names
            ]
            lines.append(f"| {line.title} | {' | '.join(cells)} | {line.goal} |")
    return lines


def cell(line: Line, rounds: list[dict] | None, ours: list[dict] | None, name: str) -> str:
    if rounds is None:
        return ""
    medians = [median([figures.get(name) for figures in rounds]) for name in line.figures]
    text = line.between.join(shown(value) for value in medians)
    if line.has_ratio and ours and name != OURS:
        (figure,) = line.figures
        base = median([figures[figure] for figures in ours])
        if base and not math.isnan(base) and not math.isnan(medians[0]):
            text += f" (× {medians[0] / base:.1f})"
    return text


def median(values: list[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.median(known) if known else float("nan")


def shown(value: float) -> str:
    if math.isnan(value):
        return "failed"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = []
    if given.keep and given.keep.exists():
        results = [orjson.loads(line) for line in given.keep.read_bytes().splitlines()]
    for result in measure(given):
        results.append(result)
        if given.keep:
            with given.keep.open("ab") as stream:
                stream.write(orjson.dumps(result) + b"\n")
    if given.scale != 1:
        print(f"{given.scale:g} of the calls that the table names were made", file=sys.stderr)
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
