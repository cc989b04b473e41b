import asyncio
from dataclasses import replace

import pytest

from aitrace.protocols import PROTOCOLS
from aitrace.results import CallResult, RunEnd, Scrape
from aitrace.schema import Trace
from aitrace.testing import ManualClock, TraceBuilder, make_trace
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.driver import Driver, RunClock, RunParts, Snapshot, Target
from replayer.options import LoadOptions
from replayer.pacing import arrival_from_spec
from replayer.plan import PlannedCall, build_plan
from replayer.scraper import Scraper
from replayer.testing import Script, ScriptedReply, ScriptedTransport, chat_reply
from replayer.transport import Failure, Fetched

KEY = "sk-not-to-be-seen"


class Bodies:
    """Bodies that tell which call they are for, and what was asked of their writer."""

    def __init__(self, clock: ManualClock, *, build_ns: int = 0) -> None:
        self.built: list[tuple[int, int]] = []
        self.answers: list[tuple[int, str]] = []
        self.forgotten: list[tuple[int, int]] = []
        self._clock = clock
        self._build_ns = build_ns

    def build(self, planned: PlannedCall, *, model: str, output_forced: bool) -> bytes:
        self._clock.advance(self._build_ns)
        self.built.append((planned.index, self._clock.monotonic_ns()))
        return f"{planned.index} {model} {output_forced}".encode()

    def note_answer(self, index: int, text: str) -> None:
        self.answers.append((index, text))

    def forget_tree(self, root: int, instance: int) -> None:
        self.forgotten.append((root, instance))


class Played:
    """One run under a clock that jumps."""

    def __init__(
        self, trace: Trace, script: Script, *, options: LoadOptions | None = None, build_ns: int = 0
    ) -> None:
        load = LoadOptions() if options is None else options
        self.clock = ManualClock(start_ns=77 * NS_PER_S)
        self.plan = build_plan(trace, load)
        self.bodies = Bodies(self.clock, build_ns=build_ns)
        self.results: list[CallResult] = []
        self.snapshots: list[Snapshot] = []
        self.run_clock = RunClock(self.clock)
        self.transport = ScriptedTransport(self.run_clock, script)
        self.parts = RunParts(
            plan=self.plan,
            target=Target(
                url="http://target/v1/chat/completions",
                protocol=PROTOCOLS["chat"],
                model="model-a",
                output_forced=True,
                headers={"Authorization": f"Bearer {KEY}"},
            ),
            bodies=self.bodies,
            transport=self.transport,
            write_call=self.results.append,
            run_id="run",
            history_is_live=load.history == "live",
            watch=self.snapshots.append,
        )
        self.driver = Driver(self.parts, self.run_clock)

    async def run(self) -> RunEnd:
        return await self.driver.run()

    def by_index(self) -> list[CallResult]:
        return sorted(self.results, key=lambda result: result.index)


def answer(_request, _number):
    return chat_reply(tokens=3, first_token_ns=200 * NS_PER_MS, token_every_ns=50 * NS_PER_MS)


def fail(number: int, reply: ScriptedReply) -> Script:
    """A script in which one request fails and the others are answered."""
    return lambda request, at: reply if at == number else answer(request, at)


REFUSAL = ScriptedReply(
    status=503, headers={"content-type": "application/json"}, chunks=((0, b'{"error":{"message":"full"}}'),)
)


async def test_a_call_is_due_one_gap_after_the_end_of_the_one_before():
    played = Played(make_trace(sessions=1, calls=3), answer)
    await played.run()
    # Each answer takes 200 + 50 + 50 ms, each recorded gap is 1 s.
    assert [result.due_ns for result in played.results] == [0, 1300 * NS_PER_MS, 2600 * NS_PER_MS]
    assert [result.sent_ns for result in played.results] == [0, 1300 * NS_PER_MS, 2600 * NS_PER_MS]
    assert played.transport.sent_at_ns == [0, 1300 * NS_PER_MS, 2600 * NS_PER_MS]


async def test_a_result_holds_every_time_of_its_call():
    def script(_request, _number):
        reply = chat_reply(
            tokens=3,
            first_token_ns=200 * NS_PER_MS,
            token_every_ns=50 * NS_PER_MS,
            prompt_tokens=40,
            cached_tokens=16,
        )
        return ScriptedReply(connect_ns=NS_PER_MS, headers_ns=2 * NS_PER_MS, chunks=reply.chunks)

    played = Played(make_trace(sessions=1, calls=1), script)
    await played.run()
    (result,) = played.results
    assert (result.due_ns, result.dispatched_ns) == (0, 0)
    assert (result.connected_ns, result.sent_ns, result.uploaded_ns, result.new_connection) == (
        NS_PER_MS,
        NS_PER_MS,
        NS_PER_MS,
        True,
    )
    assert result.headers_ns == 3 * NS_PER_MS
    assert result.first_byte_ns == result.first_token_ns == result.first_visible_ns == 203 * NS_PER_MS
    assert (result.last_token_ns, result.end_ns) == (303 * NS_PER_MS, 303 * NS_PER_MS)
    assert result.longest_stall_ns == 50 * NS_PER_MS
    assert (result.usage.input_tokens, result.usage.cache_read_tokens, result.usage.output_tokens) == (
        40,
        16,
        3,
    )
    assert (result.status, result.error, result.finish, result.unsent) == (200, None, "length", None)
    assert (result.events, result.token_events) == (5 + 1, 3)
    assert result.request_bytes == len(b"0 model-a True")


async def test_independent_trees_overlap():
    played = Played(make_trace(sessions=3, calls=1), answer, options=LoadOptions(time_scale=0.1))
    await played.run()
    # The recording starts them 1 s apart; at a tenth of that, 100 ms, the first is still being answered.
    assert [result.due_ns for result in played.by_index()] == [0, 100 * NS_PER_MS, 200 * NS_PER_MS]
    assert played.by_index()[1].sent_ns < played.by_index()[0].end_ns


async def test_a_join_waits_for_the_last_of_its_branches():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, [builder.segment(100)])
    child = builder.session(parent=main)
    inner = builder.call(child, [builder.segment(50)])
    builder.call(main, [builder.segment(30)], after=[first, inner])
    played = Played(builder.trace(), answer)
    await played.run()
    parent, sub, join = played.by_index()
    assert sub.due_ns == parent.end_ns + NS_PER_S
    assert join.due_ns == sub.end_ns + NS_PER_S


async def test_every_request_has_an_id_of_its_own_and_every_session_has_one():
    played = Played(make_trace(sessions=2, calls=2), answer)
    await played.run()
    headers = [request.headers for request in played.transport.sent]
    assert len({header["X-Request-Id"] for header in headers}) == 4
    assert {header["X-Session-ID"] for header in headers} == {"run-1-0", "run-1-1"}
    assert sorted(header["X-Request-Id"] for header in headers) == sorted(
        result.request_id for result in played.results
    )


async def test_the_key_goes_to_the_target_and_nowhere_else():
    played = Played(make_trace(sessions=1, calls=1), answer)
    await played.run()
    assert played.transport.sent[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(played.results)
    assert KEY not in repr(played.parts.target)


async def test_a_failed_call_loses_its_session_and_only_that():
    played = Played(make_trace(sessions=2, calls=3), fail(0, REFUSAL))
    end = await played.run()
    outcomes = [(r.session, r.error, r.unsent) for r in played.by_index()]
    assert outcomes[:3] == [(0, "refused", None), (0, None, "session_lost"), (0, None, "session_lost")]
    assert outcomes[3:] == [(1, None, None)] * 3
    assert (end.sent_calls, end.unsent_calls, end.interrupted) == (4, 2, False)


async def test_the_unsent_calls_of_a_lost_session_are_written_when_it_is_lost():
    played = Played(make_trace(sessions=1, calls=3), fail(1, REFUSAL))
    await played.run()
    assert [(result.index, result.unsent) for result in played.results] == [
        (0, None),
        (1, None),
        (2, "session_lost"),
    ]
    assert played.results[2].due_ns is None


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ScriptedReply(failure=Failure(kind="connect", text="refused")), "connect"),
        (ScriptedReply(status=None, failure=Failure(kind="timeout", text="nothing came")), "timeout"),
        (
            ScriptedReply(chunks=chat_reply(tokens=3).chunks[:2], failure=Failure(kind="cut", text="closed")),
            "cut",
        ),
        (ScriptedReply(chunks=chat_reply(tokens=3).chunks[:2]), "cut"),
        (REFUSAL, "refused"),
        (ScriptedReply(chunks=((0, b"<html>hello</html>\n\n"),)), "malformed"),
        (
            ScriptedReply(chunks=((0, b'data: {"error":{"message":"full","code":503}}\n\n'),)),
            "error_event",
        ),
    ],
)
async def test_what_goes_wrong_is_kept_by_kind(reply, error):
    played = Played(make_trace(sessions=1, calls=1), lambda _request, _number: reply)
    await played.run()
    assert [result.error for result in played.results] == [error]
    assert played.driver.tally.failed_calls == {error: 1}


async def test_a_call_without_a_connection_was_not_sent_but_has_an_end():
    failure = ScriptedReply(connect_ns=3 * NS_PER_MS, failure=Failure(kind="connect", text="no route"))
    played = Played(make_trace(sessions=1, calls=1), lambda _request, _number: failure)
    await played.run()
    (result,) = played.results
    assert (result.sent_ns, result.new_connection, result.end_ns) == (None, None, 3 * NS_PER_MS)
    assert result.error_text == "no route"


async def test_bodies_are_built_before_they_are_due():
    played = Played(make_trace(sessions=1, calls=3), answer, build_ns=70 * NS_PER_MS)
    await played.run()
    # The first is built before the run begins, the others while answers come and gaps pass.
    assert played.by_index()[0].due_ns == 70 * NS_PER_MS
    assert [result.sent_ns - result.due_ns for result in played.by_index()] == [0, 0, 0]


async def test_a_body_that_had_to_be_built_late_makes_its_call_late():
    played = Played(
        make_trace(sessions=1, calls=2),
        answer,
        options=LoadOptions(history="live", time_scale=0),
        build_ns=70 * NS_PER_MS,
    )
    await played.run()
    # Without a gap there is no time between the answer and the call that carries it.
    first, second = played.by_index()
    assert second.due_ns == first.end_ns
    assert second.sent_ns - second.due_ns == 70 * NS_PER_MS


async def test_a_body_for_later_is_not_built_when_that_would_make_a_call_late():
    builder = TraceBuilder()
    for at_ms in (0, 50, 1050, 1100, 1500):
        builder.call(builder.session(), [builder.segment(100)], at_ns=at_ms * NS_PER_MS)
    played = Played(builder.trace(), answer, build_ns=100 * NS_PER_MS)
    await played.run()
    lateness_ms = [(result.sent_ns - result.due_ns) // NS_PER_MS for result in played.by_index()]
    assert lateness_ms == [0, 0, 0, 0, 0]


async def test_a_live_history_is_built_after_the_answer_and_before_the_gap_is_over():
    played = Played(make_trace(sessions=1, calls=2), answer, options=LoadOptions(history="live"))
    await played.run()
    first, second = played.by_index()
    built_ns = played.bodies.built[1][1] - 77 * NS_PER_S
    assert played.bodies.answers == [(0, " w0 w1 w2"), (1, " w0 w1 w2")]
    assert first.end_ns <= built_ns < second.due_ns


async def test_a_recorded_history_takes_no_answers():
    played = Played(make_trace(sessions=1, calls=2), answer)
    await played.run()
    assert played.bodies.answers == []


async def test_a_tree_is_forgotten_when_its_last_call_is_written():
    played = Played(make_trace(sessions=2, calls=2), fail(0, REFUSAL), options=LoadOptions(trees=3))
    await played.run()
    assert sorted(played.bodies.forgotten) == [(0, 1), (0, 2), (1, 1)]


async def test_lanes_play_one_tree_after_another():
    played = Played(make_trace(sessions=3, calls=2), answer, options=LoadOptions(concurrency=1))
    await played.run()
    results = played.by_index()
    assert [results[i + 1].due_ns - results[i].end_ns for i in (1, 3)] == [0, 0]
    assert max(snapshot.progress.calls_in_flight for snapshot in played.snapshots) <= 1


async def test_stop_aborts_what_is_in_flight_and_writes_what_was_never_sent():
    played = Played(make_trace(sessions=2, calls=3), lambda _request, _number: ScriptedReply(hangs=True))

    async def stop_soon() -> None:
        await played.run_clock.sleep_until(NS_PER_S // 2)
        played.driver.stop()

    end, _ = await asyncio.gather(played.run(), stop_soon())
    outcomes = [(result.index, result.error, result.unsent) for result in played.by_index()]
    assert outcomes[0] == (0, "client_abort", None)
    assert {outcome[1:] for outcome in outcomes[1:]} == {(None, "interrupted")}
    assert (len(outcomes), end.interrupted, played.transport.cancelled) == (6, True, 1)
    assert played.by_index()[0].end_ns == NS_PER_S // 2


async def test_an_aborted_call_keeps_the_times_it_reached():
    hanging = ScriptedReply(chunks=chat_reply(tokens=2).chunks[:1], hangs=True)
    played = Played(make_trace(sessions=1, calls=1), lambda _request, _number: hanging)

    async def stop_soon() -> None:
        await played.run_clock.sleep_until(NS_PER_S)
        played.driver.stop()

    await asyncio.gather(played.run(), stop_soon())
    (result,) = played.results
    assert (result.sent_ns, result.first_token_ns, result.end_ns) == (0, 100 * NS_PER_MS, NS_PER_S)


async def test_a_run_stopped_before_it_began_sends_nothing():
    played = Played(make_trace(sessions=1, calls=2), answer)
    played.driver.stop()
    end = await played.run()
    assert [result.unsent for result in played.results] == ["interrupted", "interrupted"]
    assert (end.sent_calls, end.unsent_calls, played.transport.sent) == (0, 2, [])


async def test_a_call_handed_out_but_not_begun_when_the_run_stops_counts_as_not_sent():
    def stop_at_first(request, number):
        played.driver.stop()
        return answer(request, number)

    together = LoadOptions(arrival=arrival_from_spec("together"))
    played = Played(make_trace(sessions=2, calls=1), stop_at_first, options=together)
    end = await played.run()
    assert [(r.error, r.unsent) for r in played.by_index()] == [("client_abort", None), (None, "interrupted")]
    assert (len(played.transport.sent), end.sent_calls, end.unsent_calls) == (1, 1, 1)


async def test_metrics_are_read_before_the_first_call_every_second_and_after_the_last():
    scrapes: list[Scrape] = []

    async def fetch(_url: str) -> Fetched:
        await played.run_clock.sleep_until(played.run_clock.monotonic_ns() + 20 * NS_PER_MS)
        return Fetched(status=200, body=b"vllm:num_requests_running 0\n")

    played = Played(make_trace(sessions=1, calls=2), answer)
    scraper = Scraper(["http://target/metrics"], fetch, played.run_clock, scrapes.append)
    driver = Driver(replace(played.parts, scraper=scraper), played.run_clock)
    await driver.run()
    first, second = played.by_index()
    assert [scrape.at_ns // NS_PER_MS for scrape in scrapes] == [20, 1040, 1640, 1860]
    assert scrapes[0].at_ns == first.due_ns
    assert scrapes[-2].at_ns > second.end_ns == 1620 * NS_PER_MS


async def test_a_fault_of_ours_ends_the_run_with_every_open_call_written():
    def script(request, number):
        if number == 1:
            raise ZeroDivisionError
        return ScriptedReply(hangs=True)

    played = Played(make_trace(sessions=2, calls=1), script)
    with pytest.raises(ExceptionGroup) as caught:
        await played.run()
    assert caught.group_contains(ZeroDivisionError)
    assert [(result.index, result.error) for result in played.results] == [(0, "client_abort")]


async def test_the_loops_lag_is_sampled():
    played = Played(make_trace(sessions=1, calls=2), answer)
    end = await played.run()
    assert end.loop_lag_p99_ns == 0
    assert end.ended_ns == played.results[-1].end_ns == 1600 * NS_PER_MS


async def test_the_view_is_shown_the_run_every_second_and_at_its_end():
    played = Played(make_trace(sessions=1, calls=2), answer)
    await played.run()
    assert [snapshot.elapsed_ns for snapshot in played.snapshots] == [0, NS_PER_S, 1600 * NS_PER_MS]
    assert played.snapshots[-1].progress.sessions_done == 1
    # At 1 s one answer of 300 ms is in, its gap of 1 s began at 300 ms, and another answer is to come.
    assert [snapshot.left_ns for snapshot in played.snapshots] == [None, 600 * NS_PER_MS, 0]


async def test_planned_times_count_from_the_start_of_the_sending():
    played = Played(make_trace(sessions=1, calls=2), answer)
    played.clock.advance(5 * NS_PER_S)
    await played.run()
    assert [result.planned_ns for result in played.by_index()] == [5 * NS_PER_S, 7 * NS_PER_S]
    assert played.by_index()[0].due_ns == 5 * NS_PER_S
