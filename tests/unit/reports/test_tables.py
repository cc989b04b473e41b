import pytest

from aitrace.errors import InputError
from aitrace.results import Scrape
from aitrace.testing import TraceBuilder, make_call_result, make_run_end, make_run_header
from reports.call_lines import rows_from_calls
from reports.tables import (
    SCRAPE_SCHEMA,
    TRACE_SCHEMA,
    facts_from_rows,
    facts_from_run,
    measured_from_ns,
    planned_calls,
    scrapes_frame,
    trace_frame,
)


def frame_of(calls):
    return rows_from_calls(calls).calls


def test_readings_are_in_order_of_time_and_lack_what_the_engine_lacks():
    late = Scrape(at_ns=9, url="u", values={"running": 2.0, "else": 1.0})
    early = Scrape(at_ns=1, url="u", error="timeout")
    frame = scrapes_frame([late, early])
    assert frame["at_ns"].to_list() == [1, 9]
    assert frame.select("running", "waiting", "error").rows() == [(None, None, "timeout"), (2.0, None, None)]


def test_no_readings_are_a_frame_without_rows():
    assert scrapes_frame([]).schema == SCRAPE_SCHEMA


def test_without_a_trace_its_columns_are_empty():
    frame = trace_frame(frame_of([make_call_result()]), None, share_system=False)
    assert frame.schema == TRACE_SCHEMA
    assert frame.row(0) == (None,) * len(TRACE_SCHEMA)


def two_calls():
    builder = TraceBuilder(block_size=64)
    session = builder.session()
    builder.call(session, [builder.segment(640)])
    builder.call(session, [builder.segment(128)])
    return builder.trace()


def test_the_bound_follows_the_order_of_sending_not_of_the_plan():
    """Sent in reverse the shorter prompt is found whole, and the longer one is the first."""
    calls = [make_call_result(0, at_ns=900), make_call_result(1, at_ns=100)]
    frame = trace_frame(frame_of(calls), two_calls(), share_system=False)
    assert frame["bound_session_size"].to_list() == [640, 0]
    assert frame["prompt_size"].to_list() == [640, 768]


def test_calls_that_were_not_sent_have_no_bound_and_lend_none():
    calls = [make_call_result(0, sent_ns=None), make_call_result(1)]
    assert trace_frame(frame_of(calls), two_calls(), share_system=False)["bound_session_size"].to_list() == [
        None,
        0,
    ]


@pytest.mark.parametrize(("error", "hit"), [("refused", 0), ("connect", 0), ("http_error", 0), ("cut", 640)])
def test_prompts_that_were_turned_away_are_not_reused(error, hit):
    calls = [make_call_result(0, error=error), make_call_result(1, at_ns=10)]
    assert trace_frame(frame_of(calls), two_calls(), share_system=False)["bound_session_size"].to_list() == [
        0,
        hit,
    ]


def test_shared_system_prompts_count_between_trees_only_if_they_were_played_so():
    builder = TraceBuilder(block_scope="tree")
    for _ in range(2):
        system = builder.segment(1000, role="system", type="system")
        builder.call(builder.session(harness="claude-code"), [system])
    trace = builder.trace()
    calls = [make_call_result(0), make_call_result(1, at_ns=10, session=1, root=1)]
    apart = trace_frame(frame_of(calls), trace, share_system=False)
    shared = trace_frame(frame_of(calls), trace, share_system=True)
    assert apart["bound_other_size"].to_list() == [0, 0]
    assert shared["bound_other_size"].to_list() == [0, 1000]


@pytest.mark.parametrize(("call", "session"), [(7, 0), (-1, 0), (1, 3)])
def test_a_call_that_the_trace_does_not_have_is_bad_input(call, session):
    played = make_call_result(4, call=call, session=session)
    expected = f"call 4 of the run plays call {call}, session {session} of the trace, which has no such call"
    with pytest.raises(InputError, match=expected):
        facts_from_run(make_run_header(), None, [played], [], two_calls())


def test_calls_that_are_not_measured_are_left_out_and_kept_beside(facts_of):
    """A tree of the warm-up, one that is measured after a primed prompt, one that reaches from one into the other."""
    calls = [
        make_call_result(0, session=0, root=0, phase="warm_up"),
        make_call_result(1, session=1, root=1, phase="prime"),
        make_call_result(2, session=1, root=1),
        make_call_result(3, session=2, root=2, phase="warm_up"),
        make_call_result(4, session=2, root=2),
    ]
    facts = facts_of(calls)
    assert facts.calls["index"].to_list() == [2, 4]
    assert facts.sessions["session"].to_list() == facts.trees["root"].to_list() == [1]
    assert facts.every_call.height == 5
    assert facts.every_session["calls"].to_list() == facts.every_tree["calls"].to_list() == [1, 1, 2]
    assert facts.tries["index"].n_unique() == 5


def test_what_was_primed_is_in_the_bound():
    calls = [make_call_result(0, phase="prime"), make_call_result(1, at_ns=10)]
    assert (
        trace_frame(frame_of(calls), two_calls(), share_system=False)["bound_session_size"].to_list()[1] > 0
    )


def test_trees_in_store_that_did_not_start_are_not_planned(facts_of):
    end = make_run_end(unstarted_calls=7)
    assert planned_calls(make_run_header(planned_calls=10), end) == 3
    assert planned_calls(make_run_header(planned_calls=10), None) == 10


def test_what_is_measured_begins_with_its_first_due_call(facts_of):
    calls = [make_call_result(0, due_ns=5, phase="warm_up"), make_call_result(1, due_ns=70)]
    assert measured_from_ns(facts_of(calls)) == 70
    assert measured_from_ns(facts_of(calls[1:])) is None


def test_a_run_that_comes_in_parts_is_the_same_run():
    calls = [
        make_call_result(number, at_ns=number * 10, session=number % 2, root=number % 2)
        for number in range(6)
    ]
    whole = facts_from_run(make_run_header(), None, calls, [], None)
    parts = [rows_from_calls(calls[:1]), rows_from_calls(calls[1:4]), rows_from_calls(calls[4:])]
    facts = facts_from_rows(make_run_header(), None, parts, [], None)
    for name in ("calls", "sessions", "trees", "tries"):
        assert getattr(whole, name).equals(getattr(facts, name)), name
