import pytest

from aitrace.testing import make_call_result
from reports.sections.identities import identities_section, identities_table
from reports.summary import report_from_facts


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_faulty_ids_stand_beside_honest_ones(report_of):
    calls = [
        make_call_result(0),
        make_call_result(1, session=1, root=1, identity_fault="churn", first_token_ns=None),
    ]
    table = identities_table(report_of(calls).answers)
    assert [row[0] for row in table.rows] == ["honest", "churn"]
    assert [row[-1] for row in table.rows] == ["1", "0"]


def test_a_run_of_honest_ids_has_no_section_on_them(report_of):
    assert identities_section(report_of([make_call_result()])) is None
    assert identities_section(report_of([make_call_result(identity_fault="churn")])).blocks[0].rows
