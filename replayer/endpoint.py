"""Pure: what is said to and of an endpoint: its base URL, its credentials, and why it cannot be used.

The rules by example:

    good: `http://127.0.0.1:8000`, `https://host/llm/v1/` (a last `/v1`, or the whole path of the protocol's requests, is
          taken off, since it is put there for each request)
    bad:  `127.0.0.1:8000` (no scheme), `https://key@host`, `https://host?key=…` (credentials would end up in the run)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

import orjson

from aitrace.errors import EndpointError, UsageError
from aitrace.observe import Observation
from aitrace.protocols import PROTOCOLS
from aitrace.schema import ProtocolName
from replayer.credentials import is_secret_in_query, shown_url

_ANTHROPIC_VERSION = "2023-06-01"
_SHOWN_CHARS = 160
_URL = re.compile(r"[\x21-\x7e]+")
_KEY_HINT = "Put the key into a file and name it with --api-key-file, or into a variable and name it with --api-key-env."
_SHOWN_MODELS = 5
_NO_TLS_MARKS = ("wrong version number", "record layer failure", "unexpected eof", "packet length")
TLS_FAILED = "TLS failed"
"""Begin of what is said of a connection that TLS refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a protocol is spoken."""

    url: str
    """Base URL, without `/v1` and slash at its end."""
    protocol: ProtocolName
    """Protocol spoken there."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request; they hold the API key, so they are never shown."""
    key: str | None = field(default=None, repr=False)
    """The API key, to be taken out of what the endpoint says; None if there is none."""


def base_url_from_text(text: str, protocol: ProtocolName) -> str:
    """The base URL that a user gave, without the protocol's path, `/v1` and slash at its end.

    Raises:
        UsageError: No http or https URL, or one with more than host and path.
    """
    parts = _url_parts(text)
    if parts.query or parts.fragment:
        raise UsageError(
            f"URL {shown_url(text)!r} has a query or fragment, expected a base URL like http://127.0.0.1:8000",
            hint=_KEY_HINT,
        )
    path = PROTOCOLS[protocol].path
    return text.rstrip("/").removesuffix(path).rstrip("/").removesuffix("/v1").rstrip("/")


def check_page_url(text: str) -> str:
    """The URL of a page that a user gave, as it is.

    Raises:
        UsageError: No http or https URL, or one with credentials.
    """
    if is_secret_in_query(_url_parts(text).query):
        raise UsageError(
            f"URL {shown_url(text)!r} has a parameter that looks like a credential, which would end up in the run",
            hint="Pages are read without credentials; give the address of the engine itself.",
        )
    return text


def _url_parts(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        is_url = _URL.fullmatch(text) is not None and _leads_somewhere(parts)
    except ValueError:
        is_url = False
    if not is_url:
        raise UsageError(f"URL {shown_url(text)!r} cannot be read, expected one like http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"URL {shown_url(text)!r} holds credentials, which would end up in the run", hint=_KEY_HINT
        )
    return parts


def _leads_somewhere(parts: SplitResult) -> bool:
    """Whether a URL names a host and a port that there can be.

    Raises:
        ValueError: The port is no number, or the host no name.
    """
    host = parts.hostname or ""
    host.encode("idna")
    return parts.scheme in ("http", "https") and bool(host) and parts.port != 0


def credential_headers(protocol: ProtocolName, key: str | None) -> dict[str, str]:
    """Headers that a protocol's clients identify themselves with."""
    if protocol == "anthropic":
        version = {"anthropic-version": _ANTHROPIC_VERSION}
        return version if key is None else {**version, "x-api-key": key}
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def models_from_body(body: bytes) -> list[str] | None:
    """Ids of a model list as `/v1/models` gives it; None if it is none."""
    try:
        listed = orjson.loads(body)["data"]
        ids = [model["id"] for model in listed]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return ids if all(isinstance(model, str) for model in ids) else None


def unreachable(url: str, said: str) -> EndpointError:
    """Why a target to which no connection comes about cannot be used."""
    if said.startswith(TLS_FAILED) and not any(mark in said for mark in _NO_TLS_MARKS):
        hint = "Correct --url, or name a file of the certificates to trust with SSL_CERT_FILE=…"
    elif url.startswith("https:"):
        hint = "Start the server, or correct --url; does it speak TLS, or plain HTTP (http://…)?"
    else:
        hint = "Start the server, or correct --url; proxies named in the environment are not used."
    return EndpointError(f"{url} cannot be reached: {said}", hint=hint)


def unusable(url: str, seen: Observation, *, model: str, models: Sequence[str] | None) -> EndpointError:
    """Why a target whose first call came out like this cannot be used.

    Args:
        url: Where the call went.
        models: What the target says it offers; None if it does not say.
    """
    if seen.error == "connect":
        return unreachable(url, seen.error_text or "no connection")
    return EndpointError(_what_happened(url, seen), hint=_next_step(url, seen, model, models))


def _what_happened(url: str, seen: Observation) -> str:
    said = shown_text(seen.error_text)
    tail = f": {said}" if said else ""
    match seen.error:
        case "timeout":
            return f"{url} gave no answer{tail}"
        case "refused" | "http_error":
            return f"{url} answered with status {seen.status}{tail}"
        case _:
            status = "no status" if seen.status is None else f"status {seen.status}"
            return f"{url} answered with {status}, but not as expected ({seen.error}){tail}"


def _next_step(url: str, seen: Observation, model: str, models: Sequence[str] | None) -> str:
    offered = list(models or ())
    if seen.error == "timeout":
        return "Wait until the server is idle, or raise --timeout."
    if seen.error == "refused":
        return "The server says it has no room; try again when it is idle."
    if seen.status in (401, 403):
        return "Name what holds the key with --api-key-file or --api-key-env."
    if seen.status == 404 and offered and model not in offered:
        names = ", ".join(map(shown_text, offered[:_SHOWN_MODELS]))
        more = ", …" if len(offered) > _SHOWN_MODELS else ""
        return f"Choose with --model one that the server offers: {names}{more}."
    if seen.error == "error_event":
        return "The server began an answer and broke it off; its log may tell why."
    if seen.status is None and url.startswith("http:"):
        return "Is --url the base of an LLM API, and does the server speak HTTP, or TLS (https://…)?"
    return (
        "Is --url the base of an LLM API, and does the server speak the --protocol given, with this --model?"
    )


def shown_text(text: str | None) -> str:
    """A server's words in one line, without what would steer a terminal; an HTML page is only named."""
    line = "".join(char if char.isprintable() else "\ufffd" for char in " ".join((text or "").split()))
    if line.startswith("<"):
        return "an HTML page"
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
