"""Pure: server-sent events from bytes, in whatever pieces they arrive (WHATWG HTML, section 9.2).

Nothing is lost in silence: comments and lines that are no field are counted, and an event that the end of the
stream left unfinished is kept apart, since a cut stream must not look like a whole one.
"""

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 64
MAX_EVENT_BYTES = 1 << 24
"""Longest event that is read; an answer is at most some MB, in Responses' last event."""


# Not kw_only: there is one for every token, and names of arguments cost a tenth of the parser's time.
@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of a stream."""

    type: str
    """Value of the last `event` field; `message` if there was none or it was empty."""
    data: bytes
    """The `data` fields joined with a line feed."""
    size_bytes: int
    """Bytes of the event's lines on the wire, the blank one included, each line end counted as one byte."""


class SseParser:
    """Parser of one stream. Each byte is looked at once, so events may be long and come byte by byte."""

    def __init__(self) -> None:
        self.comments = 0
        """Lines that start with a colon: keep-alives of llama-server and routers."""
        self.unparsed_lines = 0
        """Lines with a field name that the standard does not know."""
        self.unparsed_sample = b""
        """Start of the first such line, at most 64 bytes; empty if there was none."""
        self.is_overlong = False
        """Whether an event was longer than `MAX_EVENT_BYTES`; nothing is read from then on."""
        self.leftover = b""
        """What the end of the stream cut off: the lines of the unfinished event. Set by `close`."""
        self._line = bytearray()
        self._lines: list[bytes] = []
        self._data: list[bytes] = []
        self._type = b""
        self._size_bytes = 0
        self._is_start = True
        self._skip_line_feed = False
        self._is_between_events = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Events that this piece of the stream completed."""
        if self._is_start and not self._line and chunk.startswith((b"d", b"e")):
            # The first byte is none of a byte order mark.
            self._is_start = False
            self._is_between_events = True
        if self._is_between_events and chunk.endswith(b"\n\n"):
            events = _plain_events(chunk)
            if events is not None:
                return events
        if self.is_overlong:
            return []
        events = self._feed(chunk)
        if self._size_bytes + len(self._line) > MAX_EVENT_BYTES:
            self.is_overlong = True
            self._line.clear()
            self._reset()
        self._is_between_events = not (
            self._line or self._lines or self._type or self._skip_line_feed or self._is_start
        )
        return events

    def _feed(self, chunk: bytes) -> list[SseEvent]:
        if self._is_start:
            chunk = self._without_bom(chunk)
        if self._skip_line_feed and chunk:
            self._skip_line_feed = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            self._line += chunk
            return []
        self._skip_line_feed = chunk.endswith(b"\r")
        lines = chunk.splitlines()
        if self._line:
            self._line += lines[0]
            lines[0] = bytes(self._line)
            self._line.clear()
        if not chunk.endswith((b"\n", b"\r")):
            self._line += lines.pop()
        events = []
        for line in lines:
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def close(self) -> None:
        """End of the stream: what is unfinished becomes `leftover`.

        The standard drops an event without its blank line, and what was cut may be half.
        """
        self.leftover = b"\n".join([*self._lines, bytes(self._line)])
        self._line.clear()
        self._reset()

    def _without_bom(self, chunk: bytes) -> bytes:
        """The chunk without a byte order mark; nothing as long as it may still be the start of one."""
        start = bytes(self._line) + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._line[:] = start
            return b""
        self._line.clear()
        self._is_start = False
        return start.removeprefix(_BOM)

    def _take(self, line: bytes) -> SseEvent | None:
        """Take in one line; gives the event if the line was the blank one that ends it."""
        if not line:
            return self._dispatch()
        if line.startswith(b":"):
            self.comments += 1
            return None
        self._size_bytes += len(line) + 1
        self._lines.append(line)
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value
        elif name not in (b"id", b"retry"):
            self.unparsed_lines += 1
            self.unparsed_sample = self.unparsed_sample or line[:_SAMPLE_BYTES]
        return None

    def _dispatch(self) -> SseEvent | None:
        if not self._data:
            self._reset()
            return None
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        event = SseEvent(self._type.decode(errors="replace") or "message", data, self._size_bytes + 1)
        self._reset()
        return event

    def _reset(self) -> None:
        self._lines.clear()
        self._data.clear()
        self._type = b""
        self._size_bytes = 0


def _plain_events(chunk: bytes) -> list[SseEvent] | None:
    """The events of a piece that holds whole ones, each a line of data below no line or one with its type.

    None for all else. Nearly all pieces of a stream are such, and reading their lines one by one costs four times as
    much.
    """
    if b"\r" in chunk:
        return None
    events: list[SseEvent] = []
    for block in chunk[:-2].split(b"\n\n"):
        head, separator, line = block.rpartition(b"\n")
        if not line.startswith(b"data: "):
            return None
        if not separator:
            events.append(SseEvent("message", line[6:], len(block) + 2))
        elif head.startswith(b"event: ") and b"\n" not in head:
            kind = head[7:].decode(errors="replace") or "message"
            events.append(SseEvent(kind, line[6:], len(block) + 2))
        else:
            return None
    return events
