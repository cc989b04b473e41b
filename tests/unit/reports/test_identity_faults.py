"""Faulty ids beside honest ones; the expected numbers are counted by hand."""

from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.measures.identity_faults import IDENTITY_TABLES

S = 1_000_000_000
(TABLE,) = IDENTITY_TABLES


def refused_try():
    return Attempt(sent_ns=0, headers_ns=1, end_ns=1, status=429, error="refused", wait_ns=S)


def usage(cached):
    return Usage(input_tokens=1000, cache_read_tokens=cached)


def a_run():
    """Two honest sessions, one of them refused once; one whose ids churn, and is lost; one that has none."""
    churn = {"session": 2, "root": 2, "identity_fault": "churn"}
    return [
        make_call_result(0, usage=usage(800)),
        make_call_result(1, 2 * S, usage=usage(600), attempts=(refused_try(),)),
        make_call_result(2, session=1, root=1, usage=Usage()),
        make_call_result(3, usage=usage(100), first_token_ns=S // 2, **churn),
        make_call_result(4, 2 * S, error="refused", status=429, first_token_ns=None, usage=Usage(), **churn),
        make_call_result(5, session=3, root=3, identity_fault="missing", phase="warm_up"),
        make_call_result(6, session=4, root=4, identity_fault="missing", usage=usage(0)),
    ]


def test_honest_sessions_come_first_then_each_fault(facts_of):
    rows = TABLE.compute(facts_of(a_run()))
    assert [(row["ids"], row["sessions"], row["lost_sessions"]) for row in rows] == [
        ("honest", 2, 0),
        ("churn", 1, 1),
        ("missing", 1, 0),
    ]


def test_a_session_with_a_call_in_the_warm_up_is_not_counted_but_its_other_calls_are(facts_of):
    late = make_call_result(7, 2 * S, session=3, root=3, identity_fault="missing", usage=usage(0))
    *_, missing = TABLE.compute(facts_of([*a_run(), late]))
    assert (missing["sessions"], missing["calls"]) == (1, 2)


def test_refusals_are_counted_by_calls(facts_of):
    rows = TABLE.compute(facts_of(a_run()))
    assert [(row["calls"], row["refused_calls"], row["refused_ratio"]) for row in rows] == [
        (3, 1, 1 / 3),
        (2, 1, 0.5),
        (1, 0, 0.0),
    ]


def test_hit_rates_are_those_of_complete_calls_that_report_them(facts_of):
    rows = TABLE.compute(facts_of(a_run()))
    assert [(row["cache_calls"], row["reported_ratio"]) for row in rows] == [(2, 0.7), (1, 0.1), (1, 0.0)]


def test_without_reports_or_a_trace_shares_are_not_known(facts_of):
    calls = [
        make_call_result(0, usage=Usage()),
        make_call_result(1, session=1, root=1, identity_fault="churn", usage=Usage()),
    ]
    rows = TABLE.compute(facts_of(calls))
    assert {(row["reported_ratio"], row["bound_ratio"]) for row in rows} == {(None, None)}


def test_the_bound_is_that_of_the_same_calls(facts_of):
    builder = TraceBuilder()
    honest, churning = builder.session(), builder.session()
    for session, more in ((honest, 1), (churning, 3)):
        builder.call(session, [builder.segment(640)])
        for _ in range(more):
            builder.call(session, [])
    calls = [
        make_call_result(
            call.id,
            call.id * 2 * S,
            session=call.session,
            root=call.session,
            identity_fault="churn" if call.session == churning else None,
            usage=Usage(input_tokens=640, cache_read_tokens=0),
        )
        for call in builder.trace().calls
    ]
    rows = TABLE.compute(facts_of(calls, trace=builder.trace()))
    assert [(row["ids"], row["bound_ratio"]) for row in rows] == [("honest", 0.5), ("churn", 0.75)]


def test_a_quantile_of_ttft_that_the_sample_cannot_carry_is_not_shown(facts_of):
    honest, churn, _ = TABLE.compute(facts_of(a_run()))
    assert (honest["ttft_calls"], honest["ttft_service_p50_ms"], honest["ttft_service_p95_ms"]) == (
        3,
        250.0,
        None,
    )
    assert (churn["ttft_calls"], churn["ttft_service_p50_ms"]) == (1, 500.0)


def test_a_run_with_honest_ids_has_no_such_table(facts_of):
    assert TABLE.compute(facts_of([make_call_result(0)])) == []
    assert TABLE.compute(facts_of([])) == []
