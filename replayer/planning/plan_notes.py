"""Pure: what a plan had to assume or leave out, one sentence each; numbers count the plan's calls, not the trace's.

A tree that is played three times counts three times, one that is not played counts nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aitrace.schema import Trace
from aitrace.units import duration_from_ns
from replayer.planning.options import LoadOptions
from replayer.planning.outline import Counted, OutlinedCall, TreeFacts
from replayer.planning.trace_trees import LeftOut
from replayer.planning.tree_calls import Recording


@dataclass(slots=True, kw_only=True)
class Totals:
    """All trees of a plan in numbers; they grow while it is made."""

    playable_trees: int
    """Trees of the trace with a call to play."""
    unmet_trees: int
    """Of them, those that do not meet the conditions."""
    trees: int = 0
    """Trees to be played."""
    played_trees: int = 0
    """Trees of the trace that they are playings of."""
    sessions: int = 0
    """Sessions to be played."""
    calls: int = 0
    """Calls to be sent."""
    primes: int = 0
    """Of them, those that only prime a prompt."""
    warm_up_calls: int = 0
    """Of them, those of the warm-up, by planned times if it is one by time."""
    counts: Counter[Counted] = field(default_factory=Counter)
    """What was assumed or cut for them."""
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    """What of their trees is not played, or not as it was."""

    def add(self, facts: TreeFacts) -> None:
        """Count in a tree that is played."""
        self.trees += 1
        self.sessions += facts.sessions
        self.calls += facts.calls
        self.primes += facts.primes
        if facts.counts:
            self.counts.update(facts.counts)

    def leave_out(self, left_out: Mapping[LeftOut, int], times: int) -> None:
        """Count in what is left out of a tree that is played so many times."""
        for kind, number in left_out.items():
            self.left_out[kind] += number * times


def notes_on_plan(trace: Trace, recording: Recording, totals: Totals, *, share_system: bool) -> list[str]:
    """What had to be assumed or left out for a plan of this trace."""
    notes = [f"{text}: {number:,}" for text, number in _counted(recording, totals) if number]
    if recording.ratio.note is not None:
        notes.append(recording.ratio.note)
    if trace.header.block_scope == "tree" and not share_system and totals.trees > 1:
        notes.append(
            "the trace cannot tell what trees have in common, so they share nothing (--share-system gives trees of "
            "one harness the same tools and system prompt)"
        )
    if trace.header.privacy == "content":
        notes.extend(_content_notes(played_again=totals.trees > totals.played_trees))
    return notes


def notes_on_load(options: LoadOptions, totals: Totals) -> Iterator[str]:
    """What the shape of the load leaves out or adds, one sentence each."""
    if totals.unmet_trees:
        conditions = " and ".join(condition.text for condition in options.select)
        yield (
            f"trees left out, since they do not meet {conditions}: {totals.unmet_trees:,} of "
            f"{totals.playable_trees:,}"
        )
    yield from _window_notes(options, totals.left_out)
    if options.start_at is not None:
        yield (
            f"trees start within {options.start_at.text} of their recorded time; the calls before are "
            + ("not played, their prompts are primed" if options.prime else "not played")
        )
    if totals.primes:
        yield f"calls that prime a prompt for the ones after them, not measured: {totals.primes:,}"
    if options.schedule == "absolute":
        yield "absolute schedule: calls go out at their recorded times, whatever happened to the ones before"
    warm_up = options.warm_up
    if warm_up is not None and warm_up.trees is not None:
        yield f"calls of the warm-up ({warm_up.text}), not measured: {totals.warm_up_calls:,}"
    elif warm_up is not None and warm_up.length_ns is not None:
        length = duration_from_ns(warm_up.length_ns)
        yield f"calls of the warm-up ({length}) by planned times, not measured: {totals.warm_up_calls:,}"


def is_due_before(call: OutlinedCall, at_ns: int) -> bool:
    """Whether a call is planned to be due before a moment; what only primes prompts is not asked."""
    return not call.is_prime and call.due_ns is not None and call.due_ns < at_ns


def _window_notes(options: LoadOptions, left_out: Mapping[LeftOut, int]) -> Iterator[str]:
    sessions = left_out["over_sessions"]
    if not sessions or options.context_tokens is None:
        return
    over = f"a prompt and its answer have more than {options.context_tokens:,} tokens"
    match options.over_context:
        case "drop":
            yield f"sessions left out with their sub-agents, since {over}: {sessions:,}"
        case "stop":
            yield f"sessions that end early, since {over}: {sessions:,}"
        case _:
            shorter = f"with {left_out['compacted']:,} shorter prompts"
            yield f"sessions compacted, since {over}: {sessions:,}, {shorter}"
    if left_out["over_calls"]:
        yield (
            f"calls left out, since they do not fit into {options.context_tokens:,} tokens or follow such a call: "
            f"{left_out['over_calls']:,}"
        )


def _counted(recording: Recording, totals: Totals) -> Iterator[tuple[str, int]]:
    counts, left_out = totals.counts, totals.left_out
    yield (
        "attempts left out, since a later attempt of the same call is sent instead",
        left_out["retried"],
    )
    yield "calls left out, since they only counted tokens", left_out["counted"]
    yield (
        "calls that failed in the recording and were not tried again, sent like the others",
        counts["failed"],
    )
    yield "calls whose end is not in the recording, sent like the others", counts["unrecorded"]
    yield "prompts whose start is not in the recording, played without it", counts["unseen_start"]
    yield (
        "calls with an answer of unknown length, for which "
        + (
            "1 token is taken, since the trace knows the length of none"
            if recording.usual_output_tokens is None
            else f"{max(1, recording.usual_output_tokens)} tokens are taken (median)"
        ),
        counts["unknown_length"],
    )
    yield (
        "calls whose end the plan does not know, since the trace knows the end of none"
        if recording.usual_duration_ns is None
        else "calls whose recorded end is not known, for which planned times take the median duration",
        counts["unknown_end"],
    )
    yield (
        "gaps counted from the dispatch of a call whose end is not known; the next call waits for its end too",
        counts["from_dispatch"],
    )
    yield "gaps that are not known, taken as 0", counts["unknown_gaps"]
    yield (
        "gaps below 0, since a call was sent before what it waits for had ended, taken as 0",
        counts["overlaps"],
    )


def _content_notes(*, played_again: bool) -> Iterator[str]:
    yield (
        "the trace holds its own text, the same in every run: clear the endpoint's cache between runs that are "
        "compared"
    )
    if played_again:
        yield (
            "the trace holds its own text: the first playing of a tree says it, further ones say generated text, but "
            "for segments that several trees share"
        )
