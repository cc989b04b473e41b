"""I/O: what a command asks of the file that it is to write, before it begins."""

from collections.abc import Sequence
from pathlib import Path

from aitrace.errors import UsageError


def check_output(output: Path, inputs: Sequence[str] = (), *, force: bool) -> None:
    """Refuse what cannot be written, and to replace what was not asked for.

    Args:
        inputs: Files that the command reads, none of which it may replace.

    Raises:
        UsageError: It is refused.
    """
    if not output.parent.is_dir():
        raise UsageError(
            f"{output}: cannot be written: there is no directory {str(output.parent)!r}", hint="make it first"
        )
    if not output.exists():
        return
    if not output.is_file():
        raise UsageError(f"{output}: is no regular file", hint="give the name of a file, or - for stdout")
    if any(Path(path).exists() and output.samefile(path) for path in inputs):
        raise UsageError(f"{output}: is also an input", hint="give the trace another name")
    if not force:
        raise UsageError(f"{output}: exists", hint="give another name, or --force to replace it")
