"""Pure: what becomes of sessions whose prompts do not fit into the model's window.

A call fits if its prompt and its answer have at most as many tokens as the window. Sub-agents that a call which is left
out would have spawned are left out with it; who would have waited for a session that is left out goes on without it.

A compacted prompt keeps the leading tools and system prompt, and of the rest the newest segments that fit into half of
the window with them, at least one. Later prompts of the session keep the same segments and add theirs, until they do
not fit either, or until the recording has replaced its history itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

import numpy as np

from aitrace.prompts import PromptResolver
from aitrace.schema import Prompt, Segment, Session, Trace
from replayer.planning.selection import SelectedCall, without_the_rest
from replayer.planning.sizes import output_tokens, prompt_sizes, token_ratio

OverContext = Literal["drop", "stop", "compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Calls that fit into a window."""

    calls: tuple[SelectedCall, ...]
    """What is played."""
    over: tuple[int, ...] = ()
    """Sessions of which a call did not fit."""
    left_out: tuple[int, ...] = ()
    """Calls that are not played."""
    compacted: tuple[int, ...] = ()
    """Calls to be played whose prompt is shorter than the recorded one."""


class Window:
    """A model's window, into which the calls of a trace are fitted.

    To compact prompts takes all of them in memory; the other policies only look at their sizes.
    """

    def __init__(
        self, trace: Trace, selected: Iterable[SelectedCall], *, window_tokens: int, policy: OverContext
    ) -> None:
        """Take on a trace.

        Args:
            selected: What of it is to be played; only asked for where prompts are compacted.
        """
        self.trace = trace
        """With compacted prompts; otherwise as it was."""
        self._policy = policy
        self._shortened: set[int] = set()
        if policy == "compact":
            cut = _Prompts(trace, window_tokens)
            self._over = {one.call.id for one in cut.compact(selected)}
            self._stopping = {call for call in self._over if not cut.fits(call)}
            self._shortened = cut.shortened
            self.trace = _with_prompts(trace, cut.resolved) if cut.shortened else trace
        else:
            prompts = np.asarray(prompt_sizes(trace)) * token_ratio(trace).tokens_per_unit
            needed = prompts + np.asarray(output_tokens(trace.calls))
            self._over = set(np.flatnonzero(needed > window_tokens).tolist())
            self._stopping = self._over

    def fit(self, selected: Sequence[SelectedCall]) -> Fitted:
        """What is played of the calls of a tree, or of several."""
        over = tuple(dict.fromkeys(one.call.session for one in selected if one.call.id in self._over))
        dropped = set(over) if self._policy == "drop" else set()
        kept = _kept(selected, self.trace.sessions, self._stopping, dropped)
        calls = without_the_rest(selected, kept)
        if self._shortened:
            calls = tuple(replace(one, call=self.trace.calls[one.call.id]) for one in calls)
        return Fitted(
            calls=calls,
            over=over,
            left_out=tuple(one.call.id for one in selected if one.call.id not in kept),
            compacted=tuple(one.call.id for one in selected if one.call.id in kept & self._shortened),
        )


def _kept(
    selected: Sequence[SelectedCall], sessions: Sequence[Session], stopping: set[int], dropped: set[int]
) -> set[int]:
    """Calls that are played if sessions end before the calls in `stopping`, and those in `dropped` never begin."""
    kept: set[int] = set()
    ended = set(dropped)
    for one in selected:
        session = one.call.session
        lost_spawn = any(d.relation == "spawn" and d.call not in kept for d in one.after)
        if one.call.id in stopping or lost_spawn or sessions[session].parent in dropped:
            ended.add(session)
            if sessions[session].parent in dropped:
                dropped.add(session)
        if session not in ended:
            kept.add(one.call.id)
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Where a session's history was cut."""

    recorded: tuple[int, ...]
    """Recorded segments up to the cut; a prompt that begins otherwise has a history of its own."""
    head: tuple[int, ...]
    """What stands in their place."""


class _Prompts:
    """Segments of all prompts, and whether they fit."""

    def __init__(self, trace: Trace, window_tokens: int) -> None:
        resolver = PromptResolver(trace.calls)
        self.resolved = [resolver.segment_ids(call.id) for call in trace.calls]
        """Segments of each call's prompt."""
        self.shortened: set[int] = set()
        """Calls whose prompt was cut."""
        self._trace = trace
        self._window_tokens = window_tokens
        self._tokens_per_unit = token_ratio(trace).tokens_per_unit
        self._answer_tokens = output_tokens(trace.calls)
        self._sizes = [self._tokens(segment_ids) for segment_ids in self.resolved]

    def fits(self, call: int) -> bool:
        """Whether the prompt of a call and its answer fit."""
        return bool(self._sizes[call] + self._answer_tokens[call] <= self._window_tokens)

    def compact(self, selected: Iterable[SelectedCall]) -> list[SelectedCall]:
        """Cut prompts of sessions from the first one on that does not fit; gives the calls that led to a cut."""
        by_id = {one.call.id: one for one in selected}
        cuts: dict[int, _Cut] = {}
        led: list[SelectedCall] = []
        for call in self._trace.calls:
            recorded = self.resolved[call.id]
            self._apply(call.id, recorded, cuts.get(call.session))
            if call.id in by_id and not self.fits(call.id):
                led.append(by_id[call.id])
                cuts[call.session] = self._cut(recorded)
                self._apply(call.id, recorded, cuts[call.session])
        return led

    def _apply(self, call: int, recorded: tuple[int, ...], cut: _Cut | None) -> None:
        if cut is None or recorded[: len(cut.recorded)] != cut.recorded:
            return
        self.resolved[call] = cut.head + recorded[len(cut.recorded) :]
        self._sizes[call] = self._tokens(self.resolved[call])
        if self.resolved[call] != recorded:
            self.shortened.add(call)

    def _cut(self, recorded: tuple[int, ...]) -> _Cut:
        segments = self._trace.segments
        head = tuple(takewhile(lambda number: _is_system(segments[number]), recorded))
        tokens = self._tokens(head)
        place = len(recorded)
        while place > len(head):
            tokens += self._tokens(recorded[place - 1 : place])
            if tokens > self._window_tokens / 2 and place < len(recorded):
                break
            place -= 1
        return _Cut(recorded=recorded[:place], head=head)

    def _tokens(self, segment_ids: Sequence[int]) -> float:
        return sum(self._trace.segments[number].size for number in segment_ids) * self._tokens_per_unit


def _is_system(segment: Segment) -> bool:
    return segment.type in ("tool_definition", "system")


def _with_prompts(trace: Trace, resolved: Sequence[tuple[int, ...]]) -> Trace:
    """The trace with these segments as its prompts."""
    before = PromptResolver(trace.calls)
    calls = []
    for call, segment_ids in zip(trace.calls, resolved, strict=True):
        base = call.prompt.base
        is_changed = segment_ids != before.segment_ids(call.id)
        is_moved = base is not None and resolved[base] != before.segment_ids(base)
        if is_changed or is_moved:
            prompt = _prompt(call.prompt, None if base is None else resolved[base], segment_ids)
            # The tokens that were reported are those of the prompt that was sent then.
            usage = (
                replace(call.usage, input_tokens=None, cache_read_tokens=None) if is_changed else call.usage
            )
            calls.append(replace(call, prompt=prompt, usage=usage))
        else:
            calls.append(call)
    return replace(trace, calls=tuple(calls))


def _prompt(prompt: Prompt, base: tuple[int, ...] | None, segment_ids: tuple[int, ...]) -> Prompt:
    """These segments, told as a continuation of the same call as before."""
    pairs = zip(base or (), segment_ids, strict=False)
    keep = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return replace(prompt, keep=keep, add=segment_ids[keep:])
