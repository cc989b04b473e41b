"""`aitrace replay` against the built-in engine: what the run says is compared with what the engine logged."""

import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import orjson
import polars as pl
import pytest
from click.testing import CliRunner, Result

from aitrace.cli import main
from aitrace.results import CallResult
from aitrace.runstore import Run, read_run
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder, make_trace
from replayer.calibrate import LARGE_WORDS, SMALL_WORDS
from replayer.engine.options import EngineOptions
from replayer.engine.server import RunningEngine
from replayer.engine.testing import engine_on_thread
from reports.answers import sample_of
from reports.summary import Report, report_from_facts
from reports.tables import facts_from_run
from tests.e2e.http_server import Quiet, served

QUICK = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=2000.0, step_ns=0)
PROBES = 2


def engine(options: EngineOptions = QUICK) -> AbstractContextManager[RunningEngine]:
    return engine_on_thread(options)


def replay(trace: Trace, directory: Path, url: str, *options: str) -> Result:
    path = directory / "trace.aitrace"
    write_trace(path, trace)
    arguments = [
        "replay",
        str(path),
        "--url",
        url,
        "-o",
        str(directory / "run"),
        "--retries",
        "none",
        *options,
    ]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def played(trace: Trace, directory: Path, url: str, *options: str) -> Run:
    result = replay(trace, directory, url, *options)
    # Runs as short as these are in doubt for it.
    assert result.exit_code in (0, 1), result.output
    run = read_run(directory / "run")
    assert {(call.error, call.unsent) for call in run.calls} == {(None, None)}, result.output
    return run


def by_index(run: Run) -> list[CallResult]:
    return sorted(run.calls, key=lambda call: call.index)


def fork_and_join() -> Trace:
    """A main agent that spawns two sub-agents and goes on when both are back."""
    builder = TraceBuilder()
    main_agent = builder.session(harness="claude-code")
    system = builder.segment(640, role="system", type="system")
    first = builder.call(main_agent, [system, builder.segment(200)], output_tokens=40)
    last = [first]
    for output_tokens in (10, 30):
        child = builder.session(parent=main_agent, agent="Explore")
        builder.call(child, [builder.segment(300)], after=[first], output_tokens=output_tokens)
        answer = builder.segment(output_tokens, role="assistant")
        last.append(builder.call(child, [answer, builder.segment(128)], output_tokens=5))
    answer = builder.segment(40, role="assistant", type="tool_use")
    result = builder.segment(150, role="tool", type="tool_result")
    builder.call(main_agent, [answer, result], after=last, output_tokens=20)
    return builder.trace()


@pytest.mark.parametrize("protocol", ["anthropic", "responses", "chat"])
def test_every_call_of_a_tree_is_played_in_its_order(tmp_path, protocol):
    with engine() as target:
        run = played(fork_and_join(), tmp_path, target.url, "--protocol", protocol, "--time-scale", "0.05")
    calls = by_index(run)
    assert [call.error for call in calls] == [None] * 6
    ends = {call.call: call.end_ns for call in calls}
    join = calls[-1]
    assert join.due_ns >= max(ends[2], ends[4])
    assert all(call.due_ns >= ends[0] for call in calls if call.session in (1, 2))


@pytest.mark.parametrize("protocol", ["anthropic", "responses", "chat"])
def test_answers_have_the_recorded_length_and_are_counted_alike_on_both_sides(tmp_path, protocol):
    with engine() as target:
        run = played(fork_and_join(), tmp_path, target.url, "--protocol", protocol, "--time-scale", "0")
        logged = {record.request_id: record for record in target.records}
    assert run.header.calibration.output_forced
    for call in run.calls:
        record = logged[call.request_id]
        assert call.output_tokens == call.usage.output_tokens == record.output_tokens
        assert call.usage.input_tokens == record.prompt_tokens
        assert call.usage.cache_read_tokens == record.cached_tokens


def test_request_and_session_ids_join_with_the_engines_log(tmp_path):
    with engine() as target:
        run = played(
            make_trace(sessions=2, calls=2),
            tmp_path,
            target.url,
            "--protocol",
            "chat",
            "--time-scale",
            "0",
            "--trees",
            "3",
        )
        records = [record for record in target.records if record.request_id is not None]
    assert sorted(call.request_id for call in run.calls) == sorted(record.request_id for record in records)
    assert len({record.session for record in records}) == 3


def test_metrics_over_the_run_count_the_calls_of_the_run_and_nothing_else(tmp_path):
    with engine() as target:
        run = played(
            make_trace(sessions=3, calls=4),
            tmp_path,
            target.url,
            "--protocol",
            "anthropic",
            "--time-scale",
            "0.02",
        )
    first, last = run.scrapes[0].values, run.scrapes[-1].values
    deltas = {name: last[name] - first[name] for name in last}
    assert deltas["prefix_query_tokens"] == sum(call.usage.input_tokens for call in run.calls)
    assert deltas["prefix_hit_tokens"] == sum(call.usage.cache_read_tokens for call in run.calls) > 0
    assert deltas["output_tokens"] == sum(call.usage.output_tokens for call in run.calls)
    assert (last["running"], last["waiting"]) == (0.0, 0.0)


def test_prompts_have_the_recorded_size_in_tokens(tmp_path):
    with engine() as target:
        run = played(
            make_trace(sessions=1, calls=3), tmp_path, target.url, "--protocol", "chat", "--time-scale", "0"
        )
    assert run.header.calibration.source == "probe"
    for call in run.calls:
        # The chat template and the role of each message are all that is added.
        assert call.prompt_tokens <= call.usage.input_tokens <= call.prompt_tokens * 1.03


def test_a_prompt_that_continues_another_hits_its_prefix(tmp_path):
    with engine() as target:
        run = played(
            make_trace(sessions=1, calls=3), tmp_path, target.url, "--protocol", "chat", "--time-scale", "0"
        )
    first, second, third = by_index(run)
    assert first.usage.cache_read_tokens == 0
    for call, before in ((second, first), (third, second)):
        block = QUICK.block_size
        assert before.usage.input_tokens - call.usage.cache_read_tokens < 2 * block


def test_live_history_makes_the_engines_own_answers_reusable(tmp_path):
    trace = make_trace(sessions=1, calls=4)
    cached = {}
    for history in ("recorded", "live"):
        (tmp_path / history).mkdir()
        with engine() as target:
            run = played(
                trace,
                tmp_path / history,
                target.url,
                "--protocol",
                "chat",
                "--time-scale",
                "0",
                "--history",
                history,
            )
        cached[history] = sum(call.usage.cache_read_tokens for call in run.calls)
    # Three answers of 100 tokens each go into later prompts.
    assert cached["live"] - cached["recorded"] > 3 * 60


def cached_tokens(trace: Trace, directory: Path, url: str, *options: str) -> int:
    directory.mkdir()
    run = played(trace, directory, url, "--protocol", "chat", "--time-scale", "0", *options)
    return sum(call.usage.cache_read_tokens for call in run.calls)


def test_a_second_run_meets_the_engines_cache_cold(tmp_path):
    trace = make_trace(sessions=1, calls=4)
    with engine() as target:
        first, second = (cached_tokens(trace, tmp_path / name, target.url) for name in ("one", "two"))
        runs = [read_run(tmp_path / name / "run") for name in ("one", "two")]
    assert first == second > 0
    assert [run.header.seed for run in runs] == [0, 0]
    assert runs[0].header.text_seed != runs[1].header.text_seed


def test_a_text_seed_repeats_the_text_of_a_run(tmp_path):
    trace = make_trace(sessions=1, calls=4)
    with engine() as target:
        cached_tokens(trace, tmp_path / "one", target.url)
        text_seed = read_run(tmp_path / "one" / "run").header.text_seed
        again = cached_tokens(trace, tmp_path / "two", target.url, "--text-seed", str(text_seed))
    run = read_run(tmp_path / "two" / "run")
    prompts = sum(call.usage.input_tokens for call in run.calls)
    # Only the last block of a prompt, which may be cut, is never a hit.
    assert prompts - QUICK.block_size * len(run.calls) <= again <= prompts
    assert run.header.text_seed == text_seed


def test_what_was_not_recorded_as_a_stream_need_not_be_one(tmp_path):
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [builder.segment(100)], streamed=False, output_tokens=7)
    with engine() as target:
        run = played(builder.trace(), tmp_path, target.url, "--protocol", "chat", "--stream", "recorded")
    (call,) = run.calls
    assert (call.error, call.events, call.usage.output_tokens) == (None, None, 7)
    assert call.first_token_ns == call.end_ns


def test_times_follow_each_other_and_lie_beside_the_engines(tmp_path):
    slow = EngineOptions(port=0, prefill_tokens_per_s=20_000.0, decode_tokens_per_s=200.0)
    with engine(slow) as target:
        run = played(
            make_trace(sessions=2, calls=3),
            tmp_path,
            target.url,
            "--protocol",
            "anthropic",
            "--time-scale",
            "0.1",
        )
        logged = {record.request_id: record for record in target.records}
    zero_ns = None
    for call in run.calls:
        chain = [call.due_ns, call.dispatched_ns, call.connected_ns, call.sent_ns, call.uploaded_ns]
        chain += [call.headers_ns, call.first_byte_ns, call.first_token_ns, call.last_token_ns, call.end_ns]
        assert chain == sorted(chain)
        record = logged[call.request_id]
        # Both clocks are CLOCK_MONOTONIC: only the run's zero lies between them, the same for all calls.
        offset_ns = record.first_token_ns - call.first_token_ns
        zero_ns = offset_ns if zero_ns is None else zero_ns
        assert abs(offset_ns - zero_ns) < 50_000_000
        assert call.first_token_ns - call.sent_ns >= record.first_token_ns - record.head_ns


def test_the_run_directory_holds_all_that_a_report_needs(tmp_path):
    with engine() as target:
        run = played(
            make_trace(sessions=2, calls=2),
            tmp_path,
            target.url + "/v1/",
            "--protocol",
            "chat",
            "--time-scale",
            "0",
        )
    assert run.header.url == target.url
    assert run.header.model == QUICK.model
    assert (run.header.planned_calls, run.header.planned_sessions, run.header.planned_trees) == (4, 2, 2)
    assert (run.end.sent_calls, run.end.unsent_calls, run.end.interrupted) == (4, 0, False)
    assert run.end.ended_ns == max(call.end_ns for call in run.calls)
    assert pl.read_parquet(tmp_path / "run" / "calls.parquet").height == 4
    assert run.trace_path.read_bytes() == (tmp_path / "trace.aitrace").read_bytes()


def test_the_json_summary_is_all_of_stdout(tmp_path):
    with engine() as target:
        result = replay(
            make_trace(sessions=1, calls=2),
            tmp_path,
            target.url,
            "--protocol",
            "chat",
            "--time-scale",
            "0",
            "--json",
        )
    facts = orjson.loads(result.stdout)
    assert facts["calls"] == {
        "planned": 2,
        "complete": 2,
        "failed": {},
        "stopped": 0,
        "unsent": {},
        "missing": 0,
        "unmeasured": {},
        "retried": 0,
        "earlier_tries": {},
        "backoff_s": 0.0,
    }
    assert facts["cache"]["cached_ratio"] > 0
    assert f"next      aitrace report {tmp_path / 'run'}" in result.stderr


def test_a_key_reaches_the_target_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-not-to-be-seen")
    with engine() as target:
        result = replay(
            make_trace(sessions=1, calls=1),
            tmp_path,
            target.url,
            "--protocol",
            "anthropic",
            "--api-key-env",
            "MY_KEY",
            "--json",
        )
    files = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert b"sk-not-to-be-seen" not in files
    assert "sk-not-to-be-seen" not in result.output


def test_a_given_ratio_needs_one_probe_and_scales_the_words(tmp_path):
    with engine() as target:
        run = played(
            make_trace(sessions=1, calls=1),
            tmp_path,
            target.url,
            "--protocol",
            "chat",
            "--tokens-per-word",
            "2",
            "--no-metrics",
        )
        probes = [record for record in target.records if record.request_id is None]
    assert len(probes) == 1
    assert run.header.calibration.source == "given"
    assert run.calls[0].usage.input_tokens < run.calls[0].prompt_tokens * 0.6
    assert run.scrapes == ()


def test_the_probe_leaves_no_trace_in_the_prompts(tmp_path):
    with engine() as target:
        run = played(make_trace(sessions=1, calls=1), tmp_path, target.url, "--protocol", "chat")
        probes = [record for record in target.records if record.request_id is None]
    assert [probe.prompt_tokens - 5 for probe in probes] == [SMALL_WORDS, LARGE_WORDS]
    assert run.calls[0].usage.cache_read_tokens == 0


def test_a_client_that_cannot_keep_up_says_so(tmp_path):
    with engine() as target:
        result = replay(
            make_trace(sessions=1, calls=2),
            tmp_path,
            target.url,
            "--protocol",
            "chat",
            "--time-scale",
            "0",
            "--max-lateness",
            "0",
        )
    assert result.exit_code == 1
    assert "2 of 2 calls (100.0 %) went out more than 0 ms late" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_keeps_what_it_has(tmp_path, number):
    slow = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=20.0)
    with engine(slow) as target:
        process = start(make_trace(sessions=4, calls=3), tmp_path, target.url, "--protocol", "chat")
        wait_for_requests(target, PROBES + 2)
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    run = read_run(tmp_path / "run")
    assert process.returncode == 1, err
    assert b"verdict   in doubt: the run was stopped before its end, with " in err
    assert run.end.interrupted
    assert len(run.calls) == 12
    assert {call.error for call in run.calls if call.unsent is None} == {"client_abort"}
    assert {call.unsent for call in run.calls} == {None, "interrupted"}
    assert pl.read_parquet(tmp_path / "run" / "calls.parquet").height == 12


def test_a_second_interrupt_ends_at_once_and_leaves_what_was_written(tmp_path):
    slow = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=20.0)
    # A metrics page that never comes to rest keeps the stopped run reading for 5 s.
    with engine(slow) as target, busy_page() as page:
        trace = make_trace(sessions=4, calls=3)
        process = start(trace, tmp_path, target.url, "--protocol", "chat", "--metrics", page)
        wait_for_requests(target, PROBES + 2)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: len((tmp_path / "run" / "calls.jsonl").read_bytes().splitlines()) == 12)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=3)
    run = read_run(tmp_path / "run")
    assert process.returncode == 130
    assert (len(run.calls), run.end) == (12, None)


def start(trace: Trace, directory: Path, url: str, *options: str) -> subprocess.Popen[bytes]:
    path = directory / "trace.aitrace"
    write_trace(path, trace)
    arguments = ["replay", str(path), "--url", url, "-o", str(directory / "run"), *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "aitrace", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def wait_for_requests(target: RunningEngine, count: int) -> None:
    wait_until(lambda: target.server.simulation.running + len(target.records) >= count)


def wait_until(condition) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, "what was waited for did not happen"
        time.sleep(0.05)


@contextmanager
def busy_page() -> Iterator[str]:
    """A metrics page on which one request runs for ever."""

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"vllm:num_requests_running 1\n")

    with served(Handler) as url:
        yield f"{url}/metrics"


FULL = EngineOptions(
    port=0,
    prefill_tokens_per_s=None,
    decode_tokens_per_s=100.0,
    step_ns=0,
    batch=2,
    queue=1,
    refuse=529,
)


def together(sessions: int):
    builder = TraceBuilder()
    for _ in range(sessions):
        session = builder.session(harness="codex")
        for _ in range(2):
            builder.call(session, [builder.segment(100)], output_tokens=20)
    return builder.trace()


@pytest.mark.parametrize("retries", ["harness", "none"])
def test_tries_and_refusals_are_those_that_the_engine_logged(tmp_path, retries):
    with engine(FULL) as running:
        replay(
            together(12),
            tmp_path,
            running.url,
            *("--protocol", "chat", "--arrival", "together", "--retries", retries, "--time-scale", "0"),
        )
        log = tuple(running.records)
    run = read_run(tmp_path / "run")
    ids = {call.request_id for call in run.calls}
    logged = [record for record in log if record.request_id in ids]
    tries = Counter()
    refused = Counter()
    for call in run.calls:
        if call.unsent is None:
            tries[call.request_id] += 1 + len(call.attempts)
            refused[call.request_id] += len(call.attempts) + (call.error == "refused")
    assert tries == Counter(record.request_id for record in logged)
    assert +refused == Counter(r.request_id for r in logged if r.status == 529)
    assert refused.total() > 0
    lost = {(call.instance, call.session) for call in run.calls if call.unsent == "session_lost"}
    assert bool(lost) == (retries == "none")
    report = report_of(run)
    stated = report.answers
    assert stated.numbers["tries"] == len(logged)
    assert stated.numbers["refused_tries"] == refused.total()
    assert sum(sample_of(report.facts, "tries_per_call").values) == len(logged)
    assert stated.numbers["backoff_s"] == pytest.approx(backoff_s(run, logged))
    assert sum(sample_of(report.facts, "session_backoff_s").values) == pytest.approx(
        stated.numbers["backoff_s"]
    )
    assert (stated.numbers["backoff_s"] > 0) == (retries == "harness")
    for table in ("admission_by_kind", "admission_by_turn"):
        assert sum(row["refused_tries"] for row in stated.tables[table]) == refused.total()


def report_of(run: Run) -> Report:
    return report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, None))


def backoff_s(run: Run, logged: list) -> float:
    """The waits between tries, each checked against the time that the engine saw nothing of its call."""
    starts: dict[str, list] = {}
    for record in sorted(logged, key=lambda record: record.head_ns):
        starts.setdefault(record.request_id, []).append(record)
    total_ns = 0
    for call in run.calls:
        seen = starts.get(call.request_id, [])
        for attempt, refused, again in zip(call.attempts, seen, seen[1:], strict=False):
            # The engine is done with a refusal before the client has it, and hears of the next try after it left.
            assert again.head_ns - refused.end_ns >= attempt.wait_ns
            total_ns += attempt.wait_ns
    return total_ns / 1e9


def calm_and_rush() -> Trace:
    """Calls of 0.2 s on an engine of 100 tokens a second: 12 that find it idle, then 18 in less than a second."""
    builder = TraceBuilder()
    starts_ms = [300 * number for number in range(12)] + [3600 + 50 * number for number in range(18)]
    for start_ms in starts_ms:
        session = builder.session()
        builder.call(session, [builder.segment(50)], at_ns=start_ms * 1_000_000, output_tokens=20)
    return builder.trace()


@pytest.mark.parametrize(
    ("policy", "is_found"),
    [
        ({"queue": 0, "hold_s": math.inf}, True),
        ({"headers": "late"}, True),
        ({}, False),
        ({"queue": 2, "refuse": 429}, False),
    ],
    ids=["held outside the queue", "held in the queue", "headers at once", "refused"],
)
def test_silent_holding_is_found_where_there_is_one(tmp_path, policy, is_found):
    options = replace(QUICK, decode_tokens_per_s=100.0, batch=1, **policy)
    with engine(options) as running:
        replay(
            calm_and_rush(),
            tmp_path,
            running.url,
            *("--protocol", "chat", "--arrival", "recorded", "--metrics-every", "0.05"),
        )
        held = [record for record in running.records if record.held_ns is not None]
    report = report_of(read_run(tmp_path / "run"))
    found = {
        doubt.name: doubt.what for doubt in report.doubts if doubt.name in ("holding", "headers_two_groups")
    }
    assert ("holding" in found) == is_found
    assert bool(held) == ("hold_s" in policy)
    if not is_found:
        assert found == {}


def test_a_stack_that_protects_running_sessions_refuses_first_calls_only(tmp_path):
    builder = TraceBuilder()
    for _ in range(12):
        session = builder.session(harness="codex")
        for _ in range(4):
            builder.call(session, [builder.segment(100)], output_tokens=10)
    options = replace(FULL, queue=0, protect_returning=True, decode_tokens_per_s=200.0)
    with engine(options) as running:
        replay(
            builder.trace(),
            tmp_path,
            running.url,
            *("--protocol", "chat", "--arrival", "fixed:20/s", "--time-scale", "0"),
        )
        log = tuple(running.records)
    run = read_run(tmp_path / "run")
    first, returning = report_of(run).answers.tables["admission_by_kind"]
    ids = {call.request_id for call in run.calls}
    refused = sum(record.status == 529 for record in log if record.request_id in ids)
    assert (first["kind"], first["refused_tries"], first["calls"]) == ("first", refused, 12)
    assert (returning["kind"], returning["refused_tries"]) == ("returning", 0)
    assert refused > 0
    assert returning["calls"] == 3 * (12 - refused)
    assert first["refused_low_ratio"] <= refused / 12 <= first["refused_high_ratio"]
