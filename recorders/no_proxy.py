"""Pure: which hosts a `NO_PROXY` list keeps away from a proxy, and the list that a recorded client gets.

An entry is a host name, which stands for its subdomains too (`corp.example`, `.corp.example`, `*.corp.example`), an
address, a network (`10.0.0.0/8`), any of them with a port, or `*` for everything.
"""

import ipaddress
from collections.abc import Iterable, Mapping

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""What is kept away from the recorder unless the endpoint itself is there: a tool that waits for a server on this
machine has to see its connections refused, not an error page of a proxy."""


def entries_from_text(text: str | None) -> tuple[str, ...]:
    """The entries of a `NO_PROXY` variable; none if it is not set."""
    return tuple(entry for entry in (text or "").replace(",", " ").split() if entry)


def entries_from_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The entries that the user's environment has."""
    return entries_from_text(environ.get("NO_PROXY") or environ.get("no_proxy"))


def is_covered(host: str, entries: Iterable[str]) -> bool:
    """Whether one of the entries keeps this host away from a proxy."""
    return any(_covers(entry, host.strip("[]").lower()) for entry in entries)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine."""
    name = host.strip("[]").lower()
    address = _address(name)
    return name == "localhost" or name.endswith(".localhost") or (address is not None and address.is_loopback)


def entries_for_client(users: Iterable[str], endpoints: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """The client's list, and the user's entries that were left out of it.

    The user's entries stay, and loopback is added; what covers a host that is to be recorded goes.

    Args:
        users: The user's own entries.
        endpoints: Hosts of the endpoints that the client is known to talk to.
    """
    hosts = list(endpoints)
    wanted = dict.fromkeys([*users, *LOOPBACK])
    here = any(is_loopback(host) for host in hosts)
    left_out = [
        entry
        for entry in wanted
        if any(_covers(entry, host.strip("[]").lower()) for host in hosts)
        or (here and _is_loopback_entry(entry))
    ]
    kept = tuple(entry for entry in wanted if entry not in left_out)
    return kept, [entry for entry in left_out if entry in set(users)]


def _covers(entry: str, host: str) -> bool:
    if entry == "*":
        return True
    name = _without_port(entry.lower())
    address = _address(host)
    if address is not None:
        network = _network(name)
        return network is not None and address.version == network.version and address in network
    name = name.removeprefix("*").removeprefix(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _is_loopback_entry(entry: str) -> bool:
    name = _without_port(entry.lower())
    network = _network(name)
    return is_loopback(name.removeprefix("*").removeprefix(".")) or (
        network is not None and network.is_loopback
    )


def _without_port(entry: str) -> str:
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
