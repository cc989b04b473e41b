"""Pure: named reasons to distrust a run, each with its likely cause and what to do about it.

The one set of rules by which `aitrace replay` at its end and `aitrace report` judge a run. Each brings its own numbers,
by the names of docs/metrics.md; a number that it cannot know is absent or None, and the rule that needs it is silent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aitrace.quantiles import min_count
from aitrace.results import RunEnd, RunHeader
from aitrace.units import NS_PER_S, counted, ratio_text, text_from_ms, text_from_seconds

Number = int | float | None

LATE_CALLS = 2
"""Fewer late calls than this put no run in doubt, however few were sent."""
LATE_BOUND_RATIO = 0.01
"""Share of the calls sent that may be late."""
UNREACHABLE_BOUND_RATIO = 0.05
"""Share of the tries that may get no connection: an endpoint that drops one connection in a burst was there, one that
drops more was away for a while."""
SIZE_BOUND_RATIO = 0.05
"""How far prompt and output sizes may be off plan."""
UNREPORTED_BOUND_RATIO = 0.05
"""Share of complete calls that may come without usage."""
FAILED_SCRAPES_BOUND_RATIO = 0.05
"""Share of readings that may fail."""
SCRAPE_HOLE_FACTOR = 5.0
"""A time without a reading counts as a hole if it is this many times the usual one, and the beat asked for."""
WARM_BOUND_RATIO = 0.02
"""Share of prompt tokens by which reported hits may exceed the bound."""
WARM_NOTE_RATIO = 0.002
"""Share from which an excess is noted."""
WINDOW_BOUND_RATIO = 0.1
"""How far the tokens an engine counted may differ from those its calls reported."""
HOLDING_CORRELATION = 0.3
"""Rank correlation of times to headers with the queue from which late headers are taken for holding."""


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
    """Whether it puts the run in doubt; False for a note on what its figures cannot show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a run is judged by."""

    numbers: Mapping[str, Number]
    """By the names of docs/metrics.md; absent or None if not known. Beside those: `first_token_calls`, measured calls with a
    first token; `tries` of calls, measured or not, the `failed_tries` and the `unreachable_tries` among them; `prime_calls`,
    and of those that are not measured `failed_unmeasured_calls` and `complete_warm_up_calls`."""
    header: RunHeader
    """What was to be played."""
    end: RunEnd | None
    """How it ended; None if the program did not get to write it."""
    lines_lost: int = 0
    """Lines of the run's files that could not be read."""
    has_trace: bool = True
    """Whether the trace that was played is there."""

    def number(self, name: str) -> int | float:
        """A number, 0 if it is not known."""
        return self.numbers.get(name) or 0


def find_doubts(evidence: Evidence) -> tuple[Doubt, ...]:
    """All reasons, those that weigh first."""
    return weighty_first(doubt for rule in _RULES for doubt in rule(evidence))


def weighty_first(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """Those that weigh, then the others, each in the order given."""
    return tuple(sorted(doubts, key=lambda doubt: not doubt.weighs))


def is_fine(doubts: Iterable[Doubt]) -> bool:
    """Whether none of them weighs."""
    return not any(doubt.weighs for doubt in doubts)


def reasons_of(doubts: Iterable[Doubt]) -> tuple[str, ...]:
    """What puts a run in doubt, a clause each; empty if nothing does."""
    return tuple(doubt.what for doubt in doubts if doubt.weighs)


def verdict_line(doubts: Iterable[Doubt]) -> str:
    """`fine`, or what puts the run in doubt."""
    reasons = reasons_of(doubts)
    return f"in doubt: {'; '.join(reasons)}" if reasons else "fine"


def _of_the_end(evidence: Evidence) -> Iterator[Doubt]:
    end = evidence.end
    if end is None:
        yield Doubt(
            name="run_cut",
            what=f"the run has no end record{_without_result(evidence)}",
            cause="the replay was killed, crashed, or is still running; calls in flight at that moment are missing",
            action="play the trace again",
        )
        return
    if end.interrupted:
        yield Doubt(
            name="interrupted",
            what="the run was stopped before its end, with "
            f"{counted(evidence.number('stopped_calls'), 'call')} in flight",
            cause="Ctrl-C or a signal; long sessions are under-represented",
            action="play the trace to its end",
        )
    elif end.cut_ns is not None:
        yield Doubt(
            name="censored",
            what=f"{counted(evidence.number('censored_sessions'), 'session')} cut by the end of the run's duration",
            cause="--duration: their calls until then are in the figures of calls; figures of whole sessions and trees "
            "miss them, so long ones are under-represented there",
            weighs=False,
        )
    if end.ran_out_ns is not None:
        yield Doubt(
            name="lanes_ran_out",
            what=f"lanes ran out of planned trees after {text_from_seconds(end.ran_out_ns / NS_PER_S)}",
            cause="the endpoint was faster than a plan allows for, sessions were lost and made room, or a plan's largest "
            "size was reached; from then on fewer sessions were active than asked for",
            action="give a shorter --duration, or more --time-scale",
        )


def _without_result(evidence: Evidence) -> str:
    missing = evidence.number("missing_calls")
    return f", and {counted(missing, 'planned call')} left no result" if missing else ""


def _of_the_unmeasured(evidence: Evidence) -> Iterator[Doubt]:
    left_out, primes = evidence.number("unmeasured_calls"), evidence.number("prime_calls")
    if left_out:
        yield Doubt(
            name="unmeasured",
            what=f"{counted(left_out, 'call')} left out: {left_out - primes:,} of the warm-up, {primes:,} that primed "
            "prompts",
            cause=f"the run's options; {evidence.number('failed_unmeasured_calls'):,} of them failed; sessions with a "
            "call in the warm-up are in no figure of sessions",
            weighs=False,
        )


def _of_the_files(evidence: Evidence) -> Iterator[Doubt]:
    if evidence.lines_lost:
        yield Doubt(
            name="lines_lost",
            what=f"{counted(evidence.lines_lost, 'line')} of the run's files unreadable",
            cause="the run was cut while it wrote, or its files were damaged; the calls on these lines are missing "
            "from every figure",
        )
    missing = evidence.number("missing_calls")
    if evidence.end is not None and missing:
        yield Doubt(
            name="calls_missing",
            what=f"{counted(missing, 'planned call')} without a result",
            cause="lines were lost, or the replay failed",
            action="play the trace again; report a fault of aitrace if it happens twice",
        )
    if not evidence.has_trace:
        yield Doubt(
            name="trace_missing",
            what="the run directory holds no readable trace",
            cause="it was moved without its trace.aitrace, or that file is damaged",
            action="put the trace that was played there for the cache bound and recorded times",
            weighs=False,
        )


def _of_the_workers(evidence: Evidence) -> Iterator[Doubt]:
    workers = () if evidence.end is None else evidence.end.workers
    lost = sum(worker.lost for worker in workers)
    if lost:
        yield Doubt(
            name="workers_lost",
            what=f"{lost} of {len(workers)} replaying processes lost",
            cause="killed, or out of memory; their calls in flight count as stopped, the others were not sent, and from "
            "then on the load was lower than planned",
            action="see why it ended (the system's log), and play the trace again",
        )


def _of_the_client(evidence: Evidence) -> Iterator[Doubt]:
    bound_ms = evidence.header.lateness_bound_ms
    late, sent = evidence.number("late_calls"), evidence.number("sent_calls")
    if late:
        weighs = late >= LATE_CALLS and late / sent > LATE_BOUND_RATIO
        yield Doubt(
            name="client_late",
            what=f"{late:,} of {counted(sent, 'call')} ({ratio_text(late, sent)}) went out more than "
            f"{bound_ms:g} ms late",
            cause="the replaying machine was busy, or too small for this load"
            if weighs
            else "the replaying machine was busy for a moment",
            action="free the machine, lower the load, or spread it over several; until then read TTFT, user (from due)"
            if weighs
            else "",
            weighs=weighs,
        )
    lag_ms = evidence.number("loop_lag_p99_ms")
    if lag_ms > bound_ms:
        yield Doubt(
            name="loop_lag",
            what=f"the client's event loop lagged: p99 {text_from_ms(lag_ms)}, bound {bound_ms:g} ms",
            cause="the replaying process had no CPU when it wanted it; tokens were seen later than they came, so "
            "TTFT and ITL are too long",
            action="free the machine",
        )


def _of_the_calls(evidence: Evidence) -> Iterator[Doubt]:
    sent, refused = evidence.number("sent_calls"), evidence.number("refused_calls")
    if not evidence.number("complete_calls"):
        yield _nothing_complete(evidence)
    if refused:
        yield Doubt(
            name="refusals",
            what=f"{refused:,} of {counted(sent, 'call')} refused",
            cause="the endpoint had no room (429, 503, 529); times are those of the calls that were let in",
            action="lower the load to compare endpoints",
        )
    overloaded = evidence.number("overload_calls") - refused
    if overloaded:
        yield Doubt(
            name="overload",
            what=f"{counted(overloaded, 'call')} ended by an overload error in the stream",
            cause="the endpoint let the call in and had no room for it later; the status stayed 200",
            action="count these as refusals; lower the load to compare endpoints",
        )
    malformed = evidence.number("malformed_calls")
    if malformed:
        yield Doubt(
            name="malformed",
            what=f"{counted(malformed, 'answer')} not of this protocol",
            cause="the url leads to something else (a proxy, a login page), or --protocol is another one",
            action="see the first text among the errors by kind; check url and protocol",
        )
    others = evidence.number("failed_calls") - overloaded - malformed
    if others:
        yield Doubt(
            name="errors",
            what=f"{counted(others, 'call')} failed otherwise",
            cause="the errors by kind tell; what failed is missing from the times of complete calls",
            action="mend what they name and play again",
        )


def _nothing_complete(evidence: Evidence) -> Doubt:
    end, warm_up = evidence.end, evidence.number("complete_warm_up_calls")
    has_failed = evidence.number("failed_calls") or evidence.number("refused_calls")
    is_cut = end is None or end.interrupted or end.cut_ns is not None
    is_of_warm_up = bool(warm_up) and not has_failed
    if is_of_warm_up:
        cause = f"the warm-up left nothing to measure: {counted(warm_up, 'call')} complete in it"
        action = "give a shorter --warm-up, or a longer --duration"
    elif is_cut and not evidence.number("failed_tries"):
        cause = "the run was over before the first answer was"
        action = (
            "give a longer --duration" if end is not None and end.cut_ns is not None else "play it longer"
        )
    else:
        cause = "the endpoint was not there, refused everything, or speaks another protocol"
        action = "see the errors by kind; check url, protocol and model"
    return Doubt(
        name="nothing_complete",
        what="no call was answered completely" + (" after the warm-up" if is_of_warm_up else ""),
        cause=cause,
        action=action,
    )


def _of_the_connections(evidence: Evidence) -> Iterator[Doubt]:
    tries, failed = evidence.number("tries"), evidence.number("unreachable_tries")
    if failed > UNREACHABLE_BOUND_RATIO * tries:
        yield Doubt(
            name="unreachable",
            what=f"{failed:,} of {tries:,} tries got no connection",
            cause="the endpoint was away, or refused connections",
            action="see its log, and play the trace again",
        )


def _of_the_sessions(evidence: Evidence) -> Iterator[Doubt]:
    lost = evidence.number("lost_sessions")
    measured = evidence.number("planned_sessions") - evidence.number("unmeasured_sessions")
    if lost:
        yield Doubt(
            name="lost_sessions",
            what=f"{lost:,} of {counted(measured, 'session')} lost",
            cause="a call of each, or of an agent that it waited for, failed, and what waited for that was not sent; the "
            "later, longer prompts of these sessions are missing, so times look better than they are",
        )


def _of_the_headers(evidence: Evidence) -> Iterator[Doubt]:
    numbers = evidence.numbers
    slow = numbers.get("slow_headers_calls")
    if slow is None:
        return
    correlation = numbers["headers_queue_correlation"]
    groups = (
        f"the headers of {slow:,} of {counted(evidence.number('sent_calls'), 'call')} came after "
        f"{text_from_ms(numbers['slow_headers_from_ms'])} or more (p50 {text_from_ms(numbers['slow_headers_p50_ms'])}, "
        f"of the others {text_from_ms(numbers['fast_headers_p50_ms'])})"
    )
    if correlation is not None and correlation >= HOLDING_CORRELATION:
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


def _of_the_answers(evidence: Evidence) -> Iterator[Doubt]:
    unparsed = evidence.number("unparsed_events")
    if unparsed:
        yield Doubt(
            name="unparsed_events",
            what=f"{counted(unparsed, 'event')} unreadable",
            cause="the endpoint or a proxy sends events that are no JSON or of another shape; tokens in them were not "
            "seen, so TTFT and stalls may be too long",
            action="look at the stream itself",
        )
    wrong = evidence.number("contradicting_usage_calls")
    if wrong:
        yield Doubt(
            name="usage_contradicts",
            what=f"{counted(wrong, 'call')} with usage that contradicts itself",
            cause="the endpoint reports more cached than input tokens, or more reasoning than output tokens",
            action="do not trust the hit rate that the API reports; read the engine's",
        )


def _of_the_sizes(evidence: Evidence) -> Iterator[Doubt]:
    calibration, numbers = evidence.header.calibration, evidence.numbers
    off = evidence.number("prompt_size_error_ratio")
    if off > SIZE_BOUND_RATIO:
        yield Doubt(
            name="prompt_size_off",
            what=f"prompts are off plan by {ratio_text(off, 1)} in the median call",
            cause=f"tokens per word were {calibration.source}, and the endpoint counts differently",
            action="let the replay probe the target, or give the ratio that it reports",
        )
    output = numbers.get("output_size_ratio")
    if output is not None and output < 1 - SIZE_BOUND_RATIO:
        yield Doubt(
            name="output_short",
            what=f"answers have {ratio_text(output, 1)} of the planned tokens",
            cause="the endpoint does not force the length of answers"
            if not calibration.output_forced
            else "the endpoint accepted the fields that force the length and stopped early all the same",
            action="do not compare with runs whose answers were longer: decode load and session times are too low",
        )
    reported = numbers.get("usage_ratio")
    if reported is not None and reported < 1 - UNREPORTED_BOUND_RATIO:
        yield Doubt(
            name="usage_unreported",
            what=f"{ratio_text(1 - reported, 1)} of complete calls report no usage",
            cause="the endpoint does not send it, or a proxy drops it; sizes, ITL and output speed cover the other "
            "calls only",
            action="turn usage on at the endpoint",
        )


def _of_the_cache(evidence: Evidence) -> Iterator[Doubt]:
    numbers = evidence.numbers
    reported = numbers.get("cache_usage_ratio")
    if reported is not None and reported < 1 - UNREPORTED_BOUND_RATIO:
        yield Doubt(
            name="cache_unreported",
            what=f"{ratio_text(1 - reported, 1)} of complete calls do not report cached tokens",
            cause="the endpoint does not send them",
            action="vLLM needs --enable-prompt-tokens-details; else scrape the engine's metrics",
            weighs=False,
        )
    yield from _above_the_bound(evidence)
    engine, input_tokens = numbers.get("engine_query_tokens"), numbers.get("input_tokens")
    if engine is not None and input_tokens and abs(engine / input_tokens - 1) > WINDOW_BOUND_RATIO:
        yield Doubt(
            name="engine_window",
            what=f"the engine looked up {engine:,} prompt tokens, its complete calls report {input_tokens:,}",
            cause="others used the engine, calls were cut or primed prompts, or readings do not span the whole run",
            action="do not compare the engine's hit rate with the other two",
            weighs=False,
        )


def _above_the_bound(evidence: Evidence) -> Iterator[Doubt]:
    missed, total = evidence.number("cache_lost_tokens"), evidence.number("cache_input_tokens")
    if not total or -missed / total <= WARM_NOTE_RATIO:
        return
    excess, is_live = -missed / total, evidence.header.history == "live"
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
        what=f"reported hits exceed the bound by {ratio_text(excess, 1)} of the prompt tokens",
        cause=cause,
        action=action,
        weighs=weighs,
    )


def _of_the_scrapes(evidence: Evidence) -> Iterator[Doubt]:
    restarts = evidence.number("engine_restarts")
    if restarts:
        yield Doubt(
            name="engine_restarted",
            what=f"the engine was restarted during the run: its counters fell {counted(restarts, 'time')}",
            cause="it crashed, or was replaced; its cache was empty from then on, and what it had counted before is gone",
            action="see its log, and play the trace again",
        )
    scrapes, failed = evidence.number("scrapes"), evidence.number("failed_scrapes")
    if scrapes and (failed / scrapes > FAILED_SCRAPES_BOUND_RATIO or _has_scrape_hole(evidence)):
        yield Doubt(
            name="scrape_holes",
            what=f"{failed:,} of {counted(scrapes, 'reading')} of the engine's metrics failed, longest time without one "
            f"{text_from_seconds(evidence.numbers.get('longest_scrape_gap_s'))}",
            cause="the metrics endpoint was slow or away; the engine's figures may miss peaks",
            action="scrape less often, or from another port",
        )


def _has_scrape_hole(evidence: Evidence) -> bool:
    usual_s = evidence.numbers.get("median_scrape_gap_s")
    if usual_s is None:
        return False
    # Most readings of a short run are those that look whether its engine has settled: they come faster than the beat.
    usual_s = max(usual_s, evidence.header.metrics_every_s or 0)
    return evidence.number("longest_scrape_gap_s") > SCRAPE_HOLE_FACTOR * usual_s


def _of_the_sample(evidence: Evidence) -> Iterator[Doubt]:
    count, p90_calls, p99_calls = evidence.number("first_token_calls"), min_count(0.9), min_count(0.99)
    if count < p99_calls and evidence.number("complete_calls"):
        yield Doubt(
            name="few_calls",
            what=f"n too small for {'p90 and above' if count < p90_calls else 'p99'}: {counted(count, 'call')} with a "
            "first token",
            cause="the trace is short, or few of its calls got through",
            action=f"play more trees; p90 needs {p90_calls} calls, p99 needs {p99_calls}",
            weighs=False,
        )


_RULES = (
    _of_the_end,
    _of_the_unmeasured,
    _of_the_files,
    _of_the_workers,
    _of_the_client,
    _of_the_calls,
    _of_the_connections,
    _of_the_sessions,
    _of_the_headers,
    _of_the_answers,
    _of_the_sizes,
    _of_the_cache,
    _of_the_scrapes,
    _of_the_sample,
)
