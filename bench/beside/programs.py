"""How each program is told to do a piece of work, and where it says what it measured.

A program is a function of the server's URL, the work and a folder of its own. It gives a command, and what reads that
program's own TTFT when it has ended.
"""

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Work:
    """Equal calls, none of which waits for another: in lanes, or at a rate."""

    calls: int
    tokens: int
    """Of an answer."""
    prompt_tokens: int = 30
    lanes: int = 0
    """Calls open at a time."""
    at_once: bool = False
    """Whether all are due at the same time; there are as many lanes then."""
    rate: int = 0
    """Calls per second, if not in lanes."""
    is_trace: bool = False
    """Whether the times are in a trace file that the program reads."""


@dataclass
class Said:
    """What a client says: TTFT in ms by request id, of each call, or the median and p99 of all."""

    by_id: dict[str, float] = field(default_factory=dict)
    all_ms: list[float] = field(default_factory=list)
    quantiles_ms: tuple[float, float] | None = None


@dataclass
class Command:
    arguments: list[str]
    read: Callable[[], Said]
    environment: dict[str, str] = field(default_factory=dict)


def trace_of_ours(path: Path, work: Work) -> Path:
    """The work as a trace, made once."""
    if not path.exists():
        builder = TraceBuilder()
        for number in range(work.calls):
            at_ns = number * 10**9 // work.rate if work.rate else 0
            segment = builder.segment(work.prompt_tokens)
            builder.call(builder.session(), [segment], output_tokens=work.tokens, at_ns=at_ns)
        write_trace(path, builder.trace())
    return path


def aitrace(url: str, work: Work, folder: Path, *options: str) -> Command:
    shape = (work.calls, work.tokens, work.prompt_tokens, work.rate)
    trace = trace_of_ours(folder.parent / f"{'-'.join(map(str, shape))}.aitrace", work)
    what = [
        "--url",
        url,
        "--protocol",
        "chat",
        "--model",
        "mock",
        "--tokens-per-word",
        "1",
        "--retries",
        "none",
    ]
    if work.rate:
        how = ["--arrival", "recorded" if work.is_trace else f"fixed:{work.rate}/s"]
    elif work.at_once:
        how = ["--arrival", "together"]
    else:
        how = ["--concurrency", str(work.lanes)]
    run = folder / "run"
    command = [
        sys.executable,
        "-m",
        "aitrace",
        "replay",
        str(trace),
        *what,
        *how,
        "--no-metrics",
        "--no-live",
    ]

    def read() -> Said:
        done = [call for call in read_run(run).calls if call.first_token_ns is not None]
        return Said(by_id={call.request_id: (call.first_token_ns - call.sent_ns) / 1e6 for call in done})

    return Command([*command, *options, "-o", str(run)], read)


def bare(client: str, url: str, work: Work, folder: Path) -> Command:
    out = folder / "bare.csv"
    values = (client, url, work.calls, work.lanes, work.rate, out)

    def read() -> Said:
        with out.open() as stream:
            return Said(by_id={name: float(ms) for name, ms in csv.reader(stream)})

    return Command([sys.executable, str(HERE / "bare.py"), *map(str, values)], read)


def k6(program: str, url: str, work: Work, folder: Path) -> Command:
    out = folder / "k6.json"
    values = {"RATE": work.rate, "SECONDS": max(1, work.calls // work.rate) if work.rate else 0}
    values |= {"LANES": min(work.lanes, work.calls), "CALLS": work.calls}
    environment = {"URL": f"{url}/v1/chat/completions", "GOMAXPROCS": "1", "K6_NO_USAGE_REPORT": "true"}
    environment |= {name: str(value) for name, value in values.items()}

    def read() -> Said:
        times = orjson.loads(out.read_bytes())["metrics"]["http_req_waiting"]
        return Said(quantiles_ms=(times["med"], times["p(99)"]))

    command = [program, "run", "-q", "--no-color", "--summary-export", str(out), str(HERE / "k6.js")]
    return Command(command, read, environment)


def locust(program: str, url: str, work: Work, folder: Path) -> Command:
    out = folder / "locust.csv"

    def read() -> Said:
        with out.open() as stream:
            return Said(by_id={name: float(ms) for name, ms in csv.reader(stream)})

    how = [
        "--headless",
        "-u",
        str(work.lanes),
        "-r",
        str(work.lanes),
        "--only-summary",
        "--loglevel",
        "WARNING",
    ]
    command = [program, "-f", str(HERE / "locustfile.py"), "--host", url, *how]
    return Command(command, read, {"CALLS": str(work.calls), "OUT": str(out)})


def aiperf(program: str, url: str, work: Work, folder: Path) -> Command:
    out = folder / "aiperf"
    what = ["-m", "mock", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", "builtin"]
    if work.is_trace:
        trace = mooncake(folder, work, per_second=1000)
        how = ["--input-file", str(trace), "--custom-dataset-type", "mooncake_trace", "--fixed-schedule"]
    else:
        how = ["--isl", str(work.prompt_tokens), "--osl", str(work.tokens)]
        how += ["--num-dataset-entries", str(min(100, work.calls)), "--request-count", str(work.calls)]
        at_rate = ["--request-rate", str(work.rate), "--arrival-pattern", "constant"]
        how += at_rate if work.rate else ["--concurrency", str(work.lanes)]

    def read() -> Said:
        rows = [orjson.loads(line) for line in (out / "profile_export.jsonl").read_bytes().splitlines()]
        times = [row["metrics"].get("time_to_first_token") for row in rows]
        return Said(all_ms=[one["value"] for one in times if one])

    return Command([program, "profile", *what, *how, "--ui", "none", "--artifact-dir", str(out)], read)


def inference_perf(program: str, tokenizer: str, url: str, work: Work, folder: Path) -> Command:
    def sizes(tokens: int) -> dict[str, int]:
        return {"min": tokens, "max": tokens, "mean": tokens, "std_dev": 0, "total_count": work.calls}

    data = {"input_distribution": sizes(work.prompt_tokens), "output_distribution": sizes(work.tokens)}
    if work.is_trace:
        trace = {"file": str(azure(folder, work)), "format": "AzurePublicDataset"}
        data = {"trace": trace}
        # The stage is asked for and not looked at.
        load = {"type": "trace_replay", "stages": [{"rate": 1, "duration": 1}], "trace": trace}
    elif work.rate:
        stage = {"rate": work.rate, "duration": max(1, work.calls // work.rate)}
        load = {"type": "constant", "stages": [stage]}
    else:
        stage = {"num_requests": work.calls, "concurrency_level": work.lanes}
        load = {"type": "concurrent", "stages": [stage]}
    config = {
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "mock", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": tokenizer},
        "data": {"type": "random", **data},
        "load": {**load, "num_workers": 1, "worker_max_concurrency": 20_000},
        "storage": {"local_storage": {"path": str(folder / "ip")}},
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
    }
    path = folder / "ip.json"
    path.write_bytes(orjson.dumps(config))

    def read() -> Said:
        (summary,) = (folder / "ip").rglob("summary_lifecycle_metrics.json")
        times = orjson.loads(summary.read_bytes())["successes"]["latency"]["time_to_first_token"]
        return Said(quantiles_ms=(times["median"] * 1000, times["p99"] * 1000))

    return Command([program, "-c", str(path)], read, {"HF_HUB_OFFLINE": "1"})


def guidellm(program: str, tokenizer: str, url: str, work: Work, folder: Path) -> Command:
    out = folder / "guidellm.json"
    what = [
        "--backend",
        f"kind=openai_http,target={url},model=mock",
        "--tokenizer",
        f"kind=hf_auto,model={tokenizer}",
    ]
    if work.is_trace:
        trace = mooncake(folder, work, per_second=1, has_blocks=False)
        data = f"kind=trace_synthetic,source.kind=json_file,source.path={trace}"
        how = ["--profile", "kind=replay", "--data", data]
    else:
        sizes = f"prompt_tokens={work.prompt_tokens},output_tokens={work.tokens}"
        shape = f"kind=constant,rate={work.rate}" if work.rate else f"kind=concurrent,streams={work.lanes}"
        how = ["--data", f"kind=synthetic_text,{sizes}", "--profile", shape]
        how += ["--constraint", f"kind=max_requests,count={work.calls}"]

    def read() -> Said:
        done = orjson.loads(out.read_bytes())["benchmarks"][0]["requests"]["successful"]
        return Said(all_ms=[call["time_to_first_token_ms"] for call in done])

    command = [program, "run", *what, *how, "--output", f"kind=json,path={out}", "--disable-console"]
    return Command(command, read, {"HF_HUB_OFFLINE": "1"})


def mooncake(folder: Path, work: Work, *, per_second: int, has_blocks: bool = True) -> Path:
    """The work as a trace with a line per call; no two prompts have a block in common."""
    path = folder / "trace.jsonl"
    sizes = {"input_length": work.prompt_tokens, "output_length": work.tokens}
    with path.open("wb") as stream:
        for number in range(work.calls):
            blocks = {"hash_ids": [number]} if has_blocks else {}
            stream.write(
                orjson.dumps({"timestamp": number * per_second / work.rate, **sizes, **blocks}) + b"\n"
            )
    return path


def azure(folder: Path, work: Work) -> Path:
    """The work as a CSV of times and sizes."""
    path, start = folder / "trace.csv", datetime(2024, 5, 10, tzinfo=UTC)
    with path.open("w") as stream:
        stream.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for number in range(work.calls):
            at = start + timedelta(seconds=number / work.rate)
            stream.write(f"{at:%Y-%m-%d %H:%M:%S.%f},{work.prompt_tokens},{work.tokens}\n")
    return path
