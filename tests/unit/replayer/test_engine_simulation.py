"""When the engine does what; times in ms on a clock of the test's own."""

import math

from replayer.engine.options import EngineOptions
from replayer.engine.simulation import (
    Admitted,
    Event,
    HoldEnded,
    PrefillStarted,
    Simulation,
    TakenIn,
    TokensDue,
    Work,
)

MS = 1_000_000


def options(**changes) -> EngineOptions:
    """1 ms per prompt token, 10 ms per output token, every token its own event."""
    usual = {"prefill_tokens_per_s": 1000.0, "decode_tokens_per_s": 100.0, "step_ns": 0, "block_size": 4}
    return EngineOptions(**usual | changes)


def work(id_: int, prompt: int, output: int, *, of: int | None = None, **changes) -> Work:
    """A request whose blocks are its own, or a continuation of those of request `of`."""
    blocks = [(id_ if of is None else of) * 1000 + i for i in range((prompt + max(0, output - 1)) // 4)]
    return Work(id=id_, prompt_tokens=prompt, output_tokens=output, blocks=blocks, **changes)


def play(simulation: Simulation, until_ms: int, from_ms: int = 0) -> list[tuple[float, Event]]:
    """All events with the ms at which they came, woken exactly when the simulation asks."""
    told: list[tuple[float, Event]] = []
    now = from_ms * MS
    while True:
        told += [(now / MS, event) for event in simulation.advance(now)]
        at_ns = simulation.next_at_ns()
        if at_ns is None or at_ns > until_ms * MS:
            return told
        now = max(now, at_ns)


def token_times(told: list[tuple[float, Event]], id_: int) -> list[float]:
    return [
        at
        for at, event in told
        if isinstance(event, TokensDue) and event.id == id_
        for _ in range(event.first, event.end)
    ]


def started(told: list[tuple[float, Event]], id_: int) -> tuple[float, int]:
    """Time at which prefill began, and the cached tokens."""
    return next(
        (event.at_ns / MS, event.cached_tokens)
        for _, event in told
        if isinstance(event, PrefillStarted) and event.id == id_
    )


def test_the_first_token_comes_after_prefill_and_the_others_at_the_decode_rate():
    simulation = Simulation(options())
    assert simulation.submit(work(1, 20, 4), 0) is None
    assert token_times(play(simulation, 1000), 1) == [20, 30, 40, 50]


def test_tokens_are_told_in_order_and_the_last_is_marked():
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 3), 0)
    due = [event for _, event in play(simulation, 1000) if isinstance(event, TokensDue)]
    assert [TokensDue(1, 0, 1, False), TokensDue(1, 1, 2, False), TokensDue(1, 2, 3, True)] == due
    assert (simulation.running, simulation.waiting, simulation.next_at_ns()) == (0, 0, None)


def test_tokens_after_the_first_wait_for_the_end_of_their_step():
    simulation = Simulation(options(step_ns=25 * MS))
    simulation.submit(work(1, 21, 5), 0)
    assert token_times(play(simulation, 1000), 1) == [21, 50, 50, 75, 75]


def test_an_engine_woken_late_tells_all_that_is_due_at_once():
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 6), 0)
    simulation.advance(20 * MS)
    assert [TokensDue(1, 1, 4, False)] == simulation.advance(59 * MS)
    assert [TokensDue(1, 4, 6, True)] == simulation.advance(500 * MS)


def test_without_rates_all_is_due_at_once():
    simulation = Simulation(options(prefill_tokens_per_s=None, decode_tokens_per_s=None))
    simulation.submit(work(1, 1000, 500), 7)
    assert [Admitted(1, 7), PrefillStarted(1, 7, 0), TokensDue(1, 0, 500, True)] == simulation.advance(7)


def test_prompts_are_computed_one_after_another_in_order_of_arrival():
    simulation = Simulation(options())
    for id_ in (1, 2, 3):
        simulation.submit(work(id_, 10, 1), 0)
    told = play(simulation, 1000)
    assert [token_times(told, id_)[0] for id_ in (1, 2, 3)] == [10, 20, 30]


def test_a_late_wake_does_not_delay_the_next_prompt():
    simulation = Simulation(options())
    simulation.submit(work(1, 10, 1), 0)
    simulation.submit(work(2, 10, 1), 0)
    simulation.advance(13 * MS)
    assert simulation.next_at_ns() == 20 * MS


def test_prefill_never_begins_before_admission():
    """The place that request 1 leaves is given at the time of the wake, not at the time it should have been left."""
    simulation = Simulation(options(batch=2))
    simulation.submit(work(1, 10, 2), 0)
    simulation.submit(work(2, 11, 9), 0)
    simulation.submit(work(3, 10, 1), 0)
    told = [(0.0, event) for event in simulation.advance(30 * MS)]
    assert started(told, 3) == (30, 0)


def test_cached_blocks_take_no_time_and_the_last_token_is_always_computed():
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 1), 0)
    play(simulation, 99)
    simulation.submit(work(2, 20, 1, of=1), 100 * MS)
    told = play(simulation, 999, from_ms=100)
    assert started(told, 2) == (100, 16)
    assert token_times(told, 2) == [104]


def test_a_prompt_that_ends_inside_a_block_hits_all_its_full_blocks():
    simulation = Simulation(options())
    simulation.submit(work(1, 23, 1), 0)
    play(simulation, 99)
    simulation.submit(work(2, 23, 1, of=1), 100 * MS)
    assert started(play(simulation, 999, from_ms=100), 2) == (100, 20)


def test_hits_are_counted_when_prefill_begins():
    """So a prompt that waited for the same prompt's prefill is served from it."""
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 50), 0)
    simulation.submit(work(2, 20, 50, of=1), 0)
    assert started(play(simulation, 1000), 2) == (20, 16)


def test_decoded_blocks_can_be_hit_once_the_answer_has_ended_but_for_its_last_token():
    """8 prompt and 8 answer tokens: 15 are computed on, which is three blocks of 4."""
    simulation = Simulation(options())
    simulation.submit(work(1, 8, 8), 0)
    simulation.advance(70 * MS)
    simulation.submit(work(2, 40, 1, of=1), 70 * MS)
    assert started(play(simulation, 75, from_ms=70), 2) == (70, 8)
    play(simulation, 999, from_ms=75)
    simulation.submit(work(3, 16, 1, of=1), 1000 * MS)
    assert started(play(simulation, 2000, from_ms=1000), 3) == (1000, 12)


def test_a_request_waits_for_a_place_in_the_batch():
    simulation = Simulation(options(batch=1))
    simulation.submit(work(1, 10, 3), 0)
    simulation.submit(work(2, 10, 1), 0)
    assert (simulation.running, simulation.waiting) == (1, 1)
    assert started(play(simulation, 1000), 2) == (30, 0)


def test_a_request_waits_for_blocks():
    """Each needs 4 of 6 blocks."""
    simulation = Simulation(options(cache_blocks=6))
    simulation.submit(work(1, 13, 4), 0)
    simulation.submit(work(2, 13, 4), 0)
    assert (simulation.running, simulation.waiting) == (1, 1)
    assert started(play(simulation, 1000), 2) == (43, 0)


def test_the_queue_refuses_the_first_that_is_too_many():
    simulation = Simulation(options(batch=1, queue=1))
    assert [simulation.submit(work(id_, 10, 3), 0) for id_ in (1, 2, 3)] == [None, None, "queue_full"]
    assert (simulation.running, simulation.waiting) == (1, 1)


def test_a_queue_of_0_admits_what_has_a_place():
    simulation = Simulation(options(batch=1, queue=0))
    assert [simulation.submit(work(id_, 10, 3), 0) for id_ in (1, 2)] == [None, "queue_full"]
    assert simulation.submit(work(3, 10, 3), 30 * MS) is None


def test_a_request_larger_than_the_cache_is_too_long():
    """13 prompt tokens and 3 computed of the answer are 4 blocks."""
    simulation = Simulation(options(cache_blocks=4))
    assert [simulation.submit(work(1, 13, 4), 0), simulation.submit(work(2, 13, 5), 0)] == [None, "too_long"]


def test_a_stall_delays_the_tokens_after_it():
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 4, stall_after_tokens=2, stall_ns=500 * MS), 0)
    assert token_times(play(simulation, 1000), 1) == [20, 30, 540, 550]


def test_a_stall_before_the_first_token_delays_all():
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 2, stall_after_tokens=0, stall_ns=500 * MS), 0)
    assert token_times(play(simulation, 1000), 1) == [520, 530]


def test_a_request_without_output_ends_where_its_first_token_would_have_come():
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 0), 0)
    assert (20, TokensDue(1, 0, 0, True)) == play(simulation, 1000)[-1]


def test_cancelling_a_running_request_gives_its_place_to_the_next():
    simulation = Simulation(options(batch=1))
    simulation.submit(work(1, 10, 100), 0)
    simulation.submit(work(2, 10, 1), 0)
    play(simulation, 50)
    simulation.cancel(1, 55 * MS)
    told = play(simulation, 1000, from_ms=55)
    assert started(told, 2) == (55, 0)
    assert token_times(told, 1) == []


def test_cancelling_a_prompt_in_prefill_lets_the_next_begin_at_once_and_caches_nothing():
    simulation = Simulation(options())
    simulation.submit(work(1, 100, 1), 0)
    simulation.submit(work(2, 100, 1, of=1), 0)
    simulation.cancel(1, 5 * MS)
    assert started(play(simulation, 1000), 2) == (5, 0)


def test_cancelling_a_prompt_that_waits_for_prefill_takes_it_out_of_the_line():
    simulation = Simulation(options())
    for id_ in (1, 2, 3):
        simulation.submit(work(id_, 10, 1), 0)
    simulation.cancel(2, 1 * MS)
    told = play(simulation, 1000, from_ms=1)
    assert started(told, 3) == (10, 0)
    assert simulation.cache.used_blocks == 0


def test_cancelling_a_waiting_request_takes_it_out_of_the_queue():
    simulation = Simulation(options(batch=1))
    simulation.submit(work(1, 10, 1), 0)
    simulation.submit(work(2, 10, 1), 0)
    simulation.cancel(2, 0)
    assert (simulation.running, simulation.waiting) == (1, 0)


def test_cancelling_what_has_ended_changes_nothing():
    simulation = Simulation(options())
    simulation.submit(work(1, 10, 1), 0)
    play(simulation, 100)
    simulation.cancel(1, 100 * MS)
    assert (simulation.running, simulation.advance(100 * MS)) == (0, [])


def test_a_cancelled_request_leaves_its_prompt_in_the_cache_once_it_was_computed():
    simulation = Simulation(options())
    simulation.submit(work(1, 20, 100), 0)
    play(simulation, 30)
    simulation.cancel(1, 31 * MS)
    assert (simulation.cache.used_blocks, simulation.cache.cached_blocks) == (0, 5)


def taken_in(told: list[tuple[float, Event]]) -> list[tuple[int, float]]:
    return [(event.id, event.at_ns / MS) for _, event in told if isinstance(event, TakenIn)]


def test_a_request_is_held_outside_a_full_queue_until_there_is_room_in_order_of_arrival():
    simulation = Simulation(options(batch=1, queue=1, hold_s=math.inf))
    answers = [simulation.submit(work(id_, 20, 1), 0) for id_ in (1, 2, 3, 4)]
    assert answers == [None, None, "held", "held"]
    assert (simulation.running, simulation.waiting) == (1, 3)
    assert taken_in(play(simulation, 1000)) == [(3, 20), (4, 40)]
    assert (simulation.running, simulation.waiting) == (0, 0)


def test_without_a_queue_what_is_held_goes_straight_into_the_batch():
    simulation = Simulation(options(batch=1, queue=0, hold_s=math.inf))
    assert [simulation.submit(work(id_, 20, 1), 0) for id_ in (1, 2)] == [None, "held"]
    told = play(simulation, 1000)
    assert taken_in(told) == [(2, 20)]
    assert token_times(told, 2) == [40]


def test_who_comes_later_does_not_overtake_what_is_held():
    """A prompt too large for the cache's free blocks holds up the small one behind it."""
    simulation = Simulation(options(batch=2, queue=0, hold_s=math.inf, cache_blocks=10))
    simulation.submit(work(1, 24, 1), 0)
    assert simulation.submit(work(2, 32, 1), 0) == "held"
    assert simulation.submit(work(3, 4, 1), 0) == "held"
    assert taken_in(play(simulation, 1000)) == [(2, 24), (3, 24)]


def test_a_hold_ends_after_its_time():
    simulation = Simulation(options(batch=1, queue=0, hold_s=0.015))
    simulation.submit(work(1, 20, 2), 0)
    assert simulation.submit(work(2, 20, 1), 0) == "held"
    told = play(simulation, 1000)
    assert [(at, event) for at, event in told if isinstance(event, HoldEnded)] == [
        (15, HoldEnded(2, 15 * MS))
    ]
    assert (taken_in(told), simulation.waiting) == ([], 0)


def test_a_held_request_that_leaves_is_forgotten():
    simulation = Simulation(options(batch=1, queue=0, hold_s=math.inf))
    for id_ in (1, 2, 3):
        simulation.submit(work(id_, 20, 1), 0)
    simulation.cancel(2, 5 * MS)
    assert taken_in(play(simulation, 1000)) == [(3, 20)]


def test_a_protected_request_is_taken_in_however_full_the_queue_is():
    simulation = Simulation(options(batch=1, queue=0))
    simulation.submit(work(1, 20, 1), 0)
    assert simulation.submit(work(2, 20, 1), 0) == "queue_full"
    assert simulation.submit(work(3, 20, 1), 0, is_protected=True) is None
    assert token_times(play(simulation, 1000), 3) == [40]


def test_a_protected_request_passes_by_what_is_held():
    simulation = Simulation(options(batch=1, queue=0, hold_s=math.inf))
    simulation.submit(work(1, 20, 1), 0)
    simulation.submit(work(2, 20, 1), 0)
    assert simulation.submit(work(3, 20, 1), 0, is_protected=True) is None
    told = play(simulation, 1000)
    assert (token_times(told, 3), token_times(told, 2)) == ([40], [60])
