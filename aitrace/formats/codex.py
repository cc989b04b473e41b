"""Pure: reads rollouts of Codex: one file per thread, with every item of its conversation in order.

The rules, which docs/convert.md explains:

1. An answer is the items of the model up to the next report of usage: a `token_usage_record`, or in older versions
   a `token_count` whose total differs from the one before.
2. A call's prompt is the conversation before the answer's first item. It starts with the last item of the input.
3. `compacted` replaces the conversation; the call that ended right before it made the summary.
4. The file of a sub-agent or of a fork begins with a copy of the other thread, which is prompt but no call.

Good: {"timestamp": "…", "type": "response_item", "payload": {"type": "message", "role": "user", "content": […]}}
Good: {"timestamp": "…", "type": "token_usage_record", "payload": {"usage": {"input_tokens": 9529, …}}}
Bad:  {"type": "response_item", "payload": {"type": "message"}} (no time: that of the line before counts)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aitrace.formats.format import Tally, model_from_name
from aitrace.formats.history import HistoryCall, HistoryReading, without_steps_back
from aitrace.formats.history_fields import (
    Row,
    count_of,
    last_input_ns,
    line_ns,
    note_odd_value,
    note_unknown_line,
    ns_from_iso,
    object_in,
    parts_from_message,
    text_in,
    version_from_name,
)
from aitrace.harnesses.codex import Codex
from aitrace.harnesses.detector import Identity
from aitrace.protocols.protocol import RequestPart
from aitrace.protocols.responses import ResponsesProtocol
from aitrace.schema import CallClass, Outcome, ToolCall, Usage
from aitrace.units import NS_PER_S

HARNESS = "codex"
_PROTOCOL = ResponsesProtocol()
_DETECTOR = Codex()
_SILENT = frozenset(
    {"world_state", "thread_settings", "inter_agent_communication_metadata", "ghost_snapshot"}
)
_MODEL_ITEMS = frozenset({"reasoning", "compaction", "context_compaction"})
_AUXILIARY = frozenset({"thread_title", "memory_consolidation"})
_OPENING_CHARS = 100
_MOST_SECONDS = 2**31
_ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One file."""

    id: str
    """Its key; never written."""
    parent: str | None
    """Thread that started it; None for a main agent."""
    origin: str | None
    """Thread whose conversation it begins with a copy of; None if it begins anew."""
    root: str | None
    """Thread at the top of the tree as it says; None if it does not."""
    meta: Mapping[str, Any]
    """What its first line says."""
    rows: Callable[[Tally], Iterable[Row]]
    """Its lines; may be asked for more than once, and notes those that cannot be read."""


def thread_from_rows(head: Sequence[Row], rows: Callable[[Tally], Iterable[Row]]) -> Thread | None:
    """What the first two lines say of a file; None if it is no rollout."""
    if not head or head[0][1].get("type") != "session_meta":
        return None
    meta = object_in(head[0][1], "payload")
    own = text_in(meta, "id")
    if own is None:
        return None
    spawn = object_in(object_in(object_in(meta, "source"), "subagent"), "thread_spawn")
    parent = text_in(spawn, "parent_thread_id") or text_in(meta, "parent_thread_id")
    return Thread(
        id=own,
        parent=parent,
        origin=text_in(meta, "forked_from_id") or _copied_thread(head, own),
        root=text_in(meta, "session_id") if parent is not None else own,
        meta=meta,
        rows=rows,
    )


def _copied_thread(head: Sequence[Row], own: str) -> str | None:
    """The thread of a second first line, which is the copied one."""
    if len(head) < 2 or head[1][1].get("type") != "session_meta":
        return None
    other = text_in(object_in(head[1][1], "payload"), "id")
    return None if other == own else other


def turns_of(thread: Thread) -> frozenset[str]:
    """Ids of the turns in a file, those of a copy included."""
    found = (text_in(object_in(row, "payload"), "turn_id") for _, row in thread.rows(Tally()))
    return frozenset(turn for turn in found if turn is not None)


@dataclass(slots=True, kw_only=True)
class _Draft:
    """One answer while its items are read."""

    place: str
    """Its first line."""
    length: int
    """Parts of the prompt."""
    history: list[RequestPart]
    """The conversation."""
    start_ns: int
    """Time of the last item of the input."""
    end_ns: int
    """Time of its last item."""
    prompt_id: str | None
    """The prompt that caused it."""
    model: str | None
    """Model of the turn."""
    is_window_start: bool
    """Whether the conversation was replaced before it."""
    sampled: object = None
    """Number of the last item that the model had read, as newer versions note with each of its items."""
    tools: list[tuple[str | None, str | None, int]] = field(default_factory=list)
    """Id, name and time of its tool calls; id and name are None if not told."""
    usage: Usage = field(default_factory=Usage)
    """As reported."""
    outcome: Outcome = field(default_factory=Outcome)
    """How it ended."""
    is_compaction: bool = False
    """Whether it made the summary that replaced the conversation."""


class _Reader:
    """Reads the lines of one thread."""

    def __init__(self, thread: Thread, copied_turns: frozenset[str], tally: Tally) -> None:
        self._tally = tally
        self._meta = thread.meta
        self._copied_turns = copied_turns
        start = self._meta.get("subagent_history_start_ordinal")
        self._copied_lines = start if isinstance(start, int) else None
        self._is_copy = self._copied_lines is not None or bool(copied_turns)
        self._has_records = any(row.get("type") == "token_usage_record" for _, row in thread.rows(Tally()))
        self._history: list[RequestPart] = []
        self._line_ns: int | None = None
        self._input_ns: int | None = None
        self._prompt_id: str | None = None
        self._model: str | None = None
        self._is_window_start = False
        self._open: _Draft | None = None
        self._last_total: object = None
        self._may_be_summary = False
        self._unanswered: dict[str, None] = {}
        self.drafts: list[_Draft] = []
        """Answers, in order."""
        self.durations: dict[str, int] = {}
        """Run time of tools, ns, by id of the call."""

    def read(self, row: Mapping[str, Any], place: str, number: int) -> None:
        """Take in the next line."""
        payload = object_in(row, "payload")
        if self._is_copy and not self._still_copy(row, payload, number):
            self._is_copy = False
            self._answer_tools()
        told_ns = ns_from_iso(row.get("timestamp"))
        at_ns = self._line_ns = line_ns(told_ns, self._line_ns, place, self._tally)
        if at_ns is None:
            return
        kind = text_in(row, "type")
        match kind:
            case "session_meta":
                return
            case "response_item":
                self._item(row, payload, at_ns, place)
            case "turn_context":
                self._model = model_from_name(payload.get("model")) or self._model
                self._turn(payload)
            case "token_usage_record":
                usage = _usage(object_in(payload, "usage"), place, self._tally)
                self._close(usage, at_ns, place, is_end=True)
            case "event_msg":
                self._event(payload, at_ns, place)
            case "compacted":
                self._compacted(payload, at_ns, place)
            case _ if kind not in _SILENT:
                note_unknown_line(place, self._tally)

    def _still_copy(self, row: Mapping[str, Any], payload: Mapping[str, Any], number: int) -> bool:
        if self._copied_lines is not None:
            ordinal = row.get("ordinal")
            return (ordinal if isinstance(ordinal, int) else number) < self._copied_lines
        turn = text_in(payload, "turn_id")
        return turn is None or turn in self._copied_turns

    def _turn(self, payload: Mapping[str, Any]) -> None:
        if not self._is_copy:
            root = text_in(payload, "root_turn_id") or text_in(
                object_in(payload, "turn_attribution"), "root_turn_id"
            )
            self._prompt_id = root or text_in(payload, "turn_id") or self._prompt_id

    def _item(self, row: Mapping[str, Any], item: Mapping[str, Any], at_ns: int, place: str) -> None:
        parts = parts_from_message(_PROTOCOL, "input", item, place, self._tally)
        if not self._history:
            self._history.extend(self._instructions(parts))
        for part in parts:
            if part.type == "tool_use" and part.tool_id is not None:
                self._unanswered[part.tool_id] = None
        if not _is_models(item):
            self._history.extend(parts)
            self._note_result(parts)
            self._input_ns = at_ns
            self._may_be_summary = False
            return
        if not self._is_copy:
            sampled = object_in(row, "metadata").get("sampled_through_sequence")
            if self._open is not None and sampled != self._open.sampled:
                self._shut()
            draft = self._open or self._begin(place, at_ns)
            draft.sampled = sampled
            draft.end_ns = at_ns
            for part in parts:
                if part.type == "tool_use":
                    draft.tools.append((part.tool_id, part.tool_name or None, at_ns))
        self._history.extend(parts)

    def _instructions(self, first: Sequence[RequestPart]) -> list[RequestPart]:
        """The base instructions of the file's first line, unless the conversation begins with them anyway."""
        text = text_in(object_in(self._meta, "base_instructions"), "text")
        if text is None or any(part.type == "tool_definition" for part in first):
            return []
        if any(part.text[:_OPENING_CHARS] == text[:_OPENING_CHARS] for part in first):
            return []
        return [RequestPart(role="system", type="system", text=text)]

    def _note_result(self, parts: Sequence[RequestPart]) -> None:
        for part in parts:
            if part.type == "tool_result" and part.tool_id is not None:
                self._unanswered.pop(part.tool_id, None)
                duration_ns = _DETECTOR.tool_duration_ns(part)
                if duration_ns is not None:
                    self.durations.setdefault(part.tool_id, duration_ns)

    def _answer_tools(self) -> None:
        """Give tool calls that never ended the result that Codex sends for them, though its file does not have it."""
        for tool_id in self._unanswered:
            places = [
                index
                for index, part in enumerate(self._history)
                if part.type == "tool_use" and part.tool_id == tool_id
            ]
            for index in places[-1:]:
                result = RequestPart(role="tool", type="tool_result", text=_ABORTED, tool_id=tool_id)
                self._history.insert(index + 1, result)
        self._unanswered = {}

    def _begin(self, place: str, at_ns: int) -> _Draft:
        before_ns = self.drafts[-1].end_ns if self.drafts else None
        draft = _Draft(
            place=place,
            length=len(self._history),
            history=self._history,
            start_ns=last_input_ns(at_ns, self._input_ns, before_ns),
            end_ns=at_ns,
            prompt_id=self._prompt_id,
            model=self._model,
            is_window_start=self._is_window_start,
        )
        self._is_window_start = False
        self._open = draft
        self.drafts.append(draft)
        return draft

    def _close(self, usage: Usage, at_ns: int, place: str, *, is_end: bool) -> None:
        """A report of usage ends the answer; one without items is that of a summary which is kept elsewhere.

        Args:
            is_end: Whether it is made when the answer ends.
        """
        if self._is_copy:
            return
        draft = self._open or self._begin(place, at_ns)
        draft.usage = usage
        if is_end:
            draft.end_ns = at_ns
        self._shut()

    def _shut(self) -> None:
        self._open = None
        self._may_be_summary = True

    def _event(self, payload: Mapping[str, Any], at_ns: int, place: str) -> None:
        match payload.get("type"):
            case "task_started":
                self._answer_tools()
                self._turn(payload)
            case "token_count" if not self._has_records:
                self._token_count(payload, at_ns, place)
            case "task_complete":
                self._shut()
            case "turn_aborted":
                if self._open is not None:
                    self._open.outcome = Outcome(error="client_abort", ended_by="client")
                self._shut()
            case "exec_command_end":
                self._note_duration(payload.get("call_id"), payload, place)
            case "item_completed":
                item = object_in(payload, "item")
                if item.get("type") == "CommandExecution":
                    self._note_duration(item.get("id"), item, place)
            case _:
                return

    def _token_count(self, payload: Mapping[str, Any], at_ns: int, place: str) -> None:
        info = object_in(payload, "info")
        total = info.get("total_token_usage")
        # The same total may be told twice, and is told anew when only limits changed.
        if total is None or total == self._last_total:
            return
        self._last_total = total
        if self._open is not None:
            usage = _usage(object_in(info, "last_token_usage"), place, self._tally)
            self._close(usage, at_ns, place, is_end=False)

    def _note_duration(self, call_id: object, values: Mapping[str, Any], place: str) -> None:
        length = object_in(values, "duration")
        seconds, nanos = length.get("secs"), length.get("nanos")
        if not isinstance(call_id, str) or not isinstance(seconds, int) or not isinstance(nanos, int):
            return
        if 0 <= seconds < _MOST_SECONDS and 0 <= nanos < NS_PER_S:
            self.durations[call_id] = seconds * NS_PER_S + nanos
        else:
            note_odd_value(place, self._tally)

    def _compacted(self, payload: Mapping[str, Any], at_ns: int, place: str) -> None:
        if self._may_be_summary and self.drafts and not self._is_copy:
            self.drafts[-1].is_compaction = True
        items = payload.get("replacement_history")
        if not isinstance(items, list):
            # Older versions note the summary alone.
            items = [{"type": "message", "role": "user", "content": text_in(payload, "message") or ""}]
        found = [
            part
            for item in items
            if isinstance(item, Mapping)
            for part in parts_from_message(_PROTOCOL, "input", item, place, self._tally)
        ]
        self._history = [*self._instructions(found), *found]
        self._is_window_start = not self._is_copy
        self._input_ns = at_ns
        self._open = None
        self._may_be_summary = False


def calls_from_threads(
    threads: Sequence[Thread], origins: Sequence[Thread], reading: HistoryReading
) -> list[HistoryCall]:
    """All calls of the threads of one tree.

    Args:
        origins: Threads of other trees that some of them begin with a copy of.
    """
    by_id = {thread.id: thread for thread in threads}
    copied = {thread.origin for thread in threads}
    turns = {thread.id: turns_of(thread) for thread in (*origins, *threads) if thread.id in copied}
    calls: list[HistoryCall] = []
    for thread in threads:
        reader = _Reader(thread, turns.get(thread.origin or "", frozenset()), reading.tally)
        for number, (place, row) in enumerate(thread.rows(reading.tally)):
            reader.read(row, place, number)
        own = [_call(draft, reader, _identity(thread, by_id, draft)) for draft in reader.drafts]
        calls += without_steps_back(own, reading.tally)
    return calls


def root_of(thread: Thread, by_id: Mapping[str, Thread]) -> str:
    """The thread at the top of the tree."""
    seen = {thread.id}
    while thread.parent is not None and thread.parent in by_id and thread.parent not in seen:
        thread = by_id[thread.parent]
        seen.add(thread.id)
    return thread.root or thread.parent or thread.id


def _identity(thread: Thread, by_id: Mapping[str, Thread], draft: _Draft) -> Identity:
    meta = thread.meta
    source = meta.get("source")
    subagent = source.get("subagent") if isinstance(source, Mapping) else None
    spawn = object_in(subagent, "thread_spawn")
    is_child = thread.parent is not None
    call_class: CallClass = "subagent" if is_child or subagent is not None else "main"
    if draft.is_compaction:
        call_class = "compaction"
    elif text_in(meta, "thread_source") in _AUXILIARY:
        call_class = "auxiliary"
    kind = text_in(spawn, "agent_role") or (subagent if isinstance(subagent, str) else None)
    return Identity(
        harness=HARNESS,
        version=version_from_name(meta.get("cli_version")),
        session=thread.id,
        parent=thread.parent,
        root=root_of(thread, by_id),
        agent=kind if is_child else None,
        call_class=call_class,
        prompt_id=draft.prompt_id,
        is_window_start=draft.is_window_start,
    )


def _call(draft: _Draft, reader: _Reader, identity: Identity) -> HistoryCall:
    prompt = draft.history[: draft.length]
    return HistoryCall(
        place=draft.place,
        identity=identity,
        protocol="responses",
        model=draft.model,
        history=draft.history,
        length=draft.length,
        is_whole=any(part.type == "tool_definition" for part in prompt),
        request_ns=draft.start_ns,
        is_request_told=False,
        end_ns=draft.end_ns,
        outcome=draft.outcome,
        usage=draft.usage,
        tool_calls=tuple(
            ToolCall(name=name, end_ns=at_ns, duration_ns=reader.durations.get(tool_id or ""))
            for tool_id, name, at_ns in draft.tools
        ),
        tool_ids=tuple(tool_id for tool_id, _, _ in draft.tools),
    )


def _is_models(item: Mapping[str, Any]) -> bool:
    """Whether the model made this item."""
    kind = item.get("type")
    if kind == "message":
        return item.get("role") == "assistant"
    return isinstance(kind, str) and (kind in _MODEL_ITEMS or kind.endswith("_call"))


def _usage(usage: Mapping[str, Any], place: str, tally: Tally) -> Usage:
    names = (
        "input_tokens",
        "cached_input_tokens",
        "cache_write_input_tokens",
        "output_tokens",
        "reasoning_output_tokens",
    )
    read, cached, written, output, reasoning = (count_of(usage, name, place, tally) for name in names)
    return Usage(
        input_tokens=read,
        cache_read_tokens=cached,
        cache_write_5m_tokens=written,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
