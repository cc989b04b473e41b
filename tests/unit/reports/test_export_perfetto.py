"""A run as trace events."""

from collections import defaultdict
from dataclasses import replace

import orjson
import pytest

from aitrace.codec import encode_record
from aitrace.results import Attempt, Scrape
from aitrace.testing import make_call_result, make_run_header
from reports.export.links import CallLink, SessionLink, TraceLinks
from reports.export.perfetto import perfetto_chunks
from reports.export.testing import make_source, source_of_run
from reports.testing import make_up_run

RUN = make_up_run(trees=4, calls=10, seed=2, refused_ratio=0.05)
LINES = [orjson.loads(encode_record(call)) for call in RUN.calls]


def document(source):
    return orjson.loads(b"".join(perfetto_chunks(source)))


def events_of(source, **wanted):
    return [e for e in document(source)["traceEvents"] if all(e.get(k) == v for k, v in wanted.items())]


def slice_at(events, flow):
    """The call that a flow's event is bound to, as readers do: the open one for a start, the next one for an end."""
    row = sorted(
        (e for e in events if (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])), key=lambda e: e["ts"]
    )
    if flow["ph"] == "s":
        (found,) = [e for e in row if e["ts"] <= flow["ts"] < e["ts"] + e["dur"]]
        return found["args"]["index"]
    return next(e["args"]["index"] for e in row if e["ts"] >= flow["ts"])


def test_each_call_that_was_sent_is_a_slice_from_due_to_end():
    sent = {line["index"]: line for line in LINES if "sent_ns" in line}
    calls = {event["args"]["index"]: event for event in events_of(source_of_run(RUN), ph="X", cat="call")}
    assert len(calls) > 50
    assert calls.keys() == sent.keys()
    for index, event in calls.items():
        assert event["ts"] == sent[index]["due_ns"] // 1000
        assert event["ts"] + event["dur"] == sent[index]["end_ns"] // 1000


def test_phases_are_those_of_the_lines():
    sent = [line for line in LINES if "first_token_ns" in line]
    for name, start, end in (
        ("queue/headers", "sent_ns", "headers_ns"),
        ("prefill", "headers_ns", "first_token_ns"),
        ("decode", "first_token_ns", "last_token_ns"),
    ):
        drawn = {(e["ts"], e["ts"] + e["dur"]) for e in events_of(source_of_run(RUN), ph="X", name=name)}
        assert drawn >= {(line[start] // 1000, line[end] // 1000) for line in sent}


def test_slices_of_a_thread_nest():
    rows = defaultdict(list)
    for event in events_of(source_of_run(RUN), ph="X"):
        rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for row in rows.values():
        open_until = []
        for start, end in sorted(row, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_trees_are_processes_and_sessions_are_threads_with_names():
    events = document(source_of_run(RUN))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for event in events:
        if event["ph"] == "X" and event["cat"] == "call":
            line = LINES[event["args"]["index"]]
            agent = "main" if line["session"] == line["root"] else "Explore"
            assert names[event["pid"]] == f"tree {line['root']} (playing 1)"
            assert threads[event["pid"], event["tid"]] == f"{agent} {line['session']}"
    numbers = [tid for _, tid in threads]
    assert len(set(numbers)) == len(numbers)


def test_arrows_lead_from_what_a_call_waited_for():
    events = document(source_of_run(RUN))["traceEvents"]
    calls = [e for e in events if e["ph"] == "X" and e["cat"] == "call"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    drawn = {(slice_at(calls, starts[number]), slice_at(calls, ends[number])) for number in starts}
    sent = {line["call"] for line in LINES if "sent_ns" in line}
    waited = {
        (link.call, call.id)
        for call in RUN.trace.calls
        for link in call.after
        if {link.call, call.id} <= sent
    }
    assert len(waited) > 50
    assert starts.keys() == ends.keys()
    assert drawn == waited


def test_an_arrow_from_a_dispatch_leaves_at_the_start_of_its_call():
    links = TraceLinks(
        sessions={}, after={1: (CallLink(call=0, relation="spawn", trigger="dispatch"),)}, planned_calls={}
    )
    calls = [make_call_result(0, at_ns=5_000_000), make_call_result(1, at_ns=8_000_000, session=1)]
    (start,) = events_of(make_source(calls, links=links), ph="s")
    assert (start["ts"], start["name"]) == (5_000, "spawn")


def test_without_a_trace_there_are_no_arrows_and_it_says_so():
    told = document(replace(source_of_run(RUN), links=None))
    assert told["otherData"]["dependencies"] is False
    assert [e for e in told["traceEvents"] if e["ph"] in "sf"] == []


def test_gaps_are_drawn_with_their_cause():
    gaps = events_of(source_of_run(RUN), cat="gap")
    wanted = {line["call"]: line for line in LINES if line.get("gap_ns") and "due_ns" in line}
    assert {e["args"]["before_call"] for e in gaps} == wanted.keys()
    for event in gaps:
        line = wanted[event["args"]["before_call"]]
        assert event["name"] == f"{line['gap_cause']} gap"
        assert event["ts"] + event["dur"] == line["due_ns"] // 1000
        assert event["args"]["gap_ms"] == line["gap_ns"] / 1e6


def test_tries_and_backoff_are_numbered():
    attempt = Attempt(
        sent_ns=1_000_000, headers_ns=2_000_000, end_ns=3_000_000, error="refused", wait_ns=4_000_000
    )
    call = make_call_result(
        0, due_ns=0, dispatched_ns=0, sent_ns=7_500_000, retry_due_ns=7_000_000, attempts=(attempt,)
    )
    phases = events_of(make_source([call]), cat="phase")
    assert ("backoff", 3000, 4000, 1) in [(e["name"], e["ts"], e["dur"], e["args"]["try"]) for e in phases]
    (drawn,) = events_of(make_source([call]), cat="call")
    assert (drawn["args"]["lateness_ms"], drawn["args"]["earlier_tries"]) == (0.5, 1)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "main 0"),
        ({"error": "refused", "status": 429}, "main 0: refused"),
        ({"phase": "prime"}, "prime 0"),
        ({"call_class": "compaction"}, "compaction 0"),
    ],
)
def test_a_call_is_named_by_its_class_and_its_failure(fields, name):
    (event,) = events_of(make_source([make_call_result(**fields)]), cat="call")
    assert event["name"] == name


def test_overlapping_calls_of_a_session_are_on_rows_of_their_own():
    calls = [make_call_result(0, at_ns=0), make_call_result(1, at_ns=1000, gap_ns=None, gap_cause=None)]
    names = [e["args"]["name"] for e in events_of(make_source(calls), name="thread_name")]
    assert names == ["main 0", "main 0 (2)"]


def test_an_agent_without_a_name_is_an_agent():
    call = make_call_result(session=4)
    links = TraceLinks(sessions={4: SessionLink(parent=0, agent=None)}, after={}, planned_calls={})
    for known in (links, None):
        (name,) = events_of(make_source([call], links=known), name="thread_name")
        assert name["args"]["name"] == "agent 4"


def test_readings_are_counters_of_their_engine():
    scrapes = [
        Scrape(at_ns=2_000_000, url="http://a/", values={"running": 3.0, "prompt_tokens": 9.0}),
        Scrape(at_ns=3_000_000, url="http://b/", values={"waiting": 1.0}),
        Scrape(at_ns=4_000_000, url="http://a/", error="failed"),
    ]
    source = make_source([make_call_result()], scrapes=scrapes)
    counters = [(e["pid"], e["name"], e["ts"], e["args"]) for e in events_of(source, ph="C")]
    assert counters == [(2, "running", 2000, {"running": 3.0}), (3, "waiting", 3000, {"waiting": 1.0})]
    assert [e["args"]["name"] for e in events_of(source, name="process_name")][1:] == [
        "engine http://a/",
        "engine http://b/",
    ]


def test_an_unsent_call_is_not_drawn_and_a_cut_run_says_so():
    source = make_source([make_call_result(unsent="session_lost")], end=None, header=make_run_header())
    told = document(source)
    assert (told["traceEvents"], told["otherData"]["ended"]) == ([], False)


def test_two_exports_are_equal():
    assert b"".join(perfetto_chunks(source_of_run(RUN))) == b"".join(perfetto_chunks(source_of_run(RUN)))


@pytest.mark.parametrize("fields", [{"phase": "prime"}, {"instance": 2}, {"call": 9}])
def test_an_arrow_needs_both_calls_in_one_playing(fields):
    links = TraceLinks(
        sessions={},
        after={1: (CallLink(call=0, relation="sequence", trigger="completion"),)},
        planned_calls={},
    )
    first, second = make_call_result(0), make_call_result(1, at_ns=3_000_000_000)
    assert len(events_of(make_source([first, second], links=links), ph="s")) == 1
    assert events_of(make_source([replace(first, **fields), second], links=links), ph="s") == []
    primed = replace(second, phase="prime")
    assert events_of(make_source([first, primed], links=links), ph="s") == []
