"""Pure: OpenCode's requests (header names and texts as of 1.18.33)."""

from aitrace.harnesses.detector import Identity, RequestFacts
from aitrace.harnesses.marks import (
    Rule,
    SyntheticText,
    first_key,
    first_system_text,
    header,
    is_aside,
    key_in,
    last_user_message,
    last_user_text,
    version_after,
)
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallClass

SESSION_HEADERS = (
    # Its own provider (Zen) gets this name, all others the next two.
    Rule(name="opencode/zen-session-header", field="x-opencode-session", seen="1.18.33"),
    Rule(name="opencode/session-header", field="x-session-id", seen="1.18.33"),
    Rule(name="opencode/session-affinity", field="x-session-affinity", seen="1.18.33"),
)
PARENT_HEADER = Rule(name="opencode/parent-session-header", field="x-parent-session-id", seen="1.18.33")
PROMPT_HEADER = Rule(name="opencode/request-header", field="x-opencode-request", seen="1.18.33")
USER_AGENT = Rule(name="opencode/user-agent", field="opencode/", seen="1.18.33")
SYSTEM_TEXTS: tuple[tuple[Rule, CallClass], ...] = (
    (Rule(name="opencode/title-text", field="You are a title generator", seen="1.18.33"), "auxiliary"),
    (
        Rule(name="opencode/compaction-text", field="You are a context summarization agent", seen="1.18.33"),
        "compaction",
    ),
    (
        Rule(
            name="opencode/compaction-text",
            field="You are a helpful AI assistant tasked with summarizing conversations",
            seen=None,
        ),
        "compaction",
    ),
)
"""Starts of the system prompts of requests that are no turns."""
HISTORY_TEXT = Rule(
    name="opencode/history-text", field="Here is the conversation so far:\n\n<conversation>", seen="1.18.33"
)
SYNTHETIC = SyntheticText(
    tags=("system-reminder", "task"),
    starts=(
        "What did we do so far?",
        "Continue if you have next steps",
        "Generate a title for this conversation:",
        "Here is the conversation so far:\n\n<conversation>",
        "The following tool was executed by the user",
        "Called the Read tool with the following input:",
        "Read tool failed to read ",
        "Reading MCP resource: ",
        "Summarize the task tool output above and continue with your task.",
        "Use the above message and context to generate a prompt and call the task tool",
    ),
    seen="1.18.33",
)
_SESSION_START = "ses_"


class OpenCode:
    """Knows OpenCode."""

    name = "opencode"
    rules: tuple[str, ...] = ()

    def identify(self, facts: RequestFacts) -> Identity | None:
        found = first_key(facts.headers, SESSION_HEADERS)
        user_agent = header(facts, "user-agent")
        is_ours = found is not None and (
            found[1] == SESSION_HEADERS[0].name or found[0].startswith(_SESSION_START)
        )
        if not is_ours and not user_agent.startswith(USER_AGENT.field):
            return None
        session, rule = (None, USER_AGENT.name) if found is None else found
        parent = key_in(facts.headers, PARENT_HEADER.field) if session is not None else None
        if parent == session:
            parent = None
        call_class, class_rule = _call_class(facts, is_subagent=parent is not None)
        return Identity(
            harness=self.name,
            version=version_after(user_agent, "opencode/"),
            session=session,
            parent=parent,
            # Its sub-agents have no tool to spawn others.
            root=parent or session,
            call_class=call_class,
            prompt_id=_prompt_id(facts, call_class, is_subagent=parent is not None),
            evidence=(rule, *((PARENT_HEADER.name,) if parent is not None else ()), *class_rule),
        )

    def normalised(self, parts: tuple[RequestPart, ...]) -> tuple[RequestPart, ...]:
        """The prompt as it is: each turn extends the one before it to the byte."""
        return parts

    def tool_duration_ns(self, result: RequestPart) -> int | None:  # noqa: ARG002 # tells it nowhere
        return None

    def is_synthetic(self, part: RequestPart) -> bool:
        return SYNTHETIC.is_in(part)


def _prompt_id(facts: RequestFacts, call_class: CallClass, *, is_subagent: bool) -> str | None:
    """Id of the user's message that is answered; None if OpenCode wrote that itself, to compact or to go on after it.

    A sub-agent's message is of its own session.
    """
    asked = last_user_message(facts.parts)
    if is_subagent or call_class == "compaction" or (asked and all(map(SYNTHETIC.covers, asked))):
        return None
    return key_in(facts.headers, PROMPT_HEADER.field)


def _call_class(facts: RequestFacts, *, is_subagent: bool) -> tuple[CallClass, tuple[str, ...]]:
    """What the request is for, and the rule that told, if one did: no header does."""
    system = first_system_text(facts.parts)
    for rule, call_class in SYSTEM_TEXTS:
        if system.startswith(rule.field):
            return call_class, (rule.name,)
    if last_user_text(facts.parts).startswith(HISTORY_TEXT.field):
        return "compaction", (HISTORY_TEXT.name,)
    if is_subagent:
        return "subagent", ()
    if is_aside(facts):
        return "auxiliary", ("opencode/no-tools",)
    return ("main" if facts.parts else "unknown"), ()
