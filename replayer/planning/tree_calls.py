"""Pure: the calls of one tree as they are planned, with what each waits for and when it is due."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aitrace.columns import NOT_KNOWN, Integers, call_columns
from aitrace.schema import Call, Trace
from replayer.planning.gaps import PlannedDependency, PlannedWait, plan_wait
from replayer.planning.mid_start import MidStart
from replayer.planning.options import LoadOptions
from replayer.planning.planned import PlannedCall, PlannedTree
from replayer.planning.selection import SelectedCall
from replayer.planning.sizes import output_tokens, prompt_sizes, token_ratio


class Recording:
    """What is known of each call of the trace, by id, and of all of them together."""

    def __init__(self, trace: Trace) -> None:
        columns = call_columns(trace)
        sizes = np.asarray(prompt_sizes(trace), np.int64)
        self.ratio = token_ratio(trace)
        """Tokens of one unit of the trace's sizes."""
        self.prompt_sizes = _integers(sizes)
        """Size of each prompt in the trace's unit."""
        self.prompt_tokens = _integers(np.rint(sizes * self.ratio.tokens_per_unit))
        """Size of each prompt, tokens."""
        self.output_tokens = _integers(np.asarray(output_tokens(trace.calls)))
        """Length of each answer."""
        durations_ns = (columns.end_ns - columns.request_ns)[columns.end_ns != NOT_KNOWN]
        lengths = columns.output_tokens[columns.output_tokens != NOT_KNOWN]
        self.usual_duration_ns = _median(durations_ns)
        """Median time from request to end; None if no call has a known end."""
        self.mean_duration_ns = float(durations_ns.mean()) if len(durations_ns) else 0.0
        """0 if no call has a known end."""
        self.usual_output_tokens = _median(lengths)
        """Median length of an answer; None if that of none is known."""

    def duration_ns(self, call: Call) -> int | None:
        """Time from request to end, the usual one if its own is not known."""
        end_ns = call.times.end_ns
        return self.usual_duration_ns if end_ns is None else end_ns - call.times.request_ns


def _integers(values: npt.NDArray[Any]) -> "array[int]":
    """The values as an array whose items are numbers of Python."""
    return array("q", values.astype(np.int64).tobytes())


def _median(values: Integers) -> int | None:
    """The median, the lower one of two; None of nothing."""
    return int(np.sort(values)[(len(values) - 1) // 2]) if len(values) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlan:
    """One playing of a tree, planned."""

    calls: tuple[PlannedCall, ...]
    """By index."""
    waits: tuple[PlannedWait, ...]
    """What they wait for, but for those that prime a prompt; empty in an absolute schedule."""


def plan_calls(recording: Recording, tree: PlannedTree, start: MidStart, options: LoadOptions) -> TreePlan:
    """The calls of one playing of a tree, from a point on."""
    playing = _Playing(recording, tree, start, options)
    for member in start.calls:
        playing.add(member)
    waits = () if options.schedule == "absolute" else tuple(playing.waits)
    return TreePlan(calls=tuple(playing.planned), waits=waits)


class _Playing:
    """One playing of a tree, planned call by call in the order of the plan."""

    def __init__(
        self, recording: Recording, tree: PlannedTree, start: MidStart, options: LoadOptions
    ) -> None:
        self.planned = [
            _prime(recording, tree, place, member, start)
            for place, member in enumerate(start.before if options.prime else ())
        ]
        """The calls so far; those that prime a prompt come first, and are here from the start."""
        self.waits: list[PlannedWait] = []
        """What the others wait for."""
        self._recording = recording
        self._tree = tree
        self._options = options
        self._primes = len(self.planned)
        self._start_ns = min(member.request_ns for member in start.calls)
        self._calls = {member.call.id: member.call for member in (*start.before, *start.calls)}
        self._positions: dict[int, int] = {}
        """Index of each call that is planned, by id."""
        self._turns: dict[int, int] = {}
        """Position of the latest call of each session within it."""
        self._session_calls = Counter(call.session for call in self.planned)
        self._session_calls.update(member.call.session for member in start.calls)

    def add(self, member: SelectedCall) -> None:
        """Plan the next call."""
        call = member.call
        index = self._positions[call.id] = self._tree.first + len(self.planned)
        wait = self._wait(member)
        self.waits.append(wait)
        after, offset_ns = self._when(member, wait)
        due_ns = _planned_due_ns(self._tree, after, offset_ns, self.planned, self._calls)
        turn_index = self._turns[call.session] = self._turns.get(call.session, -1) + 1
        answer_tokens = self._recording.output_tokens[call.id]
        self.planned.append(
            PlannedCall(
                **_recorded_fields(self._recording, self._tree, call),
                index=index,
                turn_index=turn_index,
                session_calls=self._session_calls[call.session],
                after=after,
                offset_ns=offset_ns,
                gap_ns=wait.gap_ns,
                gap_cause=wait.cause,
                output_tokens=answer_tokens,
                max_output_tokens=answer_tokens,
                streamed=self._options.stream == "always" or call.streamed is not False,
                planned_ns=due_ns,
                planned_end_ns=_sum(due_ns, self._recording.duration_ns(call)),
                phase="warm_up" if self._tree.is_warm_up else "measured",
            )
        )

    def _wait(self, member: SelectedCall) -> PlannedWait:
        return plan_wait(
            member.after,
            self._calls,
            self._positions,
            time_scale=self._options.time_scale,
            caps_ns=self._options.gap_caps_ns,
        )

    def _when(self, member: SelectedCall, wait: PlannedWait) -> tuple[tuple[PlannedDependency, ...], int]:
        """What a call waits for, and how long after its tree's start it is due at the earliest, ns."""
        options = self._options
        offset_ns = round((member.request_ns - self._start_ns) * options.time_scale)
        is_absolute = options.schedule == "absolute"
        if wait.after and not is_absolute:
            return wait.after, 0
        cap_ns = None if member.freed_cause is None else options.gap_caps_ns.get(member.freed_cause)
        if cap_ns is not None and not is_absolute:
            offset_ns = min(offset_ns, cap_ns)
        if self._primes:
            return _after_primes(self._tree.first, self._primes, offset_ns), 0
        return (), offset_ns


def _recorded_fields(recording: Recording, tree: PlannedTree, call: Call) -> dict[str, Any]:
    """What a call of the trace is in any playing of its tree, and which playing this is."""
    return {
        "instance": tree.instance,
        "session": call.session,
        "root": tree.root,
        "call": call.id,
        "call_class": call.call_class,
        "turn": call.turn,
        "window": call.window,
        "prompt_size": recording.prompt_sizes[call.id],
        "prompt_tokens": recording.prompt_tokens[call.id],
    }


def _prime(
    recording: Recording, tree: PlannedTree, place: int, member: SelectedCall, start: MidStart
) -> PlannedCall:
    """The call that sends a prompt only to have it in the target's cache."""
    call = member.call
    times = call.times
    first_token_ns = None if times.first_token_ns is None else times.first_token_ns - times.request_ns
    duration_ns = recording.duration_ns(call) if first_token_ns is None else first_token_ns
    return PlannedCall(
        **_recorded_fields(recording, tree, call),
        index=tree.first + place,
        turn_index=0,
        session_calls=1 + sum(one.call.session == call.session for one in start.calls),
        after=(),
        offset_ns=0,
        gap_ns=None,
        gap_cause=None,
        output_tokens=1,
        max_output_tokens=1,
        streamed=True,
        planned_ns=tree.planned_ns,
        planned_end_ns=_sum(tree.planned_ns, duration_ns),
        phase="prime",
    )


def _after_primes(first: int, primes: int, gap_ns: int) -> tuple[PlannedDependency, ...]:
    """A wait for all of them; like a join, since a call goes on if what it joins has failed."""
    return tuple(
        PlannedDependency(index=index, relation="join", trigger="completion", gap_ns=gap_ns, cause="harness")
        for index in range(first, first + primes)
    )


def _planned_due_ns(
    tree: PlannedTree,
    after: Sequence[PlannedDependency],
    offset_ns: int,
    earlier: Sequence[PlannedCall],
    calls: Mapping[int, Call],
) -> int | None:
    """When a call is due if every answer takes its recorded time, ns from the start; None if that is not known."""
    if tree.planned_ns is None:
        return None
    due_ns = tree.planned_ns + offset_ns
    dispatches = {dependency.index for dependency in after if dependency.trigger == "dispatch"}
    for dependency in after:
        base = earlier[dependency.index - tree.first]
        times = calls[base.call].times
        is_dispatch = dependency.trigger == "dispatch"
        if not is_dispatch and times.end_ns is None and dependency.index in dispatches:
            continue  # its end is a guess, and the recording told the time from its dispatch
        trigger_ns = base.planned_ns if is_dispatch else base.planned_end_ns
        if trigger_ns is None:
            return None
        if dependency.tools is None:
            due_ns = max(due_ns, trigger_ns + dependency.gap_ns)
            continue
        first_token_ns = _moved(base.planned_ns, times.request_ns, times.first_token_ns)
        last_token_ns = _moved(base.planned_ns, times.request_ns, times.last_token_ns)
        due_ns = max(due_ns, dependency.due_ns(trigger_ns, first_token_ns, last_token_ns))
    return due_ns


def _moved(due_ns: int | None, request_ns: int, at_ns: int | None) -> int | None:
    """A recorded moment of a call, as if the call had been sent at `due_ns`."""
    return None if due_ns is None or at_ns is None else due_ns + at_ns - request_ns


def _sum(start_ns: int | None, at_ns: int | None) -> int | None:
    return None if start_ns is None or at_ns is None else start_ns + at_ns
