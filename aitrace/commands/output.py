"""I/O: the file that a command is to write: what it asks of it before it begins, and how it is written whole or not at all."""

from collections.abc import Callable, Sequence
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


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written under another name, and give it its own once it is whole; a device or a pipe is written to.

    Raises:
        UsageError: It cannot be written.
    """
    is_node = path.exists() and not path.is_file()
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(path if is_node else temporary)
        if not is_node:
            temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror}",
            hint="name a file in a directory that you may write to",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text_file(path: Path, text: str) -> None:
    """The same of a text."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
