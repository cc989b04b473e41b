"""Load shapes of `aitrace replay` against the built-in engine: how long it goes on, where trees start, what fits."""

from contextlib import AbstractContextManager
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from aitrace.cli import main
from aitrace.prompts import PromptResolver, prompt_size
from aitrace.runstore import Run, read_run
from aitrace.schema import Trace
from aitrace.store import read_trace, write_trace
from aitrace.testing import TraceBuilder, make_trace
from replayer.engine.options import EngineOptions
from replayer.engine.server import RunningEngine
from replayer.engine.testing import engine_on_thread

QUICK = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=2000.0, step_ns=0)
SLOW = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=10.0, step_ns=0)
"""An answer of 100 tokens takes 10 s: longer than these runs."""


def engine(options: EngineOptions = QUICK) -> AbstractContextManager[RunningEngine]:
    return engine_on_thread(options)


def replay(
    trace: Trace, directory: Path, url: str, *options: str, doubts: tuple[str, ...] = ()
) -> tuple[Run, dict, Result]:
    """Play a trace; what weighs against the run are these doubts."""
    path = directory / "trace.aitrace"
    write_trace(path, trace)
    arguments = ["replay", str(path), "--url", url, "-o", str(directory / "run"), "--retries", "none"]
    arguments += ["--protocol", "chat", "--workers", "1", "--max-lateness", "5000", "--json", *options]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    summary = orjson.loads(result.stdout)
    named = {doubt["name"] for doubt in summary["doubts"] if doubt["weighs"]}
    assert named == set(doubts), result.output
    assert result.exit_code == (1 if named else 0)
    return read_run(directory / "run"), summary, result


def report_of(directory: Path) -> dict:
    result = CliRunner().invoke(main, ["report", str(directory / "run"), "--json", "--no-html"])
    return orjson.loads(result.stdout)


def test_arrivals_go_on_for_the_duration_and_what_is_then_open_is_cut_not_lost(tmp_path):
    with engine(SLOW) as target:
        run, summary, _ = replay(
            make_trace(2, 2),
            tmp_path,
            target.url,
            "--arrival",
            "fixed:10/s",
            "--duration",
            "1s",
            doubts=("nothing_complete",),
        )
    assert run.end.cut_ns is not None
    assert not run.end.interrupted
    assert len({(call.instance, call.session) for call in run.calls}) == 10
    assert {call.instance for call in run.calls} == {1, 2, 3, 4, 5}
    assert {(call.error, call.unsent) for call in run.calls} <= {("client_abort", None), (None, "duration")}
    assert max(call.due_ns or 0 for call in run.calls) < run.end.cut_ns
    assert (summary["sessions"]["stopped"], summary["sessions"]["lost"]) == (10, 0)
    assert summary["calls"]["missing"] == 0


def test_a_run_of_which_sessions_were_cut_is_fine_and_says_so(tmp_path):
    """Answers of 100 tokens take 50 ms, gaps 1 s: first calls end, second ones are not sent."""
    with engine() as target:
        _, summary, result = replay(
            make_trace(2, 5), tmp_path, target.url, "--arrival", "fixed:20/s", "--duration", "1500ms"
        )
    assert (summary["in_doubt"], summary["exit_code"]) == ([], 0)
    assert "cut by the end of the duration" in result.stderr
    report = report_of(tmp_path)
    assert report["numbers"]["censored_sessions"] == summary["sessions"]["stopped"] > 0
    doubts = {doubt["name"]: doubt["weighs"] for doubt in report["verdict"]["doubts"]}
    assert doubts["censored"] is False
    assert {"interrupted", "lost_sessions", "calls_missing"} & doubts.keys() == set()


def test_lanes_take_trees_again_until_the_duration_is_over(tmp_path):
    with engine() as target:
        run, summary, _ = replay(
            make_trace(2, 2),
            tmp_path,
            target.url,
            *("--concurrency", "3", "--duration", "1s", "--time-scale", "0.05"),
        )
    trees = {(call.instance, call.root) for call in run.calls}
    assert len(trees) > 6
    assert run.end.cut_ns is not None
    assert run.end.ran_out_ns is None
    assert len(trees) + run.end.unstarted_trees == run.header.planned_trees
    assert len(run.calls) + run.end.unstarted_calls == run.header.planned_calls
    assert summary["calls"]["planned"] == len(run.calls)
    assert summary["unstarted_trees"] == run.end.unstarted_trees > 0
    assert report_of(tmp_path)["numbers"]["missing_calls"] == 0


def test_the_warm_up_is_in_no_figure_and_its_calls_are_counted(tmp_path):
    with engine() as target:
        run, summary, _ = replay(
            make_trace(4, 2), tmp_path, target.url, "--time-scale", "0.1", "--warm-up", "1 tree"
        )
    assert [call.phase for call in sorted(run.calls, key=lambda call: call.index)] == ["warm_up"] * 2 + [
        "measured"
    ] * 6
    assert (summary["calls"]["unmeasured"], summary["ttft"]["service"]["count"]) == ({"warm_up": 2}, 6)
    report = report_of(tmp_path)
    numbers = report["numbers"]
    assert (numbers["complete_calls"], numbers["unmeasured_calls"], numbers["unmeasured_sessions"]) == (
        6,
        2,
        1,
    )
    assert report["distributions"]["ttft_service_ms"]["n"] == 6
    assert numbers["complete_sessions"] == 3
    assert numbers["steady_until_s"] > numbers["steady_from_s"]


def test_a_warm_up_by_time_takes_the_calls_due_in_it(tmp_path):
    with engine() as target:
        run, _, _ = replay(
            make_trace(1, 4), tmp_path, target.url, "--time-scale", "0.2", "--warm-up", "300ms"
        )
    calls = sorted(run.calls, key=lambda call: call.index)
    start_ns = calls[0].due_ns
    assert [call.phase == "warm_up" for call in calls] == [
        call.due_ns - start_ns < 300_000_000 for call in calls
    ]
    assert {"warm_up", "measured"} == {call.phase for call in calls}


@pytest.mark.parametrize("prime", [False, True])
def test_trees_that_start_in_the_middle_send_their_whole_prefix(tmp_path, prime):
    options = [
        "--start-at",
        "0.5..0.5",
        "--time-scale",
        "0.1",
        "--trees",
        "2",
        *(["--prime"] if prime else []),
    ]
    with engine() as target:
        run, _, _ = replay(make_trace(1, 5), tmp_path, target.url, *options)
    played = [call for call in run.calls if call.phase == "measured"]
    primes = [call for call in run.calls if call.phase == "prime"]
    assert sorted((call.instance, call.call) for call in played) == [
        (n, c) for n in (1, 2) for c in (2, 3, 4)
    ]
    assert sorted((call.instance, call.call, call.output_tokens) for call in primes) == (
        [(1, 1, 1), (2, 1, 1)] if prime else []
    )
    firsts = [call for call in played if call.call == 2]
    assert all(call.usage.input_tokens >= 2000 for call in firsts)
    # A trace's blocks are larger than the engine's, so the last part of what is shared may not be found.
    assert all((call.usage.cache_read_tokens > 1500) == prime for call in firsts)
    assert all(
        call.due_ns >= max((p.end_ns for p in primes if p.instance == call.instance), default=0)
        for call in firsts
    )
    assert report_of(tmp_path)["numbers"]["complete_calls"] == 6


def prompts_of(run: Run) -> dict[int, int]:
    trace = read_trace(run.trace_path)
    prompts = PromptResolver(trace.calls)
    return {call.call: prompt_size(trace, prompts.segment_ids(call.call)) for call in run.calls}


@pytest.mark.parametrize(("policy", "calls"), [("stop", [0, 1]), ("compact", [0, 1, 2, 3])])
def test_prompts_that_do_not_fit_are_not_sent(tmp_path, policy, calls):
    """Prompts of 1200, 1600, 2000 and 2400 tokens and answers of 100."""
    with engine() as target:
        run, _, result = replay(
            make_trace(1, 4),
            tmp_path,
            target.url,
            *("--context", "1900", "--over-context", policy, "--time-scale", "0"),
        )
        sent = {call.request_id for call in run.calls}
        largest = max(record.prompt_tokens for record in target.records if record.request_id in sent)
    assert sorted(call.call for call in run.calls) == calls
    assert largest <= 1900
    assert "more than 1,900 tokens: 1" in result.stderr
    # What the run keeps as its trace is what was played.
    assert {call.call: call.prompt_tokens for call in run.calls} == prompts_of(run)
    assert report_of(tmp_path)["numbers"]["missing_calls"] == 0


def test_an_absolute_schedule_sends_calls_before_the_ones_they_follow_have_ended(tmp_path):
    """The second call is due 2 s x 0.1 after the first, whose answer takes 10 s."""
    with engine(SLOW) as target:
        run, _, _ = replay(
            make_trace(1, 3),
            tmp_path,
            target.url,
            *("--schedule", "absolute", "--time-scale", "0.1", "--duration", "2s"),
            doubts=("nothing_complete",),
        )
    calls = sorted(run.calls, key=lambda call: call.index)
    assert [(call.due_ns - calls[0].due_ns) // 1_000_000 for call in calls] == [0, 200, 400]
    assert all(call.sent_ns is not None for call in calls)


def test_only_selected_trees_are_played(tmp_path):
    builder = TraceBuilder()
    for calls in (1, 3):
        main_agent = builder.session()
        for _ in range(calls):
            builder.call(main_agent, [builder.segment(100)], output_tokens=5)
    with engine() as target:
        run, _, _ = replay(builder.trace(), tmp_path, target.url, "--select", "calls>=2", "--time-scale", "0")
    assert {call.root for call in run.calls} == {1}
