from typing import get_args

import pytest

from aitrace.results import Attempt, Calibration, ClientCheck, UnsentReason
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result, make_run_end
from aitrace.units import NS_PER_S
from reports.page import error_sentence, page_text
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture
def text_of(facts_of):
    return lambda calls, **options: page_text(report_from_facts(facts_of(calls, **options)))


def test_a_run_says_what_was_run(text_of):
    text = text_of([make_call_result()], options={"concurrency": 4}, open_loop=False, time_scale=0.25)
    run = dict(text.what_was_run)
    assert run["arrival"] == "4 lanes, each plays one tree after another"
    assert run["time scale of gaps"] == "× 0.25"
    assert run["started"] == "2023-11-14 22:13:20 UTC"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"open_loop": False, "options": {"concurrency": 1}}, "1 lane, plays one tree after another"),
        ({"open_loop": False, "options": {}}, "lanes, each plays one tree after another"),
        ({"open_loop": True, "options": {"arrival": "fixed:1/s"}}, "trees start by the clock (fixed:1/s)"),
        ({"open_loop": True, "options": {}}, "trees start by the clock"),
    ],
)
def test_how_trees_began_is_told_in_words(text_of, header, words):
    assert dict(text_of([make_call_result()], **header).what_was_run)["arrival"] == words


@pytest.mark.parametrize(
    ("ratio", "overhead", "words"),
    [(1.0, 5.0, "1 token per word, 5 tokens per request"), (1.25, 1.0, "1.25 tokens per word, 1 token per")],
)
def test_one_token_has_no_plural(text_of, ratio, overhead, words):
    calibration = Calibration(
        tokens_per_word=ratio, request_overhead_tokens=overhead, source="probe", output_forced=True
    )
    run = dict(text_of([make_call_result()], calibration=calibration).what_was_run)
    assert run["prompt sizes"].startswith(words)


def test_what_is_lost_is_named_and_no_cell_is_empty(text_of):
    tables = text_of([make_call_result(0, error="http_error", session=1), make_call_result(1)]).tables
    assert tables["sizes"].rows[-1] == ("lost sessions", "–", "1", "–")
    assert tables["cache"].rows[-1][0] == "possible, not served from cache"
    cells = [cell for table in tables.values() for row in table.rows for cell in row]
    assert "" not in cells


def test_calls_not_sent_have_their_reason_in_words(text_of):
    lost = make_call_result(1, unsent="session_lost", sent_ns=None)
    assert text_of([make_call_result(), lost]).tables["unsent"].rows == (("its session was lost", "1", "1"),)
    for reason in get_args(UnsentReason):
        unsent = make_call_result(1, unsent=reason, sent_ns=None)
        assert len(text_of([make_call_result(), unsent]).tables["unsent"].rows) == 1


def test_the_slowdown_is_explained_where_it_stands(text_of):
    sentence = text_of([make_call_result()]).time_scale
    assert "time in this run / the time expected from the recording at this time scale" in sentence
    assert "below 1 = faster than the recorded endpoint" in sentence


def test_the_seed_of_texts_is_told_where_the_run_knows_it(text_of):
    assert dict(text_of([make_call_result()], text_seed=7).what_was_run)["seed of texts"] == "7"
    assert "seed of texts" not in dict(text_of([make_call_result()]).what_was_run)


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
    assert text.tables["ttft"].rows[0] == (
        "TTFT, service (from sent), ms",
        "1",
        "250",
        "n < 20",
        "n < 40",
        "n < 200",
        "250",
    )
    assert (
        "TTFT, service (from sent) and TTFT, user (from due): sent calls with a first token"
        in text.tables["ttft"].caption
    )


def test_each_hit_rate_has_numerator_denominator_and_share():
    run = make_up_run(trees=3, calls=6)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    numbers = report.answers.numbers
    row = page_text(report).tables["cache"].rows[0]
    assert row[1:3] == (f"{numbers['cache_reported_tokens']:,}", f"{numbers['cache_input_tokens']:,}")
    assert row[3] == f"{numbers['cache_reported_ratio']:.1%}".replace("%", " %")


def test_intervals_are_sentences_where_there_are_enough_sessions(text_of):
    calls = [make_call_result(i, session=i // 4) for i in range(20)]
    assert text_of(calls).intervals[0] == (
        "TTFT, service (from sent), 95 % intervals over 5 sessions: p50 250 to 250 ms."
    )
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
    assert text.tables["errors"].rows == (("http_error", "1500", "no", "1", "1", "–", "no"),)
    assert text.tables["unsent"].rows == ()


def test_an_error_without_headers_has_no_status(text_of):
    text = text_of([make_call_result(0, error="connect", status=None, sent_ns=None)])
    assert text.tables["errors"].rows[0][1] == "–"


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
    rows = text_of([make_call_result(0)]).tables["gaps"].rows
    assert rows == (("first call of a tree", "–", "1", "1,000", "–", "–", "–", "–"),)


@pytest.mark.parametrize(
    ("scale", "cells"),
    [(1.0, ("10 s – 1 min",)), (0.1, ("6 s – 30 s", "1 min – 5 min")), (0.0, ("any",))],
)
def test_gaps_that_were_scaled_are_told_as_played_and_as_recorded(text_of, scale, cells):
    call = make_call_result(0, turn_index=1, gap_cause="tool", gap_ns=int(12 * NS_PER_S * bool(scale)))
    table = text_of([call], time_scale=scale).tables["gaps"]
    assert table.rows[0][: 1 + len(cells)] == ("after a tool gap", *cells)
    assert ("gap in the recording" in table.columns) == (len(cells) == 2)
    assert len(table.columns) == len(table.rows[0])


def test_the_headlines_say_how_fast_how_much_cached_who_was_refused_and_how_late(text_of):
    usage = Usage(input_tokens=1000, cache_read_tokens=250, output_tokens=101)
    calls = [make_call_result(i, at_ns=i, events=101, usage=usage) for i in range(39)]
    refused = make_call_result(39, session=1, error="refused", status=503, first_token_ns=None)
    headlines = text_of([*calls, refused], planned_sessions=2).headlines
    assert {headline.name: (headline.value, headline.note) for headline in headlines} == {
        "TTFT, service (from sent)": ("p50 250 ms", "p90 250 ms · n = 39"),
        "ITL, mean of a call": ("p50 7.5 ms", "p90 7.5 ms"),
        "prompt tokens cached": ("25.0 %", "engine – · unlimited cache –"),
        "calls refused": ("1 of 40", "0 failed otherwise"),
        "lost sessions": ("1 of 2", "time in run / expected: p50 –"),
        "lateness, client": ("p95 0 s", "0 of 40 calls more than 50 ms late"),
    }


def test_the_headline_tells_of_refusals_that_a_later_try_made_good(text_of):
    refused = Attempt(sent_ns=0, headers_ns=1, end_ns=1, status=429, error="refused", wait_ns=1)
    headlines = text_of([make_call_result(), make_call_result(1, attempts=(refused, refused))]).headlines
    told = {headline.name: (headline.value, headline.note) for headline in headlines}
    assert told["calls refused"] == ("0 of 2", "2 of 4 tries · 0 failed otherwise")


def test_of_few_calls_the_headline_gives_the_largest_value(text_of):
    assert text_of([make_call_result()]).headlines[0].note == "max 250 ms · n = 1"


def test_calls_that_were_stopped_have_a_row_only_in_a_run_that_was(text_of):
    def fates(*calls):
        return [row[0] for row in text_of(calls).tables["sizes"].rows]

    assert "in flight when stopped or cut" not in fates(make_call_result())
    assert "in flight when stopped or cut" in fates(make_call_result(error="client_abort"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"error": "refused", "status": 429, "error_text": "full", "retry_after_ns": 2 * NS_PER_S},
            "1 refused 429, sessions: 1, Retry-After 2 s: full",
        ),
        (
            {"error": "error_event", "error_text": "no room (503)"},
            "1 error_event 200 (overload), sessions: 1: no room (503)",
        ),
        ({"error": "connect", "status": None}, "1 connect, sessions: 1"),
    ],
)
def test_an_error_is_one_line_on_a_terminal(facts_of, fields, sentence):
    report = report_from_facts(facts_of([make_call_result(0, **fields)]))
    assert [error_sentence(row) for row in report.answers.tables["errors_by_kind"]] == [sentence]


def test_a_trial_before_the_run_stands_beside_the_clients_numbers(text_of):
    check = ClientCheck(
        calls_per_s=20.0,
        prompt_tokens=100,
        output_tokens=20,
        calls=100,
        failed_calls=0,
        reached_events_per_s=400.0,
        workers=1,
        ttft_error_p50_ns=150_000,
        ttft_error_p99_ns=600_000,
        lateness_p50_ns=100_000,
        lateness_p99_ns=1_500_000,
        cpu_per_event_ns=30_000,
        cpu_per_call_ns=900_000,
    )
    client = dict(text_of([], client_check=check).client)
    assert client["TTFT error in a trial at 20 calls/s and 400 events/s"] == "p50 0.15 ms, p99 0.6 ms"
    assert client["lateness in that trial"] == "p50 0.1 ms, p99 1.50 ms"


def test_faulty_ids_stand_beside_honest_ones(text_of):
    calls = [
        make_call_result(0),
        make_call_result(1, session=1, root=1, identity_fault="churn", first_token_ns=None),
    ]
    table = text_of(calls).tables["identities"]
    assert [row[0] for row in table.rows] == ["honest", "churn"]
    assert [row[-1] for row in table.rows] == ["1", "0"]
