"""I/O: the JSON documents of a source file: one object, a list of objects, or JSON lines; plain, zstd or gzip."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import zstandard

from aitrace.errors import InputError
from aitrace.formats.format import Tally

UNREADABLE = "unreadable"
"""Kind of remark about a source that could not be read to its end."""
_UNREADABLE = "a file, directory or database cannot be read, or not to its end; the rest of it was left out"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_MAGIC = b"\x1f\x8b"
_CUT_HINT = "the file may be cut: compare its size with the original, or fetch it again"
_READ_BYTES = 1 << 16
_HEAD_BYTES = 1 << 20
_LINE_BYTES = 64 << 20
"""Most of a line among the first: a prompt with pictures has some MB, and what is no log may have one line of all."""


class SourceFile:
    """A file that can be read more than once; `-` is standard input, which is kept in memory."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._is_stdin = path == "-"
        self.name = "stdin" if self._is_stdin else path
        """As errors call it."""
        self._data = sys.stdin.buffer.read() if self._is_stdin else None
        if self._path.is_dir():
            raise InputError(
                f"{path}: is a directory, expected a file",
                hint=f"name the files: aitrace convert {path.rstrip('/')}/*.json -o OUT.aitrace; a directory is read if "
                "it holds the history of Claude Code, Codex or OpenCode, which this one does not",
            )

    def documents(self) -> Iterator[tuple[str, object]]:
        """Each JSON document with its place.

        Raises:
            InputError: If the file is missing or damaged; the text names the place in it.
        """
        with self._stream() as stream:
            yield from self._parsed(stream)

    def rows(self, tally: Tally) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each JSON object of a log with its place, line by line.

        A log is written while it is read, and its writer may have been killed: what is no whole line is passed over
        and noted, and so is what cannot be read.
        """
        try:
            with self._stream() as stream:
                yield from self._objects(stream, tally)
        except InputError as error:
            note_unreadable(error, tally)

    def first_rows(self, tally: Tally | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """The JSON objects among the first lines; what is no whole line is left out.

        Args:
            tally: Where to note that the file cannot be read; None if somebody else does.
        """
        try:
            with self._stream() as stream:
                yield from self._objects(_first_lines(stream), None)
        except InputError as error:
            if tally is not None:
                note_unreadable(error, tally)

    def _objects(self, lines: Iterable[bytes], tally: Tally | None) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, line in enumerate(lines, 1):
            row = _object_or_none(line)
            place = f"{self.name}:{number}"
            if row is not None:
                yield place, row
            elif tally is not None and line.strip():
                tally.remark("damaged_line", "a line is cut or no JSON object; passed over", place)

    def starts_with(self, magic: bytes) -> bool:
        """Whether these are the first bytes of the file."""
        try:
            with self._open() as raw:
                return raw.read(len(magic)) == magic
        except OSError:
            return False  # whoever reads it says why it cannot be

    @contextmanager
    def _stream(self) -> Iterator[io.BufferedIOBase]:
        try:
            with self._open() as raw, _decompressed(raw) as stream:
                yield stream
        except OSError as error:
            raise InputError(
                f"{self.name}: cannot be read: {error.strerror or error}",
                hint="check the path, and that the file may be read",
            ) from error
        except (EOFError, zlib.error, zstandard.ZstdError) as error:
            raise InputError(f"{self.name}: damaged compression: {error}", hint=_CUT_HINT) from error

    def _open(self) -> io.BufferedReader:
        if self._data is None:
            return self._path.open("rb")
        return io.BufferedReader(io.BytesIO(self._data))

    def _parsed(self, stream: io.BufferedIOBase) -> Iterator[tuple[str, object]]:
        first = _next_line(stream)
        if not first:
            raise InputError(f"{self.name}: is empty, expected JSON", hint=_CUT_HINT)
        if not first.lstrip().startswith((b"{", b"[")):
            raise InputError(
                f"{self.name}: holds neither a JSON object nor a list, plain, .gz or .zst",
                hint="convert reads the traces of weka (kv-cache-tester, SemiAnalysis) and Mooncake; unpack archives first",
            )
        try:
            document: object = orjson.loads(first)
        except orjson.JSONDecodeError:
            # Not JSON lines, or damaged in the first line: the whole file as one document tells which.
            document = self._loaded(first + stream.read(), line=None)
        if isinstance(document, list):
            yield from ((f"{self.name}[{index}]", element) for index, element in enumerate(document))
            return
        second = _next_line(stream)
        if not second:
            yield self.name, document
            return
        yield f"{self.name}:1", document
        number = 2
        while second:
            if second.strip():
                yield f"{self.name}:{number}", self._loaded(second, line=number)
            second = stream.readline()
            number += 1

    def _loaded(self, data: bytes, *, line: int | None) -> object:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            number = error.lineno if line is None else line
            raise InputError(
                f"{self.name}:{number}: damaged JSON at column {error.colno}: {error.msg}",
                hint=_CUT_HINT,
            ) from error


def note_unreadable(error: InputError, tally: Tally) -> None:
    """Say that a source could not be read to its end."""
    tally.remark(UNREADABLE, _UNREADABLE, str(error))


def _first_lines(stream: io.BufferedIOBase) -> Iterator[bytes]:
    read_bytes = 0
    while read_bytes < _HEAD_BYTES and (line := stream.readline(_LINE_BYTES)):
        read_bytes += len(line)
        yield line


def _next_line(stream: io.BufferedIOBase) -> bytes:
    """The next line that is not blank; empty at the end."""
    line = stream.readline()
    while line and not line.strip():
        line = stream.readline()
    return line


def _object_or_none(line: bytes) -> dict[str, Any] | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None


def _decompressed(raw: io.BufferedReader) -> io.BufferedIOBase:
    magic = raw.peek(4)[:4]
    if magic.startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=raw)
    if magic == _ZSTD_MAGIC:
        return io.BufferedReader(_ZstdFrames(raw))
    return raw


class _ZstdFrames(io.RawIOBase):
    """The text of zstd frames; unlike the library's reader it does not take a cut frame for the end."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = False
        self._text = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            rest = self._frame.unused_data if self._frame.eof else b""
            data = rest or self._stream.read(_READ_BYTES)
            if not data:
                if self._started and not self._frame.eof:
                    raise EOFError("the last zstd frame is cut")
                return 0
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._started = True
            self._text = self._frame.decompress(data)
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count
