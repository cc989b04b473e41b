"""Pure: one HTTP/1.1 response from bytes, in whatever pieces they arrive, handed on as its parts become known."""

from collections.abc import Mapping
from typing import Protocol

import httptools

MAX_HEAD_BYTES = 1 << 18
"""Headers that are longer are no response."""


class MalformedHttpError(Exception):
    """Bytes that are no HTTP response; the text says what was expected."""


class HeadAndBody(Protocol):
    """What the parts of a response are handed to."""

    def on_headers(self, status: int, headers: Mapping[str, str], at_ns: int) -> None:
        """Status and headers have come."""
        ...

    def on_chunk(self, data: bytes, at_ns: int) -> None:
        """A piece of the body has come."""
        ...


class HttpResponse:
    """The response to one POST. Interim responses (100 to 199) are passed over.

    Args:
        sink: Takes the parts, each with the time of the bytes that completed it.
    """

    def __init__(self, sink: HeadAndBody) -> None:
        self.is_complete = False
        """Whether the response came to its own end."""
        self.is_begun = False
        """Whether a byte of it came."""
        self.has_head = False
        """Whether the final status and headers came."""
        self.can_be_followed = False
        """Whether the connection may carry another request after a complete response."""
        self._sink = sink
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._is_bounded = False
        self._head_bytes = 0
        self._at_ns = 0
        self._is_interim = False

    def feed(self, data: bytes | memoryview, at_ns: int) -> None:
        """Take in a piece that came at this time. What follows the end only spoils the connection.

        Raises:
            MalformedHttpError: It is no HTTP response.
        """
        if self.is_complete:
            self.can_be_followed = self.can_be_followed and not data
            return
        self.is_begun = True
        self._at_ns = at_ns
        if not self.has_head:
            if self._head_bytes > MAX_HEAD_BYTES:
                raise MalformedHttpError(f"headers of more than {MAX_HEAD_BYTES >> 10} KiB")
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise MalformedHttpError("the connection was switched to another protocol") from error
        except httptools.HttpParserError as error:
            # What lies behind the end of the response spoils only the connection.
            self.can_be_followed = False
            if not self.is_complete:
                raise MalformedHttpError(str(error)) from error

    def close(self) -> None:
        """The endpoint closed the connection: the end of a body that nothing else ends."""
        if self.has_head and not self._is_bounded:
            self.is_complete = True
            self.can_be_followed = False

    def release(self) -> None:
        """Let go of the parser, which is of no use any more: it holds this object as this object holds it.

        Otherwise all that belongs to a call would stay until the garbage collector finds it, and that takes long enough
        to make calls late.
        """
        del self._parser

    # What follows is called by the parser.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ValueError("a second response")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._is_interim = 100 <= status < 200 and status != 101
        if not self._is_interim:
            self.has_head = True
            headers, self._headers = self._headers, {}
            self._is_bounded = "content-length" in headers or "transfer-encoding" in headers
            self._sink.on_headers(status, headers, self._at_ns)

    def on_body(self, data: bytes) -> None:
        self._sink.on_chunk(data, self._at_ns)

    def on_message_complete(self) -> None:
        if self._is_interim:
            return
        self.is_complete = True
        self.can_be_followed = self._parser.should_keep_alive()
