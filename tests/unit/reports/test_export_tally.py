"""Sessions counted while calls pass by."""

from aitrace.schema import Usage
from aitrace.testing import make_call_result
from reports.export.links import TraceLinks
from reports.export.tally import RunTally, is_complete

UNSENT = {"due_ns": None, "sent_ns": None, "end_ns": None, "usage": Usage()}


def tally_of(*calls):
    tally = RunTally()
    assert list(tally.passing(calls)) == list(calls)
    return tally


def test_calls_are_counted_by_what_became_of_them():
    tally = tally_of(
        make_call_result(0, at_ns=100),
        make_call_result(1, error="refused", status=429),
        make_call_result(2, unsent="session_lost", **UNSENT),
        make_call_result(3, unsent="duration", **UNSENT),
        make_call_result(4, error="cut", call_class="auxiliary"),
        make_call_result(5, error="client_abort"),
        make_call_result(6, phase="prime"),
        make_call_result(7, phase="warm_up"),
    )
    one = tally.sessions[1, 0]
    assert (tally.calls, one.calls, one.sent_calls, one.complete_calls) == (8, 7, 5, 2)
    assert (one.unsent_calls, one.fatal_calls, one.warm_up_calls) == (2, 2, 1)
    assert (one.input_tokens, one.output_tokens) == (2000, 200)


def test_a_session_lasts_from_its_first_call_to_its_last_end():
    tally = tally_of(make_call_result(1, at_ns=700), make_call_result(0, at_ns=300))
    one = tally.sessions[1, 0]
    assert (one.due_ns, one.start_ns, one.end_ns) == (300, 300, 1_000_000_700)
    assert tally.last_ns == 1_000_000_700


def test_a_session_without_a_call_that_began_has_no_times():
    tally = tally_of(make_call_result(unsent="duration", **UNSENT))
    one = tally.sessions[1, 0]
    assert (one.due_ns, one.start_ns, one.end_ns, tally.last_ns) == (None, None, None, 0)


def test_complete_is_sent_ended_and_without_an_error():
    assert is_complete(make_call_result())
    assert not is_complete(make_call_result(error="cut"))
    assert not is_complete(make_call_result(end_ns=None))


def test_tokens_that_are_not_reported_count_nothing():
    one = tally_of(make_call_result(usage=Usage())).sessions[1, 0]
    assert (one.complete_calls, one.input_tokens, one.output_tokens) == (1, 0, 0)


def test_sessions_of_a_run_that_was_cut_are_whole_if_their_tree_is():
    calls = [make_call_result(0), make_call_result(1, session=1), make_call_result(2, session=5, root=5)]
    links = TraceLinks(sessions={}, after={}, planned_calls={0: 2, 5: 3})
    tally = tally_of(*calls)
    assert [one.session for one in tally.whole(5, links)] == [0, 1]
    assert [one.session for one in tally.whole(3, None)] == [0, 1, 5]
    assert list(tally.whole(5, None)) == []
