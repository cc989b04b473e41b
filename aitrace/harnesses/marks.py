"""Pure: reading what harnesses put into headers and bodies, whatever its type turns out to be.

Nothing here raises: a mark of the wrong type or size is no mark.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from aitrace.harnesses.detector import RequestFacts
from aitrace.protocols.protocol import RequestPart

MAX_KEY_CHARS = 256
"""A longer id is none: Dynamo, too, takes no longer ones."""
_VERSION = r"(\d{1,5}(?:\.\d{1,5}){1,2}(?:-(?:alpha|beta|dev|rc)(?:\.\d{1,5})?)?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One place where a harness says who it is or what a request is for."""

    name: str
    """As in evidence (`claude-code/session-header`)."""
    field: str
    """Header, body field or start of a text."""
    seen: str | None
    """Version of the harness it was seen in; None if only others have told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticText:
    """How the texts of the user's role begin that a harness writes itself."""

    tags: tuple[str, ...]
    """Names of the tags that enclose such a text."""
    starts: tuple[str, ...]
    """Beginnings; what follows is the harness's as well."""
    seen: str
    """Version of the harness they were seen in, on the wire or in its program."""

    def is_in(self, part: RequestPart) -> bool:
        """Whether the harness wrote this part, and not the user."""
        if part.role == "system":
            return True
        return part.role == "user" and part.type == "text" and self.covers(part.text)

    def covers(self, text: str) -> bool:
        """Whether nothing but such texts is in it: a person's words behind a closing tag count as theirs."""
        position = _after_space(text, 0)
        while tag := next((tag for tag in self.tags if _opens(text, position, tag)), None):
            end = text.find(f"</{tag}>", position)
            if end < 0:
                return True
            position = _after_space(text, end + len(tag) + 3)
            if position == len(text):
                return True
        return text.startswith(self.starts, position)


def _opens(text: str, position: int, tag: str) -> bool:
    return text.startswith((f"<{tag}>", f"<{tag} "), position)


def _after_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def key_in(owner: Any, name: str) -> str | None:
    """The id in this field of an object; None unless it is 1 to 256 printable ASCII characters."""
    value = owner.get(name) if isinstance(owner, Mapping) else None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS:
        return None
    return value if value.isascii() and value.isprintable() else None


def first_key(owner: Any, rules: Iterable[Rule]) -> tuple[str, str] | None:
    """The first id that one of these rules finds, and the rule's name."""
    for rule in rules:
        key = key_in(owner, rule.field)
        if key is not None:
            return key, rule.name
    return None


def object_in(owner: Any, name: str) -> Mapping[str, Any]:
    """The object in this field, or the one that its string holds as JSON; empty if there is none."""
    value = owner.get(name) if isinstance(owner, Mapping) else None
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    return value if isinstance(value, dict) else {}


def list_in(owner: Any, name: str) -> list[Any]:
    """The list in this field; empty if there is none."""
    value = owner.get(name) if isinstance(owner, Mapping) else None
    return value if isinstance(value, list) else []


def header(facts: RequestFacts, name: str) -> str:
    """A header's value; empty if it was not sent."""
    value = facts.headers.get(name, "")
    return value if isinstance(value, str) else ""


def version_after(text: str, product: str) -> str | None:
    """The version that follows this product's name, which is a regular expression (`claude-cli/2.1.332 (external)`)."""
    match = re.match(product + _VERSION, text)
    return match[1] if match else None


def last_user_text(parts: tuple[RequestPart, ...]) -> str:
    """The text that ends the prompt, if it is the user's; empty if not."""
    part = parts[-1] if parts else None
    return part.text if part is not None and part.role == "user" and part.type == "text" else ""


def last_user_message(parts: tuple[RequestPart, ...]) -> tuple[str, ...]:
    """The texts of the user's last message, wherever in the prompt it is; empty if there is none."""
    found: list[str] = []
    for part in reversed(parts):
        if part.role == "user":
            found.append(part.text)
        elif found:
            break
    return tuple(reversed(found))


def first_system_text(parts: tuple[RequestPart, ...]) -> str:
    """The system prompt's first text; empty if there is none."""
    return next((part.text for part in parts if part.type == "system"), "")


def is_aside(facts: RequestFacts) -> bool:
    """Whether it has no tools and no answer in its history: a harness's question of its own, such as a title."""
    if list_in(facts.body, "tools"):
        return False
    return bool(facts.parts) and not any(
        part.type == "tool_definition" or part.role == "assistant" for part in facts.parts
    )
