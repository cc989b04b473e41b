import pytest

from aitrace.schema import Dependency
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.mid_start import StartRange
from replayer.planning.options import LoadOptions
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import build_plan
from replayer.scheduler import Scheduler, Send

S = 1_000_000_000


def scheduler_of(trace, **options):
    scheduler = Scheduler(build_plan(trace, LoadOptions(**options)))
    scheduler.start(0)
    return scheduler


def open_calls(scheduler):
    return [(index, due_ns) for _, index, due_ns in scheduler.open_calls()]


def run_call(scheduler, at_ns, *, took_ns=S, ok=True):
    """Send the one call due at `at_ns` and end it."""
    (send,) = scheduler.take_due(at_ns)
    scheduler.on_sent(send.index, at_ns)
    scheduler.on_end(send.index, at_ns + took_ns, ok=ok)
    return send


def parent_and_child(trigger="completion", *, join=True):
    """Call 0 spawns the child's calls 1 and 2; call 3 of the parent joins it."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    child = builder.session(parent=main)
    gap_ns = S if trigger == "completion" else 2 * S
    spawn = Dependency(call=first, relation="spawn", trigger=trigger, gap_ns=gap_ns)
    builder.call(child, after=[spawn], at_ns=2 * S)
    last = builder.call(child)
    builder.call(main, after=[first, last] if join else [first])
    return builder.trace()


def test_the_first_call_is_due_at_its_trees_start():
    scheduler = Scheduler(build_plan(make_trace(1, 2), LoadOptions()))
    scheduler.start(5 * S)
    assert scheduler.next_due_ns() == 5 * S
    assert scheduler.take_due(5 * S - 1) == []
    assert [Send(index=0, due_ns=5 * S)] == scheduler.take_due(5 * S)


def test_a_call_is_handed_out_once():
    scheduler = scheduler_of(make_trace(1, 2))
    scheduler.take_due(0)
    assert scheduler.take_due(100 * S) == []
    assert scheduler.next_due_ns() is None


def test_the_next_call_is_due_a_gap_after_the_end():
    scheduler = scheduler_of(make_trace(1, 2))
    run_call(scheduler, 0, took_ns=30 * S)
    assert [Send(index=1, due_ns=31 * S)] == scheduler.take_due(40 * S)


def test_calls_come_by_due_time_then_index():
    scheduler = scheduler_of(make_trace(3, 1), arrival=arrival_from_spec("together"))
    assert [send.index for send in scheduler.take_due(0)] == [0, 1, 2]


def test_a_call_that_waits_for_nothing_keeps_its_place_in_the_tree():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, at_ns=10 * S)
    builder.call(main, at_ns=13 * S, after=[])
    scheduler = scheduler_of(builder.trace(), time_scale=0.5)
    assert [(send.index, send.due_ns) for send in scheduler.take_due(9 * S)] == [(0, 0), (1, 3 * S // 2)]


def test_a_dispatch_trigger_fires_when_the_request_has_gone_out():
    scheduler = scheduler_of(parent_and_child("dispatch"))
    scheduler.take_due(0)
    assert scheduler.next_due_ns() is None
    scheduler.on_sent(0, 4 * S)
    assert scheduler.next_due_ns() == 6 * S


def test_what_is_said_of_a_further_attempt_fires_nothing_again():
    scheduler = scheduler_of(parent_and_child("dispatch"))
    scheduler.take_due(0)
    scheduler.on_sent(0, 4 * S)
    scheduler.on_sent(0, 9 * S)
    assert [Send(index=1, due_ns=6 * S)] == scheduler.take_due(99 * S)


def test_an_answer_fires_the_dispatch_that_was_not_told():
    scheduler = scheduler_of(parent_and_child("dispatch"))
    scheduler.take_due(0)
    scheduler.on_end(0, 4 * S, ok=True)
    assert scheduler.next_due_ns() == 6 * S


def test_a_join_is_due_after_the_last_of_what_it_waits_for():
    scheduler = scheduler_of(parent_and_child())
    for at_ns in (0, 2 * S, 4 * S):
        run_call(scheduler, at_ns)
    assert [Send(index=3, due_ns=6 * S)] == scheduler.take_due(6 * S)


def test_ending_a_call_that_is_not_in_flight_is_a_fault():
    scheduler = scheduler_of(make_trace(1, 2))
    with pytest.raises(ValueError, match="call 1 is not in flight"):
        scheduler.on_end(1, 0, ok=True)


def test_a_failed_call_loses_the_rest_of_its_session():
    scheduler = scheduler_of(make_trace(1, 4))
    run_call(scheduler, 0)
    run_call(scheduler, 2 * S, ok=False)
    assert sorted(scheduler.unsent()) == [(2, "session_lost"), (3, "session_lost")]
    assert scheduler.is_done


def test_losses_are_told_once():
    scheduler = scheduler_of(make_trace(1, 2))
    run_call(scheduler, 0, ok=False)
    scheduler.unsent()
    assert [*scheduler.unsent()] == []


def test_a_failed_call_spawns_no_sub_agent():
    scheduler = scheduler_of(parent_and_child())
    run_call(scheduler, 0, ok=False)
    assert {1, 2, 3} == {index for index, _ in scheduler.unsent()}


def test_sub_agents_of_lost_calls_are_lost_at_any_depth():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    builder.call(main)
    child = builder.session(parent=main)
    builder.call(child)
    builder.call(builder.session(parent=child))
    scheduler = scheduler_of(builder.trace())
    run_call(scheduler, 0, ok=False)
    assert {1, 2, 3} == {index for index, _ in scheduler.unsent()}


def test_a_sub_agent_that_was_spawned_by_dispatch_goes_on_when_that_call_fails():
    scheduler = scheduler_of(parent_and_child("dispatch", join=False))
    run_call(scheduler, 0, ok=False)
    assert [*scheduler.unsent()] == [(3, "session_lost")]
    assert scheduler.next_due_ns() == 2 * S


def test_a_call_that_failed_before_it_went_out_spawns_no_sub_agent():
    scheduler = scheduler_of(parent_and_child("dispatch", join=False))
    scheduler.take_due(0)
    scheduler.on_end(0, S, ok=False)
    assert {index for index, _ in scheduler.unsent()} == {1, 2, 3}


def test_what_happened_first_may_ask_for_the_later_time():
    """The first wait is over at 1 s and its gap at 21 s, though the second one ends at 9 s and has a gap of 0."""
    builder = TraceBuilder()
    main = builder.session()
    one = builder.call(main)
    other = builder.call(builder.session(parent=main), after=[], at_ns=0)
    waits = [
        Dependency(call=one, relation="sequence", gap_ns=20 * S),
        Dependency(call=other, relation="join", gap_ns=-S),
    ]
    builder.call(main, after=waits, at_ns=21 * S)
    scheduler = scheduler_of(builder.trace())
    scheduler.take_due(0)
    scheduler.on_end(one, S, ok=True)
    scheduler.on_end(other, 9 * S, ok=True)
    assert scheduler.next_due_ns() == 21 * S


def test_a_background_sub_agent_goes_on_when_its_parent_is_lost_later():
    scheduler = scheduler_of(parent_and_child(join=False))
    run_call(scheduler, 0)
    parent, child = sorted(scheduler.take_due(6 * S), key=lambda send: -send.index)
    assert (parent.index, child.index) == (3, 1)
    scheduler.on_end(parent.index, 7 * S, ok=False)
    scheduler.on_end(child.index, 8 * S, ok=True)
    assert ([*scheduler.unsent()], scheduler.next_due_ns()) == ([], 9 * S)


def test_a_parent_goes_on_a_gap_after_its_sub_agent_was_lost():
    scheduler = scheduler_of(parent_and_child())
    run_call(scheduler, 0)
    run_call(scheduler, 2 * S, took_ns=20 * S, ok=False)
    assert [*scheduler.unsent()] == [(2, "session_lost")]
    assert [Send(index=3, due_ns=23 * S)] == scheduler.take_due(30 * S)


def test_a_call_lost_while_it_waits_for_its_time_is_not_handed_out():
    """Both calls follow the first; one is sent and fails while the other waits."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    builder.call(main, after=[first], at_ns=2 * S)
    builder.call(main, after=[first], at_ns=9 * S)
    scheduler = scheduler_of(builder.trace())
    run_call(scheduler, 0)
    run_call(scheduler, 2 * S, ok=False)
    assert ([*scheduler.unsent()], scheduler.next_due_ns()) == ([(2, "session_lost")], None)


def test_an_auxiliary_call_that_fails_loses_nothing():
    builder = TraceBuilder()
    main = builder.session()
    title = builder.call(main, call_class="auxiliary")
    builder.call(main, after=[title])
    scheduler = scheduler_of(builder.trace())
    run_call(scheduler, 0, ok=False)
    assert ([*scheduler.unsent()], scheduler.next_due_ns()) == ([], 2 * S)


def test_lanes_start_the_next_tree_when_all_calls_of_one_have_ended():
    scheduler = scheduler_of(make_trace(3, 2), concurrency=2)
    assert [send.index for send in scheduler.take_due(0)] == [0, 2]
    scheduler.on_end(2, 3 * S, ok=True)
    assert [Send(index=3, due_ns=4 * S)] == scheduler.take_due(4 * S)
    scheduler.on_end(3, 7 * S, ok=True)
    assert [Send(index=4, due_ns=7 * S)] == scheduler.take_due(7 * S)


def test_a_lost_tree_frees_its_lane():
    scheduler = scheduler_of(make_trace(2, 3), concurrency=1)
    run_call(scheduler, 0, ok=False)
    assert [Send(index=3, due_ns=S)] == scheduler.take_due(S)


def test_more_lanes_than_trees_play_every_tree_once():
    assert len(scheduler_of(make_trace(2, 1), concurrency=9).take_due(0)) == 2


def test_stopping_gives_up_all_that_was_not_handed_out():
    scheduler = scheduler_of(make_trace(2, 2), concurrency=1)
    scheduler.take_due(0)
    scheduler.stop()
    assert [*scheduler.unsent()] == [(1, "interrupted"), (2, "interrupted"), (3, "interrupted")]
    assert not scheduler.is_done


@pytest.mark.parametrize("ok", [True, False])
def test_what_was_in_flight_ends_after_a_stop_and_starts_nothing(ok):
    scheduler = scheduler_of(make_trace(2, 2), concurrency=1)
    scheduler.take_due(0)
    scheduler.stop()
    scheduler.unsent()
    scheduler.on_end(0, S, ok=ok)
    assert ([*scheduler.unsent()], scheduler.next_due_ns(), scheduler.is_done) == ([], None, True)


def test_progress_counts_sessions_trees_and_calls():
    scheduler = scheduler_of(make_trace(3, 2))
    run_call(scheduler, 0)  # the first session now waits
    scheduler.take_due(S)  # the second is active, the third idle
    seen = scheduler.progress()
    assert (seen.sessions_waiting, seen.sessions_active, seen.sessions_idle) == (1, 1, 1)
    assert (seen.trees_active, seen.trees_done) == (2, 0)
    assert (seen.calls_sent, seen.calls_in_flight, seen.calls_remaining, seen.calls_unsent) == (2, 1, 4, 0)


def test_progress_tells_done_from_lost():
    scheduler = scheduler_of(make_trace(2, 1), arrival=arrival_from_spec("together"))
    scheduler.take_due(0)
    scheduler.on_end(0, S, ok=True)
    scheduler.on_end(1, S, ok=True)
    lost = scheduler_of(make_trace(1, 2))
    run_call(lost, 0, ok=False)
    assert (
        scheduler.progress().sessions_done,
        scheduler.progress().sessions_lost,
        scheduler.progress().trees_done,
    ) == (2, 0, 2)
    assert (
        lost.progress().sessions_done,
        lost.progress().sessions_lost,
        lost.progress().calls_unsent,
    ) == (0, 1, 1)


def test_a_stop_before_the_first_call_counts_trees_as_over():
    scheduler = scheduler_of(make_trace(2, 1))
    scheduler.stop()
    assert (scheduler.progress().trees_active, scheduler.progress().trees_done) == (0, 2)
    assert scheduler.is_done


def test_open_calls_are_those_in_flight_and_those_that_wait_for_their_time_in_a_tree_that_has_started():
    scheduler = scheduler_of(make_trace(2, 3), arrival=arrival_from_spec("fixed:0.1/s"))
    scheduler.take_due(0)
    # What follows a call in flight is not known yet.
    assert open_calls(scheduler) == [(0, 0)]
    scheduler.on_end(0, S, ok=True)
    assert open_calls(scheduler) == [(1, 2 * S)]


def test_a_tree_that_the_clock_starts_is_told_as_the_next_to_be_due():
    scheduler = scheduler_of(make_trace(2, 3), arrival=arrival_from_spec("fixed:0.1/s"))
    scheduler.take_due(0)
    assert (scheduler.next_due_ns(), scheduler.started_trees) == (10 * S, 1)
    assert [send.index for send in scheduler.take_due(10 * S)] == [3]
    assert (scheduler.next_due_ns(), scheduler.started_trees) == (None, 2)


def test_calls_that_are_lost_are_not_open():
    scheduler = scheduler_of(make_trace(2, 1), arrival=arrival_from_spec("fixed:0.1/s"))
    scheduler.stop()
    assert open_calls(scheduler) == []


def test_lanes_tell_how_many_trees_they_have_taken():
    scheduler = scheduler_of(make_trace(3, 1), concurrency=2)
    assert scheduler.started_trees == 2
    (first, _) = scheduler.take_due(0)
    scheduler.on_end(first.index, S, ok=True)
    assert scheduler.started_trees == 3


def test_the_end_of_a_duration_is_a_reason_of_its_own():
    scheduler = scheduler_of(make_trace(1, 3))
    scheduler.take_due(0)
    scheduler.stop("duration")
    assert [*scheduler.unsent()] == [(1, "duration"), (2, "duration")]


def test_of_trees_in_store_that_no_lane_took_nothing_is_told():
    """One lane, trees of three calls: the first is started when the run is cut."""
    scheduler = scheduler_of(make_trace(1, 3), concurrency=1, duration_ns=30 * S)
    scheduler.take_due(0)
    scheduler.stop("duration")
    assert [*scheduler.unsent()] == [(1, "duration"), (2, "duration")]
    assert [tree.instance for tree in scheduler.unstarted_trees][:2] == [2, 3]
    scheduler.on_end(0, S, ok=False)
    assert scheduler.is_done
    assert scheduler.unstarted_trees[0].instance == 2
    assert scheduler.next_due_ns() is None


def test_trees_without_a_store_are_told_as_unsent():
    scheduler = scheduler_of(make_trace(2, 1), concurrency=1, duration_ns=30 * S, trees=2)
    scheduler.take_due(0)
    scheduler.stop("duration")
    assert [*scheduler.unsent()] == [(1, "duration")]
    assert len(scheduler.unstarted_trees) == 0


def test_lanes_that_find_no_tree_left_in_store_say_when():
    scheduler = scheduler_of(make_trace(1, 1), concurrency=1, duration_ns=S // 40)
    for number in range(len(scheduler.unstarted_trees) + 1):
        assert scheduler.ran_out_ns is None
        run_call(scheduler, number, took_ns=1)
    assert scheduler.ran_out_ns == number + 1


def test_lanes_that_play_a_number_of_trees_do_not_run_out():
    scheduler = scheduler_of(make_trace(1, 1), concurrency=1, duration_ns=S, trees=1)
    run_call(scheduler, 0)
    assert scheduler.ran_out_ns is None


def test_a_failed_prime_loses_nothing():
    scheduler = scheduler_of(make_trace(1, 5), start_at=StartRange(low=0.5, high=0.5), prime=True)
    run_call(scheduler, 0, ok=False)
    assert [*scheduler.unsent()] == []
    assert [Send(index=1, due_ns=S)] == scheduler.take_due(S)


def test_a_failed_call_of_an_absolute_schedule_loses_nothing():
    scheduler = scheduler_of(make_trace(1, 3), schedule="absolute")
    run_call(scheduler, 0, ok=False)
    assert [*scheduler.unsent()] == []
    assert [Send(index=1, due_ns=2 * S)] == scheduler.take_due(2 * S)


def test_calls_of_trees_that_had_not_started_are_told_one_by_one_after_a_stop():
    scheduler = scheduler_of(make_trace(3, 2), trees=1_000, arrival=arrival_from_spec("fixed:1/s"))
    (send,) = scheduler.take_due(0)
    scheduler.on_end(send.index, 1, ok=False)
    scheduler.stop()
    seen = scheduler.progress()
    assert (seen.calls_sent, seen.calls_unsent, seen.calls_remaining) == (1, 1_999, 0)
    assert (seen.sessions_lost, seen.sessions_idle, seen.trees_done) == (1_000, 0, 1_000)
    told = scheduler.unsent()
    assert next(told) == (1, "session_lost")
    assert [*told] == [(index, "interrupted") for index in range(2, 2_000)]
    assert [*scheduler.unsent()] == []


def test_a_second_stop_tells_nothing_again():
    scheduler = scheduler_of(make_trace(2, 2))
    scheduler.stop()
    assert len([*scheduler.unsent()]) == 4
    scheduler.stop("duration")
    assert ([*scheduler.unsent()], scheduler.progress().calls_unsent) == ([], 4)
