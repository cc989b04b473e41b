"""The frame of tries."""

import itertools

from aitrace.outcomes import outcome_of
from aitrace.results import Attempt, waits_ns
from aitrace.testing import make_call_result
from reports.call_lines import rows_from_calls
from reports.tries import TRY_SCHEMA, tries_frame

REFUSED = Attempt(sent_ns=10, headers_ns=12, end_ns=13, status=429, error="refused", wait_ns=5)
NOT_SENT = {"sent_ns": None, "headers_ns": None, "first_token_ns": None}


def tries_of_calls(calls):
    return tries_frame([rows_from_calls(calls).tries])


def test_a_call_without_earlier_tries_is_one_row():
    tries = tries_of_calls([make_call_result(0)])
    assert tries.select("number", "is_last", "outcome", "wait_ns").rows() == [(1, True, "complete", None)]
    assert tries.schema == TRY_SCHEMA


def test_earlier_tries_come_first_with_their_waits():
    tries = tries_of_calls([make_call_result(0, attempts=(REFUSED, REFUSED))])
    assert tries.select("number", "is_last", "outcome", "wait_ns").rows() == [
        (1, False, "refused", 5),
        (2, False, "refused", 5),
        (3, True, "complete", None),
    ]


def test_calls_that_were_not_sent_have_no_tries():
    assert tries_of_calls([make_call_result(0, unsent="session_lost", **NOT_SENT)]).height == 0
    assert tries_of_calls([]).schema == TRY_SCHEMA


def test_a_call_is_a_first_one_as_long_as_its_session_had_no_token():
    """Two calls side by side, one after the first token, and one of another session."""
    calls = [
        make_call_result(0, 100),
        make_call_result(1, 100),
        make_call_result(2, 2_000_000_000),
        make_call_result(3, 2_000_000_000, session=1),
        make_call_result(4, 2_000_000_000, instance=2),
    ]
    assert tries_of_calls(calls)["is_first_call"].to_list() == [True, True, False, True, True]


def test_a_first_call_stays_one_in_all_its_tries():
    call = make_call_result(0, 1_000, attempts=(REFUSED,))
    assert tries_of_calls([call])["is_first_call"].to_list() == [True, True]


def test_of_a_call_that_was_never_sent_it_is_not_known():
    call = make_call_result(0, error="client_abort", **NOT_SENT)
    assert tries_of_calls([call])["is_first_call"].to_list() == [None]


def test_each_kind_of_end_has_the_outcome_that_a_look_at_it_alone_gives():
    """Every error, with and without headers, a first token and a text that speaks of overload."""
    errors = (
        "refused",
        "connect",
        "timeout",
        "cut",
        "error_event",
        "http_error",
        "malformed",
        "client_abort",
    )
    kinds = itertools.product(errors, (None, 5), (None, 7), (None, "Overloaded", "other"))
    calls, expected = [], []
    for number, (error, headers_ns, first_token_ns, text) in enumerate(kinds):
        end = {"error": error, "headers_ns": headers_ns, "first_token_ns": first_token_ns, "error_text": text}
        calls.append(make_call_result(number, attempts=(Attempt(end_ns=9, wait_ns=1, **end),), **end))
        expected += [outcome_of(calls[-1].attempts[0]), outcome_of(calls[-1])]
    assert tries_of_calls(calls)["outcome"].to_list() == expected
    assert len(set(expected)) == 11


def test_calls_with_tries_and_without_stay_in_order():
    calls = [make_call_result(number, attempts=(REFUSED,) * (number % 3)) for number in (5, 3, 4, 1)]
    tries = tries_of_calls(calls)
    assert tries["index"].to_list() == [5, 5, 5, 3, 4, 4, 1, 1]
    assert tries["number"].to_list() == [1, 2, 3, 1, 1, 2, 1, 2]


def test_a_wait_that_the_end_of_the_run_cut_counts_as_far_as_it_went():
    long = Attempt(end_ns=100, error="refused", wait_ns=1_000)
    ends = {
        "cut": {**NOT_SENT, "end_ns": 400},
        "sent": {"end_ns": 400},
        "unknown": {**NOT_SENT, "end_ns": None},
    }
    for name, end in ends.items():
        call = make_call_result(0, attempts=(REFUSED, long), **end)
        waits = tries_of_calls([call])["wait_ns"].to_list()
        assert waits == [*waits_ns(call), None], name
    assert waits_ns(make_call_result(0, attempts=(REFUSED, long), **ends["cut"])) == [5, 300]
