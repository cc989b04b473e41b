"""`aitrace search`, `replay --ab` and `--hints` against the built-in engine."""

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder
from replayer.engine.options import EngineOptions
from replayer.engine.server import RunningEngine
from replayer.engine.testing import engine_on_thread
from tests.e2e.http_server import Quiet, served

QUICK = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=2000.0, step_ns=0)
SLACK = ("--max-lateness", "60000", "--no-metrics", "--tokens-per-word", "1")
"""The machine may be busy with other tests; what the client's lateness is does not matter here."""


def engine(options: EngineOptions = QUICK) -> AbstractContextManager[RunningEngine]:
    return engine_on_thread(options)


def a_trace(directory: Path, *, trees: int = 1, output_tokens: int = 100) -> Path:
    builder = TraceBuilder()
    for _ in range(trees):
        session = builder.session(harness="codex")
        for _ in range(3):
            builder.call(session, [builder.segment(200)], call_class="main", output_tokens=output_tokens)
    path = directory / "trace.aitrace"
    write_trace(path, builder.trace())
    return path


def invoke(*arguments: str | Path):
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


def search(trace: Path, url: str, output: Path, *options: str):
    return invoke(
        "search", trace, "--url", url, "--protocol", "chat", "-o", output, "--json", *SLACK, *options
    )


@pytest.fixture
def four_at_a_time():
    """An engine that refuses a fifth request at a time: 4 lanes hold, 5 do not."""
    options = EngineOptions(
        port=0, prefill_tokens_per_s=None, decode_tokens_per_s=1000.0, step_ns=0, batch=4, queue=0
    )
    with engine(options) as running:
        yield running


def test_a_search_finds_the_limit_that_the_engine_has(tmp_path, four_at_a_time):
    output = tmp_path / "found"
    options = (
        "--slo",
        "refused<10%",
        "--to",
        "16",
        "--duration",
        "2s",
        "--warm-up",
        "200ms",
        "--retries",
        "none",
    )
    result = search(a_trace(tmp_path), four_at_a_time.url, output, *options, "--time-scale", "0")
    found = orjson.loads(result.stdout)
    assert (result.exit_code, found["bracket"]) == (0, {"held": 4, "not_held": 5}), result.stderr
    assert [(step["level"], step["outcome"]) for step in found["steps"][-1:]] == [(4, "held")]
    assert found["steps"][-1]["is_repeat"]
    assert orjson.loads((output / "search.json").read_bytes()) == found
    for step in found["steps"]:
        run = read_run(step["run"])
        assert run.header.options["concurrency"] == step["level"]
        assert run.end is not None


def test_a_search_whose_steps_cannot_tell_is_in_doubt(tmp_path):
    with engine() as running:
        options = ("--slo", "ttft_p99<60s", "--to", "1", "--duration", "1s")
        result = search(a_trace(tmp_path), running.url, tmp_path / "found", *options)
    found = orjson.loads(result.stdout)
    assert (result.exit_code, found["in_doubt"]) == (1, "a run could not tell")
    assert found["steps"][0]["outcome"] == "unclear"


def test_an_endpoint_that_cannot_be_used_ends_a_search_with_4(tmp_path):
    result = search(a_trace(tmp_path), "http://127.0.0.1:9", tmp_path / "found", "--slo", "failed<1%")
    assert result.exit_code == 4
    assert "127.0.0.1:9" in result.stderr
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--slo", "ttft<1s"),
        ("--slo", "failed<1%", "--from", "8", "--to", "4"),
        ("--slo", "failed<1%", "--by", "rate", "--from", "3"),
        ("--slo", "failed<1%", "--from", "0"),
        ("--slo", "failed<1%", "--precision", "nan"),
        ("--slo", "failed<1%", "--concurrency", "3"),
        ("--slo", "failed<1%", "--time-scale", "-1"),
    ],
)
def test_wrong_use_of_a_search_ends_with_2(tmp_path, options):
    with engine() as running:
        assert search(a_trace(tmp_path), running.url, tmp_path / "found", *options).exit_code == 2
    assert not (tmp_path / "found").exists()


def interrupt_at_a_call(process: subprocess.Popen[bytes], run: Path) -> None:
    """Interrupt a program once a run of it has written its first call, so that it is surely playing."""
    calls = run / "calls.jsonl"
    while not (calls.exists() and calls.stat().st_size) and process.poll() is None:
        threading.Event().wait(0.05)
    process.send_signal(signal.SIGINT)


def test_an_interrupted_search_keeps_what_it_measured_and_says_the_bracket(tmp_path):
    output = tmp_path / "found"
    with engine() as running:
        where = ["--url", running.url, "--protocol", "chat", "-o", str(output), "--json", *SLACK]
        how = ["--slo", "failed<10%", "--duration", "3s", "--warm-up", "100ms", "--time-scale", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "aitrace", "search", str(a_trace(tmp_path)), *where, *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ,
        )
        for line in process.stderr:
            if line.startswith(b"step  2") and b"playing" in line:
                break
        interrupt_at_a_call(process, output / "step-02-lanes-2")
        out, err = process.communicate(timeout=30)
    found = orjson.loads(out)
    assert (process.returncode, found["in_doubt"]) == (1, "the search was stopped")
    assert found["bracket"] == {"held": 1, "not_held": None}
    assert b"bracket   1 lane held" in err
    interrupted = read_run(output / "step-02-lanes-2")
    assert interrupted.end is not None
    assert interrupted.end.interrupted


def test_ways_are_played_with_the_same_plan_and_compared(tmp_path):
    output = tmp_path / "ab"
    with engine() as running:
        where = ("--url", running.url, "--protocol", "chat", "-o", output, *SLACK)
        result = invoke(
            "replay",
            a_trace(tmp_path, trees=7),
            *where,
            "--ab",
            "identity=native,none",
            "--repeat",
            "2",
            "--seed",
            "7",
        )
    assert result.exit_code == 0, result.stderr
    runs = {name: read_run(output / name) for name in ("a/1", "b/1", "b/2", "a/2")}
    assert {run.header.options["identity"] for name, run in runs.items() if name[0] == "a"} == {"native"}
    assert {run.header.options["identity"] for name, run in runs.items() if name[0] == "b"} == {"none"}
    assert {run.header.seed for run in runs.values()} == {7}
    assert len({run.header.text_seed for run in runs.values()}) == 4
    starts = [run.header.started_unix_ns for run in runs.values()]
    assert starts == sorted(starts)
    compared = orjson.loads(invoke("compare", output / "a", output / "b", "--json").stdout)
    assert [[run["name"] for run in way["runs"]] for way in compared["ways"]] == [
        [str(output / way / repeat) for repeat in ("1", "2")] for way in ("a", "b")
    ]
    assert [each["option"] for each in compared["differs"] if each["option"] == "identity"] == ["identity"]
    assert "differs: identity: native → none" in result.stdout
    assert "Warning: the plan has" not in result.stderr


def test_a_run_that_was_stopped_is_not_compared(tmp_path):
    output = tmp_path / "ab"
    with engine(replace(QUICK, decode_tokens_per_s=50.0)) as running:
        where = ["--url", running.url, "--protocol", "chat", "-o", str(output), "--json", *SLACK]
        how = ["--time-scale", "0", "--ab", "identity=native,none"]
        trace = a_trace(tmp_path, trees=2, output_tokens=20)
        process = subprocess.Popen(
            [sys.executable, "-m", "aitrace", "replay", str(trace), *where, *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ,
        )
        interrupt_at_a_call(process, output / "b" / "1")
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, b"")
    assert b"b/1 was stopped, and is left out of the comparison" in err
    assert b"not every way was played" in err
    warning, first_run = err.find(b"Warning: the plan has 2 trees"), err.find(b"identity native")
    assert 0 <= warning < first_run
    assert b"--trees N with 5 or more" in err


def test_dynamo_is_told_of_the_end_of_a_session_in_a_request_that_is_no_call(tmp_path):
    with engine() as running:
        where = ("--url", running.url, "--protocol", "chat", "-o", tmp_path / "run", *SLACK)
        result = invoke(
            "replay", a_trace(tmp_path, trees=7), *where, "--identity", "dynamo", "--time-scale", "0"
        )
        records = list(running.records)
    assert result.exit_code == 0, result.stderr
    run = read_run(tmp_path / "run")
    ends = [record for record in records if (record.request_id or "").endswith("-final")]
    calls = {record.request_id: record.session for record in records if record not in ends}
    last = {call.session: call.request_id for call in sorted(run.calls, key=lambda call: call.index)}
    assert {record.request_id: record.session for record in ends} == {
        f"{request_id}-final": calls[request_id] for request_id in last.values()
    }
    assert {record.output_tokens for record in ends} == {1}
    assert (run.end.sent_calls, run.end.final_requests, run.end.failed_final_requests) == (21, 7, 0)


@pytest.mark.parametrize(
    "options",
    [
        ("--ab", "identity=native,nobody"),
        ("--ab", "hints=absent.json,off"),
        ("--ab", "retries=none,codex", "--text-seed", "1"),
        ("--repeat", "2"),
    ],
)
def test_ways_that_cannot_be_played_are_refused_before_the_first(tmp_path, options):
    with engine() as running:
        where = ("--url", running.url, "--protocol", "chat", "-o", tmp_path / "ab")
        result = invoke("replay", a_trace(tmp_path), *where, *options)
    assert result.exit_code in (2, 3)
    assert not (tmp_path / "ab").exists()


def test_hints_are_in_the_bodies_that_arrive_and_in_the_run(tmp_path):
    rules = [
        {
            "where": {"class": "main"},
            "body": {"nvext": {"agent_hints": {"priority": 1}}, "cache_salt": "{session}"},
        },
        {"where": {"class": "auxiliary"}, "body": {"priority": 9}},
        {"headers": {"X-Gateway": "low"}},
    ]
    hints = tmp_path / "hints.json"
    hints.write_bytes(orjson.dumps(rules))
    bodies: dict[str, list[dict]] = defaultdict(list)
    with recorder(bodies) as url:
        where = ("--url", url, "--protocol", "chat", "-o", tmp_path / "run", *SLACK, "--force-output", "off")
        result = invoke("replay", a_trace(tmp_path), *where, "--hints", hints, "--model", "m")
    assert result.exit_code in (0, 1), result.stderr
    sent = bodies["low"]
    assert len(sent) == 3
    assert {body["nvext"]["agent_hints"]["priority"] for body in sent} == {1}
    assert len({body["cache_salt"] for body in sent}) == 1
    assert not any("priority" in body for body in sent)
    kept = read_run(tmp_path / "run").header.options["hints"]
    assert kept[0]["body"] == rules[0]["body"]


@contextmanager
def recorder(bodies: dict[str, list[dict]]) -> Iterator[str]:
    """A server that answers every call with one token, and keeps the bodies by the header `X-Gateway`."""

    class Handler(Quiet, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.answer(404, b"{}")

        def do_POST(self):
            body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies[self.headers.get("X-Gateway", "")].append(body)
            if not body.get("stream"):
                message = {"role": "assistant", "content": "a"}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                usage = {"prompt_tokens": 9, "completion_tokens": 1}
                self.answer(200, orjson.dumps({"choices": [choice], "usage": usage}))
                return
            choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
            self.answer(
                200,
                b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\ndata: [DONE]\n\n",
                "text/event-stream",
            )

        def answer(self, status, content, kind="application/json"):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with served(Handler) as url:
        yield url
