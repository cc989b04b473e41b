"""Pure: how long a planned call waits after what it depends on.

A call that waited for several others was sent a gap after the last of them. That gap is taken for each of them: the
time since the others, which the recording also tells, contains the work of the last one (a sub-agent's calls), and
a replay must do that work, not wait for it and its recorded duration too.

Where the end of the call before is not known, the recording times the next one from its dispatch. That one still
carries the answer, so it waits for the answer's end as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aitrace.schema import Call, Dependency, GapCause, Relation, Trigger
from aitrace.units import NS_PER_MS
from replayer.planning.selection import last_of

GapRule = Literal["gap", "tools"]
_TOOL_CLOCK_STEP_NS = NS_PER_MS
"""Clients tell tool times in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """When a call is due whose tools' times are known: after the last of them, or after the answer, plus overhead."""

    tools: tuple[tuple[float, int], ...]
    """For each tool call of the answer: where its block ends between the first token (0) and the last (1), and how
    long the tool runs, ns, scaled."""
    overhead_ns: int
    """From the last of these moments to the dispatch, ns, scaled."""
    cap_ns: int | None
    """Longest time from the end of the answer to the dispatch, ns; None without a cap."""

    def due_ns(self, end_ns: int, first_token_ns: int | None, last_token_ns: int | None) -> int:
        """When the call is due after an answer with these times; without token times all blocks end with it."""
        ready_ns = end_ns
        for ratio, duration_ns in self.tools:
            block_end_ns = end_ns
            if first_token_ns is not None and last_token_ns is not None:
                block_end_ns = first_token_ns + round(ratio * (last_token_ns - first_token_ns))
            ready_ns = max(ready_ns, block_end_ns + duration_ns)
        wait_ns = ready_ns - end_ns + self.overhead_ns
        return end_ns + (wait_ns if self.cap_ns is None else min(wait_ns, self.cap_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDependency:
    """What a planned call waits for."""

    index: int
    """Planned call waited for; always an earlier one."""
    relation: Relation
    """As in the trace; never `retry`."""
    trigger: Trigger
    """Which moment of that call counts."""
    gap_ns: int
    """From the trigger to the dispatch, ns: scaled, capped, never below 0. As recorded where `rule` is `tools`."""
    cause: GapCause
    """What fills the gap."""
    rule: GapRule = "gap"
    """`gap`: due at trigger + gap; `tools`: due by `tools`."""
    tools: ToolRule | None = None
    """Set where `rule` is `tools`, else None."""

    def due_ns(self, trigger_ns: int, first_token_ns: int | None, last_token_ns: int | None) -> int:
        """When the call is due on account of this dependency, after its trigger."""
        if self.tools is None:
            return trigger_ns + self.gap_ns
        return self.tools.due_ns(trigger_ns, first_token_ns, last_token_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWait:
    """All that a planned call waits for."""

    after: tuple[PlannedDependency, ...]
    """In the trace's order."""
    gap_ns: int | None
    """Gap after the last of them in the recording, scaled and capped; None if it waits for nothing."""
    cause: GapCause | None
    """Cause of that gap; None if it waits for nothing."""
    capped_ns: int
    """What a cap took off that gap, ns."""
    unknown_gaps: int
    """Dependencies whose gap the trace does not know, taken as 0."""
    overlaps: int
    """Dependencies that had not ended when the call was sent; their gap is 0."""
    timed_from_dispatch: int
    """Dependencies timed from the dispatch of a call whose end is not known; the call waits for that end as well."""


def plan_wait(
    after: Sequence[Dependency],
    calls: Sequence[Call] | Mapping[int, Call],
    positions: Mapping[int, int],
    *,
    time_scale: float,
    caps_ns: Mapping[GapCause, int],
) -> PlannedWait:
    """What a call with these dependencies waits for in a replay.

    Args:
        calls: By id.
        positions: Index of each call in the plan, by id.
    """
    last = last_of(after) if after else None
    scaled_ns = 0 if last is None else round(max(0, last.gap_ns or 0) * time_scale)
    cause = None if last is None else last.cause
    cap_ns = None if cause is None else caps_ns.get(cause)
    gap_ns = scaled_ns if cap_ns is None else min(scaled_ns, cap_ns)
    tools = None
    if len(after) == 1 and _is_gap_known(after[0]):
        tools = tool_rule(after[0], calls[after[0].call], time_scale=time_scale, cap_ns=cap_ns)
    planned: list[PlannedDependency] = []
    for dependency in after:
        one = _planned(dependency, positions[dependency.call], gap_ns, tools)
        planned.append(one)
        if _is_timed_from_dispatch(dependency, calls[dependency.call]):
            planned.append(replace(one, trigger="completion", gap_ns=0))
    return PlannedWait(
        after=tuple(planned),
        gap_ns=None if last is None else gap_ns,
        cause=cause,
        capped_ns=scaled_ns - gap_ns,
        unknown_gaps=sum(dependency.gap_ns is None for dependency in after),
        overlaps=sum(dependency.gap_ns is not None and dependency.gap_ns < 0 for dependency in after),
        timed_from_dispatch=len(planned) - len(after),
    )


def _is_gap_known(dependency: Dependency) -> bool:
    return dependency.gap_ns is not None and dependency.gap_ns >= 0


def _planned(dependency: Dependency, index: int, gap_ns: int, tools: ToolRule | None) -> PlannedDependency:
    """What a dependency on the call with this index in the plan becomes."""
    return PlannedDependency(
        index=index,
        relation=dependency.relation,
        trigger=dependency.trigger,
        gap_ns=gap_ns if _is_gap_known(dependency) else 0,
        cause=dependency.cause,
        rule="gap" if tools is None else "tools",
        tools=tools,
    )


def _is_timed_from_dispatch(dependency: Dependency, base: Call) -> bool:
    """Whether the recording times a call from the dispatch of the one before, for want of that one's end."""
    is_dispatch = dependency.relation == "sequence" and dependency.trigger == "dispatch"
    return is_dispatch and base.times.end_ns is None


def tool_rule(
    dependency: Dependency, base: Call, *, time_scale: float, cap_ns: int | None
) -> ToolRule | None:
    """The rule for a call that follows `base`; None where not all tools' times are known or they contradict the gap."""
    end_ns, gap_ns, tool_calls = base.times.end_ns, dependency.gap_ns, base.tool_calls
    if dependency.relation != "sequence" or dependency.trigger != "completion" or dependency.cause != "tool":
        return None
    if end_ns is None or gap_ns is None or not tool_calls:
        return None
    tools: list[tuple[float, int]] = []
    for tool in tool_calls:
        if tool.duration_ns is None:
            return None
        tools.append((_place_in_stream(tool.end_ns, base), tool.duration_ns))
    recorded = ToolRule(tools=tuple(tools), overhead_ns=0, cap_ns=None)
    ready_ns = recorded.due_ns(end_ns, base.times.first_token_ns, base.times.last_token_ns)
    overhead_ns = end_ns + gap_ns - ready_ns
    if overhead_ns < -_TOOL_CLOCK_STEP_NS:
        return None
    return ToolRule(
        tools=tuple((ratio, round(duration_ns * time_scale)) for ratio, duration_ns in tools),
        overhead_ns=round(max(0, overhead_ns) * time_scale),
        cap_ns=cap_ns,
    )


def _place_in_stream(block_end_ns: int | None, base: Call) -> float:
    """Where a block ended between the first token (0) and the last (1); 1 if that is not known."""
    first_ns, last_ns = base.times.first_token_ns, base.times.last_token_ns
    if block_end_ns is None or first_ns is None or last_ns is None or last_ns <= first_ns:
        return 1.0
    return min(1.0, max(0.0, (block_end_ns - first_ns) / (last_ns - first_ns)))
