"""What AIPerf's own aggregation of records costs; to be run with the Python of AIPerf's environment.

    AIPERF_PYTHON bench/beside/aiperf_aggregation.py RECORDS TOKENS

AIPerf has no command that reads its records again, so this does what its records manager does: each record, as it comes
from `profile_export.jsonl`, goes into the accumulator of metrics, and that is asked for the summary. TOKENS are those of an
answer: a record carries the time before each. Prints CPU seconds for reading the lines, for taking the records in, and for
the summary, and the process's peak MiB, as JSON.
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from aiperf.common.messages import MetricRecordsData
from aiperf.common.models.record_models import MetricRecordInfo
from aiperf.metrics.accumulator import MetricsAccumulator

BEGAN_NS = 1_796_013_367_000_000_000
CONFIG = SimpleNamespace(
    endpoint=SimpleNamespace(type="chat", streaming=True, use_server_token_count=True),
    artifacts=SimpleNamespace(slice_duration=None),
    slos=None,
    accuracy=None,
    get_profiling_phases=list,
)


def record(number: int, tokens: int) -> dict[str, object]:
    """A record as AIPerf 0.13.0 writes it, with the metrics of a streamed chat completion."""
    at_ns = BEGAN_NS + number * 1_000_000
    ttft_ms, itl_ms = 200 + number % 97, 12 + number % 7 / 10
    latency_ms = ttft_ms + itl_ms * (tokens - 1)
    values: dict[str, tuple[object, str]] = {
        "request_latency": (latency_ms, "ms"),
        "time_to_first_token": (ttft_ms, "ms"),
        "time_to_second_token": (itl_ms, "ms"),
        "time_to_first_output_token": (ttft_ms, "ms"),
        "inter_token_latency": (itl_ms, "ms"),
        "inter_chunk_latency": ([itl_ms] * (tokens - 1), "ms"),
        "decode_duration": (latency_ms - ttft_ms, "ms"),
        "input_sequence_length": (8000, "tokens"),
        "output_sequence_length": (tokens, "tokens"),
        "output_token_count": (tokens, "tokens"),
        "usage_prompt_tokens": (8000, "tokens"),
        "usage_prompt_cache_read_tokens": (6000, "tokens"),
        "usage_completion_tokens": (tokens, "tokens"),
        "usage_total_tokens": (8000 + tokens, "tokens"),
        "output_token_throughput_per_user": (1000 / itl_ms, "tokens/sec/user"),
        "prefill_throughput_per_user": (8_000_000 / ttft_ms, "tokens/sec/user"),
        "e2e_output_token_throughput": (tokens * 1000 / latency_ms, "tokens/sec/user"),
    }
    return {
        "metadata": {
            "session_num": number,
            "x_request_id": f"request-{number}",
            "x_correlation_id": f"session-{number // 35}",
            "conversation_id": f"conversation-{number // 35}",
            "turn_index": number % 35,
            "credit_issued_ns": at_ns,
            "request_start_ns": at_ns + 100_000,
            "request_ack_ns": at_ns + 200_000,
            "request_end_ns": at_ns + round(latency_ms * 1_000_000),
            "worker_id": "worker_0",
            "record_processor_id": "record_processor_0",
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()},
    }


async def aggregate(path: Path) -> dict[str, float]:
    accumulator = MetricsAccumulator(run=SimpleNamespace(cfg=CONFIG))
    read_s = take_s = 0.0
    count = 0
    with path.open("rb") as stream:
        for line in stream:
            begun_s = time.process_time()
            one = MetricRecordInfo.model_validate_json(line)
            was_read_s = time.process_time()
            metrics = {name: metric.value for name, metric in one.metrics.items()}
            await accumulator.process_record(MetricRecordsData(metadata=one.metadata, metrics=metrics))
            read_s += was_read_s - begun_s
            take_s += time.process_time() - was_read_s
            count += 1
    begun_s = time.process_time()
    summary = await accumulator.summarize()
    assert summary.results["request_latency"].count == count
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "read_s": read_s,
        "take_s": take_s,
        "summary_s": time.process_time() - begun_s,
        "peak_mib": peak_mib,
    }


def main() -> None:
    count, tokens = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "profile_export.jsonl")
        with path.open("w") as stream:
            for number in range(count):
                stream.write(json.dumps(record(number, tokens)) + "\n")
        print(json.dumps(asyncio.run(aggregate(path))))


if __name__ == "__main__":
    main()
