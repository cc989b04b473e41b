import pytest

from aitrace.testing import TraceBuilder, make_call_result
from reports.sections.schedule import caps_sentence, gaps_table, schedule_section
from reports.summary import report_from_facts

S = 10**9


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def capped(report_of, *, gap_s):
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, at_ns=0, duration_ns=S)
    builder.call(session, at_ns=5 * S, duration_ns=S)
    calls = [make_call_result(0), make_call_result(1, at_ns=2 * S, gap_ns=gap_s * S)]
    return report_of(calls, trace=builder.trace())


def test_what_caps_cut_is_told_in_a_sentence(report_of):
    assert (
        caps_sentence(capped(report_of, gap_s=1).answers) == "Caps cut 1 of 1 gap (100.0 %), together by 3 s."
    )
    assert caps_sentence(capped(report_of, gap_s=4).answers) == "No cap cut a gap (n = 1)."
    assert caps_sentence(report_of([make_call_result()]).answers).startswith("Without the trace")


def test_gaps_are_told_by_cause(report_of):
    (row,) = gaps_table(capped(report_of, gap_s=1).answers).rows
    assert row == ("tool", "1", "4.00", "1.00", "1.00", "1", "0", "n < 40", "0")


def test_the_section_has_lateness_gaps_and_arrivals(report_of):
    section = schedule_section(capped(report_of, gap_s=1))
    assert [block.kind for block in section.blocks] == ["table", "beside", "words", "table", "beside"]
