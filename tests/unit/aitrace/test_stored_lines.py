from itertools import accumulate

import numpy as np
import pytest

from aitrace.codec import encode_line
from aitrace.columns import HasCallColumns, HasSegmentColumns, call_columns, segment_columns
from aitrace.prompts import HasPromptParts
from aitrace.schema import Usage
from aitrace.stored_lines import _KEPT_LINES, Places, StoredCalls, StoredSegments, UpdatePlaces
from aitrace.testing import make_call, make_trace, make_update

TRACE = make_trace(1, 4)


class Lines:
    """Lines one after the other, and how often each was read."""

    def __init__(self, *lines):
        data = [encode_line(line) for line in lines]
        self.text = b"".join(data)
        self.ends = list(accumulate(map(len, data)))
        self.lengths = list(map(len, data))
        self.reads = []

    def read(self, offset, length):
        self.reads.append(self.ends.index(offset + length))
        return self.text[offset : offset + length]

    def places(self, first=0, end=None):
        lengths = np.array(self.lengths[first:end], np.int64)
        return Places(offset=np.array(self.ends[first:end], np.int64) - lengths, length=lengths)


NO_UPDATES = UpdatePlaces(call=np.zeros(0, np.int64), places=Lines().places())


def stored_calls(lines, *, version=2, updates=NO_UPDATES, count=None):
    return StoredCalls(
        lines.read, lines.places(0, count), version, columns=call_columns(TRACE), updates=updates
    )


def stored_segments():
    lines = Lines(*TRACE.segments)
    return StoredSegments(lines.read, lines.places(), 2, columns=segment_columns(TRACE))


def test_lines_are_what_they_were():
    calls, segments = stored_calls(Lines(*TRACE.calls)), stored_segments()
    assert (len(calls), len(segments)) == (len(TRACE.calls), len(TRACE.segments))
    assert (tuple(calls), tuple(segments)) == (TRACE.calls, TRACE.segments)
    assert (calls[2], calls[-1], segments[1]) == (TRACE.calls[2], TRACE.calls[3], TRACE.segments[1])
    assert (calls[1:3], calls[::-2]) == (TRACE.calls[1:3], TRACE.calls[::-2])


@pytest.mark.parametrize("index", [4, -5, 1000])
def test_there_is_nothing_beyond_the_last_line(index):
    with pytest.raises(IndexError):
        stored_calls(Lines(*TRACE.calls))[index]


def test_a_line_asked_for_again_is_not_read_again():
    lines = Lines(*TRACE.calls)
    calls = stored_calls(lines)
    assert calls[1] is calls[1]
    assert lines.reads == [1]


def test_only_the_lines_used_last_are_kept():
    lines = Lines(*(make_call(number) for number in range(_KEPT_LINES + 1)))
    calls = stored_calls(lines)
    for number in range(_KEPT_LINES):
        assert calls[number].id == number
    assert calls[0].id == 0  # now used later than call 1
    assert calls[_KEPT_LINES].id == _KEPT_LINES
    lines.reads.clear()
    assert [calls[0].id, calls[1].id] == [0, 1]
    assert lines.reads == [1]


def test_whoever_goes_through_all_lines_pushes_out_none():
    lines = Lines(*(make_call(number) for number in range(_KEPT_LINES + 1)))
    calls = stored_calls(lines)
    assert calls[0].id == 0
    assert sum(1 for _ in calls) == _KEPT_LINES + 1
    lines.reads.clear()
    assert calls[0].id == 0
    assert lines.reads == []


def test_updates_are_merged_in_their_order():
    calls = [make_call(number) for number in range(3)]
    updates = [
        make_update(1, usage=Usage(input_tokens=1)),
        make_update(1, usage=Usage(input_tokens=2)),
        make_update(2),
    ]
    lines = Lines(*calls, *updates)
    places = UpdatePlaces(call=np.array([1, 1, 2], np.int64), places=lines.places(3))
    stored = stored_calls(lines, updates=places, count=3)
    assert [call.usage.input_tokens for call in stored] == [None, 2, None]
    assert [call.outcome.status for call in stored] == [None, 200, 200]


def test_they_bring_their_columns_along():
    calls, segments = stored_calls(Lines(*TRACE.calls)), stored_segments()
    assert isinstance(calls, HasCallColumns)
    assert isinstance(segments, HasSegmentColumns)
    assert not isinstance(TRACE.calls, HasCallColumns)
    assert not isinstance(segments, HasCallColumns)
    assert calls.columns.prompt_size.tolist() == call_columns(TRACE).prompt_size.tolist()


def test_they_tell_prompts_without_reading_a_line():
    lines = Lines(*TRACE.calls)
    calls = stored_calls(lines)
    assert isinstance(calls, HasPromptParts)
    for call in TRACE.calls:
        base, keep, added = calls.prompt_parts(call.id)
        assert (base, keep, tuple(added)) == (call.prompt.base, call.prompt.keep, call.prompt.add)
    assert lines.reads == []
