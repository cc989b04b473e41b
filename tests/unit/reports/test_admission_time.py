import pytest

from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_end
from reports.measures.admission_time import MAX_BINS, MAX_LOST_SESSIONS, bin_width_s
from reports.metrics import METRICS

S = 10**9


def refused_at(at_s, wait_s=1):
    return Attempt(
        sent_ns=at_s * S,
        headers_ns=at_s * S,
        end_ns=at_s * S,
        status=429,
        error="refused",
        wait_ns=wait_s * S,
    )


def bins(facts):
    return METRICS["tries_over_time"].compute(facts)


@pytest.mark.parametrize(
    ("length_s", "width_s"),
    [(0.06, 0.001), (60, 1), (61, 2), (3600, 60), (86_400 * 60, 86_400), (86_400 * 120, 172_800)],
)
def test_bins_are_as_narrow_as_the_number_of_bins_allows(length_s, width_s):
    assert bin_width_s(length_s) == pytest.approx(width_s)
    assert length_s / bin_width_s(length_s) <= MAX_BINS


def test_tries_are_counted_by_outcome_in_the_bin_in_which_they_were_sent(facts_of):
    calls = [
        make_call_result(0, at_ns=S // 2),
        make_call_result(1, at_ns=59 * S, attempts=(refused_at(57), refused_at(58)), session=1),
        make_call_result(2, at_ns=58 * S, error="timeout", session=2),
        make_call_result(3, at_ns=58 * S, error="cut", session=3),
        make_call_result(4, at_ns=58 * S, error="client_abort", session=4),
        make_call_result(5, at_ns=58 * S, error="connect", sent_ns=None, session=5),
    ]
    rows = bins(facts_of(calls, end=make_run_end(ended_ns=60 * S)))
    assert [row["from_s"] for row in rows] == [float(second) for second in range(60)]
    counts = {
        row["from_s"]: {name: row[name] for name in list(row)[2:8] if row[name]}
        for row in rows
        if row["tries"]
    }
    assert counts == {
        0: {"tries": 1, "complete": 1},
        57: {"tries": 1, "refused": 1},
        58: {"tries": 4, "refused": 1, "timeout": 1, "failed": 1, "stopped": 1},
        59: {"tries": 1, "complete": 1},
    }
    assert [row["tries_again"] for row in rows][57:] == [0, 1, 1]


def test_first_and_returning_calls_are_told_apart(facts_of):
    calls = [
        make_call_result(0, at_ns=0),
        make_call_result(1, at_ns=10 * S, session=1, error="refused", status=429, first_token_ns=None),
        make_call_result(2, at_ns=10 * S, error="refused", status=503, first_token_ns=None),
        make_call_result(3, at_ns=10 * S),
    ]
    kinds = ("first_tries", "first_refused", "returning_tries", "returning_refused")
    told = [tuple(row[kind] for kind in kinds) for row in bins(facts_of(calls)) if row["tries"]]
    assert told == [(1, 0, 0, 0), (1, 1, 2, 1)]


def test_a_run_without_tries_has_no_bins(facts_of):
    assert bins(facts_of([])) == []


def lost(facts):
    return METRICS["lost_sessions_by_session"].compute(facts)


NOTHING = dict.fromkeys(("sent_ns", "due_ns", "end_ns", "first_token_ns", "last_token_ns", "headers_ns"))


def test_a_lost_session_is_told_with_the_call_it_was_lost_for(facts_of):
    usage = Usage(input_tokens=1000, cache_read_tokens=200)
    calls = [
        make_call_result(0, usage=usage),
        make_call_result(
            1, turn_index=1, at_ns=2 * S, error="refused", status=429, attempts=(refused_at(1),)
        ),
        make_call_result(2, turn_index=2, unsent="session_lost", **NOTHING),
        make_call_result(3, session=1, root=1),
    ]
    assert lost(facts_of(calls)) == [
        {
            "instance": 1, "root": 0, "session": 0, "lost_by_session": 0, "turn_index": 1, "call_class": "main",
            "outcome": "refused", "status": 429, "tries": 2, "lost_s": 3.0, "complete_calls": 1, "unsent_calls": 1,
            "lost_prefill_tokens": 800,
        }
    ]  # fmt: skip


def test_a_session_lost_with_another_one_of_its_tree_names_that_one(facts_of):
    calls = [
        make_call_result(0),
        make_call_result(1, unsent="session_lost", **NOTHING),
        make_call_result(2, session=1, error="timeout", call_class="subagent", status=None, headers_ns=None),
    ]
    told = {
        row["session"]: (row["lost_by_session"], row["outcome"], row["call_class"])
        for row in lost(facts_of(calls))
    }
    assert told == {0: (1, "timeout_headers", "subagent"), 1: (1, "timeout_headers", "subagent")}


def test_of_many_lost_sessions_those_that_lost_most_are_told(facts_of):
    calls = []
    for session in range(MAX_LOST_SESSIONS + 5):
        of_tree = {"session": session, "root": session}
        calls.append(make_call_result(2 * session, usage=Usage(input_tokens=session), **of_tree))
        calls.append(make_call_result(2 * session + 1, error="cut", **of_tree))
    rows = lost(facts_of(calls))
    assert (len(rows), rows[0]["lost_prefill_tokens"], rows[-1]["lost_prefill_tokens"]) == (
        MAX_LOST_SESSIONS,
        204,
        5,
    )
