"""Pure: what a call waited for, from the calls before it.

The rules, each by its relation:

- `retry`: the latest call of the chain (or an auxiliary call) failed, and this one has the same prompt and purpose. It
  waits for that alone. Cause `backoff`; but `harness` if the answer is asked for in another way (Claude Code repeats
  a broken stream at once without streaming) or nobody knows of a failure (the client itself went away, or the end was
  not recorded).
- `sequence`: the call before in the chain, failed or not; for an auxiliary call the latest of the session. A call whose
  prompt goes on from that of the auxiliary call just before it (Codex warms up a connection) waits for that too.
  Else the first call of a root's chain hangs on the auxiliary call that started the tree, by its dispatch.
- `spawn`: for the first call of a child's chain, and an auxiliary call before it, the parent's call that asked for it.
  By its completion also where that is still to come, with a gap that is not known: a child that began while the answer
  streamed could not have begun before the answer had said so, however slow the endpoint is.
- `join`: the last call of a child that is over, once its parent carries the result of the tool call that started it,
  or of one that waits for agents, or something that the harness announces. A child that runs on when its parent has
  the result works in the background, and is joined later. A child that goes on after that is joined again.

Else `completion` where the end is known and not after the request, and `dispatch` where it is not.
"""

from collections.abc import Iterator

from aitrace.assembly.additions import Addition
from aitrace.assembly.causes import NO_BACKOFF, rest_cause, starter_cause
from aitrace.assembly.sessions import CallState, SessionState
from aitrace.harnesses.tools import SPAWN_TOOLS, WAIT_TOOLS
from aitrace.schema import CallClass, Dependency, GapCause, Relation

ASIDE: frozenset[CallClass] = frozenset({"auxiliary", "count_tokens"})
"""Classes of calls that are no part of a chain."""
_FINAL_TOOLS = frozenset({"StructuredOutput"})
"""Tools with which an agent hands back its result and ends."""


def goes_on_after(tool_names: tuple[str | None, ...]) -> bool:
    """Whether an agent goes on after an answer with these tool calls."""
    return any(name not in _FINAL_TOOLS for name in tool_names)


def repeated_call(
    session: SessionState, call_class: CallClass, node: int, request_ns: int
) -> CallState | None:
    """The failed call that this one repeats; None if it is a first try."""
    call = session.failed_asides.get(node) if call_class in ASIDE else session.last
    if call is None or call.error is None or not call.has_ended_by(request_ns):
        return None
    return call if call.node == node and call.call_class == call_class else None


def retry_wait(failed: CallState, request_ns: int, *, streamed: bool | None) -> Dependency:
    """What a retry waits for."""
    is_fallback = streamed != failed.streamed or failed.error in NO_BACKOFF
    return _wait(failed, "retry", request_ns, "harness" if is_fallback else "backoff")


def aside_waits(session: SessionState, request_ns: int, cause: GapCause) -> tuple[Dependency, ...]:
    """What an auxiliary call waits for."""
    latest = session.latest
    if latest is not None:
        return (_wait(latest, "sequence", request_ns, cause),)
    return _first_waits(session, request_ns, cause)


def chain_waits(
    session: SessionState,
    addition: Addition,
    request_ns: int,
    cause: GapCause,
    *,
    harness: str | None,
    warm_up: CallState | None,
) -> tuple[Dependency, ...]:
    """What a call of the session's chain waits for, if it is no retry. Takes the children that it joins off the
    session's list.

    Args:
        warm_up: The auxiliary call just before it, if its prompt goes on from that one's.
    """
    if session.parent is not None and session.last is None:
        cause = rest_cause(harness)
    warmed = () if warm_up is None else (_wait(warm_up, "sequence", request_ns, cause),)
    if session.last is not None:
        first = (_wait(session.last, "sequence", request_ns, cause), *warmed)
    elif session.spawner is None and session.last_aside is not None:
        first = warmed or _starter_waits(session, session.last_aside, request_ns, cause, harness)
    else:
        first = (*_first_waits(session, request_ns, cause), *warmed)
    joined = [child for child in session.open_children if _is_joined(session, child, addition, request_ns)]
    session.open_children = [child for child in session.open_children if child not in joined]
    waited = {dependency.call for dependency in first}
    joins = (
        _wait(child.last, "join", request_ns, cause)
        for child in joined
        if child.last is not None and child.last.id not in waited
    )
    return (*first, *joins)


def find_spawner(parent: SessionState | None, spawned_by: str | None, request_ns: int) -> CallState | None:
    """The call that asked for a child that begins now; the nearest one to that if nothing is known of its parent.

    A client starts the tool while the answer streams, so that may be the call in flight. But if an answer before that
    asked for agents that have not begun yet, it is one of those: the parent of a background agent is often faster.
    """
    if parent is None:
        return None
    if spawned_by is not None and spawned_by in parent.tools:
        return parent.tools[spawned_by].call
    for call in (parent.last, parent.before_last):
        if call is not None and call.has_ended_by(request_ns) and call.spawns > call.children:
            return call
    if parent.latest is not None:
        return parent.last or parent.latest
    return find_spawner(parent.parent, None, request_ns) or parent.tree.last


def _starter_waits(
    session: SessionState, aside: CallState, request_ns: int, cause: GapCause, harness: str | None
) -> tuple[Dependency, ...]:
    """For the first call of a root's chain after auxiliary calls, of which `aside` is the latest."""
    starter = session.tree.first
    own = starter if starter is not None and starter.session is session else aside
    cause = starter_cause(own, cause, harness)
    return (_wait(own, "sequence", request_ns, cause, is_end_awaited=False),)


def _first_waits(session: SessionState, request_ns: int, cause: GapCause) -> tuple[Dependency, ...]:
    """For the first call of a session."""
    if session.spawner is not None:
        return (_wait(session.spawner, "spawn", request_ns, cause),)
    if session.tree.last is not None:
        # Calls of its children were seen before any of its own.
        return (_wait(session.tree.last, "join", request_ns, cause),)
    return ()


def _is_joined(session: SessionState, child: SessionState, addition: Addition, request_ns: int) -> bool:
    last = child.last
    # It goes on after a compaction, too.
    if last is None or last.asks_tools or last.call_class == "compaction":
        return False
    if not last.has_ended_by(request_ns):
        return False
    return addition.has_announcement or any(_answers_for(session, child, addition))


def _answers_for(session: SessionState, child: SessionState, addition: Addition) -> Iterator[bool]:
    """For each new tool result, whether it may be the child's."""
    spawner = child.spawner
    for tool_id in addition.results:
        use = None if tool_id is None else session.tools.get(tool_id)
        if use is None:
            yield True  # nothing says whose result it is
        elif use.name in WAIT_TOOLS:
            yield True
        elif spawner is not None and use.call is spawner:
            yield use.name in SPAWN_TOOLS or not spawner.spawns
        else:
            yield False


def _wait(
    call: CallState, relation: Relation, request_ns: int, cause: GapCause, *, is_end_awaited: bool = True
) -> Dependency:
    if is_end_awaited and call.has_ended_by(request_ns) and call.end_ns is not None:
        return Dependency(
            call=call.id,
            relation=relation,
            trigger="completion",
            gap_ns=request_ns - call.end_ns,
            cause=cause,
        )
    if (relation == "join" and call.has_ended) or (relation == "spawn" and not call.has_ended):
        return Dependency(call=call.id, relation=relation, trigger="completion", cause=cause)
    return Dependency(
        call=call.id,
        relation=relation,
        trigger="dispatch",
        gap_ns=request_ns - call.request_ns,
        cause=cause,
    )
