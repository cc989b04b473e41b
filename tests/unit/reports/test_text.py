import io

import pytest
from rich.console import Console

from aitrace.results import ClientCheck
from aitrace.testing import make_call_result
from reports.cache.text import losses_finding, survival_finding
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run
from reports.text import print_report
from reports.words import text_from_float


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


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_every_number_is_whole_at_any_width(facts_of, width):
    """A table that does not fit becomes a paragraph for each row; nothing is cut off."""
    run = make_up_run(trees=12, calls=12, refused_ratio=0.02)
    out = io.StringIO()
    facts = facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace)
    report = report_from_facts(facts)
    print_report(report, Console(file=out, width=width))
    text = out.getvalue()
    assert "…" not in text.replace("… within", "").replace("… between", "")
    assert [line for line in text.splitlines() if len(line) > width] == []
    for name in ("ttft_service_ms", "session_duration_s"):
        assert text_from_float(report.answers.spreads[name].largest) in text


@pytest.mark.parametrize(("width", "most"), [(100, 87), (132, 83)])
def test_a_usual_run_is_told_in_some_80_lines(width, most):
    run = make_up_run(trees=12, calls=12)
    out = io.StringIO()
    facts = facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace)
    print_report(report_from_facts(facts), Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert len(lines) <= most
    assert sum(line.startswith(" class ") for line in lines) == 1


def test_the_sections_of_the_page_are_there_in_short(printed):
    refused = make_call_result(30, session=9, error="refused", status=429)
    out = printed([*(make_call_result(i, session=i // 10) for i in range(30)), refused])
    heads = ("Counts", "Admission", "Latency", "Sessions", "What their time went into", "Prefix cache", "Engine and client",
             "Schedule")  # fmt: skip
    assert [head for head in heads if f"\n{head}" not in out] == []


def test_what_became_of_cached_prefixes_is_told_in_two_sentences(facts_of):
    run = make_up_run(trees=6, calls=12)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    out = io.StringIO()
    print_report(report, Console(file=out, width=100))
    cache = " ".join(out.getvalue().partition("Prefix cache")[2].partition("Engine and client")[0].split())
    assert survival_finding(report) in cache
    assert losses_finding(report) in cache
    assert "were lost; the largest cause is “" in cache


@pytest.mark.parametrize(("is_terminal", "codes"), [(False, 0), (True, 1)])
def test_colour_is_for_a_terminal_only(facts_of, is_terminal, codes):
    out = io.StringIO()
    console = Console(
        file=out, width=80, force_terminal=is_terminal, color_system="standard" if is_terminal else "auto"
    )
    print_report(report_from_facts(facts_of([])), console)
    assert min(1, out.getvalue().count("\x1b[")) == codes


def test_lost_sessions_are_told_in_words(printed):
    out = printed([make_call_result(0, error="timeout", status=None, headers_ns=None, first_token_ns=None)])
    assert "timeout before headers" in out
    assert "timeout_headers" not in out


def test_errors_are_listed_only_if_there_are_some(printed):
    assert "too many" in printed([make_call_result(0, error="refused", status=429, error_text="too many")])
    assert "Errors" not in printed([make_call_result(0)])


def test_text_from_outside_is_neither_markup_nor_control(printed):
    out = printed([make_call_result(0, error="cut", error_text="[red]x[/red]\x1b[2J")], model="[bold]m")
    assert "[red]x[/red] [2J" in out
    assert "model [bold]m" in out
    assert "\x1b" not in out


def test_what_a_trial_of_the_client_said_is_told(printed):
    check = ClientCheck(
        calls_per_s=40.0,
        prompt_tokens=1000,
        output_tokens=50,
        calls=200,
        failed_calls=0,
        reached_events_per_s=2000.0,
        workers=1,
        ttft_error_p50_ns=200_000,
        ttft_error_p99_ns=1_100_000,
        lateness_p50_ns=300_000,
        lateness_p99_ns=2_200_000,
        cpu_per_event_ns=20_000,
        cpu_per_call_ns=400_000,
    )
    text = printed([make_call_result()], client_check=check)
    assert "TTFT error in a trial at 40 calls/s and 2,000 events/s p50 0.2 ms, p99 1.10 ms" in " ".join(
        text.split()
    )
    assert "in that trial" not in printed([make_call_result()])


@pytest.mark.parametrize(("count", "told"), [(5, False), (6, True)])
def test_lost_sessions_that_are_left_out_are_counted(printed, count, told):
    out = printed([make_call_result(i, session=i, error="refused", status=429) for i in range(count)])
    assert ("And 1 more: see the page and --json." in out) == told


def test_the_time_of_sessions_says_how_many_there_were_of_it(printed):
    lost = make_call_result(9, session=9, error="refused", status=429)
    out = printed([*(make_call_result(i, session=i) for i in range(3)), lost])
    row = next(line for line in out.splitlines() if line.startswith(" to the first token"))
    assert row.split()[4] == "3"
    assert "complete sessions, s" in out


def test_the_prefix_cache_stands_apart_though_no_session_is_complete(printed):
    assert "\n\nPrefix cache" in printed([make_call_result(0, error="timeout")])
    assert "\n\nPrefix cache" in printed([make_call_result(0)])
    assert "\n\n\n" not in printed([make_call_result(0)])
