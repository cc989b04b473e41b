"""Pure: named reasons to distrust a run, each with its likely cause and what to do about it."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from aitrace.results import UNREACHABLE_BOUND_RATIO
from reports.answers import Answers
from reports.holding import MIN_CORRELATION
from reports.metric import NS_PER_S, Number
from reports.run_metrics import lateness_bound_ms
from reports.sessions import IS_FAILED, IS_STOPPED
from reports.tables import Facts
from reports.words import counted, text_from_float, text_from_ms, text_from_ratio, text_from_seconds

LATE_CALLS = 2
"""Fewer late calls than this put no run in doubt, however few were sent."""
LATE_BOUND_RATIO = 0.01
"""Share of the calls sent that may be late."""
SIZE_BOUND_RATIO = 0.05
"""How far prompt and output sizes may be off plan."""
UNREPORTED_BOUND_RATIO = 0.05
"""Share of complete calls that may come without usage."""
FAILED_SCRAPES_BOUND_RATIO = 0.05
"""Share of readings that may fail."""
SCRAPE_HOLE_FACTOR = 5.0
"""A time without a reading counts as a hole if it is this many times the usual one."""
WARM_BOUND_RATIO = 0.02
"""Share of prompt tokens by which reported hits may exceed the bound."""
WARM_NOTE_RATIO = 0.002
"""Share from which an excess is noted."""
WINDOW_BOUND_RATIO = 0.1
"""How far the tokens an engine counted may differ from those its calls reported."""
MIN_CALLS = 20
"""Fewer calls with a first token than this leave only a median."""
P99_CALLS = 200
"""Calls that a p99 needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One reason."""

    name: str
    """Fixed name, for programs."""
    what: str
    """What was found, with numbers; a clause for the verdict line."""
    cause: str
    """What most likely led to it."""
    action: str = ""
    """What to do; empty if there is nothing."""
    weighs: bool = True
    """Whether it puts the run in doubt; False for a note on what the page cannot show."""


def find_doubts(facts: Facts, answers: Answers) -> tuple[Doubt, ...]:
    """All reasons, those that weigh first."""
    found = [
        *_of_the_end(facts, answers.numbers),
        *_of_the_unmeasured(facts, answers.numbers),
        *_of_the_files(facts, answers.numbers),
        *_of_the_workers(facts),
        *_of_the_client(facts, answers),
        *_of_the_calls(answers.numbers),
        *_of_the_connections(facts),
        *_of_the_sessions(answers.numbers),
        *_of_the_headers(answers.numbers),
        *_of_the_answers(answers.numbers),
        *_of_the_sizes(facts, answers.numbers),
        *_of_the_cache(facts, answers.numbers),
        *_of_the_scrapes(answers.numbers),
        *_of_the_sample(answers),
    ]
    return tuple(sorted(found, key=lambda doubt: not doubt.weighs))


def verdict_line(doubts: tuple[Doubt, ...]) -> str:
    """`fine`, or what puts the run in doubt."""
    reasons = [doubt.what for doubt in doubts if doubt.weighs]
    return f"in doubt: {'; '.join(reasons)}" if reasons else "fine"


def _of_the_end(facts: Facts, numbers: dict[str, Number]) -> Iterator[Doubt]:
    if facts.end is None:
        yield Doubt(
            name="run_cut",
            what=f"the run has no end record{_without_result(numbers)}",
            cause="the replay was killed, crashed, or is still running; calls in flight at that moment are missing",
            action="play the trace again",
        )
    elif facts.end.interrupted:
        yield Doubt(
            name="interrupted",
            what=f"the run was stopped before its end, with {counted(numbers['stopped_calls'], 'call')} in flight",
            cause="Ctrl-C or a signal; long sessions are under-represented",
            action="play the trace to its end",
        )
    elif facts.end.cut_ns is not None:
        yield Doubt(
            name="censored",
            what=f"{counted(numbers['censored_sessions'], 'session')} cut by the end of the run's duration",
            cause="--duration: their calls until then are in the figures of calls; figures of whole sessions and trees "
            "miss them, so long ones are under-represented there",
            weighs=False,
        )
    if facts.end is not None and facts.end.ran_out_ns is not None:
        yield Doubt(
            name="lanes_ran_out",
            what=f"lanes ran out of planned trees after {text_from_seconds(facts.end.ran_out_ns / NS_PER_S)}",
            cause="the endpoint was faster than a plan allows for, sessions were lost and made room, or a plan's largest "
            "size was reached; from then on fewer sessions were active than asked for",
            action="give a shorter --duration, or more --time-scale",
        )


def _of_the_connections(facts: Facts) -> Iterator[Doubt]:
    tries = facts.tries.height
    failed = facts.tries.filter(pl.col("outcome") == "connect").height
    if failed > UNREACHABLE_BOUND_RATIO * tries:
        yield Doubt(
            name="unreachable",
            what=f"{failed:,} of {tries:,} tries got no connection",
            cause="the endpoint was away, or refused connections",
            action="see its log, and play the trace again",
        )


def _of_the_files(facts: Facts, numbers: dict[str, Number]) -> Iterator[Doubt]:
    if facts.lines_lost:
        yield Doubt(
            name="lines_lost",
            what=f"{counted(facts.lines_lost, 'line')} of the run's files unreadable",
            cause="the run was cut while it wrote, or its files were damaged; the calls on these lines are missing "
            "from every figure",
        )
    missing = numbers["missing_calls"]
    if facts.end is not None and missing:
        yield Doubt(
            name="calls_missing",
            what=f"{counted(missing, 'planned call')} without a result",
            cause="lines were lost, or the replay failed",
            action="play the trace again; report a fault of aitrace if it happens twice",
        )


def _without_result(numbers: dict[str, Number]) -> str:
    missing = numbers["missing_calls"]
    return f", and {counted(missing, 'planned call')} left no result" if missing else ""


def _of_the_unmeasured(facts: Facts, numbers: dict[str, Number]) -> Iterator[Doubt]:
    if not numbers["unmeasured_calls"]:
        return
    left_out = facts.every_call.filter(pl.col("phase") != "measured")
    primes = left_out.filter(pl.col("phase") == "prime").height
    failed = left_out.filter(IS_FAILED & ~IS_STOPPED).height
    yield Doubt(
        name="unmeasured",
        what=f"{counted(left_out.height, 'call')} left out: {left_out.height - primes:,} of the warm-up, {primes:,} that "
        "primed prompts",
        cause=f"the run's options; {failed:,} of them failed; sessions with a call in the warm-up are in no figure of "
        "sessions",
        weighs=False,
    )


def _of_the_workers(facts: Facts) -> Iterator[Doubt]:
    workers = () if facts.end is None else facts.end.workers
    lost = sum(worker.lost for worker in workers)
    if lost:
        yield Doubt(
            name="workers_lost",
            what=f"{lost} of {len(workers)} replaying processes lost",
            cause="killed, or out of memory; their calls in flight count as stopped, the others were not sent, and from "
            "then on the load was lower than planned",
            action="see why it ended (the system's log), and play the trace again",
        )


def _of_the_client(facts: Facts, answers: Answers) -> Iterator[Doubt]:
    bound_ms = lateness_bound_ms(facts)
    late, sent = answers.numbers["late_calls"] or 0, answers.numbers["sent_calls"] or 0
    if late:
        weighs = late >= LATE_CALLS and late / sent > LATE_BOUND_RATIO
        yield Doubt(
            name="client_late",
            what=f"{late:,} of {counted(sent, 'call')} ({text_from_ratio(late / sent)}) went out more than "
            f"{bound_ms:g} ms late",
            cause="the replaying machine was busy, or too small for this load"
            if weighs
            else "the replaying machine was busy for a moment",
            action="free the machine, lower the load, or spread it over several; until then read TTFT, user (from due)"
            if weighs
            else "",
            weighs=weighs,
        )
    lag_ms = answers.numbers["loop_lag_p99_ms"]
    if lag_ms is not None and lag_ms > bound_ms:
        yield Doubt(
            name="loop_lag",
            what=f"the client's event loop lagged: p99 {text_from_float(lag_ms)} ms, bound {bound_ms:g} ms",
            cause="the replaying process had no CPU when it wanted it; tokens were seen later than they came, so "
            "TTFT and ITL are too long",
            action="free the machine",
        )


def _of_the_calls(numbers: dict[str, Number]) -> Iterator[Doubt]:
    sent = numbers["sent_calls"] or 0
    if not numbers["complete_calls"]:
        yield Doubt(
            name="nothing_complete",
            what="no call was answered completely",
            cause="the endpoint was not there, refused everything, or speaks another protocol",
            action="see the errors by kind; check url, protocol and model",
        )
    if numbers["refused_calls"]:
        yield Doubt(
            name="refusals",
            what=f"{numbers['refused_calls']:,} of {counted(sent, 'call')} refused",
            cause="the endpoint had no room (429, 503, 529); times are those of the calls that were let in",
            action="lower the load to compare endpoints",
        )
    overloaded = (numbers["overload_calls"] or 0) - (numbers["refused_calls"] or 0)
    if overloaded:
        yield Doubt(
            name="overload",
            what=f"{counted(overloaded, 'call')} ended by an overload error in the stream",
            cause="the endpoint let the call in and had no room for it later; the status stayed 200",
            action="count these as refusals; lower the load to compare endpoints",
        )
    malformed = numbers["malformed_calls"]
    if malformed:
        yield Doubt(
            name="malformed",
            what=f"{counted(malformed, 'answer')} not of this protocol",
            cause="the url leads to something else (a proxy, a login page), or --protocol is another one",
            action="see the first text among the errors by kind; check url and protocol",
        )
    others = (numbers["failed_calls"] or 0) - overloaded - (malformed or 0)
    if others:
        yield Doubt(
            name="errors",
            what=f"{counted(others, 'call')} failed otherwise",
            cause="the errors by kind tell; what failed is missing from the times of complete calls",
            action="mend what they name and play again",
        )


def _of_the_sessions(numbers: dict[str, Number]) -> Iterator[Doubt]:
    if numbers["lost_sessions"]:
        yield Doubt(
            name="lost_sessions",
            what=f"{numbers['lost_sessions']:,} of {counted(numbers['planned_sessions'], 'session')} lost",
            cause="a call of each failed, and what waited for it was not sent; the later, longer prompts of these "
            "sessions are missing, so times look better than they are",
        )


def _of_the_headers(numbers: dict[str, Number]) -> Iterator[Doubt]:
    slow, sent = numbers["slow_headers_calls"], numbers["sent_calls"]
    if slow is None:
        return
    correlation = numbers["headers_queue_correlation"]
    groups = (
        f"the headers of {slow:,} of {counted(sent, 'call')} came after "
        f"{text_from_ms(numbers['slow_headers_from_ms'])} or more (p50 {text_from_ms(numbers['slow_headers_p50_ms'])}, "
        f"of the others {text_from_ms(numbers['fast_headers_p50_ms'])})"
    )
    if correlation is not None and correlation >= MIN_CORRELATION:
        yield Doubt(
            name="holding",
            what=f"calls were held silently: {groups}, the later the longer the queue was (ρ {correlation:.2f})",
            cause="the stack withholds the headers of an answer for as long as it has no room; the wait is "
            "part of TTFT",
            action="read the time to headers apart from TTFT, and count the late ones as refusals to compare with a "
            "stack that refuses",
            weighs=False,
        )
        return
    tie = (
        "the queue was not read, or never changed"
        if correlation is None
        else f"they do not follow the queue (ρ {correlation:.2f})"
    )
    yield Doubt(
        name="headers_two_groups",
        what=f"{groups}; {tie}",
        cause="calls are held, or something between client and engine delays some of them",
        action="name the engine's metrics page with --metrics" if correlation is None else "",
        weighs=False,
    )


def _of_the_answers(numbers: dict[str, Number]) -> Iterator[Doubt]:
    if numbers["unparsed_events"]:
        yield Doubt(
            name="unparsed_events",
            what=f"{counted(numbers['unparsed_events'], 'event')} unreadable",
            cause="the endpoint or a proxy sends events that are no JSON or of another shape; tokens in them were not "
            "seen, so TTFT and stalls may be too long",
            action="look at the stream itself",
        )
    wrong = numbers["contradicting_usage_calls"]
    if wrong:
        yield Doubt(
            name="usage_contradicts",
            what=f"{counted(wrong, 'call')} with usage that contradicts itself",
            cause="the endpoint reports more cached than input tokens, or more reasoning than output tokens",
            action="do not trust the hit rate that the API reports; read the engine's",
        )


def _of_the_sizes(facts: Facts, numbers: dict[str, Number]) -> Iterator[Doubt]:
    calibration = facts.header.calibration
    off = numbers["prompt_size_error_ratio"]
    if off is not None and off > SIZE_BOUND_RATIO:
        yield Doubt(
            name="prompt_size_off",
            what=f"prompts are off plan by {off:.1%} in the median call",
            cause=f"tokens per word were {calibration.source}, and the endpoint counts differently",
            action="let the replay probe the target, or give the ratio that it reports",
        )
    output = numbers["output_size_ratio"]
    if output is not None and output < 1 - SIZE_BOUND_RATIO:
        yield Doubt(
            name="output_short",
            what=f"answers have {output:.1%} of the planned tokens",
            cause="the endpoint does not force the length of answers"
            if not calibration.output_forced
            else "the endpoint accepted the fields that force the length and stopped early all the same",
            action="do not compare with runs whose answers were longer: decode load and session times are too low",
        )
    reported = numbers["usage_ratio"]
    if reported is not None and reported < 1 - UNREPORTED_BOUND_RATIO:
        yield Doubt(
            name="usage_unreported",
            what=f"{1 - reported:.0%} of complete calls report no usage",
            cause="the endpoint does not send it, or a proxy drops it; sizes, ITL and output speed cover the other "
            "calls only",
            action="turn usage on at the endpoint",
        )


def _of_the_cache(facts: Facts, numbers: dict[str, Number]) -> Iterator[Doubt]:
    reported = numbers["cache_usage_ratio"]
    if reported is not None and reported < 1 - UNREPORTED_BOUND_RATIO:
        yield Doubt(
            name="cache_unreported",
            what=f"{1 - reported:.0%} of complete calls do not report cached tokens",
            cause="the endpoint does not send them",
            action="vLLM needs --enable-prompt-tokens-details; else scrape the engine's metrics",
            weighs=False,
        )
    yield from _above_the_bound(facts, numbers)
    engine, input_tokens = numbers["engine_query_tokens"], numbers["input_tokens"]
    if engine is not None and input_tokens and abs(engine / input_tokens - 1) > WINDOW_BOUND_RATIO:
        yield Doubt(
            name="engine_window",
            what=f"the engine looked up {engine:,} prompt tokens, its complete calls report {input_tokens:,}",
            cause="others used the engine, calls were cut or primed prompts, or readings do not span the whole run",
            action="do not compare the engine's hit rate with the other two",
            weighs=False,
        )
    if facts.trace_header is None:
        yield Doubt(
            name="trace_missing",
            what="the run directory holds no readable trace",
            cause="it was moved without its trace.aitrace, or that file is damaged",
            action="put the trace that was played there for the cache bound and recorded times",
            weighs=False,
        )


def _above_the_bound(facts: Facts, numbers: dict[str, Number]) -> Iterator[Doubt]:
    missed, total = numbers["cache_lost_tokens"], numbers["cache_input_tokens"]
    if missed is None or not total or -missed / total <= WARM_NOTE_RATIO:
        return
    excess, is_live = -missed / total, facts.header.history == "live"
    weighs = excess > WARM_BOUND_RATIO and not is_live
    known = (
        "the endpoint's cache already knew these prompts, from a run with the same text seed (--text-seed)"
    )
    if is_live:
        cause, action = (
            "the endpoint kept its own answers (live history)",
            "read the bound as a bound on prompts only",
        )
    else:
        # A block of the trace that two prompts share in part is not in the bound; small blocks of an engine are.
        cause = known if weighs else f"{known}, or its blocks are smaller than the trace's"
        action = "clear the cache, or leave --text-seed out so that every run has fresh texts, and play again"
    yield Doubt(
        name="cache_above_bound",
        what=f"reported hits exceed the bound by {text_from_ratio(excess)} of the prompt tokens",
        cause=cause,
        action=action,
        weighs=weighs,
    )


def _of_the_scrapes(numbers: dict[str, Number]) -> Iterator[Doubt]:
    restarts = numbers["engine_restarts"]
    if restarts:
        yield Doubt(
            name="engine_restarted",
            what=f"the engine was restarted during the run: its counters fell {counted(restarts, 'time')}",
            cause="it crashed, or was replaced; its cache was empty from then on, and what it had counted before is gone",
            action="see its log, and play the trace again",
        )
    scrapes, failed = numbers["scrapes"] or 0, numbers["failed_scrapes"] or 0
    longest_s, usual_s = numbers["longest_scrape_gap_s"], numbers["median_scrape_gap_s"]
    holes = longest_s is not None and usual_s is not None and longest_s > SCRAPE_HOLE_FACTOR * usual_s
    if scrapes and (failed / scrapes > FAILED_SCRAPES_BOUND_RATIO or holes):
        longest = (
            "none succeeded twice" if longest_s is None else f"longest hole {text_from_seconds(longest_s)}"
        )
        yield Doubt(
            name="scrape_holes",
            what=f"{failed:,} of {counted(scrapes, 'reading')} of the engine's metrics failed, {longest}",
            cause="the metrics endpoint was slow or away; the engine's figures may miss peaks",
            action="scrape less often, or from another port",
        )


def _of_the_sample(answers: Answers) -> Iterator[Doubt]:
    count = answers.spreads["ttft_service_ms"].count
    if count < P99_CALLS and answers.numbers["complete_calls"]:
        yield Doubt(
            name="few_calls",
            what=f"n too small for {'p90 and above' if count < MIN_CALLS else 'p99'}: {counted(count, 'call')} with a "
            "first token",
            cause="the trace is short, or few of its calls got through",
            action=f"play more trees; p90 needs {MIN_CALLS} calls, p99 needs {P99_CALLS}",
            weighs=count < MIN_CALLS,
        )
