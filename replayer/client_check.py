"""Pure: a trial of the client at a plan's peak: what is played, and what the two sides of it say about the client.

The trial repeats the busiest second of the plan for a few seconds against the built-in engine on this machine. The
engine needs CPU too, and its own delays count as the client's: the errors found are bounds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aitrace.quantiles import quantile
from aitrace.results import CallResult, ClientCheck, RunEnd
from aitrace.schema import Call, CallTimes, Footer, Header, Prompt, Segment, Session, Trace, Usage
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.planning.peak import Peak

SECONDS = 5
MAX_CALLS_PER_S = 2_000
"""More would measure the engine: it is no faster than the client."""
_BLOCK_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLoad:
    """What a trial plays."""

    calls_per_s: float
    """Rate of calls, each of a session of its own."""
    calls: int
    """Number of calls."""
    prompt_tokens: int
    """Prompt of each."""
    output_tokens: int
    """Answer of each."""
    tokens_per_s: float
    """Tokens per second of each answer."""


def trial_load(peak: Peak) -> TrialLoad:
    """The load of a peak, with answers short enough to be over within the trial: then more of them are sent."""
    tokens_per_s = max(1.0, peak.tokens_per_s)
    output_tokens = max(1, min(peak.output_tokens, round(tokens_per_s * SECONDS)))
    rate = max(peak.calls_per_s, peak.events_per_s / output_tokens)
    rate = min(MAX_CALLS_PER_S, max(1.0, round(rate, 3)))
    return TrialLoad(
        calls_per_s=rate,
        calls=max(2, round(rate * SECONDS)),
        prompt_tokens=peak.prompt_tokens,
        output_tokens=output_tokens,
        tokens_per_s=tokens_per_s,
    )


def trial_trace(load: TrialLoad) -> Trace:
    """The calls of a trial as a trace."""
    blocks = -(-load.prompt_tokens // _BLOCK_TOKENS)
    numbers = range(load.calls)
    usage = Usage(input_tokens=load.prompt_tokens, output_tokens=load.output_tokens)
    return Trace(
        header=Header(producer="aitrace calibrate", unit="tokens", block_size=_BLOCK_TOKENS),
        sessions=tuple(Session(id=number, root=number) for number in numbers),
        segments=tuple(
            Segment(
                id=number,
                role="user",
                type="text",
                size=load.prompt_tokens,
                blocks=((number * blocks, blocks),),
            )
            for number in numbers
        ),
        calls=tuple(
            Call(
                id=number,
                session=number,
                prompt=Prompt(add=(number,)),
                times=CallTimes(request_ns=0),
                usage=usage,
                streamed=True,
            )
            for number in numbers
        ),
        footer=Footer(sessions=load.calls, segments=load.calls, calls=load.calls, blocks=blocks * load.calls),
    )


def check_from_trial(
    load: TrialLoad, calls: Iterable[CallResult], end: RunEnd, logged: Sequence[Mapping[str, Any]]
) -> ClientCheck | None:
    """What a trial says about the client; None if no call of it was complete.

    Args:
        logged: Lines of the engine's log.
    """
    records = {record["request_id"]: record for record in logged}
    done = [
        call for call in calls if call.error is None and call.sent_ns is not None and call.due_ns is not None
    ]
    errors_ns = [
        error_ns
        for call in done
        if (error_ns := _ttft_error_ns(call, records.get(call.request_id))) is not None
    ]
    lateness_ns = [(call.sent_ns or 0) - (call.due_ns or 0) for call in done]
    events = sum(call.events or 0 for call in done)
    if not done or not errors_ns or not events or end.ended_ns <= 0:
        return None
    return ClientCheck(
        calls_per_s=load.calls_per_s,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        calls=len(done),
        failed_calls=load.calls - len(done),
        reached_events_per_s=_most_events_in_a_second(done),
        workers=max(1, len(end.workers)),
        ttft_error_p50_ns=quantile(errors_ns, 0.5),
        ttft_error_p99_ns=quantile(errors_ns, 0.99),
        lateness_p50_ns=quantile(lateness_ns, 0.5),
        lateness_p99_ns=quantile(lateness_ns, 0.99),
        cpu_per_event_ns=round(end.cpu_ns / events),
        cpu_per_call_ns=round(end.cpu_ns / len(done)),
    )


def check_lines(check: ClientCheck) -> list[str]:
    """A check as lines for a terminal."""
    processes = "1 process" if check.workers == 1 else f"{check.workers} processes"
    prompts = f"{check.prompt_tokens:,} prompt and {check.output_tokens:,} answer tokens"
    load = f"{check.calls_per_s:g} calls/s of {prompts}, {check.reached_events_per_s:,.0f} events/s reached"
    event_us, call_us = check.cpu_per_event_ns / 1000, check.cpu_per_call_ns / 1000
    size = f"(n = {check.calls:,})"
    return [
        f"load        {load}, {processes}",
        f"TTFT error  p50 {_ms(check.ttft_error_p50_ns)}, p99 {_ms(check.ttft_error_p99_ns)} {size}",
        f"lateness    p50 {_ms(check.lateness_p50_ns)}, p99 {_ms(check.lateness_p99_ns)} {size}",
        f"CPU         {event_us:.0f} µs per event and its part of a call, {call_us:.0f} µs per call and its events",
    ]


def check_doubts(check: ClientCheck, bound_ms: float) -> tuple[str, ...]:
    """Why a run at the load of a check may say more of its client than of its target; empty if nothing says so.

    Args:
        bound_ms: Lateness that the run is to keep to.
    """
    doubts = []
    if check.lateness_p99_ns > bound_ms * NS_PER_MS:
        late = _ms(check.lateness_p99_ns)
        doubts.append(f"this machine is too slow for that load: lateness p99 {late} is above {bound_ms:g} ms")
    if check.failed_calls:
        doubts.append(
            f"{check.failed_calls:,} of {check.failed_calls + check.calls:,} calls failed in the trial"
        )
    return tuple(doubts)


def _most_events_in_a_second(calls: Iterable[CallResult]) -> float:
    """Events of the second in which most came, those of each call spread evenly over its stream."""
    seconds: Counter[int] = Counter()
    for call in calls:
        first_ns, events = call.first_token_ns or 0, call.events or 0
        stream_ns = (call.last_token_ns or first_ns) - first_ns
        for place in range(events):
            seconds[(first_ns + stream_ns * place // max(1, events - 1)) // NS_PER_S] += 1
    return float(max(seconds.values(), default=0))


def _ttft_error_ns(call: CallResult, record: Mapping[str, Any] | None) -> int | None:
    """The client's TTFT less the engine's; None if one of them is not known."""
    if record is None or record.get("first_token_ns") is None:
        return None
    if call.first_token_ns is None or call.sent_ns is None:
        return None
    own_ns: int = record["first_token_ns"] - record["head_ns"]
    return call.first_token_ns - call.sent_ns - own_ns


def _ms(span_ns: int) -> str:
    return f"{span_ns / NS_PER_MS:.2f} ms"
