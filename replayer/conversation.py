"""Pure: the messages that the pieces of a prompt become, and how many of them stay as they are when it grows.

Adjacent pieces of one speaker are one message. A longer prompt may go on in the last message, and its tool results may
find a partner in the one before that; all earlier messages are settled. So whoever has written a prompt once can write
the next one of its session from where the settled messages end, with the same bytes as if it were written anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from aitrace.protocols.protocol import WireMessage, WirePart
from aitrace.schema import SegmentType

Speaker = Literal["user", "assistant"]

_OPEN_MESSAGES = 2
"""Messages at the end of a prompt that a longer one may change."""
_OPENING = WireMessage(role="user", parts=(WirePart(kind="text", text=b" begin"),))
_CLOSING = WireMessage(role="user", parts=(WirePart(kind="text", text=b" continue"),))


# Not kw_only: there is one for every segment of every prompt.
@dataclass(frozen=True, slots=True)
class Piece:
    """What one segment puts into a prompt."""

    place: int
    """Which segment of the prompt it is, from 0."""
    type: SegmentType
    """What it is."""
    speaker: Speaker
    """Who says it."""
    text: bytes
    """Escaped; empty for a segment that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The settled messages of a prompt, as far as what follows them depends on them."""

    segments: int = 0
    """Segments of the prompt that they hold, with what comes before the conversation."""
    rests_on: int = 0
    """Segments at the start of a prompt that must be the same for them to be: those of the next message, and the first
    one after it."""
    messages: int = 0
    """How many they are."""
    pairs: int = 0
    """Pairs of native tool calls and results before the calls of the last one."""
    open_calls: int = 0
    """Tool calls at the end of the last one."""
    tools_as_text: int = 0
    """Tool calls and results in them that were written as text, though native ones were asked for."""
    is_opened: bool = False
    """Whether the first one is a line that was put there since the assistant spoke first."""


NOTHING = Settled()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The messages that follow the settled ones of an earlier prompt."""

    messages: Sequence[WireMessage]
    """In order."""
    newly_settled: int
    """How many of them are settled now."""
    settled: Settled | None
    """All that are settled now; None if none is."""
    tools_as_text: int
    """Tool calls and results of the whole prompt that are text, though native ones were asked for."""
    is_opened: bool
    """Whether the prompt got a first line of the user."""
    is_closed: bool
    """Whether it got a last one."""


def conversation(pieces: Sequence[Piece], before: Settled, *, native: bool, has_tools: bool) -> Conversation:
    """The messages of these pieces, which come behind settled ones.

    Args:
        native: Whether tool calls and results take the protocol's form, where they can.
        has_tools: Whether the prompt defines tools; without, protocols refuse native calls.
    """
    spoken = [piece for piece in pieces if piece.text]
    groups = [list(group) for _, group in groupby(spoken, key=lambda piece: piece.speaker)]
    pairs = native_tool_pairs(groups, before.pairs, before.open_calls) if native and has_tools else {}
    messages = [
        WireMessage(
            role=group[0].speaker,
            parts=tuple(_part(piece, pairs.get((place, position))) for position, piece in enumerate(group)),
        )
        for place, group in enumerate(groups)
    ]
    is_first = not before.messages
    is_opened = is_first and (not messages or messages[0].role == "assistant")
    if is_opened:
        messages.insert(0, _OPENING)
    is_closed = messages[-1].role == "assistant"
    if is_closed:
        messages.append(_CLOSING)
    settled = before if before.messages else None
    if len(groups) > _OPEN_MESSAGES:
        settled = _settled(groups, pairs, before, native=native, is_opened=is_opened)
    return Conversation(
        messages=messages,
        newly_settled=0 if settled is None else settled.messages - before.messages,
        settled=settled,
        tools_as_text=before.tools_as_text + (_tools_as_text(groups, pairs) if native else 0),
        is_opened=is_opened or before.is_opened,
        is_closed=is_closed,
    )


def native_tool_pairs(
    groups: Sequence[Sequence[Piece]], number: int, open_calls: int
) -> dict[tuple[int, int], int]:
    """Which tool calls and results can be written in the protocol's form: (message, position) to the pair's number.

    Protocols want every call at the end of its message and every result at the start of the next one, so only those
    are paired, in order; a call or result that finds no partner stays text.

    Args:
        number: Number of the first pair.
        open_calls: Calls at the end of the message before these.
    """
    pairs: dict[tuple[int, int], int] = {}
    for place, group in enumerate(groups):
        results = _leading(group, "tool_result")
        matched = min(open_calls, results)
        for offset in range(matched):
            if place:
                pairs[place - 1, len(groups[place - 1]) - matched + offset] = number
            pairs[place, offset] = number
            number += 1
        open_calls = _leading(group[::-1], "tool_use")
    return pairs


def _settled(
    groups: Sequence[Sequence[Piece]],
    pairs: dict[tuple[int, int], int],
    before: Settled,
    *,
    native: bool,
    is_opened: bool,
) -> Settled:
    count = len(groups) - _OPEN_MESSAGES
    done = groups[:count]
    later = [number for (place, _), number in pairs.items() if place >= count]
    paired = {where: number for where, number in pairs.items() if where[0] < count}
    return Settled(
        segments=groups[count][0].place,
        rests_on=groups[count + 1][0].place + 1,
        messages=before.messages + count + is_opened,
        pairs=min(later, default=max(pairs.values(), default=before.pairs - 1) + 1),
        open_calls=_leading(done[-1][::-1], "tool_use"),
        tools_as_text=before.tools_as_text + (_tools_as_text(done, paired) if native else 0),
        is_opened=is_opened or before.is_opened,
    )


def _leading(group: Sequence[Piece], kind: SegmentType) -> int:
    """How many pieces at the start of a message are of this kind."""
    return next((place for place, piece in enumerate(group) if piece.type != kind), len(group))


def _tools_as_text(groups: Sequence[Sequence[Piece]], pairs: dict[tuple[int, int], int]) -> int:
    tools = sum(piece.type in ("tool_use", "tool_result") for group in groups for piece in group)
    return tools - len(pairs)


def _part(piece: Piece, pair: int | None) -> WirePart:
    if pair is None:
        return WirePart(kind="text", text=piece.text)
    if piece.type == "tool_use":
        return WirePart(kind="tool_use", text=piece.text, tool_id=f"call_{pair}", tool_name="tool_0")
    return WirePart(kind="tool_result", text=piece.text, tool_id=f"call_{pair}")
