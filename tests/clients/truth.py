"""Pure: what a recording must say, from what the endpoint saw."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scenarios import Spawn
from upstream import End, Seen

from aitrace.schema import Call, CallClass, ErrorKind, GapCause, Relation

ERRORS: dict[End, ErrorKind | None] = {
    "complete": None,
    "refused": "refused",
    "cut": "cut",
    "error_event": "error_event",
    "client_abort": "client_abort",
}
FAILED: tuple[End, ...] = ("refused", "cut", "error_event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A call of the trace and the request that it stands for."""

    call: Call
    """The call."""
    seen: Seen
    """The request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Why a request of an agent came when it did."""

    before: Pair
    """The agent's request before it."""
    after: Pair
    """The request."""
    relation: Relation
    """What the trace must call it."""
    cause: GapCause
    """What filled the time between."""


def paired(calls: Sequence[Call], seen: Sequence[Seen]) -> list[Pair]:
    """Each call with its request: by the count of output tokens, which is unlike for each, the rest by time."""
    by_tokens = {one.output_tokens: one for one in seen if one.output_tokens is not None}
    pairs = []
    left_calls = []
    for call in sorted(calls, key=lambda call: call.times.request_ns):
        one = by_tokens.pop(call.usage.output_tokens, None)
        if one is None:
            left_calls.append(call)
        else:
            pairs.append(Pair(call=call, seen=one))
    told = {pair.seen.number for pair in pairs}
    left_seen = [one for one in seen if one.number not in told]
    pairs += [Pair(call=call, seen=one) for call, one in zip(left_calls, left_seen, strict=True)]
    return sorted(pairs, key=lambda pair: pair.seen.number)


def script_agent(seen: Seen) -> str | None:
    """The agent of the script; after a compaction the main agent goes on under another name."""
    return "main" if seen.agent == "after" else seen.agent


def expected_class(seen: Seen) -> CallClass:
    """What the trace must call the request's purpose."""
    if seen.purpose == "compaction":
        return "compaction"
    if seen.purpose != "turn":
        return "auxiliary"
    return "main" if script_agent(seen) == "main" else "subagent"


def chains(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Each agent's requests in their order, without auxiliary ones."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        agent = script_agent(pair.seen)
        if agent is not None and pair.seen.purpose in ("turn", "compaction"):
            found.setdefault(agent, []).append(pair)
    return found


def sessions_by_agent(pairs: Sequence[Pair]) -> dict[str, set[int]]:
    """Sessions in which the trace has each agent's requests."""
    return {agent: {pair.call.session for pair in chain} for agent, chain in chains(pairs).items()}


def spawner(pairs: Sequence[Pair], agent: str) -> Pair:
    """The request in whose answer the model started this sub-agent."""
    return next(
        pair for pair in pairs if Spawn(agent=agent) in pair.seen.tools and pair.seen.end == "complete"
    )


def waits(pairs: Sequence[Pair]) -> Iterator[Waited]:
    """Every request of an agent that has one before it."""
    for chain in chains(pairs).values():
        for before, after in pairwise(chain):
            relation, cause = _reason(before.seen, after.seen)
            yield Waited(before=before, after=after, relation=relation, cause=cause)


def _reason(before: Seen, after: Seen) -> tuple[Relation, GapCause]:
    if before.end in FAILED and before.asked.step == after.asked.step:
        # Claude Code repeats a stream that ended in an error at once, without streaming.
        return "retry", "backoff" if before.streamed == after.streamed else "harness"
    if before.purpose == "compaction":
        return "sequence", "harness"
    return "sequence", "tool" if before.tools else "user"
