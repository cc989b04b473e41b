"""Pure: what a harness says of itself in a request, and what a detector must be able to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallClass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One request as a detector sees it."""

    path: str
    """Path without the query."""
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    body: Mapping[str, Any]
    """The decoded body."""
    parts: tuple[RequestPart, ...] = ()
    """The prompt in the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a request comes from and what for, as the harness tells it.

    Keys are raw: they join the requests of one recording and are never written.
    """

    harness: str | None = None
    """`claude-code`, `codex`, `opencode`; None if not recognised."""
    version: str | None = None
    """Version of the harness; None if not told."""
    session: str | None = None
    """Key of the agent, unique over all trees; None if the request says nothing of sessions."""
    parent: str | None = None
    """Key of the agent that spawned it; None for a main agent, or if not told."""
    root: str | None = None
    """Key of the tree's main agent; the session's own for a main agent. None if `session` is."""
    agent: str | None = None
    """Kind of agent in the harness's own word; None for a main agent or if not told."""
    call_class: CallClass = "unknown"
    """What the request is for; `unknown` if neither header nor body tells."""
    prompt_id: str | None = None
    """Equal for all calls that one prompt of the user caused; None if not told."""
    is_window_start: bool = False
    """Whether the harness says that the history was replaced before this request."""
    tool_durations: tuple[tuple[str, int], ...] | None = None
    """Name and run time in ns of the tool calls of the session's last answer, in the order in which they ended; None if
    the harness does not tell them in headers. Calls that spawn agents are left out: what is told of them is not how
    long the agent lived. So they are matched by name; which of two calls of one tool ran how long is not told."""
    more_ids: tuple[str, ...] = ()
    """Ids of agents that `session` and `parent` were made of, where those are no id as it was sent."""
    evidence: tuple[str, ...] = ()
    """Rules that led to this, the strongest first."""


class Detector(Protocol):
    """Knows one harness."""

    name: str
    """Its name in traces."""
    rules: tuple[str, ...]
    """Names of the normalisations of `normalised`, as the trace's header lists them."""

    def identify(self, facts: RequestFacts) -> Identity | None:
        """What the request says of itself; None if it is not of this harness."""
        ...

    def normalised(self, parts: tuple[RequestPart, ...]) -> tuple[RequestPart, ...]:
        """The prompt without what changes with every request and no engine sees as prompt."""
        ...

    def tool_duration_ns(self, result: RequestPart) -> int | None:
        """Run time of a tool as its result's text states it; None if it does not."""
        ...

    def is_synthetic(self, part: RequestPart) -> bool:
        """Whether this text of the user's role was written by the harness (a reminder, a notification), not typed."""
        ...
