"""Pure: reads conversations of the kv-cache-tester format ("Weka" traces) and of its SemiAnalysis relative.

One JSON object per conversation. Columns that a row may lack are read as not known; what a call needs (`t`, `in`)
is demanded. `aitrace.formats.weka_tree` orders the calls, `aitrace.formats.weka_lines` writes them.

Good: {"id": "trace_0001", "block_size": 64, "requests": [{"t": 0.0, "in": 70, "out": 5, "hash_ids": [1]}]}
Good: {"block_size": 64, "requests": [{"t": 0.25, "in": 70, "hash_ids": [1, 2]}]} (the last block is partial)
Bad:  {"id": "trace_0001", "requests": []} (no block size)
Bad:  {"block_size": 64, "requests": [{"in": 70, "hash_ids": [1]}]} (no time)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypedDict

from aitrace.errors import InputError, shown
from aitrace.formats.format import (
    agent_kind_from_name,
    block_ids,
    demand_format,
    finish_from_name,
    label_from_name,
    model_from_name,
    ns_from_number,
    optional_whole_number,
    whole_number,
)
from aitrace.schema import BlockScope
from aitrace.units import NS_PER_MS, NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class WekaCall:
    """One request of the source."""

    place: str
    """Where it stands in the source."""
    t_ns: int
    """Start, from the start of its agent, ns."""
    api_ns: int | None
    """Duration of the request, ns; None if the answer was not captured."""
    ttft_ns: int | None
    """Time to first token, ns; None if not told."""
    input_tokens: int
    """Tokens of the prompt."""
    output_tokens: int | None
    """Tokens of the answer; None if not told."""
    hash_ids: tuple[int, ...]
    """Ids of its blocks as the source has them."""
    model: str | None
    """Model asked for; None if not told."""
    streamed: bool | None
    """Whether the answer was streamed; None if not told."""
    input_types: frozenset[str] | None
    """Kinds of content the request added; None if not told."""
    output_types: frozenset[str] | None
    """Kinds of content of the answer; None if not told, or if the answer was not captured."""
    stop: str | None
    """Stop reason; None if not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WekaAgent:
    """The main agent of a conversation, or one of its sub-agents."""

    place: str
    """Where it stands in the source."""
    label: str | None
    """Its name; None if there is none that may be kept."""
    kind: str | None
    """Kind of sub-agent (`Explore`), `custom` if somebody named it; None for the main agent or if not told."""
    t_ns: int
    """`t` of its entry, from the start of the conversation, ns; 0 for the main agent."""
    duration_ns: int | None
    """Its whole duration, ns; None for the main agent or if not told."""
    tool_tokens: int
    """Length of its tool definitions; 0 if not told."""
    system_tokens: int
    """Length of its system prompt after the tools; 0 if not told."""
    calls: tuple[WekaCall, ...]
    """Its calls in order of `t`."""
    reordered: int
    """Calls that stood before an earlier one in the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WekaConversation:
    """One conversation: a main agent and its sub-agents."""

    place: str
    """Where it stands in the source."""
    block_size: int
    """Tokens of a full block."""
    block_scope: BlockScope
    """`tree` where `hash_id_scope` is `local` or missing."""
    main: WekaAgent
    """The main agent."""
    children: tuple[WekaAgent, ...]
    """Sub-agents that made calls, in order of the file."""
    idle_children: int
    """Sub-agent entries without a single call."""

    def calls(self) -> Iterator[WekaCall]:
        """All calls, the main agent's first."""
        for agent in (self.main, *self.children):
            yield from agent.calls

    @property
    def resolution_ns(self) -> int:
        """Steps in which the calls' times are given: 1 s if all are whole seconds, else 1 ms."""
        whole = all(call.t_ns % NS_PER_S == 0 for call in self.calls())
        return NS_PER_S if whole else NS_PER_MS


def conversation_from_json(document: object, place: str) -> WekaConversation:
    """The conversation that a JSON document describes.

    Raises:
        InputError: If the document is not of this format; the text names the place.
    """
    if not isinstance(document, Mapping):
        raise InputError(f"{place}: expected an object with 'requests', got {type(document).__name__}")
    demand_format(document, place, "weka")
    block_size = whole_number(document, "block_size", place)
    if block_size == 0:
        raise InputError(f"{place}: 'block_size' is 0, expected the tokens of a block")
    rows = _rows(document, place)
    main_rows = [(at, row) for at, row in rows if row.get("type") != "subagent"]
    children = [_child(row, at) for at, row in rows if row.get("type") == "subagent"]
    return WekaConversation(
        place=place,
        block_size=block_size,
        block_scope=_block_scope(document, place),
        main=WekaAgent(
            place=place,
            label=label_from_name(document.get("id")),
            kind=None,
            t_ns=0,
            duration_ns=None,
            tool_tokens=optional_whole_number(document, "tool_tokens", place) or 0,
            system_tokens=optional_whole_number(document, "system_tokens", place) or 0,
            **_calls(main_rows),
        ),
        children=tuple(child for child in children if child.calls),
        idle_children=sum(not child.calls for child in children),
    )


def _block_scope(document: Mapping[str, Any], place: str) -> BlockScope:
    match document.get("hash_id_scope"):
        case None | "local":
            return "tree"
        case "global":
            return "trace"
        case other:
            raise InputError(f"{place}: 'hash_id_scope' is {shown(other)}, expected 'local' or 'global'")


def _rows(document: Mapping[str, Any], place: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The entries of `requests`, each with its place."""
    rows = document.get("requests")
    if rows is None:
        rows = []
    if not isinstance(rows, list):
        raise InputError(f"{place}: 'requests' is {type(rows).__name__}, expected a list")
    placed = [(f"{place}: requests[{i}]", row) for i, row in enumerate(rows)]
    for at, row in placed:
        if not isinstance(row, Mapping):
            raise InputError(f"{at}: expected an object, got {type(row).__name__}")
    return placed


def _child(row: Mapping[str, Any], place: str) -> WekaAgent:
    duration_ms = row.get("duration_ms")
    rows = _rows(row, place)
    for at, inner in rows:
        if inner.get("type") == "subagent":
            raise InputError(f"{at}: a sub-agent inside a sub-agent, expected a flat list of requests")
    return WekaAgent(
        place=place,
        label=label_from_name(row.get("agent_id")),
        kind=agent_kind_from_name(row.get("subagent_type")),
        t_ns=ns_from_number(row.get("t"), per_unit_ns=NS_PER_S, name="t", place=place),
        duration_ns=None
        if duration_ms is None
        else ns_from_number(duration_ms, per_unit_ns=NS_PER_MS, name="duration_ms", place=place),
        tool_tokens=optional_whole_number(row, "tool_tokens", place) or 0,
        system_tokens=optional_whole_number(row, "system_tokens", place) or 0,
        **_calls(rows),
    )


class _Ordered(TypedDict):
    """The fields of `WekaAgent` that come from its rows."""

    calls: tuple[WekaCall, ...]
    """In order of time."""
    reordered: int
    """Rows that stood before an earlier one."""


def _calls(rows: list[tuple[str, Mapping[str, Any]]]) -> _Ordered:
    calls = [_call(row, at) for at, row in rows]
    reordered = sum(later.t_ns < earlier.t_ns for earlier, later in pairwise(calls))
    return _Ordered(calls=tuple(sorted(calls, key=lambda call: call.t_ns)), reordered=reordered)


def _call(row: Mapping[str, Any], place: str) -> WekaCall:
    output_types = _types(row, "output_types", place)
    return WekaCall(
        place=place,
        t_ns=ns_from_number(row.get("t"), per_unit_ns=NS_PER_S, name="t", place=place),
        api_ns=_optional_ns(row, "api_time", place),
        ttft_ns=_optional_ns(row, "ttft", place),
        input_tokens=whole_number(row, "in", place),
        output_tokens=optional_whole_number(row, "out", place),
        hash_ids=block_ids(row, place),
        model=model_from_name(row.get("model")),
        streamed={"s": True, "n": False}.get(str(row.get("type"))),
        input_types=_types(row, "input_types", place),
        output_types=output_types or None,
        stop=finish_from_name(row.get("stop")),
    )


def _optional_ns(row: Mapping[str, Any], name: str, place: str) -> int | None:
    value = row.get(name)
    return None if value is None else ns_from_number(value, per_unit_ns=NS_PER_S, name=name, place=place)


def _types(row: Mapping[str, Any], name: str, place: str) -> frozenset[str] | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(kind, str) for kind in value):
        raise InputError(f"{place}: {name!r} is {shown(value)}, expected a list of words")
    return frozenset(value)
