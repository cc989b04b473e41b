import pytest

from aitrace.schema import Usage
from aitrace.testing import make_call_result
from reports.sections.latency import (
    interval_sentences,
    kind_table,
    kinds_section,
    tokens_section,
    ttft_section,
)
from reports.summary import report_from_facts


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_intervals_are_sentences_where_there_are_enough_sessions(report_of):
    calls = [make_call_result(i, session=i // 4) for i in range(20)]
    assert interval_sentences(report_of(calls).answers)[0] == (
        "TTFT, service (from sent), 95 % intervals over 5 sessions: p50 250 to 250 ms."
    )
    assert interval_sentences(report_of(calls[:8]).answers) == ()


def test_a_section_has_its_intervals_only_where_they_are_known(report_of):
    report = report_of([make_call_result()])
    assert [block.kind for block in ttft_section(report).blocks] == ["table", "beside", "figure"]
    assert [block.kind for block in tokens_section(report).blocks] == ["table", "figure"]


def test_latency_is_told_by_class_turn_prompt_tokens_not_cached_and_gap(report_of):
    usage = Usage(input_tokens=1000, cache_read_tokens=100, output_tokens=1)
    section = kinds_section(report_of([make_call_result(i, usage=usage) for i in range(2)]))
    assert [block.text for block in section.blocks if block.kind == "heading"] == [
        "By class of call", "By turn", "By prompt size", "By prompt tokens that were not cached",
        "By the gap before the call",
    ]  # fmt: skip


def test_a_break_down_has_n_and_quantiles_of_each_measure_and_says_which_are_withheld(report_of):
    table = kind_table(
        report_of([make_call_result()]).answers, "latency_by_class", ("ttft_service", "ttft_user", "itl")
    )
    assert table.columns == (
        "class", "TTFT from sent, ms: n", "p50", "p95", "from due, ms: p50", "p95", "ITL, ms: n", "p50", "p95",
    )  # fmt: skip
    assert table.rows == (("main agent", "1", "250", "n < 40", "250", "n < 40", "0", "–", "–"),)


def test_a_break_down_of_nothing_is_left_out(report_of):
    headings = [
        block.text
        for block in kinds_section(report_of([make_call_result()])).blocks
        if block.kind == "heading"
    ]
    assert "By prompt tokens that were not cached" not in headings
