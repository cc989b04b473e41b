"""Pure: answers as the Responses API writes them."""

from collections.abc import Iterator
from typing import Any

import orjson

from aitrace.protocols.protocol import TokenKind
from replayer.engine.wire import TOOL_ARGUMENT_TAIL, ReplyPlan, ReplyWriter, split_event, sse, tool_arguments

_DELTAS: dict[TokenKind, tuple[str, dict[str, Any]]] = {
    "reasoning": ("reasoning_text", {"content_index": 0}),
    "content": ("output_text", {"content_index": 0, "logprobs": []}),
    "tool_call": ("function_call_arguments", {}),
}
_ITEM_PREFIXES: dict[TokenKind, str] = {"reasoning": "rs", "content": "msg", "tool_call": "fc"}


class ResponsesWriter(ReplyWriter):
    """`POST /v1/responses`."""

    def __init__(self, plan: ReplyPlan) -> None:
        super().__init__(plan)
        self._numbers = 0
        self._index = -1
        self._delta_middle = b""

    def prelude(self) -> bytes:
        response = self._response("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def begin(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return self._end_block() + self._event(f"response.{self._status()}", response=self._finished())

    def fail(self, status: int, message: str) -> bytes:
        code = "server_is_overloaded" if status in (503, 529) else "server_error"
        response = self._response("failed", []) | {"error": {"code": code, "message": message}}
        return self._event("response.failed", response=response)

    def whole(self) -> bytes:
        return orjson.dumps(self._finished())

    def _finished(self) -> dict[str, Any]:
        status = self._status()
        kinds = [kind for kind, _, _ in self._runs()]
        statuses = ["completed"] * (len(kinds) - 1) + [status]
        response = self._response(status, list(map(self._item, kinds, statuses)))
        response["usage"] = self._usage()
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return response

    def _usage(self) -> dict[str, Any]:
        answer = self.plan.answer
        return {
            "input_tokens": self.plan.prompt_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": len(answer.words),
            "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
            "total_tokens": self.plan.prompt_tokens + len(answer.words),
        }

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"resp_{self.plan.id}",
            "object": "response",
            "created_at": self.plan.created_unix_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": self.plan.max_output_tokens,
            "metadata": {},
            "model": self.plan.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None,
        }

    def _item_id(self, kind: TokenKind) -> str:
        return f"{_ITEM_PREFIXES[kind]}_{self.plan.id}"

    def _item(self, kind: TokenKind, status: str) -> dict[str, Any]:
        """An output item: empty while it is in progress, whole otherwise."""
        parts = [] if status == "in_progress" else [self._part(kind, self.plan.answer.text(kind).decode())]
        item: dict[str, Any] = {"id": self._item_id(kind), "status": status}
        match kind:
            case "reasoning":
                item |= {"type": "reasoning", "summary": [], "content": parts, "encrypted_content": None}
            case "content":
                item |= {"type": "message", "role": "assistant", "content": parts}
            case "tool_call":
                arguments = "" if status == "in_progress" else self._arguments()
                item |= {
                    "type": "function_call",
                    "call_id": f"call_{self.plan.id}",
                    "name": self.plan.answer.tool_name,
                    "arguments": arguments,
                }
        return item

    def _part(self, kind: TokenKind, text: str) -> dict[str, Any]:
        if kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _arguments(self) -> str:
        return orjson.dumps(tool_arguments(self.plan.answer)).decode()

    def _begin_block(self, kind: TokenKind) -> bytes:
        self._index += 1
        out = self._event(
            "response.output_item.added", output_index=self._index, item=self._item(kind, "in_progress")
        )
        if kind != "tool_call":
            out += self._event(
                "response.content_part.added", **self._place(kind), content_index=0, part=self._part(kind, "")
            )
        name, fields = _DELTAS[kind]
        type_ = f"response.{name}.delta"
        head, tail = split_event({**self._place(kind), **fields, "delta": "@"})
        opening = b'event: %b\ndata: {"type":"%b","sequence_number":' % (type_.encode(), type_.encode())
        self._delta_head = opening
        self._delta_middle = b"," + head.removeprefix(b"data: {")
        self._delta_tail = tail
        return out

    def _delta(self, text: bytes) -> bytes:
        return b"%b%d%b%b%b" % (
            self._delta_head,
            self._next_number(),
            self._delta_middle,
            text,
            self._delta_tail,
        )

    def _end_block(self) -> bytes:
        if self._kind is None:
            return b""
        kind, place = self._kind, self._place(self._kind)
        # Only the last item is cut by the limit; those before it are complete.
        is_last = self._index == sum(1 for _ in self._runs()) - 1
        status = self._status() if is_last else "completed"
        if kind == "tool_call":
            out = self._delta(TOOL_ARGUMENT_TAIL)
            out += self._event(
                "response.function_call_arguments.done",
                **place,
                name=self.plan.answer.tool_name,
                arguments=self._arguments(),
            )
        else:
            text = self.plan.answer.text(kind).decode()
            name, fields = _DELTAS[kind]
            out = self._event(f"response.{name}.done", **place, **fields, text=text)
            part = self._part(kind, text)
            out += self._event("response.content_part.done", **place, content_index=0, part=part)
        return out + self._event(
            "response.output_item.done", output_index=self._index, item=self._item(kind, status)
        )

    def _runs(self) -> Iterator[tuple[TokenKind, int, int]]:
        return self.plan.answer.runs(0, len(self.plan.answer.words))

    def _status(self) -> str:
        return "incomplete" if self.plan.answer.finish == "length" else "completed"

    def _place(self, kind: TokenKind) -> dict[str, Any]:
        return {"item_id": self._item_id(kind), "output_index": self._index}

    def _event(self, type_: str, **fields: Any) -> bytes:
        return sse({"type": type_, "sequence_number": self._next_number(), **fields}, type_)

    def _next_number(self) -> int:
        number = self._numbers
        self._numbers += 1
        return number
