"""Pure: what a run came to, and whether it is in doubt.

A run is in doubt (exit code 1) if a call failed or was never sent, if it was interrupted, or if the client was what
limited it: more than 1 % of the calls, and at least two, went out later than the bound, or its event loop was that late.
What the end of a run's duration has cut is no doubt: its sessions are censored, not lost. That lanes ran out of trees
before is one. `aitrace report` has the same rules, and more that need the whole run.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK
from aitrace.quantiles import quantile
from aitrace.results import UNREACHABLE_BOUND_RATIO, RunEnd
from aitrace.units import NS_PER_MS, NS_PER_S, duration_from_ns
from replayer.planning.plan import Plan
from replayer.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A few percentiles of one measure."""

    count: int
    """Number of values."""
    p50_ms: float | None
    """Median, ms; None of no values."""
    p95_ms: float | None
    """95th percentile, ms; None of no values."""
    p99_ms: float | None
    """99th percentile, ms; None of no values."""
    max_ms: float | None
    """Largest value, ms; None of no values."""


def spread_of(values_ns: Sequence[int]) -> Spread:
    """Percentiles (inverted CDF) of values in ns, as ms."""

    def at(ratio: float) -> float | None:
        return round(quantile(values_ns, ratio) / NS_PER_MS, 3) if values_ns else None

    return Spread(count=len(values_ns), p50_ms=at(0.5), p95_ms=at(0.95), p99_ms=at(0.99), max_ms=at(1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to; docs/replay-run.md describes it as JSON."""

    planned_sessions: int
    """Sessions to be played, counting each playing of a tree."""
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
    lost_sessions: int
    """Sessions that a failed call ended."""
    stopped_sessions: int
    """Other sessions that the end of the run, or of the process that played them, cut short."""
    service_ttft: Spread
    """From sent to first token."""
    user_ttft: Spread
    """From due to first token."""
    lateness: Spread
    """From due to sent."""
    client_lateness: Spread
    """From due to sent without the opening of connections: what the verdict looks at."""
    lateness_bound_ms: float
    """Lateness above which a call counts as late, ms."""
    late_calls: int
    """Calls whose client lateness was above it."""
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

    @property
    def cached_ratio(self) -> float | None:
        """Cached prompt tokens over all prompt tokens, of the calls that reported both; None if none did."""
        if not self.prompt_tokens or self.cached_tokens is None:
            return None
        return self.cached_tokens / self.prompt_tokens

    @property
    def missing_calls(self) -> int:
        """Calls of the plan without any result: above 0 only if the program failed."""
        without_answer = sum(self.failed_calls.values()) + sum(self.unsent_calls.values())
        return self.planned_calls - self.complete_calls - self.stopped_calls - without_answer

    @property
    def tries(self) -> int:
        """Requests that were sent or would have been, had there been a connection."""
        sent_calls = self.complete_calls + sum(self.failed_calls.values()) + self.stopped_calls
        return sent_calls + sum(self.earlier_tries.values())

    @property
    def unreachable_tries(self) -> int:
        """Those of them for which there was no connection."""
        return self.earlier_tries.get("connect", 0) + self.failed_calls.get("connect", 0)

    @property
    def is_client_limited(self) -> bool:
        """Whether the client, and not the endpoint, set the pace."""
        return self.late_calls > 1 and self.late_calls > 0.01 * self.client_lateness.count

    @property
    def has_late_loop(self) -> bool:
        """Whether the event loop was later than calls may be."""
        return self.loop_lag_p99_ms is not None and self.loop_lag_p99_ms > self.lateness_bound_ms

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is in doubt, one clause each; empty if it is not."""
        return tuple(_reasons(self))

    @property
    def exit_code(self) -> int:
        """Exit code of the program."""
        return EXIT_IN_DOUBT if self.reasons else EXIT_OK


def summarise(tally: Tally, end: RunEnd, plan: Plan, *, lateness_bound_ms: float) -> Summary:
    """The summary of a run of `plan` that has ended."""
    lag_ns = end.loop_lag_p99_ns
    return Summary(
        planned_sessions=plan.sessions - end.unstarted_sessions,
        planned_calls=plan.call_count - end.unstarted_calls,
        complete_calls=tally.complete_calls,
        failed_calls=dict(tally.failed_calls.most_common()),
        stopped_calls=tally.stopped_calls,
        unmeasured_calls=dict(tally.unmeasured_calls.most_common()),
        unsent_calls=dict(tally.unsent_calls.most_common()),
        lost_sessions=len(tally.lost_sessions),
        stopped_sessions=len(tally.stopped_sessions - tally.lost_sessions),
        service_ttft=spread_of(tally.service_ttft_ns),
        user_ttft=spread_of(tally.user_ttft_ns),
        lateness=spread_of(tally.lateness_ns),
        client_lateness=spread_of(tally.client_lateness_ns),
        lateness_bound_ms=lateness_bound_ms,
        late_calls=sum(late_ns > lateness_bound_ms * NS_PER_MS for late_ns in tally.client_lateness_ns),
        late_bodies=end.late_bodies,
        stale_connections=tally.stale_connections,
        retried_calls=tally.retried_calls,
        earlier_tries=dict(tally.earlier_tries.most_common()),
        backoff_s=round(tally.backoff_ns / NS_PER_S, 3),
        prompt_tokens=tally.prompt_tokens if tally.cache_reports else None,
        cached_tokens=tally.cached_tokens if tally.cache_reports else None,
        elapsed_s=round(end.ended_ns / NS_PER_S, 3),
        cpu_s=round(end.cpu_ns / NS_PER_S, 3),
        loop_lag_p99_ms=None if lag_ns is None else round(lag_ns / NS_PER_MS, 3),
        workers=max(1, len(end.workers)),
        lost_workers=sum(worker.lost for worker in end.workers),
        interrupted=end.interrupted,
        cut_s=_seconds(end.cut_ns),
        ran_out_s=_seconds(end.ran_out_ns),
        unstarted_trees=end.unstarted_trees,
    )


def _seconds(at_ns: int | None) -> float | None:
    return None if at_ns is None else round(at_ns / NS_PER_S, 3)


def _reasons(summary: Summary) -> list[str]:
    reasons = []
    if summary.interrupted:
        reasons.append("interrupted")
    if summary.lost_workers:
        was = "was" if summary.lost_workers == 1 else "were"
        reasons.append(f"{summary.lost_workers} of {summary.workers} processes {was} lost")
    if summary.is_client_limited:
        reasons.append(
            f"client-limited: {summary.late_calls} of {summary.client_lateness.count} calls went out more than "
            f"{text_from_ms(summary.lateness_bound_ms)} late"
        )
    if summary.has_late_loop:
        reasons.append(f"client-limited: event loop late by p99 {text_from_ms(summary.loop_lag_p99_ms)}")
    if summary.unreachable_tries > UNREACHABLE_BOUND_RATIO * summary.tries:
        reasons.append(f"no connection: {summary.unreachable_tries} of {summary.tries} tries")
    if summary.failed_calls:
        reasons.append(f"calls failed: {_counts(summary.failed_calls)}")
    unsent = {reason: number for reason, number in summary.unsent_calls.items() if reason != "duration"}
    if unsent:
        reasons.append(f"calls not sent: {_counts(unsent)}")
    if summary.ran_out_s is not None:
        reasons.append(f"lanes ran out of planned trees after {text_from_ms(summary.ran_out_s * 1000)}")
    if summary.missing_calls:
        reasons.append(f"calls without a result: {summary.missing_calls}")
    if summary.complete_calls == 0:
        reasons.append("no call was complete")
    return reasons


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def text_from_ms(value_ms: float | None) -> str:
    """A time for people; `-` if it is not known."""
    return "-" if value_ms is None else duration_from_ns(round(value_ms * NS_PER_MS))


def summary_lines(summary: Summary, run_path: str) -> list[str]:
    """The summary as lines for a terminal; the last ones are the verdict and the next command."""
    service, user = summary.service_ttft, summary.user_ttft
    played = summary.planned_sessions - summary.lost_sessions - summary.stopped_sessions
    from_sent = f"from sent p50 {text_from_ms(service.p50_ms)}, p95 {text_from_ms(service.p95_ms)}"
    from_due = f"from due p50 {text_from_ms(user.p50_ms)}, p95 {text_from_ms(user.p95_ms)}"
    verdict = "in doubt: " + "; ".join(summary.reasons) if summary.reasons else "fine"
    return [
        f"calls     {_calls(summary)} in {text_from_ms(summary.elapsed_s * 1000)}",
        f"sessions  {played} of {summary.planned_sessions} played to their end{_lost(summary)}{_censored(summary)}",
        f"TTFT      {from_sent}; {from_due}",
        f"cached    {_cached(summary)}",
        f"lateness  {_lateness(summary)}",
        f"verdict   {verdict}",
        f"next      aitrace report {shlex.quote(run_path)}",
    ]


def _calls(summary: Summary) -> str:
    text = f"{summary.complete_calls} of {summary.planned_calls} complete"
    if summary.failed_calls:
        text += f", {sum(summary.failed_calls.values())} failed ({_counts(summary.failed_calls)})"
    if summary.retried_calls:
        tries = sum(summary.earlier_tries.values())
        text += f", {summary.retried_calls} after {tries} refused or failed tries ({_counts(summary.earlier_tries)})"
    if summary.stopped_calls:
        text += f", {summary.stopped_calls} {'stopped' if summary.cut_s is None else 'cut'}"
    if summary.unsent_calls:
        text += f", {sum(summary.unsent_calls.values())} not sent ({_counts(summary.unsent_calls)})"
    if summary.unmeasured_calls:
        text += (
            f"; {sum(summary.unmeasured_calls.values())} not measured ({_counts(summary.unmeasured_calls)})"
        )
    return text


def _lost(summary: Summary) -> str:
    return f", {summary.lost_sessions} lost" if summary.lost_sessions else ""


def _censored(summary: Summary) -> str:
    """What the end of the run's duration did."""
    if summary.cut_s is None:
        return ""
    text = f", {summary.stopped_sessions} cut by the end of the duration"
    if summary.unstarted_trees:
        text += f"; trees in store that were not needed: {summary.unstarted_trees}"
    return text


def _lateness(summary: Summary) -> str:
    return (
        f"p50 {text_from_ms(summary.lateness.p50_ms)}, p99 {text_from_ms(summary.lateness.p99_ms)}; "
        f"without connecting p99 {text_from_ms(summary.client_lateness.p99_ms)} "
        f"(bound {text_from_ms(summary.lateness_bound_ms)}); event loop p99 {text_from_ms(summary.loop_lag_p99_ms)}"
        + (f"; {summary.late_bodies} bodies built late" if summary.late_bodies else "")
        + (f"; {summary.stale_connections} stale connections" if summary.stale_connections else "")
    )


def _cached(summary: Summary) -> str:
    if summary.cached_ratio is None:
        return "not reported by the endpoint"
    return (
        f"{100 * summary.cached_ratio:.1f} % of prompt tokens, as the endpoint reported "
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
            "is_limit": summary.is_client_limited or summary.has_late_loop or summary.lost_workers > 0,
        },
        "interrupted": summary.interrupted,
        "cut_s": summary.cut_s,
        "ran_out_s": summary.ran_out_s,
        "unstarted_trees": summary.unstarted_trees,
        "in_doubt": list(summary.reasons),
        "exit_code": summary.exit_code,
    }
