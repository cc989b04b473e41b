"""Who was let in; the expected numbers are counted by hand."""

import pytest

from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import make_call_result
from reports.measures.admission import ADMISSION_DISTRIBUTIONS, ADMISSION_NUMBERS, ADMISSION_TABLES

S = 1_000_000_000
MS = 1_000_000
METRICS = {m.name: m for m in (*ADMISSION_DISTRIBUTIONS, *ADMISSION_NUMBERS, *ADMISSION_TABLES)}
UNANSWERED = {
    "first_token_ns": None,
    "last_token_ns": None,
    "first_visible_ns": None,
    "first_event_ns": None,
    "usage": Usage(),
}


def refused_try(at_ns, wait_ns=2 * S):
    return Attempt(
        sent_ns=at_ns,
        headers_ns=at_ns + MS,
        end_ns=at_ns + MS,
        status=429,
        error="refused",
        wait_ns=wait_ns,
    )


def refused(index, at_ns, **fields):
    return make_call_result(index, at_ns, status=429, error="refused", **UNANSWERED, **fields)


def a_run():
    """Session 0 is refused once and let in, goes on, and is then lost; session 1 is refused for good."""
    return [
        make_call_result(0, 3 * S, turn_index=0, attempts=(refused_try(S),), events=5),
        make_call_result(1, 6 * S, turn_index=1, gap_ns=2 * S),
        refused(2, 90 * S, turn_index=2, gap_ns=80 * S, attempts=(refused_try(80 * S), refused_try(85 * S))),
        refused(3, S, session=1, root=1, turn_index=0, gap_ns=None),
        make_call_result(
            4, session=1, root=1, turn_index=1, unsent="session_lost", sent_ns=None, **UNANSWERED
        ),
    ]


def value(facts, name):
    return METRICS[name].compute(facts)


def test_tries_refusals_and_waits_are_counted_over_all_tries(facts_of):
    facts = facts_of(a_run())
    assert {name: value(facts, name) for name in ("tries", "refused_tries", "retried_calls")} == {
        "tries": 7,
        "refused_tries": 5,
        "retried_calls": 2,
    }
    assert value(facts, "backoff_s") == 6.0
    # Of five tries refused three were a call's first ones.
    assert (value(facts, "refused_once_calls"), value(facts, "refused_once_ratio")) == (3, 0.75)
    assert value(facts, "refused_tries_ratio") == 5 / 7


def test_without_a_try_there_is_no_share_of_refused_ones(facts_of):
    facts = facts_of([])
    assert (value(facts, "refused_once_ratio"), value(facts, "refused_tries_ratio")) == (None, None)


def test_waits_after_tries_without_a_connection_count(facts_of):
    gone = Attempt(end_ns=S, error="connect", wait_ns=2 * S)
    calls = [make_call_result(0, 3 * S, attempts=(gone,))]
    facts = facts_of(calls)
    assert (value(facts, "tries"), value(facts, "retried_calls"), value(facts, "backoff_s")) == (1, 1, 2.0)
    assert value(facts, "session_backoff_s").values.tolist() == [2.0]


def test_of_a_wait_that_the_end_of_the_run_cut_what_had_passed_counts(facts_of):
    """Refused at 1 s, to be tried again after 30 s, and cut at 4 s."""
    cut = {**UNANSWERED, "sent_ns": None, "headers_ns": None, "status": None, "error": "client_abort"}
    refused_once = refused_try(S - MS, 30 * S)
    facts = facts_of([make_call_result(0, attempts=(refused_once,), **{**cut, "end_ns": 4 * S})])
    assert (value(facts, "backoff_s"), value(facts, "retried_calls"), value(facts, "tries")) == (3.0, 0, 1)


def test_tries_of_a_call_and_backoff_of_a_session_are_distributions(facts_of):
    facts = facts_of(a_run())
    assert value(facts, "tries_per_call").values.tolist() == [2, 1, 3, 1]
    assert value(facts, "session_backoff_s").values.tolist() == [6.0, 0.0]


def test_time_from_headers_to_the_first_token_is_its_own(facts_of):
    calls = [make_call_result(0, headers_ns=100 * MS, first_token_ns=250 * MS, events=9), make_call_result(1)]
    assert value(facts_of(calls), "headers_to_token_ms").values.tolist() == [150.0]


def test_first_calls_stand_against_returning_ones(facts_of):
    first, returning = value(facts_of(a_run()), "admission_by_kind")
    counts = ("kind", "calls", "refused_calls", "tries", "refused_tries", "given_up_calls", "refused_ratio")
    assert [first[name] for name in counts] == ["first", 2, 2, 3, 2, 1, 1.0]
    assert [returning[name] for name in counts] == ["returning", 2, 1, 4, 3, 1, 0.5]
    # Wilson's interval of 1 in 2, by a table.
    assert (returning["refused_low_ratio"], returning["refused_high_ratio"]) == pytest.approx(
        (0.0945, 0.9055), abs=1e-4
    )


def test_turns_are_in_buckets(facts_of):
    rows = value(facts_of(a_run()), "admission_by_turn")
    assert [(row["turn_from"], row["turn_to"], row["calls"], row["refused_calls"]) for row in rows] == [
        (0, 0, 2, 2),
        (1, 1, 1, 0),
        (2, 4, 1, 1),
    ]


def test_the_last_bucket_of_turns_is_open(facts_of):
    (row,) = value(facts_of([make_call_result(0, turn_index=500)]), "admission_by_turn")
    assert (row["turn_from"], row["turn_to"]) == (50, None)


def test_returning_calls_are_told_by_the_gap_before(facts_of):
    rows = value(facts_of(a_run()), "admission_by_gap")
    assert [(row["gap_from_s"], row["gap_to_s"], row["calls"], row["refused_calls"]) for row in rows] == [
        (1, 10, 1, 0),
        (60, 300, 1, 1),
    ]


def test_headers_are_those_of_tries_that_were_let_in(facts_of):
    first, _ = value(facts_of(a_run()), "admission_by_kind")
    assert first["headers_p50_ms"] == 250.0


def test_every_outcome_is_counted_by_tries_and_calls(facts_of):
    rows = value(facts_of(a_run()), "tries_by_outcome")
    assert rows == [
        {"outcome": "refused", "tries": 5, "calls": 3, "last_tries": 2},
        {"outcome": "complete", "tries": 2, "calls": 2, "last_tries": 2},
    ]


def test_an_overload_in_the_stream_is_a_refusal(facts_of):
    calls = [make_call_result(0, error="error_event", error_text="full (503)", **UNANSWERED)]
    (row,) = value(facts_of(calls), "admission_by_kind")
    assert (row["refused_calls"], row["given_up_calls"]) == (1, 1)


def test_a_first_try_that_was_stopped_says_nothing_of_admission(facts_of):
    calls = [make_call_result(0, error="client_abort", **UNANSWERED)]
    (row,) = value(facts_of(calls), "admission_by_kind")
    assert (row["calls"], row["refused_ratio"], row["tries"]) == (0, None, 1)


def test_calls_of_the_warm_up_do_not_count(facts_of):
    facts = facts_of([make_call_result(0, phase="warm_up"), make_call_result(1, 2 * S)])
    (row,) = value(facts, "admission_by_kind")
    assert (value(facts, "tries"), row["kind"]) == (1, "returning")


def test_sessions_stalled_at_the_end_are_told_by_what_they_waited_for(facts_of):
    nothing = {**UNANSWERED, "headers_ns": None, "status": None, "error": "client_abort"}
    calls = [
        make_call_result(0, attempts=(refused_try(S),), **{**nothing, "sent_ns": None}),
        make_call_result(1, session=1, root=1, **nothing),
        make_call_result(2, session=2, root=2, error="client_abort"),
        make_call_result(3, session=3, root=3, **{**nothing, "sent_ns": None}),
    ]
    facts = facts_of(calls)
    assert (value(facts, "backoff_sessions"), value(facts, "waiting_sessions")) == (1, 1)


def test_a_session_with_a_call_in_the_warm_up_is_in_no_figure_of_sessions(facts_of):
    """Of the warm-up is the first call of session 0; session 1 is measured as a whole."""
    nothing = {**UNANSWERED, "headers_ns": None, "status": None, "error": "client_abort", "end_ns": 4 * S}
    calls = []
    for session, phase in enumerate(("warm_up", "measured")):
        of = {"session": session, "root": session}
        calls += [
            make_call_result(3 * session, phase=phase, **of),
            make_call_result(3 * session + 1, **of, **nothing),
            make_call_result(
                3 * session + 2, attempts=(refused_try(S - MS, 30 * S),), **of, **{**nothing, "sent_ns": None}
            ),
        ]
    facts = facts_of(calls)
    assert value(facts, "session_backoff_s").values.tolist() == [3.0]
    assert (value(facts, "backoff_sessions"), value(facts, "waiting_sessions")) == (1, 1)
    # Their calls count all the same.
    assert value(facts, "backoff_s") == 6.0


def test_prefill_lost_is_what_lost_sessions_had_computed(facts_of):
    calls = [
        make_call_result(0, usage=Usage(input_tokens=900, cache_read_tokens=200)),
        make_call_result(1, 2 * S, usage=Usage(), prompt_tokens=50),
        refused(2, 4 * S),
        make_call_result(3, session=1, root=1, usage=Usage(input_tokens=7000)),
    ]
    assert value(facts_of(calls), "lost_prefill_tokens") == 750


def test_a_usage_that_contradicts_itself_takes_nothing_off(facts_of):
    calls = [
        make_call_result(0, usage=Usage(input_tokens=10, cache_read_tokens=200)),
        make_call_result(1, 2 * S, usage=Usage(input_tokens=30)),
        refused(2, 4 * S),
    ]
    assert value(facts_of(calls), "lost_prefill_tokens") == 30
