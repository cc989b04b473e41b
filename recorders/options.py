"""Pure: options of a recording, with every check."""

from dataclasses import dataclass

from aitrace.errors import UsageError
from aitrace.schema import CaptureMode, Privacy


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """What one recording is to be. It crosses to the writer's process as JSON."""

    path: str
    """Where the finished trace is to be."""
    privacy: Privacy = "hash"
    """`hash`: no text; `content`: segments carry theirs."""
    capture: CaptureMode
    """How the recorder stands between client and endpoint."""
    block_size: int = 256
    """Bytes of a block."""
    queue_bytes: int = 64 << 20
    """Most bytes that may wait for the writer; what comes beyond them is dropped and counted."""

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise UsageError(f"block size is {self.block_size}: expected at least 1 byte")
        if self.queue_bytes < 0:
            raise UsageError(f"queue is {self.queue_bytes} bytes: expected at least 0")
