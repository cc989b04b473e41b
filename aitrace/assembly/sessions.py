"""Pure: what is kept of sessions and calls while a trace is put together, and into which session a call belongs.

Where the harness names the session, that is it. A parent that nothing was seen of yet is made up, so that a child can
refer to it. Where nothing is said, a call continues the session whose last prompt it strictly extends, or repeats
word for word after a failure; a system prompt alone is too little to go by.
"""

from dataclasses import dataclass, field

from aitrace.assembly.additions import History
from aitrace.assembly.keyed_names import KeyedNames
from aitrace.assembly.prefix_tree import PrefixTree
from aitrace.harnesses.detector import Identity
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallClass, ErrorKind, Session, ToolCall

BY_PREFIX = "inferred/prefix"
"""Evidence of sessions whose calls were put together by their prompts."""
BY_CHILD = "inferred/child"
"""Evidence of sessions that are known only from a child that names them."""


@dataclass(slots=True, kw_only=True, eq=False)
class CallState:
    """What is kept of a call."""

    id: int
    """Its id."""
    session: "SessionState"
    """Its session."""
    call_class: CallClass
    """What it is for."""
    node: int
    """Its prompt in the tree of prompts."""
    request_ns: int
    """When it began."""
    streamed: bool | None
    """Whether its answer was to be streamed."""
    turn: int | None
    """As in the trace."""
    window: int
    """As in the trace."""
    attempt: int
    """As in the trace."""
    tool_results: int | None
    """As in the trace."""
    is_about_prompt: bool = False
    """Whether it is an auxiliary call about something that somebody has typed, such as a title."""
    has_ended: bool = False
    """Whether its answer was told."""
    end_ns: int | None = None
    """When it ended; None before, or if not known."""
    error: ErrorKind | None = None
    """How it failed; None before its end, or if it did not."""
    asks_tools: bool = False
    """Whether its answer calls tools, so that its session goes on."""
    spawns: int = 0
    """Tool calls of its answer that start sub-agents."""
    children: int = 0
    """Sessions that were taken as started by it."""

    def has_ended_by(self, at_ns: int) -> bool:
        """Whether it is over at this time, as far as is known."""
        return self.has_ended and (self.end_ns is None or self.end_ns <= at_ns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolUse:
    """A tool call that some answer has made."""

    call: CallState
    """The call answered."""
    name: str | None
    """Name on the wire; None if not known."""


@dataclass(slots=True, kw_only=True, eq=False)
class SessionState:
    """What is kept of a session."""

    id: int
    """Its id."""
    parent: "SessionState | None"
    """Session that spawned it."""
    tree: "TreeState"
    """Its tree."""
    history: History = field(default_factory=History)
    """What its prompts have held."""
    last: CallState | None = None
    """Latest call of its chain: auxiliary calls are beside it."""
    before_last: CallState | None = None
    """The call of its chain before `last`, not counting attempts that `last` repeats."""
    last_aside: CallState | None = None
    """Latest auxiliary call."""
    failed_asides: dict[int, CallState] = field(default_factory=dict)
    """Auxiliary calls that failed and were not repeated yet, by prompt."""
    window: int = 0
    """Times its history was replaced."""
    turn: int | None = None
    """Turn of its latest call."""
    prompt_id: str | None = None
    """The harness's own id of the prompt that its latest call served; None if it tells none."""
    spawner: CallState | None = None
    """The call that started it; None for a root, or if nothing was seen before it."""
    tools: dict[str, ToolUse] = field(default_factory=dict)
    """Tool calls of its answers by tool id."""
    answered: CallState | None = None
    """Latest call of its chain that is no compaction: whose answer the history goes on from."""
    answer: tuple[ToolCall, ...] = ()
    """Tool calls of the answer of `answered`, as written."""
    answer_ids: tuple[str | None, ...] = ()
    """Their ids; empty if not known yet."""
    open_children: "list[SessionState]" = field(default_factory=list)
    """Children that no call of it has joined since their latest call."""
    tip: tuple[str, int] | None = None
    """Scope and prompt under which an inferred call finds it."""

    @property
    def latest(self) -> CallState | None:
        """Its latest call of any kind."""
        if self.last is None or self.last_aside is None:
            return self.last or self.last_aside
        return max(self.last, self.last_aside, key=lambda call: call.id)


@dataclass(slots=True, kw_only=True, eq=False)
class TreeState:
    """What is kept of a tree."""

    root: int
    """Id of its root session."""
    first: CallState | None = None
    """Its first call."""
    last: CallState | None = None
    """Its latest call."""
    turns: int = 0
    """Turns so far."""
    turn_of_prompt: dict[str, int] = field(default_factory=dict)
    """Turns by the harness's own id of the user's prompt."""


class Sessions:
    """All sessions of a recording."""

    def __init__(self, names: KeyedNames, prompts: PrefixTree) -> None:
        self._names = names
        self._prompts = prompts
        self._by_key: dict[str, SessionState] = {}
        self._count = 0
        self._tips: dict[tuple[str, int], list[SessionState]] = {}

    def named(self, identity: Identity, key: str) -> tuple[SessionState, list[Session]]:
        """The session with this key, and the lines of sessions that are new."""
        self._names.note(identity.session, identity.parent, identity.root)
        known = self._by_key.get(key)
        if known is not None:
            return known, []
        lines: list[Session] = []
        outer: tuple[str | None, ...] = (identity.root, identity.parent)
        if identity.parent is not None and identity.parent in self._by_key:
            outer = (identity.parent,)
        parent: SessionState | None = None
        # Outermost first. A parent whose own parent is not told hangs on the root.
        for other in outer:
            if other is None or other == key:
                continue
            if other not in self._by_key:
                self._by_key[other] = self._new(identity, parent, lines, is_told=False)
            parent = self._by_key[other]
        session = self._by_key[key] = self._new(identity, parent, lines, is_told=True)
        return session, lines

    def inferred(
        self, identity: Identity, scope: str, node: int, parts: tuple[RequestPart, ...]
    ) -> tuple[SessionState, list[Session]]:
        """The session that this prompt continues or repeats, else a new one with its line."""
        for session in self._tips.get((scope, node), ()):
            if session.last is not None and session.last.error is not None:
                return session, []
        for start, length in self._prompts.starts(node):
            for session in self._tips.get((scope, start), ()):
                is_over = session.last is not None and session.last.has_ended
                # The answer to a call that has not ended cannot be in this prompt, unless we missed its end.
                if is_over or any(part.role == "assistant" for part in parts[length:]):
                    return session, []
        lines: list[Session] = []
        return self._new(identity, None, lines, is_told=True), lines

    def move_tip(self, session: SessionState, scope: str, node: int, parts: tuple[RequestPart, ...]) -> None:
        """Notes that this is the last prompt of the session's chain."""
        if session.tip is not None:
            others = self._tips[session.tip]
            others.remove(session)
            if not others:
                del self._tips[session.tip]
            session.tip = None
        if any(part.role != "system" for part in parts):
            session.tip = (scope, node)
            self._tips.setdefault(session.tip, []).append(session)

    def _new(
        self, identity: Identity, parent: SessionState | None, lines: list[Session], *, is_told: bool
    ) -> SessionState:
        tree = TreeState(root=self._count) if parent is None else parent.tree
        session = SessionState(id=self._count, parent=parent, tree=tree)
        self._count += 1
        evidence = identity.evidence
        if not is_told:
            evidence = (*evidence, BY_CHILD)
        elif identity.session is None:
            evidence = (*evidence, BY_PREFIX)
        lines.append(
            Session(
                id=session.id,
                parent=None if parent is None else parent.id,
                root=tree.root,
                harness=identity.harness,
                agent=self._names.agent(identity.agent) if is_told else None,
                harness_version=identity.version,
                evidence=evidence,
            )
        )
        return session
