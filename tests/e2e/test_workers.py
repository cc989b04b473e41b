"""`aitrace replay` in several processes against the built-in engine, and what is left when one of them is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from aitrace.results import CallResult
from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder, make_trace


def started(trace, directory, url, *options):
    write_trace(directory / "trace.aitrace", trace)
    arguments = [
        "--url",
        url,
        "--protocol",
        "chat",
        "-o",
        str(directory / "run"),
        "--retries",
        "none",
        "--json",
        # These tests are not about a busy machine.
        "--max-lateness",
        "5000",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "aitrace", "replay", str(directory / "trace.aitrace"), *arguments, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def independent_calls(count, output_tokens):
    builder = TraceBuilder()
    for _ in range(count):
        builder.call(builder.session(), [builder.segment(500)], output_tokens=output_tokens)
    return builder.trace()


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(is_so):
    limit = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.02)


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_workers_play_each_call_of_the_plan_once_and_as_one_process_would(tmp_path, engine_url):
    process = started(
        make_trace(sessions=7, calls=3), tmp_path, engine_url, "--workers", "2", "--time-scale", "0.02"
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    run = read_run(tmp_path / "run")
    logged = {
        record["request_id"]: record
        for record in map(orjson.loads, (tmp_path / "log").read_bytes().splitlines())
    }
    assert sorted(call.index for call in run.calls) == list(range(21))
    assert {call.request_id.rpartition("-")[2] for call in run.calls} == {
        str(call.index) for call in run.calls
    }
    for call in run.calls:
        assert call.usage.output_tokens == logged[call.request_id]["output_tokens"] == call.output_tokens
    assert [worker.sent_calls for worker in run.end.workers] == [12, 9]
    assert run.end.sent_calls == 21
    assert run.end.cpu_ns > sum(worker.cpu_ns for worker in run.end.workers)


def test_lanes_are_shared_out(tmp_path, engine_url):
    process = started(independent_calls(6, 60), tmp_path, engine_url, "--workers", "2", "--concurrency", "3")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    calls = read_run(tmp_path / "run").calls
    busiest = max(sum(other.sent_ns <= call.sent_ns < other.end_ns for other in calls) for call in calls)
    assert busiest == 3


def test_a_killed_worker_costs_its_open_calls_and_the_run_says_so(tmp_path, engine_url):
    trace = independent_calls(12, 600)  # 3 s each
    process = started(trace, tmp_path, engine_url, "--workers", "2", "--arrival", "fixed:1/s")
    wait_until(lambda: lines_of(tmp_path / "run" / "calls.jsonl") >= 1)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=60)
    summary = orjson.loads(output)
    run = read_run(tmp_path / "run")
    assert process.returncode == 1, errors
    assert sorted(call.index for call in run.calls) == list(range(12))
    assert [worker.lost for worker in run.end.workers] == [True, False]
    lost = [call for call in run.calls if fate(call) != "complete"]
    assert {call.index % 2 for call in lost} == {0}
    assert {fate(call) for call in lost} == {"worker_lost", "client_abort"}
    assert summary["calls"]["unsent"]["worker_lost"] == sum(fate(call) == "worker_lost" for call in lost)
    assert "1 of 2 replaying processes lost" in errors


def test_calls_that_a_killed_worker_cost_in_the_warm_up_are_of_it(tmp_path, engine_url):
    options = ("--workers", "2", "--arrival", "fixed:2/s", "--warm-up", "60s")
    process = started(independent_calls(8, 200), tmp_path, engine_url, *options)  # 1 s each
    wait_until(lambda: lines_of(tmp_path / "run" / "calls.jsonl") >= 1)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    process.communicate(timeout=60)
    calls = read_run(tmp_path / "run").calls
    assert sorted(call.index for call in calls) == list(range(8))
    assert "worker_lost" in {fate(call) for call in calls}
    assert {call.phase for call in calls} == {"warm_up"}


def fate(call: CallResult) -> str:
    if call.unsent is not None:
        return call.unsent
    return "complete" if call.error is None else call.error


def test_ctrl_c_stops_all_workers_and_keeps_what_they_had(tmp_path, engine_url):
    process = started(
        independent_calls(4, 2000), tmp_path, engine_url, "--workers", "2", "--arrival", "fixed:2/s"
    )
    wait_until(lambda: len(children(process.pid)) == 2)
    workers = children(process.pid)
    wait_until(lambda: lines_of(tmp_path / "run" / "scrapes.jsonl") >= 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    run = read_run(tmp_path / "run")
    assert process.returncode == 1, errors
    assert run.end.interrupted
    assert sorted(call.index for call in run.calls) == list(range(4))
    assert {fate(call) for call in run.calls} <= {"client_abort", "interrupted"}
    assert [Path(f"/proc/{pid}").exists() for pid in workers] == [False, False]


def test_workers_end_when_their_parent_is_killed(tmp_path, engine_url):
    process = started(
        independent_calls(4, 2000), tmp_path, engine_url, "--workers", "2", "--arrival", "fixed:2/s"
    )
    wait_until(lambda: lines_of(tmp_path / "run" / "scrapes.jsonl") >= 2)
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_endpoint_killed_in_mid_run_leaves_what_was_measured(tmp_path, workers):
    engine = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "aitrace",
            "engine",
            "--port",
            "0",
            "--prefill-rate",
            "unlimited",
            "--decode-rate",
            "200",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    url = engine.stdout.readline().removeprefix("listening on ").strip()
    process = started(
        independent_calls(40, 100), tmp_path, url, "--workers", workers, "--arrival", "fixed:20/s"
    )
    wait_until(lambda: lines_of(tmp_path / "run" / "calls.jsonl") >= 3)
    engine.kill()
    engine.wait()
    engine.stdout.close()
    _, errors = process.communicate(timeout=60)
    run = read_run(tmp_path / "run")
    fates = {fate(call) for call in run.calls}
    assert process.returncode == 1, errors
    assert sorted(call.index for call in run.calls) == list(range(40))
    assert fates <= {"complete", "cut", "connect"}
    assert {"complete", "connect"} <= fates
    assert run.end.sent_calls == 40
    assert " tries got no connection" in errors
    assert " calls failed otherwise" in errors
