"""Pure: writes conversations of the Weka format as lines of a trace.

`WekaSurvey` looks at all conversations first, since the header comes before them; `WekaImporter` then gives the lines
of one conversation after the other. docs/convert.md states the rules by which prompts are cut into segments.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aitrace.errors import InputError
from aitrace.formats.blocks import BlockNumbers, Cut, HeldPrompt, PromptWriter, cut_to_size
from aitrace.formats.format import Summary, Tally
from aitrace.formats.unknowns import Unknown
from aitrace.formats.weka import WekaAgent, WekaCall, WekaConversation
from aitrace.formats.weka_tree import Link, PlacedCall, PlacedTree, placed_tree
from aitrace.schema import (
    BlockScope,
    Call,
    CallTimes,
    Dependency,
    GapCause,
    Header,
    Line,
    Outcome,
    Prompt,
    Relation,
    Session,
    ToolCall,
    Usage,
)
from aitrace.units import NS_PER_S

HARNESS = "claude-code"
RESET_MIN_BLOCKS = 4
RESET_RATIO = 0.1

_ENDS_GIVEN = (
    "the time of sub-agents is that of their end in this conversation (less their duration it follows a main call "
    "closely); they start their duration earlier"
)
_NO_SPAWN = "a sub-agent starts before any call of the main agent; it starts with its tree"
_BACKGROUND = "no call of the main agent follows the end of a sub-agent; it runs in the background"
_OVERTAKEN = "the main agent made calls while a sub-agent ran; the first call after its end is taken to carry its result"
_NO_END = "the end of a call is not told; what follows it in its session is timed from its dispatch"
_OVERLAP = "a call starts while the one before it in its session is running; it is timed from the dispatch of that one"
_NEGATIVE_GAP = (
    "a call starts before the end of what it waited for, within the time resolution; the gap is kept as it is"
)


class WekaSurvey:
    """What the header says of all conversations of a conversion."""

    def __init__(self) -> None:
        self._first: WekaConversation | None = None
        self._resolution_ns = 0
        self._calls = 0
        self._without: dict[str, int] = {}
        self._ends_given = 0
        self._with_children = 0

    def add(self, conversation: WekaConversation) -> None:
        """Look at one more conversation.

        Raises:
            InputError: If its blocks cannot be told in the same units as those before it.
        """
        first = self._first or conversation
        self._first = first
        if conversation.block_size != first.block_size:
            raise InputError(
                f"{conversation.place}: 'block_size' is {conversation.block_size}, but {first.block_size} in "
                f"{first.place}",
                hint="convert files of different block sizes into traces of their own",
            )
        if conversation.block_scope != first.block_scope:
            raise InputError(
                f"{conversation.place}: 'hash_id_scope' differs from that of {first.place}",
                hint="convert files with global and with local block ids into traces of their own",
            )
        self._resolution_ns = max(self._resolution_ns, conversation.resolution_ns)
        if conversation.children:
            self._with_children += 1
            self._ends_given += placed_tree(conversation).ends_given
        for call in conversation.calls():
            self._add_call(call)

    def _add_call(self, call: WekaCall) -> None:
        self._calls += 1
        missing = {
            Unknown.ENDS: call.api_ns is None,
            Unknown.FIRST_TOKENS: call.ttft_ns is None,
            Unknown.INPUT_TYPES: call.input_types is None,
            Unknown.OUTPUT_TYPES: call.output_types is None,
            Unknown.MODELS: call.model is None,
            Unknown.ANSWER_SIZES: call.output_tokens is None,
        }
        for sentence, is_missing in missing.items():
            self._without[sentence] = self._without.get(sentence, 0) + is_missing

    def header(self, *, producer: str, attribution: str | None) -> Header:
        """The header for all conversations seen.

        Raises:
            InputError: If they hold no call.
        """
        if self._first is None or self._calls == 0:
            raise InputError("the input holds no call", hint="check that the right file was named")
        return Header(
            producer=producer,
            clock_scope="tree",
            clock_resolution_ns=self._resolution_ns,
            unit="tokens",
            block_size=self._first.block_size,
            block_scope=self._first.block_scope,
            source="weka",
            attribution=attribution,
            unknown=tuple(self._unknown()),
        )

    def _unknown(self) -> Iterator[str]:
        yield Unknown.CUTS_BY_SIZES
        yield Unknown.TAILS
        yield Unknown.RESOLUTION.format(f"{self._resolution_ns / NS_PER_S:g}")
        yield Unknown.TIME_BETWEEN_TREES
        if self._first is not None and self._first.block_scope == "tree":
            yield Unknown.SHARING_BETWEEN_TREES
        yield Unknown.WIRE
        yield Unknown.TOOLS
        if self._with_children:
            yield Unknown.TREE_SHAPE
        if self._ends_given:
            yield Unknown.STARTS.format(self._ends_given, self._with_children)
        for sentence, count in self._without.items():
            if count:
                yield sentence.format(count, self._calls)


@dataclass(slots=True, kw_only=True)
class _AgentState:
    """One agent while its tree is written."""

    agent: WekaAgent
    """What the source says of it."""
    session_id: int | None = None
    """Its session; None before its first call was written."""
    previous: HeldPrompt | None = None
    """Prompt of its latest call; None before the first."""
    previous_source: WekaCall | None = None
    """The same call in the source; None before the first."""
    windows: int = 0
    """Window of its latest call."""
    window_of_call: dict[int, int]
    """Window of each of its calls, by id in the trace."""


class WekaImporter:
    """Gives the lines of conversations one after the other; ids go on from one to the next."""

    def __init__(self, header: Header) -> None:
        self._block_size = header.block_size
        self._block_scope: BlockScope = header.block_scope
        self._numbers = BlockNumbers()
        self._global_blocks: dict[int, int] = {}
        self._sessions = 0
        self._calls = 0
        self._tally = Tally()

    def summary(self) -> Summary:
        """Counts of everything written so far."""
        self._tally.counts["blocks"] = self._numbers.blocks
        self._tally.counts["segments"] = self._numbers.segments
        return self._tally.summary("weka")

    def lines(self, conversation: WekaConversation) -> Iterator[Line]:
        """Sessions, segments and calls of one conversation."""
        tree = placed_tree(conversation)
        self._note_tree(conversation, tree)
        shared = self._global_blocks if self._block_scope == "trace" else {}
        writer = PromptWriter(block_size=self._block_size, numbers=self._numbers, block_of_source_id=shared)
        states = [_AgentState(agent=agent, window_of_call={}) for agent in tree.agents]
        if not tree.calls:
            return
        yield self._session(states, 0, conversation)
        call_ids: dict[tuple[int, int], int] = {}
        for placed in tree.calls:
            state = states[placed.agent]
            if state.session_id is None:
                yield self._session(states, placed.agent, conversation)
            yield from self._call(placed, state, writer, call_ids)

    def _session(self, states: list[_AgentState], number: int, conversation: WekaConversation) -> Session:
        state, root = states[number], states[0]
        state.session_id = self._sessions
        self._sessions += 1
        self._tally.add("sessions")
        self._tally.add("trees", number == 0)
        agent = conversation.main if number == 0 else state.agent
        return Session(
            id=state.session_id,
            parent=None if number == 0 else root.session_id,
            root=state.session_id if root.session_id is None else root.session_id,
            harness=HARNESS,
            agent=agent.kind,
            label=agent.label,
        )

    def _call(
        self,
        placed: PlacedCall,
        state: _AgentState,
        writer: PromptWriter,
        call_ids: dict[tuple[int, int], int],
    ) -> Iterator[Line]:
        source = placed.source
        ids = self._ids(source)
        base = writer.best_base(ids, source.input_tokens, state.previous)
        shared = 0 if base is None else writer.shared_blocks(base, ids, source.input_tokens)
        change = self._change(state, writer, ids, source, base)
        cuts = self._cuts(state, source, ids, base if change == "growth" else None)
        written = writer.write(self._calls, ids, source.input_tokens, base, cuts)
        yield from written.segments
        call_ids[placed.agent, placed.index] = self._calls
        yield self._call_line(placed, state, written.prompt, call_ids)
        state.previous, state.previous_source = written.held, source
        state.window_of_call[self._calls] = state.windows
        self._calls += 1
        self._tally.add("calls")
        self._tally.add("input_tokens", source.input_tokens)
        self._tally.add("output_tokens", source.output_tokens or 0)
        self._tally.add("block_references", len(ids))
        self._tally.add("shared_blocks", shared)

    def _ids(self, source: WekaCall) -> tuple[int, ...]:
        ids = cut_to_size(source.hash_ids, source.input_tokens, self._block_size)
        if len(ids) < len(source.hash_ids):
            self._tally.remark(
                "ids_beyond_input",
                "a prompt lists more blocks than its number of tokens has room for; the last ones were left out",
                source.place,
            )
        if len(ids) < source.input_tokens // self._block_size:
            self._tally.remark(
                "long_tail",
                "a prompt lists fewer blocks than its number of tokens fills; the rest has no identity and is not "
                "shared",
                source.place,
            )
        return ids

    def _change(
        self,
        state: _AgentState,
        writer: PromptWriter,
        ids: tuple[int, ...],
        source: WekaCall,
        base: HeldPrompt | None,
    ) -> str:
        """How the prompt relates to the one before it in its session: `first`, `return`, `reset` or `growth`."""
        previous = state.previous
        if previous is None:
            return "first"
        if base is not None and base is not previous and base.call_id in state.window_of_call:
            state.windows = state.window_of_call[base.call_id]
            self._tally.add("returns")
            return "return"
        lost = previous.full_blocks - writer.shared_blocks(previous, ids, source.input_tokens)
        if lost > max(RESET_MIN_BLOCKS, RESET_RATIO * len(previous.ids)):
            # Windows are counted on, so that going back to an old one and leaving it again gives a new number.
            state.windows = 1 + max(state.window_of_call.values())
            self._tally.add("resets")
            return "reset"
        self._tally.add("retokenised_tails", lost > 0)
        return "growth"

    def _cuts(
        self, state: _AgentState, source: WekaCall, ids: tuple[int, ...], grown_from: HeldPrompt | None
    ) -> list[Cut]:
        """How the new part of a prompt is cut; see docs/convert.md.

        Args:
            grown_from: The prompt before it in its session, if this one continues it.
        """
        end = len(ids)
        tools = state.agent.tool_tokens // self._block_size
        head = (state.agent.tool_tokens + state.agent.system_tokens) // self._block_size
        cuts = [
            Cut(upto_block=tools, role="system", type="tool_definition"),
            Cut(upto_block=head, role="system", type="system"),
        ]
        answered = state.previous_source
        if grown_from is None or grown_from is not state.previous or answered is None:
            return [*cuts, Cut(upto_block=end, role="user", type="text")]
        old_end = grown_from.full_blocks
        cuts.append(Cut(upto_block=old_end, role=grown_from.tail.role, type=grown_from.tail.type))
        new = end - old_end
        if new > 1:
            answer = min(max(1, round((answered.output_tokens or 0) / self._block_size)), new - 1)
            cuts.append(_answer_cut(old_end + answer, answered))
        return [*cuts, _input_cut(end, source)]

    def _call_line(
        self,
        placed: PlacedCall,
        state: _AgentState,
        prompt: Prompt,
        call_ids: dict[tuple[int, int], int],
    ) -> Call:
        source = placed.source
        return Call(
            id=self._calls,
            session=state.session_id or 0,
            turn=placed.turn,
            window=state.windows,
            call_class="main" if placed.agent == 0 else "subagent",
            model=source.model,
            prompt=prompt,
            streamed=source.streamed,
            usage=Usage(input_tokens=source.input_tokens, output_tokens=source.output_tokens),
            tool_calls=_tool_calls(source),
            tool_results=_tool_results(source),
            outcome=Outcome(finish=source.stop),
            times=CallTimes(
                request_ns=placed.request_ns,
                first_token_ns=None if source.ttft_ns is None else placed.request_ns + source.ttft_ns,
                end_ns=placed.end_ns,
            ),
            after=tuple(_dependency(link, placed, call_ids) for link in placed.links),
        )

    def _note_tree(self, conversation: WekaConversation, tree: PlacedTree) -> None:
        """Count and explain what the derivation of the tree had to decide."""
        children = len(tree.agents) - 1
        self._tally.add("forks", children - len(tree.unspawned))
        self._tally.add("joins", children - len(tree.unjoined))
        self._tally.add("background_children", len(tree.unjoined))
        remark = self._tally.remark
        if tree.ends_given:
            remark("agent_end_given", _ENDS_GIVEN, conversation.place)
        for _ in range(conversation.idle_children):
            remark("idle_agent", "a sub-agent has no calls; it was left out", conversation.place)
        for number in tree.unspawned:
            remark("no_spawn", _NO_SPAWN, tree.agents[number].place)
        for number in tree.unjoined:
            remark("background_agent", _BACKGROUND, tree.agents[number].place)
        for number in tree.overtaken:
            remark("overtaken_agent", _OVERTAKEN, tree.agents[number].place)
        for agent in tree.agents:
            for _ in range(agent.reordered):
                remark("out_of_order", "a request stands before an earlier one; sorted by time", agent.place)
        for placed in tree.calls:
            self._note_call(placed)

    def _note_call(self, placed: PlacedCall) -> None:
        place = placed.source.place
        if placed.end_ns is None:
            self._tally.remark("no_end", _NO_END, place)
        for link in placed.links:
            if link.relation == "sequence" and link.trigger == "dispatch" and placed.overlaps:
                self._tally.remark("overlap", _OVERLAP, place)
            if link.gap_ns < 0:
                self._tally.remark("negative_gap", _NEGATIVE_GAP, place)


def _answer_cut(upto_block: int, call: WekaCall) -> Cut:
    kinds = call.output_types or frozenset()
    if "tool_use" in kinds:
        return Cut(upto_block=upto_block, role="assistant", type="tool_use")
    if kinds == {"thinking"}:
        return Cut(upto_block=upto_block, role="assistant", type="thinking")
    return Cut(upto_block=upto_block, role="assistant", type="text")


def _input_cut(upto_block: int, call: WekaCall) -> Cut:
    if call.input_types is not None and "tool_result" in call.input_types:
        return Cut(upto_block=upto_block, role="tool", type="tool_result")
    return Cut(upto_block=upto_block, role="user", type="text")


def _tool_calls(call: WekaCall) -> tuple[ToolCall, ...] | None:
    """None where tools were called, since the source does not say how many."""
    return () if call.output_types is not None and "tool_use" not in call.output_types else None


def _tool_results(call: WekaCall) -> int | None:
    return 0 if call.input_types is not None and "tool_result" not in call.input_types else None


def _dependency(link: Link, placed: PlacedCall, call_ids: dict[tuple[int, int], int]) -> Dependency:
    causes: dict[Relation, GapCause] = {"join": "tool", "spawn": "harness"}
    return Dependency(
        call=call_ids[link.agent, link.index],
        relation=link.relation,
        trigger=link.trigger,
        gap_ns=link.gap_ns,
        cause=causes.get(link.relation, placed.cause),
    )
