"""Pure: addresses that a user gives: the endpoint, a proxy on the way to it, another place to connect to.

The rules by example:

    good: `--upstream http://127.0.0.1:8000`, `--upstream https://host/llm/v1`,
          `--connect-to api.example.com:443:127.0.0.1:8443` or with `=` in the middle
    bad:  `--upstream 127.0.0.1:8000` (no scheme), `--connect-to api.example.com=127.0.0.1` (no ports)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import SplitResult, unquote, urlsplit

from aitrace.errors import UsageError, shown

_PORTS = {"http": 80, "https": 443}
_CONNECT_TO = re.compile(r"(\[[^\]]+\]|[^:=\[\]]+):(\d+)[=:](\[[^\]]+\]|[^:=\[\]]+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The endpoint of a recording in reverse mode."""

    scheme: Literal["http", "https"]
    """How it is spoken to."""
    host: str
    """Host name or address, an IPv6 one without brackets."""
    port: int
    """Port."""
    path: str
    """Path of the base URL, without a slash at its end; mostly empty."""

    @property
    def origin(self) -> str:
        """URL without the path."""
        return f"{self.scheme}://{place_text(self.host, self.port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProxy:
    """A proxy that the user's environment names."""

    scheme: Literal["http", "https"]
    """How it is spoken to."""
    host: str
    """Host name or address."""
    port: int
    """Port."""
    credentials: str | None = field(default=None, repr=False)
    """`user:password`; None if the URL has none."""
    variable: str
    """Variable that names it."""

    @property
    def origin(self) -> str:
        """URL without credentials."""
        return f"{self.scheme}://{place_text(self.host, self.port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectTo:
    """Connections to one place go to another; names in TLS and HTTP stay."""

    host: str
    """Host that is asked for."""
    port: int
    """Port that is asked for."""
    to_host: str
    """Host that is connected to."""
    to_port: int
    """Port that is connected to."""


def place_text(host: str, port: int) -> str:
    """`HOST:PORT`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def upstream_from_text(text: str) -> Upstream:
    """The endpoint of `--upstream`.

    Raises:
        UsageError: No http or https URL, or one with more than host and path.
    """
    parts = _parts(text)
    if parts is None or parts.scheme not in _PORTS:
        raise UsageError(f"upstream {shown(text)} cannot be read, expected a URL like http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "the URL of --upstream has credentials, a query or a fragment, expected one like http://127.0.0.1:8000",
            hint="the client sends its own key; give it that one as always",
        )
    return Upstream(
        scheme=_scheme(parts),
        host=str(parts.hostname),
        port=parts.port or _PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
    )


def connect_to_from_text(text: str) -> ConnectTo:
    """The value of `--connect-to`.

    Raises:
        UsageError: It is not `HOST:PORT=ADDR:PORT`.
    """
    match = _CONNECT_TO.fullmatch(text)
    if match is None:
        raise UsageError(
            f"connect-to {shown(text)} cannot be read, expected HOST:PORT=ADDR:PORT such as "
            "api.example.com:443=127.0.0.1:8443"
        )
    host, port, to_host, to_port = match.groups()
    return ConnectTo(
        host=host.strip("[]").lower(), port=int(port), to_host=to_host.strip("[]"), to_port=int(to_port)
    )


def proxy_from_environment(environ: Mapping[str, str]) -> UserProxy | None:
    """The proxy that the user's environment names for https; None if there is none.

    Raises:
        UsageError: It is one that the recorder cannot go through.
    """
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
    variable = next((name for name in names if environ.get(name)), None)
    if variable is None:
        return None
    text = environ[variable]
    parts = _parts(text if "://" in text else f"http://{text}")
    if parts is None or parts.scheme not in _PORTS:
        # The value is not shown: it may hold a password.
        raise UsageError(
            f"{variable} names a proxy that the recorder cannot go through, expected one with http:// or https://",
            hint=f"unset {variable} for the recording, or set it to the proxy's http address",
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return UserProxy(
        scheme=_scheme(parts),
        host=str(parts.hostname),
        port=parts.port or _PORTS[parts.scheme],
        credentials=f"{user}:{password}" if user or password else None,
        variable=variable,
    )


def _parts(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        is_url = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_url else None


def _scheme(parts: SplitResult) -> Literal["http", "https"]:
    return cast('Literal["http", "https"]', parts.scheme)
