"""The calls of one playing of a tree."""

from dataclasses import replace

import pytest

from aitrace.schema import CallTimes, Usage
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.mid_start import MidStart, StartRange, start_midway
from replayer.planning.options import LoadOptions
from replayer.planning.planned import PlannedTree
from replayer.planning.selection import select_calls
from replayer.planning.tree_calls import Recording, plan_calls

S = 1_000_000_000


class _Middle:
    """In place of a generator of random numbers: the middle of every range."""

    def uniform(self, low, high):
        return (low + high) / 2


def tree_at(planned_ns, *, first=0, instance=1, is_warm_up=False):
    return PlannedTree(
        number=0,
        instance=instance,
        root=0,
        start_ns=planned_ns,
        planned_ns=planned_ns,
        first=first,
        count=9,
        sessions=1,
        is_warm_up=is_warm_up,
    )


def calls_of(trace, tree, *, midway=False, **options):
    members = select_calls(trace.calls).calls
    start = MidStart(calls=members, before=())
    if midway:
        start = start_midway(members, StartRange(low=0.5, high=0.5), _Middle())
    return plan_calls(Recording(trace), tree, start, LoadOptions(**options)).calls


def test_places_and_times_are_those_of_the_playing():
    calls = calls_of(make_trace(1, 3), tree_at(7 * S, first=100, instance=4))
    assert [(call.index, call.instance, call.planned_ns, call.planned_end_ns) for call in calls] == [
        (100, 4, 7 * S, 8 * S), (101, 4, 9 * S, 10 * S), (102, 4, 11 * S, 12 * S),
    ]  # fmt: skip
    assert [[wait.index for wait in call.after] for call in calls] == [[], [100], [101]]


def test_a_tree_whose_start_is_not_known_has_no_planned_times():
    calls = calls_of(make_trace(1, 2), tree_at(None))
    assert [(call.planned_ns, call.planned_end_ns) for call in calls] == [(None, None)] * 2


def test_two_playings_differ_in_nothing_else():
    one, other = (
        calls_of(make_trace(1, 3), tree_at(0, first=first, instance=i)) for first, i in ((0, 1), (3, 2))
    )
    for call, again in zip(one, other, strict=True):
        after = tuple(replace(wait, index=wait.index + 3) for wait in call.after)
        assert replace(call, index=call.index + 3, instance=2, after=after) == again


def test_a_call_knows_how_many_its_session_has():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    builder.call(builder.session(parent=main))
    builder.call(main)
    assert [call.session_calls for call in calls_of(builder.trace(), tree_at(0))] == [2, 1, 2]


def test_primes_come_first_and_the_tree_goes_on_after_them():
    calls = calls_of(
        make_trace(1, 5),
        tree_at(S, first=10),
        midway=True,
        start_at=StartRange(low=0.5, high=0.5),
        prime=True,
    )
    prime, first = calls[:2]
    assert (prime.index, prime.call, prime.phase, prime.planned_ns, prime.planned_end_ns) == (
        10, 1, "prime", S, S + S // 4,
    )  # fmt: skip
    assert ([wait.index for wait in first.after], first.planned_ns) == ([10], S + S // 4)
    assert {call.session_calls for call in calls} == {4}


def test_calls_of_the_warm_up_are_told_but_for_primes():
    options = {"midway": True, "start_at": StartRange(low=0.5, high=0.5), "prime": True}
    calls = calls_of(make_trace(1, 5), tree_at(0, is_warm_up=True), **options)
    assert [call.phase for call in calls] == ["prime", "warm_up", "warm_up", "warm_up"]


@pytest.mark.parametrize(("schedule", "waits"), [("causal", 3), ("absolute", 0)])
def test_waits_are_told_of_a_causal_schedule(schedule, waits):
    start = MidStart(calls=select_calls(make_trace(1, 3).calls).calls, before=())
    planned = plan_calls(Recording(make_trace(1, 3)), tree_at(0), start, LoadOptions(schedule=schedule))
    assert len(planned.waits) == waits


def test_what_is_usual_is_the_median_and_the_mean_of_what_is_known():
    builder = TraceBuilder()
    main = builder.session()
    for seconds, tokens in ((1, 5), (2, None), (9, 40), (None, 7)):
        times = {} if seconds is None else {"duration_ns": seconds * S}
        builder.call(main, usage=Usage(output_tokens=tokens), **times)
    trace = builder.trace()
    last = replace(trace.calls[3], times=CallTimes(request_ns=trace.calls[3].times.request_ns))
    known = Recording(replace(trace, calls=(*trace.calls[:3], last)))
    assert (known.usual_duration_ns, known.mean_duration_ns, known.usual_output_tokens) == (2 * S, 4 * S, 7)
    assert (known.duration_ns(trace.calls[2]), known.duration_ns(last)) == (9 * S, 2 * S)


def test_of_a_trace_that_knows_nothing_nothing_is_usual():
    builder = TraceBuilder()
    builder.call(builder.session(), usage=Usage(), times=CallTimes(request_ns=0))
    known = Recording(builder.trace())
    assert (known.usual_duration_ns, known.mean_duration_ns, known.usual_output_tokens) == (None, 0.0, None)
    assert list(known.output_tokens) == [1]


def test_sizes_in_bytes_become_tokens():
    builder = TraceBuilder(unit="bytes", block_size=256)
    builder.call(builder.session(), [builder.segment(1000)], usage=Usage(input_tokens=300, output_tokens=5))
    known = Recording(builder.trace())
    assert (known.prompt_sizes[0], known.prompt_tokens[0], known.output_tokens[0]) == (1000, 300, 5)
