"""Pure: what the three ways of writing an answer have in common.

A stream is `prelude` (with the headers), `begin` (with the first token), `tokens` once or more, then `end`, or `fail`
in the place of anything. The text of a delta is put between bytes that are made once per block.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import orjson

from aitrace.protocols.protocol import TokenKind
from replayer.engine.answers import Answer

TOOL_ARGUMENT_HEAD = b'{\\"text\\":\\"'
TOOL_ARGUMENT_TAIL = b'\\"}'
"""A tool call's arguments are `{"text":"…"}`; these are its ends as JSON string content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPlan:
    """All that is known of an answer before the cache is asked."""

    id: str
    """Distinct part of all ids in it."""
    model: str
    """Model asked for."""
    created_unix_s: int
    """Wall time of the request, s since 1970."""
    prompt_tokens: int
    """Tokens of the prompt."""
    answer: Answer
    """What to say."""
    max_output_tokens: int | None = None
    """The request's limit; None if it set none."""
    include_usage: bool = True
    """Whether a stream reports usage where the protocol leaves that to the client."""


class ReplyWriter(ABC):
    """Writes one answer in one protocol, streamed or whole."""

    def __init__(self, plan: ReplyPlan) -> None:
        self.plan = plan
        self.cached_tokens = 0
        """Prompt tokens served from the cache; set before anything but the prelude is written."""
        self._kind: TokenKind | None = None
        self._delta_head = b""
        self._delta_tail = b""

    def prelude(self) -> bytes:
        """What follows the headers at once."""
        return b""

    @abstractmethod
    def begin(self) -> bytes:
        """What comes before the first token."""

    def tokens(self, first: int, end: int) -> bytes:
        """Tokens `first` to before `end`: one event, or one for each kind of token among them."""
        answer = self.plan.answer
        out: list[bytes] = []
        for kind, run_first, run_end in answer.runs(first, end):
            text = b" ".join(answer.words[run_first:run_end])
            if kind == self._kind:
                text = b" " + text
            else:
                out.append(self._end_block())
                out.append(self._begin_block(kind))
                self._kind = kind
                if kind == "tool_call":
                    text = TOOL_ARGUMENT_HEAD + text
            out.append(self._delta(text))
        return b"".join(out)

    @abstractmethod
    def end(self) -> bytes:
        """The rest of the stream after the last token."""

    @abstractmethod
    def fail(self, status: int, message: str) -> bytes:
        """An error in the place of the rest of the stream."""

    @abstractmethod
    def whole(self) -> bytes:
        """The body of an answer that is not streamed."""

    @abstractmethod
    def _begin_block(self, kind: TokenKind) -> bytes:
        """Events that open a block; sets the head and tail of its deltas."""

    @abstractmethod
    def _end_block(self) -> bytes:
        """Events that close the open block, if there is one."""

    def _delta(self, text: bytes) -> bytes:
        return self._delta_head + text + self._delta_tail


def sse(value: Any, event: str | None = None) -> bytes:
    """One server-sent event with a JSON value as its data."""
    name = b"" if event is None else b"event: %b\n" % event.encode()
    return b"%bdata: %b\n\n" % (name, orjson.dumps(value))


def split_event(value: Any, event: str | None = None) -> tuple[bytes, bytes]:
    """Such an event cut where its data has the string `"@"`: what comes before and after the string's content."""
    head, _, tail = sse(value, event).partition(b'"@"')
    return head + b'"', b'"' + tail


def tool_arguments(answer: Answer) -> dict[str, str]:
    """Arguments of the answer's tool call, decoded."""
    return {"text": answer.text("tool_call").decode()}
