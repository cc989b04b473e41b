import io

import pytest
from rich.console import Console

from aitrace.testing import make_call_result
from reports.summary import report_from_facts
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


def test_errors_are_listed_only_if_there_are_some(printed):
    assert "too many" in printed([make_call_result(0, error="refused", status=429, error_text="too many")])
    assert "Errors" not in printed([make_call_result(0)])


def test_text_from_outside_is_neither_markup_nor_control(printed):
    out = printed([make_call_result(0, error="cut", error_text="[red]x[/red]\x1b[2J")], model="[bold]m")
    assert "[red]x[/red] [2J" in out
    assert "model [bold]m" in out
    assert "\x1b" not in out
