from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aitrace.assembly.tool_times import timed_by_id, timed_by_name
from aitrace.schema import ToolCall

MS = 1_000_000


def calls(*starts_ms, name="Bash"):
    return tuple(ToolCall(name=name, end_ns=None if at is None else at * MS) for at in starts_ms)


def bash(*durations_ms):
    return [("Bash", duration * MS) for duration in durations_ms]


def told(tools, ended, by_ms=10_000):
    return [
        None if tool.duration_ns is None else tool.duration_ns // MS
        for tool in timed_by_name(tools, ended, by_ms * MS)
    ]


def test_times_by_id_go_to_their_calls():
    found = timed_by_id(calls(1, 2, 3, 4), ("a", "b", None, "c"), {"b": 7, "c": -1, "": 5, "x": 2})
    assert [tool.duration_ns for tool in found] == [None, 7, 5, None]
    assert timed_by_id(calls(1), (), {"a": 7}) == calls(1)


def test_times_by_name_go_to_the_tools_of_that_name_whatever_the_order_of_their_ends():
    """Claude Code, as measured: `Read=11;Bash=2027` after a Bash and a Read."""
    tools = (*calls(256), *calls(318, name="Read"))
    assert told(tools, [("Read", 11 * MS), *bash(2027)]) == [2027, 11]


def test_the_first_call_has_the_first_time_where_that_may_be():
    """The tools ended in this order, the second 2.03 s after its call, before the request at 2.47 s."""
    assert told(calls(262, 393), bash(1017, 2033), 2468) == [1017, 2033]


def test_a_time_that_would_end_after_the_request_belongs_to_an_earlier_call():
    """Claude Code, as measured: `sleep 2`, then `sleep 1`, listed as `Bash=1015;Bash=2027`."""
    assert told(calls(256, 379), bash(1015, 2027), 2329) == [2027, 1015]


def test_no_tool_ends_before_one_that_is_listed_before_it():
    assert told(calls(4168, 7172), bash(2031, 13)) == [2031, 13]
    assert told(calls(0, 1000), bash(2031, 13)) == [2031, 13]


@pytest.mark.parametrize("starts", [(None, 5), (None, None)])
def test_times_are_given_as_they_come_where_the_starts_are_not_known(starts):
    assert told(calls(*starts), bash(9, 3)) == [9, 3]


def test_times_that_fit_no_order_are_given_as_they_come():
    assert told(calls(100, 200), bash(50, 60), 90) == [50, 60]


def test_a_call_ends_within_the_ms_of_the_request():
    assert told(calls(100, 100), bash(50, 61), 160) == [50, 61]
    assert told(calls(100, 101), bash(50, 61), 160) == [61, 50]


@pytest.mark.parametrize("ended", [bash(5), bash(5, 6, 7), [], [("gone", 5)]])
def test_times_that_do_not_number_the_calls_of_a_tool_are_nobodys(ended):
    assert told(calls(1, 2), ended) == [None, None]


def test_a_time_below_zero_is_none():
    assert told(calls(1), bash(-1)) == [None]


def test_a_late_call_may_have_ended_first():
    assert told(calls(0, 1, 7), bash(0, 5, 7), 10) == [7, 5, 0]


def test_times_of_too_many_calls_are_given_as_they_come():
    assert told(calls(*[0] * 12, 50), bash(60, *[1] * 12), 70) == [60, *[1] * 12]


def fits(starts, ended, by_ms):
    """Whether tools with these starts can have ended so, each when its predecessor had; by trying."""
    return any(
        all(a + x <= b + y + 1 for (a, x), (b, y) in pairwise(pairs))
        and all(a + x <= by_ms + 1 for a, x in pairs[-1:])
        for order in permutations(starts)
        for pairs in [list(zip(order, ended, strict=True))]
    )


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=5), st.integers(10, 60)
)
def test_where_any_order_fits_the_one_given_does(drawn, by_ms):
    starts = sorted(start for start, _ in drawn)
    ended = [duration for _, duration in drawn]
    found = told(calls(*starts), bash(*ended), by_ms)
    assert sorted(found) == sorted(ended)
    if fits(starts, ended, by_ms):
        assert all(start + time <= by_ms + len(drawn) for start, time in zip(starts, found, strict=True))
    else:
        assert found == ended
