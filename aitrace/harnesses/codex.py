"""Pure: Codex' requests, over HTTP and as messages of its WebSocket (names and texts as of 0.171.0).

The headers of a WebSocket are those of its handshake, which the requests of later turns share. So what a body says of
itself in `client_metadata` counts before any header, and what changes from request to request is taken from there only.
"""

import re
from collections.abc import Mapping
from typing import Any

from aitrace.harnesses.detector import Identity, RequestFacts
from aitrace.harnesses.marks import (
    Rule,
    SyntheticText,
    first_key,
    header,
    key_in,
    last_user_text,
    list_in,
    object_in,
    version_after,
)
from aitrace.harnesses.routes import recorded_route
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallClass

CLIENT_METADATA = Rule(name="codex/client-metadata", field="thread_id", seen="0.171.0")
CLIENT_TURN_METADATA = Rule(name="codex/client-turn-metadata", field="thread_id", seen="0.171.0")
CLIENT_WINDOW = Rule(name="codex/client-window-id", field="x-codex-window-id", seen="0.171.0")
THREAD_HEADERS = (
    Rule(name="codex/thread-id", field="thread-id", seen="0.171.0"),
    Rule(name="codex/thread-id", field="thread_id", seen=None),
    Rule(name="codex/thread-id", field="x-codex-thread-id", seen=None),
)
TURN_METADATA = Rule(name="codex/turn-metadata", field="thread_id", seen="0.171.0")
WINDOW_HEADER = Rule(name="codex/window-id", field="x-codex-window-id", seen="0.171.0")
CLIENT_SESSION = Rule(name="codex/client-session", field="session_id", seen="0.171.0")
SESSION_HEADERS = (
    Rule(name="codex/session-id", field="session-id", seen="0.171.0"),
    Rule(name="codex/session-id", field="session_id", seen=None),
    Rule(name="codex/session-id", field="conversation_id", seen=None),
)
CACHE_KEY = Rule(name="codex/prompt-cache-key", field="prompt_cache_key", seen="0.171.0")
USER_AGENT = Rule(name="codex/user-agent", field="codex", seen="0.171.0")
PARENT_FIELD = Rule(name="codex/parent-thread-id", field="x-codex-parent-thread-id", seen="0.171.0")
PARENT_METADATA = Rule(name="codex/parent-in-metadata", field="parent_thread_id", seen="0.171.0")

REQUEST_KINDS: Mapping[str, CallClass] = {"prewarm": "auxiliary", "compaction": "compaction"}
"""Values of `request_kind` that decide; for `turn` the thread does."""
THREAD_SOURCES: Mapping[str, CallClass] = {
    "user": "main",
    "subagent": "subagent",
    "thread_title": "auxiliary",
    "memory_consolidation": "auxiliary",
}
SUBAGENT_KINDS: Mapping[str, CallClass] = {
    "collab_spawn": "subagent",
    "review": "subagent",
    "compact": "compaction",
    "memory_consolidation": "auxiliary",
}
"""Values of `x-openai-subagent`."""
COMPACTION_ITEM = Rule(name="codex/compaction-trigger", field="compaction_trigger", seen="0.171.0")
COMPACTION_TEXT = Rule(
    name="codex/compaction-text",
    field="You are performing a CONTEXT CHECKPOINT COMPACTION",
    seen="0.171.0",
)
SYNTHETIC = SyntheticText(
    tags=(
        "environment_context",
        "turn_aborted",
        "subagent_notification",
        "user_instructions",
        "apps_instructions",
        "model_switch",
        "recommended_plugins",
        "codex_internal_context",
        "skill",
    ),
    starts=(
        COMPACTION_TEXT.field,
        "Another language model started to solve this problem",
        "# AGENTS.md instructions",
        # One agent to another.
        "Message Type: ",
    ),
    seen="0.171.0",
)
_SUBAGENT = "x-openai-subagent"
_TURN_METADATA = "x-codex-turn-metadata"
_HEAD_CHARS = 300
# Function tools write `Wall time: 1.8665 seconds`, code mode `Wall time 2.1 seconds`, in JSON where the result is a list.
_WALL_TIME = re.compile(r"(?:^|\n|\\n|\")Wall time:? (\d{1,9})(?:\.(\d{1,9}))? seconds")


class Codex:
    """Knows Codex."""

    name = "codex"
    rules: tuple[str, ...] = ()

    def identify(self, facts: RequestFacts) -> Identity | None:
        if not _is_codex(facts):
            return None
        own = object_in(facts.body, "client_metadata")
        own_turn = object_in(own, _TURN_METADATA)
        turn = own_turn or object_in(facts.headers, _TURN_METADATA)
        thread = _thread(facts, own, own_turn, turn)
        tree = _tree(facts, own, turn)
        thread = thread or tree
        parent = _parent(facts, own, turn, thread, tree) if thread else None
        # What the handshake says of its request is not true of the later ones.
        is_message = facts.body.get("type") == "response.create"
        current = own_turn if is_message else turn
        call_class, class_rule = _call_class(facts, own, current, is_subagent=parent is not None)
        return Identity(
            harness=self.name,
            version=version_after(header(facts, "user-agent"), r"(?i:codex)[^/]{0,40}/")
            or version_after(header(facts, "version"), ""),
            session=thread[0] if thread else None,
            parent=parent[0] if parent else None,
            root=_root(thread, parent, tree),
            agent=_agent(facts, own) if parent else None,
            call_class=call_class,
            prompt_id=_prompt_id(own, current, is_subagent=parent is not None),
            is_window_start=call_class in ("main", "subagent") and _is_window_start(facts, own, current),
            evidence=(
                thread[1] if thread else USER_AGENT.name,
                *((parent[1],) if parent else ()),
                *class_rule,
            ),
        )

    def normalised(self, parts: tuple[RequestPart, ...]) -> tuple[RequestPart, ...]:
        """The prompt as it is: each turn extends the one before it to the byte."""
        return parts

    def tool_duration_ns(self, result: RequestPart) -> int | None:
        """The wall time at the head of the result; None if a tool has not written one."""
        if result.type != "tool_result":
            return None
        match = _WALL_TIME.search(result.text[:_HEAD_CHARS].partition("Output:")[0])
        if match is None:
            return None
        return int(match[1]) * 10**9 + int((match[2] or "").ljust(9, "0"))

    def is_synthetic(self, part: RequestPart) -> bool:
        return SYNTHETIC.is_in(part)


def _is_codex(facts: RequestFacts) -> bool:
    names = (header(facts, "user-agent"), header(facts, "originator"))
    if any(name.lower().startswith(USER_AGENT.field) for name in names):
        return True
    marks = [*facts.headers, *object_in(facts.body, "client_metadata")]
    return any(isinstance(mark, str) and mark.startswith("x-codex-") for mark in marks)


Found = tuple[str, str] | None
"""An id and the name of the rule that found it."""


def _thread(
    facts: RequestFacts, own: Mapping[str, Any], own_turn: Mapping[str, Any], turn: Mapping[str, Any]
) -> Found:
    """The agent's own id."""
    return (
        first_key(own, (CLIENT_METADATA,))
        or first_key(own_turn, (CLIENT_TURN_METADATA,))
        or _window_thread(own, CLIENT_WINDOW)
        or first_key(facts.headers, THREAD_HEADERS)
        or first_key(turn, (TURN_METADATA,))
        or _window_thread(facts.headers, WINDOW_HEADER)
    )


def _tree(facts: RequestFacts, own: Mapping[str, Any], turn: Mapping[str, Any]) -> Found:
    """The id that a tree's agents share."""
    return (
        first_key(own, (CLIENT_SESSION,))
        or first_key(turn, (CLIENT_SESSION,))
        or first_key(facts.headers, SESSION_HEADERS)
        or first_key(facts.body, (CACHE_KEY,))
    )


def _window_thread(owner: Mapping[str, Any], rule: Rule) -> Found:
    """The thread in `<thread>:<window>`."""
    window = key_in(owner, rule.field)
    thread = window.rpartition(":")[0] if window else ""
    return (thread, rule.name) if thread else None


def _parent(
    facts: RequestFacts, own: Mapping[str, Any], turn: Mapping[str, Any], thread: Found, tree: Found
) -> Found:
    told = (
        first_key(own, (PARENT_FIELD,))
        or first_key(turn, (PARENT_METADATA,))
        or first_key(facts.headers, (PARENT_FIELD,))
    )
    # Another thread than the tree's first is not its main agent; a cache key, though, anybody may choose.
    is_tree_sure = tree is not None and tree[1] != CACHE_KEY.name and turn.get("thread_source") != "user"
    found = told or (tree if is_tree_sure else None)
    return None if found is None or thread is None or found[0] == thread[0] else found


def _root(thread: Found, parent: Found, tree: Found) -> str | None:
    if thread is None or parent is None:
        return thread[0] if thread else None
    return tree[0] if tree and tree[0] != thread[0] else parent[0]


def _agent(facts: RequestFacts, own: Mapping[str, Any]) -> str | None:
    """Kind of agent; that it was spawned is no kind."""
    kind = key_in(own, _SUBAGENT) or key_in(facts.headers, _SUBAGENT)
    return None if kind == "collab_spawn" else kind


def _call_class(
    facts: RequestFacts, own: Mapping[str, Any], turn: Mapping[str, Any], *, is_subagent: bool
) -> tuple[CallClass, tuple[str, ...]]:
    """What the request is for, and the rule that told, if one did."""
    route = recorded_route("POST", facts.path)
    if route is not None and route.is_compaction:
        return "compaction", ("codex/compact-route",)
    if facts.body.get("generate") is False:
        return "auxiliary", ("codex/generate-false",)
    kind = REQUEST_KINDS.get(key_in(turn, "request_kind") or "")
    if kind is not None:
        return kind, ("codex/request-kind",)
    items = list_in(facts.body, "input")
    last = items[-1] if items else None
    if isinstance(last, dict) and last.get("type") == COMPACTION_ITEM.field:
        return "compaction", (COMPACTION_ITEM.name,)
    if last_user_text(facts.parts).startswith(COMPACTION_TEXT.field):
        return "compaction", (COMPACTION_TEXT.name,)
    source = THREAD_SOURCES.get(key_in(turn, "thread_source") or "")
    if source is not None:
        return source, ("codex/thread-source",)
    subagent = key_in(own, _SUBAGENT) or key_in(facts.headers, _SUBAGENT)
    if subagent is not None:
        return SUBAGENT_KINDS.get(subagent, "subagent"), ("codex/subagent-header",)
    if is_subagent:
        return "subagent", ()
    return ("main" if facts.parts else "unknown"), ()


def _prompt_id(own: Mapping[str, Any], turn: Mapping[str, Any], *, is_subagent: bool) -> str | None:
    """Id of the root thread's turn; a sub-agent's own turn id says nothing of the user's prompt."""
    root_turn = key_in(own, "root_turn_id") or key_in(turn, "root_turn_id")
    if root_turn is not None or is_subagent:
        return root_turn
    return key_in(own, "turn_id") or key_in(turn, "turn_id")


def _is_window_start(facts: RequestFacts, own: Mapping[str, Any], turn: Mapping[str, Any]) -> bool:
    """Whether it is the first request after a compaction.

    The window's number stays for all its requests, but only the first has no answer of the model in its history.
    """
    items = list_in(facts.body, "input")
    if not items or facts.body.get("previous_response_id") is not None:
        return False
    number = turn.get("window_number")
    if not isinstance(number, int):
        window = key_in(own, CLIENT_WINDOW.field) or key_in(facts.headers, WINDOW_HEADER.field) or ""
        text = window.rpartition(":")[2]
        number = int(text) if text.isdigit() else 0
    return number > 0 and not any(_is_answer(item) for item in items)


def _is_answer(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return item.get("role") == "assistant" or (
        isinstance(kind, str) and (kind == "reasoning" or kind.endswith("_call"))
    )
