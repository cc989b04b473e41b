from dataclasses import replace

import pytest

from aitrace.results import Attempt
from aitrace.testing import TraceBuilder, make_call_result
from reports.measures.session_shares import PARTS, session_parts
from reports.metrics import METRICS
from reports.tables import facts_from_run
from reports.testing import make_up_run

S = 10**9


def call(index, *, due=0, sent=None, first=None, end=None, **fields):
    """A call with times in s; the gap before is nothing if none is given."""
    times = {"due_ns": due, "sent_ns": due if sent is None else sent, "first_token_ns": first, "end_ns": end}
    in_ns = {name: None if value is None else round(value * S) for name, value in times.items()}
    return make_call_result(index, **{"gap_ns": 0, **in_ns, **fields})


def parts_of(facts):
    (row,) = session_parts(facts).to_dicts()
    return {part: pytest.approx(row[f"{part}_s"]) for part in PARTS if row[f"{part}_s"]}


def test_a_session_is_parted_into_endpoint_harness_user_and_client(facts_of):
    calls = [
        call(0, due=0, sent=1, first=3, end=7, gap_ns=None),
        call(1, due=9, sent=9, first=10, end=12, gap_ns=2 * S, gap_cause="tool"),
        call(2, due=20, first=21, end=22, gap_ns=8 * S, gap_cause="user"),
        call(3, due=25, first=26, end=27, gap_ns=3 * S, gap_cause="harness"),
    ]
    assert parts_of(facts_of(calls)) == {
        "lateness": 1, "prefill": 2 + 1 + 1 + 1, "decode": 4 + 2 + 1 + 1, "tool_gap": 2, "user_gap": 8, "other_gap": 3,
    }  # fmt: skip


def test_tries_that_failed_and_the_waits_after_them_are_parts_of_their_own(facts_of):
    first = Attempt(sent_ns=1 * S, end_ns=3 * S, status=429, error="refused", wait_ns=5 * S)
    calls = [call(0, due=0, sent=10, first=11, end=12, retry_due_ns=8 * S, attempts=(first,))]
    assert parts_of(facts_of(calls)) == {
        "failed_tries": 2, "backoff": 5, "lateness": 3, "prefill": 1, "decode": 1,
    }  # fmt: skip


def test_time_beyond_the_gap_was_spent_on_waiting_for_other_agents(facts_of):
    calls = [call(0, end=2, first=1), call(1, due=10, first=11, end=12, gap_ns=3 * S, gap_cause="tool")]
    assert parts_of(facts_of(calls)) == {"prefill": 2, "decode": 2, "tool_gap": 3, "agents": 5}


def test_a_longer_gap_of_a_call_that_waits_for_its_own_session_alone_is_a_gap(facts_of):
    """The recorded times of its tools may make it longer than the plan says."""
    builder = TraceBuilder()
    session = builder.session()
    for at_ns in (0, 10 * S):
        builder.call(session, [builder.segment(10)], at_ns=at_ns, duration_ns=2 * S)
    calls = [call(0, end=2, first=1), call(1, due=10, first=11, end=12, gap_ns=3 * S, gap_cause="tool")]
    assert parts_of(facts_of(calls, trace=builder.trace())) == {"prefill": 2, "decode": 2, "tool_gap": 8}


def test_what_overlaps_counts_for_the_call_that_was_due_first(facts_of):
    calls = [
        call(0, due=0, first=2, end=10),
        call(1, due=1, sent=2, first=4, end=6),
        call(2, due=8, sent=9, first=12, end=14),
    ]
    assert parts_of(facts_of(calls)) == {"prefill": 2 + 2, "decode": 8 + 2}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (6, {"backoff": 2}),
        (4, {"failed_tries": 1, "backoff": 3}),
        (9, {}),
        (2, {"failed_tries": 3, "backoff": 3}),
    ],
)
def test_of_tries_and_waits_that_overlap_another_call_what_lies_beyond_its_end_counts(
    facts_of, ends, expected
):
    """The other call was due first; of this one a try of 2 to 5 s failed, the next was from 8 to 10 s."""
    tried = Attempt(sent_ns=2 * S, end_ns=5 * S, status=429, error="refused", wait_ns=3 * S)
    calls = [
        call(0, due=0, first=1, end=ends),
        call(1, due=2, sent=8, first=9, end=10, retry_due_ns=8 * S, attempts=(tried,)),
    ]
    answer = {"prefill": 1 + (ends < 9), "decode": ends - 1 + 1}
    assert parts_of(facts_of(calls)) == expected | answer


def test_of_a_try_without_a_connection_the_wait_after_it_counts(facts_of):
    gone = Attempt(end_ns=5 * S, error="connect", wait_ns=3 * S)
    calls = [
        call(0, due=0, first=1, end=4),
        call(1, due=2, sent=8, first=9, end=10, retry_due_ns=8 * S, attempts=(gone,)),
    ]
    assert parts_of(facts_of(calls)) == {"lateness": 1, "backoff": 3, "prefill": 2, "decode": 4}


def test_a_call_without_a_token_was_waited_for_to_its_end(facts_of):
    assert parts_of(facts_of([call(0, due=0, first=None, end=4)])) == {"prefill": 4}


def test_only_complete_sessions_are_parted(facts_of):
    calls = [call(0, first=1, end=2), call(1, session=1, first=1, end=2, error="cut")]
    assert session_parts(facts_of(calls))["session"].to_list() == [0]


def test_the_parts_of_each_session_add_up_to_its_duration():
    run = make_up_run(trees=5, calls=10, refused_ratio=0.02)
    parts = session_parts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    assert parts.height > 10
    assert parts.select(f"{part}_s" for part in PARTS).sum_horizontal().to_list() == pytest.approx(
        parts["duration_s"].to_list()
    )


def test_the_parts_add_up_where_calls_that_are_tried_again_overlap():
    """Each call is due up to 4 s before it was, was refused then, and waited until it was sent."""
    run = make_up_run(trees=5, calls=10)
    calls = []
    for made in run.calls:
        due_ns = max(0, made.due_ns - made.index % 5 * S)
        end_ns = due_ns + (made.sent_ns - due_ns) // 3
        tried = Attempt(
            sent_ns=due_ns, end_ns=end_ns, status=429, error="refused", wait_ns=made.sent_ns - end_ns
        )
        calls.append(replace(made, due_ns=due_ns, retry_due_ns=made.sent_ns, attempts=(tried,)))
    parts = session_parts(facts_from_run(run.header, run.end, calls, run.scrapes, run.trace))
    of_parts = parts.select(f"{part}_s" for part in PARTS)
    assert parts.height > 10
    assert of_parts.sum_horizontal().to_list() == pytest.approx(parts["duration_s"].to_list())
    assert of_parts.min_horizontal().min() >= 0
    assert (parts["failed_tries_s"].sum() > 0, parts["lateness_s"].sum()) == (True, pytest.approx(0))


def test_shares_are_told_over_all_sessions_and_of_each(facts_of):
    calls = [call(0, first=1, end=2), call(1, session=1, first=6, end=8)]
    rows = {row["part"]: row for row in METRICS["session_time_by_part"].compute(facts_of(calls))}
    prefill = rows["prefill"]
    assert (prefill["sessions"], prefill["time_s"], prefill["time_ratio"]) == (2, 7.0, 0.7)
    assert (prefill["share_p50_ratio"], prefill["share_max_ratio"], prefill["share_p95_ratio"]) == (
        0.5,
        0.75,
        None,
    )
    assert (prefill["p50_s"], prefill["p95_s"]) == (1.0, None)


def test_sessions_are_grouped_by_duration_the_shortest_first(facts_of):
    calls = [call(i, session=i, first=1, end=2 + i) for i in range(25)]
    rows = METRICS["session_time_by_duration"].compute(facts_of(calls))
    assert [row["sessions"] for row in rows] == [3, 2, 3, 2, 3, 2, 3, 2, 3, 2]
    assert (rows[0]["duration_from_s"], rows[0]["duration_to_s"], rows[-1]["duration_to_s"]) == (
        2.0,
        4.0,
        26.0,
    )
    assert (rows[0]["prefill_ratio"], rows[0]["decode_ratio"]) == (pytest.approx(3 / 9), pytest.approx(6 / 9))
