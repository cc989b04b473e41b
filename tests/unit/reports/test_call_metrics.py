import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.metrics import DISTRIBUTIONS, METRICS

MS = 10**6
S = 10**9

TIMED = {
    "due_ns": 100 * MS,
    "dispatched_ns": 101 * MS,
    "connected_ns": 104 * MS,
    "sent_ns": 105 * MS,
    "uploaded_ns": 106 * MS,
    "headers_ns": 155 * MS,
    "first_token_ns": 205 * MS,
    "first_visible_ns": 255 * MS,
    "last_token_ns": 1105 * MS,
    "end_ns": 1110 * MS,
    "longest_stall_ns": 70 * MS,
    "events": 40,
    "usage": Usage(output_tokens=91),
}


def values(facts, name):
    return METRICS[name].compute(facts).values.tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ttft_service_ms", 205 - 105),
        ("ttft_user_ms", 205 - 100),
        ("first_visible_ms", 255 - 105),
        ("headers_ms", 155 - 105),
        ("itl_ms", (1105 - 205) / 90),
        ("longest_stall_ms", 70),
        ("output_speed_tokens_per_s", 91),
        ("call_duration_ms", 1110 - 105),
        ("lateness_ms", 5),
        ("client_lateness_ms", 5 - 3),
        ("connect_ms", 3),
        ("upload_ms", 1),
    ],
)
def test_a_call_has_one_value_of_each_measure(facts_of, name, expected):
    assert values(facts_of([make_call_result(0, **TIMED)]), name) == [pytest.approx(expected)]


def test_a_reused_connection_takes_nothing_off_the_lateness(facts_of):
    facts = facts_of([make_call_result(0, **{**TIMED, "new_connection": False})])
    assert values(facts, "client_lateness_ms") == [5.0]
    assert values(facts, "connect_ms") == []


def test_a_call_cut_after_its_first_token_has_a_ttft_and_no_duration(facts_of):
    facts = facts_of([make_call_result(0, **{**TIMED, "error": "cut"})])
    assert values(facts, "ttft_service_ms") == [100.0]
    assert values(facts, "call_duration_ms") == values(facts, "itl_ms") == []


@pytest.mark.parametrize("change", [{"events": None}, {"usage": Usage(output_tokens=1)}, {"usage": Usage()}])
def test_answers_without_a_second_token_in_a_stream_have_no_time_between_tokens(facts_of, change):
    assert values(facts_of([make_call_result(0, **{**TIMED, **change})]), "itl_ms") == []


def test_calls_that_were_not_sent_are_in_no_distribution(facts_of):
    facts = facts_of([make_call_result(0, **{**TIMED, "sent_ns": None, "unsent": "session_lost"})])
    assert [m.name for m in DISTRIBUTIONS if m.name.endswith("_ms") and values(facts, m.name)] == []


def test_values_name_the_session_of_the_run_they_come_from(facts_of):
    calls = [
        make_call_result(0),
        make_call_result(1),
        make_call_result(2, session=1),
        make_call_result(3, instance=2),
    ]
    clusters = METRICS["ttft_service_ms"].compute(facts_of(calls)).sessions.tolist()
    assert clusters[0] == clusters[1]
    assert len(set(clusters)) == 3


def one_session():
    """Two calls of one second, 10 s apart in the recording."""
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, at_ns=0, duration_ns=S)
    builder.call(session, at_ns=11 * S, duration_ns=S)
    return builder.trace()


def played_at_half_the_gap():
    return [
        make_call_result(0, at_ns=0, planned_ns=0, end_ns=3 * S),
        make_call_result(1, at_ns=8 * S, planned_ns=6 * S, end_ns=14 * S),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("duration_s", 14.0), ("expected_s", 7.0), ("slowdown_ratio", 2.0)],
)
def test_a_session_is_compared_with_recorded_durations_and_scaled_gaps(facts_of, name, expected):
    facts = facts_of(played_at_half_the_gap(), trace=one_session(), time_scale=0.5)
    assert values(facts, f"session_{name}") == [expected]
    assert values(facts, f"tree_{name}") == [expected]


def test_the_time_as_recorded_is_not_scaled(facts_of):
    facts = facts_of(played_at_half_the_gap(), trace=one_session(), time_scale=0.5)
    assert values(facts, "session_recorded_s") == [12.0]


def test_a_session_with_a_failed_call_has_no_time(facts_of):
    first, second = played_at_half_the_gap()
    calls = [first, make_call_result(1, error="cut", planned_ns=second.planned_ns)]
    assert values(facts_of(calls, trace=one_session()), "session_duration_s") == []


def test_a_session_that_should_take_no_time_has_no_slowdown(facts_of):
    builder = TraceBuilder()
    builder.call(builder.session(), at_ns=0, duration_ns=0)
    facts = facts_of([make_call_result(0)], trace=builder.trace())
    assert values(facts, "session_duration_s") == [1.0]
    assert values(facts, "session_slowdown_ratio") == []
