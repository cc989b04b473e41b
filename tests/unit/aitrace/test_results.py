"""Calls of a run as columns."""

from dataclasses import replace

from aitrace.results import Attempt, call_columns, waits_ns
from aitrace.schema import Usage
from aitrace.testing import make_call_result

TRIES = tuple(Attempt(end_ns=1, error="refused", wait_ns=wait_ns) for wait_ns in (3, 4))
CALLS = (make_call_result(0, usage=Usage(input_tokens=5)), make_call_result(1, attempts=TRIES))


def test_columns_are_as_long_as_there_are_calls():
    assert {2} == {len(column) for column in call_columns(CALLS).values()}


def test_usage_and_tries_are_columns_of_their_own():
    columns = call_columns(CALLS)
    assert columns["usage_input_tokens"][0] == 5
    assert (columns["earlier_tries"], columns["backoff_ns"]) == ([0, 2], [0, 7])
    assert not {"usage", "attempts", "signals"} & columns.keys()


def test_a_wait_that_the_end_of_the_run_cut_counts_as_far_as_it_got():
    cut = make_call_result(0, attempts=TRIES, sent_ns=None, error="client_abort")
    assert waits_ns(replace(cut, end_ns=3)) == [3, 2]
    assert waits_ns(replace(cut, end_ns=None)) == waits_ns(CALLS[1]) == [3, 4]
    assert waits_ns(CALLS[0]) == []
