from dataclasses import replace

import polars as pl
import pytest

from aitrace.results import Attempt
from aitrace.units import NS_PER_MS, NS_PER_S
from reports.comparison.testing import made_up_facts
from reports.comparison.values import values_of_run, values_recorded
from reports.testing import make_up_run

RUN = make_up_run(trees=4, calls=8, refused_ratio=0.05, seed=2)

ENDS = {(call.instance, call.call): call.end_ns for call in RUN.calls}


@pytest.fixture(scope="module")
def values():
    return values_of_run(made_up_facts(RUN))


def by_key(frame, *keys):
    return {tuple(row[key] for key in keys): row for row in frame.to_dicts()}


def test_each_call_has_its_own_times(values):
    rows = by_key(values.calls, "instance", "session", "call")
    assert len(rows) == len(RUN.calls)
    for call in RUN.calls:
        row = rows[(call.instance, call.session, call.call)]
        if call.first_token_ns is None:
            assert (row["ttft_value"], row["user_ttft_value"], row["itl_value"]) == (None, None, None)
            continue
        assert row["ttft_value"] == pytest.approx((call.first_token_ns - call.sent_ns) / NS_PER_MS)
        assert row["user_ttft_value"] == pytest.approx((call.first_token_ns - call.due_ns) / NS_PER_MS)
        assert row["headers_value"] == pytest.approx((call.headers_ns - call.sent_ns) / NS_PER_MS)
        assert row["stall_value"] == pytest.approx(call.longest_stall_ns / NS_PER_MS)
        assert row["call_value"] == pytest.approx((call.end_ns - call.sent_ns) / NS_PER_MS)
        assert (row["hit_ratio_part"], row["hit_ratio_whole"]) == (
            call.usage.cache_read_tokens,
            call.usage.input_tokens,
        )
        ends = [ENDS[call.instance, wait.call] for wait in RUN.trace.calls[call.call].after]
        assert row["gap_value"] == (pytest.approx((call.sent_ns - max(ends)) / NS_PER_S) if ends else None)


def test_whether_a_call_is_complete_and_how_often_it_was_refused(values):
    rows = by_key(values.calls, "instance", "session", "call")
    for call in RUN.calls:
        row = rows[(call.instance, call.session, call.call)]
        assert (row["complete_calls_part"], row["complete_calls_whole"]) == (
            float(call.error is None and call.unsent is None),
            1.0,
        )
        tries = None if call.unsent else 1.0
        assert (row["refused_tries_whole"], row["refused_tries_part"]) == (
            tries,
            None if tries is None else float(call.error == "refused"),
        )
    assert {call.error for call in RUN.calls} > {"refused"}


def test_a_call_that_the_end_of_the_run_cut_is_not_counted_as_failed():
    cut = replace(RUN, calls=(*RUN.calls[:-1], replace(RUN.calls[-1], error=None, unsent="duration")))
    last = values_of_run(made_up_facts(cut)).calls.filter(pl.col("complete_calls_whole").is_null())
    assert last["call"].to_list() == [RUN.calls[-1].call]


def test_sessions_and_trees_have_durations_if_they_are_complete(values):
    sessions = by_key(values.sessions, "instance", "session")
    for (instance, session), row in sessions.items():
        calls = [each for each in RUN.calls if (each.instance, each.session) == (instance, session)]
        is_complete = all(each.error is None and each.unsent is None for each in calls)
        expected = (
            max(each.end_ns or 0 for each in calls) - min(each.due_ns or 0 for each in calls)
        ) / NS_PER_S
        assert row["session_value"] == (pytest.approx(expected) if is_complete else None)
        assert row["lost_sessions_part"] == float(not is_complete)
    assert values.trees.height == 4
    assert values.of_level("tree") is values.trees


def test_backoff_is_the_sum_of_a_sessions_waits():
    tried = Attempt(end_ns=RUN.calls[0].sent_ns, error="refused", wait_ns=3 * NS_PER_S, status=429, sent_ns=0)
    run = replace(RUN, calls=(replace(RUN.calls[0], attempts=(tried,)), *RUN.calls[1:]))
    rows = by_key(values_of_run(made_up_facts(run)).sessions, "instance", "session")
    assert rows[(RUN.calls[0].instance, RUN.calls[0].session)]["backoff_value"] == 3.0


def test_the_gap_of_a_call_that_was_tried_again_ends_with_its_first_try():
    call = next(call for call in RUN.calls if call.gap_ns is not None and call.sent_ns is not None)
    (wait,) = RUN.trace.calls[call.call].after
    sent_ns = ENDS[call.instance, wait.call] + 7 * NS_PER_S
    tried = Attempt(sent_ns=sent_ns, end_ns=sent_ns, error="refused", wait_ns=NS_PER_S, status=429)
    again = replace(call, attempts=(tried,), sent_ns=sent_ns + 9 * NS_PER_S)
    run = replace(RUN, calls=tuple(again if each is call else each for each in RUN.calls))
    rows = by_key(values_of_run(made_up_facts(run)).calls, "instance", "session", "call")
    assert rows[(call.instance, call.session, call.call)]["gap_value"] == 7.0


def test_calls_of_the_warm_up_are_not_compared():
    run = replace(RUN, calls=(replace(RUN.calls[0], phase="warm_up"), *RUN.calls[1:]))
    assert values_of_run(made_up_facts(run)).calls.height == len(RUN.calls) - 1


def test_what_was_recorded_has_the_runs_keys_and_the_traces_times(values):
    facts = made_up_facts(RUN)
    recorded = values_recorded(facts, RUN.trace)
    keys = ["instance", "root", "session", "call"]
    assert recorded.calls.select(keys).equals(values.calls.select(keys))
    for row in recorded.calls.to_dicts():
        call = RUN.trace.calls[row["call"]]
        times = call.times
        assert row["call_value"] == pytest.approx((times.end_ns - times.request_ns) / NS_PER_MS)
        expected = (
            None if times.first_token_ns is None else (times.first_token_ns - times.request_ns) / NS_PER_MS
        )
        assert row["ttft_value"] == (None if expected is None else pytest.approx(expected))
        gaps = [wait.gap_ns for wait in call.after if wait.gap_ns is not None and wait.gap_ns >= 0]
        assert row["gap_value"] == (pytest.approx(min(gaps) / NS_PER_S) if gaps else None)
    assert recorded.sessions["session_value"].null_count() < recorded.sessions.height


def test_recorded_sessions_are_not_compared_with_scaled_ones():
    facts = made_up_facts(RUN, time_scale=0.5)
    assert "session_value" not in values_recorded(facts, RUN.trace).sessions.columns
