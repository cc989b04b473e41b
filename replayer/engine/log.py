"""I/O: the engine's log file, one line of JSON per request."""

from pathlib import Path
from types import TracebackType
from typing import Self

from aitrace.errors import UsageError
from replayer.engine.record import EngineRecord, line_from_record


class RecordLog:
    """Writes each record as it comes, and flushes it: what is in the file survives the engine."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error

    def write(self, record: EngineRecord) -> None:
        self._file.write(line_from_record(record))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
