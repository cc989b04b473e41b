"""A call as a row of phases."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aitrace.results import Attempt
from aitrace.testing import make_call_result
from reports.export.phases import outcome_of_call, phases, span_ns

STREAMED = make_call_result(
    due_ns=0,
    dispatched_ns=5,
    sent_ns=10,
    headers_ns=30,
    first_token_ns=60,
    last_token_ns=100,
    end_ns=105,
    events=4,
)


def rows(call):
    return [(phase.name, phase.start_ns, phase.end_ns, phase.number) for phase in phases(call)]


def test_a_streamed_answer_has_four_phases():
    assert rows(STREAMED) == [
        ("lateness", 0, 10, 1),
        ("queue/headers", 10, 30, 1),
        ("prefill", 30, 60, 1),
        ("decode", 60, 100, 1),
    ]


def test_an_answer_in_one_piece_is_not_taken_apart():
    assert rows(replace(STREAMED, events=None))[2:] == [("answer", 30, 105, 1)]


def test_a_stream_without_a_token_computed_to_its_end():
    call = replace(STREAMED, first_token_ns=None, last_token_ns=None, error="timeout")
    assert rows(call)[2:] == [("prefill", 30, 105, 1)]


def test_a_call_without_headers_waited_to_its_end():
    call = replace(STREAMED, headers_ns=None, first_token_ns=None, last_token_ns=None, error="timeout")
    assert rows(call) == [("lateness", 0, 10, 1), ("queue/headers", 10, 105, 1)]


def test_a_call_that_found_no_connection_was_never_sent():
    call = replace(STREAMED, sent_ns=None, headers_ns=None, first_token_ns=None, last_token_ns=None)
    assert rows(replace(call, error="connect")) == [("connect", 0, 105, 1)]


def test_earlier_tries_come_first_each_with_its_backoff():
    attempts = (
        Attempt(sent_ns=2, headers_ns=4, end_ns=5, status=429, error="refused", wait_ns=3),
        Attempt(sent_ns=9, headers_ns=10, first_token_ns=11, end_ns=14, status=200, error="cut", wait_ns=6),
    )
    call = replace(STREAMED, attempts=attempts, retry_due_ns=20, sent_ns=22)
    assert rows(call) == [
        ("lateness", 0, 2, 1),
        ("queue/headers", 2, 4, 1),
        ("answer", 4, 5, 1),
        ("backoff", 5, 8, 1),
        ("lateness", 8, 9, 2),
        ("queue/headers", 9, 10, 2),
        ("prefill", 10, 11, 2),
        ("decode", 11, 14, 2),
        ("backoff", 14, 20, 2),
        ("lateness", 20, 22, 3),
        ("queue/headers", 22, 30, 3),
        ("prefill", 30, 60, 3),
        ("decode", 60, 100, 3),
    ]


def test_a_backoff_that_the_end_of_the_run_cut_ends_there():
    attempt = Attempt(sent_ns=2, end_ns=5, status=429, error="refused", wait_ns=1000)
    nothing = dict.fromkeys(["dispatched_ns", "sent_ns", "headers_ns", "first_token_ns", "last_token_ns"])
    call = replace(STREAMED, attempts=(attempt,), error="client_abort", end_ns=50, **nothing)
    assert rows(call)[-1] == ("backoff", 5, 50, 1)


@pytest.mark.parametrize(
    ("fields", "span"),
    [
        ({}, (0, 105)),
        ({"due_ns": None}, (5, 105)),
        ({"end_ns": None}, (0, 100)),
        ({"unsent": "duration"}, None),
        ({"due_ns": None, "dispatched_ns": None, "sent_ns": None}, None),
    ],
)
def test_a_call_lasts_from_due_to_end(fields, span):
    call = replace(STREAMED, **fields)
    assert span == span_ns(call)
    assert bool(rows(call)) == (span is not None)


def test_a_call_that_was_not_sent_has_no_outcome():
    assert outcome_of_call(STREAMED) == "complete"
    assert outcome_of_call(replace(STREAMED, unsent="interrupted")) is None


TIMES = st.none() | st.integers(0, 50)


@given(
    times=st.fixed_dictionaries(
        dict.fromkeys(("due_ns", "dispatched_ns", "sent_ns", "headers_ns", "first_token_ns", "last_token_ns"), TIMES)
    ),
    end_ns=st.integers(0, 50),
    events=st.none() | st.just(1),
    attempts=st.lists(
        st.builds(Attempt, sent_ns=TIMES, headers_ns=TIMES, first_token_ns=TIMES, end_ns=st.integers(0, 50),
                  error=st.just("cut"), wait_ns=st.integers(0, 50)),
        max_size=3,
    ),
)  # fmt: skip
def test_phases_never_overlap_nor_leave_the_call_whatever_the_stamps(times, end_ns, events, attempts):
    call = make_call_result(end_ns=end_ns, events=events, attempts=tuple(attempts), **times)
    span = span_ns(call)
    at_ns = 0 if span is None else span[0]
    for phase in phases(call):
        assert at_ns <= phase.start_ns < phase.end_ns <= span[1]
        at_ns = phase.end_ns
