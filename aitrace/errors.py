"""Pure: the errors a user of aitrace can meet, sorted by what they can do about them.

What an endpoint does (a status of 500, a cut stream) is data, see `aitrace.schema.Outcome`; these are for wrong
use and for input that cannot be read.
"""

from typing import Any, ClassVar

EXIT_OK = 0
EXIT_IN_DOUBT = 1
EXIT_WRONG_USE = 2
EXIT_BAD_INPUT = 3
EXIT_ENDPOINT_UNUSABLE = 4
_SHOWN_CHARS = 60


class AitraceError(Exception):
    """A failure that is not a fault of aitrace; its text is one sentence for the user. Raise one of its children."""

    exit_code: ClassVar[int]
    """Exit code of the program."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        """The next step, as a sentence; None if there is none to offer."""


class UsageError(AitraceError):
    """Options that contradict each other or cannot be applied to this input, or a place that cannot be written."""

    exit_code = EXIT_WRONG_USE


class InputError(AitraceError):
    """A file that is missing, damaged, or not of the expected format; the text names the place in it."""

    exit_code = EXIT_BAD_INPUT


class EndpointError(AitraceError):
    """An endpoint that cannot be used at all: it refuses connections, or what answers is not an LLM API."""

    exit_code = EXIT_ENDPOINT_UNUSABLE


def shown(value: Any) -> str:
    """A bad value as texts of errors give it: whatever it is, at most 61 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
