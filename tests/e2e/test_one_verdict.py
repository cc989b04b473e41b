"""`aitrace replay` at its end and `aitrace report` on what it left judge a run alike, whatever became of it."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import make_trace
from replayer.engine.options import EngineOptions, parse_fault
from replayer.engine.testing import engine_on_thread
from tests.e2e.http_server import Quiet, served

QUICK = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=5000.0, step_ns=0)
SLOW = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=50.0, step_ns=0)
FULL = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=500.0, batch=1, queue=1)

CANNOT_KNOW = {
    "cache_above_bound": "the replay does not compute what an unlimited cache could have served",
    "lines_lost": "the replay reads nothing back from its files",
    "run_cut": "a replay that says anything at its end has written it",
}
"""Doubts of a report that the replay's own end cannot have, and why."""


def weighing(doubts: list[dict]) -> set[str]:
    return {doubt["name"] for doubt in doubts if doubt["weighs"]}


def judged_by_report(run: Path) -> set[str]:
    result = CliRunner().invoke(main, ["report", str(run), "--json", "--no-html"], catch_exceptions=False)
    stated = orjson.loads(result.stdout)["verdict"]
    assert result.exit_code == (0 if stated["fine"] else 1)
    return weighing(stated["doubts"]) - set(CANNOT_KNOW)


def arguments(trace: Trace, folder: Path, url: str, *options: str) -> list[str]:
    write_trace(folder / "trace.aitrace", trace)
    given = [
        "replay",
        str(folder / "trace.aitrace"),
        "--url",
        url,
        "--protocol",
        "chat",
        "--json",
        "--time-scale",
        "0",
    ]
    return [*given, "-o", str(folder / "run"), "--workers", "1", "--max-lateness", "60000", *options]


def judged_by_both(trace: Trace, folder: Path, url: str, *options: str) -> set[str]:
    """Names of the doubts that weigh, of which both say the same."""
    result = CliRunner().invoke(main, arguments(trace, folder, url, *options), catch_exceptions=False)
    summary = orjson.loads(result.stdout)
    names = weighing(summary["doubts"])
    assert names == judged_by_report(folder / "run")
    assert len(summary["in_doubt"]) == len(names)
    assert (result.exit_code, summary["exit_code"]) == ((1, 1) if names else (0, 0))
    return names


def test_a_run_that_went_well_is_fine_to_both(tmp_path):
    with engine_on_thread(QUICK) as target:
        assert judged_by_both(make_trace(sessions=10, calls=3), tmp_path, target.url) == set()


def test_a_short_run_is_fine_to_both(tmp_path):
    with engine_on_thread(QUICK) as target:
        assert judged_by_both(make_trace(sessions=2, calls=3), tmp_path, target.url) == set()


def test_refused_calls_and_the_sessions_that_they_end_are_named_by_both(tmp_path):
    together = ("--arrival", "together", "--retries", "none")
    with engine_on_thread(FULL) as target:
        names = judged_by_both(make_trace(sessions=40, calls=2), tmp_path, target.url, *together)
    assert {"refusals", "lost_sessions"} <= names


def test_a_client_that_is_late_is_named_by_both(tmp_path):
    with engine_on_thread(QUICK) as target:
        names = judged_by_both(make_trace(sessions=10, calls=3), tmp_path, target.url, "--max-lateness", "0")
    assert {"client_late", "loop_lag"} <= names


def test_warm_up_calls_that_fail_are_no_doubt_to_either(tmp_path):
    options = ("--arrival", "together", "--retries", "none", "--warm-up", "40 trees")
    with engine_on_thread(FULL) as target:
        names = judged_by_both(make_trace(sessions=40, calls=2), tmp_path, target.url, *options)
    assert "refusals" not in names


def test_a_run_cut_at_the_end_of_its_duration_is_judged_alike(tmp_path):
    options = ("--arrival", "fixed:40/s", "--duration", "1s")
    with engine_on_thread(QUICK) as target:
        assert judged_by_both(make_trace(sessions=2, calls=2), tmp_path, target.url, *options) == set()


def test_an_endpoint_that_is_gone_is_named_by_both(tmp_path):
    """It answers until a call has ended, and then takes no connection any more."""
    options = ("--no-metrics", "--retries", "none", "--arrival", "fixed:20/s")
    with engine_on_thread(QUICK) as target:
        port = int(target.url.rpartition(":")[2])
        with gate(port, until=tmp_path / "run" / "calls.jsonl") as open_port:
            url = f"http://127.0.0.1:{open_port}"
            names = judged_by_both(make_trace(sessions=20, calls=1), tmp_path, url, *options)
    assert {"unreachable", "errors", "lost_sessions"} <= names


def test_counters_that_fall_and_pages_that_fail_are_named_by_both(tmp_path):
    with engine_on_thread(SLOW) as target, pages() as url:
        options = ("--metrics", f"{url}/restarted", "--metrics", f"{url}/failing", "--metrics-every", "0.2")
        names = judged_by_both(make_trace(sessions=20, calls=1), tmp_path, target.url, *options)
    assert names == {"engine_restarted", "scrape_holes"}


def test_a_run_of_several_processes_is_judged_alike(tmp_path):
    with engine_on_thread(FULL) as target:
        options = ("--workers", "2", "--arrival", "together", "--retries", "none")
        names = judged_by_both(make_trace(sessions=40, calls=2), tmp_path, target.url, *options)
    assert {"refusals", "lost_sessions"} <= names


def test_an_interrupted_run_is_judged_alike(tmp_path):
    with engine_on_thread(SLOW) as target:
        command = arguments(make_trace(sessions=4, calls=20), tmp_path, target.url)
        process = subprocess.Popen(
            [sys.executable, "-m", "aitrace", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        calls = tmp_path / "run" / "calls.jsonl"
        limit = time.monotonic() + 30
        while not (calls.exists() and calls.stat().st_size):
            assert time.monotonic() < limit, "no call ended"
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    names = weighing(orjson.loads(out)["doubts"])
    assert names == judged_by_report(tmp_path / "run"), err
    assert "interrupted" in names


def test_prompts_that_miss_their_size_are_named_by_both(tmp_path):
    with engine_on_thread(QUICK) as target:
        names = judged_by_both(
            make_trace(sessions=10, calls=3), tmp_path, target.url, "--tokens-per-word", "3"
        )
    assert "prompt_size_off" in names


@pytest.mark.parametrize(
    "fault", ["cut=5", "error=5", "refuse=429", "refuse=503:1", "stall=5:3", "slow-headers=3"]
)
def test_answers_that_go_wrong_in_any_way_are_judged_alike(tmp_path, fault):
    options = replace(QUICK, fault=parse_fault(fault), fault_ratio=0.3, seed=0)
    with engine_on_thread(options) as target:
        names = judged_by_both(
            make_trace(sessions=30, calls=1), tmp_path, target.url, "--retries", "none", "--timeout", "1"
        )
    assert names


@contextmanager
def gate(port: int, *, until: Path) -> Iterator[int]:
    """A port that passes connections on until a file has lines, and then is shut with all of them."""
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)

    def pass_on() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", port))
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    def shut() -> None:
        while not (until.exists() and until.stat().st_size):
            time.sleep(0.01)
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threads = [threading.Thread(target=work) for work in (pass_on, shut)]
    for thread in threads:
        thread.start()
    yield listener.getsockname()[1]
    for thread in threads:
        thread.join()
    for end in ends:
        end.close()


@contextmanager
def pages() -> Iterator[str]:
    """Metrics pages: one of an engine that begins anew, one that cannot be read after its first reading."""
    read = {"/restarted": 0, "/failing": 0}

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self):
            read[self.path] += 1
            is_away = self.path == "/failing" and read[self.path] > 1
            total = 100 if read[self.path] < 4 else 7
            body = b"" if is_away else b"vllm:num_requests_running 0\nvllm:num_preemptions_total %d\n" % total
            self.send_response(503 if is_away else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with served(Handler) as url:
        yield url
