from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.metrics import METRICS


def call(index, session, turn, cached, size=640):
    return make_call_result(
        index,
        at_ns=index * 10**10,
        session=session,
        turn_index=turn,
        prompt_tokens=size,
        usage=Usage(input_tokens=size, cache_read_tokens=cached),
    )


def test_hit_rates_by_turn_are_in_buckets_that_double(facts_of):
    calls = [call(turn, 0, turn, 64 * (turn > 0)) for turn in range(10)]
    rows = METRICS["cache_by_turn"].compute(facts_of(calls))
    assert [(row["turn_from"], row["turn_to"], row["calls"], row["reported_tokens"]) for row in rows] == [
        (0, 0, 1, 0),
        (1, 1, 1, 64),
        (2, 3, 2, 128),
        (4, 7, 4, 256),
        (8, 15, 2, 128),
    ]
    assert rows[1]["reported_ratio"] == 0.1


def test_the_longest_sessions_share_an_open_bucket(facts_of):
    rows = METRICS["cache_by_turn"].compute(facts_of([call(0, 0, 128, 0), call(1, 0, 900, 0)]))
    assert [(row["turn_from"], row["turn_to"], row["calls"]) for row in rows] == [(128, None, 2)]


def test_hit_rates_by_the_number_of_agents_above(facts_of):
    builder = TraceBuilder(block_size=64)
    main = builder.session()
    child = builder.session(parent=main)
    grandchild = builder.session(parent=child)
    for session in (main, child, child, grandchild):
        builder.call(session, [builder.segment(640)])
    calls = [
        call(0, main, 0, 0),
        call(1, child, 0, 64),
        call(2, child, 1, 640, 1280),
        call(3, grandchild, 0, 128),
    ]
    rows = METRICS["cache_by_depth"].compute(facts_of(calls, trace=builder.trace()))
    assert [(row["depth"], row["sessions"], row["calls"], row["reported_tokens"]) for row in rows] == [
        (0, 1, 1, 0),
        (1, 1, 2, 704),
        (2, 1, 1, 128),
    ]
    assert rows[1]["bound_tokens"] == 640


def test_without_a_trace_the_depth_is_not_known(facts_of):
    assert METRICS["cache_by_depth"].compute(facts_of([call(0, 0, 0, 0)])) == []
