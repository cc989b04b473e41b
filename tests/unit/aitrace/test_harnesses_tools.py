import pytest

from aitrace.harnesses.tools import AGENT_TOOLS, SPAWN_TOOLS, WAIT_TOOLS


@pytest.mark.parametrize("name", ["Agent", "Task", "Workflow", "spawn_agent", "task"])
def test_tools_that_create_agents_are_spawn_tools(name):
    assert name in SPAWN_TOOLS - WAIT_TOOLS


@pytest.mark.parametrize("name", ["TaskOutput", "AgentOutputTool", "wait_agent", "wait"])
def test_tools_that_wait_for_agents_are_wait_tools(name):
    assert name in WAIT_TOOLS - SPAWN_TOOLS


def test_every_row_is_in_one_of_the_sets():
    assert {tool.name for tool in AGENT_TOOLS} == SPAWN_TOOLS | WAIT_TOOLS


def test_a_tool_that_runs_commands_is_neither():
    assert {"Bash", "exec_command", "exec", "bash", "Read"} & (SPAWN_TOOLS | WAIT_TOOLS) == set()
