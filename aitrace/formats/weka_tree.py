"""Pure: who called when and what each call waited for, from one conversation of the Weka format.

The format gives times and a flat list of sub-agents; what waited for what is derived, by these rules:

- *sequence*: a call waits for every earlier call of its agent that had ended by then (within the source's time
  resolution) and that no call in between waited for. If there is none because the call before it was still running,
  or its end is not known, it depends on that call's dispatch.
- *start of a sub-agent*: the entry's `t`, or `t` less its duration where that puts the sub-agents of the conversation
  nearer to the end of a main call: published files give the time at which the result came.
- *spawn*: the main call, dispatched before the sub-agent's start, whose end is nearest to it; by its completion if it
  had ended by then, else by its dispatch. Only calls that emitted tool calls count, where that is told.
- *join*: the first main call after the spawning one that starts at or after the sub-agent's last completion and,
  where that is told, adds a tool result. If there is none, the sub-agent ran in the background.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from aitrace.formats.weka import WekaAgent, WekaCall, WekaConversation
from aitrace.schema import GapCause, Relation, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A dependency on another call of the same tree."""

    agent: int
    """Agent of the call waited for: 0 is the main one."""
    index: int
    """Index of that call in its agent."""
    relation: Relation
    """As in the trace."""
    trigger: Trigger
    """As in the trace."""
    gap_ns: int
    """From the trigger to the request, ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCall:
    """A call with its place in the tree."""

    agent: int
    """Its agent: 0 is the main one."""
    index: int
    """Its index in that agent."""
    source: WekaCall
    """What the source says."""
    request_ns: int
    """Start, from the start of the conversation, ns."""
    links: tuple[Link, ...]
    """What it waited for."""
    cause: GapCause
    """What filled the gap before it."""
    turn: int | None
    """Index of the user's prompt in the tree; None if not known."""
    overlaps: bool
    """Whether the call before it in its agent was still running."""

    @property
    def end_ns(self) -> int | None:
        """Completion, from the start of the conversation, ns; None if not known."""
        return None if self.source.api_ns is None else self.request_ns + self.source.api_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTree:
    """A conversation with everything in its place."""

    agents: tuple[WekaAgent, ...]
    """The main agent, then the sub-agents that made calls."""
    calls: tuple[PlacedCall, ...]
    """All calls, in an order in which everything waited for comes first."""
    ends_given: bool
    """Whether the `t` of sub-agent entries was found to be their end."""
    unspawned: tuple[int, ...]
    """Agents for which no creating call was found."""
    unjoined: tuple[int, ...]
    """Agents that no call of the main agent waits for."""
    overtaken: tuple[int, ...]
    """Joined agents during whose life the main agent had made calls."""


def placed_tree(conversation: WekaConversation) -> PlacedTree:
    """All calls of a conversation, linked and in order."""
    resolution_ns = conversation.resolution_ns
    ends_given = _gives_ends(conversation)
    main = _placed_agent(0, conversation.main, 0, resolution_ns)
    agents = [main]
    unspawned, unjoined, overtaken = [], [], []
    for number, child in enumerate(conversation.children, start=1):
        calls = _placed_agent(number, child, _start_ns(child, ends_given=ends_given), resolution_ns)
        spawn = _spawning_call(main, calls[0].request_ns, resolution_ns)
        if spawn is None:
            unspawned.append(number)
        else:
            calls = [replace(call, turn=main[spawn].turn) for call in calls]
            calls[0] = _with_link(calls[0], _spawn_link(main[spawn], calls[0].request_ns, resolution_ns))
        agents.append(calls)
        join = _joining_call(main, calls, -1 if spawn is None else spawn, resolution_ns)
        if join is None:
            unjoined.append(number)
            continue
        main[join] = _with_link(main[join], _join_link(calls, main[join].request_ns))
        if spawn is not None and join > spawn + 1:
            overtaken.append(number)
    return PlacedTree(
        agents=(conversation.main, *conversation.children),
        calls=_ordered(agents),
        ends_given=ends_given,
        unspawned=tuple(unspawned),
        unjoined=tuple(unjoined),
        overtaken=tuple(overtaken),
    )


def _gives_ends(conversation: WekaConversation) -> bool:
    """Whether `t` of the sub-agents' entries is nearer to what an end would be than to what a start would be."""
    ends_ns = [call.t_ns + call.api_ns for call in conversation.main.calls if call.api_ns is not None]
    timed = [child for child in conversation.children if child.duration_ns is not None]
    if not ends_ns or not timed or any(_start_ns(child, ends_given=True) < 0 for child in timed):
        return False

    def distance_ns(*, ends_given: bool) -> float:
        starts_ns = [_start_ns(child, ends_given=ends_given) for child in timed]
        return median(min(abs(start - end) for end in ends_ns) for start in starts_ns)

    return distance_ns(ends_given=True) + conversation.resolution_ns < distance_ns(ends_given=False)


def _start_ns(child: WekaAgent, *, ends_given: bool) -> int:
    return child.t_ns - (child.duration_ns or 0) if ends_given else child.t_ns


def _placed_agent(number: int, agent: WekaAgent, start_ns: int, resolution_ns: int) -> list[PlacedCall]:
    """The calls of one agent, with their sequence links, causes and turns."""
    placed: list[PlacedCall] = []
    open_calls: list[PlacedCall] = []
    turn: int | None = 0
    for index, source in enumerate(agent.calls):
        request_ns = start_ns + source.t_ns
        cause: GapCause = "unknown"
        if placed:
            cause = gap_cause(placed[-1].source, source)
            turn = _next_turn(turn, cause, placed[-1].source)
        ended = [c for c in open_calls if c.end_ns is not None and c.end_ns <= request_ns + resolution_ns]
        links = [_completion_link(c, request_ns) for c in reversed(ended)]
        if placed and not links:
            links = [_dispatch_link(placed[-1], request_ns)]
        call = PlacedCall(
            agent=number,
            index=index,
            source=source,
            request_ns=request_ns,
            links=tuple(links),
            cause=cause,
            turn=turn,
            overlaps=bool(placed) and not _has_ended(placed[-1], request_ns + resolution_ns),
        )
        # A call whose end is not known is done with as soon as another one follows it.
        open_calls = [c for c in open_calls if c not in ended and c.end_ns is not None]
        open_calls.append(call)
        placed.append(call)
    return placed


def _has_ended(call: PlacedCall, at_ns: int) -> bool:
    """Whether a call had ended by `at_ns`; one whose end is not known counts as ended."""
    return call.end_ns is None or call.end_ns <= at_ns


def gap_cause(previous: WekaCall, call: WekaCall) -> GapCause:
    """What the agent did between two of its calls.

    A request that lists everything a conversation consists of restates the history after a reset, so what it adds is
    told by how the answer before it ended. Where that answer was not captured, nothing is known.
    """
    if call.input_types is None:
        return "unknown"
    restated = bool(call.input_types & {"tool_use", "thinking"})
    if "tool_result" in call.input_types and not restated:
        return "tool"
    if previous.stop == "end_turn":
        return "user"
    answered = previous.output_types is not None and previous.stop is None
    return "user" if call.input_types == {"text"} and answered else "unknown"


def _next_turn(turn: int | None, cause: GapCause, previous: WekaCall) -> int | None:
    if turn is None or cause == "tool" or previous.stop == "tool_use":
        return turn
    return turn + 1 if cause == "user" else None


def _completion_link(call: PlacedCall, request_ns: int) -> Link:
    return Link(
        agent=call.agent,
        index=call.index,
        relation="sequence",
        trigger="completion",
        gap_ns=request_ns - (call.end_ns or 0),
    )


def _dispatch_link(call: PlacedCall, request_ns: int) -> Link:
    return Link(
        agent=call.agent,
        index=call.index,
        relation="sequence",
        trigger="dispatch",
        gap_ns=request_ns - call.request_ns,
    )


def _spawning_call(main: Sequence[PlacedCall], start_ns: int, resolution_ns: int) -> int | None:
    """Index of the main call that created a sub-agent which starts at `start_ns`."""
    before = [call for call in main if call.request_ns <= start_ns + resolution_ns]
    able = [call for call in before if call.source.output_types is None or _emits_tools(call.source)]
    candidates = able or before
    if not candidates:
        return None

    def distance_ns(call: PlacedCall) -> int:
        return abs(start_ns - (call.request_ns if call.end_ns is None else call.end_ns))

    return min(candidates, key=distance_ns).index


def _emits_tools(call: WekaCall) -> bool:
    return call.output_types is not None and "tool_use" in call.output_types


def _spawn_link(call: PlacedCall, start_ns: int, resolution_ns: int) -> Link:
    ended = call.end_ns is not None and call.end_ns <= start_ns + resolution_ns
    link = _completion_link(call, start_ns) if ended else _dispatch_link(call, start_ns)
    return replace(link, relation="spawn")


def _joining_call(
    main: Sequence[PlacedCall], child: Sequence[PlacedCall], spawn: int, resolution_ns: int
) -> int | None:
    """Index of the main call that carries the result of a sub-agent."""
    last_ns = _last_call(child).end_ns
    if last_ns is None:
        last_ns = _last_call(child).request_ns
    for call in main[spawn + 1 :]:
        carries = call.source.input_types is None or "tool_result" in call.source.input_types
        if carries and call.request_ns + resolution_ns >= last_ns:
            return call.index
    return None


def _last_call(child: Sequence[PlacedCall]) -> PlacedCall:
    return max(child, key=lambda call: call.request_ns if call.end_ns is None else call.end_ns)


def _join_link(child: Sequence[PlacedCall], request_ns: int) -> Link:
    last = _last_call(child)
    link = _dispatch_link(last, request_ns) if last.end_ns is None else _completion_link(last, request_ns)
    return replace(link, relation="join")


def _with_link(call: PlacedCall, link: Link) -> PlacedCall:
    return replace(call, links=(*call.links, link))


def _ordered(agents: Sequence[Sequence[PlacedCall]]) -> tuple[PlacedCall, ...]:
    """All calls by time of request, but never before a call of the same agent that precedes it or one waited for."""
    waiting: dict[tuple[int, int], int] = {}
    followers: dict[tuple[int, int], list[PlacedCall]] = {}
    for call in (call for calls in agents for call in calls):
        needed = {(link.agent, link.index) for link in call.links}
        if call.index:
            needed.add((call.agent, call.index - 1))
        waiting[call.agent, call.index] = len(needed)
        for key in needed:
            followers.setdefault(key, []).append(call)
    ready = [
        (calls[0].request_ns, calls[0].agent, 0, calls[0])
        for calls in agents
        if calls and waiting[calls[0].agent, 0] == 0
    ]
    heapq.heapify(ready)
    ordered: list[PlacedCall] = []
    while ready:
        call = heapq.heappop(ready)[3]
        ordered.append(call)
        for follower in followers.get((call.agent, call.index), ()):
            waiting[follower.agent, follower.index] -= 1
            if waiting[follower.agent, follower.index] == 0:
                heapq.heappush(ready, (follower.request_ns, follower.agent, follower.index, follower))
    return tuple(ordered)
