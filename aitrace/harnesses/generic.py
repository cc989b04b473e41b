"""Pure: the session headers of harnesses that no detector knows."""

from aitrace.harnesses.detector import Identity, RequestFacts
from aitrace.harnesses.marks import Rule, key_in

SESSION_HEADERS = (
    Rule(name="generic/x-session-id", field="x-session-id", seen=None),
    Rule(name="generic/x-session-affinity", field="x-session-affinity", seen=None),
    Rule(name="generic/session-id", field="session-id", seen=None),
    Rule(name="generic/session-id", field="session_id", seen=None),
)
PARENT_HEADER = Rule(name="generic/x-parent-session-id", field="x-parent-session-id", seen=None)


def generic_identity(facts: RequestFacts) -> Identity:
    """What common headers say; empty if there are none of them, so that the session has to be inferred.

    A body's `prompt_cache_key` and `user`, or a correlation id, are no sessions: clients share them between
    conversations, or make them anew for every request.
    """
    for rule in SESSION_HEADERS:
        session = key_in(facts.headers, rule.field)
        if session is None:
            continue
        parent = key_in(facts.headers, PARENT_HEADER.field)
        if parent is None or parent == session:
            return Identity(session=session, root=session, evidence=(rule.name,))
        return Identity(
            session=session,
            parent=parent,
            root=parent,
            call_class="subagent",
            evidence=(rule.name, PARENT_HEADER.name),
        )
    return Identity()
