"""How late the client sends, how far off its times are, and what a call costs, against the built-in engine.

    python bench/replay.py

The engine runs as a process of its own and logs its own times; the two are joined by request id. Both share this
machine's cores, so the numbers are bounds. A row is the median of three runs of about ten seconds each.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson

from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder

AITRACE = [sys.executable, "-m", "aitrace"]
RUNS = 3
SECONDS = 10
LOADS = (
    # calls per second, tokens of a prompt, tokens of an answer
    (20, 1_000, 20),
    (50, 1_000, 100),
    (200, 1_000, 20),
    (20, 100_000, 20),
)


def independent_calls(count: int, prompt_tokens: int, output_tokens: int):
    builder = TraceBuilder()
    for _ in range(count):
        builder.call(builder.session(), [builder.segment(prompt_tokens)], output_tokens=output_tokens)
    return builder.trace()


@contextmanager
def engine(log: Path) -> Iterator[str]:
    options = ["--prefill-rate", "unlimited", "--decode-rate", "200", "--batch", "1000", "--log", str(log)]
    process = subprocess.Popen(
        [*AITRACE, "engine", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait()


def measure(rate: int, prompt_tokens: int, output_tokens: int) -> tuple[float, ...]:
    """Lateness p50, p99 and TTFT error p50, p99 in ms, CPU per call in ms."""
    with tempfile.TemporaryDirectory() as folder:
        trace, run, log = Path(folder, "t.aitrace"), Path(folder, "run"), Path(folder, "log")
        write_trace(trace, independent_calls(rate * SECONDS, prompt_tokens, output_tokens))
        with engine(log) as url:
            options = ["--url", url, "--protocol", "chat", "--arrival", f"poisson:{rate}/s", "-o", str(run)]
            subprocess.run([*AITRACE, "replay", str(trace), *options], check=False, capture_output=True)
        truth = {record["request_id"]: record for record in map(orjson.loads, log.read_bytes().splitlines())}
        played = read_run(run)
    done = [call for call in played.calls if call.error is None and call.first_token_ns is not None]
    assert len(done) == rate * SECONDS, f"{len(done)} of {rate * SECONDS} calls complete"
    late = [call.sent_ns - call.due_ns for call in done]
    off = [
        call.first_token_ns
        - call.sent_ns
        - (truth[call.request_id]["first_token_ns"] - truth[call.request_id]["head_ns"])
        for call in done
    ]
    quantiles = [np.quantile(values, q) / 1e6 for values in (late, off) for q in (0.5, 0.99)]
    return (*quantiles, played.end.cpu_ns / len(done) / 1e6)


def main() -> None:
    print(
        "| calls/s | prompt tokens | answer tokens | lateness p50 / p99 ms | TTFT error p50 / p99 ms | CPU ms per call |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for load in LOADS:
        rows = [measure(*load) for _ in range(RUNS)]
        late50, late99, off50, off99, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"| {load[0]} | {load[1]:,} | {load[2]} | {late50:.2f} / {late99:.2f} | {off50:.2f} / {off99:.2f} | {cpu:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
