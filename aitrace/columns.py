"""Pure: what the calls and segments of a trace are, as arrays: what has to be known of all before the first is played.

An array takes 8 bytes or less where a decoded line takes some thousand, so a plan looks here first and decodes a line
when its turn comes. Updates are merged, as everywhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from aitrace.schema import (
    Call,
    CallClass,
    ErrorKind,
    GapCause,
    Relation,
    Segment,
    SegmentType,
    Trace,
    Trigger,
)

Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]
Fields = Mapping[str, Any]
"""A line, or a part of one, as JSON fields that keep the rules of the format."""

NOT_KNOWN = -(2**63)
"""Stands for None in arrays of integers."""
CALL_CLASSES: tuple[CallClass, ...] = get_args(CallClass)
ERRORS: tuple[ErrorKind | None, ...] = (None, *get_args(ErrorKind))
RELATIONS: tuple[Relation, ...] = get_args(Relation)
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
GAP_CAUSES: tuple[GapCause, ...] = get_args(GapCause)
SEGMENT_TYPES: tuple[SegmentType, ...] = get_args(SegmentType)

_FIRST_CAPACITY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CallColumns:
    """One entry for each call, by id, but where it says otherwise. `NOT_KNOWN` stands for None."""

    session: Integers
    """Session it belongs to."""
    root: Integers
    """Root session of its tree."""
    call_class: Codes
    """What it is for, as a place in `CALL_CLASSES`."""
    request_ns: Integers
    """Start, ns."""
    end_ns: Integers
    """End, ns."""
    input_tokens: Integers
    """Prompt tokens as reported."""
    output_tokens: Integers
    """Generated tokens as reported."""
    max_output_tokens: Integers
    """The request's own limit."""
    streamed: Integers
    """1 if its answer was streamed, 0 if not."""
    unseen_start: Codes
    """1 if more came before the first segment, else 0."""
    error: Codes
    """How it failed, as a place in `ERRORS`."""
    has_timed_tools: Codes
    """1 if it made tool calls and the time of each is known, else 0."""
    prompt_size: Integers
    """Size of its whole prompt, in the trace's unit."""
    prompt_length: Integers
    """Segments of its whole prompt."""
    base: Integers
    """Call whose prompt it continues."""
    keep: Integers
    """Segments it keeps of that."""
    source: Integers
    """Call that brought the last of these segments: `base`, or one that `base` has it from. None if nothing is kept."""
    retry_of: Integers
    """Call that it repeats."""
    add_first: Integers
    """Where its new segments begin in `add`; one entry more than calls, so they end where the next one's begin."""
    add: Integers
    """Segments that prompts add, call after call."""
    after_first: Integers
    """Where its dependencies begin in the arrays below; one entry more than calls."""
    after_call: Integers
    """Call waited for, one entry for each dependency."""
    after_gap_ns: Integers
    """Gap, ns, one entry for each dependency."""
    after_relation: Codes
    """Place in `RELATIONS`, one entry for each dependency."""
    after_trigger: Codes
    """Place in `TRIGGERS`, one entry for each dependency."""
    after_cause: Codes
    """Place in `GAP_CAUSES`, one entry for each dependency."""

    def waiting(self) -> Integers:
        """Call that waits, one entry for each dependency."""
        return np.repeat(np.arange(len(self.session)), np.diff(self.after_first))

    def added(self, call: int) -> list[int]:
        """Segments that the prompt of a call adds."""
        added: list[int] = self.add[self.add_first[call] : self.add_first[call + 1]].tolist()
        return added


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentColumns:
    """One entry for each segment, by id, but where it says otherwise."""

    size: Integers
    """Size in the trace's unit."""
    type: Codes
    """What it is, as a place in `SEGMENT_TYPES`."""
    runs_first: Integers
    """Where its runs of blocks begin in the arrays below; one entry more than segments."""
    run_start: Integers
    """First block id, one entry for each run."""
    run_count: Integers
    """Number of blocks, one entry for each run."""


@runtime_checkable
class HasCallColumns(Protocol):
    """A sequence of calls that brings its columns along."""

    @property
    def columns(self) -> CallColumns:
        """Of the calls of the sequence."""


@runtime_checkable
class HasSegmentColumns(Protocol):
    """A sequence of segments that brings its columns along."""

    @property
    def segment_columns(self) -> SegmentColumns:
        """Of the segments of the sequence."""


def call_columns(trace: Trace) -> CallColumns:
    """The columns of a trace's calls: at hand if the trace lies on disk, else made by one pass over its lines."""
    if isinstance(trace.calls, HasCallColumns):
        return trace.calls.columns
    builder = ColumnBuilder()
    builder.add_sessions(session.root for session in trace.sessions)
    builder.add_segments([_fields_of_segment(segment) for segment in trace.segments])
    builder.add_calls([_fields_of_call(call) for call in trace.calls])
    return builder.call_columns()


def segment_columns(trace: Trace) -> SegmentColumns:
    """The columns of a trace's segments; see `call_columns`."""
    if isinstance(trace.segments, HasSegmentColumns):
        return trace.segments.segment_columns
    builder = ColumnBuilder()
    builder.add_segments([_fields_of_segment(segment) for segment in trace.segments])
    return builder.segment_columns()


class Growing:
    """An array that grows at its end."""

    def __init__(self, dtype: type[np.int64] | type[np.uint8] = np.int64, first: Iterable[int] = ()) -> None:
        self._values: npt.NDArray[Any] = np.empty(_FIRST_CAPACITY, dtype)
        self._count = 0
        self.extend(list(first))

    def __len__(self) -> int:
        return self._count

    def extend(self, new: Sequence[int] | npt.NDArray[Any]) -> None:
        """Append values; arrays that `values` gave before are not to be used any more."""
        needed = self._count + len(new)
        if needed > len(self._values):
            # In place, so that the old and the new one are not in memory together.
            self._values.resize(max(needed, len(self._values) * 3 // 2), refcheck=False)
        self._values[self._count : needed] = new
        self._count = needed

    @property
    def values(self) -> npt.NDArray[Any]:
        """What is in it, until it grows."""
        return self._values[: self._count]


class ColumnBuilder:
    """Makes columns of lines that keep the rules, some lines at a time, in the order of the trace."""

    def __init__(self) -> None:
        self.roots: list[int] = []
        """Root of each session so far."""
        self.segment_size = Growing()
        """As in `SegmentColumns`."""
        self.prompt_length = Growing()
        """As in `CallColumns`."""
        self.end_ns = Growing()
        """As in `CallColumns`."""
        self.next_block = 0
        """Id of the next new block."""
        self._segment_type = Growing(np.uint8)
        self._runs_first, self._run_start, self._run_count = Growing(first=[0]), Growing(), Growing()
        self._calls = {name: Growing() for name in _CALL_INTEGERS}
        self._call_class, self._unseen_start = Growing(np.uint8), Growing(np.uint8)
        self._error, self._has_timed_tools = Growing(np.uint8), Growing(np.uint8)
        self._add_first, self._add = Growing(first=[0]), Growing()
        self._after_first, self._after_call, self._after_gap_ns = Growing(first=[0]), Growing(), Growing()
        self._after_codes = {name: Growing(np.uint8) for name in _AFTER_CODES}

    def add_sessions(self, roots: Iterable[int]) -> None:
        """Take on sessions by the root of each."""
        self.roots.extend(roots)

    def add_segments(self, segments: Sequence[Fields]) -> None:
        """Take on segment lines."""
        if not segments:
            return
        self.segment_size.extend([segment["size"] for segment in segments])
        self._segment_type.extend([_TYPE_CODES[segment["type"]] for segment in segments])
        runs = [segment["blocks"] for segment in segments]
        flat = np.array(list(chain.from_iterable(runs)), np.int64)
        _extend_places(self._runs_first, [len(run) // 2 for run in runs])
        self._run_start.extend(flat[::2])
        self._run_count.extend(flat[1::2])
        self.next_block = max(self.next_block, int((flat[::2] + flat[1::2]).max(initial=0)))

    def add_calls(self, calls: Sequence[Fields]) -> None:
        """Take on call lines; sessions and segments they refer to must have been added."""
        if not calls:
            return
        first = len(self.prompt_length)
        prompts = [call["prompt"] for call in calls]
        columns = {
            name: _integers(calls, name) for name in ("session", "max_output_tokens", "retry_of", "streamed")
        }
        columns["base"], columns["keep"] = _integers(prompts, "base"), _integers(prompts, "keep", default=0)
        columns["request_ns"] = [call["times"]["request_ns"] for call in calls]
        columns["input_tokens"] = _inner_integers(calls, "usage", "input_tokens")
        columns["output_tokens"] = _inner_integers(calls, "usage", "output_tokens")
        columns["root"] = list(map(self.roots.__getitem__, columns["session"]))
        self.end_ns.extend(_inner_integers(calls, "times", "end_ns"))
        self._call_class.extend([_CLASS_CODES[call.get("class", "unknown")] for call in calls])
        self._unseen_start.extend([prompt.get("unseen_start", False) for prompt in prompts])
        self._error.extend([_ERROR_CODES[call.get("outcome", _NO_FIELDS).get("error")] for call in calls])
        self._has_timed_tools.extend([_are_timed(call.get("tool_calls")) for call in calls])
        added = [prompt.get("add", ()) for prompt in prompts]
        self._add.extend(list(chain.from_iterable(added)))
        _extend_places(self._add_first, list(map(len, added)))
        self.prompt_length.extend([keep + len(new) for keep, new in zip(columns["keep"], added, strict=True)])
        for name, values in columns.items():
            self._calls[name].extend(values)
        self._add_dependencies(calls)
        self._resolve(first, columns["base"], columns["keep"])

    def add_update(self, call: int, update: Fields) -> None:
        """Take on what an update line says of an earlier call."""
        times, usage, outcome = update.get("times"), update.get("usage"), update.get("outcome")
        if times is not None:
            self.end_ns.values[call] = _known(times.get("end_ns"))
        if usage is not None:
            self._calls["input_tokens"].values[call] = _known(usage.get("input_tokens"))
            self._calls["output_tokens"].values[call] = _known(usage.get("output_tokens"))
        if outcome is not None:
            self._error.values[call] = _ERROR_CODES[outcome.get("error")]
        if update.get("tool_calls") is not None:
            self._has_timed_tools.values[call] = _are_timed(update["tool_calls"])

    def call_columns(self) -> CallColumns:
        """The columns of the calls so far, until others are added."""
        return CallColumns(
            **{name: column.values for name, column in self._calls.items()},
            call_class=self._call_class.values,
            unseen_start=self._unseen_start.values,
            error=self._error.values,
            has_timed_tools=self._has_timed_tools.values,
            end_ns=self.end_ns.values,
            prompt_length=self.prompt_length.values,
            add_first=self._add_first.values,
            add=self._add.values,
            after_first=self._after_first.values,
            after_call=self._after_call.values,
            after_gap_ns=self._after_gap_ns.values,
            **{f"after_{name}": column.values for name, column in self._after_codes.items()},
        )

    def segment_columns(self) -> SegmentColumns:
        """The columns of the segments so far, until others are added."""
        return SegmentColumns(
            size=self.segment_size.values,
            type=self._segment_type.values,
            runs_first=self._runs_first.values,
            run_start=self._run_start.values,
            run_count=self._run_count.values,
        )

    def _add_dependencies(self, calls: Sequence[Fields]) -> None:
        after = [call.get("after", ()) for call in calls]
        _extend_places(self._after_first, list(map(len, after)))
        flat = list(chain.from_iterable(after))
        self._after_call.extend([dependency["call"] for dependency in flat])
        self._after_gap_ns.extend(_integers(flat, "gap_ns"))
        for name, (codes, default) in _AFTER_CODES.items():
            self._after_codes[name].extend([codes[dependency.get(name, default)] for dependency in flat])

    def _resolve(self, first: int, bases: Sequence[int], keeps: Sequence[int]) -> None:
        """Find the source of each prompt and its size, for the calls from `first` on."""
        added = self.segment_size.values[self._add.values[self._add_first.values[first] :]]
        ends = (self._add_first.values[first:] - self._add_first.values[first]).tolist()
        until = [0, *accumulate(added.tolist())]
        sizes, sources = self._calls["prompt_size"], self._calls["source"]
        new_sizes: list[int] = []
        new_sources: list[int] = []

        def kept_by(call: int) -> int:
            return keeps[call - first] if call >= first else int(self._calls["keep"].values[call])

        for place, (base, keep) in enumerate(zip(bases, keeps, strict=True)):
            source, size = base, 0
            # So a chain of sources is as long as there are places at which prompts went different ways, no longer.
            while keep and keep <= kept_by(source):
                source = new_sources[source - first] if source >= first else int(sources.values[source])
            if keep:
                size = new_sizes[source - first] if source >= first else int(sizes.values[source])
                size -= self._size_beyond(source, keep)
            new_sources.append(source if keep else NOT_KNOWN)
            new_sizes.append(size + until[ends[place + 1]] - until[ends[place]])
        sizes.extend(new_sizes)
        sources.extend(new_sources)

    def _size_beyond(self, call: int, keep: int) -> int:
        """Size of what the prompt of a call has beyond its first `keep` segments, all of which it added itself."""
        beyond = int(self.prompt_length.values[call]) - keep
        if beyond == 0:
            return 0
        end = int(self._add_first.values[call + 1])
        return int(self.segment_size.values[self._add.values[end - beyond : end]].sum())


_CALL_INTEGERS = (
    "session", "root", "request_ns", "input_tokens", "output_tokens", "max_output_tokens", "streamed",
    "prompt_size", "base", "keep", "source", "retry_of",
)  # fmt: skip
"""Columns of integers that nothing but the builder itself looks into."""
_TYPE_CODES = {word: code for code, word in enumerate(SEGMENT_TYPES)}
_CLASS_CODES = {word: code for code, word in enumerate(CALL_CLASSES)}
_ERROR_CODES = {word: code for code, word in enumerate(ERRORS)}
_AFTER_CODES: dict[str, tuple[dict[str, int], str | None]] = {
    "relation": ({word: code for code, word in enumerate(RELATIONS)}, None),
    "trigger": ({word: code for code, word in enumerate(TRIGGERS)}, "completion"),
    "cause": ({word: code for code, word in enumerate(GAP_CAUSES)}, "unknown"),
}
"""Code of each word of a dependency, and the word that stands where there is none."""


def _extend_places(places: Growing, lengths: Sequence[int]) -> None:
    """Append where parts of these lengths end, that is, where the next ones begin."""
    places.extend(int(places.values[-1]) + np.cumsum(np.array(lengths, np.int64)))


def _known(value: int | None) -> int:
    return NOT_KNOWN if value is None else value


def _integers(parts: Sequence[Fields], name: str, *, default: int = NOT_KNOWN) -> list[int]:
    return [default if (value := part.get(name)) is None else value for part in parts]


def _inner_integers(parts: Sequence[Fields], outer: str, name: str) -> list[int]:
    return [
        NOT_KNOWN if (value := part.get(outer, _NO_FIELDS).get(name)) is None else value for part in parts
    ]


_NO_FIELDS: Fields = {}


def _are_timed(tool_calls: Sequence[Fields] | None) -> bool:
    return bool(tool_calls) and all(tool.get("duration_ns") is not None for tool in tool_calls or ())


def _fields_of_segment(segment: Segment) -> Fields:
    """What is in the columns of a segment, as in JSON."""
    return {"size": segment.size, "type": segment.type, "blocks": list(chain.from_iterable(segment.blocks))}


def _fields_of_call(call: Call) -> Fields:
    """What is in the columns of a call, as in JSON."""
    prompt, usage = call.prompt, call.usage
    return {
        "session": call.session,
        "class": call.call_class,
        "max_output_tokens": call.max_output_tokens,
        "retry_of": call.retry_of,
        "streamed": call.streamed,
        "prompt": {
            "base": prompt.base,
            "keep": prompt.keep,
            "add": prompt.add,
            "unseen_start": prompt.unseen_start,
        },
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        "outcome": {"error": call.outcome.error},
        "tool_calls": [{"duration_ns": tool.duration_ns} for tool in call.tool_calls or ()],
        "times": {"request_ns": call.times.request_ns, "end_ns": call.times.end_ns},
        "after": [
            {
                "call": dependency.call,
                "relation": dependency.relation,
                "trigger": dependency.trigger,
                "gap_ns": dependency.gap_ns,
                "cause": dependency.cause,
            }
            for dependency in call.after
        ],
    }
