"""Pure: lines of a trace that lie somewhere else and are decoded when they are asked for."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np

from aitrace.codec import line_from_fields, parse_object
from aitrace.columns import NOT_KNOWN, CallColumns, Integers, SegmentColumns
from aitrace.migrate import migrate_fields
from aitrace.prompts import PromptParts
from aitrace.schema import Call, Segment
from aitrace.updates import updated_call

_KEPT_LINES = 256
"""Decoded lines that are kept for whoever asks for them again: a prompt's segments are asked for several times."""

_PLACE = "temporary copy of the trace"

_LineT = TypeVar("_LineT", Segment, Call)
Read = Callable[[int, int], bytes]
"""Bytes of a file, by offset and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where lines of one kind begin in a file and how long they are."""

    offset: Integers
    """First byte of each line."""
    length: Integers
    """Bytes of each line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePlaces:
    """Where the updates are, sorted by the call, and those of one call in the order of the trace."""

    call: Integers
    """Call that each is for."""
    places: Places
    """Where each is."""


class _StoredLines(Sequence[_LineT], Generic[_LineT]):
    """Lines of one kind, the ones used last in memory."""

    def __init__(self, read: Read, places: Places, version: int) -> None:
        self._read = read
        self._places = places
        self._version = version
        self._kept: OrderedDict[int, _LineT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places.offset)

    @overload
    def __getitem__(self, index: int) -> _LineT: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_LineT, ...]: ...
    def __getitem__(self, index: int | slice) -> _LineT | tuple[_LineT, ...]:
        if isinstance(index, slice):
            return tuple(self._line(number) for number in range(*index.indices(len(self))))
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"line {index} of {len(self)}")
        kept = self._kept.get(number)
        if kept is not None:
            self._kept.move_to_end(number)
            return kept
        line = self._kept[number] = self._line(number)
        if len(self._kept) > _KEPT_LINES:
            self._kept.popitem(last=False)
        return line

    def __iter__(self) -> Iterator[_LineT]:
        # Whoever goes through all of them must not push out what another asks for again.
        return map(self._line, range(len(self)))

    def _line(self, number: int) -> _LineT:
        line: _LineT = self._decoded(self._places, number)
        return line

    def _decoded(self, places: Places, number: int) -> Any:
        data = self._read(int(places.offset[number]), int(places.length[number]))
        fields = migrate_fields(parse_object(data, place=_PLACE), self._version)
        return line_from_fields(fields, place=_PLACE)


class StoredSegments(_StoredLines[Segment]):
    """The segments of a trace."""

    def __init__(self, read: Read, places: Places, version: int, columns: SegmentColumns) -> None:
        super().__init__(read, places, version)
        self.segment_columns = columns
        """As `aitrace.columns.segment_columns` gives them."""


class StoredCalls(_StoredLines[Call]):
    """The calls of a trace, with their updates."""

    def __init__(
        self, read: Read, places: Places, version: int, columns: CallColumns, *, updates: UpdatePlaces
    ) -> None:
        super().__init__(read, places, version)
        self.columns = columns
        """As `aitrace.columns.call_columns` gives them."""
        self._updates = updates

    def prompt_parts(self, call_id: int) -> PromptParts:
        """What the prompt of a call is made of, see `aitrace.prompts`."""
        source, keep = int(self.columns.source[call_id]), int(self.columns.keep[call_id])
        return None if source == NOT_KNOWN else source, keep, self.columns.added(call_id)

    def _line(self, number: int) -> Call:
        call = super()._line(number)
        first, end = np.searchsorted(self._updates.call, (number, number + 1)).tolist()
        for place in range(first, end):
            call = updated_call(call, self._decoded(self._updates.places, place))
        return call
