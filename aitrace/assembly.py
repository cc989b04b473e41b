"""Pure: requests and answers, in the order of time, to the lines of a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aitrace.agents import Agents, CallState, SessionState, ToolUse
from aitrace.harnesses.detector import Identity
from aitrace.harnesses.tools import SPAWN_TOOLS
from aitrace.histories import Addition
from aitrace.keyed_names import KeyedNames
from aitrace.prefix_tree import START, UNSEEN_START, PrefixTree
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import (
    Call,
    CallClass,
    CallTimes,
    Dependency,
    Events,
    Line,
    Outcome,
    Prompt,
    ProtocolName,
    Session,
    ToolCall,
    Update,
    Usage,
    Wire,
)
from aitrace.segmenter import Segmenter
from aitrace.waits import (
    ASIDE,
    aside_waits,
    cause_of,
    chain_waits,
    find_spawner,
    goes_on_after,
    repeated_call,
    rest_cause,
    retry_wait,
)


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


class Assembler:
    """Puts calls into sessions and finds what each waited for.

    Calls are told in the order of time: an answer before the request that follows it. What is kept of a call are ids
    and times, never its texts.

    Args:
        key: Random bytes; key of all hashes, thrown away with the assembler.
        block_size: Bytes of a block.
        keep_text: Whether segments carry their text (`privacy: content`).
    """

    def __init__(self, key: bytes, *, block_size: int = 256, keep_text: bool = False) -> None:
        self._names = KeyedNames(key)
        self._segmenter = Segmenter(key, block_size=block_size, keep_text=keep_text)
        self._prompts = PrefixTree()
        self._agents = Agents(self._names, self._prompts)
        self._calls: list[CallState] = []

    def begin(self, ask: Ask) -> tuple[int, list[Line]]:
        """A call begins: its id, and the lines to write now, the call's own (outcome `unrecorded`) the last."""
        call_id = len(self._calls)
        segments, new_segments = self._segmenter.segments(ask.parts)
        start = UNSEEN_START if ask.unseen_start else START
        place = self._prompts.insert(segments, call_id, start=start)
        session, lines = self._session(ask, place.node)
        asked = _Asked(
            ask=ask,
            id=call_id,
            session=session,
            segments=segments,
            node=place.node,
            call_class=_class_of(ask, session),
        )
        call, after, updates = self._placed(asked)
        self._calls.append(call)
        prompt = Prompt(
            base=place.base,
            keep=place.keep,
            add=tuple(segments[place.keep :]),
            unseen_start=ask.unseen_start,
        )
        return call_id, [*lines, *new_segments, *updates, _line(ask, call, prompt, after)]

    def end(self, call: int, answer: Answer) -> list[Line]:
        """A call is over: the updates to write.

        Raises:
            ValueError: There is no such call in flight.
        """
        if not 0 <= call < len(self._calls) or self._calls[call].has_ended:
            raise ValueError(f"expected a call that has begun and not ended, got {call}")
        state = self._calls[call]
        state.has_ended = True
        state.end_ns = answer.times.end_ns
        state.error = answer.outcome.error
        if state.error is not None and state.call_class in ASIDE:
            state.session.failed_asides[state.node] = state
        return [
            Update(
                call=call,
                usage=None if answer.usage == Usage() else answer.usage,
                tool_calls=self._take_tools(state, answer),
                outcome=answer.outcome,
                times=replace(answer.times, request_ns=state.request_ns),
                events=answer.events,
                wire=answer.wire,
            )
        ]

    @property
    def names(self) -> frozenset[str]:
        """Raw keys and names seen (session keys, prompt ids, made-up tool names, tool call ids): what must not be
        found in the file.
        """
        return self._names.raw

    def _session(self, ask: Ask, node: int) -> tuple[SessionState, list[Session]]:
        if ask.identity.session is not None:
            return self._agents.named(ask.identity, ask.identity.session)
        return self._agents.inferred(ask.identity, ask.scope, node, ask.parts)

    def _placed(self, asked: "_Asked") -> tuple[CallState, tuple[Dependency, ...], list[Line]]:
        """The call in its session, what it waited for, and what it tells of the call before."""
        ask, session = asked.ask, asked.session
        self._names.note(ask.identity.prompt_id, ask.spawned_by)
        if session.latest is None and session.parent is not None:
            _note_spawner(session, ask)
        failed = repeated_call(session, asked.call_class, asked.node, ask.request_ns)
        updates: list[Line] = []
        if failed is not None:
            call = asked.call(
                turn=failed.turn,
                window=failed.window,
                attempt=failed.attempt + 1,
                tool_results=failed.tool_results,
            )
            after: tuple[Dependency, ...] = (retry_wait(failed, ask.request_ns, streamed=ask.streamed),)
        elif asked.call_class in ASIDE:
            turn = _turn_of_prompt(session, ask)
            call = asked.call(turn=session.turn if turn is None else turn, window=session.window)
            after = aside_waits(session, ask.request_ns, rest_cause(ask.identity.harness))
        else:
            call, after, updates = self._chained(asked)
        self._follow(asked, call, failed)
        return call, after, updates

    def _chained(self, asked: "_Asked") -> tuple[CallState, tuple[Dependency, ...], list[Line]]:
        """As `_placed`, for the next call of a session's chain."""
        ask, session = asked.ask, asked.session
        is_compaction = asked.call_class == "compaction"
        addition = session.history.add(
            ask.parts,
            asked.segments,
            typed=ask.typed,
            unseen_start=ask.unseen_start,
            is_kept=not is_compaction,
        )
        if ask.identity.prompt_id is not None and ask.identity.prompt_id == session.prompt_id:
            # A history that was replaced may say the prompt in other words.
            addition = replace(addition, has_typed=False)
        session.prompt_id = ask.identity.prompt_id or session.prompt_id
        self._take_tool_uses(session, addition)
        updates = self._durations(asked, addition)
        if not is_compaction and (addition.is_replaced or ask.identity.is_window_start):
            session.window += 1
        session.turn = _turn_of_chain(asked, addition)
        harness = ask.identity.harness
        cause = cause_of(session, addition, asked.call_class, harness)
        after = chain_waits(session, addition, ask.request_ns, cause, harness)
        call = asked.call(turn=session.turn, window=session.window, tool_results=len(addition.results))
        return call, after, updates

    def _follow(self, asked: "_Asked", call: CallState, failed: CallState | None) -> None:
        """Notes that this is now the latest call of its session and tree."""
        session, tree = asked.session, asked.session.tree
        tree.first = tree.first or call
        tree.last = call
        if call.call_class in ASIDE:
            session.last_aside = call
            session.failed_asides.pop(call.node, None)
            return
        if failed is None:
            session.before_last = session.last
        session.last = call
        session.answer, session.answer_ids = (), ()
        self._agents.move_tip(session, asked.ask.scope, call.node, asked.ask.parts)
        if session.parent is not None and session not in session.parent.open_children:
            session.parent.open_children.append(session)

    def _take_tools(self, state: CallState, answer: Answer) -> tuple[ToolCall, ...] | None:
        """The tool calls of an answer as written."""
        self._names.note(*answer.tool_ids)
        if answer.tool_calls is None:
            return None
        session = state.session
        names = tuple(tool.name for tool in answer.tool_calls)
        state.asks_tools = state.error is None and goes_on_after(names)
        state.spawns = sum(name in SPAWN_TOOLS for name in names)
        written = tuple(replace(tool, name=self._names.tool(tool.name)) for tool in answer.tool_calls)
        are_ids_told = len(answer.tool_ids) == len(written)
        if are_ids_told:
            told = zip(answer.tool_ids, names, strict=True)
            session.tools.update(
                (tool_id, ToolUse(call=state, name=name)) for tool_id, name in told if tool_id is not None
            )
        if state is session.last:
            session.answer = written
            session.answer_ids = answer.tool_ids if are_ids_told else ()
        return written

    def _take_tool_uses(self, session: SessionState, addition: Addition) -> None:
        """Learns from a prompt which tools the answer before has called."""
        self._names.note(*addition.results)
        for tool_id, name in addition.tool_uses:
            self._names.note(tool_id)
            if session.last is None or tool_id is None or tool_id in session.tools:
                continue
            session.tools[tool_id] = ToolUse(call=session.last, name=name)
            if not session.answer:
                session.last.spawns += name in SPAWN_TOOLS

    def _durations(self, asked: "_Asked", addition: Addition) -> list[Line]:
        """What the call tells of the run times of the tools that the answer before has called."""
        session, tools = asked.session, list(asked.session.answer)
        if session.last is None or not tools:
            return []
        ids = session.answer_ids
        if not ids and len(addition.tool_uses) == len(tools):
            ids = tuple(tool_id for tool_id, _ in addition.tool_uses)
        for place, tool_id in enumerate(ids):
            _set_duration(tools, place, asked.ask.result_durations.get(tool_id or ""))
        place = 0
        for name, duration_ns in asked.ask.identity.tool_durations or ():
            written = self._names.tool(name)
            # Tools that never ran, being refused, are left out of the list.
            match = next((i for i in range(place, len(tools)) if tools[i].name in (written, None)), None)
            if match is not None:
                _set_duration(tools, match, duration_ns)
                place = match + 1
        if tuple(tools) == session.answer:
            return []
        return [Update(call=session.last.id, tool_calls=tuple(tools))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request with its place."""

    ask: Ask
    """The request."""
    id: int
    """Its call."""
    session: SessionState
    """Its session."""
    segments: Sequence[int]
    """Its prompt."""
    node: int
    """Its prompt in the tree of prompts."""
    call_class: CallClass
    """What it is for."""

    def call(
        self, *, turn: int | None, window: int, attempt: int = 1, tool_results: int | None = None
    ) -> CallState:
        return CallState(
            id=self.id,
            session=self.session,
            call_class=self.call_class,
            node=self.node,
            request_ns=self.ask.request_ns,
            streamed=self.ask.streamed,
            turn=turn,
            window=window,
            attempt=attempt,
            tool_results=tool_results,
        )


def _class_of(ask: Ask, session: SessionState) -> CallClass:
    if ask.identity.call_class != "unknown":
        return ask.identity.call_class
    return "main" if session.parent is None else "subagent"


def _note_spawner(session: SessionState, ask: Ask) -> None:
    spawner = find_spawner(session.parent, ask.spawned_by, ask.request_ns)
    if spawner is None:
        return
    spawner.children += 1
    session.spawner = spawner
    session.is_spawner_awaited = spawner.has_ended_by(ask.request_ns)
    session.turn = spawner.turn


def _turn_of_chain(asked: _Asked, addition: Addition) -> int | None:
    session, tree = asked.session, asked.session.tree
    told = _turn_of_prompt(session, asked.ask)
    if told is not None:
        return told
    if session.parent is not None or asked.call_class == "compaction":
        return session.turn
    if session.turn is None or addition.has_typed:
        tree.turns += 1
        return tree.turns - 1
    return session.turn


def _turn_of_prompt(session: SessionState, ask: Ask) -> int | None:
    """The turn by the harness's own id of the user's prompt; None if it told none."""
    tree, prompt_id = session.tree, ask.identity.prompt_id
    if prompt_id is None:
        return None
    if prompt_id not in tree.turn_of_prompt:
        tree.turn_of_prompt[prompt_id] = tree.turns
        tree.turns += 1
    return tree.turn_of_prompt[prompt_id]


def _set_duration(tools: list[ToolCall], place: int, duration_ns: int | None) -> None:
    if duration_ns is not None and duration_ns >= 0:
        tools[place] = replace(tools[place], duration_ns=duration_ns)


def _line(ask: Ask, call: CallState, prompt: Prompt, after: tuple[Dependency, ...]) -> Call:
    return Call(
        id=call.id,
        session=call.session.id,
        turn=call.turn,
        window=call.window,
        call_class=call.call_class,
        protocol=ask.protocol,
        model=ask.model,
        prompt=prompt,
        max_output_tokens=ask.max_output_tokens,
        streamed=ask.streamed,
        tool_results=call.tool_results,
        outcome=Outcome(error="unrecorded", ended_by="recorder"),
        attempt=call.attempt,
        retry_of=next((wait.call for wait in after if wait.relation == "retry"), None),
        times=CallTimes(request_ns=ask.request_ns),
        after=after,
        wire=ask.wire,
    )
