import pytest

from aitrace.testing import TraceBuilder, make_call_result, make_run_end
from reports.page import page_text
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture
def text_of(facts_of):
    return lambda calls, **options: page_text(report_from_facts(facts_of(calls, **options)))


def test_a_run_says_what_was_run(text_of):
    text = text_of([make_call_result()], options={"concurrency": 4}, open_loop=False, time_scale=0.25)
    run = dict(text.what_was_run)
    assert run["arrival"] == "closed loop: lanes start trees (4)"
    assert run["time scale of gaps"] == "× 0.25"
    assert run["started"] == "2023-11-14 22:13:20 UTC"


def test_whose_data_a_trace_is_is_told(text_of):
    builder = TraceBuilder(attribution="somebody")
    builder.call(builder.session())
    assert (
        dict(text_of([make_call_result()], trace=builder.trace()).what_was_run)["source of the trace"]
        == "somebody"
    )


@pytest.mark.parametrize(
    ("scale", "words"), [(1.0, "played as recorded"), (0.5, "less time"), (2.0, "more time")]
)
def test_the_effect_of_the_time_scale_is_told(text_of, scale, words):
    assert words in text_of([make_call_result()], time_scale=scale).time_scale


def test_spreads_are_rows_with_their_unit_and_population(text_of):
    text = text_of([make_call_result()])
    assert text.ttft.rows[0] == ("TTFT, service, ms", "1", "250", *["n too small"] * 3, "250")
    assert "TTFT, service: sent calls with a first token" in text.ttft.caption


def test_each_hit_rate_has_numerator_denominator_and_share():
    run = make_up_run(trees=3, calls=6)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    numbers = report.answers.numbers
    row = page_text(report).cache.rows[0]
    assert row[1:3] == (f"{numbers['cache_reported_tokens']:,}", f"{numbers['cache_input_tokens']:,}")
    assert row[3] == f"{numbers['cache_reported_ratio']:.1%}".replace("%", " %")


def test_intervals_are_sentences_where_there_are_enough_sessions(text_of):
    calls = [make_call_result(i, session=i // 4) for i in range(20)]
    assert text_of(calls).intervals[0] == "TTFT, service, 95 % intervals over 5 sessions: p50 250 to 250 ms."
    assert text_of(calls[:8]).intervals == ()


@pytest.mark.parametrize(
    ("header", "run", "words"),
    [
        ({"block_scope": "tree"}, {}, "cannot tell equal content in two trees"),
        ({"unit": "bytes"}, {}, "shares of bytes"),
        ({}, {"history": "live"}, "kept its own answers"),
        ({"block_size": 512}, {}, "blocks of 512 tokens"),
    ],
)
def test_notes_tell_what_the_bound_does_not_know(text_of, header, run, words):
    builder = TraceBuilder(**header)
    builder.call(builder.session())
    notes = text_of([make_call_result()], trace=builder.trace(), **run).cache_notes
    assert any(words in note for note in notes)


def test_shared_system_prompts_leave_no_note_on_trees(text_of):
    builder = TraceBuilder(block_scope="tree")
    builder.call(builder.session())
    notes = text_of([make_call_result()], trace=builder.trace(), share_system=True).cache_notes
    assert not any("two trees" in note for note in notes)


def test_errors_have_their_status_as_a_name_and_their_first_text(text_of):
    text = text_of([make_call_result(0, error="http_error", status=1500, error_text="no")])
    assert text.errors.rows == (("http_error", "1500", "1", "1", "–", "no"),)
    assert text.unsent.rows == ()


def test_an_error_without_headers_has_no_status(text_of):
    text = text_of([make_call_result(0, error="connect", status=None, sent_ns=None)])
    assert text.errors.rows[0][1] == "–"


def test_readings_are_summed_up(text_of):
    run = make_up_run(trees=2, calls=4)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    client = dict(page_text(report).client)
    assert (
        client["Readings of the engine's metrics"]
        == f"{len(run.scrapes)}, 0 failed, longest time without one 2 s"
    )
    assert (
        dict(text_of([], end=make_run_end()).client)["Readings of the engine's metrics"] == "none were taken"
    )


def test_a_single_reading_has_no_time_without_one(text_of):
    from aitrace.results import Scrape

    client = dict(text_of([], scrapes=[Scrape(at_ns=0, url="u")]).client)
    assert client["Readings of the engine's metrics"].endswith("longest time without one –")


def test_gap_rows_have_shares_where_they_are_known(text_of):
    rows = text_of([make_call_result(0)]).gaps.rows
    assert rows == (("first of its tree", "1", "1,000", "–", "–", "–", "–"),)
