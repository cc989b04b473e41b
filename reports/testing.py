"""I/O: made-up runs of some size, seeded, built with `aitrace.testing`, for tests of anything that reads a run.

Trees have a main agent and sub-agents; calls wait for what the trace says, are let in or refused, and report a cache
that forgets after a while. The numbers are plausible, not right: expectations come from elsewhere.
"""

import random
from dataclasses import dataclass, fields, replace
from typing import Any

from aitrace.results import CallResult, RunEnd, RunHeader, Scrape
from aitrace.schema import Call, GapCause, Trace, Usage
from aitrace.testing import TraceBuilder, make_call_result, make_run_end, make_run_header
from aitrace.units import NS_PER_MS, NS_PER_S

_CACHE_TTL_S = 20
_SCRAPE_S = 2
_OF_THE_PLAN = ("gap_ns", "planned_ns")
_NOTHING_CAME: dict[str, Any] = {
    field.name: None
    for field in fields(CallResult)
    if field.name in ("new_connection", "status", "finish")
    or (field.name.endswith("_ns") and field.name not in _OF_THE_PLAN)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpRun:
    """A run as values."""

    header: RunHeader
    """What was to be played."""
    end: RunEnd
    """How it ended."""
    calls: tuple[CallResult, ...]
    """In order of the plan."""
    scrapes: tuple[Scrape, ...]
    """In order of time."""
    trace: Trace
    """What was played."""


def make_up_run(trees: int = 6, calls: int = 12, *, seed: int = 0, refused_ratio: float = 0.0) -> MadeUpRun:
    """A run of `trees` trees whose main agents make `calls` calls each."""
    rng = random.Random(seed)
    trace = _trace(rng, trees, calls)
    results = _results(rng, trace, refused_ratio)
    ended_ns = max((call.end_ns for call in results if call.end_ns is not None), default=0)
    unsent = sum(call.unsent is not None for call in results)
    return MadeUpRun(
        header=make_run_header(
            trace="made-up.aitrace",
            options={"arrival": "poisson:0.2/s"},
            planned_trees=trees,
            planned_sessions=len(trace.sessions),
            planned_calls=len(trace.calls),
        ),
        end=make_run_end(
            ended_ns=ended_ns, sent_calls=len(results) - unsent, unsent_calls=unsent, cpu_ns=ended_ns // 10
        ),
        calls=tuple(results),
        scrapes=tuple(_scrapes(results, ended_ns)),
        trace=trace,
    )


def _trace(rng: random.Random, trees: int, calls: int) -> Trace:
    builder = TraceBuilder(block_size=64, attribution="made up")
    system = builder.segment(9000, role="system", type="system")
    sub_system = builder.segment(4000, role="system", type="system")
    for tree in range(trees):
        main = builder.session(harness="claude-code")
        waits: list[int] = []
        at_ns = tree * 5 * NS_PER_S
        for turn in range(calls):
            add = [system] if turn == 0 else [builder.segment(rng.randint(50, 600), "assistant", "tool_use")]
            add.append(builder.segment(rng.randint(100, 2500), "tool", "tool_result"))
            cause: GapCause = "user" if turn % 6 == 5 else "tool"
            gap_ns = round(rng.lognormvariate(0.5 if cause == "tool" else 2.5, 1) * NS_PER_S)
            start_ns = at_ns if turn == 0 else _last_end_ns(builder, waits) + gap_ns
            last = builder.call(
                main, add, at_ns=start_ns, cause=cause, after=waits, call_class="main", **_answer(rng)
            )
            waits = [last]
            if turn % 5 == 2:
                waits += [_sub_agent(rng, builder, main, sub_system) for _ in range(rng.randint(1, 2))]
    return builder.trace()


def _sub_agent(rng: random.Random, builder: TraceBuilder, parent: int, system: int) -> int:
    child = builder.session(parent=parent, harness="claude-code", agent="Explore")
    last = builder.call(
        child, [system, builder.segment(rng.randint(200, 900))], call_class="subagent", **_answer(rng)
    )
    for _ in range(rng.randint(1, 4)):
        add = [builder.segment(100, "assistant", "tool_use"), builder.segment(900, "tool", "tool_result")]
        last = builder.call(child, add, cause="tool", call_class="subagent", **_answer(rng))
    return last


def _answer(rng: random.Random) -> dict[str, Any]:
    return {"output_tokens": rng.randint(30, 500), "duration_ns": round(rng.uniform(1, 6) * NS_PER_S)}


def _last_end_ns(builder: TraceBuilder, waits: list[int]) -> int:
    calls = builder.trace().calls
    return max(calls[wait].times.end_ns or 0 for wait in waits)


def _results(rng: random.Random, trace: Trace, refused_ratio: float) -> list[CallResult]:
    results: list[CallResult] = []
    turns: dict[int, int] = {}
    sizes: list[int] = []
    for call in trace.calls:
        base = call.prompt.base
        sizes.append(
            (0 if base is None else sizes[base]) + sum(trace.segments[i].size for i in call.prompt.add)
        )
        turn = turns[call.session] = turns.get(call.session, -1) + 1
        root = trace.sessions[call.session].root
        planned = make_call_result(
            call.id,
            session=call.session,
            instance=1,
            root=root,
            call_class=call.call_class,
            turn_index=turn,
            prompt_tokens=sizes[-1],
            output_tokens=call.usage.output_tokens or 1,
            planned_ns=call.times.request_ns,
        )
        results.append(_played(rng, call, planned, results, refused_ratio))
    return results


def _played(
    rng: random.Random, call: Call, planned: CallResult, before: list[CallResult], refused_ratio: float
) -> CallResult:
    waited_for = [before[dependency.call] for dependency in call.after]
    gap_ns = None if not call.after else max(0, min(d.gap_ns or 0 for d in call.after))
    planned = replace(planned, gap_ns=gap_ns, gap_cause=call.after[0].cause if call.after else None)
    if any(other.error is not None or other.unsent is not None for other in waited_for):
        return _unsent(planned)
    due_ns = max((other.end_ns or 0 for other in waited_for), default=call.times.request_ns) + (gap_ns or 0)
    sent_ns = due_ns + round(rng.expovariate(1 / 0.6) * NS_PER_MS)
    if rng.random() < refused_ratio:
        return _refused(planned, due_ns, sent_ns)
    cached = _cached_tokens(rng, call, planned, before)
    ttft_ns = round((60 + (planned.prompt_tokens - cached) / 12) * rng.uniform(0.9, 1.6) * NS_PER_MS)
    decode_ns = round(planned.output_tokens * rng.uniform(12, 22) * NS_PER_MS)
    first_ns, last_ns = sent_ns + ttft_ns, sent_ns + ttft_ns + decode_ns
    return replace(
        planned,
        due_ns=due_ns,
        dispatched_ns=due_ns + (sent_ns - due_ns) // 2,
        connected_ns=due_ns + (sent_ns - due_ns) // 2,
        sent_ns=sent_ns,
        uploaded_ns=sent_ns + NS_PER_MS,
        headers_ns=first_ns - NS_PER_MS,
        first_byte_ns=first_ns,
        first_event_ns=first_ns,
        first_token_ns=first_ns,
        first_visible_ns=first_ns,
        last_token_ns=last_ns,
        end_ns=last_ns + NS_PER_MS,
        new_connection=False,
        events=planned.output_tokens,
        token_events=planned.output_tokens,
        longest_stall_ns=round(rng.lognormvariate(4, 0.6) * NS_PER_MS),
        usage=Usage(
            input_tokens=planned.prompt_tokens + 7,
            cache_read_tokens=cached,
            output_tokens=planned.output_tokens,
        ),
    )


def _cached_tokens(rng: random.Random, call: Call, planned: CallResult, before: list[CallResult]) -> int:
    if call.prompt.base is None:
        return 0
    earlier = before[call.prompt.base]
    is_kept = (planned.gap_ns or 0) < _CACHE_TTL_S * NS_PER_S or rng.random() < 0.2
    return earlier.prompt_tokens // 16 * 16 if is_kept else 0


def _unsent(planned: CallResult) -> CallResult:
    return replace(planned, unsent="session_lost", usage=Usage(), **_NOTHING_CAME)


def _refused(planned: CallResult, due_ns: int, sent_ns: int) -> CallResult:
    sent: dict[str, Any] = {
        "due_ns": due_ns,
        "dispatched_ns": due_ns,
        "connected_ns": due_ns,
        "sent_ns": sent_ns,
        "uploaded_ns": sent_ns + NS_PER_MS,
        "headers_ns": sent_ns + 3 * NS_PER_MS,
        "end_ns": sent_ns + 4 * NS_PER_MS,
        "new_connection": False,
        "status": 429,
        "error": "refused",
        "error_text": "too many requests",
        "retry_after_ns": 2 * NS_PER_S,
    }
    return replace(planned, usage=Usage(), **(_NOTHING_CAME | sent))


def _scrapes(results: list[CallResult], ended_ns: int) -> list[Scrape]:
    scrapes = []
    for at_ns in range(0, ended_ns + 1, _SCRAPE_S * NS_PER_S):
        begun = [call for call in results if call.first_token_ns is not None and call.first_token_ns <= at_ns]
        running = sum(call.end_ns is not None and call.end_ns > at_ns for call in begun)
        waiting = sum(
            call.sent_ns is not None and call.sent_ns <= at_ns < (call.first_token_ns or 0)
            for call in results
        )
        scrapes.append(
            Scrape(
                at_ns=at_ns,
                url="http://127.0.0.1:8000/metrics",
                values={
                    "running": float(running),
                    "waiting": float(waiting),
                    "kv_usage_ratio": min(1.0, len(begun) / max(1, len(results))),
                    "prefix_query_tokens": float(sum(call.usage.input_tokens or 0 for call in begun)),
                    "prefix_hit_tokens": float(sum(call.usage.cache_read_tokens or 0 for call in begun)),
                },
            )
        )
    return scrapes
