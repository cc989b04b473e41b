from dataclasses import replace

import pytest

from aitrace.doubts import find_doubts, verdict_line
from aitrace.results import Attempt, Calibration, Scrape, WorkerEnd
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result, make_run_end, make_trace
from reports.answers import answers_from_facts
from reports.evidence import evidence_of

S = 10**9
MS = 10**6


def one_session_trace(calls):
    return make_trace(sessions=1, calls=calls)


def good_calls(count=200, **fields):
    """Calls as planned, that found all of the prompt before theirs."""
    usage = Usage(input_tokens=1000, cache_read_tokens=0, output_tokens=100)
    return [make_call_result(i, at_ns=i * 2 * S, call=0, **{"usage": usage, **fields}) for i in range(count)]


def found(facts):
    return {doubt.name: doubt for doubt in find_doubts(evidence_of(facts, answers_from_facts(facts)))}


@pytest.fixture
def doubts_of(facts_of):
    def build(calls, **options):
        return found(facts_of(calls, **{"trace": one_session_trace(1), **options}))

    return build


def test_a_run_that_went_to_plan_raises_no_doubt(doubts_of):
    assert doubts_of(good_calls()) == {}


def test_a_run_without_an_end_was_cut(doubts_of):
    assert set(doubts_of(good_calls(), end=None)) == {"run_cut"}


def test_a_stopped_run_is_in_doubt(doubts_of):
    assert set(doubts_of(good_calls(), end=make_run_end(interrupted=True))) == {"interrupted"}


def test_lost_lines_and_missing_calls_are_told(doubts_of):
    assert set(doubts_of(good_calls(), lines_lost=1, planned_calls=201)) == {"lines_lost", "calls_missing"}


@pytest.mark.parametrize(("away", "names"), [(10, set()), (11, {"unreachable"})])
def test_tries_without_a_connection_put_a_run_in_doubt_though_its_calls_ended_well(doubts_of, away, names):
    gone = Attempt(end_ns=0, error="connect", wait_ns=1)
    calls = good_calls(200)
    retried = [replace(call, attempts=(gone,)) if call.index < away else call for call in calls]
    assert set(doubts_of(retried)) == names


def late(count, late_ns, *, of=200):
    return [*good_calls(of - count), *good_calls(count, sent_ns=late_ns, due_ns=0, new_connection=False)]


@pytest.mark.parametrize(
    ("count", "of", "weighs"),
    [(2, 200, False), (3, 200, True), (1, 32, False), (2, 32, True), (29, 2900, False)],
)
def test_a_run_is_in_doubt_if_at_least_two_calls_and_more_than_1_percent_were_late(
    doubts_of, count, of, weighs
):
    assert doubts_of(late(count, 51 * MS, of=of))["client_late"].weighs == weighs


def test_lateness_is_told_as_a_count_and_a_share(doubts_of):
    doubt = doubts_of(late(3, 51 * MS))["client_late"]
    assert doubt.what == "3 of 200 calls (1.5 %) went out more than 50 ms late"
    assert "TTFT, user (from due)" in doubt.action


def test_a_late_call_that_does_not_weigh_asks_for_nothing(doubts_of):
    assert doubts_of(late(1, 51 * MS))["client_late"].action == ""


def test_lateness_at_the_bound_is_not_above_it(doubts_of):
    assert doubts_of(late(3, 50 * MS)) == {}


def test_the_bound_on_lateness_is_the_one_the_run_asked_for(doubts_of):
    assert set(doubts_of(late(3, 51 * MS), options={"max_lateness_ms": 60})) == set()
    assert doubts_of(late(3, 11 * MS), options={"max_lateness_ms": 10})["client_late"].weighs


def test_opening_connections_is_not_the_clients_lateness(doubts_of):
    calls = good_calls(
        sent_ns=200 * MS, due_ns=0, dispatched_ns=0, connected_ns=195 * MS, new_connection=True
    )
    assert set(doubts_of(calls)) == set()


def test_a_lagging_event_loop_puts_the_run_in_doubt(doubts_of):
    assert set(doubts_of(good_calls(), end=make_run_end(loop_lag_p99_ns=51 * MS))) == {"loop_lag"}


def test_a_process_that_was_lost_puts_the_run_in_doubt(doubts_of):
    well = WorkerEnd(sent_calls=1, cpu_ns=5, loop_lag_p99_ns=0)
    gone = WorkerEnd(sent_calls=1, cpu_ns=None, loop_lag_p99_ns=None, lost=True)
    found = doubts_of(good_calls(), end=make_run_end(workers=(well, gone)))
    assert found["workers_lost"].what == "1 of 2 replaying processes lost"
    assert doubts_of(good_calls(), end=make_run_end(workers=(well, well))) == {}


def test_refusals_errors_and_lost_sessions_are_named_apart(doubts_of):
    refused = make_call_result(200, error="refused", status=503, instance=2, call=0)
    cut = make_call_result(201, error="cut", instance=2, call=0)
    assert set(doubts_of([*good_calls(), refused])) == {"refusals", "lost_sessions"}
    assert set(doubts_of([*good_calls(), cut])) == {"errors", "lost_sessions"}


@pytest.mark.parametrize(
    ("error", "text", "name"),
    [
        ("error_event", "no room for this request (503)", "overload"),
        ("error_event", "Overloaded (overloaded_error)", "overload"),
        ("error_event", "worker died (500)", "errors"),
        ("error_event", None, "errors"),
        ("malformed", "<html>", "malformed"),
    ],
)
def test_overload_in_a_stream_and_foreign_answers_are_told_from_other_errors(doubts_of, error, text, name):
    failed = make_call_result(200, error=error, error_text=text, instance=2, call=0)
    assert set(doubts_of([*good_calls(), failed])) == {name, "lost_sessions"}


def test_calls_that_the_user_stopped_are_no_failures(doubts_of):
    stopped = make_call_result(200, error="client_abort", instance=2, call=0)
    found = doubts_of([*good_calls(), stopped], end=make_run_end(interrupted=True))
    assert set(found) == {"interrupted"}
    assert found["interrupted"].what.endswith("with 1 call in flight")


def test_events_that_could_not_be_read_put_the_run_in_doubt(doubts_of):
    assert set(doubts_of([*good_calls(199), *good_calls(1, unparsed_events=3)])) == {"unparsed_events"}


def test_a_run_without_a_complete_call_says_so_and_not_that_n_is_small(doubts_of):
    names = set(doubts_of([make_call_result(0, error="connect", sent_ns=None)]))
    assert names == {"nothing_complete", "unreachable", "errors", "lost_sessions"}


REFUSED = Attempt(end_ns=0, error="refused", wait_ns=1)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, "the run was over before"),
        ({"attempts": (REFUSED,)}, "the endpoint was not there, refused everything"),
        ({"phase": "warm_up", "error": None}, "the warm-up left nothing to measure: 1 call complete"),
        ({"phase": "prime", "error": None}, "the run was over before"),
        ({"phase": "warm_up"}, "the run was over before"),
    ],
)
def test_why_nothing_is_complete_is_told_by_what_else_was_sent(doubts_of, fields, cause):
    call = make_call_result(0, **{"error": "client_abort", **fields})
    assert doubts_of([call], end=make_run_end(cut_ns=1))["nothing_complete"].cause.startswith(cause)


@pytest.mark.parametrize(("tokens", "doubted"), [(1049, False), (1051, True), (949, True)])
def test_prompts_may_be_5_percent_off_plan(doubts_of, tokens, doubted):
    calls = good_calls(usage=Usage(input_tokens=tokens, cache_read_tokens=0, output_tokens=100))
    assert ("prompt_size_off" in doubts_of(calls)) == doubted


@pytest.mark.parametrize(("forced", "cause"), [(True, "stopped early"), (False, "does not force")])
def test_short_answers_are_told_with_who_is_to_blame(doubts_of, forced, cause):
    calls = good_calls(usage=Usage(input_tokens=1000, cache_read_tokens=0, output_tokens=94))
    calibration = Calibration(
        tokens_per_word=1, request_overhead_tokens=0, source="probe", output_forced=forced
    )
    assert cause in doubts_of(calls, calibration=calibration)["output_short"].cause


def test_missing_usage_is_a_doubt_and_missing_cached_tokens_a_note(doubts_of):
    bare = doubts_of(good_calls(usage=Usage()))
    assert bare["usage_unreported"].weighs
    uncached = doubts_of(good_calls(usage=Usage(input_tokens=1000, output_tokens=100)))
    assert {name: doubt.weighs for name, doubt in uncached.items()} == {"cache_unreported": False}


def warm(history):
    calls = good_calls()
    calls[0] = make_call_result(
        0,
        call=0,
        usage=Usage(input_tokens=100_000, cache_read_tokens=100_000, output_tokens=100),
        prompt_tokens=100_000,
    )
    return calls, {"history": history}


@pytest.mark.parametrize(("history", "weighs"), [("recorded", True), ("live", False)])
def test_hits_above_the_bound_mean_a_warm_cache_or_kept_answers(doubts_of, history, weighs):
    calls, header = warm(history)
    calls = [
        calls[0],
        *(
            make_call_result(
                i,
                call=0,
                instance=i + 1,
                at_ns=i * S,
                usage=Usage(input_tokens=1000, cache_read_tokens=0, output_tokens=100),
            )
            for i in range(1, 200)
        ),
    ]
    assert doubts_of(calls, **header)["cache_above_bound"].weighs == weighs


def excess(tokens):
    """200 calls of 1000 tokens of which none could be had, and so many reported as cached."""
    usage = Usage(input_tokens=1000, cache_read_tokens=0, output_tokens=100)
    cached = Usage(input_tokens=1000, cache_read_tokens=1000, output_tokens=100)
    part = Usage(input_tokens=1000, cache_read_tokens=tokens % 1000, output_tokens=100)
    usages = [*[cached] * (tokens // 1000), part, *[usage] * 200][:200]
    return [
        make_call_result(i, call=0, instance=i + 1, at_ns=i * S, usage=usage, prompt_tokens=1000)
        for i, usage in enumerate(usages)
    ]


@pytest.mark.parametrize(("tokens", "weighs"), [(400, None), (401, False), (4000, False), (4001, True)])
def test_hits_above_the_bound_are_noted_from_2_permille_and_weigh_from_2_percent(facts_of, tokens, weighs):
    builder = TraceBuilder(block_scope="tree")
    builder.call(builder.session(), [builder.segment(1000)])
    doubt = found(facts_of(excess(tokens), trace=builder.trace())).get("cache_above_bound")
    assert (None if doubt is None else doubt.weighs) == weighs


def test_a_warm_cache_is_traced_to_the_seed_of_texts(doubts_of):
    doubt = doubts_of(excess(100_000))["cache_above_bound"]
    assert "--text-seed" in doubt.cause
    assert "--text-seed" in doubt.action


def engine(query_tokens):
    readings = [(0, 0.0), (1, float(query_tokens))]
    return [
        Scrape(at_ns=t * S, url="u", values={"prefix_query_tokens": q, "prefix_hit_tokens": 0.0})
        for t, q in readings
    ]


@pytest.mark.parametrize(("tokens", "noted"), [(200_000, False), (221_000, True), (179_000, True)])
def test_an_engine_that_counted_other_traffic_is_noted(doubts_of, tokens, noted):
    names = doubts_of(good_calls(), scrapes=engine(tokens))
    assert ("engine_window" in names) == noted
    assert not any(doubt.weighs for doubt in names.values())


def test_a_missing_trace_is_a_note(doubts_of):
    names = doubts_of(good_calls(), trace=None)
    assert {name: doubt.weighs for name, doubt in names.items()} == {"trace_missing": False}


def read_at(*seconds, failed=()):
    good = [Scrape(at_ns=t * S, url="u", values={"running": 1.0}) for t in seconds]
    return [*good, *(Scrape(at_ns=t * S, url="u", error="timeout") for t in failed)]


def test_failed_readings_and_holes_are_told(doubts_of):
    assert "scrape_holes" not in doubts_of(good_calls(), scrapes=read_at(*range(40), failed=[41]))
    assert "scrape_holes" in doubts_of(good_calls(), scrapes=read_at(*range(18), failed=[18]))
    found = doubts_of(good_calls(), scrapes=read_at(0, 1, 2, 3, 10))["scrape_holes"]
    assert found.what == "0 of 5 readings of the engine's metrics failed, longest time without one 7 s"
    found = doubts_of(good_calls(), scrapes=read_at(failed=[0, 1, 2]))["scrape_holes"]
    assert found.what == "3 of 3 readings of the engine's metrics failed, longest time without one 2 s"


@pytest.mark.parametrize("read_s", [range(41), range(49, 90)], ids=["not to the end", "not from the start"])
def test_a_time_without_readings_that_lasts_to_the_end_or_from_the_start_is_a_hole(doubts_of, read_s):
    readings = read_at(*read_s, failed=[0, 1] if 0 not in read_s else [])
    holes = doubts_of(good_calls(), scrapes=readings, end=make_run_end(ended_ns=89 * S))
    assert "scrape_holes" in holes


@pytest.mark.parametrize(("count", "what"), [(199, "p99"), (20, "p99"), (19, "p90 and above")])
def test_few_calls_are_a_note(doubts_of, count, what):
    doubt = doubts_of(good_calls(count))["few_calls"]
    assert f"n too small for {what}: {count}" in doubt.what
    assert not doubt.weighs


def test_the_verdict_line_names_what_weighs_and_nothing_else(facts_of):
    facts = facts_of(good_calls(30), end=None, trace=one_session_trace(1))
    judged = find_doubts(evidence_of(facts, answers_from_facts(facts)))
    assert [doubt.name for doubt in judged] == ["run_cut", "few_calls"]
    assert verdict_line(judged) == "in doubt: the run has no end record"
    assert verdict_line(judged[1:]) == "fine"


def test_a_run_that_was_killed_says_how_many_calls_it_knows_nothing_of(doubts_of):
    cut = doubts_of(good_calls(30), end=None, planned_calls=37)["run_cut"]
    assert cut.what == "the run has no end record, and 7 planned calls left no result"


def test_an_engine_whose_counters_fell_was_restarted(doubts_of):
    before, after = engine(1000)[-1:], engine(0)[:1]
    read = [replace(scrape, at_ns=at_ns) for at_ns, scrape in enumerate([*before, *after])]
    assert "1 time" in doubts_of(good_calls(), scrapes=read)["engine_restarted"].what
    assert "engine_restarted" not in doubts_of(good_calls(), scrapes=read[:1])


def test_sessions_cut_by_the_end_of_a_duration_are_a_note(doubts_of):
    cut = [
        *good_calls(),
        make_call_result(200, session=7, error="client_abort"),
        make_call_result(201, session=7, unsent="duration", sent_ns=None),
    ]
    noted = doubts_of(cut, end=make_run_end(cut_ns=9), trace=None)["censored"]
    assert (noted.what, noted.weighs) == ("1 session cut by the end of the run's duration", False)


def test_lanes_that_ran_out_of_trees_are_a_doubt(doubts_of):
    found_out = doubts_of(good_calls(), end=make_run_end(ran_out_ns=3 * S))["lanes_ran_out"]
    assert (found_out.what, found_out.weighs) == ("lanes ran out of planned trees after 3 s", True)


def test_what_is_not_measured_is_noted_with_what_failed_of_it(doubts_of):
    warm = [
        make_call_result(200, session=5, phase="warm_up"),
        make_call_result(201, session=6, phase="warm_up", error="refused"),
        make_call_result(202, session=0, phase="prime"),
    ]
    noted = doubts_of([*good_calls(), *warm], trace=None)
    assert "refusals" not in noted
    assert noted["unmeasured"].what == "3 calls left out: 2 of the warm-up, 1 that primed prompts"
    assert "1 of them failed" in noted["unmeasured"].cause
