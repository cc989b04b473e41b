import asyncio
import gc
from dataclasses import replace

import pytest

from aitrace.protocols import PROTOCOLS
from aitrace.results import CallResult, RunEnd, Scrape
from aitrace.schema import Trace
from aitrace.testing import ManualClock, TraceBuilder, make_trace
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.driver import Driver
from replayer.http.transport import Failure, Fetched
from replayer.identity.session_ends import FinalRequest
from replayer.planning import playings as playings_module
from replayer.planning.mid_start import StartRange
from replayer.planning.options import LoadOptions, WarmUp
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import build_plan
from replayer.planning.planned import PlannedCall
from replayer.planning.tree_calls import plan_calls
from replayer.retry import PROFILES
from replayer.run_clock import RunClock
from replayer.run_parts import RunParts, Snapshot, Target
from replayer.scraper import Scraper
from replayer.testing import Script, ScriptedReply, ScriptedTransport, chat_reply

KEY = "sk-not-to-be-seen"


class Bodies:
    """Bodies that tell which call they are for, and what was asked of their writer."""

    def __init__(self, clock: ManualClock, *, build_ns: int = 0) -> None:
        self.built: list[tuple[int, int]] = []
        self.answers: list[tuple[int, str]] = []
        self.forgotten: list[tuple[int, int]] = []
        self.streamed: list[bool] = []
        self._clock = clock
        self._build_ns = build_ns

    def build(self, planned: PlannedCall, *, model: str, output_forced: bool) -> bytes:
        self._clock.advance(self._build_ns)
        self.streamed.append(planned.streamed)
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
    parts = replace(played.parts, ids_of=lambda planned: {"X-Session-ID": f"s-{planned.session}"})
    played.driver = Driver(parts, played.run_clock)
    await played.run()
    headers = [request.headers for request in played.transport.sent]
    assert len({header["X-Request-Id"] for header in headers}) == 4
    assert {header["X-Session-ID"] for header in headers} == {"s-0", "s-1"}
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


def retrying(trace: Trace, script: Script, profile: str) -> Played:
    played = Played(trace, script)
    sessions = {session.id: PROFILES[profile] for session in trace.sessions}
    played.driver = Driver(replace(played.parts, retries=sessions), played.run_clock)
    return played


def telling_of_ends(script: Script) -> Played:
    """A session of two calls, after each of which the target is told of an end."""
    played = Played(make_trace(sessions=1, calls=2), script)

    def final_of(result):
        return FinalRequest(headers={"X-Of": str(result.index)}, body=b"{}")

    played.driver = Driver(replace(played.parts, final_of=final_of), played.run_clock)
    return played


async def test_a_request_that_tells_of_an_end_is_sent_at_once_counted_and_no_call():
    played = telling_of_ends(lambda request, at: REFUSAL if at == 1 else answer(request, at))
    end = await played.run()
    ends = [request.headers.get("X-Of") for request in played.transport.sent]
    sent = list(zip(ends, [at_ns // NS_PER_MS for at_ns in played.transport.sent_at_ns], strict=True))
    assert sent == [(None, 0), ("0", 300), (None, 1300), ("1", 1600)]
    told = played.transport.sent[1]
    assert (told.url, told.headers["Authorization"]) == (played.parts.target.url, f"Bearer {KEY}")
    assert [result.index for result in played.results] == [0, 1]
    assert (end.sent_calls, end.final_requests, end.failed_final_requests) == (2, 2, 1)


async def test_a_stop_aborts_a_request_that_tells_of_an_end_and_sends_no_more_of_them():
    def script(request, number):
        if number == 1:
            return ScriptedReply(hangs=True)
        if number == 2:
            played.driver.stop()
        return answer(request, number)

    played = telling_of_ends(script)
    end = await played.run()
    assert (len(played.transport.sent), played.transport.cancelled) == (3, 2)
    assert (end.final_requests, end.failed_final_requests) == (1, 1)


async def test_a_refused_call_is_tried_again_after_the_wait_of_its_harness():
    played = retrying(make_trace(sessions=1, calls=2), fail(0, REFUSAL), "codex")
    await played.run()
    first, second = played.by_index()
    (attempt,) = first.attempts
    assert (attempt.sent_ns, attempt.status, attempt.error) == (0, 503, "refused")
    assert 200 * NS_PER_MS <= attempt.wait_ns <= 220 * NS_PER_MS
    assert first.error is None
    assert first.due_ns == 0
    assert first.sent_ns == first.retry_due_ns == attempt.end_ns + attempt.wait_ns
    assert second.due_ns == first.end_ns + NS_PER_S
    assert second.attempts == ()
    tally = played.driver.tally
    assert (tally.complete_calls, tally.retried_calls, tally.earlier_tries) == (2, 1, {"refused": 1})
    assert list(tally.evidence.lateness_ns) == [0, 0]


async def test_the_view_is_told_of_tries_and_waits_as_they_happen():
    """OpenCode waits 2 s after the first refusal, up to 2.5 s with its random part, and 4 to 5 s after the second."""
    played = retrying(make_trace(sessions=1, calls=1), lambda _request, _number: REFUSAL, "opencode")
    await played.run()
    seen = {
        snapshot.elapsed_ns // NS_PER_S: (snapshot.in_backoff, snapshot.earlier_tries)
        for snapshot in played.snapshots
    }
    assert (seen[1], seen[5]) == ((1, {"refused": 1}), (1, {"refused": 2}))
    assert played.snapshots[-1].in_backoff == 0
    assert played.driver.tally.earlier_tries == played.snapshots[-1].earlier_tries


async def test_a_call_that_is_stopped_in_backoff_is_in_it_no_longer():
    played = retrying(make_trace(sessions=1, calls=1), lambda _request, _number: REFUSAL, "opencode")

    async def stop_soon():
        await played.run_clock.sleep_until(NS_PER_S)
        played.driver.stop()

    await asyncio.gather(played.run(), stop_soon())
    assert played.snapshots[-1].in_backoff == 0


async def test_a_session_is_lost_when_its_harness_gives_up():
    played = retrying(make_trace(sessions=1, calls=2), lambda _request, _number: REFUSAL, "opencode")
    await played.run()
    first, second = played.by_index()
    assert (len(first.attempts), first.error, second.unsent) == (5, "refused", "session_lost")
    assert len(played.transport.sent) == 6


async def test_a_stop_during_a_wait_ends_the_call_as_stopped():
    played = retrying(make_trace(sessions=1, calls=1), lambda _request, _number: REFUSAL, "claude-code")

    async def stop_soon() -> None:
        await played.run_clock.sleep_until(NS_PER_S // 4)
        played.driver.stop()

    await asyncio.gather(played.run(), stop_soon())
    (result,) = played.results
    assert (result.error, result.sent_ns, len(result.attempts)) == ("client_abort", None, 1)


async def test_claude_code_asks_for_an_answer_in_one_piece_after_an_error_event():
    error = b'data: {"error": {"message": "busy", "type": "overloaded_error"}}\n\n'
    broken = ScriptedReply(chunks=((0, error),))
    played = retrying(make_trace(sessions=1, calls=1), fail(0, broken), "claude-code")
    await played.run()
    (result,) = played.results
    assert [attempt.error for attempt in result.attempts] == ["error_event"]
    assert played.bodies.streamed == [True, False]


async def test_the_end_of_the_duration_cuts_what_is_in_flight_and_sends_nothing_more():
    """Answers hang; trees start every second, and the run is cut at 2.5 s."""
    load = LoadOptions(arrival=arrival_from_spec("fixed:1/s"), duration_ns=5 * NS_PER_S // 2)
    played = Played(make_trace(sessions=1, calls=2), lambda _r, _n: ScriptedReply(hangs=True), options=load)
    end = await played.run()
    assert (end.cut_ns, end.interrupted) == (5 * NS_PER_S // 2, False)
    assert [(r.error, r.unsent) for r in played.by_index()] == [
        ("client_abort", None),
        (None, "duration"),
    ] * 3
    assert {r.end_ns for r in played.results if r.unsent is None} == {5 * NS_PER_S // 2}
    assert {r.error_text for r in played.results if r.unsent is None} == {"the run's duration was over"}


async def test_a_run_that_ends_before_its_duration_is_not_cut():
    load = LoadOptions(duration_ns=60 * NS_PER_S, trees=1)
    played = Played(make_trace(sessions=1, calls=2), answer, options=load)
    end = await played.run()
    assert (end.cut_ns, end.unsent_calls, end.sent_calls) == (None, 0, 2)


async def test_a_call_due_at_the_cut_is_not_sent():
    load = LoadOptions(arrival=arrival_from_spec("fixed:1/s"), duration_ns=2 * NS_PER_S, schedule="absolute")
    played = Played(make_trace(sessions=1, calls=2), answer, options=load)
    await played.run()
    assert played.transport.sent_at_ns == [0, NS_PER_S]


async def test_trees_in_store_are_counted_and_not_written():
    load = LoadOptions(concurrency=1, duration_ns=10 * NS_PER_S)
    played = Played(make_trace(sessions=1, calls=2), lambda _r, _n: ScriptedReply(hangs=True), options=load)
    end = await played.run()
    assert len(played.results) == 2
    assert end.unstarted_trees == end.unstarted_sessions == len(played.plan.trees) - 1 > 0
    assert end.unstarted_calls == played.plan.call_count - 2
    assert end.ran_out_ns is None


async def test_calls_due_in_the_warm_up_are_marked_and_so_are_calls_given_up_in_it():
    """Calls of two trees are due at 0 and 1 s, and 1 s after answers of 110 ms; the second tree's first one fails."""
    load = LoadOptions(warm_up=WarmUp(text="1050ms", length_ns=1050 * NS_PER_MS))
    refusing = ScriptedReply(status=429, headers={}, chunks=((0, b"no"),))
    played = Played(
        make_trace(sessions=2, calls=2), lambda r, n: refusing if n == 1 else answer(r, n), options=load
    )
    await played.run()
    assert [(r.index, r.phase, r.unsent) for r in played.by_index()] == [
        (0, "warm_up", None),
        (1, "measured", None),
        (2, "warm_up", None),
        (3, "warm_up", "session_lost"),
    ]


async def test_primed_prompts_are_sent_first_and_marked():
    load = LoadOptions(start_at=StartRange(low=0.5, high=0.5), prime=True)
    played = Played(make_trace(sessions=1, calls=5), answer, options=load)
    await played.run()
    assert [(r.call, r.phase) for r in played.by_index()] == [
        (1, "prime"), (2, "measured"), (3, "measured"), (4, "measured"),
    ]  # fmt: skip
    assert played.by_index()[1].due_ns >= played.by_index()[0].end_ns


async def test_a_plan_of_many_trees_is_played_with_the_calls_of_few_in_memory():
    """Five hundred trees of ten calls, some twenty at a time; what has just been played is kept for a while."""
    seen = []

    def script(request, number):
        if number % 500 == 0:
            seen.append(sum(isinstance(one, PlannedCall) for one in gc.get_objects()))
        return answer(request, number)

    options = LoadOptions(trees=500, arrival=arrival_from_spec("fixed:2/s"))
    played = Played(make_trace(sessions=1, calls=10), script, options=options)
    end = await played.run()
    assert (end.sent_calls, played.plan.call_count, len(played.bodies.forgotten)) == (5_000, 5_000, 500)
    assert 10 < max(seen) < 2_800


async def test_a_stop_writes_every_call_of_the_trees_that_had_not_started():
    def script(request, number):
        if number == 3:
            played.driver.stop()
        return answer(request, number)

    options = LoadOptions(trees=100, arrival=arrival_from_spec("fixed:1/s"))
    played = Played(make_trace(sessions=1, calls=10), script, options=options)
    end = await played.run()
    assert end.sent_calls + end.unsent_calls == played.plan.call_count == len(played.results)
    assert [result.index for result in played.by_index()] == list(range(1_000))
    assert len(played.bodies.forgotten) == 100


async def test_the_calls_of_a_tree_are_made_once(monkeypatch):
    """Eight trees of four hundred calls at a time: more than is kept of what is not played."""
    made = []

    def counted(recording, tree, start, options):
        made.append(tree.number)
        return plan_calls(recording, tree, start, options)

    options = LoadOptions(trees=8, arrival=arrival_from_spec("fixed:1/s"))
    played = Played(make_trace(sessions=1, calls=400), answer, options=options)
    monkeypatch.setattr(playings_module, "plan_calls", counted)
    parts = replace(played.parts, final_of=lambda result: played.plan.call(result.index) and None)
    await Driver(parts, played.run_clock).run()
    assert (made, len(played.results)) == ([0, 1, 2, 3, 4, 5, 6, 7], 3_200)
