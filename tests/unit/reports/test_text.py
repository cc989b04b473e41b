import io

import pytest
from rich.console import Console

from aitrace.testing import make_call_result
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run
from reports.text import print_report


@pytest.fixture
def printed(facts_of):
    def build(calls, **options):
        out = io.StringIO()
        print_report(report_from_facts(facts_of(calls, **options)), Console(file=out, width=100))
        return out.getvalue()

    return build


def test_the_first_line_is_the_verdict(printed):
    assert printed([make_call_result(i) for i in range(30)]).splitlines()[0] == "fine"
    assert printed([], end=None).startswith(
        "in doubt: the run has no end record; no call was answered completely"
    )


def test_no_line_is_wider_than_the_terminal(facts_of):
    run = make_up_run(trees=6, calls=12, refused_ratio=0.05)
    out = io.StringIO()
    facts = facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace)
    print_report(report_from_facts(facts), Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert "…" not in out.getvalue().replace("… within", "").replace("… between", "")
    assert sum(line.startswith(" TTFT, service (from sent), ms ") for line in lines) == 1


def test_errors_are_listed_only_if_there_are_some(printed):
    assert "too many" in printed([make_call_result(0, error="refused", status=429, error_text="too many")])
    assert "Errors" not in printed([make_call_result(0)])


def test_text_from_outside_is_neither_markup_nor_control(printed):
    out = printed([make_call_result(0, error="cut", error_text="[red]x[/red]\x1b[2J")], model="[bold]m")
    assert "[red]x[/red] [2J" in out
    assert "model [bold]m" in out
    assert "\x1b" not in out
