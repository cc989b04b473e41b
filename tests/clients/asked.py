"""Pure: from a request's body to what the script must know: which agent asks, how far it is, which tools it has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scenarios import Read, Shell, Spawn, Step, Tool, Wait

Purpose = Literal["turn", "auxiliary", "compaction", "prewarm"]
Speaker = Literal["user", "model", "result"]
Arguments = dict[str, Any] | str

MARKER = re.compile(r"\[\[agent:(\w+)\]\]")
SUMMARY = "<analysis>scripted</analysis>\n<summary>[[agent:after]] The work so far, in short.</summary>"
DONE = Step(text="Done.")
MODEL_ITEMS = ("function_call", "custom_tool_call", "local_shell_call", "reasoning", "tool_search_call")
COMPACTED_ITEMS = ("compaction", "compaction_summary", "context_compaction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool that the client offers."""

    fields: Mapping[str, Any]
    """Schemas of its arguments by name."""
    is_free_text: bool = False
    """Whether it takes text instead of arguments."""
    namespace: str | None = None
    """Where it was found; None at the top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call of the client's own tool."""

    name: str
    """As the client named it."""
    arguments: Arguments
    """What it is called with."""
    offer: Offer
    """The tool."""
    tool: Tool
    """The entry of the script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as the script sees it."""

    agent: str | None
    """By the last marker in the user's text; None without one."""
    step: int
    """Turns of the model that the history holds."""
    purpose: Purpose
    """What the request is for."""
    wants_json: bool
    """Whether the answer is to be JSON."""
    tools: Mapping[str, Offer]
    """By name."""
    results: tuple[str, ...]
    """Texts of the tool results in the history."""
    wants_item: bool = False
    """Whether a compaction is to be answered with an item that replaces the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """Something in the history."""

    by: Speaker
    text: str


def text_of(content: Any) -> str:
    """The text in a message's content, whichever shape it has; tool results left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(one) for one in content)
    if not isinstance(content, dict) or content.get("type") == "tool_result":
        return ""
    for name in ("text", "encrypted_content", "content"):
        if content.get(name):
            return text_of(content[name])
    return ""


def read_messages(body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
    """A request to `/v1/messages`."""
    said = []
    for message in body.get("messages", []):
        content = message["content"] if isinstance(message["content"], list) else [message["content"]]
        results = [one for one in content if isinstance(one, dict) and one.get("type") == "tool_result"]
        said += [_Said(by="result", text=text_of(one.get("content"))) for one in results]
        if message["role"] != "system":
            said += _message(message)
    tools = {tool["name"]: _offer(tool.get("input_schema")) for tool in body.get("tools") or []}
    wants_json = "format" in (body.get("output_config") or {})
    is_compaction = headers.get("x-claude-code-request-class") == "compaction"
    return _asked(said, tools, wants_json=wants_json, is_compaction=is_compaction)


def read_chat(body: Mapping[str, Any], _headers: Mapping[str, str]) -> Asked:
    """A request to `/v1/chat/completions`."""
    said = [one for message in body.get("messages", []) for one in _message(message)]
    functions = [tool["function"] for tool in body.get("tools") or []]
    tools = {function["name"]: _offer(function.get("parameters")) for function in functions}
    return _asked(said, tools, wants_json="response_format" in body, is_compaction=False)


def read_responses(body: Mapping[str, Any], items: list[dict[str, Any]]) -> Asked:
    """A request to `/v1/responses` whose whole history is `items`."""
    said: list[_Said] = []
    tools: dict[str, Offer] = {}
    _collect(body.get("tools"), tools)
    for item in items:
        kind = item.get("type", "message")
        if kind == "additional_tools":
            _collect(item.get("tools"), tools)
        elif kind in COMPACTED_ITEMS:
            said = [_Said(by="user", text=item.get("encrypted_content") or "")]
        elif kind in MODEL_ITEMS:
            said.append(_Said(by="model", text=""))
        elif kind.endswith("_output"):
            said.append(_Said(by="result", text=_output_text(item.get("output"))))
        elif kind == "agent_message":
            text = text_of(item.get("content"))
            # A child that was forked with its parent's history begins its own script here.
            said = [*([] if MARKER.search(text) else said), _Said(by="user", text=text)]
        elif kind == "message":
            said += _message(item)
    metadata = str((body.get("client_metadata") or {}).get("x-codex-turn-metadata"))
    wants_item = any(item.get("type") == "compaction_trigger" for item in items[-1:])
    is_compaction = wants_item or '"request_kind":"compaction"' in metadata
    wants_json = ((body.get("text") or {}).get("format") or {}).get("type") == "json_schema"
    asked = _asked(said, tools, wants_json=wants_json, is_compaction=is_compaction)
    return (
        replace(asked, purpose="prewarm")
        if body.get("generate") is False
        else replace(asked, wants_item=wants_item)
    )


def planned_step(steps: tuple[Step, ...], asked: Asked) -> Step:
    """The answer that an agent's script has for this request."""
    can_wait = "wait_agent" in asked.tools
    usable = [step for step in steps if can_wait or step.tools != (Wait(),)]
    return usable[asked.step] if asked.step < len(usable) else DONE


def tool_use(tool: Tool, asked: Asked, project: str) -> ToolUse:
    """The script's tool as a call of the tool that the client offers for it."""
    match tool:
        case Shell():
            return _shell(tool, tool.command, asked)
        case Read():
            path = f"{project}/{tool.name}"
            name = next((name for name in ("Read", "read") if name in asked.tools), None)
            if name is None:
                return _shell(tool, f"cat {path}", asked)
            given = {"file_path": path, "filePath": path}
            return _call(tool, name, asked, given)
        case Spawn():
            return _call(
                tool,
                _first(asked, "Agent", "task", "spawn_agent"),
                asked,
                {
                    "prompt": f"[[agent:{tool.agent}]] do the scripted sub-task",
                    "message": f"[[agent:{tool.agent}]] do the scripted sub-task",
                    "description": f"scripted {tool.agent}",
                    "task_name": tool.agent,
                    "subagent_type": "general-purpose" if "Agent" in asked.tools else "general",
                    "run_in_background": False,
                },
            )
        case Wait():
            results = "\n".join(asked.results)
            finished = re.findall(r'"([^"]+)":\{"completed"', results)
            running = [name for name in re.findall(r'"agent_id":"([^"]+)"', results) if name not in finished]
            given = {"ids": running, "targets": running, "timeout_ms": 30_000}
            return _call(tool, "wait_agent", asked, given)


def _message(message: Mapping[str, Any]) -> list[_Said]:
    speakers: dict[str, Speaker] = {"user": "user", "assistant": "model", "tool": "result"}
    by = speakers.get(message["role"])
    return [] if by is None else [_Said(by=by, text=text_of(message.get("content")))]


def _offer(schema: Any, **others: Any) -> Offer:
    return Offer(fields=(schema or {}).get("properties") or {}, **others)


def _collect(tools: Any, into: dict[str, Offer], namespace: str | None = None) -> None:
    for tool in tools or []:
        if tool.get("type") == "namespace":
            _collect(tool.get("tools"), into, tool.get("name"))
        elif "name" in tool:
            is_free_text = tool.get("type") == "custom"
            into[tool["name"]] = _offer(
                tool.get("parameters"), is_free_text=is_free_text, namespace=namespace
            )


def _output_text(output: Any) -> str:
    # Escaped quotes are undone, since an output may be JSON inside JSON.
    return (output if isinstance(output, str) else text_of(output)).replace('\\"', '"')


def _asked(said: list[_Said], tools: dict[str, Offer], *, wants_json: bool, is_compaction: bool) -> Asked:
    users = [one.text for one in said if one.by == "user"]
    if any("[[agent:after]]" in one.text for one in said):
        agent: str | None = "after"
        first = next(n for n, one in enumerate(said) if "[[agent:after]]" in one.text)
        said = said[first + 1 :] if said[first].by == "model" else said[first:]
    else:
        marks = [mark for text in users for mark in MARKER.findall(text)]
        agent = marks[-1] if marks else None
    step = 0
    results: list[str] = []
    previous = None
    for one in said:
        if one.by == "model" and previous != "model":
            step += 1
        elif one.by == "result":
            results.append(one.text)
        previous = one.by
    purpose: Purpose = "turn"
    # OpenCode gives no mark: it sends the whole history as one text.
    if is_compaction or (users and "<conversation>" in users[-1]):
        purpose = "compaction"
    elif agent is None or not tools or wants_json:
        purpose = "auxiliary"
    return Asked(
        agent=agent, step=step, purpose=purpose, wants_json=wants_json, tools=tools, results=tuple(results)
    )


def _first(asked: Asked, *names: str) -> str:
    found = next((name for name in names if name in asked.tools), None)
    if found is None:
        raise LookupError(f"the client offers none of {names}, only {sorted(asked.tools)}")
    return found


def _shell(tool: Tool, command: str, asked: Asked) -> ToolUse:
    name = _first(asked, "Bash", "bash", "exec_command", "shell_command", "shell", "exec")
    if not asked.tools[name].is_free_text:
        given = {"command": command, "cmd": command, "yield_time_ms": 10_000, "description": "scripted"}
        return _call(tool, name, asked, given)
    quoted = '"' + command.replace("\\", "\\\\").replace('"', '\\"') + '"'
    script = f"const r = await tools.exec_command({{cmd: {quoted}, yield_time_ms: 10000}});\ntext(r.output);"
    return ToolUse(name=name, arguments=script, offer=asked.tools[name], tool=tool)


def _call(tool: Tool, name: str, asked: Asked, given: dict[str, Any]) -> ToolUse:
    offer = asked.tools[name]
    arguments = {field: value for field, value in given.items() if field in offer.fields}
    return ToolUse(name=name, arguments=arguments, offer=offer, tool=tool)
