"""The frame of tries."""

from aitrace.results import Attempt
from aitrace.testing import make_call_result
from reports.tries import TRY_SCHEMA, tries_frame

REFUSED = Attempt(sent_ns=10, headers_ns=12, end_ns=13, status=429, error="refused", wait_ns=5)
NOT_SENT = {"sent_ns": None, "headers_ns": None, "first_token_ns": None}


def test_a_call_without_earlier_tries_is_one_row():
    tries = tries_frame([make_call_result(0)])
    assert tries.select("number", "is_last", "outcome", "wait_ns").rows() == [(1, True, "complete", None)]
    assert tries.schema == TRY_SCHEMA


def test_earlier_tries_come_first_with_their_waits():
    tries = tries_frame([make_call_result(0, attempts=(REFUSED, REFUSED))])
    assert tries.select("number", "is_last", "outcome", "wait_ns").rows() == [
        (1, False, "refused", 5),
        (2, False, "refused", 5),
        (3, True, "complete", None),
    ]


def test_calls_that_were_not_sent_have_no_tries():
    assert tries_frame([make_call_result(0, unsent="session_lost", **NOT_SENT)]).height == 0
    assert tries_frame([]).schema == TRY_SCHEMA


def test_a_call_is_a_first_one_as_long_as_its_session_had_no_token():
    """Two calls side by side, one after the first token, and one of another session."""
    calls = [
        make_call_result(0, 100),
        make_call_result(1, 100),
        make_call_result(2, 2_000_000_000),
        make_call_result(3, 2_000_000_000, session=1),
        make_call_result(4, 2_000_000_000, instance=2),
    ]
    assert tries_frame(calls)["is_first_call"].to_list() == [True, True, False, True, True]


def test_a_first_call_stays_one_in_all_its_tries():
    call = make_call_result(0, 1_000, attempts=(REFUSED,))
    assert tries_frame([call])["is_first_call"].to_list() == [True, True]


def test_of_a_call_that_was_never_sent_it_is_not_known():
    call = make_call_result(0, error="client_abort", **NOT_SENT)
    assert tries_frame([call])["is_first_call"].to_list() == [None]
