"""Pure: tokens by which a router finds a session's worker again: handed out in a response header, sent back with it.

A session that has none yet sends that of its parent, if that has one: its prompt begins like the parent's.
"""

import re
from collections.abc import Mapping, Sequence

from aitrace.errors import UsageError
from aitrace.schema import Session
from replayer.identity.identity_names import CREDENTIAL_HEADERS, OWN_HEADERS
from replayer.planning.planned import PlannedCall

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,4094}[\x21-\x7e])?")


def token_header(name: str) -> str:
    """The name of a header that carries tokens.

    Raises:
        UsageError: It is no name of a header, or that of one that carries a credential or that the replay writes.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"router token {name!r} is no name of a header")
    if name.lower() in CREDENTIAL_HEADERS:
        raise UsageError(f"router token {name!r} names a header that carries a credential")
    if name.lower() in OWN_HEADERS:
        raise UsageError(f"router token {name!r} names a header that the replay writes itself")
    return name


class RouterTokens:
    """Latest token of every session in play.

    Args:
        name: Header of responses, and of the requests that follow.
        sessions: Sessions of the trace.
    """

    def __init__(self, name: str, sessions: Sequence[Session]) -> None:
        self._name = name
        self._sessions = sessions
        self._tokens: dict[tuple[int, int], dict[int, str]] = {}

    def note(self, call: PlannedCall, headers: Mapping[str, object]) -> None:
        """Take in the headers of a response, names in lower case; a value that no request could carry is passed over."""
        token = headers.get(self._name.lower())
        if isinstance(token, str) and _VALUE.fullmatch(token):
            self._tokens.setdefault((call.root, call.instance), {})[call.session] = token

    def headers(self, call: PlannedCall) -> dict[str, str]:
        """The header that a request carries; empty as long as there is no token."""
        tokens = self._tokens.get((call.root, call.instance), {})
        session: int | None = call.session
        while session is not None:
            if session in tokens:
                return {self._name: tokens[session]}
            session = self._sessions[session].parent
        return {}

    def forget_tree(self, root: int, instance: int) -> None:
        """A playing of a tree is over."""
        self._tokens.pop((root, instance), None)
