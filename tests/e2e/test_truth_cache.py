"""Cached tokens against the engine's log: per call, by the gap before it, by the counters, and over what is measured.

The engine's cache is a third of what the sessions hold, so that calls after a gap find less than they left.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from aitrace.results import CallResult
from aitrace.schema import GapCause, Trace
from aitrace.testing import TraceBuilder
from aitrace.units import NS_PER_S
from replayer.engine.options import EngineOptions, parse_fault
from replayer.engine.record import EngineRecord

SMALL = EngineOptions(
    port=0,
    cache_blocks=320,
    prefill_tokens_per_s=200_000.0,
    decode_tokens_per_s=1000.0,
    step_ns=0,
)
SCALE = 0.01
GAPS: tuple[tuple[float, GapCause], ...] = ((0.5, "tool"), (4.0, "harness"), (20.0, "tool"), (90.0, "user"))
"""Gaps of the trace in s, one in each of four buckets, and what fills them."""
GAP_FROM_S = (0.0, 0.01, 0.1, 0.6, 3.0)
SESSIONS = 6


def trace_of(harness: str | None = None) -> Trace:
    """Sessions of five calls that share their system prompt; every other one has a sub-agent."""
    builder = TraceBuilder()
    system = builder.segment(400, role="system", type="system")
    for number in range(SESSIONS):
        session = builder.session(harness=harness)
        at_ns = number * 8 * NS_PER_S
        add = [system, builder.segment(500)]
        for turn in range(5):
            gap, cause = GAPS[(number + turn) % 4] if turn else (0.0, "unknown")
            at_ns += round(gap * NS_PER_S)
            call = builder.call(session, add, at_ns=at_ns, cause=cause, output_tokens=10)
            at_ns += NS_PER_S
            add = [
                builder.segment(10, role="assistant"),
                builder.segment(150, role="tool", type="tool_result"),
            ]
            if turn == 1 and number % 2:
                child = builder.session(parent=session, harness=harness)
                builder.call(child, [system, builder.segment(300)], after=[call], output_tokens=10)
    return builder.trace()


def kind_and_gap(
    trace: Trace, call: CallResult, ends_ns: dict[tuple[int, int], int]
) -> tuple[str, float | None]:
    """The row of the report that a call belongs to, by what it waited for and when that had ended."""
    recorded = trace.calls[call.call]
    if call.turn_index == 0:
        return ("tree_start" if not recorded.after else "agent_start"), None
    (wait,) = recorded.after
    kind = wait.cause if wait.cause in ("tool", "user") else "other"
    first = call.attempts[0] if call.attempts else call
    gap_s = (first.sent_ns - ends_ns[call.instance, wait.call]) / NS_PER_S
    return kind, max(border for border in GAP_FROM_S if border <= gap_s)


def rates(lines: Iterable[EngineRecord]) -> dict:
    """What a row of the report has to say of the calls that these lines ended."""
    lines = list(lines)
    prompt, cached = sum(line.prompt_tokens for line in lines), sum(line.cached_tokens for line in lines)
    return {
        "calls": len(lines),
        "input_tokens": prompt,
        "reported_tokens": cached,
        "reported_ratio": cached / prompt,
    }


def check_tables(played, is_counted: Callable[[CallResult], bool]) -> None:
    """The report's tables by gap against the lines of the engine that ended the calls which count."""
    trace = trace_of()
    ends_ns = {(call.instance, call.call): call.end_ns for call in played.run.calls}
    groups: dict[tuple, list[EngineRecord]] = {}
    for call in filter(is_counted, played.run.calls):
        groups.setdefault(kind_and_gap(trace, call, ends_ns), []).append(played.last_lines[call.request_id])
    tables = played.report["tables"]
    assert {
        (row["kind"], row["gap_from_s"]): {name: row[name] for name in rates(groups["tree_start", None])}
        for row in tables["cache_by_gap"]
    } == {key: rates(lines) for key, lines in groups.items()}
    after = {
        border: [
            line for (_, gap), lines in groups.items() if gap is not None and gap >= border for line in lines
        ]
        for border in GAP_FROM_S
    }
    assert {row["gap_from_s"]: row["reported_tokens"] for row in tables["cache_after_gap"]} == {
        border: rates(lines)["reported_tokens"] for border, lines in after.items() if lines
    }
    counted = [line for lines in groups.values() for line in lines]
    numbers = played.numbers
    assert numbers["cache_calls"] == len(counted)
    assert numbers["cache_input_tokens"] == sum(line.prompt_tokens for line in counted)
    assert numbers["cache_reported_tokens"] == sum(line.cached_tokens for line in counted)
    assert numbers["cache_reported_ratio"] == numbers["cache_reported_tokens"] / numbers["cache_input_tokens"]


def check_calls(played) -> None:
    """What each call reported against the line of its last try."""
    for call in played.run.calls:
        line = played.last_lines[call.request_id]
        assert call.error is None
        assert line.outcome == "complete"
        assert (call.usage.input_tokens, call.usage.cache_read_tokens, call.usage.output_tokens) == (
            line.prompt_tokens,
            line.cached_tokens,
            line.output_tokens,
        )


def prefilled(lines: Iterable[EngineRecord]) -> list[EngineRecord]:
    return [line for line in lines if line.prefill_ns is not None]


def load(*options: str) -> tuple[str, ...]:
    return ("--arrival", "scaled:0.02", "--time-scale", str(SCALE), *options)


@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
def test_cached_tokens_per_call_and_by_gap_are_those_of_the_engines_log(play, protocol):
    played = play(trace_of(), SMALL, *load("--protocol", protocol))
    check_calls(played)
    check_tables(played, lambda _call: True)
    # The cache was too small for what the sessions held: some of it had gone when they came back.
    assert played.numbers["cache_lost_tokens"] > 1000
    assert played.numbers["cache_reported_tokens"] > 1000
    assert {row["kind"] for row in played.report["tables"]["cache_by_gap"]} == {
        *("tool", "user", "other", "agent_start", "tree_start")
    }


@pytest.mark.parametrize("protocol", ["chat", "anthropic"])
def test_with_retries_the_usage_of_the_try_that_was_answered_counts_and_the_counters_have_all(play, protocol):
    """A third of the streams are cut after 3 tokens; in Messages their usage has come by then."""
    options = replace(SMALL, fault=parse_fault("cut=3"), fault_ratio=0.33, seed=2)
    played = play(trace_of("codex"), options, *load("--protocol", protocol))
    assert len(played.lines) > len(played.log) == len(played.run.calls)
    check_calls(played)
    check_tables(played, lambda _call: True)
    tries = prefilled(played.lines)
    numbers = played.numbers
    assert len(tries) == len(played.lines) == numbers["tries"]
    assert numbers["engine_query_tokens"] == sum(line.prompt_tokens for line in tries)
    assert numbers["engine_hit_tokens"] == sum(line.cached_tokens for line in tries)
    assert numbers["engine_hit_ratio"] == numbers["engine_hit_tokens"] / numbers["engine_query_tokens"]
    assert numbers["engine_query_tokens"] > numbers["cache_input_tokens"]


def test_refused_tries_add_no_tokens_to_either_side(play):
    options = replace(SMALL, batch=1, queue=0, refuse=503, decode_tokens_per_s=100.0)
    played = play(trace_of("codex"), options, *load("--retries", "codex"))
    check_calls(played)
    check_tables(played, lambda _call: True)
    assert played.numbers["refused_tries"] > 0
    assert played.numbers["engine_query_tokens"] == played.numbers["cache_input_tokens"]
    assert played.numbers["engine_hit_tokens"] == played.numbers["cache_reported_tokens"]


@pytest.mark.parametrize("warm_up", ["2 trees", "400ms"])
def test_of_a_run_with_a_warm_up_the_tables_hold_what_came_after_it(play, warm_up):
    played = play(trace_of(), SMALL, *load("--warm-up", warm_up))
    check_calls(played)
    calls = played.run.calls
    if warm_up == "2 trees":
        # Trees start in the order of the trace, the third one's session begins a third run of lines.
        early = {call.root for call in calls if call.root in sorted({call.root for call in calls})[:2]}
        is_measured = {call.request_id: call.root not in early for call in calls}
    else:
        start_ns = min(call.due_ns for call in calls)
        is_measured = {call.request_id: call.due_ns - start_ns >= 400_000_000 for call in calls}
    assert 0 < sum(is_measured.values()) < len(calls)
    check_tables(played, lambda call: is_measured[call.request_id])
    assert played.numbers["unmeasured_calls"] == len(calls) - sum(is_measured.values())


def test_the_steady_window_has_the_hit_rate_of_the_calls_that_the_engine_served_in_it(play):
    played = play(trace_of(), SMALL, *load("--trees", "12"))
    check_calls(played)
    numbers = played.numbers
    inside = [
        played.last_lines[call.request_id]
        for call in played.run.calls
        if numbers["steady_from_s"] <= call.sent_ns / NS_PER_S < numbers["steady_until_s"]
    ]
    assert 0 < len(inside) == numbers["steady_calls"] < len(played.run.calls)
    expected = sum(line.cached_tokens for line in inside) / sum(line.prompt_tokens for line in inside)
    assert numbers["steady_cache_reported_ratio"] == expected != numbers["cache_reported_ratio"]


def pauses_around_the_warm_up() -> Trace:
    """Calls at 0.0, 0.1 and 0.2 s, and at 0.8, 0.9 and 1.0 s."""
    builder = TraceBuilder()
    for at_ms in (0, 100, 200, 800, 900, 1000):
        session = builder.session()
        builder.call(session, [builder.segment(200 + at_ms)], at_ns=at_ms * 1_000_000, output_tokens=5)
    return builder.trace()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_engines_counters_are_read_over_what_is_measured_and_nothing_else(play, workers):
    """On the beat alone the first reading that counts would be the one before the run."""
    played = play(
        pauses_around_the_warm_up(),
        SMALL,
        *("--arrival", "recorded", "--warm-up", "500ms", "--metrics-every", "3600", "--workers", workers),
    )
    measured = {call.request_id for call in played.run.calls if call.phase == "measured"}
    assert len(measured) == 3
    served = prefilled(line for line in played.lines if line.request_id in measured)
    assert played.numbers["engine_query_tokens"] == sum(line.prompt_tokens for line in served)
    assert played.numbers["engine_hit_tokens"] == sum(line.cached_tokens for line in served)
    assert played.numbers["engine_query_tokens"] == played.numbers["cache_input_tokens"]
    everything = prefilled([*played.probes, *played.lines])
    assert played.metrics["vllm:prefix_cache_queries_total"] == sum(line.prompt_tokens for line in everything)
