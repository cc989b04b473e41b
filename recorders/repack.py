"""I/O: puts the lines of a finished trace into full frames.

A recorder closes a frame each second, so that a crash costs no more; small frames know nothing of each other, and
the file is half as large again as it need be.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import zstandard

from aitrace.store import TraceReader

_FRAME_BYTES = 1 << 20
_LEVEL = 9


def repack(path: Path) -> None:
    """Writes the file anew, in its place once that is whole on disk. Holds one frame at a time in memory.

    Raises:
        OSError: It could not be written (disk full). The file is as it was.
    """
    packed = path.with_name(path.name + ".tmp")
    packed.unlink(missing_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        with os.fdopen(os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
            for text in _frame_texts(path):
                stream.write(compressor.compress(text))
            stream.flush()
            os.fsync(stream.fileno())
        packed.replace(path)
    finally:
        packed.unlink(missing_ok=True)


def _frame_texts(path: Path) -> Iterator[bytes]:
    lines: list[bytes] = []
    size_bytes = 0
    for _, line in TraceReader(path).raw_lines():
        lines.append(line + b"\n")
        size_bytes += len(line) + 1
        if size_bytes >= _FRAME_BYTES:
            yield b"".join(lines)
            lines, size_bytes = [], 0
    if lines:
        yield b"".join(lines)
