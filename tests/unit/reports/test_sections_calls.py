from typing import get_args

import pytest

from aitrace.results import UnsentReason
from aitrace.testing import make_call_result
from aitrace.units import NS_PER_S
from reports.sections.calls import error_sentence, errors_table, sizes_table, unsent_table
from reports.summary import report_from_facts


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_calls_not_sent_have_their_reason_in_words(report_of):
    lost = make_call_result(1, unsent="session_lost", sent_ns=None)
    assert unsent_table(report_of([make_call_result(), lost]).answers).rows == (
        ("its session was lost", "1", "1"),
    )
    for reason in get_args(UnsentReason):
        unsent = make_call_result(1, unsent=reason, sent_ns=None)
        assert len(unsent_table(report_of([make_call_result(), unsent]).answers).rows) == 1


def test_errors_have_their_status_as_a_name_and_their_first_text(report_of):
    report = report_of([make_call_result(0, error="http_error", status=1500, error_text="no")])
    assert errors_table(report.answers).rows == (("HTTP error", "1500", "no", "1", "1", "–", "no"),)
    assert unsent_table(report.answers).rows == ()


def test_an_error_without_headers_has_no_status(report_of):
    report = report_of([make_call_result(0, error="connect", status=None, sent_ns=None)])
    assert errors_table(report.answers).rows[0][1] == "–"


def test_calls_that_were_stopped_have_a_row_only_in_a_run_that_was(report_of):
    def fates(*calls):
        return [row[0] for row in sizes_table(report_of(calls).answers).rows]

    assert "in flight when stopped or cut" not in fates(make_call_result())
    assert "in flight when stopped or cut" in fates(make_call_result(error="client_abort"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"error": "refused", "status": 429, "error_text": "full", "retry_after_ns": 2 * NS_PER_S},
            "1 refused 429, sessions: 1, Retry-After 2 s: full",
        ),
        (
            {"error": "error_event", "error_text": "no room (503)"},
            "1 error in the stream 200 (overload), sessions: 1: no room (503)",
        ),
        ({"error": "connect", "status": None}, "1 no connection, sessions: 1"),
    ],
)
def test_an_error_is_one_line_on_a_terminal(report_of, fields, sentence):
    report = report_of([make_call_result(0, **fields)])
    assert [error_sentence(row) for row in report.answers.tables["errors_by_kind"]] == [sentence]
