"""Pure: where each call of a run is on a timeline: its tree, the track of its session, its begin and end.

One pass over the calls keeps nine integers of each, so that a second pass can write calls that point at each other
without having them all in memory. Calls of one session that overlap get tracks of their own: slices of one track must
nest.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from aitrace.results import CallResult
from reports.export.phases import span_ns
from reports.stats import Ints

_NONE = -1
_COLUMNS = ("index", "instance", "root", "session", "call", "start", "end", "gap", "is_prime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A row of the timeline: one session, or what of it overlaps with its first track."""

    process: int
    """Number of the tree, from 1; no two trees and tracks have the same, but a tree and its first track."""
    thread: int
    """Number of the track."""
    instance: int
    """Which playing of the tree, from 1."""
    root: int
    """Root session of the tree."""
    session: int
    """Session of the trace."""
    lane: int
    """0 for the session's first track."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one call is."""

    track: Track
    """Its row."""
    gap_start_ns: int
    """Begin of the gap before the call, as far as nothing else of the track is there; its start without one."""
    start_ns: int
    """Begin of the call."""
    end_ns: int
    """Its end."""


class Places:
    """The places of a run's calls.

    Args:
        calls: In any order; `of_line` counts in it.
    """

    def __init__(self, calls: Iterable[CallResult]) -> None:
        table = _table(calls)
        self._index, self._start, self._end = _by_name(table, "index", "start", "end")
        self._begun = self._start != _NONE
        instance, call, is_prime = _by_name(table, "instance", "call", "is_prime")
        self._calls = int(call.max(initial=0)) + 1
        order, lanes, self._gap_start = _lanes(table)
        self.tracks = tuple(_tracks(table, order, lanes))
        """All rows, by tree in order of its first call, then by session likewise."""
        self._track = _track_of_line(table, lanes, self.tracks)
        lines = np.flatnonzero(self._begun & (is_prime == 0))
        keys = instance[lines] * self._calls + call[lines]
        by_key = np.argsort(keys, kind="stable")
        self._keys, self._lines = keys[by_key], lines[by_key]

    def of_line(self, line: int) -> Place | None:
        """Place of the call in this line, from 0; None if it never began, or came after these calls were read."""
        if line >= self._begun.size or not self._begun[line]:
            return None
        return Place(
            track=self.tracks[self._track[line]],
            gap_start_ns=int(self._gap_start[line]),
            start_ns=int(self._start[line]),
            end_ns=int(self._end[line]),
        )

    def of_call(self, instance: int, call: int) -> Place | None:
        """Place of a call of the trace in one playing of its tree; None if it was not played, or only primed."""
        line = self._line_of_call(instance, call)
        return None if line is None else self.of_line(line)

    def index_of_call(self, instance: int, call: int) -> int | None:
        """Place in the plan of a call of the trace in one playing of its tree; None as in `of_call`."""
        line = self._line_of_call(instance, call)
        return None if line is None else int(self._index[line])

    def _line_of_call(self, instance: int, call: int) -> int | None:
        if not 0 <= call < self._calls:
            return None
        key = instance * self._calls + call
        found = int(np.searchsorted(self._keys, key))
        if found == self._keys.size or self._keys[found] != key:
            return None
        return int(self._lines[found])


def _table(calls: Iterable[CallResult]) -> Ints:
    values = array("q")
    for call in calls:
        start_ns, end_ns = span_ns(call) or (_NONE, _NONE)
        gap_ns = 0 if call.due_ns is None else call.gap_ns or 0
        is_prime = call.phase == "prime"
        values.extend(
            (
                call.index,
                call.instance,
                call.root,
                call.session,
                call.call,
                start_ns,
                end_ns,
                gap_ns,
                is_prime,
            )
        )
    return np.frombuffer(values, dtype=np.int64).reshape(-1, len(_COLUMNS))


def _by_name(table: Ints, *names: str) -> tuple[Ints, ...]:
    return tuple(table[:, _COLUMNS.index(name)] for name in names)


def _lanes(table: Ints) -> tuple[Ints, Ints, Ints]:
    """The lines that began in order of session and start, and of every line its lane and where its gap begins."""
    instance, session, start, end, gap = _by_name(table, "instance", "session", "start", "end", "gap")
    order = np.lexsort((end, start, session, instance))
    order = order[start[order] != _NONE]
    lanes = np.zeros(len(table), dtype=np.int64)
    gap_start = start.copy()
    key, ends = None, list[int]()
    for line in order.tolist():
        if key != (key := (instance[line], session[line])):
            ends = []
        begun, wanted = int(start[line]), int(start[line] - gap[line])
        lane = next((place for place, until in enumerate(ends) if until <= begun), len(ends))
        if lane == len(ends):
            ends.append(min(wanted, begun))
        lanes[line] = lane
        gap_start[line] = max(wanted, ends[lane], 0)
        ends[lane] = int(end[line])
    return order, lanes, gap_start


def _tracks(table: Ints, order: Ints, lanes: Ints) -> Iterator[Track]:
    instance, root, session, start = _by_name(table, "instance", "root", "session", "start")
    by_start = order[np.argsort(start[order], kind="stable")]
    trees: dict[tuple[int, int], dict[int, int]] = {}
    for line in by_start.tolist():
        lanes_of = trees.setdefault((int(instance[line]), int(root[line])), {})
        name = int(session[line])
        lanes_of[name] = max(lanes_of.get(name, 0), int(lanes[line]))
    numbers = count(1)
    for (of_instance, of_root), lanes_of in trees.items():
        process = next(numbers)
        rows = [(name, lane) for name, highest in lanes_of.items() for lane in range(highest + 1)]
        for place, (name, lane) in enumerate(rows):
            yield Track(
                process=process,
                # The first row of a process is the one whose number is the process's own.
                thread=next(numbers) if place else process,
                instance=of_instance,
                root=of_root,
                session=name,
                lane=lane,
            )


def _track_of_line(table: Ints, lanes: Ints, tracks: tuple[Track, ...]) -> Ints:
    instance, session = _by_name(table, "instance", "session")
    place_of = {(track.instance, track.session, track.lane): place for place, track in enumerate(tracks)}
    places = [
        place_of.get(key, 0) for key in zip(instance.tolist(), session.tolist(), lanes.tolist(), strict=True)
    ]
    return np.array(places, dtype=np.int64)
