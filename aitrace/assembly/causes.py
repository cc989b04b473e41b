"""Pure: what filled the gap before a call.

- `user`: a person typed the prompt, or, where the agent had nothing left to do, asked for something else: a summary, a
  count of tokens, a new process that warms up. A sub-agent has no user.
- `tool`: the call carries results of the answer before it. A summary is often asked for without them (Claude Code,
  OpenCode); then the tools ran before it, and what follows it with the results waited for no tool.
- `backoff`: the call before failed, and this one is no repetition of it but goes on with what had come.
- `harness`: the rest; `unknown` for a client that no detector knows.
"""

from aitrace.assembly.additions import Addition
from aitrace.assembly.sessions import CallState, SessionState
from aitrace.schema import CallClass, ErrorKind, GapCause

NO_BACKOFF: frozenset[ErrorKind | None] = frozenset({None, "client_abort", "unrecorded"})
"""Ends of a call after which nobody backs off."""


def chain_cause(
    session: SessionState, addition: Addition, call_class: CallClass, harness: str | None
) -> GapCause:
    """For a call of the session's chain that is no retry."""
    last = session.last
    if call_class == "compaction":
        if addition.results or (last is not None and last.asks_tools):
            return "tool"
        return "user" if _is_left_to_its_user(session) else rest_cause(harness)
    if addition.has_typed and session.parent is None:
        return "user"
    if addition.results and (last is None or last.call_class != "compaction"):
        return "tool"
    return rest_cause(harness) if last is None or last.error in NO_BACKOFF else "backoff"


def aside_cause(session: SessionState, harness: str | None) -> GapCause:
    """For an auxiliary call that is no retry."""
    is_next = session.latest is session.last
    return "user" if is_next and _is_left_to_its_user(session) else rest_cause(harness)


def starter_cause(starter: CallState, cause: GapCause, harness: str | None) -> GapCause:
    """For the first call of a root's chain after the auxiliary call that started the tree.

    Args:
        cause: As of the chain.
    """
    return rest_cause(harness) if starter.is_about_prompt else cause


def rest_cause(harness: str | None) -> GapCause:
    """What filled a gap that neither a tool, a person nor a failure explains."""
    return "unknown" if harness is None else "harness"


def _is_left_to_its_user(session: SessionState) -> bool:
    """Whether a main agent has done what it was asked for, or was stopped."""
    last = session.last
    if session.parent is not None or last is None or not last.has_ended or last.call_class == "compaction":
        return False
    return not last.asks_tools and last.error in (None, "client_abort")
