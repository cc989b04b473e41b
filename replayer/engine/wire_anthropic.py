"""Pure: answers as the Anthropic Messages API writes them."""

from typing import Any

import orjson

from aitrace.protocols.protocol import TokenKind
from replayer.engine.answers import Finish
from replayer.engine.wire import TOOL_ARGUMENT_TAIL, ReplyWriter, split_event, sse, tool_arguments

_STOP_REASONS: dict[Finish, str] = {"stop": "end_turn", "length": "max_tokens", "tool_call": "tool_use"}
# Stands in for what a vendor signs; the same in every answer, so that a history that carries it stays stable.
_SIGNATURE = "YWl0cmFjZQ=="
_DELTAS: dict[TokenKind, tuple[str, str]] = {
    "reasoning": ("thinking_delta", "thinking"),
    "content": ("text_delta", "text"),
    "tool_call": ("input_json_delta", "partial_json"),
}


class AnthropicWriter(ReplyWriter):
    """`POST /v1/messages`."""

    _index = -1

    def begin(self) -> bytes:
        message = self._message([], stop_reason=None, output_tokens=0)
        return sse({"type": "message_start", "message": message}, "message_start") + sse(
            {"type": "ping"}, "ping"
        )

    def end(self) -> bytes:
        delta = {"stop_reason": _STOP_REASONS[self.plan.answer.finish], "stop_sequence": None}
        usage = self._usage(len(self.plan.answer.words))
        return b"".join(
            (
                self._end_block(),
                sse({"type": "message_delta", "delta": delta, "usage": usage}, "message_delta"),
                sse({"type": "message_stop"}, "message_stop"),
            )
        )

    def fail(self, status: int, message: str) -> bytes:
        kind = "overloaded_error" if status == 529 else "api_error"
        return sse({"type": "error", "error": {"type": kind, "message": message}}, "error")

    def whole(self) -> bytes:
        answer = self.plan.answer
        content: list[dict[str, Any]] = []
        for kind, _, _ in answer.runs(0, len(answer.words)):
            block = self._empty_block(kind)
            if kind == "tool_call":
                block["input"] = tool_arguments(answer)
            else:
                block[_DELTAS[kind][1]] = answer.text(kind).decode()
            if kind == "reasoning":
                block["signature"] = _SIGNATURE
            content.append(block)
        stop_reason = _STOP_REASONS[answer.finish]
        return orjson.dumps(self._message(content, stop_reason=stop_reason, output_tokens=len(answer.words)))

    def _message(
        self, content: list[dict[str, Any]], *, stop_reason: str | None, output_tokens: int
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self.plan.id}",
            "type": "message",
            "role": "assistant",
            "model": self.plan.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self._usage(output_tokens),
        }

    def _usage(self, output_tokens: int) -> dict[str, int]:
        return {
            "input_tokens": self.plan.prompt_tokens - self.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.cached_tokens,
            "output_tokens": output_tokens,
        }

    def _empty_block(self, kind: TokenKind) -> dict[str, Any]:
        match kind:
            case "reasoning":
                return {"type": "thinking", "thinking": "", "signature": ""}
            case "content":
                return {"type": "text", "text": ""}
            case "tool_call":
                name = self.plan.answer.tool_name
                return {"type": "tool_use", "id": f"toolu_{self.plan.id}", "name": name, "input": {}}

    def _begin_block(self, kind: TokenKind) -> bytes:
        self._index += 1
        type_, field = _DELTAS[kind]
        event = {"type": "content_block_delta", "index": self._index, "delta": {"type": type_, field: "@"}}
        self._delta_head, self._delta_tail = split_event(event, "content_block_delta")
        start = {
            "type": "content_block_start",
            "index": self._index,
            "content_block": self._empty_block(kind),
        }
        return sse(start, "content_block_start")

    def _end_block(self) -> bytes:
        if self._kind is None:
            return b""
        last = b""
        if self._kind == "tool_call":
            last = self._delta(TOOL_ARGUMENT_TAIL)
        elif self._kind == "reasoning":
            delta = {"type": "signature_delta", "signature": _SIGNATURE}
            event = {"type": "content_block_delta", "index": self._index, "delta": delta}
            last = sse(event, "content_block_delta")
        return last + sse({"type": "content_block_stop", "index": self._index}, "content_block_stop")
