"""Pure: Dynamo's session headers, which any client may send and which win over its own."""

from collections.abc import Mapping
from dataclasses import replace

from aitrace.harnesses.detector import Identity
from aitrace.harnesses.marks import Rule, key_in

SESSION_HEADER = Rule(name="dynamo/session-id", field="x-dynamo-session-id", seen=None)
PARENT_HEADER = Rule(name="dynamo/parent-session-id", field="x-dynamo-parent-session-id", seen=None)


def with_dynamo_ids(headers: Mapping[str, str], identity: Identity) -> Identity:
    """The identity with the ids of Dynamo's headers in place of the client's; as it is if there are none.

    As in Dynamo, the parent then comes from its own header only, and one equal to the session is none.
    """
    session = key_in(headers, SESSION_HEADER.field)
    if session is None:
        return identity
    parent = key_in(headers, PARENT_HEADER.field)
    if parent == session:
        parent = None
    is_new_child = parent is not None and identity.call_class in ("main", "unknown")
    return replace(
        identity,
        session=session,
        parent=parent,
        root=parent or session,
        call_class="subagent" if is_new_child else identity.call_class,
        evidence=(
            SESSION_HEADER.name,
            *((PARENT_HEADER.name,) if parent is not None else ()),
            *identity.evidence,
        ),
    )
