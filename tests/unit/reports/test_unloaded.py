from dataclasses import replace

import pytest

from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import make_call_result
from reports.measures.unloaded import IdleSpeed, idle_speed, lone_calls, unloaded_sessions
from reports.metrics import METRICS

MS = 10**6
S = 10**9


def call(index, at_s, *, uncached=1000, ttft_ms=None, output=11, itl_ms=20, session=None, **fields):
    """One that takes 50 ms and 0.1 ms for each token not cached, then 20 ms for each further token."""
    sent_ns = round(at_s * S)
    first_ns = sent_ns + round((50 + uncached / 10 if ttft_ms is None else ttft_ms) * MS)
    last_ns = first_ns + (output - 1) * itl_ms * MS
    return make_call_result(
        index,
        at_ns=sent_ns,
        session=index if session is None else session,
        first_token_ns=first_ns,
        last_token_ns=last_ns,
        end_ns=last_ns,
        events=output,
        usage=Usage(input_tokens=10_000, cache_read_tokens=10_000 - uncached, output_tokens=output),
        **fields,
    )


def company():
    """A call that goes on all the time from 900 s, so that none of then has the endpoint for itself."""
    return make_call_result(99, session=99, root=99, sent_ns=900 * S, end_ns=2000 * S, error="cut")


def alone(count=20):
    return [call(i, i * 10, uncached=100 * (i + 1)) for i in range(count)]


def test_the_idle_endpoint_is_as_fast_as_the_calls_that_had_it_for_themselves(facts_of):
    speed = idle_speed(facts_of(alone()))
    assert speed == IdleSpeed(
        calls=20, base_ms=pytest.approx(50), ms_per_token=pytest.approx(0.1), itl_ms=pytest.approx(20)
    )


def test_fewer_than_20_lone_calls_tell_nothing(facts_of):
    facts = facts_of(alone(19))
    assert (METRICS["unloaded_calls"].compute(facts), idle_speed(facts)) == (19, None)
    assert [
        METRICS[f"unloaded_{n}"].compute(facts) for n in ("base_ms", "prefill_tokens_per_s", "itl_ms")
    ] == [None] * 3
    assert METRICS["session_unloaded_s"].compute(facts).values.size == 0


@pytest.mark.parametrize(
    ("sent_s", "end_s", "count"),
    [(1.2, 1.3, 0), (1.9, 1.95, 1), (0.5, 1.05, 0), (0.5, 1.0, 1), (0.5, None, 0)],
)
def test_a_call_is_alone_if_no_other_try_overlaps_it(facts_of, sent_s, end_s, count):
    """The call takes from 1.0 to 1.35 s; the other one fails, and counts as load all the same."""
    other = make_call_result(
        1,
        session=1,
        sent_ns=round(sent_s * S),
        end_ns=None if end_s is None else round(end_s * S),
        error="cut",
    )
    assert lone_calls(facts_of([call(0, 1.0), other])).height == count


def test_the_earlier_tries_of_other_calls_are_load_too(facts_of):
    tried = Attempt(sent_ns=round(1.1 * S), end_ns=round(1.2 * S), status=429, error="refused", wait_ns=9 * S)
    other = call(1, 20, attempts=(tried,))
    assert lone_calls(facts_of([call(0, 1.0), other])).height == 1


def test_a_slope_below_0_is_taken_for_none(facts_of):
    calls = [call(i, i * 10, uncached=1000 * (i + 1), ttft_ms=100 - i) for i in range(20)]
    facts = facts_of(calls)
    assert idle_speed(facts).base_ms == pytest.approx(90.5)
    assert METRICS["unloaded_prefill_tokens_per_s"].compute(facts) is None


def test_a_base_below_0_is_taken_for_0(facts_of):
    calls = [call(i, i * 10, uncached=100 * (i + 1), ttft_ms=(i + 1) ** 2) for i in range(20)]
    speed = idle_speed(facts_of(calls))
    squares = sum((100 * n) ** 2 for n in range(1, 21))
    assert (speed.base_ms, speed.ms_per_token) == (
        0,
        pytest.approx(sum(100 * n * n * n for n in range(1, 21)) / squares),
    )


def test_a_session_would_take_its_gaps_and_its_calls_at_the_idle_speed(facts_of):
    """Two calls of 1000 tokens, each 150 ms + 10 × 20 ms when idle, took 1 s each here, with 3 s between, 2 of them late."""
    loaded = [
        call(20, 1000, ttft_ms=800, session=20),
        call(21, 1004, ttft_ms=800, session=20, due_ns=1002 * S, gap_ns=S, gap_cause="tool"),
    ]
    facts = facts_of([*alone(), *loaded, company()])
    (row,) = unloaded_sessions(facts).filter(session=20).to_dicts()
    assert (row["duration_s"], row["unloaded_s"]) == (pytest.approx(5.0), pytest.approx(0.35 * 2 + 1))


def test_waiting_for_sub_agents_shrinks_as_their_time_does(facts_of):
    """The sub-agent took 2 s of its own and would have taken 0.35 s."""
    main = [
        call(20, 1000, session=20, root=20),
        call(21, 1002.35, session=20, root=20, gap_ns=0),
    ]
    agent = call(22, 1000.35, ttft_ms=1800, session=21, root=20)
    facts = facts_of([*alone(), *main, agent, company()])
    (row,) = unloaded_sessions(facts).filter(session=20).to_dicts()
    assert row["unloaded_s"] == pytest.approx(2 * 0.35 + 2 * 0.35 / 2)


@pytest.mark.parametrize(
    ("reporting", "unloaded_s"),
    [((True, True), 0.7 + 2 * 0.7 / 4), ((True, False), 0.7 + 2 * 0.35 / 2), ((False, False), None)],
)
def test_the_wait_for_sub_agents_shrinks_as_the_time_of_those_does_that_can_be_told(
    facts_of, reporting, unloaded_s
):
    """Two sub-agents took 2 s each and would have taken 0.35 s."""
    main = [call(20, 1000, session=20, root=20), call(21, 1002.35, session=20, root=20, gap_ns=0)]
    agents = [
        call(22 + place, 1000.35, ttft_ms=1800, session=21 + place, root=20)
        for place in range(len(reporting))
    ]
    silent = [
        agent if told else replace(agent, usage=Usage())
        for agent, told in zip(agents, reporting, strict=True)
    ]
    facts = facts_of([*alone(), *main, *silent, company()])
    (row,) = unloaded_sessions(facts).filter(session=20).to_dicts()
    assert row["unloaded_s"] == (None if unloaded_s is None else pytest.approx(unloaded_s))


def test_a_session_that_waited_for_no_sub_agent_needs_no_estimate_of_them(facts_of):
    main = call(20, 1000, session=20, root=20)
    agent = replace(call(21, 1000.1, session=21, root=20), usage=Usage())
    facts = facts_of([*alone(), main, agent, company()])
    (row,) = unloaded_sessions(facts).filter(session=20).to_dicts()
    assert row["unloaded_s"] == pytest.approx(0.35)


def test_without_a_sub_agent_the_time_waited_stays_as_it_was(facts_of):
    main = [call(20, 1000, session=20, root=20), call(21, 1002.35, session=20, root=20, gap_ns=0)]
    (row,) = unloaded_sessions(facts_of([*alone(), *main, company()])).filter(session=20).to_dicts()
    assert row["unloaded_s"] == pytest.approx(0.7 + 2)


def test_a_session_with_a_call_that_does_not_report_cached_tokens_has_no_estimate(facts_of):
    facts = facts_of([*alone(), make_call_result(20, session=20, at_ns=900 * S)])
    (row,) = unloaded_sessions(facts).filter(session=20).to_dicts()
    assert row["unloaded_s"] is None


def test_all_calls_of_another_run_tell_the_speed_if_it_is_given(facts_of):
    """They overlap, as the calls of agents do that work beside each other."""
    beside = [call(i, i * 0.1, uncached=100 * (i + 1)) for i in range(20)]
    facts = replace(facts_of([call(0, 0), call(1, 0)]), unloaded=facts_of(beside))
    assert METRICS["unloaded_calls"].compute(facts) == 20
    assert METRICS["session_unloaded_slowdown_ratio"].compute(facts).values.tolist() == pytest.approx([1, 1])
