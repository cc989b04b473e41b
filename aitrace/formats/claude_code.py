"""Pure: reads transcripts of Claude Code: one file per session, and one per sub-agent.

The rules, which docs/convert.md explains:

1. Lines of one answer share `message.id`; the last one's usage counts, its time is the end.
2. A call's prompt is what the log of requests says (`claude_requests`), else the conversation up to the answer.
3. A call starts when the log of requests says, else with the last input before the answer.
4. A boundary of compaction replaces the conversation; a prompt that continues an older line takes back what followed.
5. An answer that another transcript told before is a copy and no call.

Good: {"type": "user", "uuid": "a", "timestamp": "2026-11-30T03:08:55.837Z", "message": {"role": "user", "content": "hi"}}
Good: {"type": "assistant", "parentUuid": "a", "timestamp": "…", "message": {"id": "msg_1", "content": […], "usage": {…}}}
Bad:  {"type": "assistant", "parentUuid": "a", "message": {"id": "msg_1"}} (no time: that of the line before counts)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from aitrace.formats.claude_requests import LoggedRequest, RequestLog
from aitrace.formats.format import finish_from_name, model_from_name
from aitrace.formats.history import HistoryCall, HistoryReading, without_steps_back
from aitrace.formats.history_fields import (
    Row,
    count_of,
    duration_from_ms,
    last_input_ns,
    line_ns,
    note_unknown_line,
    ns_from_iso,
    object_in,
    outcome_from_status,
    parts_from_message,
    text_in,
    version_from_name,
)
from aitrace.harnesses.detector import Identity
from aitrace.protocols.anthropic import AnthropicProtocol
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallClass, Outcome, ToolCall, Usage

HARNESS = "claude-code"
_PROTOCOL = AnthropicProtocol()
_SYNTHETIC_MODEL = "<synthetic>"
_SILENT = frozenset(
    {
        "agent-name",
        "ai-title",
        "atis-latch",
        "cost-state",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "summary",
        "tag",
        "tools-used",
    }
)
"""Kinds of line that say nothing about calls."""
_COUNTERS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One file: a main agent, or one sub-agent."""

    agent_id: str | None
    """The sub-agent's id; None for the main agent."""
    rows: Iterable[Row]
    """Its lines; looked at once."""
    kind: str | None = None
    """Kind of sub-agent; None if not told."""
    tool_use_id: str | None = None
    """The tool call that started it; None if not told."""
    is_workflow: bool = False
    """Whether a workflow started it."""


@dataclass(slots=True, kw_only=True)
class _Draft:
    """One answer while its lines are read."""

    place: str
    """Its first line."""
    message_id: str
    """Id that its lines share; empty for a request without answer."""
    history: list[RequestPart]
    """The conversation; its first `length` parts are the prompt."""
    length: int
    """Parts of the prompt."""
    insert_at: int
    """Where in `history` the next piece of the answer belongs."""
    input_ns: int
    """Time of the last input before it."""
    end_ns: int | None
    """Time of its last line."""
    version: str | None
    """Version of the harness."""
    prompt_id: str | None
    """The prompt that caused it."""
    is_window_start: bool
    """Whether the conversation was replaced before it."""
    model: str | None = None
    """Model that answered."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Usage of its last line."""
    outcome: Outcome = field(default_factory=Outcome)
    """How it ended."""
    content: list[Any] = field(default_factory=list)
    """Its blocks."""
    tools: list[tuple[str, str, int]] = field(default_factory=list)
    """Id, name and time of its tool calls."""
    request: LoggedRequest | None = None
    """Its request in the log; None if there is none."""
    duplicate: bool = False
    """Whether another transcript told it before."""


class _Reader:
    """Reads the lines of one transcript."""

    def __init__(self, reading: HistoryReading) -> None:
        self._reading = reading
        self._log = RequestLog(reading.tally)
        self._requests: dict[str, LoggedRequest] = {}
        self._answered: set[str] = set()
        self._last_request: LoggedRequest | None = None
        self._history: list[RequestPart] = []
        self._requested = (self._history, 0)
        self._length_at: dict[str, int] = {}
        self._answers_at: list[int] = []
        self._kept: list[RequestPart] = []
        self._parts_of_line: dict[str, tuple[RequestPart, ...]] = {}
        self._line_ns: int | None = None
        self._input_ns: int | None = None
        self._prompt_id: str | None = None
        self._is_window_start = False
        self.drafts: list[_Draft] = []
        """Answers, in order."""
        self._draft_of_message: dict[str, _Draft] = {}
        self.durations: dict[str, int] = {}
        """Run time of tools, ns, by id of the call."""
        self._tool_starts: dict[str, int] = {}

    def read(self, row: Mapping[str, Any], place: str) -> None:
        """Take in the next line."""
        kind = text_in(row, "type")
        match kind:
            case "user" | "assistant" | "api-request" | "system":
                self._timed(row, place)
            case "attachment":
                self._attachment(row, place)
            case "api-request-shape":
                self._log.add_shape(row, place)
            case "api-request-blob":
                self._log.add_blob(row, place)
            case _ if kind not in _SILENT:
                note_unknown_line(place, self._reading.tally)
        uuid = text_in(row, "uuid")
        if uuid is not None:
            self._length_at[uuid] = len(self._history)

    def _timed(self, row: Mapping[str, Any], place: str) -> None:
        """Take in a line whose time matters; without any time before it, it cannot be placed."""
        told_ns = ns_from_iso(row.get("timestamp"))
        at_ns = self._line_ns = line_ns(told_ns, self._line_ns, place, self._reading.tally)
        if at_ns is None:
            return
        match row["type"]:
            case "user":
                self._user(row, at_ns, place)
            case "assistant":
                self._assistant(row, at_ns, place)
            case "api-request":
                self._request(row, at_ns, place)
            case _:
                self._system(row, at_ns, place)

    def _user(self, row: Mapping[str, Any], at_ns: int, place: str) -> None:
        message = object_in(row, "message")
        content = message.get("content")
        parts = parts_from_message(
            _PROTOCOL, "messages", {"role": "user", "content": content}, place, self._reading.tally
        )
        self._log.add_message("user", content, place)
        has_results = any(part.type == "tool_result" for part in parts)
        if row.get("isCompactSummary"):
            self._history = [*parts, *self._kept]
            self._kept = []
        else:
            if not has_results:
                self._take_back(row)
            self._append(row, parts)
        self._note_results(row, parts, at_ns)
        self._input_ns = at_ns
        self._prompt_id = text_in(row, "promptId") or self._prompt_id

    def _append(self, row: Mapping[str, Any], parts: tuple[RequestPart, ...]) -> None:
        self._history.extend(parts)
        uuid = text_in(row, "uuid")
        if uuid is not None:
            self._parts_of_line[uuid] = parts

    def _take_back(self, row: Mapping[str, Any]) -> None:
        """Leave out what followed the line that this prompt continues, if an answer did."""
        parent = text_in(row, "parentUuid")
        length = self._length_at.get(parent) if parent is not None else 0
        if length is None or length > len(self._history):
            return
        if any(at >= length for at in self._answers_at):
            self._history = self._history[:length]
            self._answers_at = [at for at in self._answers_at if at < length]

    def _note_results(self, row: Mapping[str, Any], parts: tuple[RequestPart, ...], at_ns: int) -> None:
        """Run times, where they are told, or where no person can have stood between call and result."""
        ids = [part.tool_id for part in parts if part.type == "tool_result" and part.tool_id is not None]
        if len(ids) != 1:
            return
        told = row.get("toolUseResult")
        duration_ns = duration_from_ms(object_in(row, "toolUseResult").get("durationMs"))
        if duration_ns is None:
            duration_ns = duration_from_ms(object_in(row, "toolUseResult").get("totalDurationMs"))
        if duration_ns is None and object_in(row, "permissionDecision").get("source") == "config":
            started_ns = self._tool_starts.get(ids[0])
            duration_ns = None if started_ns is None else max(0, at_ns - started_ns)
        is_background = isinstance(told, Mapping) and told.get("isAsync") is True
        if duration_ns is not None and not is_background:
            self.durations[ids[0]] = duration_ns

    def _assistant(self, row: Mapping[str, Any], at_ns: int, place: str) -> None:
        message = object_in(row, "message")
        content = message.get("content")
        parts = parts_from_message(
            _PROTOCOL, "messages", {"role": "assistant", "content": content}, place, self._reading.tally
        )
        if message.get("model") == _SYNTHETIC_MODEL or row.get("isApiErrorMessage"):
            # Written by the harness, not by a model: part of the conversation, but no answer.
            self._log.add_message("assistant", content, place)
            self._append(row, parts)
            return
        message_id = text_in(message, "id") or place
        draft = self._draft_of_message.get(message_id) or self._begin(row, message_id, place, at_ns)
        draft.end_ns = at_ns
        self._answer(draft, row, place)
        draft.content.extend(content if isinstance(content, list) else [])
        self._log.add_message("assistant", list(draft.content), place)
        for part in parts:
            if part.type == "tool_use" and part.tool_id is not None and part.tool_name is not None:
                draft.tools.append((part.tool_id, part.tool_name, at_ns))
                self._tool_starts[part.tool_id] = at_ns
        if draft.history is not self._history:
            self._append(row, parts)
            return
        # A tool's result may stand before the answer's next piece; a prompt has the whole answer first.
        self._history[draft.insert_at : draft.insert_at] = parts
        draft.insert_at += len(parts)
        uuid = text_in(row, "uuid")
        if uuid is not None:
            self._parts_of_line[uuid] = parts

    def _begin(self, row: Mapping[str, Any], message_id: str, place: str, at_ns: int) -> _Draft:
        draft = self._new_draft(row, message_id, place, at_ns)
        draft.duplicate = self._is_copy(f"{message_id} {row.get('requestId')}")
        reference = text_in(row, "requestRef")
        draft.request = self._requests.get(reference) if reference is not None else None
        if reference is not None:
            self._answered.add(reference)
        self._draft_of_message[message_id] = draft
        self._answers_at.append(len(self._history))
        self._is_window_start = False
        return draft

    def _new_draft(self, row: Mapping[str, Any], message_id: str, place: str, at_ns: int) -> _Draft:
        before_ns = self.drafts[-1].end_ns if self.drafts else None
        draft = _Draft(
            place=place,
            message_id=message_id,
            history=self._history,
            length=len(self._history),
            insert_at=len(self._history),
            input_ns=last_input_ns(at_ns, self._input_ns, before_ns),
            end_ns=None,
            version=version_from_name(row.get("version")),
            prompt_id=self._prompt_id,
            is_window_start=self._is_window_start,
        )
        self.drafts.append(draft)
        return draft

    def _answer(self, draft: _Draft, row: Mapping[str, Any], place: str) -> None:
        """What a line says of its whole answer."""
        message = object_in(row, "message")
        usage = object_in(message, "usage")
        for name in _COUNTERS:
            count_of(usage, name, place, self._reading.tally)
        draft.usage = usage or draft.usage
        draft.model = model_from_name(message.get("model")) or draft.model
        if row.get("isAbortedMidStream"):
            draft.outcome = Outcome(error="client_abort", ended_by="client")
        else:
            draft.outcome = Outcome(
                finish=finish_from_name(message.get("stop_reason")) or draft.outcome.finish
            )

    def _request(self, row: Mapping[str, Any], at_ns: int, place: str) -> None:
        # Where the conversation was replaced in between, what is new in it cannot be told.
        added = self._history[self._requested[1] :] if self._requested[0] is self._history else ()
        self._requested = (self._history, len(self._history))
        request = self._log.request(row, at_ns, place, added)
        self._requests[request.id] = self._last_request = request

    def _system(self, row: Mapping[str, Any], at_ns: int, place: str) -> None:
        subtype = row.get("subtype")
        if subtype == "compact_boundary":
            kept = object_in(object_in(row, "compactMetadata"), "preservedMessages").get("uuids")
            names = [name for name in kept if isinstance(name, str)] if isinstance(kept, list) else []
            self._kept = [part for name in names for part in self._parts_of_line.get(name, ())]
            self._history = []
            self._answers_at = []
            self._length_at.clear()
            self._is_window_start = True
        elif subtype == "api_error":
            self._refused(row, at_ns, place)

    def _refused(self, row: Mapping[str, Any], at_ns: int, place: str) -> None:
        """An attempt that failed; a call only if the log has its request."""
        request = self._last_request
        if request is None or request.id in self._answered:
            self._reading.tally.remark(
                "refused_attempt", "a refused attempt whose request is not in the history was left out", place
            )
            return
        draft = self._unanswered(row, request, at_ns)
        draft.place, draft.end_ns = place, at_ns
        draft.outcome = outcome_from_status(object_in(row, "error").get("status"))
        self._answered.add(request.id)

    def _attachment(self, row: Mapping[str, Any], place: str) -> None:
        """What the harness adds to the conversation, where the line has it in the words that are sent."""
        attachment = object_in(row, "attachment")
        role = "system" if row.get("renderedRole") == "system" else "user"
        pieces = row.get("rendered")
        if isinstance(pieces, list):
            contents = [piece.get("content") for piece in pieces if isinstance(piece, Mapping)]
        elif attachment.get("type") == "queued_command":
            contents = [attachment.get("prompt")]
        else:
            return
        for content in contents:
            self._log.add_message(role, content, place)
            self._append(
                row,
                parts_from_message(
                    _PROTOCOL, "messages", {"role": role, "content": content}, place, self._reading.tally
                ),
            )

    def _unanswered(self, row: Mapping[str, Any], request: LoggedRequest, at_ns: int) -> _Draft:
        """A call without answer, of which the log has the request."""
        draft = self._new_draft(row, "", request.place, at_ns)
        draft.request = request
        draft.duplicate = self._is_copy(f"request {request.id}")
        return draft

    def _is_copy(self, key: str) -> bool:
        """Whether a call was told before, by a transcript that this one is a copy of or was copied to."""
        is_copy = key in self._reading.seen
        self._reading.seen.add(key)
        return is_copy

    def finish(self) -> None:
        """Add the requests that nothing answered: the client stopped, or its log did."""
        for request in self._requests.values():
            if request.id in self._answered or request.history is None:
                continue
            draft = self._unanswered({}, request, request.at_ns)
            draft.outcome = Outcome(error="unrecorded", ended_by="recorder")


def calls_from_session(
    session: str, transcripts: Iterable[Transcript], reading: HistoryReading
) -> list[HistoryCall]:
    """All calls of a session and its sub-agents.

    Args:
        session: Key of the session; never written.
    """
    readers = [pair for transcript in transcripts for pair in _read(transcript, reading)]
    owners = {
        tool_id: transcript.agent_id
        for transcript, reader in readers
        for draft in reader.drafts
        for tool_id, _, _ in draft.tools
    }
    calls: list[HistoryCall] = []
    for transcript, reader in readers:
        own = [
            _call(draft, reader, _identity(session, transcript, owners, draft), transcript.tool_use_id)
            for draft in reader.drafts
            if not draft.duplicate
        ]
        calls += without_steps_back(own, reading.tally)
    return calls


def _read(transcript: Transcript, reading: HistoryReading) -> list[tuple[Transcript, _Reader]]:
    """The transcript with its reader, and those of sub-agents that old versions wrote between its lines."""
    between = _Sidechains()
    rows = transcript.rows if transcript.agent_id is not None else between.without(transcript.rows)
    found = [(transcript, _reader_of(rows, reading))]
    return found + [(chain, _reader_of(chain.rows, reading)) for chain in between.transcripts()]


def _reader_of(rows: Iterable[Row], reading: HistoryReading) -> _Reader:
    reader = _Reader(reading)
    for place, row in rows:
        reader.read(row, place)
    reader.finish()
    return reader


class _Sidechains:
    """Lines of sub-agents between those of the main agent, and the tool calls that may have started these."""

    def __init__(self) -> None:
        self._chains: dict[str, list[Row]] = {}
        self._chain_of: dict[str, str] = {}
        self._tasks: dict[str, tuple[str | None, str | None]] = {}

    def without(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The lines of the main agent; the others are kept, and what the main agent asked for is noted."""
        for place, row in rows:
            if not row.get("isSidechain"):
                self._note_tasks(row)
                yield place, row
                continue
            uuid, parent = text_in(row, "uuid") or place, text_in(row, "parentUuid")
            chain = text_in(row, "agentId") or self._chain_of.get(parent or "", uuid)
            self._chain_of[uuid] = chain
            self._chains.setdefault(chain, []).append((place, row))

    def transcripts(self) -> Iterator[Transcript]:
        """The sub-agents whose lines were kept."""
        for chain, rows in self._chains.items():
            tool_id, kind = self._tasks.get(_first_prompt(rows), (None, None))
            yield Transcript(agent_id=chain, rows=rows, kind=kind, tool_use_id=tool_id)

    def _note_tasks(self, row: Mapping[str, Any]) -> None:
        """Id and kind of tool calls that may start a sub-agent, by the prompt that they give it."""
        content = object_in(row, "message").get("content")
        for block in content if isinstance(content, list) else []:
            given = object_in(block, "input")
            prompt = text_in(given, "prompt")
            if prompt is not None:
                self._tasks[prompt] = (text_in(block, "id"), text_in(given, "subagent_type"))


def _first_prompt(rows: Sequence[Row]) -> str:
    content = object_in(rows[0][1], "message").get("content")
    return content if isinstance(content, str) else ""


def _identity(
    session: str, transcript: Transcript, owners: Mapping[str, str | None], draft: _Draft
) -> Identity:
    call_class: CallClass = "main"
    key, parent = session, None
    more_ids: tuple[str, ...] = ()
    if transcript.agent_id is not None:
        owner = owners.get(transcript.tool_use_id or "")
        call_class = "workflow" if transcript.is_workflow else "subagent"
        # Ids of agents may be the same in two sessions.
        key, more_ids = f"{session}/{transcript.agent_id}", (transcript.agent_id,)
        parent = session if owner is None or owner == transcript.agent_id else f"{session}/{owner}"
    return Identity(
        harness=HARNESS,
        version=draft.version,
        session=key,
        parent=parent,
        root=session,
        agent=transcript.kind if transcript.agent_id is not None else None,
        call_class=call_class,
        prompt_id=draft.prompt_id,
        is_window_start=draft.is_window_start,
        more_ids=more_ids,
    )


def _call(draft: _Draft, reader: _Reader, identity: Identity, spawned_by: str | None) -> HistoryCall:
    request = draft.request
    logged = request if request is not None and request.history is not None else None
    history: Sequence[RequestPart] = draft.history
    length = draft.length
    if logged is not None and logged.history is not None:
        history, length = logged.history, logged.length
    return HistoryCall(
        place=draft.place,
        identity=identity,
        protocol="anthropic",
        model=draft.model or (request.model if request is not None else None),
        history=history,
        length=length,
        is_whole=logged is not None,
        request_ns=draft.input_ns if request is None else request.at_ns,
        is_request_told=request is not None,
        end_ns=draft.end_ns,
        outcome=draft.outcome,
        usage=_usage(draft.usage),
        tool_calls=tuple(
            ToolCall(name=name, end_ns=at_ns, duration_ns=reader.durations.get(tool_id))
            for tool_id, name, at_ns in draft.tools
        )
        if draft.message_id
        else None,
        tool_ids=tuple(tool_id for tool_id, _, _ in draft.tools),
        spawned_by=spawned_by,
        max_output_tokens=None if request is None else request.max_output_tokens,
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    """The three counters of the prompt added up, as the protocol's own reader does."""
    try:
        return _PROTOCOL.read_reply(orjson.dumps({"content": [], "usage": usage})).usage
    except orjson.JSONEncodeError:
        return Usage()  # nested deeper than any report
