import pytest

from aitrace.results import Attempt
from aitrace.schema import CallTimes, Dependency
from aitrace.testing import TraceBuilder, make_call_result
from reports.gaps import first_sent, gaps_as_played, with_gaps

S = 10**9


def trace_of(*waits):
    """A session whose calls wait for these ones, each of them a tuple of calls."""
    builder = TraceBuilder()
    session = builder.session()
    for after in waits:
        builder.call(session, after=list(after))
    return builder.trace()


def gaps_of(facts):
    """By call: the gap and whether all the ends are known."""
    return {
        index: (gap_s, is_timed)
        for index, gap_s, is_timed in gaps_as_played(facts)
        .select("index", "played_gap_s", "is_timed")
        .iter_rows()
    }


def test_the_gap_runs_from_the_end_of_the_call_waited_for(facts_of):
    """2 s are planned; the tool took 5 s more, and the call was sent 1 s late."""
    calls = [make_call_result(0), make_call_result(1, at_ns=9 * S, due_ns=8 * S, gap_ns=2 * S)]
    assert gaps_of(facts_of(calls, trace=trace_of((), (0,)))) == {1: (8.0, True)}


def test_the_gap_runs_from_the_last_of_several_ends(facts_of):
    calls = [
        make_call_result(0),
        make_call_result(1, at_ns=4 * S, gap_ns=None),
        make_call_result(2, at_ns=8 * S),
    ]
    assert gaps_of(facts_of(calls, trace=trace_of((), (), (1, 0)))) == {2: (3.0, True)}


def test_a_call_that_waited_for_nothing_has_no_gap(facts_of):
    calls = [make_call_result(0), make_call_result(1, at_ns=4 * S, gap_ns=None)]
    facts = facts_of(calls, trace=trace_of((), ()))
    assert gaps_of(facts) == {}
    assert with_gaps(facts.calls.select("index"), facts)["played_gap_s"].to_list() == [None, None]


def test_the_gap_ends_with_the_first_try(facts_of):
    refused = Attempt(sent_ns=3 * S, end_ns=3 * S, status=429, error="refused", wait_ns=9 * S)
    never = make_call_result(2, attempts=(refused,), sent_ns=None, error="client_abort")
    calls = [make_call_result(0), make_call_result(1, at_ns=12 * S, attempts=(refused,)), never]
    facts = facts_of(calls, trace=trace_of((), (0,), (0,)))
    assert gaps_of(facts) == {1: (2.0, True), 2: (2.0, True)}
    assert dict(first_sent(facts).sort("index").iter_rows()) == {0: 0, 1: 3 * S, 2: 3 * S}


def test_a_call_that_was_never_sent_has_no_gap(facts_of):
    calls = [make_call_result(0), make_call_result(1, sent_ns=None, unsent="session_lost")]
    assert gaps_of(facts_of(calls, trace=trace_of((), (0,)))) == {}


def test_each_playing_has_its_own_ends(facts_of):
    calls = [
        make_call_result(
            2 * place + call, at_ns=at_s * S, call=call, instance=place, gap_ns=S if call else None
        )
        for place, starts in enumerate(((0, 3), (10, 17)))
        for call, at_s in enumerate(starts)
    ]
    assert gaps_of(facts_of(calls, trace=trace_of((), (0,)))) == {1: (2.0, True), 3: (6.0, True)}


def test_a_call_of_the_warm_up_ends_what_waits_for_it_and_one_that_primes_a_prompt_does_not(facts_of):
    calls = [
        make_call_result(0, at_ns=5 * S, phase="prime"),
        make_call_result(1, call=0, phase="warm_up"),
        make_call_result(2, call=1, at_ns=4 * S),
    ]
    assert gaps_of(facts_of(calls, trace=trace_of((), (0,)))) == {2: (3.0, True)}


def test_a_sub_agent_waits_for_its_parents_call_to_be_sent(facts_of):
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    wait = Dependency(call=first, relation="spawn", trigger="dispatch", gap_ns=S, cause="tool")
    builder.call(builder.session(parent=main), after=[wait])
    calls = [make_call_result(0), make_call_result(1, at_ns=3 * S, session=1, turn_index=0)]
    assert gaps_of(facts_of(calls, trace=builder.trace())) == {1: (3.0, True)}


@pytest.mark.parametrize(("is_known", "gap_s"), [(True, 3.0), (False, 2.0)])
def test_a_call_timed_from_the_one_before_it_waits_for_its_end_if_the_recording_has_none(
    facts_of, is_known, gap_s
):
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, times=CallTimes(request_ns=0, end_ns=S if is_known else None))
    wait = Dependency(call=0, relation="sequence", trigger="dispatch", gap_ns=S, cause="tool")
    builder.call(session, at_ns=S, after=[wait])
    calls = [make_call_result(0), make_call_result(1, at_ns=3 * S)]
    assert gaps_of(facts_of(calls, trace=builder.trace())) == {1: (gap_s, True)}


def test_an_end_that_is_not_known_is_taken_from_the_plan(facts_of):
    """Without the trace; and after a sub-agent that was lost, while the other call waited for had ended."""
    late = {"at_ns": 9 * S, "due_ns": 8 * S, "gap_ns": 2 * S}
    assert gaps_of(facts_of([make_call_result(0), make_call_result(1, **late)])) == {1: (3.0, False)}
    lost = make_call_result(1, unsent="session_lost", sent_ns=None, due_ns=None, end_ns=None)
    calls = [make_call_result(0), lost, make_call_result(2, **late)]
    assert gaps_of(facts_of(calls, trace=trace_of((), (), (0, 1)))) == {2: (3.0, False)}


def test_with_an_absolute_schedule_the_gap_is_what_the_ends_say(facts_of):
    """Call 2 is sent while call 1 is going on; of what call 3 followed, nothing was played."""
    calls = [
        make_call_result(0),
        make_call_result(1, at_ns=4 * S),
        make_call_result(2, at_ns=4 * S + 1),
        make_call_result(4, at_ns=9 * S),
    ]
    trace = trace_of((), (0,), (1,), (), (3,))
    facts = facts_of(calls, trace=trace, options={"schedule": "absolute"})
    assert gaps_of(facts) == {1: (3.0, True), 2: (0.0, True)}
