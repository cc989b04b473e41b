"""Pure: what a prompt adds to the history of its chain.

A history is a prompt without its leading tool definitions and system prompt: a tool that is loaded later, or a system
prompt with a new date, changes what an engine has cached but replaces no history.

Where the history goes on, everything after the old one is new. Where it was replaced, or the chain begins, new is what
follows the last part of the assistant and was not in an earlier prompt of the chain; old prompts that a compaction
keeps are not typed again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from aitrace.protocols.protocol import RequestPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """What a prompt adds."""

    is_replaced: bool | None
    """Whether the history does not go on from the one before; None if that was not seen, or not from its start."""
    results: tuple[str | None, ...]
    """Tool ids of the new tool results, in order; None for one without."""
    tool_uses: tuple[tuple[str | None, str | None], ...]
    """Id and name of the tool calls that the prompt repeats from the answer before, in order; empty where the history
    does not go on."""
    has_typed: bool
    """Whether there is new text that a person typed."""
    has_announcement: bool
    """Whether there is new text of the user's role that the harness wrote."""


class History:
    """What the prompts of one chain have held so far. Keeps the last one as segment ids, and which results were seen."""

    def __init__(self) -> None:
        self._segments: tuple[int, ...] | None = None
        self._has_unseen_start = False
        self._results: set[str] = set()
        self._typed: dict[int, int] = {}
        """Most occurrences of a typed text in one prompt, by segment."""

    def add(
        self,
        parts: Sequence[RequestPart],
        segments: Sequence[int],
        *,
        typed: Collection[int] | None,
        unseen_start: bool,
        is_kept: bool,
    ) -> Addition:
        """Takes in the next prompt of the chain.

        Args:
            typed: Places of typed texts; None if all texts of the user are.
            is_kept: Whether the next prompt continues this one; not so for a compaction, which is asked aside.
        """
        head = _head_length(parts)
        history = tuple(segments[head:])
        before = self._segments
        goes_on = before is not None and history[: len(before)] == before
        is_told = goes_on or not (before is None or unseen_start or self._has_unseen_start)
        if goes_on and before is not None:
            first = head + len(before)
        elif unseen_start:
            first = 0
        else:
            first = _after_last_answer(parts)
        typed_places = _typed_places(parts, typed)
        new_typed = self._new_typed(segments, typed_places, first, goes_on=goes_on)
        results = self._new_results(parts[first:])
        if is_kept:
            self._segments = history
            self._has_unseen_start = unseen_start
        return Addition(
            is_replaced=not goes_on if is_told else None,
            results=results,
            tool_uses=tuple((p.tool_id, p.tool_name) for p in parts[first:] if p.type == "tool_use"),
            has_typed=new_typed,
            has_announcement=any(
                part.role == "user" and part.type in ("text", "opaque") and place not in typed_places
                for place, part in enumerate(parts[first:], first)
            ),
        )

    def _new_results(self, parts: Sequence[RequestPart]) -> tuple[str | None, ...]:
        new = tuple(
            part.tool_id for part in parts if part.type == "tool_result" and part.tool_id not in self._results
        )
        self._results.update(tool_id for tool_id in new if tool_id is not None)
        return new

    def _new_typed(
        self, segments: Sequence[int], places: Collection[int], first: int, *, goes_on: bool
    ) -> bool:
        counts: dict[int, int] = {}
        for place in places:
            counts[segments[place]] = counts.get(segments[place], 0) + 1
        last = {segments[place] for place in places if place >= first}
        is_new = any(goes_on or counts[segment] > self._typed.get(segment, 0) for segment in last)
        for segment, count in counts.items():
            self._typed[segment] = max(count, self._typed.get(segment, 0))
        return is_new


def _head_length(parts: Sequence[RequestPart]) -> int:
    for place, part in enumerate(parts):
        if part.type not in ("tool_definition", "system"):
            return place
    return len(parts)


def _after_last_answer(parts: Sequence[RequestPart]) -> int:
    for place in range(len(parts), 0, -1):
        if parts[place - 1].role == "assistant":
            return place
    return 0


def _typed_places(parts: Sequence[RequestPart], typed: Collection[int] | None) -> Collection[int]:
    texts = (place for place, part in enumerate(parts) if part.is_users_text)
    if typed is None:
        return frozenset(texts)
    told = frozenset(typed)
    return frozenset(place for place in texts if place in told)
