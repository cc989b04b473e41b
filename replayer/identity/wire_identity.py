"""Pure: which ids a replayed call carries: those of its harness or of a router, always fresh ones, in the same tree.

Every playing of a tree gets ids of its own, made from the run's id, so that two runs, or two playings in one, are
strangers to the target. A part of the sessions may be given faulty ids, to see what depends on them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import orjson

from aitrace.results import CallResult, IdentityFault
from aitrace.schema import CallClass, ProtocolName, Session
from replayer.identity.hints import HintRule, hinted_body, hinted_headers, laid_over
from replayer.identity.identity_names import PLACE, HeaderTemplate, IdentityName
from replayer.planning.planned import PlannedCall

_REQUEST_CLASSES = frozenset({"main", "subagent", "workflow", "compaction", "auxiliary"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Which call of which playing asks for its ids."""

    instance: int
    """Which playing of the tree, from 1."""
    session: int
    """Session of the trace."""
    call: str
    """Id of the request."""
    call_class: CallClass = "unknown"
    """What it is for."""
    turn: int | None = None
    """Index of the user's prompt within the tree; None if not known."""
    window: int = 0
    """How often the session's history had been replaced."""


class WireIdentity:
    """Ids of all calls of one run.

    Args:
        run_id: Text that no other run has.
        templates: Headers in addition to those of `name`.
        hints: Further headers and body fields, some with ids in them.
        faults: Share of the sessions whose ids are faulty, by kind of fault.
        seed: Says which sessions these are.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        name: IdentityName,
        *,
        run_id: str,
        templates: Iterable[HeaderTemplate] = (),
        hints: Sequence[HintRule] = (),
        faults: Mapping[IdentityFault, float] | None = None,
        seed: int = 0,
    ) -> None:
        self._sessions = sessions
        self._name = name
        self._run_id = run_id
        self._templates = tuple(templates)
        self._hints = tuple(hints)
        self._faults = tuple((faults or {}).items())
        self._seed = seed
        self._headers: dict[tuple[int, int], dict[str, str]] = {}

    def fault_of(self, instance: int, session: int) -> IdentityFault | None:
        """What is wrong with the ids of a session; None if nothing is."""
        if not self._faults:
            return None
        lot = blake2b(f"{self._seed} {instance} {session}".encode(), digest_size=7).digest()
        place = int.from_bytes(lot) / (1 << 56)
        for fault, share in self._faults:
            if place < share:
                return fault
            place -= share
        return None

    def marked(self, result: CallResult) -> CallResult:
        """The result with what was wrong with the ids of its session."""
        fault = self.fault_of(result.instance, result.session)
        return result if fault is None else replace(result, identity_fault=fault)

    def headers(self, caller: Caller) -> dict[str, str]:
        """Headers of one call: its ids, and what hints add."""
        ids = self._id_headers(caller)
        return ids | self._hinted(hinted_headers, caller) if self._hints else ids

    def _id_headers(self, caller: Caller) -> dict[str, str]:
        key = (caller.instance, caller.session)
        fault = self.fault_of(*key)
        headers: dict[str, str] = {}
        if fault != "missing":
            known = None if fault == "churn" else self._headers.get(key)
            if known is None:
                known = self._headers[key] = self._session_headers(caller)
            headers = {**known, **self._call_headers(caller)}
        for template in self._templates:
            value = self._filled(template.value, caller)
            if value is not None:
                headers[template.name] = value
        return headers

    def final_headers(self, caller: Caller) -> dict[str, str]:
        """Headers of the request that tells that the caller's session is over; empty if nobody is to be told."""
        is_told = self._name == "dynamo" and self.fault_of(caller.instance, caller.session) != "missing"
        return {**self.headers(caller), "X-Dynamo-Session-Final": "true"} if is_told else {}

    def body_fields(self, caller: Caller, protocol: ProtocolName) -> dict[str, Any]:
        """Fields of the body of one call that carry ids, and what hints lay over them."""
        ids = self._id_fields(caller, protocol)
        return laid_over(ids, self._hinted(hinted_body, caller)) if self._hints else ids

    def _id_fields(self, caller: Caller, protocol: ProtocolName) -> dict[str, Any]:
        if self._name != "native" or self.fault_of(caller.instance, caller.session) == "missing":
            return {}
        root = self._root_id(caller)
        match self._harness(caller), protocol:
            case "claude-code", "anthropic":
                owner = {"device_id": self._digest("device", 32), "account_uuid": "", "session_id": root}
                return {"metadata": {"user_id": orjson.dumps(owner).decode()}}
            case "codex", "responses":
                return {"prompt_cache_key": root}
            case "opencode", "responses":
                return {"prompt_cache_key": self._session_id(caller, caller.session)}
        return {}

    def _hinted(self, read: Callable[..., dict[str, Any]], caller: Caller) -> dict[str, Any]:
        """What hints say of a call."""
        facts = {
            "harness": self._harness(caller),
            "class": caller.call_class,
            "agent": self._sessions[caller.session].agent,
        }
        return read(self._hints, facts, lambda text: self._filled(text, caller))

    def forget(self, instance: int, session: int) -> None:
        """A session is over: its headers need not be kept."""
        self._headers.pop((instance, session), None)

    def _session_headers(self, caller: Caller) -> dict[str, str]:
        """What all calls of a session carry."""
        session = self._session_id(caller, caller.session)
        parent = self._parent_id(caller)
        match self._name, self._harness(caller):
            case "none", _:
                return {}
            case "dynamo", _:
                return {"X-Dynamo-Session-ID": session} | _given("X-Dynamo-Parent-Session-ID", parent)
            case "native", "claude-code":
                return self._claude_code(caller)
            case "native", "codex":
                thread = {"thread-id": session, "session-id": self._root_id(caller)}
                thread["x-client-request-id"] = session
                child = {} if parent is None else {"x-openai-subagent": "collab_spawn"}
                return thread | child | _given("x-codex-parent-thread-id", parent)
            case "native", "opencode":
                ids = {"x-session-id": session, "x-session-affinity": session}
                return ids | _given("x-parent-session-id", parent)
            case _:
                # Routers know an agent by one of these: the vLLM router, SMG, llm-d, which also reads the parent.
                ids = {"X-Session-ID": session, "x-session-affinity": session, "X-SMG-Routing-Key": session}
                return ids | _given("x-parent-session-id", parent)

    def _claude_code(self, caller: Caller) -> dict[str, str]:
        headers = {"X-Claude-Code-Session-Id": self._root_id(caller)}
        session = self._sessions[caller.session]
        if session.parent is None:
            return headers
        headers["x-claude-code-agent-id"] = self._session_id(caller, caller.session)
        if self._sessions[session.parent].parent is not None:
            headers["x-claude-code-parent-agent-id"] = self._session_id(caller, session.parent)
        return headers | _given("x-claude-code-agent-type", session.agent)

    def _call_headers(self, caller: Caller) -> dict[str, str]:
        """What differs from call to call."""
        if self._name != "native":
            return {}
        match self._harness(caller):
            case "claude-code":
                headers = {}
                if caller.call_class in _REQUEST_CLASSES:
                    headers["x-claude-code-request-class"] = str(caller.call_class)
                if caller.turn is not None and caller.call_class in ("main", "subagent"):
                    headers["x-claude-code-prompt-id"] = _uuid(self._prompt_digest(caller))
                return headers
            case "codex":
                window = f"{self._session_id(caller, caller.session)}:{caller.window}"
                turn = orjson.dumps(self._codex_turn(caller, window)).decode()
                return {"x-codex-window-id": window, "x-codex-turn-metadata": turn}
        return {}

    def _codex_turn(self, caller: Caller, window: str) -> dict[str, Any]:
        """What Codex says of a request, as far as a trace knows it."""
        parent = self._parent_id(caller)
        turn = {} if caller.turn is None else {"root_turn_id": _uuid(self._prompt_digest(caller), version=7)}
        is_title = caller.call_class == "auxiliary"
        return {
            "session_id": self._root_id(caller),
            "thread_id": self._session_id(caller, caller.session),
            **turn,
            **_given("parent_thread_id", parent),
            "window_id": window,
            "window_number": caller.window,
            "request_kind": "compaction" if caller.call_class == "compaction" else "turn",
            "thread_source": "thread_title" if is_title else "user" if parent is None else "subagent",
        }

    def _prompt_digest(self, caller: Caller) -> str:
        """What the id of the user's prompt that caused a call is made of."""
        root = self._sessions[caller.session].root
        return self._digest(f"prompt-{caller.instance}-{root}-{caller.turn}", 16)

    def _filled(self, value: str, caller: Caller) -> str | None:
        """A template's value; None if it names a parent and there is none, or any id where ids are missing."""
        places = PLACE.findall(value)
        if not places:
            return value
        if self.fault_of(caller.instance, caller.session) == "missing":
            return None
        ids = {
            "session": self._session_id(caller, caller.session),
            "parent": self._parent_id(caller),
            "root": self._root_id(caller),
            "call": caller.call,
        }
        if any(ids[place] is None for place in places):
            return None
        return PLACE.sub(lambda match: str(ids[match[1]]), value)

    def _harness(self, caller: Caller) -> str | None:
        """The harness whose shape ids have; that of the root, since one harness drives a tree."""
        return self._sessions[self._sessions[caller.session].root].harness

    def _root_id(self, caller: Caller) -> str:
        return self._session_id(caller, self._sessions[caller.session].root)

    def _parent_id(self, caller: Caller) -> str | None:
        parent = self._sessions[caller.session].parent
        return None if parent is None else self._session_id(caller, parent)

    def _session_id(self, caller: Caller, session: int) -> str:
        """The id that this caller has for a session: in the form of its harness under `native`, else a UUID."""
        match self.fault_of(caller.instance, caller.session):
            case "shared":
                digest = self._digest("shared", 16)
            case "churn":
                digest = self._digest(f"session-{caller.instance}-{session}-{caller.call}", 16)
            case _:
                digest = self._digest(f"session-{caller.instance}-{session}", 16)
        if self._name == "native":
            known = self._sessions[session]
            harness = self._sessions[known.root].harness
            if harness == "claude-code" and known.parent is not None:
                return f"a{digest[:16]}"
            if harness == "opencode":
                return f"ses_{digest[:26]}"
            if harness == "codex":
                return _uuid(digest, version=7)
        return _uuid(digest)

    def _digest(self, what: str, size: int) -> str:
        return blake2b(f"{self._run_id} {what}".encode(), digest_size=size).hexdigest()


def caller_of(planned: PlannedCall, run_id: str) -> Caller:
    """Who asks for ids, for a planned call."""
    return Caller(
        instance=planned.instance,
        session=planned.session,
        call=f"{run_id}-{planned.index}",
        call_class=planned.call_class,
        turn=planned.turn,
        window=planned.window,
    )


def _uuid(digest: str, *, version: int = 4) -> str:
    """A UUID of 32 hexadecimal digits, of which six bits say what kind it is."""
    variant = "89ab"[int(digest[16], 16) % 4]
    return f"{digest[:8]}-{digest[8:12]}-{version}{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:]}"


def _given(name: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {name: value}
