import pytest

from aitrace.testing import make_call_result
from reports.sections.cells import cell_text, row_cell, rows_table, share_text, spread_line, spread_table
from reports.summary import report_from_facts


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_spreads_are_rows_with_their_unit_and_population(report_of):
    table = spread_table(report_of([make_call_result()]).answers, ("ttft_service_ms", "ttft_user_ms"))
    assert table.rows[0] == (
        "TTFT, service (from sent), ms",
        "1",
        "250",
        "n < 20",
        "n < 40",
        "n < 200",
        "250",
    )
    assert (
        "TTFT, service (from sent) and TTFT, user (from due): sent calls with a first token" in table.caption
    )


def test_a_spread_is_told_in_a_line(report_of):
    calls = [make_call_result(0, due_ns=0, sent_ns=2_000_000, new_connection=False)]
    assert spread_line(report_of(calls).answers, "client_lateness_ms") == (
        "Lateness, client, ms: p50 2.00, p99 (n < 200), max 2.00 (n = 1)"
    )
    assert spread_line(report_of([]).answers, "client_lateness_ms") == "Lateness, client –"


def test_rows_are_told_by_their_heads():
    table = rows_table(
        [{"kind": "a", "calls": 1000, "hit_ratio": 0.5}], {"kind": "what", "hit_ratio": "share", "calls": "n"}
    )
    assert (table.columns, table.rows) == (("what", "share", "n"), (("a", "50.0 %", "1,000"),))


def test_a_status_is_a_name_and_no_amount():
    assert (cell_text(1500, "status"), cell_text(1500, "calls"), cell_text(None, "status")) == (
        "1500",
        "1,500",
        "–",
    )


def test_a_share_of_nothing_is_not_known():
    assert (share_text(1, 4), share_text(1, 0), share_text(None, 4)) == ("25.0 %", "–", "–")


def test_a_95th_percentile_that_is_withheld_says_how_many_values_it_needs():
    row = {"ttft_p50_ms": 1.0, "ttft_p95_ms": None, "p50_s": 2.0, "p95_s": None}
    assert [row_cell(row, key) for key in row] == ["1.00", "n < 40", "2.00", "n < 40"]


def test_a_percentile_of_no_values_is_not_known():
    row = {"share_p50_ratio": None, "share_p95_ratio": None}
    assert [row_cell(row, key) for key in row] == ["–", "–"]
