"""Refusals, tries and backoff: what the report states is what the engine's log says, line by line.

The engine logs every try with its request id, so counts are compared as they are. Its clock is the client's, but it does
not know the run's zero, so waits are compared as lengths, each with two that enclose it on the other side.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest

from aitrace.results import CallResult
from aitrace.schema import Trace
from aitrace.testing import TraceBuilder
from aitrace.units import NS_PER_S
from replayer.engine.options import EngineOptions, parse_fault
from replayer.engine.record import EngineRecord
from replayer.retry import PROFILES

NARROW = EngineOptions(
    port=0, prefill_tokens_per_s=None, decode_tokens_per_s=200.0, step_ns=0, batch=1, queue=1
)
"""An answer of 10 tokens takes 45 ms; one runs, one waits, and any other is refused."""
SCALE = 0.01
GAPS_S = (0.5, 4.0, 20.0)
"""Gaps of the trace, one in each of three buckets of the report."""
TURN_FROM = (0, 1, 2, 5, 10)
GAP_FROM_S = (0.0, 0.01, 0.1, 0.6, 3.0)


def trace_of(harness: str | None, *, sessions: int, calls: int, output_tokens: int = 10) -> Trace:
    """Sessions whose gaps take turns."""
    builder = TraceBuilder()
    for number in range(sessions):
        session = builder.session(harness=harness)
        at_ns = number * NS_PER_S
        for turn in range(calls):
            at_ns += round(gap_s(number, turn) * NS_PER_S)
            builder.call(session, [builder.segment(100)], at_ns=at_ns, output_tokens=output_tokens)
            at_ns += NS_PER_S
    return builder.trace()


def gap_s(session: int, turn: int) -> float:
    return GAPS_S[(session + turn) % len(GAPS_S)] if turn else 0.0


def played_gap_s(played, call: CallResult) -> float:
    """From the end of the call before it to its first try."""
    before = next(
        one for one in played.run.calls if (one.instance, one.call) == (call.instance, call.call - 1)
    )
    first = call.attempts[0] if call.attempts else call
    return (first.sent_ns - before.end_ns) / NS_PER_S


def is_refused(line: EngineRecord) -> bool:
    return line.outcome == "refused"


def quantile(values: Iterable[float], ratio: float) -> float:
    """The inverted CDF that the report takes."""
    ordered = sorted(values)
    return ordered[ceil(ratio * len(ordered)) - 1]


def spread(played, name: str) -> tuple:
    stated = played.report["distributions"][name]
    return stated["n"], stated["p50"], stated["max"]


def spread_of(values: list[float]) -> tuple:
    return len(values), quantile(values, 0.5), max(values)


REFUSALS = [
    (None, 429, None),
    (None, 503, 0.1),
    ("claude-code", 429, 0.1),
    ("claude-code", 529, None),
    ("codex", 429, None),
    ("codex", 503, 0.2),
    ("codex", 529, None),
    ("opencode", 503, 0.1),
    ("opencode", 429, None),
]
GIVES_UP = {(None, 429, None), (None, 503, 0.1), ("codex", 429, None)}
"""Those that do not try again: no harness is known, or the real one ends at a bare 429."""


PROTOCOLS = {None: "chat", "claude-code": "anthropic", "codex": "responses", "opencode": "chat"}
"""What each harness speaks."""


@pytest.mark.parametrize(("harness", "status", "retry_after_s"), REFUSALS)
def test_tries_refusals_and_lost_sessions_are_those_of_the_engines_log(play, harness, status, retry_after_s):
    options = replace(NARROW, refuse=status, retry_after_s=retry_after_s)
    played = play(
        trace_of(harness, sessions=5, calls=2),
        options,
        *("--protocol", PROTOCOLS[harness], "--arrival", "together", "--time-scale", "0"),
    )
    numbers, log = played.numbers, played.log
    refused = [line for line in played.lines if is_refused(line)]
    assert {line.status for line in refused} == {status}
    assert (numbers["tries"], numbers["refused_tries"]) == (len(played.lines), len(refused))
    assert numbers["refused_tries_ratio"] == len(refused) / len(played.lines)
    refused_once = sum(any(map(is_refused, lines)) for lines in log.values())
    assert (numbers["refused_once_calls"], numbers["refused_once_ratio"]) == (
        refused_once,
        refused_once / len(log),
    )
    assert spread(played, "tries_per_call") == spread_of([len(lines) for lines in log.values()])
    given_up = {line.session for line in played.last_lines.values() if is_refused(line)}
    assert numbers["lost_sessions"] == played.summary["sessions"]["lost"] == len(given_up)
    assert numbers["refused_calls"] == numbers["unsent_calls"] == len(given_up)
    assert bool(given_up) == ((harness, status, retry_after_s) in GIVES_UP)
    assert {row["outcome"]: row["tries"] for row in played.report["tables"]["tries_by_outcome"]} == Counter(
        line.outcome for line in played.lines
    )
    assert played.metrics["vllm:admission_rejections_total"] == numbers["engine_rejections"] == len(refused)
    check_waits(played, PROFILES.get(harness or "none"), retry_after_s)


def check_waits(played, profile, retry_after_s: float | None) -> None:
    """Every wait against the log: it lies in the time that the engine saw nothing of its call, which lies in the time
    that the client was at the two tries around it."""
    waited_s: Counter[str] = Counter({line.session: 0 for line in played.lines})
    silent_s: Counter[str] = Counter()
    for call in played.run.calls:
        lines = played.log.get(call.request_id, [])
        tries = [*call.attempts, call]
        assert call.unsent is not None or [one.status for one in tries] == [line.status for line in lines]
        for number, ((attempt, again), (refused, next_line)) in enumerate(
            zip(pairwise(tries), pairwise(lines), strict=True)
        ):
            silent_ns = next_line.head_ns - refused.end_ns
            assert attempt.wait_ns <= again.sent_ns - attempt.end_ns <= silent_ns
            assert silent_ns <= again.headers_ns - attempt.sent_ns
            if retry_after_s is None:
                least_ns = profile.base_ns << number
                assert least_ns <= attempt.wait_ns <= least_ns * (1 + profile.random_ratio)
                wait_s = attempt.wait_ns / NS_PER_S
            else:
                wait_s = retry_after_s + profile.retry_after_extra_ns / NS_PER_S
                assert attempt.retry_after_ns == round(retry_after_s * NS_PER_S)
            waited_s[refused.session] += wait_s
            silent_s[refused.session] += silent_ns / NS_PER_S
    count, p50, largest = spread(played, "session_backoff_s")
    assert (count, p50, largest) == pytest.approx(spread_of(list(waited_s.values())))
    assert played.numbers["backoff_s"] == pytest.approx(waited_s.total())
    assert played.summary["calls"]["backoff_s"] == pytest.approx(waited_s.total(), abs=1e-3)
    assert all(waited_s[session] <= silent_s[session] for session in silent_s)


def admission_of(lines_of_calls: Iterable[list[EngineRecord]]) -> dict | None:
    """What a row of the report has to say of calls, by the engine's lines of each."""
    calls = list(lines_of_calls)
    if not calls:
        return None
    refused = sum(is_refused(lines[0]) for lines in calls)
    return {
        "calls": len(calls),
        "refused_calls": refused,
        "refused_ratio": refused / len(calls),
        "tries": sum(map(len, calls)),
        "refused_tries": sum(is_refused(line) for lines in calls for line in lines),
        "given_up_calls": sum(is_refused(lines[-1]) for lines in calls),
    }


def stated(rows: list[dict], name: str) -> dict:
    """Rows of a table by the start of their bucket, without what the engine cannot know."""
    unknown = ("refused_low_ratio", "refused_high_ratio", "headers_p50_ms", "turn_to", "gap_to_s")
    return {row[name]: {key: row[key] for key in row if key not in (name, *unknown)} for row in rows}


def bucket(value: float, borders: tuple) -> float:
    return max(border for border in borders if border <= value)


@pytest.mark.parametrize("protect", [False, True], ids=["all alike", "returning calls protected"])
@pytest.mark.parametrize("harness", [None, "codex"])
def test_admission_by_kind_turn_and_gap_is_that_of_the_engines_log(play, harness, protect):
    options = replace(NARROW, queue=0, protect_returning=protect, retry_after_s=0.05)
    trace = trace_of(harness, sessions=9, calls=4)
    played = play(trace, options, *("--arrival", "fixed:30/s", "--time-scale", str(SCALE)))
    served: dict[str, int] = {}
    for line in played.lines:
        if line.first_token_ns is not None:
            at_ns = served.get(line.session, line.first_token_ns)
            served[line.session] = min(at_ns, line.first_token_ns)
    groups: dict[tuple, list] = {}
    for call in played.run.calls:
        if (lines := played.log.get(call.request_id)) is None:
            continue
        turn = call.call % 4
        is_first = served.get(lines[0].session, lines[0].head_ns) >= lines[0].head_ns
        groups.setdefault(("kind", "first" if is_first else "returning"), []).append(lines)
        groups.setdefault(("turn_from", bucket(turn, TURN_FROM)), []).append(lines)
        if not is_first:
            gap = bucket(played_gap_s(played, call), GAP_FROM_S)
            groups.setdefault(("gap_from_s", gap), []).append(lines)
    for table, name in (("kind", "kind"), ("turn", "turn_from"), ("gap", "gap_from_s")):
        expected = {key: admission_of(calls) for (kind, key), calls in groups.items() if kind == name}
        assert stated(played.report["tables"][f"admission_by_{table}"], name) == expected
    first, returning = played.report["tables"]["admission_by_kind"]
    assert first["refused_calls"] > 0
    assert returning["refused_tries"] == 0 or not protect
    # A machine that lags can move gaps into the bucket above.
    assert len({key for name, key in groups if name == "gap_from_s"}) >= 2


def test_sessions_that_the_end_finds_waiting_are_told_by_what_they_waited_for(play):
    """One call runs, one waits without a token, and four were refused, to be tried again after 2 s or more."""
    played = play(
        trace_of("opencode", sessions=6, calls=2, output_tokens=1000),
        # Prefill takes 50 ms, so that the one that waits has no token when the one before it is cut.
        replace(NARROW, prefill_tokens_per_s=2000.0),
        *("--arrival", "together", "--duration", "700ms"),
    )
    last = played.last_lines.values()
    refused = sum(map(is_refused, last))
    waiting = sum(line.outcome == "client_gone" and line.first_token_ns is None for line in last)
    assert (refused, waiting, len(last)) == (4, 1, 6)
    numbers = played.numbers
    assert (numbers["backoff_sessions"], numbers["waiting_sessions"]) == (refused, waiting)
    assert (numbers["lost_sessions"], numbers["censored_sessions"]) == (0, 6)
    assert (numbers["tries"], numbers["refused_tries"]) == (len(played.lines), refused)
    # No wait has come to its end, so none counts as a whole one.
    ends = [call.end_ns - call.attempts[0].end_ns for call in played.run.calls if call.attempts]
    assert numbers["backoff_s"] == pytest.approx(sum(ends) / NS_PER_S)
    assert numbers["backoff_s"] < 4 * 0.8


def test_a_refusal_in_the_log_is_one_in_the_report_whatever_fault_it_was(play):
    """Refusals by chance, a third of all tries but the first two, which probe, on an engine with room."""
    options = replace(NARROW, batch=64, fault=parse_fault("refuse=529:0.02"), fault_ratio=0.33, seed=2)
    played = play(trace_of("codex", sessions=8, calls=3), options, "--time-scale", "0.001")
    refused = sum(map(is_refused, played.lines))
    assert refused > 4
    assert (played.numbers["tries"], played.numbers["refused_tries"]) == (len(played.lines), refused)
    assert played.numbers["engine_rejections"] == refused
    assert played.numbers["complete_calls"] == 24
