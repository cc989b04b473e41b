"""Pure: what a run came to, for the terminal and as JSON; whether it is in doubt is for the rules of `aitrace.doubts`.

A percentile is withheld where the report withholds it: of a sample smaller than `aitrace.quantiles.min_count`.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aitrace.doubts import Doubt, Evidence, find_doubts, reasons_of, verdict_line
from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK
from aitrace.outcomes import OUTCOME_WORDS, PHASE_WORDS, UNSENT_WORDS
from aitrace.quantiles import min_count, quantile
from aitrace.results import RunEnd, RunHeader
from aitrace.units import NS_PER_MS, NS_PER_S, ratio_text, text_from_ms
from replayer.evidence import ScrapeEvidence
from replayer.tally import Tally

_LIMITS = ("client_late", "loop_lag", "workers_lost")
"""Doubts that say that the client, and not the endpoint, set the pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A few percentiles of one measure."""

    count: int
    """Number of values."""
    p50_ms: float | None
    """Median, ms; None of no values."""
    p95_ms: float | None
    """95th percentile, ms; None of fewer values than `min_count`."""
    p99_ms: float | None
    """99th percentile, ms; None as before."""
    max_ms: float | None
    """Largest value, ms; None of no values."""


def spread_of(values_ns: Sequence[int]) -> Spread:
    """Percentiles (inverted CDF) of values in ns, as ms."""

    def at(ratio: float) -> float | None:
        is_shown = len(values_ns) >= min_count(ratio)
        return round(quantile(values_ns, ratio) / NS_PER_MS, 3) if is_shown else None

    largest = round(max(values_ns) / NS_PER_MS, 3) if values_ns else None
    return Spread(count=len(values_ns), p50_ms=at(0.5), p95_ms=at(0.95), p99_ms=at(0.99), max_ms=largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to; docs/replay-reference.md describes it as JSON."""

    planned_sessions: int
    """Sessions to be played, counting each playing of a tree."""
    unmeasured_sessions: int
    """Those of them with a call in the warm-up; they are neither lost nor stopped."""
    planned_calls: int
    """Calls to be sent."""
    complete_calls: int
    """Calls with a complete answer."""
    failed_calls: Mapping[str, int]
    """Calls that were sent and failed, by error kind."""
    stopped_calls: int
    """Calls in flight when the run was stopped or cut."""
    unmeasured_calls: Mapping[str, int]
    """Calls that were sent and are not measured, by phase."""
    unsent_calls: Mapping[str, int]
    """Calls that were not sent, by reason."""
    missing_calls: int
    """Calls of the plan without any result: above 0 only if the program failed."""
    lost_sessions: int
    """Sessions that a failed call ended."""
    stopped_sessions: int
    """Other sessions that the end of the run, or of the process that played them, cut short."""
    service_ttft: Spread
    """From sent to first token."""
    user_ttft: Spread
    """From due to first token."""
    lateness: Spread
    """From due to sent, of all calls."""
    client_lateness: Spread
    """From due to sent without the opening of connections, of measured calls: what the verdict looks at."""
    lateness_bound_ms: float
    """Lateness above which a call counts as late, ms."""
    late_calls: int
    """Measured calls whose client lateness was above it."""
    late_bodies: int
    """Requests whose body had to be built when their call was due already."""
    stale_connections: int
    """Kept connections that turned out to have been closed by the server; their requests were sent again."""
    retried_calls: int
    """Calls that were tried more than once."""
    earlier_tries: Mapping[str, int]
    """Tries that another one followed, by error kind."""
    backoff_s: float
    """Sum of the waits between tries, s."""
    prompt_tokens: int | None
    """Prompt tokens of calls whose answer told how many were cached; None if none did."""
    cached_tokens: int | None
    """Cached ones among them; None if none did."""
    has_complete: bool
    """Whether a measured call is complete, and could have told them."""
    elapsed_s: float
    """From the start to the end of the last call, s."""
    cpu_s: float
    """CPU time of the replaying processes, s."""
    loop_lag_p99_ms: float | None
    """99th percentile of how late the event loop woke a timer, ms; None if it was not sampled."""
    workers: int
    """Processes that played the run."""
    lost_workers: int
    """Those of them that ended before their part of it had."""
    interrupted: bool
    """Whether the run was stopped."""
    cut_s: float | None
    """When the run's duration was over and what went on was cut, s; None if it ended in another way."""
    ran_out_s: float | None
    """When a lane found no tree left before that, s; None if none did."""
    unstarted_trees: int
    """Trees that were held in store for lanes and never started; they are in no other number."""
    doubts: tuple[Doubt, ...]
    """Reasons to distrust it, those that weigh first."""

    @property
    def cached_ratio(self) -> float | None:
        """Cached prompt tokens over all prompt tokens, of the calls that reported both; None if none did."""
        if not self.prompt_tokens or self.cached_tokens is None:
            return None
        return self.cached_tokens / self.prompt_tokens

    @property
    def is_client_limited(self) -> bool:
        """Whether the client, and not the endpoint, set the pace."""
        return any(doubt.weighs and doubt.name in _LIMITS for doubt in self.doubts)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is in doubt, one clause each; empty if it is not."""
        return reasons_of(self.doubts)

    @property
    def exit_code(self) -> int:
        """Exit code of the program."""
        return EXIT_IN_DOUBT if self.reasons else EXIT_OK


def summarise(tally: Tally, readings: ScrapeEvidence, header: RunHeader, end: RunEnd) -> Summary:
    """The summary of a run that has ended."""
    evidence = _evidence(tally, readings, header, end)
    numbers = evidence.numbers
    lag_ns = end.loop_lag_p99_ns
    return Summary(
        planned_sessions=_planned_sessions(header, end),
        unmeasured_sessions=int(numbers["unmeasured_sessions"] or 0),
        planned_calls=_planned_calls(header, end),
        complete_calls=tally.complete_calls,
        failed_calls=dict(tally.failed_calls.most_common()),
        stopped_calls=tally.stopped_calls,
        unmeasured_calls=dict(tally.unmeasured_calls.most_common()),
        unsent_calls=dict(tally.unsent_calls.most_common()),
        missing_calls=int(numbers["missing_calls"] or 0),
        lost_sessions=int(numbers["lost_sessions"] or 0),
        stopped_sessions=int(numbers["censored_sessions"] or 0),
        service_ttft=spread_of(tally.service_ttft_ns),
        user_ttft=spread_of(tally.user_ttft_ns),
        lateness=spread_of(tally.lateness_ns),
        client_lateness=spread_of(tally.evidence.lateness_ns),
        lateness_bound_ms=header.lateness_bound_ms,
        late_calls=int(numbers["late_calls"] or 0),
        late_bodies=end.late_bodies,
        stale_connections=tally.stale_connections,
        retried_calls=tally.retried_calls,
        earlier_tries=dict(tally.earlier_tries.most_common()),
        backoff_s=round(tally.backoff_ns / NS_PER_S, 3),
        prompt_tokens=tally.prompt_tokens if tally.cache_reports else None,
        cached_tokens=tally.cached_tokens if tally.cache_reports else None,
        has_complete=bool(numbers["complete_calls"]),
        elapsed_s=round(end.ended_ns / NS_PER_S, 3),
        cpu_s=round(end.cpu_ns / NS_PER_S, 3),
        loop_lag_p99_ms=None if lag_ns is None else round(lag_ns / NS_PER_MS, 3),
        workers=max(1, len(end.workers)),
        lost_workers=sum(worker.lost for worker in end.workers),
        interrupted=end.interrupted,
        cut_s=_seconds(end.cut_ns),
        ran_out_s=_seconds(end.ran_out_ns),
        unstarted_trees=end.unstarted_trees,
        doubts=find_doubts(evidence),
    )


def _evidence(tally: Tally, readings: ScrapeEvidence, header: RunHeader, end: RunEnd) -> Evidence:
    lag_ns = end.loop_lag_p99_ns
    planned_calls = _planned_calls(header, end)
    return Evidence(
        numbers={
            **tally.evidence.numbers(lateness_bound_ms=header.lateness_bound_ms),
            **readings.numbers(end),
            "planned_sessions": _planned_sessions(header, end),
            "missing_calls": max(0, planned_calls - tally.sent_calls - tally.unsent_calls.total()),
            "loop_lag_p99_ms": None if lag_ns is None else lag_ns / NS_PER_MS,
        },
        header=header,
        end=end,
    )


def _planned_sessions(header: RunHeader, end: RunEnd) -> int:
    return header.planned_sessions - end.unstarted_sessions


def _planned_calls(header: RunHeader, end: RunEnd) -> int:
    return header.planned_calls - end.unstarted_calls


def _seconds(at_ns: int | None) -> float | None:
    return None if at_ns is None else round(at_ns / NS_PER_S, 3)


def counts_text(counts: Mapping[str, int], words: Mapping[str, str]) -> str:
    """`3 refused, 1 stream cut`: counts by name, the names in words."""
    return ", ".join(f"{number:,} {words[name]}" for name, number in counts.items())


def summary_lines(summary: Summary, run_path: str) -> list[str]:
    """The summary as lines for a terminal; the last ones are the verdict and the next command."""
    from_sent, from_due = (
        f"from {begin} {_spread_text(spread, p50=0.5, p95=0.95)}"
        for begin, spread in (("sent", summary.service_ttft), ("due", summary.user_ttft))
    )
    return [
        f"calls     {_calls(summary)} in {text_from_ms(summary.elapsed_s * 1000)}",
        f"sessions  {_sessions(summary)}",
        f"TTFT      {from_sent}; {from_due}",
        f"cached    {_cached(summary)}",
        f"lateness  {_lateness(summary)}",
        f"verdict   {verdict_line(summary.doubts)}",
        f"next      aitrace report {shlex.quote(run_path)}",
    ]


def _spread_text(spread: Spread, **ratios: float) -> str:
    """Percentiles by name; of one that the sample cannot carry, how many values it needs."""
    if not spread.count:
        return "not known"
    shown = asdict(spread)
    return ", ".join(
        f"{name} (n < {min_count(ratio)})"
        if shown[f"{name}_ms"] is None
        else f"{name} {text_from_ms(shown[f'{name}_ms'])}"
        for name, ratio in ratios.items()
    )


def _calls(summary: Summary) -> str:
    text = f"{summary.complete_calls} of {summary.planned_calls} complete"
    if summary.failed_calls:
        failed = counts_text(summary.failed_calls, OUTCOME_WORDS)
        text += f", {sum(summary.failed_calls.values())} failed ({failed})"
    if summary.retried_calls:
        tries = sum(summary.earlier_tries.values())
        earlier = counts_text(summary.earlier_tries, OUTCOME_WORDS)
        text += f", {summary.retried_calls} after {tries} refused or failed tries ({earlier})"
    if summary.stopped_calls:
        text += f", {summary.stopped_calls} {'stopped' if summary.cut_s is None else 'cut'}"
    if summary.unsent_calls:
        reasons = ", ".join(
            f"{UNSENT_WORDS[name]}: {number:,}" for name, number in summary.unsent_calls.items()
        )
        text += f", {sum(summary.unsent_calls.values())} not sent ({reasons})"
    if summary.unmeasured_calls:
        phases = counts_text(summary.unmeasured_calls, PHASE_WORDS)
        text += f"; {sum(summary.unmeasured_calls.values())} not measured ({phases})"
    return text


def _sessions(summary: Summary) -> str:
    measured = summary.planned_sessions - summary.unmeasured_sessions
    played = measured - summary.lost_sessions - summary.stopped_sessions
    lost = f", {summary.lost_sessions} lost" if summary.lost_sessions else ""
    text = f"{played} of {measured} played to their end{lost}{_censored(summary)}"
    if summary.unmeasured_sessions:
        text += f"; {summary.unmeasured_sessions} not measured ({PHASE_WORDS['warm_up']})"
    return text


def _censored(summary: Summary) -> str:
    """What the end of the run's duration did."""
    if summary.cut_s is None:
        return ""
    text = f", {summary.stopped_sessions} cut by the end of the duration"
    if summary.unstarted_trees:
        text += f"; trees in store that were not needed: {summary.unstarted_trees}"
    return text


def _lateness(summary: Summary) -> str:
    client = summary.client_lateness
    measured = (
        f"{_spread_text(client, p99=0.99)}, max {text_from_ms(client.max_ms)}"
        if client.count
        else "not known: no measured call was sent"
    )
    return (
        f"{_spread_text(summary.lateness, p50=0.5, p99=0.99)}; without connecting {measured} "
        f"(bound {text_from_ms(summary.lateness_bound_ms)}); event loop p99 {text_from_ms(summary.loop_lag_p99_ms)}"
        + (f"; {summary.late_bodies} bodies built late" if summary.late_bodies else "")
        + (f"; {summary.stale_connections} stale connections" if summary.stale_connections else "")
    )


def _cached(summary: Summary) -> str:
    if not summary.prompt_tokens or summary.cached_tokens is None:
        return (
            "not reported by the endpoint"
            if summary.has_complete
            else "not known: no measured call is complete"
        )
    return (
        f"{ratio_text(summary.cached_tokens, summary.prompt_tokens)} of prompt tokens, as the endpoint reported "
        f"({summary.cached_tokens} of {summary.prompt_tokens})"
    )


def summary_json(summary: Summary, run_path: str) -> dict[str, Any]:
    """The summary as the JSON object of `aitrace replay --json`."""
    return {
        "run": run_path,
        "calls": {
            "planned": summary.planned_calls,
            "complete": summary.complete_calls,
            "failed": dict(summary.failed_calls),
            "stopped": summary.stopped_calls,
            "unsent": dict(summary.unsent_calls),
            "unmeasured": dict(summary.unmeasured_calls),
            "missing": summary.missing_calls,
            "retried": summary.retried_calls,
            "earlier_tries": dict(summary.earlier_tries),
            "backoff_s": summary.backoff_s,
        },
        "sessions": {
            "planned": summary.planned_sessions,
            "unmeasured": summary.unmeasured_sessions,
            "lost": summary.lost_sessions,
            "stopped": summary.stopped_sessions,
        },
        "ttft": {"service": asdict(summary.service_ttft), "user": asdict(summary.user_ttft)},
        "lateness": {
            "all": asdict(summary.lateness),
            "client": asdict(summary.client_lateness),
            "bound_ms": summary.lateness_bound_ms,
            "late_calls": summary.late_calls,
        },
        "cache": {
            "prompt_tokens": summary.prompt_tokens,
            "cached_tokens": summary.cached_tokens,
            "cached_ratio": summary.cached_ratio,
        },
        "client": {
            "elapsed_s": summary.elapsed_s,
            "cpu_s": summary.cpu_s,
            "loop_lag_p99_ms": summary.loop_lag_p99_ms,
            "late_bodies": summary.late_bodies,
            "stale_connections": summary.stale_connections,
            "workers": summary.workers,
            "lost_workers": summary.lost_workers,
            "is_limit": summary.is_client_limited,
        },
        "interrupted": summary.interrupted,
        "cut_s": summary.cut_s,
        "ran_out_s": summary.ran_out_s,
        "unstarted_trees": summary.unstarted_trees,
        "in_doubt": list(summary.reasons),
        "doubts": [asdict(doubt) for doubt in summary.doubts],
        "exit_code": summary.exit_code,
    }
