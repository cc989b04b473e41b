"""Pure: what the calls of one tree would carry to say whose they are: headers and body fields, session by session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from aitrace.results import IdentityFault
from aitrace.schema import Call, ProtocolName, Session
from replayer.identity.wire_identity import Caller, WireIdentity

_MAX_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A header, or a field of the body."""

    name: str
    """Name of it; of a nested field with the names above, as in `nvext.priority`."""
    first: Any
    """Its value at the first call that has it."""
    calls: int
    """Calls of the session that have it."""
    values: int
    """Different values it has among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """What the calls of one session carry."""

    session: int
    """Session of the trace."""
    parent: int | None
    """Session that spawned it; None for the main agent."""
    harness: str | None
    """Its harness; None if not known."""
    agent: str | None
    """Its kind of agent; None if not known."""
    fault: IdentityFault | None
    """What is wrong with its ids on purpose; None if nothing is."""
    calls: int
    """Its calls."""
    headers: tuple[Carried, ...]
    """In the order in which they first come."""
    body: tuple[Carried, ...]
    """The same of body fields."""
    final: Mapping[str, str]
    """Headers of one more request, which tells that the session is over; empty if there is none."""


def tree_view(
    sessions: Sequence[Session],
    calls: Sequence[Call],
    identity: WireIdentity,
    *,
    root: int,
    protocol: ProtocolName,
) -> tuple[SessionView, ...]:
    """What the calls of the tree with this root carry when it is played the first time.

    Args:
        calls: Calls of the trace; those that a replay does not send are left out.
    """
    sent = [call for call in calls if call.retry_of is None and call.call_class != "count_tokens"]
    views = []
    for session in sessions:
        own = [call for call in sent if call.session == session.id]
        if session.root == root and own:
            views.append(_session_view(session, own, identity, protocol))
    return tuple(views)


def protocol_of_tree(sessions: Sequence[Session], calls: Sequence[Call], root: int) -> ProtocolName | None:
    """The protocol in which a tree was recorded; None if the trace does not tell."""
    return next(
        (call.protocol for call in calls if sessions[call.session].root == root and call.protocol), None
    )


def text_from_views(views: Sequence[SessionView]) -> str:
    """The views as lines for a terminal."""
    lines: list[str] = []
    for view in views:
        parent = "" if view.parent is None else f" of session {view.parent}"
        names = [view.harness or "unknown harness", *([view.agent] if view.agent else [])]
        count = f"{view.calls:,} call{'' if view.calls == 1 else 's'}"
        fault = "" if view.fault is None else f", ids {view.fault}"
        lines.append(f"Session {view.session}{parent} ({', '.join(names)}), {count}{fault}")
        for kind, carried in (("header", view.headers), ("body", view.body)):
            lines += [f"  {kind:<7}{_carried_text(each, view.calls)}" for each in carried]
        known = {each.name for each in view.headers}
        more = [f"{name}: {value}" for name, value in view.final.items() if name not in known]
        lines += [f"  header {each}   (of one more request, at its end)" for each in more]
        if not (view.headers or view.body):
            lines.append("  nothing that says whose they are")
    return "\n".join(lines)


def _session_view(
    session: Session, calls: Sequence[Call], identity: WireIdentity, protocol: ProtocolName
) -> SessionView:
    callers = [
        Caller(
            instance=1,
            session=session.id,
            call=f"call-{call.id}",
            call_class=call.call_class,
            turn=call.turn,
            window=call.window,
        )
        for call in calls
    ]
    return SessionView(
        session=session.id,
        parent=session.parent,
        harness=session.harness,
        agent=session.agent,
        fault=identity.fault_of(1, session.id),
        calls=len(calls),
        headers=_carried([identity.headers(caller) for caller in callers]),
        body=_carried([_flat(identity.body_fields(caller, protocol)) for caller in callers]),
        final=identity.final_headers(callers[-1]),
    )


def _carried(of_calls: Sequence[Mapping[str, Any]]) -> tuple[Carried, ...]:
    names = dict.fromkeys(name for fields in of_calls for name in fields)
    having = {name: [fields[name] for fields in of_calls if name in fields] for name in names}
    return tuple(
        Carried(
            name=name,
            first=values[0],
            calls=len(values),
            values=len({orjson.dumps(value) for value in values}),
        )
        for name, values in having.items()
    )


def _flat(fields: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


def _carried_text(carried: Carried, calls: int) -> str:
    value = carried.first if isinstance(carried.first, str) else orjson.dumps(carried.first).decode()
    notes = []
    if carried.calls < calls:
        notes.append(f"{carried.calls:,} of {calls:,} calls")
    if carried.values > 1:
        notes.append(f"{carried.values:,} values, this is the first")
    note = f"   ({'; '.join(notes)})" if notes else ""
    shown = value if len(value) <= _MAX_CHARS else value[:_MAX_CHARS] + "…"
    return f"{carried.name}: {shown}{note}"
