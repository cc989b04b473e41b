import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.metrics import METRICS

MS = 10**6
S = 10**9


def table(facts, name):
    return METRICS[f"latency_by_{name}"].compute(facts)


def call(index, *, ttft_ms=100, **fields):
    return make_call_result(index, first_token_ns=ttft_ms * MS, **fields)


def named(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def test_calls_are_told_by_class_the_most_frequent_first(facts_of):
    calls = [call(0, call_class="subagent"), call(1, ttft_ms=7), call(2, ttft_ms=9), call(3, ttft_ms=8)]
    assert named(
        table(facts_of(calls), "class"), "call_class", "calls", "ttft_service_n", "ttft_service_p50_ms"
    ) == [
        ("main", 3, 3, 8.0),
        ("subagent", 1, 1, 100.0),
    ]


def test_turns_are_taken_together_in_buckets(facts_of):
    calls = [call(i, turn_index=turn, ttft_ms=turn + 1) for i, turn in enumerate((0, 1, 2, 4, 7, 60))]
    assert named(table(facts_of(calls), "turn"), "turn_from", "turn_to", "calls", "ttft_service_p50_ms") == [
        (0, 0, 1, 1.0),
        (1, 1, 1, 2.0),
        (2, 4, 2, 3.0),
        (5, 9, 1, 8.0),
        (50, None, 1, 61.0),
    ]


def test_a_95th_percentile_needs_40_values(facts_of):
    def p95(count):
        (row,) = table(facts_of([call(i, turn_index=0, ttft_ms=i + 1) for i in range(count)]), "turn")
        return row["ttft_service_p95_ms"]

    assert (p95(39), p95(40)) == (None, 38.0)


def test_the_prompt_counts_as_reported_else_as_planned(facts_of):
    calls = [
        call(0, usage=Usage(input_tokens=2999)),
        call(1, usage=Usage(input_tokens=3000)),
        call(2, usage=Usage(), prompt_tokens=400_000),
    ]
    assert named(table(facts_of(calls), "prompt"), "tokens_from", "tokens_to", "calls") == [
        (1000, 2999, 1),
        (3000, 9999, 1),
        (300_000, None, 1),
    ]


def test_tokens_not_cached_are_told_of_calls_that_report_both(facts_of):
    calls = [
        call(0, usage=Usage(input_tokens=5000, cache_read_tokens=4950)),
        call(1, usage=Usage(input_tokens=5000, cache_read_tokens=6000)),
        call(2, usage=Usage(input_tokens=5000)),
    ]
    assert named(table(facts_of(calls), "uncached"), "tokens_from", "tokens_to", "calls") == [(0, 99, 2)]


def test_calls_are_told_by_the_gap_before_as_played_and_first_calls_apart(facts_of):
    calls = [
        call(0, turn_index=0),
        call(1, turn_index=0, session=1, root=0, gap_ns=S),
        call(2, turn_index=1, gap_ns=S // 20),
        call(3, turn_index=2, gap_ns=S // 10),
        call(4, turn_index=3, gap_ns=S * 40),
        call(5, turn_index=4, gap_ns=None),
    ]
    assert named(
        table(facts_of(calls, time_scale=0.1), "gap"), "kind", "gap_from_s", "gap_to_s", "calls"
    ) == [
        ("continuing", 0.0, 0.1, 1),
        ("continuing", 0.1, 1.0, 1),
        ("continuing", 30.0, None, 1),
        ("agent_start", None, None, 1),
        ("tree_start", None, None, 1),
    ]


def test_the_gap_runs_from_the_end_of_the_call_waited_for_whatever_was_planned(facts_of):
    builder = TraceBuilder()
    session = builder.session()
    calls = [make_call_result(i, at_ns=at_s * S) for i, at_s in enumerate((0, 13, 84))]
    for _ in calls:
        builder.call(session)
    rows = table(facts_of(calls, trace=builder.trace()), "gap")
    assert named(rows, "kind", "gap_from_s", "calls") == [
        ("continuing", 10, 1),
        ("continuing", 60, 1),
        ("tree_start", None, 1),
    ]


def test_every_measure_has_its_own_population(facts_of):
    usage = Usage(input_tokens=10, output_tokens=11)
    calls = [
        call(0, events=11, usage=usage, last_token_ns=1100 * MS, longest_stall_ns=5 * MS),
        call(1, error="cut", headers_ns=50 * MS),
        make_call_result(3, unsent="session_lost", sent_ns=None, first_token_ns=None),
    ]
    calls.append(make_call_result(2, error="refused", status=429, first_token_ns=None, headers_ns=2 * MS))
    (row,) = table(facts_of(calls), "class")
    counts = {name: value for name, value in row.items() if name.endswith("_n")}
    assert row["calls"] == 3
    assert counts == {
        "ttft_service_n": 2,
        "ttft_user_n": 2,
        "headers_n": 3,
        "itl_n": 1,
        "longest_stall_n": 1,
        "output_speed_n": 1,
    }
    assert (row["itl_p50_ms"], row["output_speed_p50_tokens_per_s"]) == (100.0, pytest.approx(10.0))
