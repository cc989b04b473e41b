"""Pure: which ids a replayed call may carry, as options name them.

Templates of headers name ids:

    good: `X-Tenant: {root}`, `X-Trace: {session}/{call}`
    bad:  `X-Tenant: {user}` (no such id), `Authorization: Bearer …` (a credential: --api-key-env NAME),
          `Content-Length: 5` (written by the replay)
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from aitrace.errors import UsageError, shown
from aitrace.results import IdentityFault

IdentityName = Literal["native", "dynamo", "affinity", "none"]
IDENTITY_NAMES: tuple[IdentityName, ...] = get_args(IdentityName)
IDENTITY_FAULTS: tuple[IdentityFault, ...] = get_args(IdentityFault)

CREDENTIAL_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})
"""Names of headers that carry a credential, in lower case."""
OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-version",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    }
)
"""Names of headers that the replay writes itself, or that are about the connection, in lower case."""
NOT_KEPT = "(not kept)"
"""What files of a run have in place of a value that may be a secret."""
PLACES = ("session", "parent", "root", "call")
"""Ids that a template may name."""
PLACES_TEXT = ", ".join(f"{{{name}}}" for name in PLACES)
"""The same for people."""
CREDENTIAL_HINT = "Name what holds the key with --api-key-file or --api-key-env."
_FAULT = re.compile(r"([a-z]+)=([0-9]+(?:\.[0-9]+)?)%")
_TEMPLATE = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*):[ \t]*([\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?)")
PLACE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderTemplate:
    """A header whose value names ids."""

    name: str
    """Name of the header."""
    value: str
    """Its value, with `{session}`, `{parent}`, `{root}` and `{call}` for the ids; without a parent the header is left
    out where its value names one."""

    @property
    def kept_value(self) -> str:
        """The value as files of a run have it: one that names no id may be a secret, and is not kept."""
        return self.value if PLACE.search(self.value) else NOT_KEPT


def faults_from_spec(text: str) -> dict[IdentityFault, float]:
    """Shares of sessions by fault, from `missing=10%,shared=5%,churn=2%`.

    Raises:
        UsageError: It cannot be read, names a fault twice, or the shares are more than all sessions.
    """
    shares: dict[IdentityFault, float] = {}
    for piece in text.split(","):
        match = _FAULT.fullmatch(piece.strip())
        if match is None or match[1] not in IDENTITY_FAULTS or match[1] in shares:
            names = ", ".join(IDENTITY_FAULTS)
            raise UsageError(
                f"identity fault {piece!r} cannot be read, expected FAULT=PERCENT% with a fault of {names}, each once"
            )
        shares[match[1]] = float(match[2]) / 100
    if sum(shares.values()) > 1:
        raise UsageError(f"identity faults {text!r} are more than 100 % of the sessions")
    return shares


def header_template(text: str) -> HeaderTemplate:
    """A template from `NAME: VALUE`.

    Raises:
        UsageError: It is no header, or names an id that there is not.
    """
    match = _TEMPLATE.fullmatch(text.strip())
    if match is None:
        name = text.partition(":")[0].strip()
        raise UsageError(
            f"header {shown(name)} cannot be read, expected NAME: VALUE",
            hint="A name has letters, digits and dashes, a value printable ASCII: --header 'X-Tenant: {root}'.",
        )
    name, value = match[1], match[2]
    if name.lower() in CREDENTIAL_HEADERS:
        raise UsageError(
            f"header {name!r} carries a credential, and headers are kept in the run", hint=CREDENTIAL_HINT
        )
    if name.lower() in OWN_HEADERS:
        raise UsageError(f"header {name!r} is written by the replay")
    for place in PLACE.findall(value):
        if place not in PLACES:
            raise UsageError(f"header {name!r} names {{{place}}}, expected one of {PLACES_TEXT}")
    return HeaderTemplate(name=name, value=value)
