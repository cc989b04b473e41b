"""Pure: decoding of bodies that were compressed on the way, piece by piece.

Each call of `feed` gives what this piece of the body completed, so whatever is in it gets the time at which it could be
read. A body that cannot be decoded ends early and says why; nothing is raised.
"""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import brotli  # type: ignore[import-untyped] # ships no types
import zstandard

LIMIT_BYTES = 256 << 20
"""Most decoded bytes of one body; a prompt of a million tokens is some 5 MB."""


class ContentCodingError(Exception):
    """A body that cannot be decoded; the text says why."""


class _Member(Protocol):
    """One compressed stream; some codings allow several, one after the other."""

    slice_bytes: int
    """How much to hand over at once: bounds how far one piece can go beyond the limit."""

    def feed(self, data: bytes) -> bytes:
        """What this piece completed.

        Raises:
            ContentCodingError: It is damaged.
        """
        ...

    def finish(self) -> None:
        """The body ends here.

        Raises:
            ContentCodingError: It ends in the middle.
        """
        ...


class ContentDecoder:
    """Decodes one body; `encoding` is the header's value, several codings in the order in which they were applied.

    Examples:
        >>> decoder = ContentDecoder("gzip")
        >>> decoder.feed(zlib.compress(b"{}", wbits=31))
        b'{}'
    """

    def __init__(self, encoding: str | None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.error: str | None = None
        """Why the body cannot be decoded from here on; None if it can."""
        self._limit_bytes = limit_bytes
        self._decoded_bytes = 0
        self._members: list[_Member] = []
        for name in reversed(codings(encoding)):
            member = _member(name)
            if member is None:
                self.error = f"unknown content coding {name!r}"
                return
            self._members.append(member)

    def feed(self, data: bytes) -> bytes:
        """What this piece of the body completed; nothing once it is known that it cannot be decoded."""
        if self.error is not None:
            return b""
        if self._members:
            pieces: list[bytes] = []
            try:
                self._decode(data, 0, pieces)
            except ContentCodingError as error:
                self.error = str(error)
            return b"".join(pieces)
        try:
            self._count(data)
        except ContentCodingError as error:
            self.error = str(error)
            return b""
        return data

    def finish(self) -> None:
        """The whole body was fed: sets `error` if it ends in the middle."""
        if self.error is not None:
            return
        try:
            for member in self._members:
                member.finish()
        except ContentCodingError as error:
            self.error = str(error)

    def _decode(self, data: bytes, level: int, pieces: list[bytes]) -> None:
        """Hand the data through this coding and those below it, in slices."""
        if level == len(self._members):
            self._count(data)
            pieces.append(data)
            return
        member = self._members[level]
        for start in range(0, len(data), member.slice_bytes):
            decoded = member.feed(data[start : start + member.slice_bytes])
            if decoded:
                self._decode(decoded, level + 1, pieces)

    def _count(self, decoded: bytes) -> None:
        self._decoded_bytes += len(decoded)
        if self._decoded_bytes > self._limit_bytes:
            raise ContentCodingError(f"decodes to more than {self._limit_bytes} bytes")


def decoded_body(body: bytes, encoding: str | None, *, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """The decoded form of a whole body.

    Raises:
        ContentCodingError: It cannot be decoded to its end.
    """
    decoder = ContentDecoder(encoding, limit_bytes=limit_bytes)
    decoded = decoder.feed(body)
    decoder.finish()
    if decoder.error is not None:
        raise ContentCodingError(decoder.error)
    return decoded


def codings(encoding: str | None) -> list[str]:
    """The codings in a `Content-Encoding` header, without those that change nothing."""
    names = [name.strip().lower() for name in (encoding or "").split(",")]
    return [name for name in names if name not in ("", "identity")]


def _member(name: str) -> _Member | None:
    match name:
        case "gzip" | "x-gzip":
            return _zlib_members(_GZIP)
        case "deflate":
            return _DeflateMember()
        case "br":
            return _BrotliMember()
        case "zstd":
            return _zstd_members()
        case _:
            return None


_GZIP = zlib.MAX_WBITS | 16
_RAW_DEFLATE = -zlib.MAX_WBITS
_ZLIB_SLICE_BYTES = 1 << 14  # deflate expands by at most 1032, so a slice gives at most 17 MB
_ZSTD_SLICE_BYTES = 512  # a block of 4 bytes gives at most 128 KiB, so a slice gives at most 16 MiB


class _Members:
    """Compressed streams of one kind, one after the other, as gzip and zstd allow.

    Args:
        new_stream: Begins one.
        error: What it raises if it is damaged.
        slice_bytes: As of `_Member`.
    """

    def __init__(self, new_stream: Callable[[], Any], error: type[Exception], slice_bytes: int) -> None:
        self.slice_bytes = slice_bytes
        self._new_stream = new_stream
        self._error = error
        self._stream = new_stream()
        self._is_empty = True

    def feed(self, data: bytes) -> bytes:
        pieces = []
        while data:
            if self._stream.eof:
                self._stream = self._new_stream()
            self._is_empty = False
            try:
                pieces.append(self._stream.decompress(data))
            except self._error as error:
                raise ContentCodingError(f"damaged: {error}") from error
            data = self._stream.unused_data
        return b"".join(pieces)

    def finish(self) -> None:
        # An answer without a body is labelled as its siblings with one are.
        if not self._stream.eof and not self._is_empty:
            raise ContentCodingError("ends in the middle")


def _zlib_members(window_bits: int) -> _Members:
    """What zlib reads: gzip, whose members may follow each other, or deflate with or without zlib's wrapping."""
    return _Members(partial(zlib.decompressobj, window_bits), zlib.error, _ZLIB_SLICE_BYTES)


def _zstd_members() -> _Members:
    """Zstandard frames."""
    return _Members(zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError, _ZSTD_SLICE_BYTES)


class _DeflateMember:
    """Deflate as the standard has it, in zlib's wrapping, or raw, as some servers send it; the first bytes tell."""

    slice_bytes = _ZLIB_SLICE_BYTES

    def __init__(self) -> None:
        self._start = b""
        self._stream: _Members | None = None

    def feed(self, data: bytes) -> bytes:
        if self._stream is None:
            self._start += data
            if len(self._start) < 2:
                return b""
            data = self._start
            is_wrapped = data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._stream = _zlib_members(zlib.MAX_WBITS if is_wrapped else _RAW_DEFLATE)
        return self._stream.feed(data)

    def finish(self) -> None:
        if self._stream is not None:
            self._stream.finish()
        elif self._start:
            raise ContentCodingError("ends in the middle")


class _BrotliMember:
    """One brotli stream."""

    slice_bytes = 32  # measured with 1 GiB of zeros: 24 MiB from one slice

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()
        self._is_empty = True

    def feed(self, data: bytes) -> bytes:
        self._is_empty = False
        try:
            decoded: bytes = self._stream.process(data)
        except brotli.error as error:
            raise ContentCodingError(f"damaged: {error}") from error
        return decoded

    def finish(self) -> None:
        if not self._is_empty and not self._stream.is_finished():
            raise ContentCodingError("ends in the middle")
