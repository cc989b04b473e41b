"""Pure: what an assembler is told of a call: its request, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aitrace.harnesses.detector import Identity
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallTimes, Events, Outcome, ProtocolName, ToolCall, Usage, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request that has just been seen whole."""

    identity: Identity
    """Who asks; where `session` is None the assembler infers it from the prompt."""
    scope: str = ""
    """What an inferred session must share with its earlier calls besides its prompt, such as a connection or key;
    empty for nothing."""
    protocol: ProtocolName | None
    """Wire protocol; None if the source does not tell."""
    model: str | None
    """Model asked for."""
    parts: tuple[RequestPart, ...]
    """The whole prompt, normalised."""
    typed: tuple[int, ...] | None = None
    """Places in `parts` of the texts that a person typed, as far as the harness's own can be told from them
    (`Detector.is_synthetic`); None where they cannot: then every text of the user's role counts as typed."""
    result_durations: Mapping[str, int] = field(default_factory=dict)
    """How long tools ran, ns, by the tool id of their results, as far as the results' texts tell
    (`Detector.tool_duration_ns`); results of earlier prompts may be among them."""
    spawned_by: str | None = None
    """Tool id of the parent's tool call that started this session; None if the source does not tell, as on the
    wire: then it is found by name and order."""
    unseen_start: bool = False
    """Whether `parts` continue a prompt that was not seen."""
    max_output_tokens: int | None = None
    """The request's own limit."""
    streamed: bool | None = None
    """Whether the answer is to be streamed; None if not known."""
    request_ns: int
    """The request was complete, on the trace's clock."""
    wire: Wire | None = None
    """How it was carried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a call ended. Names of tools are as on the wire; the assembler hashes those that somebody made up."""

    outcome: Outcome
    """How it ended."""
    usage: Usage = field(default_factory=Usage)
    """Tokens as reported."""
    times: CallTimes
    """When."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """Tool calls of the answer, in order; None if not known."""
    tool_ids: tuple[str | None, ...] = ()
    """Ids of `tool_calls`, one for each; empty if not known: then they are taken from the next prompt, which repeats
    the answer."""
    events: Events | None = None
    """Timeline of the response."""
    wire: Wire | None = None
    """How it was carried, completed."""
