"""Pure: answers as the Chat Completions API writes them."""

from typing import Any

import orjson

from aitrace.protocols.bodies import write_openai_error
from aitrace.protocols.protocol import TokenKind
from replayer.engine.answers import Finish
from replayer.engine.wire import TOOL_ARGUMENT_TAIL, ReplyWriter, split_event, sse, tool_arguments

_FINISH_REASONS: dict[Finish, str] = {"stop": "stop", "length": "length", "tool_call": "tool_calls"}
_DONE = b"data: [DONE]\n\n"


class ChatWriter(ReplyWriter):
    """`POST /v1/chat/completions`."""

    def begin(self) -> bytes:
        return sse(self._chunk({"role": "assistant", "content": ""}))

    def end(self) -> bytes:
        out = [self._end_block(), sse(self._chunk({}, _FINISH_REASONS[self.plan.answer.finish]))]
        if self.plan.include_usage:
            out.append(sse(self._envelope("chat.completion.chunk", []) | {"usage": self._usage()}))
        return b"".join((*out, _DONE))

    def fail(self, status: int, message: str) -> bytes:
        return b"data: %b\n\n%b" % (write_openai_error(status, message), _DONE)

    def whole(self) -> bytes:
        answer = self.plan.answer
        message: dict[str, Any] = {
            "role": "assistant",
            "content": answer.text("content").decode(),
            "refusal": None,
        }
        if answer.reasoning_tokens:
            message["reasoning_content"] = answer.text("reasoning").decode()
        if answer.tool_call_tokens:
            arguments = orjson.dumps(tool_arguments(answer)).decode()
            message["tool_calls"] = [self._tool_call(arguments)]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISH_REASONS[answer.finish],
        }
        return orjson.dumps(self._envelope("chat.completion", [choice]) | {"usage": self._usage()})

    def _envelope(self, object_: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.plan.id}",
            "object": object_,
            "created": self.plan.created_unix_s,
            "model": self.plan.model,
            "choices": choices,
        }

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = self._envelope("chat.completion.chunk", [choice])
        # With usage asked for, every chunk has the field, and only the last one a value.
        return chunk | {"usage": None} if self.plan.include_usage else chunk

    def _usage(self) -> dict[str, Any]:
        output_tokens = len(self.plan.answer.words)
        return {
            "prompt_tokens": self.plan.prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": self.plan.prompt_tokens + output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.plan.answer.reasoning_tokens},
        }

    def _tool_call(self, arguments: str) -> dict[str, Any]:
        function = {"name": self.plan.answer.tool_name, "arguments": arguments}
        return {"id": f"call_{self.plan.id}", "type": "function", "function": function}

    def _begin_block(self, kind: TokenKind) -> bytes:
        opening = b""
        match kind:
            case "reasoning":
                delta: dict[str, Any] = {"reasoning_content": "@"}
            case "content":
                delta = {"content": "@"}
            case "tool_call":
                delta = {"tool_calls": [{"index": 0, "function": {"arguments": "@"}}]}
                opening = sse(self._chunk({"tool_calls": [{"index": 0} | self._tool_call("")]}))
        self._delta_head, self._delta_tail = split_event(self._chunk(delta))
        return opening

    def _end_block(self) -> bytes:
        return self._delta(TOOL_ARGUMENT_TAIL) if self._kind == "tool_call" else b""
