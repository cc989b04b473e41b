"""Pure: how long the tools of an answer ran, from what the next request tells.

Results that state their time are joined by tool id (Codex). A list of names and times (Claude Code) has the tools in
the order in which they ended, without those that were refused. So it is joined by name, where it has as many entries
as there were calls of that tool. Which of several ran how long, it does not say: they are given such times that each
tool, started when its call had streamed, ended in that order and before the request, and the first calls the first
times as far as that allows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from aitrace.schema import ToolCall
from aitrace.units import NS_PER_MS

_STEP_NS = NS_PER_MS
"""Clients tell whole ms."""
_MAX_ORDERED = 12
"""Calls of one tool in an answer whose orders are tried; what it costs doubles with each more."""


def timed_by_id(
    tools: Sequence[ToolCall], ids: Iterable[str | None], durations: Mapping[str, int]
) -> tuple[ToolCall, ...]:
    """The tool calls with these run times, ns, by the tools' ids; those without a time stay as they are.

    Args:
        ids: One for each tool call, in order; none if they are not known.
    """
    times = dict(enumerate(durations.get(tool_id or "") for tool_id in ids))
    return tuple(_timed(tool, times.get(place)) for place, tool in enumerate(tools))


def timed_by_name(
    tools: Sequence[ToolCall], ended: Iterable[tuple[str | None, int]], by_ns: int
) -> tuple[ToolCall, ...]:
    """The tool calls with these run times; those of tools that the list does not tell for sure stay as they are.

    Args:
        ended: Name as in `tools` and run time, ns, of each, in the order in which they ended.
        by_ns: When all had ended.
    """
    durations: dict[str | None, list[int]] = {}
    for name, duration_ns in ended:
        durations.setdefault(name, []).append(duration_ns)
    timed = list(tools)
    for name, durations_ns in durations.items():
        places = [place for place, tool in enumerate(tools) if tool.name == name]
        if len(places) != len(durations_ns):
            continue
        starts = [tools[place].end_ns for place in places]
        for place, duration_ns in zip(places, _shared_out(durations_ns, starts, by_ns), strict=True):
            timed[place] = _timed(tools[place], duration_ns)
    return tuple(timed)


def _shared_out(durations_ns: Sequence[int], starts: Sequence[int | None], by_ns: int) -> list[int]:
    """The times in the order of the starts; as they come if the starts are not known, too many, or fit no order."""
    known = [start for start in starts if start is not None]
    if len(known) != len(durations_ns) or len(known) > _MAX_ORDERED:
        return list(durations_ns)
    places = _places(durations_ns, known, tuple(range(len(known))), by_ns, set())
    if places is None:
        return list(durations_ns)
    given = dict(zip(places, durations_ns, strict=True))
    return [given[place] for place in range(len(known))]


def _places(
    durations_ns: Sequence[int],
    starts: Sequence[int],
    free: tuple[int, ...],
    by_ns: int,
    dead: set[tuple[tuple[int, ...], int]],
) -> list[int] | None:
    """Which of the free starts each of the first times belongs to, so that the last of them ends by `by_ns`.

    The last to end gets the latest start that it can have had, if the others then find theirs.

    Args:
        dead: What was tried without success, to be tried once only; grows.
    """
    if not free:
        return []
    if (free, by_ns) in dead:
        return None
    for place in reversed(free):
        end_ns = starts[place] + durations_ns[len(free) - 1]
        if end_ns <= by_ns + _STEP_NS:
            others = tuple(other for other in free if other != place)
            before = _places(durations_ns, starts, others, end_ns, dead)
            if before is not None:
                return [*before, place]
    dead.add((free, by_ns))
    return None


def _timed(tool: ToolCall, duration_ns: int | None) -> ToolCall:
    return tool if duration_ns is None or duration_ns < 0 else replace(tool, duration_ns=duration_ns)
