import pytest

from aitrace.results import Attempt
from aitrace.testing import make_call_result
from aitrace.units import NS_PER_S
from reports.sections.findings import findings, findings_section
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_a_run_that_tells_nothing_has_no_findings(report_of):
    report = report_of([make_call_result(0)])
    assert (findings(report), findings_section(report)) == ((), None)


def test_refusals_are_told_with_what_was_waited_for_them(report_of):
    refused = Attempt(sent_ns=0, headers_ns=1, end_ns=1, status=429, error="refused", wait_ns=3 * NS_PER_S)
    calls = [
        make_call_result(0, at_ns=4 * NS_PER_S, attempts=(refused,)),
        make_call_result(1, session=1, root=1),
    ]
    (sentence,) = findings(report_of(calls))
    assert sentence.startswith("1 of 3 tries were refused (33.3 %); sessions waited 3 s in backoff")


def test_few_refusals_are_no_finding(report_of):
    refused = Attempt(sent_ns=0, headers_ns=1, end_ns=1, status=429, error="refused", wait_ns=1)
    calls = [make_call_result(index, attempts=(refused,) * (index == 0)) for index in range(200)]
    assert findings(report_of(calls)) == ()


def test_what_was_lost_from_the_cache_stands_first():
    run = make_up_run(trees=4, calls=8)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    section = findings_section(report)
    texts = [block.text for block in section.blocks]
    assert texts[0].startswith("Of ")
    assert "not served from cache" in texts[0]
    assert texts[-1].startswith("The median session took")
