"""Pure: which calls of a trace a replay sends, and what each of them then waits for.

Of a call that was tried several times the last attempt is sent, in the place of the first: what the first one waited
for, the last one waits for, and what waited for any of them waits for it. Calls that only count tokens are left out;
what waited for one waits for what that one had waited for, with both gaps and the time it took in between.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from aitrace.schema import Call, Dependency, GapCause


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedCall:
    """A call to be sent."""

    call: Call
    """The last attempt."""
    request_ns: int
    """When the first attempt was made, on the trace's clock."""
    after: tuple[Dependency, ...]
    """What it waits for, by id of a selected call; each call and trigger at most once."""
    freed_cause: GapCause | None = None
    """Cause of the gap before it, where all that it had waited for is left out by `without_the_rest`; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Those of some calls that are sent."""

    calls: tuple[SelectedCall, ...]
    """Every call comes after those it waits for."""
    dropped_attempts: tuple[Call, ...]
    """Attempts that a later one replaces."""
    dropped_counts: tuple[Call, ...]
    """Calls that only counted tokens, each by its last attempt."""


def select_calls(calls: Iterable[Call]) -> Selection:
    """Those of the calls of a tree, or of several, that a replay sends, with dependencies among themselves.

    Args:
        calls: By id.
    """
    by_id = {call.id: call for call in calls}
    first_of: dict[int, int] = {}
    last_of_first: dict[int, Call] = {}
    for call in by_id.values():
        first = call.id if call.retry_of is None else first_of[call.retry_of]
        first_of[call.id] = first
        last_of_first[first] = call
    # What a call that is left out had waited for, by its id.
    passed_on: dict[int, tuple[Dependency, ...]] = {}
    selected: list[SelectedCall] = []
    for first, last in last_of_first.items():
        after: list[Dependency] = []
        for dependency in by_id[first].after:
            target = last_of_first[first_of[dependency.call]]
            if target.id in passed_on:
                after.extend(_through(target, passed_on[target.id], dependency))
            else:
                is_same = target.id == dependency.call
                after.append(dependency if is_same else replace(dependency, call=target.id))
        if last.call_class == "count_tokens":
            passed_on[last.id] = _once_each(after)
        else:
            request_ns = by_id[first].times.request_ns
            selected.append(SelectedCall(call=last, request_ns=request_ns, after=_once_each(after)))
    return Selection(
        calls=tuple(selected),
        dropped_attempts=tuple(
            call for call in by_id.values() if last_of_first[first_of[call.id]] is not call
        ),
        dropped_counts=tuple(last for last in last_of_first.values() if last.id in passed_on),
    )


def without_the_rest(selected: Sequence[SelectedCall], kept: Container[int]) -> tuple[SelectedCall, ...]:
    """The calls whose ids are kept; of what each waits for, what is left out is waited for no more."""
    left: list[SelectedCall] = []
    for one in selected:
        if one.call.id not in kept:
            continue
        after = tuple(dependency for dependency in one.after if dependency.call in kept)
        cause = last_of(one.after).cause if one.after and not after else one.freed_cause
        left.append(replace(one, after=after, freed_cause=cause))
    return tuple(left)


def last_of(after: Sequence[Dependency]) -> Dependency:
    """Of the things that a call waited for, the one that was the last to happen: its gap is the shortest."""
    known = [
        (dependency.gap_ns, number)
        for number, dependency in enumerate(after)
        if dependency.gap_ns is not None and dependency.gap_ns >= 0
    ]
    return after[min(known)[1]] if known else after[0]


def _through(left_out: Call, waited_for: Sequence[Dependency], dependency: Dependency) -> list[Dependency]:
    """What a dependency on a call that is left out becomes."""
    took_ns = (
        0
        if dependency.trigger == "dispatch"
        else _difference(left_out.times.end_ns, left_out.times.request_ns)
    )
    return [
        replace(
            earlier,
            relation=earlier.relation if dependency.relation == "sequence" else dependency.relation,
            gap_ns=_total(earlier.gap_ns, took_ns, dependency.gap_ns),
            cause=dependency.cause,
        )
        for earlier in waited_for
    ]


def _once_each(after: Sequence[Dependency]) -> tuple[Dependency, ...]:
    """The dependencies without repetitions of a call and trigger; of two, the one with the longer gap."""
    if len(after) < 2:
        return tuple(after)
    longest: dict[tuple[int, str], Dependency] = {}
    for dependency in after:
        known = longest.get((dependency.call, dependency.trigger))
        if known is None or (known.gap_ns or 0) < (dependency.gap_ns or 0):
            longest[dependency.call, dependency.trigger] = dependency
    return tuple(longest.values())


def _difference(later_ns: int | None, earlier_ns: int) -> int | None:
    return None if later_ns is None else later_ns - earlier_ns


def _total(*parts_ns: int | None) -> int | None:
    known = [part_ns for part_ns in parts_ns if part_ns is not None]
    return sum(known) if len(known) == len(parts_ns) else None
