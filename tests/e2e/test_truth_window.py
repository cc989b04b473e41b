"""A run with a duration: what its end cut is counted and shown, and every figure is that of the engine's log of the window."""

from math import ceil

import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.schema import Trace
from aitrace.testing import TraceBuilder
from aitrace.units import NS_PER_MS
from replayer.engine.options import EngineOptions
from replayer.engine.record import EngineRecord

STEP_MS = 400
WARM_UP_MS = 600
DURATION_MS = 2200
"""Half a step from all that is due, so that a busy machine changes no count."""
SHORT, LONG = 5, 5000
"""Answers of 10 ms, and of 10 s: longer than the run."""
ENGINE = EngineOptions(
    port=0, prefill_tokens_per_s=None, decode_tokens_per_s=500.0, step_ns=0, batch=3, queue=0, refuse=429
)
PLAN = (
    (LONG, ()),
    (SHORT, (600, 1400)),
    (LONG, ()),
    (SHORT, (590,)),
    (LONG, ()),
    (SHORT, (200,)),
    (SHORT, ()),
)
"""Of each session, which begin a step apart, the length of its answers, and the gaps to its later calls in ms."""


def trace_of() -> Trace:
    """Once the three long answers have begun, what comes is refused: the fourth session's second call, and the sixth
    session. The second one's third call is due after the end, and so is the seventh session."""
    builder = TraceBuilder()
    system = builder.segment(200, role="system", type="system")
    for number, (output_tokens, gaps_ms) in enumerate(PLAN):
        session = builder.session()
        add = [system, builder.segment(100)]
        at_ns = number * STEP_MS * NS_PER_MS
        for gap_ms in (*gaps_ms, 0):
            builder.call(session, add, at_ns=at_ns, duration_ns=NS_PER_MS, output_tokens=output_tokens)
            at_ns += NS_PER_MS + gap_ms * NS_PER_MS
            add = [builder.segment(100)]
    return builder.trace()


def load(*options: str) -> tuple[str, ...]:
    window = ("--duration", f"{DURATION_MS}ms", "--warm-up", f"{WARM_UP_MS}ms")
    return ("--arrival", "recorded", "--retries", "none", "--metrics-every", "3600", *window, *options)


def quantile(values: list[float], ratio: float) -> float:
    ordered = sorted(values)
    return ordered[ceil(ratio * len(ordered)) - 1]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_figures_over_the_window_are_those_of_the_engines_log(play, workers):
    played = play(trace_of(), ENGINE, *load("--workers", workers))
    start_ns = min(line.head_ns for line in played.lines)
    window = [line for line in played.lines if line.head_ns - start_ns >= WARM_UP_MS * NS_PER_MS]
    assert max(line.head_ns - start_ns for line in window) < DURATION_MS * NS_PER_MS
    by_outcome: dict[str, list[EngineRecord]] = {"complete": [], "refused": [], "client_gone": []}
    for line in window:
        by_outcome[line.outcome].append(line)
    complete, refused, cut = by_outcome.values()
    assert (len(complete), len(refused), len(cut)) == (2, 2, 2)
    numbers = played.numbers
    assert (numbers["tries"], numbers["sent_calls"]) == (len(window), len(window))
    assert (numbers["refused_tries"], numbers["refused_tries_ratio"]) == (
        len(refused),
        len(refused) / len(window),
    )
    assert (numbers["complete_calls"], numbers["stopped_calls"]) == (len(complete), len(cut))
    prompt, cached = (
        sum(getattr(line, name) for line in complete) for name in ("prompt_tokens", "cached_tokens")
    )
    assert (numbers["cache_input_tokens"], numbers["cache_reported_tokens"]) == (prompt, cached)
    assert numbers["cache_reported_ratio"] == cached / prompt
    # The engine's counters hold the prompts of calls that were cut, too.
    served = [line for line in window if line.prefill_ns is not None]
    assert numbers["engine_query_tokens"] == sum(line.prompt_tokens for line in served)
    assert numbers["engine_hit_tokens"] == sum(line.cached_tokens for line in served)
    check_ttft(played, window)


def check_ttft(played, window: list[EngineRecord]) -> None:
    """The sample is all that had a token, cut or not; no client sees it before the engine has sent it."""
    answered = {line.request_id: line for line in window if line.first_token_ns is not None}
    seen_ms = {
        call.request_id: (call.first_token_ns - call.sent_ns) / NS_PER_MS
        for call in played.run.calls
        if call.phase == "measured" and call.first_token_ns is not None
    }
    assert seen_ms.keys() == answered.keys()
    engine_ms = {id_: (line.first_token_ns - line.head_ns) / NS_PER_MS for id_, line in answered.items()}
    assert all(seen_ms[id_] >= engine_ms[id_] for id_ in answered)
    stated = played.report["distributions"]["ttft_service_ms"]
    assert stated["n"] == played.summary["ttft"]["service"]["count"] == len(answered)
    assert (stated["p50"], stated["max"]) == pytest.approx(
        (quantile(list(seen_ms.values()), 0.5), max(seen_ms.values()))
    )
    assert stated["p50"] >= quantile(list(engine_ms.values()), 0.5)


def test_sessions_cut_by_the_end_are_shown_as_such_and_none_is_dropped(play, tmp_path):
    played = play(trace_of(), ENGINE, *load())
    last = played.last_lines.values()
    cut = {line.session for line in last if line.outcome == "client_gone"}
    lost = {line.session for line in last if line.outcome == "refused"}
    whole = {line.session for line in last} - cut - lost
    numbers, sessions = played.numbers, played.summary["sessions"]
    # The engine knows of 6 sessions; one of those it answered had a call yet to be sent, and the first two are of the warm-up.
    assert (len(cut), len(lost), len(whole)) == (3, 2, 1)
    stopped = len(cut) + len(whole) - 2
    assert sessions == {"planned": 6, "lost": len(lost), "stopped": stopped, "unmeasured": 2}
    start_ns = min(call.due_ns for call in played.run.calls if call.due_ns is not None)
    assert played.run.end.cut_ns - start_ns == DURATION_MS * NS_PER_MS
    assert numbers["unmeasured_sessions"] == 2
    assert (numbers["lost_sessions"], numbers["censored_sessions"], numbers["complete_sessions"]) == (2, 2, 0)
    assert numbers["missing_calls"] == 0
    assert {row["unsent"] for row in played.report["tables"]["unsent_by_reason"]} == {
        "duration",
        "session_lost",
    }
    doubts = {doubt["name"]: doubt for doubt in played.report["verdict"]["doubts"]}
    assert doubts["censored"]["what"] == "2 sessions cut by the end of the run's duration"
    assert doubts["censored"]["weighs"] is False
    assert {"interrupted", "calls_missing", "run_cut"} & doubts.keys() == set()
    report = CliRunner().invoke(main, ["report", str(tmp_path / "run")], catch_exceptions=False)
    assert "2 sessions cut by the end of the run's duration" in " ".join(report.stdout.split())
    assert "cut by the end of the run" in (tmp_path / "run" / "report.html").read_text()
