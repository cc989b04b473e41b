from dataclasses import replace

from aitrace.schema import Dependency, Outcome
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.selection import last_of, select_calls, without_the_rest

S = 1_000_000_000
REFUSED = Outcome(status=429, error="refused")


def waits(selection):
    return [[(d.call, d.relation, d.gap_ns, d.cause) for d in s.after] for s in selection.calls]


def retried():
    """Call 1 is refused, tried again as 2, and again as 3; call 4 follows."""
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    refused = builder.call(main, cause="tool", outcome=REFUSED)
    for attempt, failed in ((2, True), (3, False)):
        backoff = Dependency(call=refused, relation="retry", gap_ns=5 * S, cause="backoff")
        refused = builder.call(
            main,
            after=[backoff],
            attempt=attempt,
            retry_of=refused,
            at_ns=attempt * 10 * S,
            outcome=REFUSED if failed else Outcome(),
        )
    builder.call(main, cause="user")
    return builder.trace()


def test_calls_without_retries_stay_as_they_are():
    trace = make_trace(2, 3)
    selection = select_calls(trace.calls)
    assert [call.after for call in trace.calls] == [selected.after for selected in selection.calls]
    assert (selection.dropped_attempts, selection.dropped_counts) == ((), ())


def test_the_last_attempt_is_sent_in_place_of_the_first():
    selection = select_calls(retried().calls)
    assert [selected.call.id for selected in selection.calls] == [0, 3, 4]
    assert [call.attempt for call in selection.dropped_attempts] == [1, 2]
    assert selection.calls[1].request_ns == 2 * S


def test_the_last_attempt_waits_for_what_the_first_waited_for():
    assert waits(select_calls(retried().calls))[1] == [(0, "sequence", S, "tool")]


def test_what_waited_for_an_early_attempt_waits_for_the_last():
    trace = retried()
    spawned = replace(
        trace.calls[4], after=(Dependency(call=1, relation="spawn", trigger="dispatch", gap_ns=7),)
    )
    selection = select_calls((*trace.calls[:4], spawned))
    assert waits(selection)[2] == [(3, "spawn", 7, "unknown")]


def counting(trigger="completion"):
    """Call 1 counts tokens, a second after call 0 and for two seconds; call 2 follows it."""
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    count = builder.call(main, call_class="count_tokens", cause="tool", duration_ns=2 * S)
    builder.call(
        main, after=[Dependency(call=count, relation="sequence", trigger=trigger, gap_ns=3, cause="user")]
    )
    return builder.trace()


def test_a_call_after_a_count_waits_for_what_the_count_waited_for():
    selection = select_calls(counting().calls)
    assert waits(selection) == [[], [(0, "sequence", 3 * S + 3, "user")]]
    assert [call.call_class for call in selection.dropped_counts] == ["count_tokens"]


def test_a_call_timed_from_the_dispatch_of_a_count_does_not_wait_for_its_end():
    assert waits(select_calls(counting("dispatch").calls))[1] == [(0, "sequence", S + 3, "user")]


def test_a_gap_through_a_count_of_unknown_end_is_not_known():
    calls = list(counting().calls)
    calls[1] = replace(calls[1], times=replace(calls[1].times, end_ns=None))
    assert waits(select_calls(calls))[1] == [(0, "sequence", None, "user")]


def test_a_sub_agent_that_begins_with_a_count_is_still_spawned():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    child = builder.session(parent=main)
    builder.call(child, call_class="count_tokens")
    builder.call(child)
    assert waits(select_calls(builder.trace().calls)) == [[], [(0, "spawn", 3 * S, "unknown")]]


def test_of_two_waits_for_one_moment_the_longer_stays():
    """Through the count that is 1 s + 1 s + 4 s."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    count = builder.call(main, call_class="count_tokens")
    direct = Dependency(call=first, relation="sequence", gap_ns=3 * S)
    through = Dependency(call=count, relation="sequence", gap_ns=4 * S)
    builder.call(main, after=[direct, through])
    builder.call(main, after=[through, direct])
    expected = [(0, "sequence", 6 * S, "unknown")]
    assert [[], expected, expected] == waits(select_calls(builder.trace().calls))


def test_what_is_left_out_is_waited_for_no_more():
    """Call 2 waits for 0 and 1, call 3 for 2 alone."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    child = builder.call(builder.session(parent=main), after=[first])
    joined = builder.call(main, after=[first, child])
    builder.call(main, after=[joined], cause="user")
    selected = select_calls(builder.trace().calls).calls
    kept = without_the_rest(selected, {0, 2, 3})
    assert [(one.call.id, [d.call for d in one.after]) for one in kept] == [(0, []), (2, [0]), (3, [2])]
    assert [one.freed_cause for one in kept] == [None, None, None]
    (last,) = without_the_rest(kept, {3})
    assert (last.call.id, last.after, last.freed_cause) == (3, (), "user")
    assert without_the_rest([last], {3}) == (last,)


def test_the_last_of_several_things_has_the_shortest_gap_that_is_known():
    def wait(call, gap_ns):
        return Dependency(call=call, relation="join", gap_ns=gap_ns)

    assert last_of([wait(0, 9), wait(1, 3), wait(2, None), wait(3, -5)]).call == 1
    assert last_of([wait(0, None), wait(1, -5)]).call == 0
