import asyncio
from dataclasses import replace

import pytest

from aitrace.clock import Clock
from aitrace.schema import (
    Call,
    CallTimes,
    Dependency,
    Footer,
    Outcome,
    Prompt,
    Session,
    Trace,
    Update,
    Usage,
    Wire,
)
from aitrace.testing import (
    ManualClock,
    TraceBuilder,
    find_problems,
    make_call,
    make_call_result,
    make_run_end,
    make_run_header,
    make_trace,
    make_update,
    recorded_lines,
)
from aitrace.units import NS_PER_S
from aitrace.updates import updated_call

TRACE_OF_UNKNOWN_ENDS = Trace(
    header=make_trace().header,
    sessions=(Session(id=0, root=0),),
    segments=(),
    calls=tuple(make_call(i, times=CallTimes(request_ns=i)) for i in range(2)),
    footer=Footer(sessions=1, segments=0, calls=2, blocks=0),
)


def problems(trace):
    lines = [trace.header, *trace.sessions, *trace.segments, *trace.calls, trace.footer]
    return list(find_problems(enumerate(lines, 1)))


@pytest.mark.parametrize("options", [{}, {"unit": "bytes", "block_size": 256}, {"clock_scope": "tree"}])
def test_a_made_trace_is_valid(options):
    trace = make_trace(3, 4, **options)
    assert problems(trace) == []
    assert (len(trace.sessions), len(trace.calls)) == (3, 12)


def test_a_call_continues_the_one_before_one_second_after_its_end():
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [builder.segment(100)], at_ns=5 * NS_PER_S, duration_ns=2 * NS_PER_S)
    builder.call(session, [builder.segment(50)], cause="tool", ttft_ns=10, output_tokens=7)
    call = builder.trace().calls[1]
    wait = Dependency(call=0, relation="sequence", gap_ns=NS_PER_S, cause="tool")
    assert (Prompt(base=0, keep=1, add=(1,)), (wait,)) == (call.prompt, call.after)
    assert Usage(input_tokens=150, output_tokens=7) == call.usage
    assert (
        CallTimes(
            request_ns=8 * NS_PER_S,
            first_token_ns=8 * NS_PER_S + 10,
            last_token_ns=9 * NS_PER_S,
            end_ns=9 * NS_PER_S,
        )
        == call.times
    )


def test_sub_agents_are_spawned_and_joined():
    builder = TraceBuilder(unit="bytes")
    main = builder.session(harness="codex")
    first = builder.call(main, [builder.segment(100)])
    child = builder.session(main, agent="explorer")
    inner = builder.call(child, [builder.segment(100)])
    last = builder.call(main, after=[first, inner])
    trace = builder.trace()
    assert problems(trace) == []
    assert [wait.relation for wait in trace.calls[inner].after] == ["spawn"]
    assert [wait.relation for wait in trace.calls[last].after] == ["sequence", "join"]
    assert trace.calls[last].usage.input_tokens == 25


def test_a_recorder_writes_each_call_when_it_begins_and_an_update_when_it_ends():
    builder = TraceBuilder()
    main = builder.session(harness="codex", harness_version="0.46.0", evidence=["codex/thread-id"])
    first = builder.call(main, [builder.segment(100)], wire=Wire(connection=0))
    builder.call(main, after=[first], at_ns=NS_PER_S // 2)
    builder.call(main)
    trace = builder.trace()
    lines = recorded_lines(trace)
    assert [(type(line), getattr(line, "id", None)) for line in lines[3:-1]] == [
        (Call, 0),
        (Call, 1),
        (Update, None),
        (Update, None),
        (Call, 2),
        (Update, None),
    ]
    assert list(find_problems(enumerate(lines, 1))) == []
    assert (trace.footer, lines[:-1]) == (lines[-1], recorded_lines(replace(trace, footer=None)))
    open_call = lines[3]
    assert (open_call.outcome.error, open_call.times, open_call.wire) == (
        "unrecorded",
        CallTimes(request_ns=0),
        Wire(connection=0),
    )
    assert trace.calls[0] == updated_call(open_call, lines[5])


def test_a_call_of_unknown_end_has_an_update_too():
    lines = recorded_lines(TRACE_OF_UNKNOWN_ENDS)
    assert [type(line) for line in lines[2:-1]] == [Call, Update, Call, Update]


def test_an_update_ends_the_call_that_has_its_number():
    update = make_update(2, usage=Usage(output_tokens=1))
    assert (update.times, update.outcome.status) == (make_call(2).times, 200)


def test_a_prompt_that_continues_one_with_an_unseen_start_has_one():
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [builder.segment(10)], unseen_start=True)
    builder.call(session, [builder.segment(10)])
    builder.call(session, [builder.segment(10)], keep=0)
    assert [call.prompt.unseen_start for call in builder.trace().calls] == [True, True, False]


def test_everything_can_be_given():
    builder = TraceBuilder()
    session = builder.session(label="t_1")
    builder.call(session, [builder.segment(10), builder.segment(10)], times=CallTimes(request_ns=3))
    refused = builder.call(session, outcome=Outcome(status=429, error="refused"), base=0, keep=1)
    given = Dependency(call=refused, relation="retry", gap_ns=None)
    builder.call(session, base=None, attempt=2, retry_of=refused, after=[given], model=None)
    trace = builder.trace()
    assert problems(trace) == []
    assert None is trace.calls[1].after[0].gap_ns
    assert (Prompt(), (given,), None) == (trace.calls[2].prompt, trace.calls[2].after, trace.calls[2].model)


@pytest.mark.parametrize(
    ("size", "like_size", "blocks"),
    [
        (200, 200, ((0, 4),)),
        (300, 200, ((0, 3), (4, 2))),
        (100, 200, ((0, 1), (4, 1))),
        (64, 200, ((0, 1),)),
        (10, 200, ((4, 1),)),
    ],
)
def test_a_segment_like_another_shares_its_full_leading_blocks(size, like_size, blocks):
    builder = TraceBuilder()
    builder.segment(like_size)
    builder.segment(size, like=0)
    assert blocks == builder.trace().segments[1].blocks


def test_runs_are_made_with_what_is_given():
    assert make_run_header(seed=7).seed == 7
    assert make_run_end(interrupted=True).interrupted
    first, second = make_call_result(), make_call_result(1, at_ns=5, status=503)
    assert (first.gap_ns, second.status) == (None, 503)


class TestManualClock:
    def test_it_is_a_clock(self):
        clock: Clock = ManualClock(5, unix_ns=1000)
        assert (clock.monotonic_ns(), clock.unix_ns()) == (5, 1000)

    def test_it_moves_when_told(self):
        clock = ManualClock(5, unix_ns=1000)
        clock.advance(10)
        assert (clock.monotonic_ns(), clock.unix_ns()) == (15, 1010)

    async def test_a_day_takes_no_time_and_keeps_its_order(self):
        clock = ManualClock()
        log = []

        async def sleeper(name, *wakes_at):
            for at_ns in wakes_at:
                await clock.sleep_until(at_ns)
                log.append((name, clock.monotonic_ns()))

        day = 86_400 * NS_PER_S
        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper("a", 10, day))
            group.create_task(sleeper("b", 5, 20, 20))
        assert [("b", 5), ("a", 10), ("b", 20), ("b", 20), ("a", day)] == log

    async def test_a_time_that_is_over_is_not_slept_for(self):
        clock = ManualClock(100)
        await clock.sleep_until(50)
        assert clock.monotonic_ns() == 100

    async def test_sleepers_go_on_when_the_clock_is_moved(self):
        clock = ManualClock()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(clock.sleep_until(10))
            await asyncio.sleep(0)
            clock.advance(25)
        assert task.done()
        assert clock.monotonic_ns() == 25

    async def test_a_cancelled_sleeper_does_not_move_the_clock(self):
        clock = ManualClock()
        tasks = [asyncio.create_task(clock.sleep_until(at_ns)) for at_ns in (10, 20)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await tasks[1]
        clock_after = clock.monotonic_ns()
        assert (clock_after, tasks[0].cancelled()) == (20, True)

    async def test_a_sleeper_cancelled_as_the_clock_moves_is_passed_over(self):
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep_until(10))
        await asyncio.sleep(0)
        task.cancel()
        clock.advance(10)
        with pytest.raises(asyncio.CancelledError):
            await task
