"""Trials of the client against the built-in engine: what they find, and where it is kept."""

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import make_trace
from replayer.client_check import SECONDS


@pytest.fixture
def trace_path(tmp_path):
    path = tmp_path / "small.aitrace"
    write_trace(path, make_trace(sessions=6, calls=1))
    return path


def test_calibrate_states_error_bars_at_the_plans_peak(trace_path):
    arguments = ["calibrate", str(trace_path), "--arrival", "fixed:4/s", "--protocol", "anthropic"]
    result = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    check = orjson.loads(result.stdout)
    assert result.exit_code == 0, result.output
    # Four calls a second of 100 tokens each, which take a second.
    assert (check["calls_per_s"], check["output_tokens"]) == (4.0, 100)
    assert (check["calls"], check["failed_calls"], check["workers"]) == (4 * SECONDS, 0, 1)
    assert check["ttft_error_p50_ns"] <= check["ttft_error_p99_ns"]
    assert 0 <= check["lateness_p50_ns"] <= check["lateness_p99_ns"]
    assert 0 < check["cpu_per_event_ns"] < check["cpu_per_call_ns"]
    assert check["in_doubt"] == []


def test_a_run_keeps_what_its_self_check_found(trace_path, tmp_path, engine_url):
    options = ["--protocol", "chat", "--arrival", "fixed:4/s", "--retries", "none", "--self-check"]
    arguments = ["replay", str(trace_path), "--url", engine_url, "-o", str(tmp_path / "run"), *options]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    check = read_run(tmp_path / "run").header.client_check
    assert "TTFT error  p50" in result.output
    assert (check.calls_per_s, check.calls) == (4.0, 4 * SECONDS)
