import pytest

from aitrace.results import Attempt
from aitrace.testing import make_call_result
from reports.sections.admission import (
    admission_section,
    admission_table,
    lost_table,
    outcomes_table,
)
from reports.summary import report_from_facts


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


REFUSED = Attempt(sent_ns=0, headers_ns=1, end_ns=1, status=429, error="refused", wait_ns=1)


def test_first_and_returning_calls_have_a_row_each(report_of):
    answers = report_of([make_call_result(0), make_call_result(1, at_ns=10**9, attempts=(REFUSED,))]).answers
    rows = admission_table(answers).rows
    assert rows[0][0] == "first calls of a session"
    assert sum(int(row[1]) for row in rows) == 2


def test_outcomes_are_told_in_words(report_of):
    answers = report_of([make_call_result(0, error="client_abort")]).answers
    assert outcomes_table(answers).rows == (("in flight when the run was stopped", "1", "1", "1"),)


def test_gaps_have_a_table_only_where_calls_returned(report_of):
    def headings(*calls):
        return [block.text for block in admission_section(report_of(calls)).blocks if block.kind == "heading"]

    assert headings(make_call_result()) == ["Tries by outcome", "By turn"]
    later = make_call_result(1, at_ns=10**10, turn_index=1, gap_ns=10**9)
    assert headings(make_call_result(), later)[-1] == "Returning calls by the gap before"


NOTHING = dict.fromkeys(("sent_ns", "due_ns", "end_ns", "first_token_ns", "last_token_ns", "headers_ns"))


def test_lost_sessions_are_told_one_by_one_in_words(report_of):
    calls = [
        make_call_result(
            0, error="timeout", turn_index=3, call_class="subagent", status=None, headers_ns=None, session=1
        ),
        make_call_result(1, unsent="session_lost", session=0, **NOTHING),
    ]
    assert lost_table(report_of(calls).answers).rows == (
        ("1, instance 1", "1.00", "3", "sub-agent", "timeout before headers", "–", "1", "0", "0", "0"),
        ("0, instance 1", "1.00", "3 of session 1", "sub-agent", "timeout before headers", "–", "1", "0", "1", "0"),
    )  # fmt: skip


def test_a_table_of_some_lost_sessions_says_so(report_of):
    calls = [make_call_result(i, session=i, root=i, error="cut") for i in range(31)]
    table = lost_table(report_of(calls).answers)
    assert len(table.rows) == 30
    assert "The 30 of 31 with the most prefill lost." in table.caption


def test_a_run_that_lost_none_has_no_table_of_them(report_of):
    ids = [
        block.id
        for block in admission_section(report_of([make_call_result()])).blocks
        if block.kind == "heading"
    ]
    assert "lost-sessions" not in ids
