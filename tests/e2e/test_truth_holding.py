"""Silent holding is found where the engine's log says that calls were held, with its evidence, and nowhere else."""

import math
from dataclasses import replace
from typing import Any

import pytest

from aitrace.schema import Trace
from aitrace.testing import TraceBuilder
from aitrace.units import NS_PER_MS
from replayer.engine.options import EngineOptions
from replayer.engine.record import EngineRecord

BUSY = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=100.0, step_ns=0, batch=2)
"""An answer of 20 tokens takes 0.2 s: 10 calls/s are all it can do."""
CALLS = 40


def bursts(seed: int) -> tuple[Trace, tuple[str, ...]]:
    """Calls of sessions of their own that come in bursts, at four fifths of what the engine can do."""
    builder = TraceBuilder()
    for _ in range(CALLS):
        builder.call(builder.session(), [builder.segment(200)], output_tokens=20)
    shape = ("--arrival", "gamma:8/s:2", "--seed", str(seed))
    return builder.trace(), (*shape, "--metrics-every", "0.05", "--retries", "none")


def findings(played) -> dict[str, str]:
    doubts = played.report["verdict"]["doubts"]
    return {
        doubt["name"]: doubt["what"] for doubt in doubts if doubt["name"] in ("holding", "headers_two_groups")
    }


def held_ms(line: EngineRecord, options: EngineOptions) -> float:
    """How long the engine kept a call without headers, by its log."""
    begun_ns = line.admitted_ns if options.headers == "late" else line.queued_ns
    return (begun_ns - (line.held_ns or line.queued_ns)) / NS_PER_MS


HOLDING: list[tuple[int, dict[str, Any]]] = [
    (1, {"queue": 0, "hold_s": math.inf}),
    (6, {"queue": 2, "hold_s": math.inf}),
    (9, {"queue": 0, "hold_s": 0.3}),
    (4, {"headers": "late"}),
]


def found_once(play, seed: int, options: EngineOptions):
    """Whatever else the machine does can only blur the two groups, so one of three runs has to show them."""
    for further in range(3):
        trace, load = bursts(seed + 10 * further)
        played = play(trace, options, *load)
        if "holding" in findings(played):
            return played
    pytest.fail(f"headers of the last run: {played.report['distributions']['headers_ms']}")


@pytest.mark.alone
@pytest.mark.parametrize(("seed", "policy"), HOLDING, ids=str)
def test_where_the_engine_holds_calls_they_are_found_with_what_ties_them_to_the_queue(play, seed, policy):
    options = replace(BUSY, **policy)
    played = found_once(play, seed, options)
    numbers, from_ms = played.numbers, played.numbers["slow_headers_from_ms"]
    assert list(findings(played)) == ["holding"]
    assert numbers["headers_queue_correlation"] >= 0.3
    assert numbers["slow_headers_p50_ms"] >= 3 * numbers["fast_headers_p50_ms"]
    assert f"{numbers['slow_headers_calls']} of {CALLS} calls" in findings(played)["holding"]
    slow = {
        call.request_id
        for call in played.run.calls
        if call.status == 200 and (call.headers_ns - call.sent_ns) / NS_PER_MS >= from_ms
    }
    assert len(slow) == numbers["slow_headers_calls"]
    held = {line.request_id: held_ms(line, options) for line in played.lines if line.status == 200}
    # A client sees no headers before the engine lets them go.
    assert {id_ for id_, waited_ms in held.items() if waited_ms >= from_ms} <= slow
    assert sum(held[id_] > 0.5 * from_ms for id_ in slow) >= 0.9 * len(slow)


OPEN: list[tuple[int, dict[str, Any]]] = [
    (1, {}),
    (3, {"queue": 2, "refuse": 429}),
    (4, {"prefill_tokens_per_s": 4000.0}),
]


@pytest.mark.parametrize(("seed", "policy"), OPEN, ids=str)
def test_where_calls_queue_with_headers_or_are_refused_no_holding_is_found(play, seed, policy):
    trace, load = bursts(seed)
    played = play(trace, replace(BUSY, **policy), *load)
    assert findings(played) == {}
    assert played.numbers["slow_headers_calls"] is None
    assert all(line.held_ns is None for line in played.lines)
    # There was something to take for holding: calls that waited for their first token, or were turned away.
    queued = [
        call
        for call in played.run.calls
        if call.status == 200 and call.first_token_ns - call.headers_ns > 50 * NS_PER_MS
    ]
    refused = [line for line in played.lines if line.outcome == "refused"]
    assert len(refused if "refuse" in policy else queued) >= CALLS // 10
