"""Pure: names as a trace may hold them: those that harnesses bring along as they are, any other as a keyed hash."""

from collections.abc import Set as AbstractSet
from hashlib import blake2b

from aitrace.no_text import WELL_KNOWN_AGENTS, WELL_KNOWN_TOOLS

_HASH_BYTES = 8


class KeyedNames:
    """Writes names, and remembers what must not be written.

    Args:
        key: Random bytes that key the hashes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = blake2b(key).digest()
        self._raw: set[str] = set()

    @property
    def raw(self) -> frozenset[str]:
        """Everything that was replaced or noted."""
        return frozenset(self._raw)

    def note(self, *names: str | None) -> None:
        """These are keys that join calls: they must not be in the file."""
        self._raw.update(name for name in names if name)

    def agent(self, name: str | None) -> str | None:
        """A kind of agent."""
        return self._written(name, WELL_KNOWN_AGENTS)

    def tool(self, name: str | None) -> str | None:
        """Name of a tool."""
        return self._written(name, WELL_KNOWN_TOOLS)

    def _written(self, name: str | None, known: AbstractSet[str]) -> str | None:
        if name is None or name in known:
            return name
        self.note(name)
        data = name.encode("utf-8", "replace")
        return blake2b(data, digest_size=_HASH_BYTES, key=self._key).hexdigest()
