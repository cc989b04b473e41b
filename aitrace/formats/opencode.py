"""Pure: reads conversations of OpenCode: sessions, messages and their parts, as its database or JSON files hold them.

The rules, which docs/convert.md explains:

1. A step of an assistant's message is one call: from `step-start` to `step-finish`, which has its usage.
2. The first step of a message starts when the message was created, a later one after the last tool of that before it.
3. An answer ends with its last piece: text, thought, or the moment at which a tool began to run.
4. A message that is a summary replaces the conversation. It was made from all of it, put into one text.

Good: {"id": "msg_1", "role": "assistant", "time": {"created": 1796008155666}, "modelID": "m", "tokens": {…}}
Bad:  {"id": "msg_1", "role": "assistant"} (no time)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aitrace.formats.format import Tally, finish_from_name, model_from_name
from aitrace.formats.history import HistoryCall, HistoryReading
from aitrace.formats.history_fields import (
    all_parts,
    count_of,
    ns_from_ms,
    object_in,
    outcome_from_status,
    text_in,
    tool_use_part,
    version_from_name,
)
from aitrace.harnesses.detector import Identity
from aitrace.protocols.bodies import sorted_json
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import CallClass, Outcome, ToolCall, Usage

HARNESS = "opencode"
_SILENT = frozenset(
    {"agent", "compaction", "patch", "retry", "snapshot", "step-finish", "step-start", "subtask"}
)
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


class _Reader:
    """Reads the messages of one session."""

    def __init__(
        self, conversation: Conversation, root: str, prompt_of_child: Mapping[str, str], tally: Tally
    ) -> None:
        self._conversation = conversation
        self._root = root
        self._tally = tally
        self._history: list[RequestPart] = []
        self._given_prompt = prompt_of_child.get(conversation.id)
        self._prompt_id: str | None = None
        self._is_window_start = False
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
            self._tally.remark(
                "unknown_line", "a kind of line that is not known was passed over", message.place
            )

    def _user(self, message: Message) -> None:
        texts = [part for part in message.parts if part.get("type") == "text"]
        if any(not part.get("synthetic") for part in texts) or self._prompt_id is None:
            self._prompt_id = text_in(message.data, "id")
        for part in message.parts:
            match part.get("type"):
                case "text" if not part.get("ignored") and text_in(part, "text"):
                    self._history.append(RequestPart(role="user", type="text", text=str(part["text"])))
                case "file":
                    kind = "image" if str(part.get("mime", "")).startswith("image/") else "opaque"
                    text = sorted_json({"mime": part.get("mime"), "url": part.get("url")}, message.place)
                    self._history.append(
                        RequestPart(role="user", type="image" if kind == "image" else "opaque", text=text)
                    )
                case _:
                    continue

    def _assistant(self, message: Message) -> None:
        is_summary = message.data.get("summary") is True
        steps = self._steps(message)
        for index, step in enumerate(steps):
            self._call(message, step, is_summary=is_summary, is_last=index == len(steps) - 1)
            answer, results = _pieces(step)
            if is_summary:
                self._history = []
                self._is_window_start = True
            self._history += [*answer, *results]

    def _steps(self, message: Message) -> list[_Step]:
        created_ns = ns_from_ms(object_in(message.data, "time").get("created"), "time.created", message.place)
        steps = [_Step(start_ns=created_ns)]
        for part in message.parts:
            kind = part.get("type")
            if steps[-1].finish is not None:
                ended = [
                    moment for piece in steps[-1].pieces for moment in self._moments(piece, message.place)
                ]
                steps.append(_Step(start_ns=max([steps[-1].start_ns, *ended])))
            if kind == "step-finish":
                steps[-1].finish = part
            elif kind in ("text", "reasoning", "tool"):
                steps[-1].pieces.append(part)
            elif kind not in _SILENT and kind != "file":
                self._tally.remark(
                    "unknown_line", "a kind of line that is not known was passed over", message.place
                )
        return [step for step in steps if step.pieces or step.finish is not None] or steps[:1]

    def _moments(self, piece: Mapping[str, Any], place: str) -> list[int]:
        """Begin and end of a piece, as far as they are told."""
        times = object_in(object_in(piece, "state") if piece.get("type") == "tool" else piece, "time")
        return [
            ns_from_ms(times[name], name, place) for name in ("start", "end") if times.get(name) is not None
        ]

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
                usage=_usage(tokens, message.place) if outcome.error is None else Usage(),
                tool_calls=tuple(self._tool_call(tool, message.place) for tool in tools),
            )
        )
        self._is_window_start = False

    def _end_ns(self, message: Message, step: _Step) -> int | None:
        found: list[int] = []
        for piece in step.pieces:
            moments = self._moments(piece, message.place)
            # A tool begins to run when its call is complete; what comes after is not the answer's time.
            found += moments[:1] if piece.get("type") == "tool" else moments
        if not found:
            completed = object_in(message.data, "time").get("completed")
            return None if completed is None else ns_from_ms(completed, "time.completed", message.place)
        return max(found)

    def _tool_call(self, tool: Mapping[str, Any], place: str) -> ToolCall:
        moments = self._moments(tool, place)
        return ToolCall(
            name=text_in(tool, "tool"),
            end_ns=moments[0] if moments else None,
            duration_ns=max(0, moments[1] - moments[0]) if len(moments) == 2 else None,
        )

    def _outcome(self, message: Message, step: _Step, *, is_last: bool) -> Outcome:
        error = object_in(message.data, "error")
        if step.finish is not None or not is_last:
            reason = text_in(step.finish, "reason") or text_in(message.data, "finish")
            return Outcome(finish=finish_from_name((reason or "").replace("-", "_")))
        if error.get("name") == "MessageAbortedError":
            return Outcome(error="client_abort", ended_by="client")
        status = object_in(error, "data").get("statusCode")
        if isinstance(status, int):
            return outcome_from_status(status)
        return Outcome(error="unrecorded", ended_by="recorder")

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
            prompt_id=self._given_prompt or self._prompt_id,
            is_window_start=self._is_window_start,
        )


def _pieces(step: _Step) -> tuple[list[RequestPart], list[RequestPart]]:
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
                state = object_in(piece, "state")
                tool_id = text_in(piece, "callID")
                answer.append(tool_use_part(text_in(piece, "tool") or "tool", state.get("input"), tool_id))
                if state.get("status") in _ENDED:
                    result = text_in(state, "output") or text_in(state, "error") or ""
                    results.append(RequestPart(role="tool", type="tool_result", text=result, tool_id=tool_id))
            case _:
                continue
    return answer, results


def calls_from_conversations(
    conversations: Sequence[Conversation], reading: HistoryReading
) -> list[HistoryCall]:
    """All calls of the sessions of one tree; the main agent's comes first."""
    prompt_of_child: dict[str, str] = {}
    calls: list[HistoryCall] = []
    for conversation in conversations:
        _note_children(conversation, prompt_of_child)
        reader = _Reader(conversation, conversations[0].id, prompt_of_child, reading.tally)
        for message in conversation.messages:
            reader.read(message)
        calls += reader.calls
    return calls


def _note_children(conversation: Conversation, prompt_of_child: dict[str, str]) -> None:
    """The user's prompt that led to each sub-agent, as the tool call that started it tells."""
    for message in conversation.messages:
        prompt = prompt_of_child.get(conversation.id) or text_in(message.data, "parentID")
        for part in message.parts:
            child = text_in(object_in(object_in(part, "state"), "metadata"), "sessionId")
            if child is not None and prompt is not None:
                prompt_of_child[child] = prompt


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


def _usage(tokens: Mapping[str, Any], place: str) -> Usage:
    """OpenCode keeps cached tokens apart from those of the input, and newer versions thoughts from the output."""
    cache = object_in(tokens, "cache")
    read, written = count_of(cache, "read", place), count_of(cache, "write", place)
    uncached, output = count_of(tokens, "input", place), count_of(tokens, "output", place)
    reasoning, total = count_of(tokens, "reasoning", place), count_of(tokens, "total", place)
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
