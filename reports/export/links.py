"""Pure: what a trace says of how calls and sessions hang together, without its prompts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from aitrace.schema import Call, Relation, Session, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLink:
    """A session of the trace."""

    parent: int | None
    """Session that spawned it; None for a root."""
    agent: str | None
    """Kind of agent; None for a main agent or if not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLink:
    """What one call waited for."""

    call: int
    """The call waited for."""
    relation: Relation
    """What the one is to the other."""
    trigger: Trigger
    """Which moment of that call counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLinks:
    """All of them."""

    sessions: dict[int, SessionLink]
    """By id."""
    after: dict[int, tuple[CallLink, ...]]
    """By call; calls that waited for nothing are absent."""
    planned_calls: dict[int, int]
    """Calls that a playing of each tree has, by root session."""


def links_from_lines(lines: Iterable[object]) -> TraceLinks:
    """The links in the lines of a trace; other lines are passed over."""
    sessions: dict[int, SessionLink] = {}
    roots: dict[int, int] = {}
    after: dict[int, tuple[CallLink, ...]] = {}
    planned: Counter[int] = Counter()
    for line in lines:
        if isinstance(line, Session):
            sessions[line.id] = SessionLink(parent=line.parent, agent=line.agent)
            roots[line.id] = line.root
        elif isinstance(line, Call):
            # A replay sends neither the attempts that a later one replaces nor calls that only count tokens.
            planned[roots[line.session]] += line.retry_of is None and line.call_class != "count_tokens"
            waits = tuple(
                CallLink(call=one.call, relation=one.relation, trigger=one.trigger) for one in line.after
            )
            if waits:
                after[line.id] = waits
    return TraceLinks(sessions=sessions, after=after, planned_calls=dict(planned))
