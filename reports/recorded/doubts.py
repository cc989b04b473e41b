"""Pure: what a recorded trace cannot tell, or should not be believed in, each with its cause and what to do."""

from collections.abc import Iterator

from aitrace.doubts import Doubt, weighty_first
from aitrace.quantiles import MIN_CLUSTERS, min_count
from aitrace.units import NS_PER_MS, NS_PER_S, counted, ratio_text, text_from_seconds
from reports.recorded.answers import Answers

MISSING_BOUND_RATIO = 0.05
"""Share of complete calls that may come without their end, or without usage."""
COARSE_NS = 100 * NS_PER_MS
"""Steps of time from which waits and short gaps are said to be rounded."""
ABOVE_POSSIBLE_RATIO = 0.02
"""Share of prompt tokens by which reported hits may exceed what was possible."""
UNTOLD_TIME_RATIO = 0.25
"""Share of the sessions' time of which it may be unknown what filled it."""
TROUBLES = (
    "parse_errors",
    "undecodable_bodies",
    "unreadable_requests",
    "unchained_messages",
    "writer_errors",
    "dropped_exchanges",
    "unrecorded_exchanges",
    "addon_errors",
    "write_failures",
)
"""Notes of a recorder that tell of something it could not do."""


def find_doubts(answers: Answers) -> tuple[Doubt, ...]:
    """All reasons, those that weigh first."""
    found = [
        *_of_the_file(answers),
        *_of_the_calls(answers),
        *_of_the_clock(answers),
        *_of_the_usage(answers),
        *_of_the_prompts(answers),
        *_of_the_source(answers),
        *_of_the_sample(answers),
        *_of_the_prices(answers),
    ]
    return weighty_first(found)


def _number(answers: Answers, name: str) -> int | float:
    return answers.numbers.get(name) or 0


def _of_the_file(answers: Answers) -> Iterator[Doubt]:
    footer = answers.recorded.trace.footer
    if footer is None:
        yield Doubt(
            name="recording_cut",
            what="the trace has no footer: the recording was cut",
            cause="the recorder was killed, crashed or is still at work, or the file was copied before its end; calls at "
            "the end may be missing",
            action="aitrace check tells how much is readable; record again if the end matters",
        )
        return
    if footer.dropped_calls:
        yield Doubt(
            name="calls_dropped",
            what=f"{counted(footer.dropped_calls, 'call')} seen by the recorder and not written",
            cause="the disk was full or slow, so the recorder let go of the trace rather than slow the client",
            action="record to a faster disk; the sessions concerned have holes",
        )
    troubles = {name: footer.notes[name] for name in TROUBLES if footer.notes.get(name)}
    if troubles:
        listed = ", ".join(f"{name} {count:,}" for name, count in troubles.items())
        yield Doubt(
            name="recorder_trouble",
            what=f"the recorder noted trouble: {listed}",
            cause="it met traffic it could not read or could not write all it saw; what these concern is missing or "
            "incomplete",
            action="record again if what is missing matters; report a fault of aitrace if it happens twice",
        )


def _of_the_calls(answers: Answers) -> Iterator[Doubt]:
    calls, complete = _number(answers, "calls"), _number(answers, "complete_calls")
    if not calls:
        yield Doubt(
            name="no_calls",
            what="the trace holds no call",
            cause="nothing was sent while it was recorded, or the client went past the recorder",
            action="see docs/record.md for how clients are led through it",
        )
        return
    if not complete:
        yield Doubt(
            name="nothing_complete",
            what="no call was answered completely",
            cause="the endpoint was not there or refused everything, or the recording was cut",
            action="see the outcomes",
        )
    unrecorded = _number(answers, "unrecorded_calls")
    if unrecorded:
        yield Doubt(
            name="ends_unrecorded",
            what=f"the end of {counted(unrecorded, 'call')} was not recorded",
            cause="they were in flight when the recorder stopped, or it had to drop what it saw of them",
            action="stop the client before the recorder",
            weighs=unrecorded > MISSING_BOUND_RATIO * calls,
        )
    refused, failed = _number(answers, "refused_calls"), _number(answers, "failed_calls")
    if refused or failed:
        yield Doubt(
            name="failures_recorded",
            what=f"{refused:,} of {counted(calls, 'call')} refused, {failed:,} failed otherwise",
            cause="the endpoint had no room, or the exchange broke off; the outcomes tell which",
            action="times of sessions hold the waits for these calls",
            weighs=False,
        )
    no_end = _number(answers, "no_end_calls")
    if no_end:
        yield Doubt(
            name="ends_missing",
            what=f"{no_end:,} of {counted(complete, 'complete call')} without their end",
            cause="the source does not tell it; what follows them is in no gap, and their time counts as unknown",
            action="convert the client's history or record the wire for whole times",
            weighs=False,
        )


def _of_the_clock(answers: Answers) -> Iterator[Doubt]:
    disordered = _number(answers, "disordered_calls")
    if disordered:
        yield Doubt(
            name="clock_stepped",
            what=f"{counted(disordered, 'call')} with a token or an end before their request",
            cause="the clock of the source was set back while it recorded, or its times are of different machines",
            action="do not trust times near these calls; aitrace check names them",
        )
    resolution_ns = answers.recorded.trace.header.clock_resolution_ns
    if resolution_ns is not None and resolution_ns >= COARSE_NS:
        yield Doubt(
            name="coarse_times",
            what=f"times are told in steps of {text_from_seconds(resolution_ns / NS_PER_S)}",
            cause="the source has no finer ones; waits and gaps near that length are rounded, and calls may seem to "
            "overlap",
            action="read gaps of several steps only; record the wire for exact times",
            weighs=False,
        )
    negative = _number(answers, "negative_gap_calls")
    if negative:
        yield Doubt(
            name="overlaps",
            what=f"{counted(negative, 'call')} began before what it waited for had ended",
            cause="the client went on while the answer still streamed, or times are rounded",
            weighs=False,
        )
    rows = answers.tables["time_by_state"]
    unknown = sum(
        float(row["time_ratio"] or 0)
        for row in rows
        if row["sessions"] == "all" and row["state"] == "unknown"
    )
    if unknown > UNTOLD_TIME_RATIO:
        yield Doubt(
            name="time_untold",
            what=f"of {ratio_text(unknown, 1)} of the sessions' time it is not known what filled it",
            cause="ends of calls, or the causes of gaps, are not in the trace",
            weighs=False,
        )


def _of_the_usage(answers: Answers) -> Iterator[Doubt]:
    complete = _number(answers, "complete_calls")
    missing, no_cache = _number(answers, "no_usage_calls"), _number(answers, "no_cache_usage_calls")
    if missing:
        yield Doubt(
            name="usage_missing",
            what=f"{missing:,} of {counted(complete, 'complete call')} report no prompt tokens",
            cause="the endpoint reports none, or not for streams; they are in no sum of tokens",
            action="ask the endpoint for usage in streams",
            weighs=missing > MISSING_BOUND_RATIO * complete,
        )
    if no_cache > missing:
        everything = no_cache == complete
        yield Doubt(
            name="cache_untold",
            what=(
                "no call reports"
                if everything
                else f"{no_cache:,} of {counted(complete, 'complete call')} do not report"
            )
            + " cached tokens",
            cause="the source or the endpoint does not tell them"
            + ("; only what a cache could have served is shown" if everything else "; they are not compared"),
            weighs=False,
        )
    contradicting = _number(answers, "contradicting_calls")
    if contradicting:
        yield Doubt(
            name="usage_contradicts",
            what=f"{counted(contradicting, 'call')} with more cached than prompt tokens",
            cause="the endpoint counts them apart, or wrongly",
            action="do not trust shares of cached tokens of this trace",
        )
    above, total = _number(answers, "cache_above_possible_tokens"), _number(answers, "cache_prompt_tokens")
    if above > ABOVE_POSSIBLE_RATIO * total:
        yield Doubt(
            name="cache_above_possible",
            what=f"in some calls more was cached than this trace made possible: {ratio_text(above, total)} of all prompt tokens",
            cause="the cache knew prompts from before the recording or of other users, or the endpoint matches smaller "
            "blocks than the trace tells",
            weighs=False,
        )


def _of_the_prompts(answers: Answers) -> Iterator[Doubt]:
    unseen = _number(answers, "unseen_start_calls")
    if unseen:
        yield Doubt(
            name="starts_unseen",
            what=f"the start of {counted(unseen, 'prompt')} was not seen",
            cause="they continue an answer from before the recording, or the source does not hold the system prompt; they "
            "are in no comparison of prompts",
            action="start the recorder before the client",
            weighs=False,
        )


def _of_the_source(answers: Answers) -> Iterator[Doubt]:
    header = answers.recorded.trace.header
    if header.unknown:
        yield Doubt(
            name="source_untold",
            what=f"{header.source or 'the source'} does not tell {counted(len(header.unknown), 'thing')}",
            cause="; ".join(header.unknown),
            action="figures that rest on these are derived or left out; record the wire where they matter",
            weighs=False,
        )


def _of_the_sample(answers: Answers) -> Iterator[Doubt]:
    sessions, calls = _number(answers, "sessions_with_calls"), _number(answers, "calls")
    if 0 < sessions < MIN_CLUSTERS or 0 < calls < min_count(0.9):
        yield Doubt(
            name="few_sessions",
            what=f"{counted(calls, 'call')} of {counted(sessions, 'session')} only",
            cause="the recording is short; its figures tell of these sessions, not of others",
            action=f"record at least {MIN_CLUSTERS} sessions; a p90 needs {min_count(0.9)} values, a p99 {min_count(0.99)}",
            weighs=False,
        )


def _of_the_prices(answers: Answers) -> Iterator[Doubt]:
    money = answers.money
    if money is None:
        return
    upper = _number(answers, "upper_bound_calls")
    if upper:
        yield Doubt(
            name="cost_upper_bound",
            what=f"the cost of {counted(upper, 'call')} is an upper bound",
            cause="they do not report what was read from a cache, so all of the prompt is paid as input",
            weighs=False,
        )
    if not money.unpriced:
        return
    listed = ", ".join(f"{reason}: {count:,}" for reason, count in money.unpriced.items())
    yield Doubt(
        name="calls_unpriced",
        what=f"{sum(money.unpriced.values()):,} of {counted(_number(answers, 'calls'), 'call')} have no cost",
        cause=f"{listed}; they are in no sum of money",
        action="add what is missing to the price table",
        weighs=False,
    )
