"""What is left when a part of a run is killed: `aitrace report` of what is on disk against the engine's log."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from aitrace.cli import main
from aitrace.results import CallResult
from aitrace.runstore import read_run
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder

AITRACE = [sys.executable, "-m", "aitrace"]
PATIENCE_S = 30


class EngineProcess:
    """An engine that can be killed and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0
        self._process: subprocess.Popen | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._lives += 1
        log = self._folder / f"engine-{self._lives}.jsonl"
        speed = ["--prefill-rate", "unlimited", "--decode-rate", "200"]
        self._process = subprocess.Popen(
            [*AITRACE, "engine", "--port", str(self.port), "--log", str(log), *speed],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.port = int(self._process.stdout.readline().rpartition(":")[2])

    def kill(self) -> None:
        if self._process is not None:
            # The client sees an answer's end a moment before the engine has its line of it.
            time.sleep(0.05)
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def lines(self) -> list[dict]:
        """Lines of all its lives, without those of probes."""
        logs = (self._folder / f"engine-{life}.jsonl" for life in range(1, self._lives + 1))
        lines = [orjson.loads(line) for log in logs for line in log.read_bytes().splitlines()]
        return [line for line in lines if line["request_id"] is not None]


@pytest.fixture
def engine(tmp_path):
    process = EngineProcess(tmp_path)
    process.start()
    yield process
    process.kill()


def sessions_of(count: int, *, output_tokens: int, calls: int = 2) -> Trace:
    builder = TraceBuilder()
    for _ in range(count):
        session = builder.session(harness="codex")
        for _ in range(calls):
            builder.call(session, [builder.segment(100)], output_tokens=output_tokens)
    return builder.trace()


def start_replay(trace: Trace, folder: Path, url: str, *options: str) -> subprocess.Popen:
    write_trace(folder / "trace.aitrace", trace)
    given = ["--url", url, "--protocol", "chat", "-o", str(folder / "run"), "--json", "--time-scale", "0.01"]
    given += ["--max-lateness", "5000"]
    return subprocess.Popen(
        [*AITRACE, "replay", str(folder / "trace.aitrace"), *given, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def report(folder: Path, *options: str) -> Result:
    """The report of what is on disk; a run like these is in doubt, and never an error."""
    result = CliRunner().invoke(main, ["report", str(folder / "run"), *options], catch_exceptions=False)
    assert result.exit_code == 1, result.output
    return result


def numbers_and_doubts(folder: Path) -> tuple[dict, dict[str, str]]:
    stated = orjson.loads(report(folder, "--json", "--no-html").stdout)
    return stated["numbers"], {doubt["name"]: doubt["what"] for doubt in stated["verdict"]["doubts"]}


def wait_until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < limit, "what was waited for did not happen"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_calls(folder: Path, count: int) -> None:
    path = folder / "run" / "calls.jsonl"
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


def complete_calls(folder: Path) -> dict[str, CallResult]:
    calls = read_run(folder / "run").calls
    return {call.request_id: call for call in calls if call.error is None and call.unsent is None}


def check_what_was_measured(folder: Path, engine: EngineProcess, numbers: dict) -> None:
    """The figures of complete calls are those of the engine's lines for them."""
    kept = complete_calls(folder)
    ended = {line["request_id"]: line for line in engine.lines() if line["outcome"] == "complete"}
    assert kept.keys() <= ended.keys()
    assert numbers["complete_calls"] == len(kept) > 0
    assert numbers["input_tokens"] == sum(ended[id_]["prompt_tokens"] for id_ in kept)
    assert numbers["cache_reported_tokens"] == sum(ended[id_]["cached_tokens"] for id_ in kept)
    assert numbers["output_tokens"] == sum(ended[id_]["output_tokens"] for id_ in kept)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_of_a_replay_that_was_killed_what_had_ended_is_reported(tmp_path, engine, workers):
    process = start_replay(
        sessions_of(20, output_tokens=60),
        tmp_path,
        engine.url,
        "--workers",
        workers,
        "--arrival",
        "fixed:10/s",
    )
    wait_for_calls(tmp_path, 4)
    parts = children(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in parts))
    # What was in flight is cut at the engine, and so in its log, once it has seen the connections go.
    kept = len(read_run(tmp_path / "run").calls)
    wait_until(lambda: any(line["outcome"] == "client_gone" for line in engine.lines()))
    numbers, doubts = numbers_and_doubts(tmp_path)
    check_what_was_measured(tmp_path, engine, numbers)
    assert doubts["run_cut"] == f"the run has no end record, and {40 - kept} planned calls left no result"
    assert (numbers["planned_calls"], numbers["missing_calls"]) == (40, 40 - kept)
    assert "run_cut" in doubts
    assert "calls_missing" not in doubts
    assert numbers["complete_sessions"] <= sum(
        call.turn_index == 1 for call in complete_calls(tmp_path).values()
    )
    text = report(tmp_path)
    assert text.stdout.startswith("in doubt: the run has no end record")
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!doctype html>")


def test_a_line_that_the_kill_cut_is_counted_and_the_others_are_reported(tmp_path, engine):
    process = start_replay(
        sessions_of(20, output_tokens=20), tmp_path, engine.url, "--workers", "1", "--arrival", "fixed:10/s"
    )
    wait_for_calls(tmp_path, 4)
    process.kill()
    process.communicate()
    kept = complete_calls(tmp_path)
    with (tmp_path / "run" / "calls.jsonl").open("ab") as file:
        file.write(b'{"index":39,"call":')
    numbers, doubts = numbers_and_doubts(tmp_path)
    check_what_was_measured(tmp_path, engine, numbers)
    assert numbers["complete_calls"] == len(kept)
    assert doubts["lines_lost"] == "1 line of the run's files unreadable"


def test_of_a_worker_that_was_killed_the_report_says_what_went_with_it(tmp_path, engine):
    process = start_replay(
        sessions_of(20, output_tokens=60), tmp_path, engine.url, "--workers", "2", "--arrival", "fixed:10/s"
    )
    wait_for_calls(tmp_path, 4)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, errors
    summary = orjson.loads(output)
    numbers, doubts = numbers_and_doubts(tmp_path)
    check_what_was_measured(tmp_path, engine, numbers)
    assert doubts["workers_lost"] == "1 of 2 replaying processes lost"
    # All calls are accounted for, and the sessions of the process that was lost are cut, not lost to the endpoint.
    assert numbers["complete_calls"] + numbers["stopped_calls"] + numbers["unsent_calls"] == 40
    assert numbers["missing_calls"] == numbers["lost_sessions"] == summary["sessions"]["lost"] == 0
    assert numbers["censored_sessions"] == summary["sessions"]["stopped"] > 0
    assert numbers["complete_sessions"] + numbers["censored_sessions"] == 20
    gone = [line for line in engine.lines() if line["outcome"] == "client_gone"]
    assert numbers["stopped_calls"] >= len(gone) > 0
    page = report(tmp_path)
    assert "in doubt: 1 of 2 replaying processes lost" in page.stdout
    assert "its process was lost" in (tmp_path / "run" / "report.html").read_text()


def test_of_an_endpoint_that_was_killed_the_report_has_what_it_had_served(tmp_path, engine):
    process = start_replay(
        sessions_of(20, output_tokens=60),
        tmp_path,
        engine.url,
        *("--workers", "1", "--arrival", "fixed:10/s", "--retries", "none", "--metrics-every", "0.1"),
    )
    wait_for_calls(tmp_path, 4)
    engine.kill()
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, errors
    summary = orjson.loads(output)
    numbers, doubts = numbers_and_doubts(tmp_path)
    check_what_was_measured(tmp_path, engine, numbers)
    assert numbers["complete_calls"] == sum(line["outcome"] == "complete" for line in engine.lines())
    assert numbers["failed_calls"] == sum(summary["calls"]["failed"].values()) > 0
    assert numbers["complete_calls"] + numbers["failed_calls"] + numbers["unsent_calls"] == 40
    assert numbers["lost_sessions"] == summary["sessions"]["lost"] == 20 - numbers["complete_sessions"]
    assert {"errors", "lost_sessions", "scrape_holes"} <= doubts.keys()
    assert "engine_restarted" not in doubts


def test_an_endpoint_that_comes_back_gets_the_calls_again_and_the_report_says_that_it_was_away(
    tmp_path, engine
):
    process = start_replay(
        sessions_of(12, output_tokens=40),
        tmp_path,
        engine.url,
        *("--workers", "1", "--arrival", "fixed:8/s", "--metrics-every", "0.1"),
    )
    wait_for_calls(tmp_path, 6)
    engine.kill()
    time.sleep(1)
    engine.start()
    output, errors = process.communicate(timeout=PATIENCE_S)
    summary = orjson.loads(output)
    assert process.returncode == 1, errors
    assert b" tries got no connection" in errors
    numbers, doubts = numbers_and_doubts(tmp_path)
    check_what_was_measured(tmp_path, engine, numbers)
    assert (numbers["complete_calls"], numbers["lost_sessions"]) == (24, 0)
    tries = [one for call in read_run(tmp_path / "run").calls for one in (*call.attempts, call)]
    unlogged = [one for one in tries if one.error is not None]
    assert {one.error for one in unlogged} <= {"connect", "cut"}
    assert any(one.error == "connect" for one in unlogged)
    assert len(tries) - len(unlogged) == len(engine.lines()) == 24
    assert numbers["tries"] == sum(one.sent_ns is not None for one in tries)
    assert numbers["backoff_s"] == pytest.approx(summary["calls"]["backoff_s"], abs=1e-3)
    assert numbers["retried_calls"] == summary["calls"]["retried"] > 0
    assert doubts["engine_restarted"].startswith("the engine was restarted during the run")
    assert "tries got no connection" in doubts["unreachable"]
    assert (numbers["engine_query_tokens"], numbers["engine_hit_tokens"]) == (None, None)
