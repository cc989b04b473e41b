from dataclasses import replace

import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.sections.sessions import (
    number_pairs,
    parts_table,
    sessions_section,
    sizes_table,
    slowdown_sentence,
    time_scale_sentence,
    unloaded_sentence,
)
from reports.summary import report_from_facts

S = 10**9


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_the_slowdown_is_explained_where_it_stands(report_of):
    sentence = time_scale_sentence(report_of([make_call_result()]))
    assert "time in this run / the time expected from the recording at this time scale" in sentence
    assert "above 1 slower than the recorded endpoint, below 1 faster" in sentence


@pytest.mark.parametrize(
    ("scale", "words"), [(1.0, "played as recorded"), (0.5, "less time"), (2.0, "more time")]
)
def test_the_effect_of_the_time_scale_is_told(report_of, scale, words):
    assert words in time_scale_sentence(report_of([make_call_result()], time_scale=scale))


def timed(report_of, *, seconds):
    """A session of one call that took so long and was expected to take 2 s."""
    builder = TraceBuilder()
    builder.call(builder.session(), at_ns=0, duration_ns=2 * S)
    return report_of([make_call_result(0, planned_ns=0, end_ns=round(seconds * S))], trace=builder.trace())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.7, "0.35 × the expected time (faster)"),
        (3, "1.50 × the expected time (slower)"),
        (2, "1.00 × the expected time"),
    ],
)
def test_a_slowdown_below_1_reads_as_faster(report_of, seconds, words):
    assert (
        slowdown_sentence(timed(report_of, seconds=seconds).answers)
        == f"The median session took {words} (n = 1)."
    )


def test_without_a_recorded_time_there_is_nothing_to_compare(report_of):
    assert slowdown_sentence(report_of([make_call_result()]).answers).startswith("No complete session")


def test_where_the_idle_times_come_from_is_told(report_of, facts_of):
    assert unloaded_sentence(report_of([])).startswith(
        "The times of an idle endpoint are told from at least 20 calls, and there were 0 calls of this run that no other one"
    )
    usage = Usage(input_tokens=1000, cache_read_tokens=0, output_tokens=11)
    calls = [make_call_result(i, session=i, root=i, events=11, usage=usage) for i in range(20)]
    given = report_from_facts(replace(facts_of([]), unloaded=facts_of(calls)))
    assert unloaded_sentence(given).startswith(
        "Unloaded is an estimate from 20 calls of the run given by --unloaded: first token after 250 ms, no time for prompt "
        "tokens, 75 ms per output token."
    )


def test_parts_are_told_in_words(report_of):
    table = parts_table(report_of([make_call_result()]).answers)
    assert [row[:3] for row in table.rows][:2] == [
        ("to the first token", "0.25", "25.0 %"), ("first token to end", "0.75", "75.0 %"),
    ]  # fmt: skip


def test_an_index_is_no_percentage(report_of):
    (row,) = sizes_table(timed(report_of, seconds=3).answers).rows
    assert row == ("1 – 2", "1", "1", "1.50", "n < 40", "1.000", "1", "33.3", "n < 40", "1.000")
    pairs = dict(
        number_pairs(timed(report_of, seconds=3).answers, ("slowdown_jain_ratio", "slowdown_p95_over_p50"))
    )
    assert list(pairs.values()) == ["1.000", "–"]


def test_the_section_has_times_what_they_went_into_and_how_even_they_were(report_of):
    section = sessions_section(report_of([make_call_result()]))
    assert [block.id for block in section.blocks if block.kind in ("heading", "figure")] == [
        "session-slowdown", "session-time", "session-parts", "fairness",
    ]  # fmt: skip
