import pytest

from aitrace.testing import make_call_result
from reports.run_document import document_of_run
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture
def document_of(facts_of):
    return lambda calls, **options: document_of_run(report_from_facts(facts_of(calls, **options)))


def tables_of(document):
    return [block for section in document.sections for block in section.blocks if block.kind == "table"]


def test_ids_are_each_for_one_element(document_of):
    run = make_up_run(trees=4, calls=8, refused_ratio=0.1)
    document = document_of_run(
        report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    )
    ids = [section.id for section in document.sections] + [figure.id for figure in document.figures()]
    assert sorted(set(ids)) == sorted(ids)


def test_what_is_lost_is_named_and_no_cell_is_empty(document_of):
    document = document_of([make_call_result(0, error="http_error", session=1), make_call_result(1)])
    rows = [row for table in tables_of(document) for row in table.rows]
    assert ("lost sessions", "–", "1", "–") in rows
    assert [row for row in rows if "" in row] == []


def test_a_table_has_a_head_for_each_cell(document_of):
    document = document_of([make_call_result(0, error="http_error", session=1), make_call_result(1)])
    assert [t.columns for t in tables_of(document) for row in t.rows if len(row) != len(t.columns)] == []


def test_a_section_with_nothing_to_say_is_left_out(document_of):
    assert "identities" not in [section.id for section in document_of([make_call_result()]).sections]


def test_every_figure_draws_a_run_or_says_that_there_is_nothing_to_draw(document_of):
    run = make_up_run(trees=4, calls=8, refused_ratio=0.1)
    facts = facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace)
    drawn = document_of_run(report_from_facts(facts)).figures()
    assert [figure.id for figure in drawn if not figure.traces] == []
    empty = document_of([], end=None, planned_calls=1).figures()
    assert [
        figure.id for figure in empty if figure.traces or not figure.note.startswith("nothing to draw")
    ] == []


def test_no_code_of_an_outcome_is_shown_to_a_reader(document_of):
    nothing = dict.fromkeys(("sent_ns", "due_ns", "end_ns", "first_token_ns", "last_token_ns", "headers_ns"))
    calls = [
        make_call_result(0, error="error_event", error_text="x"),
        make_call_result(1, error="http_error", status=500, session=1),
        make_call_result(2, error="client_abort", session=2),
        make_call_result(3, unsent="session_lost", **nothing),
        make_call_result(4, unsent="worker_lost", session=3, **nothing),
    ]
    document = document_of(calls)
    texts = [cell for table in tables_of(document) for row in table.rows for cell in row]
    texts += [text for headline in document.headlines for text in (headline.value, headline.note)]
    codes = (
        "error_event",
        "http_error",
        "client_abort",
        "session_lost",
        "worker_lost",
        "subagent",
        "tool_gap",
    )
    assert [text for text in texts if text in codes] == []
