"""Pure: requests and answers, in the order of time, to the lines of a trace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aitrace.assembly.additions import Addition
from aitrace.assembly.causes import aside_cause, chain_cause
from aitrace.assembly.inputs import Answer, Ask
from aitrace.assembly.keyed_names import KeyedNames
from aitrace.assembly.prefix_tree import START, UNSEEN_START, PrefixTree
from aitrace.assembly.segmenter import Segmenter
from aitrace.assembly.sessions import CallState, Sessions, SessionState, ToolUse
from aitrace.assembly.tool_times import timed_by_id, timed_by_name
from aitrace.assembly.waits import (
    ASIDE,
    aside_waits,
    chain_waits,
    find_spawner,
    goes_on_after,
    repeated_call,
    retry_wait,
)
from aitrace.harnesses.tools import SPAWN_TOOLS
from aitrace.schema import (
    MAX_COUNT,
    Call,
    CallClass,
    CallTimes,
    Dependency,
    GapCause,
    Line,
    Outcome,
    Prompt,
    Session,
    ToolCall,
    Update,
    Usage,
)


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
        self._sessions = Sessions(self._names, self._prompts)
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
            return self._sessions.named(ask.identity, ask.identity.session)
        return self._sessions.inferred(ask.identity, ask.scope, node, ask.parts)

    def _placed(self, asked: "_Asked") -> tuple[CallState, tuple[Dependency, ...], list[Line]]:
        """The call in its session, what it waited for, and what it tells of the call before."""
        ask, session = asked.ask, asked.session
        self._names.note(ask.identity.prompt_id, *ask.identity.more_ids, ask.spawned_by)
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
            call = asked.call(turn=_turn_of_aside(asked), window=session.window)
            after = aside_waits(session, ask.request_ns, aside_cause(session, ask.identity.harness))
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
        if _is_same_prompt(ask, session, addition):
            addition = replace(addition, has_typed=False)
        session.prompt_id = ask.identity.prompt_id or session.prompt_id
        self._take_tool_uses(session, addition)
        updates = self._durations(asked, addition)
        is_window_start = addition.is_replaced or (
            addition.is_replaced is None and ask.identity.is_window_start
        )
        if not is_compaction and is_window_start:
            session.window += 1
        harness = ask.identity.harness
        cause = chain_cause(session, addition, asked.call_class, harness)
        session.turn = _turn_of_chain(asked, cause)
        after = chain_waits(
            session, addition, ask.request_ns, cause, harness=harness, warm_up=self._warm_up(asked)
        )
        call = asked.call(turn=session.turn, window=session.window, tool_results=len(addition.results))
        return call, after, updates

    def _warm_up(self, asked: "_Asked") -> CallState | None:
        """The auxiliary call just before, if the prompt goes on from its prompt, which may be empty."""
        aside = asked.session.last_aside
        if aside is None or aside.call_class != "auxiliary" or asked.session.latest is not aside:
            return None
        starts = (node for node, _ in self._prompts.starts(asked.node))
        return aside if aside.node in (START, *starts) else None

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
        if call.call_class != "compaction":
            session.answer, session.answer_ids, session.answered = (), (), call
        self._sessions.move_tip(session, asked.ask.scope, call.node, asked.ask.parts)
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
        if state is session.answered:
            session.answer = written
            session.answer_ids = answer.tool_ids if are_ids_told else ()
        return written

    def _take_tool_uses(self, session: SessionState, addition: Addition) -> None:
        """Learns from a prompt which tools the answer before has called."""
        self._names.note(*addition.results)
        answered = session.answered
        for tool_id, name in addition.tool_uses:
            self._names.note(tool_id)
            if answered is None or tool_id is None or tool_id in session.tools:
                continue
            session.tools[tool_id] = ToolUse(call=answered, name=name)
            if not session.answer:
                answered.spawns += name in SPAWN_TOOLS

    def _durations(self, asked: "_Asked", addition: Addition) -> list[Line]:
        """What the call tells of the run times of the tools that the answer before has called."""
        ask, session = asked.ask, asked.session
        if session.answered is None or not session.answer:
            return []
        ids = session.answer_ids
        if not ids and len(addition.tool_uses) == len(session.answer):
            ids = tuple(tool_id for tool_id, _ in addition.tool_uses)
        ended = [(self._names.tool(name), time_ns) for name, time_ns in ask.identity.tool_durations or ()]
        tools = timed_by_id(session.answer, ids, ask.result_durations)
        tools = timed_by_name(tools, ended, ask.request_ns)
        if tools == session.answer:
            return []
        session.answer = tools
        return [Update(call=session.answered.id, tool_calls=tools)]


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
            is_about_prompt=self.call_class == "auxiliary" and _has_question(self.ask),
        )


def _has_question(ask: Ask) -> bool:
    """Whether it may be about something that was typed: a probe of one token is not."""
    return ask.max_output_tokens != 1 and any(part.role == "user" for part in ask.parts)


def _is_same_prompt(ask: Ask, session: SessionState, addition: Addition) -> bool:
    """Whether a text that looks typed serves the prompt of the call before."""
    if ask.identity.prompt_id is not None:
        # A history that was replaced may say the prompt in other words.
        return ask.identity.prompt_id == session.prompt_id
    # What a client that no detector knows says beside results is rather its own than a person's.
    return ask.typed is None and bool(addition.results)


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
    session.turn = spawner.turn


def _turn_of_chain(asked: _Asked, cause: GapCause) -> int | None:
    """The turn of the harness's own id of the prompt where it was met before, else a new one if the user's gap is over.

    A new id alone begins none: Claude Code gives one to the notification that an agent in the background is done.
    """
    session, tree, prompt_id = asked.session, asked.session.tree, asked.ask.identity.prompt_id
    if prompt_id is None and (session.parent is not None or asked.call_class == "compaction"):
        return session.turn
    if prompt_id is not None and prompt_id in tree.turn_of_prompt:
        return tree.turn_of_prompt[prompt_id]
    turn = session.turn
    if turn is None or (cause == "user" and session.parent is None):
        turn = tree.turns
        tree.turns += 1
    if prompt_id is not None:
        tree.turn_of_prompt[prompt_id] = turn
    return turn


def _turn_of_aside(asked: _Asked) -> int | None:
    session, tree, prompt_id = asked.session, asked.session.tree, asked.ask.identity.prompt_id
    if prompt_id is not None:
        if prompt_id not in tree.turn_of_prompt:
            tree.turn_of_prompt[prompt_id] = tree.turns
            tree.turns += 1
        return tree.turn_of_prompt[prompt_id]
    is_first = session.turn is None and tree.turns == 0 and session.parent is None
    is_about_first = is_first and asked.call_class == "auxiliary" and _has_question(asked.ask)
    return 0 if is_about_first else session.turn


def _countable(tokens: int | None) -> int | None:
    """A limit that a client has set; None for a number that no trace can hold, which limits nothing."""
    return None if tokens is None or tokens > MAX_COUNT else tokens


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
        max_output_tokens=_countable(ask.max_output_tokens),
        streamed=ask.streamed,
        tool_results=call.tool_results,
        outcome=Outcome(error="unrecorded", ended_by="recorder"),
        attempt=call.attempt,
        retry_of=next((wait.call for wait in after if wait.relation == "retry"), None),
        times=CallTimes(request_ns=ask.request_ns),
        after=after,
        wire=ask.wire,
    )
