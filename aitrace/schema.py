"""Pure: the trace format as frozen dataclasses; docs/format.md is the normative text.

A trace is a header, then sessions, segments and calls in any order in which everything is written before it is
referred to, then a footer. All times are ns offsets on the clock that the header describes. `None` always means
"not known"; each field says why it can be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

FORMAT_VERSION = 2
MAX_COUNT = 2**40
"""Most units of one segment and most tokens of one call, so that sums over a trace fit into 64 bits."""

Unit = Literal["bytes", "tokens"]
Privacy = Literal["hash", "content"]
ClockScope = Literal["trace", "tree"]
BlockScope = Literal["trace", "tree"]
CaptureMode = Literal["forward", "reverse"]
Transport = Literal["http/1.1", "h2", "websocket"]
ProtocolName = Literal["anthropic", "responses", "chat"]
Role = Literal["system", "user", "assistant", "tool"]
SegmentType = Literal[
    "tool_definition", "system", "text", "thinking", "tool_use", "tool_result", "image", "opaque"
]
CallClass = Literal["main", "subagent", "workflow", "compaction", "auxiliary", "count_tokens", "unknown"]
Relation = Literal["sequence", "spawn", "join", "retry"]
Trigger = Literal["completion", "dispatch"]
GapCause = Literal["tool", "user", "harness", "backoff", "unknown"]
ErrorKind = Literal[
    "refused",  # 429, 503 or 529: the endpoint has no room
    "http_error",  # any other status of 300 and above
    "connect",  # no connection came about
    "timeout",  # a limit of ours ran out
    "cut",  # the stream stopped before the protocol's own end
    "error_event",  # an error inside a stream that had begun, or as the body of an answer with status 200
    "malformed",  # the answer is not of this protocol
    "client_abort",  # the client went away, or a replay was stopped
    "unrecorded",  # how it ended is not known: the recorder stopped before, or had to drop what it saw
]
EndedBy = Literal["server", "client", "recorder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a trace."""

    version: int = FORMAT_VERSION
    """Version of the format; one integer, apart from the program's version."""
    producer: str
    """Program and version that wrote the file."""
    created_unix_ns: int | None = None
    """Wall time of writing, ns since 1970; None where a reproducible file is wanted."""
    clock_unix_ns: int | None = None
    """Wall time of offset 0, ns since 1970; None where the source gives only relative times."""
    clock_scope: ClockScope = "trace"
    """`trace`: all offsets lie on one clock; `tree`: each tree counts from its own start, so the time between trees
    is not known."""
    clock_resolution_ns: int | None = None
    """Steps in which the source gives call times, ns; None if not known."""
    unit: Unit
    """What `Segment.size` and `block_size` count."""
    block_size: int
    """Size of a full block, in `unit`."""
    block_scope: BlockScope = "trace"
    """`tree`: equal content in two trees cannot be told, since the source's ids are local to one conversation."""
    privacy: Privacy = "hash"
    """`hash`: the file holds no text; `content`: segments carry theirs."""
    source: str | None = None
    """Name of the format or harness the trace comes from; None if it was made by hand."""
    capture: CaptureMode | None = None
    """How the recorder stood between client and endpoint: `forward`, a proxy with a certificate authority of its own,
    or `reverse`, as the client's base URL. Clients send other headers and prompts in each. None if the trace was not
    taken from the wire."""
    attribution: str | None = None
    """Whose data this is and under which licence; None if nobody needs naming."""
    normalised: tuple[str, ...] = ()
    """Rules that were applied to prompts before hashing."""
    unknown: tuple[str, ...] = ()
    """What the source could not tell, one sentence each."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the line that this version does not know; written back as they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One chain of reasoning and tool use: a main agent or one sub-agent."""

    id: int
    """Dense integer in order of appearance."""
    parent: int | None = None
    """Session that spawned this one; None for a root."""
    root: int
    """Session at the top of the tree; its own id for a root."""
    harness: str | None = None
    """`claude-code`, `codex`, `opencode`, …; None if not known."""
    agent: str | None = None
    """Kind of agent as the harness names it (`Explore`); None for a main agent or if not told."""
    harness_version: str | None = None
    """Version of the harness (`2.1.332`); None if not told."""
    evidence: tuple[str, ...] = ()
    """Rules that told whose calls these are and what the first is for (`claude-code/session-header`,
    `inferred/prefix`); empty where the source says it outright."""
    label: str | None = None
    """Name in the source (`trace_0015`); never a user's id. None if there is none."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the line that this version does not know; written back as they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One content-addressed piece of prompts, stored once."""

    id: int
    """Dense integer in order of appearance."""
    role: Role
    """Who speaks; tool definitions have `system`."""
    type: SegmentType
    """What it is."""
    size: int
    """Size in `Header.unit`; all blocks are full but the last, which has what remains."""
    blocks: tuple[tuple[int, int], ...]
    """Ids of its blocks as runs (first id, how many), in order. Ids are dense integers in order of appearance, so a
    new segment is mostly one run. Equal ids mean equal content at least up to the end of that block, counted from
    the segment's start."""
    text: str | None = None
    """The text itself; None unless the header says `content`."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the line that this version does not know; written back as they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as the first `keep` segments of an earlier call's prompt and new ones."""

    base: int | None = None
    """Call whose prompt is continued; None if nothing is kept."""
    keep: int = 0
    """Number of segments kept from the start of the base prompt."""
    add: tuple[int, ...] = ()
    """Segments that follow."""
    unseen_start: bool = False
    """Whether more came before the first segment: a prompt that continues an answer from before the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the endpoint reported them; None = not reported."""

    input_tokens: int | None = None
    """All prompt tokens, cached ones included (Anthropic's three counters added up)."""
    cache_read_tokens: int | None = None
    """Prompt tokens served from a cache."""
    cache_write_5m_tokens: int | None = None
    """Prompt tokens written to a cache with the short lifetime, or with one not told."""
    cache_write_1h_tokens: int | None = None
    """Prompt tokens written to a cache with the long lifetime."""
    output_tokens: int | None = None
    """Generated tokens, reasoning included."""
    reasoning_tokens: int | None = None
    """Generated tokens that were reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call the model emitted."""

    name: str | None = None
    """Well-known tool name, or a keyed hash of it; None if not known."""
    end_ns: int | None = None
    """When its block ended in the stream; None if not streamed or not known."""
    duration_ns: int | None = None
    """How long the tool ran; None where the client does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended."""

    status: int | None = None
    """HTTP status; None if no headers came or the source does not tell."""
    error: ErrorKind | None = None
    """None = a complete answer."""
    finish: str | None = None
    """Finish reason in the protocol's own word; None if none was given."""
    retry_after_ns: int | None = None
    """Wait asked for by `Retry-After`; None if the header was absent."""
    ended_by: EndedBy = "server"
    """Who closed the exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """Points of one call on the trace's clock, ns; None = did not happen or not known."""

    request_ns: int
    """The request was complete at the recorder (start of the call)."""
    forwarded_ns: int | None = None
    """The last byte of the request was passed on."""
    headers_ns: int | None = None
    """Response status and headers."""
    first_byte_ns: int | None = None
    """First byte of the response body."""
    first_event_ns: int | None = None
    """First event of the stream, of any type."""
    first_token_ns: int | None = None
    """First content, reasoning or tool-call delta; never a role-only chunk or a ping."""
    first_visible_ns: int | None = None
    """First delta of answer text that a person would see."""
    last_token_ns: int | None = None
    """Last content, reasoning or tool-call delta."""
    end_ns: int | None = None
    """The response was complete, or broke off; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Timeline of a streamed response: when each event came and how many bytes it had."""

    at_ns: tuple[int, ...] = ()
    """Points on the trace's clock, ns; written as differences."""
    size_bytes: tuple[int, ...] = ()
    """Bytes of each event's data; as many as `at_ns`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How a call was carried, as the recorder saw it; None = not known."""

    transport: Transport | None = None
    """What carried it from the client to the recorder."""
    connection: int | None = None
    """The client's connection: dense integer in order of appearance."""
    connect_ns: int | None = None
    """How long this call waited for a connection from the recorder to the endpoint, ns; 0 if there was one."""
    request_bytes: int | None = None
    """Bytes of the request's body as sent, that is, compressed if it was."""
    response_bytes: int | None = None
    """Bytes of the response's body as sent."""
    request_encoding: str | None = None
    """Content-encoding of the request (`zstd`); None if it had none."""
    response_encoding: str | None = None
    """Content-encoding of the response. A compressed stream may show its events later than they were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """What a call waited for before it was dispatched."""

    call: int
    """The call waited for; always an earlier line of the trace."""
    relation: Relation
    """`sequence`: the previous call of the session; `spawn`: the call that created this session; `join`: the last
    call of a sub-agent whose result this prompt carries; `retry`: the attempt this one repeats."""
    trigger: Trigger = "completion"
    """Which moment of that call counts."""
    gap_ns: int | None = None
    """From the trigger to this call's request, ns; below 0 if they overlapped, None if the trigger's time is not
    known."""
    cause: GapCause = "unknown"
    """What filled the gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt at one LLM request and its response."""

    id: int
    """Dense integer in order of appearance."""
    session: int
    """The session it belongs to."""
    turn: int | None = None
    """Index of the user's prompt within the tree that caused it, from 0; None if not known."""
    window: int = 0
    """Number of times the session's history had been replaced (compaction, resume) before this call."""
    call_class: CallClass = "unknown"
    """What the call is for."""
    protocol: ProtocolName | None = None
    """Wire protocol; None if the source does not tell."""
    model: str | None = None
    """Model asked for; None if the source does not tell."""
    prompt: Prompt
    """What was asked."""
    max_output_tokens: int | None = None
    """The request's own limit; None if it set none or it is not known."""
    streamed: bool | None = None
    """Whether the answer was streamed; None if not known."""
    usage: Usage = field(default_factory=Usage)
    """Tokens as reported."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """Tool calls of the answer, in order; None if not known."""
    tool_results: int | None = None
    """Tool results that the prompt adds; None if not known."""
    outcome: Outcome = field(default_factory=Outcome)
    """How it ended."""
    attempt: int = 1
    """1 for the first try."""
    retry_of: int | None = None
    """The call that this one repeats; None for a first try."""
    times: CallTimes
    """When."""
    events: Events | None = None
    """Timeline of the response; None if not streamed or not kept."""
    after: tuple[Dependency, ...] = ()
    """What it waited for; empty for the first call of a tree."""
    wire: Wire | None = None
    """How it was carried; None if the trace was not taken from the wire."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the line that this version does not know; written back as they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What became known of a call after its line was written. Each field replaces the call's own; None = no change.

    A recorder writes a call when it begins, with the outcome `unrecorded`, and an update when it ends, so that a crash
    leaves what was known. Readers put them together: `Trace.calls` holds whole calls.
    """

    call: int
    """The call, an earlier line."""
    usage: Usage | None = None
    """As in `Call`."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """As in `Call`."""
    outcome: Outcome | None = None
    """As in `Call`."""
    times: CallTimes | None = None
    """As in `Call`."""
    events: Events | None = None
    """As in `Call`."""
    wire: Wire | None = None
    """As in `Call`."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the line that this version does not know; written back as they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The last line; its absence means that the writer did not end cleanly."""

    sessions: int
    """Session lines written."""
    segments: int
    """Segment lines written."""
    calls: int
    """Call lines written."""
    blocks: int
    """Distinct block ids used."""
    dropped_calls: int = 0
    """Calls seen but not written."""
    notes: dict[str, int] = field(default_factory=dict)
    """Other counts of the writer, by name with unit (`queue_high_water_calls`, `parse_errors`)."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the line that this version does not know; written back as they came."""


Line = Header | Session | Segment | Call | Update | Footer


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A whole trace, in memory or, where its lines are decoded as they are asked for, on disk."""

    header: Header
    """The first line."""
    sessions: tuple[Session, ...]
    """By id: `sessions[i].id == i`."""
    segments: Sequence[Segment]
    """By id."""
    calls: Sequence[Call]
    """By id."""
    footer: Footer | None = None
    """None if the file has no clean end."""
