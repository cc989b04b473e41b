"""The busiest second of a plan, and the processes it takes."""

from aitrace.schema import CallTimes
from aitrace.testing import TraceBuilder
from aitrace.units import NS_PER_S
from replayer.planning.options import LoadOptions
from replayer.planning.peak import peak_of, workers_for
from replayer.planning.plan import build_plan


def plan_of(calls, *, seconds=1, output_tokens=100, every_ns=0, **options):
    """Calls of one session each, that start one after another."""
    builder = TraceBuilder()
    for number in range(calls):
        builder.call(
            builder.session(),
            [builder.segment(500)],
            at_ns=number * every_ns,
            duration_ns=seconds * NS_PER_S - 1,
            output_tokens=output_tokens,
        )
    return build_plan(builder.trace(), LoadOptions(**options))


def test_calls_of_one_second_are_its_rate():
    peak = peak_of(plan_of(7))
    assert (peak.calls_per_s, peak.streams) == (7.0, 7)


def test_the_tokens_of_an_answer_are_spread_over_its_time():
    peak = peak_of(plan_of(3, seconds=10, output_tokens=100))
    assert (peak.events_per_s, peak.tokens_per_s) == (30.0, 10.0)


def test_sizes_are_those_of_the_usual_call():
    peak = peak_of(plan_of(3, output_tokens=40))
    assert (peak.prompt_tokens, peak.output_tokens) == (500, 40)


def test_lanes_of_unknown_times_are_taken_to_stream_all_at_once():
    builder = TraceBuilder()
    for _ in range(4):
        builder.call(builder.session(), [builder.segment(10)], times=CallTimes(request_ns=0))
    peak = peak_of(build_plan(builder.trace(), LoadOptions(concurrency=3)))
    assert (peak.calls_per_s, peak.streams, peak.events_per_s) == (3.0, 3, 300.0)


def test_a_small_plan_is_played_by_one_process():
    plan = plan_of(20)
    assert workers_for(plan, peak_of(plan), cores=8) == 1


def test_a_plan_gets_the_processes_its_peak_needs_but_no_more_than_there_are_cores():
    busy = plan_of(60, output_tokens=900)  # 54,000 tokens in one second
    assert [workers_for(busy, peak_of(busy), cores) for cores in (1, 2, 8)] == [1, 2, 3]
