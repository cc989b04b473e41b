"""Outcomes of tries."""

from typing import get_args

import pytest

from aitrace.outcomes import OUTCOME_WORDS, PHASE_WORDS, UNSENT_WORDS, Outcome, outcome_of
from aitrace.results import Attempt, Phase, UnsentReason
from aitrace.schema import ErrorKind
from aitrace.testing import make_call_result


def attempt(error, **fields):
    return Attempt(end_ns=9, wait_ns=1, error=error, **fields)


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, "timeout_headers"),
        ({"headers_ns": 5}, "timeout_first_token"),
        ({"headers_ns": 5, "first_token_ns": 6}, "timeout_stream"),
    ],
)
def test_a_timeout_says_what_it_waited_for(fields, outcome):
    assert outcome_of(attempt("timeout", **fields)) == outcome
    none = {"headers_ns": None, "first_token_ns": None}
    assert outcome_of(make_call_result(error="timeout", **{**none, **fields})) == outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("late (503)", "refused_in_stream"),
        ("Overloaded", "refused_in_stream"),
        ("{'error': {'message': 'Th...am': None, 'code': 503}} (internal_error)", "refused_in_stream"),
        ("{'code': 500} (internal_error)", "error_event"),
        ("late (500)", "error_event"),
        ("(503) later", "error_event"),
        (None, "error_event"),
    ],
)
def test_an_error_event_of_overload_is_a_refusal_in_the_stream(text, outcome):
    assert outcome_of(attempt("error_event", error_text=text)) == outcome


def test_a_call_without_an_error_is_complete_and_a_stopped_one_is_told():
    assert outcome_of(make_call_result()) == "complete"
    assert outcome_of(make_call_result(error="client_abort")) == "stopped"


@pytest.mark.parametrize("error", sorted(set(get_args(ErrorKind)) - {"timeout", "client_abort"}))
def test_every_other_error_keeps_its_name(error):
    assert outcome_of(attempt(error)) == error
    assert error in get_args(Outcome)


def test_every_name_that_a_run_has_for_what_became_of_a_call_has_words():
    assert set(OUTCOME_WORDS) == {*get_args(Outcome), *get_args(ErrorKind)}
    assert (set(UNSENT_WORDS), set(PHASE_WORDS)) == (set(get_args(UnsentReason)), set(get_args(Phase)))
