from random import Random

import pytest

from aitrace.errors import UsageError
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.mid_start import StartRange, start_midway, start_range_from_text
from replayer.planning.selection import select_calls

S = 1_000_000_000


def started(trace, low, high, *, seed=0):
    members = select_calls(trace.calls).calls
    return start_midway(members, StartRange(low=low, high=high), Random(seed))


def ids(selected):
    return [one.call.id for one in selected]


@pytest.mark.parametrize(
    ("text", "low", "high"), [("0.25..0.75", 0.25, 0.75), ("0..1", 0, 1), (".5..0.5", 0.5, 0.5)]
)
def test_a_range_is_two_shares(text, low, high):
    assert start_range_from_text(text) == StartRange(low=low, high=high)
    assert start_range_from_text(start_range_from_text(text).text) == StartRange(low=low, high=high)


@pytest.mark.parametrize("text", ["0.75..0.25", "25..75", "0.5", "-0.1..1", "0.1..1.1", "", "a..b"])
def test_a_range_that_makes_no_sense_is_refused(text):
    with pytest.raises(UsageError, match="cannot be read") as caught:
        start_range_from_text(text)
    assert "0.25..0.75" in caught.value.hint


def test_calls_before_the_point_are_left_out_and_the_last_of_them_is_told():
    """Requests at 0, 2, 4, 6 and 8 s; half of that is 4 s."""
    start = started(make_trace(1, 5), 0.5, 0.5)
    assert (ids(start.calls), ids(start.before)) == ([2, 3, 4], [1])


def test_what_is_left_waits_for_nothing_that_is_not_played():
    start = started(make_trace(1, 5), 0.5, 0.5)
    assert [len(one.after) for one in start.calls] == [0, 1, 1]
    assert [one.freed_cause for one in start.calls] == ["tool", None, None]


def test_from_the_beginning_everything_is_left():
    start = started(make_trace(1, 5), 0, 0)
    assert (ids(start.calls), start.before) == ([0, 1, 2, 3, 4], ())


def test_at_the_end_the_last_call_is_left():
    assert ids(started(make_trace(1, 5), 1, 1).calls) == [4]


def test_sessions_that_begin_after_the_point_have_nothing_before_it():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    second = builder.call(main)
    builder.call(builder.session(parent=main), after=[second])
    builder.call(main)
    start = started(builder.trace(), 0.8, 0.8)
    assert (ids(start.calls), ids(start.before)) == ([2, 3], [1])


def test_points_differ_by_seed_and_stay_within_the_range():
    trace = make_trace(1, 101)
    first = [ids(started(trace, 0.25, 0.75, seed=seed).calls)[0] for seed in range(40)]
    assert len(set(first)) > 10
    assert (min(first) >= 25, max(first) <= 76) == (True, True)
