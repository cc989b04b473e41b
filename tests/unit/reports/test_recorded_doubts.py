"""What a trace cannot tell."""

from dataclasses import replace

import pytest

from aitrace.schema import CallTimes, Dependency, Outcome, Usage
from aitrace.testing import TraceBuilder
from reports.recorded.prices import Prices
from reports.recorded.summary import report_from_trace

S = 10**9
WHOLE = Usage(input_tokens=100, cache_read_tokens=0, output_tokens=10)


def builder_of(sessions=6, calls=5, **header):
    """Enough sessions that say all there is to say."""
    builder = TraceBuilder(**header)
    for _ in range(sessions):
        session = builder.session()
        for place in range(calls):
            add = [builder.segment(100)] if place == 0 else []
            builder.call(session, add, usage=WHOLE, cause="tool")
    return builder


def doubts_of(trace, prices=None):
    return {doubt.name: doubt for doubt in report_from_trace(trace, "t", prices).doubts}


def test_a_whole_recording_has_no_doubt():
    assert doubts_of(builder_of().trace()) == {}


def test_a_recording_without_a_footer_is_cut():
    doubt = doubts_of(replace(builder_of().trace(), footer=None))["recording_cut"]
    assert doubt.weighs


def test_what_the_recorder_lost_or_could_not_read_weighs():
    trace = builder_of().trace()
    footer = replace(
        trace.footer, dropped_calls=3, notes={"parse_errors": 2, "addon_errors": 0, "traffic_bytes": 9}
    )
    found = doubts_of(replace(trace, footer=footer))
    assert found["calls_dropped"].what == "3 calls seen by the recorder and not written"
    assert found["recorder_trouble"].what == "the recorder noted trouble: parse_errors 2"
    assert found["calls_dropped"].weighs
    assert found["recorder_trouble"].weighs


def test_a_trace_without_calls_is_doubted():
    assert list(doubts_of(TraceBuilder().trace())) == ["no_calls"]


def test_a_trace_without_an_answer_is_doubted():
    builder = TraceBuilder()
    builder.call(builder.session(), outcome=Outcome(error="refused", status=529))
    found = doubts_of(builder.trace())
    assert found["nothing_complete"].weighs
    assert found["failures_recorded"].what == "1 of 1 call refused, 0 failed otherwise"


@pytest.mark.parametrize(("unrecorded", "weighs"), [(1, False), (4, True)])
def test_calls_whose_end_was_not_recorded_weigh_if_they_are_many(unrecorded, weighs):
    builder = builder_of()
    main = builder.session()
    for _ in range(unrecorded):
        builder.call(main, usage=WHOLE, outcome=Outcome(error="unrecorded", ended_by="recorder"))
    assert doubts_of(builder.trace())["ends_unrecorded"].weighs is weighs


def test_ends_that_a_source_does_not_tell_are_a_note_and_so_is_the_time_after_them():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, usage=WHOLE, times=CallTimes(request_ns=0))
    builder.call(main, usage=WHOLE, at_ns=9 * S)
    found = doubts_of(builder.trace())
    assert found["ends_missing"].what == "1 of 2 complete calls without their end"
    assert found["time_untold"].what == "of 90.0 % of the sessions' time it is not known what filled it"


def test_times_that_run_backwards_weigh():
    builder = builder_of()
    builder.call(builder.session(), usage=WHOLE, times=CallTimes(request_ns=9, end_ns=5))
    assert doubts_of(builder.trace())["clock_stepped"].weighs


@pytest.mark.parametrize(("resolution_ns", "is_coarse"), [(S, True), (10**6, False)])
def test_whole_seconds_are_noted(resolution_ns, is_coarse):
    found = doubts_of(builder_of(clock_resolution_ns=resolution_ns).trace())
    assert ("coarse_times" in found) is is_coarse


def test_overlaps_are_noted():
    builder = builder_of()
    wait = Dependency(call=0, relation="sequence", gap_ns=-5, cause="tool")
    builder.call(0, usage=WHOLE, after=[wait])
    assert not doubts_of(builder.trace())["overlaps"].weighs


@pytest.mark.parametrize(("missing", "weighs"), [(1, False), (3, True)])
def test_missing_usage_weighs_above_5_percent(missing, weighs):
    builder = builder_of()
    for _ in range(missing):
        builder.call(builder.session(), usage=Usage())
    found = doubts_of(builder.trace())
    assert found["usage_missing"].weighs is weighs
    assert "cache_untold" not in found


def test_calls_without_cached_tokens_are_told_all_or_some():
    builder = builder_of()
    builder.call(builder.session(), usage=Usage(input_tokens=5))
    assert (
        doubts_of(builder.trace())["cache_untold"].what
        == "1 of 31 complete calls do not report cached tokens"
    )
    builder = TraceBuilder()
    builder.call(builder.session())
    assert doubts_of(builder.trace())["cache_untold"].what == "no call reports cached tokens"


def test_more_cached_than_prompt_tokens_weigh_and_more_than_possible_are_a_note():
    builder = builder_of()
    builder.call(builder.session(), usage=Usage(input_tokens=100, cache_read_tokens=101))
    found = doubts_of(builder.trace())
    assert found["usage_contradicts"].weighs
    builder = builder_of()
    for _ in range(2):
        builder.call(
            builder.session(), [builder.segment(64)], usage=Usage(input_tokens=64, cache_read_tokens=64)
        )
    found = doubts_of(builder.trace())["cache_above_possible"]
    assert not found.weighs
    assert found.what.endswith("made possible: 4.1 % of all prompt tokens")


def test_prompts_whose_start_was_not_seen_are_noted():
    builder = builder_of()
    builder.call(builder.session(), [builder.segment(5)], unseen_start=True, usage=WHOLE)
    assert doubts_of(builder.trace())["starts_unseen"].what == "the start of 1 prompt was not seen"


def test_what_the_source_does_not_tell_is_listed():
    trace = builder_of(source="weka", unknown=("this", "that")).trace()
    doubt = doubts_of(trace)["source_untold"]
    assert (doubt.what, doubt.cause) == ("weka does not tell 2 things", "this; that")


@pytest.mark.parametrize(("sessions", "calls", "is_few"), [(4, 10, True), (5, 3, True), (5, 4, False)])
def test_few_sessions_and_few_calls_are_noted(sessions, calls, is_few):
    assert ("few_sessions" in doubts_of(builder_of(sessions, calls).trace())) is is_few


def test_calls_without_a_cost_and_bounds_of_cost_are_told_if_prices_are_given():
    builder = builder_of()
    builder.call(builder.session(), model="other", usage=WHOLE)
    builder.call(builder.session(), usage=Usage(input_tokens=5, output_tokens=1))
    prices = Prices(by_model={"model-a": {"input": 1, "cache_read": 1, "output": 1}})
    found = doubts_of(builder.trace(), prices)
    assert found["calls_unpriced"].cause.startswith("no price for the model: 1; ")
    assert found["cost_upper_bound"].what == "the cost of 1 call is an upper bound"
    assert "calls_unpriced" not in doubts_of(builder_of().trace(), prices)


def test_doubts_that_weigh_come_first():
    trace = replace(builder_of(1, 1, unknown=("x",)).trace(), footer=None)
    report = report_from_trace(trace, "t")
    weights = [doubt.weighs for doubt in report.doubts]
    assert weights == sorted(weights, reverse=True)
    assert report.verdict == "in doubt: the trace has no footer: the recording was cut"
    assert not report.is_fine
