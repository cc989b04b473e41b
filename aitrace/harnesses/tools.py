"""Pure: the tools with which agents start other agents and wait for them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """A tool that a harness brings along."""

    harness: str
    """Name of the harness."""
    name: str
    """Name of the tool as on the wire."""
    use: Literal["spawn", "wait"]
    """`spawn`: its call creates sub-agents; `wait`: its call waits for sub-agents that were created before."""
    seen: str | None
    """Version of the harness it was seen in; None if only others have told of it."""


AGENT_TOOLS = (
    # Blocks until the agent is done, or comes back at once with `run_in_background`.
    AgentTool(harness="claude-code", name="Agent", use="spawn", seen="2.1.332"),
    AgentTool(harness="claude-code", name="Task", use="spawn", seen=None),
    AgentTool(harness="claude-code", name="Workflow", use="spawn", seen="2.1.332"),
    AgentTool(harness="claude-code", name="AgentOutputTool", use="wait", seen=None),
    AgentTool(harness="claude-code", name="TaskOutput", use="wait", seen=None),
    # Always comes back at once.
    AgentTool(harness="codex", name="spawn_agent", use="spawn", seen="0.171.0"),
    AgentTool(harness="codex", name="wait_agent", use="wait", seen="0.171.0"),
    # With code mode (gpt-6) this name waits for a script instead.
    AgentTool(harness="codex", name="wait", use="wait", seen="0.171.0"),
    # Blocks.
    AgentTool(harness="opencode", name="task", use="spawn", seen="1.18.33"),
)

SPAWN_TOOLS = frozenset(tool.name for tool in AGENT_TOOLS if tool.use == "spawn")
"""Tools whose call creates sub-agents, of any harness."""
WAIT_TOOLS = frozenset(tool.name for tool in AGENT_TOOLS if tool.use == "wait")
"""Tools whose call waits for sub-agents, of any harness."""
