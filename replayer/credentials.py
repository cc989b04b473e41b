"""Pure: keys and other credentials: how one is read, and how texts, URLs and results are kept free of it.

The rules by example:

    good: a key of printable ASCII in one line, as a header can carry it
    bad:  two lines; `schlüssel`; `http://me:pw@host`, `http://host/metrics?token=…` (they would end up in the run)
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl

from aitrace.errors import UsageError
from aitrace.results import CallResult
from aitrace.signals import Signals

SHOWN_KEY = "(the API key)"
"""What stands where an endpoint has repeated the key."""
_KEY = re.compile(r"[\x21-\x7e]+")
_MAX_KEY_CHARS = 8192
_PART_CHARS = 8
_SECRET_NAME = re.compile(
    r"key|token|secret|passw|passphrase|credential|auth|signature|\Asig\Z", re.IGNORECASE
)


def key_from_text(text: str, *, place: str) -> str:
    """The key that a variable or file holds, without white space around it.

    Args:
        place: What holds it, for errors; the text itself is never shown.

    Raises:
        UsageError: It is empty, or no header can carry it.
    """
    key = text.strip()
    if not key:
        raise UsageError(f"{place} holds no key")
    if len(key.splitlines()) > 1:
        raise UsageError(f"{place} holds {len(key.splitlines()):,} lines, expected a key in one")
    if len(key) > _MAX_KEY_CHARS or _KEY.fullmatch(key) is None:
        raise UsageError(
            f"{place} holds something that is no key, expected at most {_MAX_KEY_CHARS:,} characters of ASCII without blanks"
        )
    return key


def shown_url(text: str) -> str:
    """A URL without what may be a secret in it: credentials, query and fragment."""
    if "@" in text:
        # Where a password ends cannot be told from a text that may be no URL.
        scheme, mark, _ = text.partition("://")
        return f"{scheme}://…" if mark and scheme.isalpha() else "…"
    plain, *mark_of_rest = re.split("([?#])", text, maxsplit=1)[:2]
    return plain + "".join(f"{mark}…" for mark in mark_of_rest)


def is_secret_in_query(query: str) -> bool:
    """Whether a parameter of a query looks like a credential, by its name."""
    return any(_SECRET_NAME.search(name) for name, _ in parse_qsl(query, keep_blank_values=True))


def without_key(text: str, key: str | None) -> str:
    """A text of an endpoint without the key, whole or cut off at the text's end.

    A key of fewer than 8 characters is no secret (`none`, `EMPTY`), and may be part of a word: it stays.
    """
    if key is None or len(key) < _PART_CHARS:
        return text
    text = text.replace(key, SHOWN_KEY)
    for length in range(min(len(key) - 1, len(text)), _PART_CHARS - 1, -1):
        if text.endswith(key[:length]):
            return text[:-length] + SHOWN_KEY
    return text


def result_without_key(result: CallResult, key: str | None) -> CallResult:
    """A result without the key, which an endpoint may repeat in what it says of errors or in headers."""
    # Nearly no result holds a text of the endpoint's, and a copy of one costs more than this look at it.
    if key is None or not (result.error_text or result.signals or result.attempts or _is_long(result.finish)):
        return result
    return replace(
        result,
        error_text=_text_without_key(result.error_text, key),
        finish=_text_without_key(result.finish, key),
        signals=_signals_without_key(result.signals, key),
        attempts=tuple(
            replace(
                attempt,
                error_text=_text_without_key(attempt.error_text, key),
                signals=_signals_without_key(attempt.signals, key),
            )
            for attempt in result.attempts
        ),
    )


def _is_long(finish: str | None) -> bool:
    """Whether a finish reason is long enough to hold a key."""
    return finish is not None and len(finish) >= _PART_CHARS


def _text_without_key(text: str | None, key: str) -> str | None:
    return None if text is None else without_key(text, key)


def _signals_without_key(signals: Mapping[str, str | int | float], key: str) -> Signals:
    return {
        name: without_key(value, key) if isinstance(value, str) else value for name, value in signals.items()
    }
