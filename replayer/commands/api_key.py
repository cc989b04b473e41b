"""I/O: the API key that `--api-key-env` or `--api-key-file` names. It goes to the endpoint and nowhere else."""

import os
import re
import stat
from pathlib import Path

import click

from aitrace.errors import InputError, UsageError
from replayer.credentials import key_from_text

_USUAL_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_MAX_FILE_BYTES = 65_536


def read_key(variable: str | None, path: Path | None) -> str | None:
    """The key from an environment variable or a file; None if neither is named.

    Says on stderr if others can read the file.

    Raises:
        UsageError: Both are named, or what is named holds no key.
        InputError: The file cannot be read.
    """
    if variable is not None and path is not None:
        raise UsageError("--api-key-env and --api-key-file exclude each other")
    if variable is not None:
        return _key_of_variable(variable)
    return None if path is None else _key_of_file(path)


def forget_key(variable: str | None) -> None:
    """Take the variable out of what processes started from here on inherit: they are told the key if they need it."""
    if variable is not None:
        os.environ.pop(variable, None)


def _key_of_variable(name: str) -> str:
    # A key that was given in place of the name must not be repeated.
    is_name = _USUAL_NAME.fullmatch(name) is not None
    place = (
        f"environment variable {name!r}" if is_name else "the environment variable that --api-key-env names"
    )
    text = os.environ.get(name, "") if name else ""
    if not text.strip():
        hint = f"export {name}=…" if is_name else "Give the name of the variable, not the key."
        raise UsageError(f"{place} is not set", hint=hint)
    return key_from_text(text, place=place)


def _key_of_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise InputError(
            f"{path}: the API key cannot be read: {error.strerror}", hint="Name the file that holds the key."
        ) from error
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        click.echo(
            f"Warning: {path}: others may read the API key (mode {stat.S_IMODE(mode):03o}); chmod 600 keeps it to you",
            err=True,
        )
    return key_from_text(data.decode(errors="replace"), place=str(path))
