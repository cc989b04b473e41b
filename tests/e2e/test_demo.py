"""`aitrace demo`: one command leaves a run and a page, and nothing where it cannot begin."""

import os
import signal
import subprocess
import sys
import time

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder


def demo(*arguments):
    return CliRunner().invoke(main, ["demo", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def small(tmp_path):
    builder = TraceBuilder()
    session = builder.session(harness="codex")
    builder.call(session, [builder.segment(500)], output_tokens=5)
    builder.call(session, [builder.segment(5, role="assistant"), builder.segment(100)], output_tokens=5)
    path = tmp_path / "small.aitrace"
    write_trace(path, builder.trace())
    return path


def test_a_demo_leaves_a_run_an_engine_log_and_a_page(small, tmp_path):
    result = demo(small, "-o", tmp_path / "out")
    # Eighteen calls are too few for some percentiles, which the report may say.
    assert result.exit_code in (0, 1)
    assert f"report: {tmp_path / 'out' / 'report.html'}" in result.stdout
    calls = read_run(tmp_path / "out" / "run").calls
    log = (tmp_path / "out" / "engine.jsonl").read_bytes().splitlines()
    answered = {orjson.loads(line)["request_id"] for line in log}
    assert len(calls) == 18
    assert {call.request_id for call in calls} <= answered


def test_a_demo_of_no_trace_leaves_nothing(tmp_path):
    result = demo(tmp_path / "none.aitrace", "-o", tmp_path / "out")
    assert (result.exit_code, "none.aitrace" in result.stderr) == (3, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_what_no_demo_wrote_is_never_replaced(small, tmp_path, options):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").write_text("mine")
    result = demo(small, "-o", tmp_path / "out", *options)
    assert (result.exit_code, "'precious.txt'" in result.stderr) == (2, True)
    assert (tmp_path / "out" / "precious.txt").read_text() == "mine"


def test_ctrl_c_ends_the_replay_and_the_page_tells_of_what_ran(tmp_path):
    builder = TraceBuilder()
    session = builder.session()
    for _ in range(30):
        builder.call(session, [builder.segment(100)], output_tokens=5)
    trace, out = tmp_path / "long.aitrace", tmp_path / "out"
    write_trace(trace, builder.trace())
    command = [sys.executable, "-m", "aitrace", "demo", str(trace), "-o", str(out), "--time-scale", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        until = time.monotonic() + 30
        while time.monotonic() < until and not (out / "run" / "calls.jsonl").is_file():
            time.sleep(0.1)
        time.sleep(1)
        # As a terminal does: to the whole foreground group.
        os.killpg(process.pid, signal.SIGINT)
        stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, b"report: " in stdout) == (1, True)
    assert read_run(out / "run").end.interrupted
    assert (out / "report.html").is_file()
