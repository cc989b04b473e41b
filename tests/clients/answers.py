"""Pure: answers in the three protocols, whole and as streams of events."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from asked import ToolUse
from scenarios import Step

Timed = tuple[float, dict[str, Any]]
"""An event of a stream and the pause before it, s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An answer before it is written."""

    number: int
    """Number of the request; part of every id, and of the count of output tokens, by which a test knows the call."""
    model: str
    """Model asked for."""
    step: Step
    """What the model says."""
    uses: Sequence[ToolUse]
    """The tools it calls."""
    input_tokens: int
    """Size of the prompt as reported."""
    is_compaction_item: bool = False
    """Whether the text is to come as the item with which Codex replaces a history."""

    @property
    def output_tokens(self) -> int:
        return 100 + self.number

    @property
    def cached_tokens(self) -> int:
        return self.input_tokens // 2

    def name(self, kind: str, part: int = 0) -> str:
        """An id as the vendors make them."""
        return f"{kind}_{self.number:012d}{part:012d}"


def pieces(text: str, count: int) -> list[str]:
    """The text cut into at most so many pieces of one length."""
    size = -(-len(text) // count)
    return [text[start : start + size] for start in range(0, len(text), size)] if text else []


def argument_text(use: ToolUse) -> str:
    """Arguments as the stream carries them."""
    return use.arguments if isinstance(use.arguments, str) else orjson.dumps(use.arguments).decode()


def message(planned: Planned) -> dict[str, Any]:
    """The whole answer of `/v1/messages`."""
    step = planned.step
    content: list[dict[str, Any]] = []
    if step.thinking:
        content.append({"type": "thinking", "thinking": step.thinking, "signature": "c2NyaXB0ZWQ="})
    if step.text:
        content.append({"type": "text", "text": step.text})
    for part, use in enumerate(planned.uses):
        name = planned.name("toolu", part)
        content.append({"type": "tool_use", "id": name, "name": use.name, "input": use.arguments})
    return {
        "id": planned.name("msg"),
        "type": "message",
        "role": "assistant",
        "model": planned.model,
        "content": content,
        "stop_reason": "tool_use" if planned.uses else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": planned.input_tokens - planned.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": planned.cached_tokens,
            "output_tokens": planned.output_tokens,
        },
    }


def message_events(planned: Planned) -> Iterator[Timed]:
    """The streamed answer of `/v1/messages`."""
    whole = message(planned)
    yield 0, {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    yield 0, {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        for pause_s, event in _block_events(block, planned.step):
            yield pause_s, {**event, "index": index}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield 0, {"type": "message_delta", "delta": delta, "usage": whole["usage"]}
    yield 0, {"type": "message_stop"}


def _block_events(block: dict[str, Any], step: Step) -> Iterator[Timed]:
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
    kind = block["type"]
    yield 0, {"type": "content_block_start", "content_block": {**block, **empty[kind]}}
    if kind == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"], step.pieces)]
    elif kind == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    else:
        text = orjson.dumps(block["input"]).decode()
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(text, 3)]
    for delta in deltas:
        yield step.pause_s, {"type": "content_block_delta", "delta": delta}
    yield 0, {"type": "content_block_stop"}


def response(planned: Planned) -> dict[str, Any]:
    """The whole answer of `/v1/responses`."""
    step = planned.step
    output: list[dict[str, Any]] = []
    if step.thinking:
        summary = [{"type": "summary_text", "text": step.thinking}]
        output.append(
            {
                "type": "reasoning",
                "id": planned.name("rs"),
                "summary": summary,
                "encrypted_content": "c2Ny" * 20,
            }
        )
    if planned.is_compaction_item:
        output.append({"type": "compaction", "id": planned.name("cmp"), "encrypted_content": step.text})
    elif step.text:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        output.append(
            {
                "type": "message",
                "id": planned.name("msg"),
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    output += [_call_item(planned, part, use) for part, use in enumerate(planned.uses)]
    return {
        "id": planned.name("resp"),
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": planned.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "usage": {
            "input_tokens": planned.input_tokens,
            "input_tokens_details": {"cached_tokens": planned.cached_tokens},
            "output_tokens": planned.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": planned.input_tokens + planned.output_tokens,
        },
    }


def _call_item(planned: Planned, part: int, use: ToolUse) -> dict[str, Any]:
    shared = {"call_id": planned.name("call", part), "name": use.name, "status": "completed"}
    if use.offer.is_free_text:
        return {
            "type": "custom_tool_call",
            "id": planned.name("ctc", part),
            "input": argument_text(use),
            **shared,
        }
    if use.offer.namespace not in (None, "functions"):
        shared["namespace"] = use.offer.namespace
    return {
        "type": "function_call",
        "id": planned.name("fc", part),
        "arguments": argument_text(use),
        **shared,
    }


def response_events(planned: Planned) -> Iterator[Timed]:
    """The streamed answer of `/v1/responses`, over SSE and WebSocket."""
    whole = response(planned)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield 0, {"type": "response.created", "response": begun}
    yield 0, {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index}
        yield 0, {"type": "response.output_item.added", "item": _emptied(item), **place}
        for pause_s, event in _item_events(item, planned.step):
            yield pause_s, {**event, "item_id": item["id"], **place}
        yield 0, {"type": "response.output_item.done", "item": item, **place}
    yield 0, {"type": "response.completed", "response": whole}


def _emptied(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, dict[str, Any]] = {
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
        "custom_tool_call": {"input": "", "status": "in_progress"},
        "reasoning": {"summary": []},
    }
    return {**item, **empty.get(item["type"], {})}


def _item_events(item: dict[str, Any], step: Step) -> Iterator[Timed]:
    if item["type"] == "message":
        part = item["content"][0]
        at = {"content_index": 0}
        yield 0, {"type": "response.content_part.added", "part": {**part, "text": ""}, **at}
        for piece in pieces(part["text"], step.pieces):
            yield step.pause_s, {"type": "response.output_text.delta", "delta": piece, **at}
        yield 0, {"type": "response.output_text.done", "text": part["text"], **at}
        yield 0, {"type": "response.content_part.done", "part": part, **at}
    elif item["type"] == "function_call":
        for piece in pieces(item["arguments"], 3):
            yield step.pause_s, {"type": "response.function_call_arguments.delta", "delta": piece}
        yield 0, {"type": "response.function_call_arguments.done", "arguments": item["arguments"]}
    elif item["type"] == "custom_tool_call":
        for piece in pieces(item["input"], 3):
            yield step.pause_s, {"type": "response.custom_tool_call_input.delta", "delta": piece}


def completion(planned: Planned) -> dict[str, Any]:
    """The whole answer of `/v1/chat/completions`."""
    calls = [
        {
            "id": planned.name("call", part),
            "type": "function",
            "function": {"name": use.name, "arguments": argument_text(use)},
        }
        for part, use in enumerate(planned.uses)
    ]
    spoken: dict[str, Any] = {"role": "assistant", "content": planned.step.text}
    if calls:
        spoken["tool_calls"] = calls
    return {
        "id": planned.name("chatcmpl"),
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": planned.model,
        "choices": [{"index": 0, "message": spoken, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {
            "prompt_tokens": planned.input_tokens,
            "prompt_tokens_details": {"cached_tokens": planned.cached_tokens},
            "completion_tokens": planned.output_tokens,
            "total_tokens": planned.input_tokens + planned.output_tokens,
        },
    }


def completion_events(planned: Planned) -> Iterator[Timed]:
    """The streamed answer of `/v1/chat/completions`, with a last event of usage."""
    whole = completion(planned)
    choice = whole["choices"][0]
    frame = {**whole, "object": "chat.completion.chunk"}
    usage = frame.pop("usage")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield 0, chunk({"role": "assistant", "content": ""})
    if planned.step.thinking:
        yield 0, chunk({"reasoning_content": planned.step.thinking})
    for piece in pieces(planned.step.text, planned.step.pieces):
        yield planned.step.pause_s, chunk({"content": piece})
    for index, call in enumerate(choice["message"].get("tool_calls", [])):
        begun = {**call, "function": {**call["function"], "arguments": ""}, "index": index}
        yield 0, chunk({"tool_calls": [begun]})
        for piece in pieces(call["function"]["arguments"], 3):
            more = {"index": index, "function": {"arguments": piece}}
            yield planned.step.pause_s, chunk({"tool_calls": [more]})
    yield 0, chunk({}, choice["finish_reason"])
    yield 0, {**frame, "choices": [], "usage": usage}
