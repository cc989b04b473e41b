"""Pure: reads conversations of OpenCode: sessions, messages and their parts, as its database or JSON files hold them.

The rules, which docs/convert.md explains:

1. A step of an assistant's message is one call: from `step-start` to `step-finish`, which has its usage.
2. The first step of a message starts when the message was created, a later one after the last tool of that before it.
3. An answer ends with its last piece: text, thought, or the moment at which a tool began to run.
4. A message that is a summary replaces the conversation. It was made from all of it, put into one text.

Good: {"id": "msg_1", "role": "assistant", "time": {"created": 1796008155666}, "modelID": "m", "tokens": {…}}
Bad:  {"id": "msg_1", "role": "assistant"} (no time: the end of the call before counts)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aitrace.formats.format import Tally, finish_from_name, model_from_name
from aitrace.formats.history import HistoryCall, HistoryReading
from aitrace.formats.history_fields import (
    all_parts,
    count_of,
    line_ns,
    note_odd_value,
    note_unknown_line,
    ns_from_ms,
    object_in,
    outcome_from_status,
    text_from_json,
    text_in,
    version_from_name,
)
from aitrace.harnesses.detector import Identity
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallClass, Outcome, ToolCall, Usage

HARNESS = "opencode"
_SILENT = frozenset(
    {"agent", "compaction", "patch", "retry", "snapshot", "step-finish", "step-start", "subtask"}
)
_ABORTED = "MessageAbortedError"
_THOUGHTS = ("step-start", "reasoning")
_ENDED = frozenset({"completed", "error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message with its parts, in order."""

    place: str
    """Where it stands in the source."""
    data: Mapping[str, Any]
    """The message."""
    parts: Sequence[Mapping[str, Any]]
    """Its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One session: a main agent or a sub-agent."""

    id: str
    """Its key; never written."""
    parent: str | None
    """Session that started it; None for a main agent."""
    version: str | None
    """Version of the harness."""
    messages: Sequence[Message]
    """In order."""


@dataclass(slots=True, kw_only=True)
class _Step:
    """The pieces of one answer."""

    start_ns: int
    """When it was asked for."""
    pieces: list[Mapping[str, Any]] = field(default_factory=list)
    """Its parts."""
    finish: Mapping[str, Any] | None = None
    """Its `step-finish`; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What led to a sub-agent."""

    prompt_id: str
    """The user's prompt."""
    tool_id: str | None
    """The tool call; None if it has no id."""


class _Reader:
    """Reads the messages of one session."""

    def __init__(
        self,
        conversation: Conversation,
        root: str,
        starts: Mapping[str, _Start],
        reading: HistoryReading,
    ) -> None:
        self._conversation = conversation
        self._root = root
        self._tally = reading.tally
        self._seen = reading.seen
        self._history: list[RequestPart] = []
        self._start = starts.get(conversation.id)
        self._prompt_id: str | None = None
        self._is_window_start = False
        self._line_ns: int | None = None
        self.calls: list[HistoryCall] = []
        """Calls, in order."""

    def read(self, message: Message) -> None:
        """Take in the next message."""
        role = message.data.get("role")
        if role == "user":
            self._user(message)
        elif role == "assistant":
            self._assistant(message)
        else:
            note_unknown_line(message.place, self._tally)

    def _user(self, message: Message) -> None:
        texts = [part for part in message.parts if part.get("type") == "text"]
        if any(not part.get("synthetic") for part in texts) or self._prompt_id is None:
            self._prompt_id = text_in(message.data, "id")
        for part in message.parts:
            match part.get("type"):
                case "text" if not part.get("ignored") and text_in(part, "text"):
                    self._history.append(RequestPart(role="user", type="text", text=str(part["text"])))
                case "file":
                    is_image = str(part.get("mime", "")).startswith("image/")
                    file = {"mime": part.get("mime"), "url": part.get("url")}
                    text = text_from_json(file, message.place, self._tally)
                    self._history.append(
                        RequestPart(role="user", type="image" if is_image else "opaque", text=text)
                    )
                case _:
                    continue

    def _assistant(self, message: Message) -> None:
        told_ns = ns_from_ms(object_in(message.data, "time").get("created"))
        created_ns = self._line_ns = line_ns(told_ns, self._line_ns, message.place, self._tally)
        if created_ns is None:
            return
        is_summary = message.data.get("summary") is True
        is_copy = self._is_copy(message)
        steps = self._steps(message, created_ns)
        for index, step in enumerate(steps):
            if not is_copy:
                self._call(message, step, is_summary=is_summary, is_last=index == len(steps) - 1)
            if _is_left_out(message):
                continue
            answer, results = self._pieces(step, message.place)
            if is_summary and step.finish is not None:
                self._history = []
                self._is_window_start = True
            self._history += [*answer, *results]

    def _is_copy(self, message: Message) -> bool:
        """Whether the message was met before: older files beside a database hold what went into it."""
        key = text_in(message.data, "id")
        if key is None:
            return False
        is_copy = key in self._seen
        self._seen.add(key)
        return is_copy

    def _steps(self, message: Message, created_ns: int) -> list[_Step]:
        steps = [_Step(start_ns=created_ns)]
        for part in message.parts:
            kind = text_in(part, "type")
            if steps[-1].finish is not None:
                ended = [moment for piece in steps[-1].pieces for moment in _moments(piece)]
                steps.append(_Step(start_ns=max([steps[-1].start_ns, *ended])))
            if kind == "step-finish":
                steps[-1].finish = part
            elif kind in ("text", "reasoning", "tool"):
                steps[-1].pieces.append(part)
                if len(_moments(part)) < len(_told_times(part)):
                    note_odd_value(message.place, self._tally)
            elif kind not in _SILENT and kind != "file":
                note_unknown_line(message.place, self._tally)
        return [step for step in steps if step.pieces or step.finish is not None] or steps[:1]

    def _call(self, message: Message, step: _Step, *, is_summary: bool, is_last: bool) -> None:
        history: Sequence[RequestPart] = self._history
        if is_summary:
            history = (RequestPart(role="user", type="text", text=all_parts(self._history)),)
        outcome = self._outcome(message, step, is_last=is_last)
        tokens = object_in(step.finish or message.data, "tokens")
        tools = [piece for piece in step.pieces if piece.get("type") == "tool"]
        self.calls.append(
            HistoryCall(
                place=message.place,
                identity=self._identity(message, is_summary=is_summary),
                protocol=None,
                model=model_from_name(message.data.get("modelID")),
                history=history,
                length=len(history),
                is_whole=False,
                request_ns=step.start_ns,
                is_request_told=False,
                end_ns=self._end_ns(message, step),
                outcome=outcome,
                usage=_usage(tokens, message.place, self._tally) if outcome.error is None else Usage(),
                tool_calls=tuple(_tool_call(tool) for tool in tools),
                tool_ids=tuple(text_in(tool, "callID") for tool in tools),
                spawned_by=None if self._start is None else self._start.tool_id,
            )
        )
        self._is_window_start = False

    def _end_ns(self, message: Message, step: _Step) -> int | None:
        found: list[int] = []
        for piece in step.pieces:
            moments = _moments(piece)
            # A tool begins to run when its call is complete; what comes after is not the answer's time.
            found += moments[:1] if piece.get("type") == "tool" else moments
        if not found:
            return ns_from_ms(object_in(message.data, "time").get("completed"))
        return max(found)

    def _outcome(self, message: Message, step: _Step, *, is_last: bool) -> Outcome:
        error = object_in(message.data, "error")
        if step.finish is not None or not is_last:
            reason = text_in(step.finish, "reason") or text_in(message.data, "finish")
            return Outcome(finish=finish_from_name((reason or "").replace("-", "_")))
        if error.get("name") == _ABORTED:
            return Outcome(error="client_abort", ended_by="client")
        status = object_in(error, "data").get("statusCode")
        if isinstance(status, int):
            return outcome_from_status(status)
        return Outcome(error="unrecorded", ended_by="recorder")

    def _pieces(self, step: _Step, place: str) -> tuple[list[RequestPart], list[RequestPart]]:
        """What an answer is in later prompts: its own pieces, and the results of its tools."""
        answer: list[RequestPart] = []
        results: list[RequestPart] = []
        for piece in step.pieces:
            text = text_in(piece, "text")
            match piece.get("type"):
                case "text" if text is not None:
                    answer.append(RequestPart(role="assistant", type="text", text=text))
                case "reasoning" if text is not None:
                    answer.append(RequestPart(role="assistant", type="thinking", text=text))
                case "tool":
                    answer.append(self._tool_use(piece, place))
                    results += _results(piece)
                case _:
                    continue
        return answer, results

    def _tool_use(self, piece: Mapping[str, Any], place: str) -> RequestPart:
        name = text_in(piece, "tool") or "tool"
        call = {"input": object_in(piece, "state").get("input"), "name": name}
        return RequestPart(
            role="assistant",
            type="tool_use",
            text=text_from_json(call, place, self._tally),
            tool_id=text_in(piece, "callID"),
            tool_name=name,
        )

    def _identity(self, message: Message, *, is_summary: bool) -> Identity:
        conversation = self._conversation
        call_class: CallClass = "main" if conversation.parent is None else "subagent"
        return Identity(
            harness=HARNESS,
            version=conversation.version,
            session=conversation.id,
            parent=conversation.parent,
            root=self._root,
            agent=text_in(message.data, "agent") if conversation.parent is not None else None,
            call_class="compaction" if is_summary else call_class,
            prompt_id=self._prompt_id if self._start is None else self._start.prompt_id,
            is_window_start=self._is_window_start,
        )


def _tool_call(tool: Mapping[str, Any]) -> ToolCall:
    moments = _moments(tool)
    return ToolCall(
        name=text_in(tool, "tool"),
        end_ns=moments[0] if moments else None,
        duration_ns=max(0, moments[1] - moments[0]) if len(moments) == 2 else None,
    )


def _moments(piece: Mapping[str, Any]) -> list[int]:
    """Begin and end of a piece, as far as they are told."""
    found = (ns_from_ms(told) for told in _told_times(piece))
    return [moment for moment in found if moment is not None]


def _told_times(piece: Mapping[str, Any]) -> list[Any]:
    times = object_in(object_in(piece, "state") if piece.get("type") == "tool" else piece, "time")
    return [times[name] for name in ("start", "end") if times.get(name) is not None]


def _is_left_out(message: Message) -> bool:
    """Whether later prompts are without this answer: it failed, or was broken off before there was more than thoughts."""
    if not object_in(message.data, "error"):
        return False
    is_aborted = object_in(message.data, "error").get("name") == _ABORTED
    return not is_aborted or all(part.get("type") in _THOUGHTS for part in message.parts)


def _results(piece: Mapping[str, Any]) -> list[RequestPart]:
    """The result of a tool call, if it has one."""
    state = object_in(piece, "state")
    if text_in(state, "status") not in _ENDED:
        return []
    text = text_in(state, "output") or text_in(state, "error") or ""
    return [RequestPart(role="tool", type="tool_result", text=text, tool_id=text_in(piece, "callID"))]


def calls_from_conversations(
    conversations: Sequence[Conversation], reading: HistoryReading
) -> list[HistoryCall]:
    """All calls of the sessions of one tree; the main agent's comes first, and each agent's before its children's."""
    starts: dict[str, _Start] = {}
    calls: list[HistoryCall] = []
    for conversation in conversations:
        _note_starts(conversation, starts)
        reader = _Reader(conversation, conversations[0].id, starts, reading)
        for message in conversation.messages:
            reader.read(message)
        calls += reader.calls
    return calls


def _note_starts(conversation: Conversation, starts: dict[str, _Start]) -> None:
    """What led to each sub-agent, as the first tool call that names it tells."""
    own = starts.get(conversation.id)
    for message in conversation.messages:
        prompt = text_in(message.data, "parentID") if own is None else own.prompt_id
        for part in message.parts:
            child = text_in(object_in(object_in(part, "state"), "metadata"), "sessionId")
            if child is not None and prompt is not None:
                starts.setdefault(child, _Start(prompt_id=prompt, tool_id=text_in(part, "callID")))


def conversation_from_fields(
    fields: Mapping[str, Any], messages: Sequence[Message], place: str
) -> Conversation:
    """A session of the source with its messages."""
    return Conversation(
        id=text_in(fields, "id") or place,
        parent=text_in(fields, "parent_id") or text_in(fields, "parentID"),
        version=version_from_name(fields.get("version")),
        messages=messages,
    )


def _usage(tokens: Mapping[str, Any], place: str, tally: Tally) -> Usage:
    """OpenCode keeps cached tokens apart from those of the input, and newer versions thoughts from the output."""
    cache = object_in(tokens, "cache")
    read, written = (count_of(cache, name, place, tally) for name in ("read", "write"))
    names = ("input", "output", "reasoning", "total")
    uncached, output, reasoning, total = (count_of(tokens, name, place, tally) for name in names)
    known = uncached is not None
    whole = (uncached or 0) + (read or 0) + (written or 0)
    if output is not None and total == whole + output + (reasoning or 0):
        output += reasoning or 0
    return Usage(
        input_tokens=whole if known else None,
        cache_read_tokens=read,
        cache_write_5m_tokens=written,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
