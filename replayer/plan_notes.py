"""Pure: what a plan had to assume or leave out, one sentence each; numbers count the plan's calls, not the trace's.

A tree that is played three times counts three times, one that is not played counts nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from aitrace.schema import Call, Trace
from replayer.gaps import PlannedWait
from replayer.selection import Selection
from replayer.sizes import token_ratio, usual_output_tokens

PlayedWait = tuple[PlannedWait, int]
"""What a call of the trace waits for, and how often the plan plays it."""


def notes_on_plan(
    trace: Trace,
    selection: Selection,
    waits: Sequence[PlayedWait],
    *,
    share_system: bool,
    playings: Mapping[int, int],
) -> list[str]:
    """What had to be assumed or left out for a plan of this trace.

    Args:
        playings: How often each tree is played, by its root; a tree that is absent has no call to play.
    """
    counted = (*_call_counts(trace, selection, playings), *_gap_counts(waits))
    notes = [f"{text}: {number:,}" for text, number in counted if number]
    ratio_note = token_ratio(trace).note
    if ratio_note is not None:
        notes.append(ratio_note)
    played_trees = sum(playings.values())
    if trace.header.block_scope == "tree" and not share_system and played_trees > 1:
        notes.append(
            "the trace cannot tell what trees have in common, so they share nothing (--share-system gives trees of "
            "one harness the same tools and system prompt)"
        )
    if trace.header.privacy == "content":
        notes.extend(_content_notes(played_again=played_trees > len(playings)))
    return notes


def _call_counts(
    trace: Trace, selection: Selection, playings: Mapping[int, int]
) -> Iterator[tuple[str, int]]:
    def planned(calls: Iterable[Call]) -> int:
        # A tree without a call to play is left out as a whole: what is dropped with it is dropped once.
        return sum(playings.get(trace.sessions[call.session].root, 1) for call in calls)

    played = [selected.call for selected in selection.calls]
    yield (
        "attempts left out, since a later attempt of the same call is sent instead",
        planned(selection.dropped_attempts),
    )
    yield "calls left out, since they only counted tokens", planned(selection.dropped_counts)
    yield (
        "calls that failed in the recording and were not tried again, sent like the others",
        planned(call for call in played if call.outcome.error not in (None, "unrecorded")),
    )
    yield (
        "calls whose end is not in the recording, sent like the others",
        planned(call for call in played if call.outcome.error == "unrecorded"),
    )
    yield (
        "prompts whose start is not in the recording, played without it",
        planned(call for call in played if call.prompt.unseen_start),
    )
    are_answers_known = any(call.usage.output_tokens is not None for call in trace.calls)
    yield (
        "calls with an answer of unknown length, for which "
        + (
            f"{usual_output_tokens(trace.calls)} tokens are taken (median)"
            if are_answers_known
            else "1 token is taken, since the trace knows the length of none"
        ),
        planned(call for call in played if call.usage.output_tokens is None),
    )
    are_ends_known = any(call.times.end_ns is not None for call in trace.calls)
    yield (
        "calls whose recorded end is not known, for which planned times take the median duration"
        if are_ends_known
        else "calls whose end the plan does not know, since the trace knows the end of none",
        planned(call for call in played if call.times.end_ns is None),
    )


def _gap_counts(waits: Sequence[PlayedWait]) -> Iterator[tuple[str, int]]:
    yield (
        "gaps counted from the dispatch of a call whose end is not known; the next call waits for its end too",
        sum(wait.timed_from_dispatch * times for wait, times in waits),
    )
    yield "gaps that are not known, taken as 0", sum(wait.unknown_gaps * times for wait, times in waits)
    yield (
        "gaps below 0, since a call was sent before what it waits for had ended, taken as 0",
        sum(wait.overlaps * times for wait, times in waits),
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
