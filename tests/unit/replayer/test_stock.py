from dataclasses import replace

import pytest

from aitrace.schema import CallTimes, Dependency, Trace
from aitrace.testing import TraceBuilder, make_trace
from aitrace.units import NS_PER_S
from replayer.planning.options import LoadOptions
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import build_plan
from replayer.stock import BodyStock

EVERY_MINUTE = arrival_from_spec("fixed:1/min")


class Built(list):
    """Indices in the order in which their bodies were built; each body is ten bytes."""

    def __call__(self, planned) -> bytes:
        self.append(planned.index)
        return b"%010d" % planned.index


def stock_of(trace: Trace, options: LoadOptions | None = None, **limits) -> tuple[BodyStock, Built]:
    load = LoadOptions() if options is None else options
    built = Built()
    return BodyStock(build_plan(trace, load), built, needs_answers=load.history == "live", **limits), built


def build_all(stock: BodyStock, now_ns: int) -> None:
    while stock.build_next(now_ns):
        pass


def fork() -> Trace:
    """A main agent (calls 0, 2) and a sub-agent (call 1) that is spawned while call 0 still streams."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, [builder.segment(100)])
    child = builder.session(parent=main)
    spawn = Dependency(call=first, relation="spawn", trigger="dispatch", gap_ns=NS_PER_S // 2)
    inner = builder.call(child, [builder.segment(50)], at_ns=NS_PER_S // 2, after=[spawn])
    builder.call(main, [builder.segment(30)], after=[first, inner])
    return builder.trace()


def test_first_calls_are_built_before_their_tree_starts_but_not_long_before():
    stock, built = stock_of(make_trace(sessions=3, calls=1), horizon_ns=NS_PER_S)
    stock.start(0)
    build_all(stock, 0)
    assert built == [0, 1]  # trees start at 0, 1 and 2 s
    assert stock.next_build_ns() == NS_PER_S


def test_the_next_call_is_built_while_the_one_before_is_answered():
    stock, built = stock_of(make_trace(sessions=1, calls=2))
    stock.start(0)
    build_all(stock, 0)
    assert (built, stock.take(0)) == ([0], b"0000000000")
    stock.on_sent(0, 5)
    assert stock.build_next(5)
    assert stock.take(1) == b"0000000001"
    assert (built, stock.late_builds) == ([0, 1], 0)


def test_the_next_call_is_expected_after_the_recorded_answer_and_gap():
    stock, _ = stock_of(make_trace(sessions=1, calls=2), horizon_ns=0)
    stock.start(0)
    stock.take(0)
    stock.on_sent(0, 0)
    assert stock.next_build_ns() == 2 * NS_PER_S  # answer of 1 s, gap of 1 s


def test_an_answer_that_comes_sooner_than_recorded_has_the_next_call_built_sooner():
    stock, built = stock_of(make_trace(sessions=1, calls=2), horizon_ns=NS_PER_S)
    stock.start(0)
    stock.take(0)
    stock.on_sent(0, 0)
    assert stock.next_build_ns() == NS_PER_S  # due at 2 s: an answer of 1 s, a gap of 1 s
    stock.on_end(0, NS_PER_S // 10)
    assert stock.next_build_ns() == NS_PER_S // 10
    build_all(stock, 2 * NS_PER_S)
    assert built[1:] == [1]


def test_a_live_history_waits_for_the_answer():
    stock, built = stock_of(make_trace(sessions=1, calls=2), LoadOptions(history="live"))
    stock.start(0)
    build_all(stock, 0)
    stock.take(0)
    stock.on_sent(0, 0)
    assert not stock.build_next(0)
    stock.on_end(0, NS_PER_S)
    build_all(stock, NS_PER_S)
    assert built == [0, 1]


def test_a_spawn_does_not_wait_for_an_answer_it_cannot_contain():
    stock, built = stock_of(fork(), LoadOptions(history="live"))
    stock.start(0)
    build_all(stock, 0)
    stock.take(0)
    stock.on_sent(0, 0)
    build_all(stock, 0)
    assert built == [0, 1]


def test_a_join_is_built_when_all_it_waits_for_has_happened():
    stock, built = stock_of(fork(), LoadOptions(history="live"))
    stock.start(0)
    stock.on_sent(0, 0)
    stock.on_end(0, NS_PER_S)
    build_all(stock, NS_PER_S)
    assert 2 not in built
    stock.on_end(1, 2 * NS_PER_S)
    build_all(stock, 2 * NS_PER_S)
    assert 2 in built


def test_a_join_with_a_lost_sub_agent_is_built_too():
    stock, built = stock_of(fork(), LoadOptions(history="live"))
    stock.start(0)
    stock.on_sent(0, 0)
    stock.on_end(0, NS_PER_S)
    stock.drop(1, NS_PER_S)
    build_all(stock, NS_PER_S)
    assert built == [0, 2]


def test_a_body_that_is_not_ready_is_built_when_taken_and_counted():
    stock, built = stock_of(make_trace(sessions=1, calls=1))
    stock.start(0)
    assert stock.take(0) == b"0000000000"
    assert (built, stock.late_builds) == ([0], 1)
    assert not stock.build_next(0)


def test_a_dropped_body_makes_room_for_another():
    stock, built = stock_of(make_trace(sessions=2, calls=1), max_ready_bytes=10)
    stock.start(0)
    build_all(stock, NS_PER_S)
    assert (built, stock.next_build_ns()) == ([0], None)
    stock.drop(0, NS_PER_S)
    build_all(stock, NS_PER_S)
    assert built == [0, 1]


def test_a_call_dropped_before_it_was_built_is_not_built():
    stock, built = stock_of(make_trace(sessions=2, calls=1))
    stock.start(0)
    assert stock.build_next(0)  # makes the calls of the first tree
    stock.drop(0, 0)
    build_all(stock, NS_PER_S)
    assert built == [1]


@pytest.mark.parametrize(("lanes", "at_first"), [(1, [0, 2]), (2, [0, 2, 4]), (9, [0, 2, 4, 6])])
def test_lanes_have_one_tree_more_ready_than_they_play(lanes, at_first):
    stock, built = stock_of(make_trace(sessions=4, calls=2), LoadOptions(concurrency=lanes))
    stock.start(0)
    build_all(stock, 0)
    assert built == at_first


def test_a_tree_that_starts_has_the_next_one_made_ready():
    stock, built = stock_of(make_trace(sessions=4, calls=2), LoadOptions(concurrency=1))
    stock.start(0)
    build_all(stock, 0)
    stock.take(0)
    stock.on_sent(0, 0)
    build_all(stock, 0)
    assert built == [0, 2, 4, 1]


def test_an_answer_of_unknown_duration_is_taken_to_be_instant():
    trace = make_trace(sessions=1, calls=2)
    calls = [replace(call, times=CallTimes(request_ns=call.times.request_ns)) for call in trace.calls]
    stock, _ = stock_of(replace(trace, calls=tuple(calls)), horizon_ns=0)
    stock.start(0)
    stock.take(0)
    stock.on_sent(0, 0)
    assert stock.next_build_ns() == NS_PER_S


def test_calls_of_a_tree_are_made_two_seconds_before_it_starts():
    stock, built = stock_of(make_trace(sessions=1, calls=1), LoadOptions(trees=9, arrival=EVERY_MINUTE))
    stock.start(0)
    build_all(stock, 0)
    assert (built, stock.next_build_ns()) == ([0], 58 * NS_PER_S)
    expected_ns, tree = stock.next_call(58 * NS_PER_S)
    assert (expected_ns, tree.number) == (60 * NS_PER_S, 1)


def test_what_becomes_of_a_tree_that_was_never_expected_is_no_matter():
    stock, built = stock_of(make_trace(sessions=1, calls=2), LoadOptions(trees=9, arrival=EVERY_MINUTE))
    stock.start(0)
    stock.drop(17, 0)
    build_all(stock, 0)
    assert built == [0]
