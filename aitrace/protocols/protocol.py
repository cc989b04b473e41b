"""Pure: what a wire protocol must be able to do, and the values it deals in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from aitrace.schema import ProtocolName, Role, SegmentType, Usage
from aitrace.sse import SseEvent

TokenKind = Literal["content", "reasoning", "tool_call"]
"""What a delta carries; only `content` is visible to a person."""
PartKind = Literal["text", "tool_use", "tool_result"]


class MalformedRequestError(Exception):
    """A request body that this protocol does not allow; the text says which field and what was expected."""


class MalformedResponseError(Exception):
    """A response body that is not of this protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPart:
    """One piece of a request's prompt, in the order in which a prefix cache sees it."""

    role: Role
    """Who speaks."""
    type: SegmentType
    """What it is."""
    text: str
    """Its text; JSON with sorted keys where the protocol has structure."""
    tool_id: str | None = None
    """Id that joins a tool result with its call; None for other types."""
    tool_name: str | None = None
    """Name of the tool; None for other types, and for results, which carry none."""

    @property
    def is_users_text(self) -> bool:
        """Whether it is a text in the user's role, which a person may have typed."""
        return self.role == "user" and self.type == "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as read from the wire."""

    model: str
    """Model asked for."""
    stream: bool
    """Whether the answer is to be streamed."""
    max_output_tokens: int | None
    """Limit on the answer; None if the request sets none."""
    parts: tuple[RequestPart, ...]
    """The prompt: tools, system, messages."""
    body: Mapping[str, Any]
    """The decoded body, for fields that only one engine knows (`ignore_eos`, `min_tokens`, `stream_options`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer that was not streamed."""

    usage: Usage
    """Tokens as reported."""
    finish: str | None
    """Finish reason in the protocol's own word; None if it gave none."""
    text: str
    """Answer text, without reasoning and tool calls."""
    tool_names: tuple[str, ...]
    """Names of the tools called, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WirePart:
    """One piece of a message to be written."""

    kind: PartKind
    """How it is written."""
    text: bytes
    """JSON string content: escaped UTF-8 without the quotes."""
    tool_id: str = ""
    """Joins a tool result with its call; empty for text."""
    tool_name: str = ""
    """Name of the tool called; empty for text and results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireMessage:
    """Adjacent pieces of one speaker."""

    role: Literal["user", "assistant"]
    """Who speaks; tool results are the user's, as text or as `tool_result` parts."""
    parts: tuple[WirePart, ...]
    """At least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """A request to be written."""

    model: str
    """Model to ask for."""
    tools: Sequence[bytes] = ()
    """Descriptions of the tools, escaped as in `WirePart`; names are made up (`tool_0`)."""
    system: bytes = b""
    """System prompt, escaped; empty for none."""
    messages: Sequence[WireMessage] = ()
    """The conversation."""
    max_output_tokens: int
    """Limit on the answer."""
    stream: bool = True
    """Whether to stream."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further top-level fields of the body."""


class StreamReader(Protocol):
    """What one streamed answer has said so far."""

    usage: Usage
    """Latest report, merged over the stream."""
    finish: str | None
    """Finish reason; None until it came."""
    done: bool
    """Whether the protocol's own end was seen: without it the stream was cut."""
    error: str | None
    """Text of an error event; None if there was none."""
    text: list[str]
    """Deltas of answer text."""
    ended_tools: list[str]
    """Names of the tool calls whose block has ended."""
    unparsed_events: int
    """Events whose data could not be read."""

    def read(self, event: SseEvent) -> TokenKind | None:
        """Take in one event; tells what kind of token it carried, None for anything else (role only, ping, usage)."""
        ...


class WireProtocol(Protocol):
    """One wire protocol, both directions."""

    name: ProtocolName
    """Its name in traces and options."""
    path: str
    """Path of generation requests below the base URL (`/v1/messages`)."""

    def read_request(self, body: bytes) -> Request:
        """The request in a body.

        Raises:
            MalformedRequestError: with the field and what was expected there.
        """
        ...

    def write_request(self, spec: RequestSpec) -> bytes:
        """The body that asks for this: the frame around start and messages, without the comma behind the last one."""
        ...

    def write_frame(self, spec: RequestSpec) -> tuple[bytes, bytes]:
        """What stands before and after the prompt; tools, system and messages of `spec` are not looked at."""
        ...

    def write_start(self, tools: Sequence[bytes], system: bytes) -> bytes:
        """The prompt up to the first message of the conversation."""
        ...

    def write_messages(self, messages: Sequence[WireMessage], first: int = 0) -> bytes:
        """Messages, each with a comma behind it; `first` says how many of the conversation come before."""
        ...

    def read_reply(self, body: bytes) -> Reply:
        """The answer in a body.

        Raises:
            MalformedResponseError: it is not of this protocol, or an error.
        """
        ...

    def open_stream(self) -> StreamReader:
        """A reader for one streamed answer."""
        ...

    def read_error(self, body: bytes) -> str:
        """Text of an error body; the start of the body itself if it is not in the protocol's shape."""
        ...

    def write_error(self, status: int, message: str) -> bytes:
        """Body of an error as this protocol's servers send it."""
        ...
