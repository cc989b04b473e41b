"""Pure: how the requests of a session ended, with reasons in words, for the end of the recording."""

import errno
import re
from collections import Counter
from dataclasses import dataclass, field

from recorders.addresses import place_text

UPSTREAM_CA = "--upstream-ca FILE"
"""What names an authority that is not trusted yet."""

_ERRNO = re.compile(r"\[Errno (-?\d+)\]")
_NO_NAME = re.compile(r"name or service|name resolution|nodename|no address associated", re.IGNORECASE)
_NOT_TRUSTED = re.compile(r"certificate verify failed: (.*)", re.IGNORECASE)
_NO_AUTHORITY = re.compile(r"issuer|self.signed", re.IGNORECASE)
_WORDS = (
    ("does not speak TLS", "speaks no TLS (http:// instead of https://)"),
    ("timed out", "no answer to connecting"),
    ("connection closed by peer", "closed the connection without an answer"),
    ("server closed connection", "closed the connection without an answer"),
    ("server disconnected", "closed the connection without an answer"),
)
_ERRNOS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ENETUNREACH: "network unreachable",
    errno.ETIMEDOUT: "no answer to connecting",
}
_SHOWN_CHARS = 120


@dataclass(slots=True, kw_only=True)
class Tally:
    """Requests of a session."""

    requests: int = 0
    """All of them."""
    recorded: int = 0
    """Those to recorded routes; the handshake of a WebSocket is one."""
    failures: Counter[str] = field(default_factory=Counter)
    """Why recorded ones failed, with the number of each."""
    other_failures: Counter[str] = field(default_factory=Counter)
    """Why others failed, with the number of each."""

    def count_request(self, *, is_recorded: bool) -> None:
        """A request has come."""
        self.requests += 1
        self.recorded += is_recorded

    def count_failure(self, reason: str, *, is_recorded: bool) -> None:
        """A request has failed."""
        (self.failures if is_recorded else self.other_failures)[reason] += 1


def reason_from_status(status: int, path: str) -> str | None:
    """Why an answered request failed; None if it did not."""
    return f"{status} from {path.partition('?')[0]}" if status >= 400 else None


def reason_from_error(text: str, host: str, port: int) -> str:
    """Why a request has no whole answer, from what the proxy says of it."""
    return f"{place_text(host, port)}: {_said(text)}"


def _said(text: str) -> str:
    not_trusted = _NOT_TRUSTED.search(text)
    if not_trusted is not None:
        if _NO_AUTHORITY.search(not_trusted[1]):
            return f"certificate not trusted ({UPSTREAM_CA})"
        return f"certificate not trusted: {not_trusted[1][:_SHOWN_CHARS]}"
    if _NO_NAME.search(text):
        return "name cannot be resolved"
    for found in _ERRNO.findall(text):
        if int(found) in _ERRNOS:
            return _ERRNOS[int(found)]
    for words, meaning in _WORDS:
        if words.lower() in text.lower():
            return meaning
    return text.partition("\n")[0][:_SHOWN_CHARS]
