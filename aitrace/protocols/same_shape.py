"""Pure: tells whether an event differs from one that was decoded only in the text of its delta.

Decoding JSON is half of what an event of a stream costs, and nearly all events of a stream are alike. From one that
was decoded, `shape_of` keeps the bytes around its text and around the fields that nobody reads but that change from
event to event; `Shape.text_in` compares.

    decoded: {"created":1,"delta":{"content":" Hi"}}
    good:    {"created":2,"delta":{"content":" you"}}   (the text and a number that nobody reads)
    bad:     {"created":2,"delta":{"content":"\\n"}}     (an escape, which has to be decoded)

A string without a backslash ends at its next quote, so bytes that agree around such strings are the same JSON.
"""

import re
from dataclasses import dataclass
from typing import Literal

_VOLATILE = re.compile(
    rb'"(?:created|sequence_number)": ?(?=(?P<number>[0-9]+))|"(?:obfuscation|system_fingerprint)": ?"(?=[^"])'
)
"""Fields of the three protocols that no reader looks at; the match ends where their value begins."""
_MAX_DIGITS = 18


_Kind = Literal["text", "string", "number"]
_Gap = tuple[_Kind, bytes, bytes]
"""A place where events of one shape differ: what stands there (the text of the delta, the content of another string, a
number), the byte that ends it, and the bytes from there to the next gap or the end."""


# Not kw_only, and gaps are tuples: they are looked at for every token.
@dataclass(frozen=True, slots=True)
class Shape:
    """The bytes that events of one shape have in common."""

    head: bytes
    """Up to the first gap."""
    gaps: tuple[_Gap, ...]
    """In order; one of them is the text."""

    def text_in(self, data: bytes) -> str | None:
        """The text of the delta of an event of this shape, not empty; None if it has to be decoded."""
        head = self.head
        if not data.startswith(head) or b"\\" in data:
            return None
        place = len(head)
        found: str | None = None
        for kind, mark, after in self.gaps:
            # Without backslashes a string ends at the next quote.
            end = data.find(mark, place)
            if end <= place or not data.startswith(after, end):
                return None
            content = _plain_text(data[place:end])
            if content is None or (kind == "number" and not _is_number(content)):
                return None
            if kind == "text":
                found = content
            place = end + len(after)
        return found if place == len(data) else None


def shape_of(data: bytes, text: str) -> Shape | None:
    """The shape of an event that was decoded and whose delta is this text; None if it cannot be told."""
    quoted = b'"%b"' % text.encode()
    if not text or b"\\" in data or data.count(quoted) != 1:
        return None
    start = data.index(quoted) + 1
    places: list[tuple[int, int, _Kind]] = [(start, start + len(quoted) - 2, "text")]
    for match in _VOLATILE.finditer(data):
        first = match.end()
        if match["number"] is not None:
            places.append((first, first + len(match["number"]), "number"))
        else:
            places.append((first, data.index(b'"', first), "string"))
    places.sort()
    ends = [first for first, _, _ in places[1:]] + [len(data)]
    gaps = [
        (kind, data[end : end + 1], data[end:next_first])
        for (_, end, kind), next_first in zip(places, ends, strict=True)
    ]
    # A number that goes on with a point or an exponent is none of ours.
    is_whole = all(kind != "number" or mark in (b",", b"}") for kind, mark, _ in gaps)
    return Shape(data[: places[0][0]], tuple(gaps)) if is_whole else None


def _is_number(content: str) -> bool:
    """Whether this is a whole number as JSON writes one, of a size that every reader takes."""
    is_short = content.isdecimal() and content.isascii() and len(content) <= _MAX_DIGITS
    return is_short and (content[0] != "0" or content == "0")


def _plain_text(content: bytes) -> str | None:
    """The text of a string's bytes; None if they may not stand in a string as they are, or are out of the ordinary."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
