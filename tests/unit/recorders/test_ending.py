from collections import Counter
from dataclasses import replace

import pytest

from recorders.clients import CLIENTS
from recorders.ending import Session, ending
from recorders.notes import WriterReport
from recorders.tally import Tally

GOOD = WriterReport(
    path="my session.aitrace",
    calls=14,
    sessions=3,
    trees=1,
    dropped_calls=0,
    unrecorded_calls=0,
    trace_bytes=42_000,
    traffic_bytes=3_100_000,
    leaks=(),
    error=None,
)
EMPTY = replace(GOOD, calls=0, sessions=0, trees=0, trace_bytes=0)


def session(report, **more):
    return Session(
        client=more.pop("client", "claude"), mode=more.pop("mode", "forward"), report=report, **more
    )


def test_a_good_recording_ends_with_two_lines():
    assert ending(session(GOOD)).lines == (
        "recorded 14 calls of 3 sessions in 1 tree: 42 kB for 3.1 MB of traffic",
        "next: aitrace inspect 'my session.aitrace'",
    )
    assert not ending(session(GOOD)).in_doubt


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"error": "disk full"}, "the trace is not whole: disk full"),
        ({"dropped_calls": 1}, "1 call could not be recorded and is missing in the trace"),
        ({"dropped_calls": 2}, "2 calls could not be recorded and are missing in the trace"),
    ],
)
def test_what_was_lost_is_said_and_puts_the_recording_in_doubt(change, line):
    end = ending(session(replace(GOOD, **change)))
    assert end.lines[2:] == (line,)
    assert end.in_doubt


def test_a_file_that_is_not_there_is_not_to_be_looked_at():
    nothing = replace(EMPTY, dropped_calls=2, error="the disk is full")
    assert ending(session(nothing)).lines == (
        "no call was recorded: the disk is full",
        "2 calls could not be recorded and are missing in the trace",
    )


def test_calls_without_an_end_are_said_and_no_doubt():
    end = ending(session(replace(GOOD, unrecorded_calls=1)))
    assert end.lines[2:] == ("1 call had not ended when the recording did",)
    assert not end.in_doubt


def test_a_leak_is_loud_and_says_what_to_do():
    leaks = tuple(f"line {number}: s***" for number in range(7))
    end = ending(session(replace(GOOD, path="x.aitrace.partial", leaks=leaks)))
    assert end.in_doubt
    assert end.lines[0].startswith("DO NOT SHARE x.aitrace.partial")
    assert end.lines[1:7] == (*(f"  {leak}" for leak in leaks[:5]), "  and 2 more")
    assert "aitrace check --no-text x.aitrace.partial" in end.lines[7]


def test_a_single_leak_has_no_more():
    assert len(ending(session(replace(GOOD, leaks=("one",)))).lines) == 4


def test_a_writer_that_says_nothing_puts_the_recording_in_doubt():
    end = ending(session(None))
    assert end.in_doubt
    assert "did not report" in end.lines[0]


@pytest.mark.parametrize("client", [None, *CLIENTS])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_a_recording_without_calls_says_why_that_may_be(client, mode):
    end = ending(session(EMPTY, client=client, mode=mode))
    assert end.lines[0] == "no call was recorded: nothing came through the recorder"
    assert len(end.lines) == 2
    assert end.in_doubt


def test_what_a_writer_that_said_nothing_left_is_named():
    left = replace(EMPTY, trace_bytes=9, error="the writer died; x.partial holds what it had written")
    assert ending(session(left)).lines == (f"the recording is not whole: {left.error}",)


FAILED = {"connect": 9, "http_error": 5}
REFUSED = "127.0.0.1:9: connection refused"


def tally(requests=0, recorded=0, failures=(), other_failures=()):
    return Tally(
        requests=requests,
        recorded=recorded,
        failures=Counter(failures),
        other_failures=Counter(other_failures),
    )


@pytest.mark.parametrize(
    ("failures", "line"),
    [
        ([REFUSED] * 9, f"all 14 calls failed: {REFUSED}"),
        (["a", REFUSED, REFUSED], f"all 14 calls failed: {REFUSED}; a"),
        ([*"abc", *"ab"], "all 14 calls failed: a; b; and others"),
        ([], "all 14 calls failed: no connection to the endpoint; the endpoint answers with an error"),
    ],
)
def test_calls_that_all_failed_come_first_with_the_reasons_and_are_a_doubt(failures, line):
    end = ending(session(replace(GOOD, failures=FAILED), tally=tally(failures=failures)))
    assert (end.lines[0], len(end.lines), end.in_doubt) == (line, 3, True)


def test_a_single_call_that_failed_is_the_only_one():
    one = replace(GOOD, calls=1, failures={"cut": 1})
    assert ending(session(one)).lines[0] == "the only call failed: the answer was cut off"


def test_some_calls_that_failed_are_said_and_no_doubt():
    end = ending(session(replace(GOOD, failures={"refused": 2}), tally=tally(failures=["429 from /x"])))
    assert (end.lines[2], end.in_doubt) == ("2 of 14 calls failed: 429 from /x", False)


ROUTES = "/v1/messages, /v1/responses or /v1/chat/completions"


@pytest.mark.parametrize(
    ("requests", "change", "line"),
    [
        (tally(1), {}, f"1 request came through, none of them to {ROUTES}"),
        (tally(2, other_failures=["a"] * 2), {}, "2 requests came through and failed: a"),
        (tally(9, 2, ["a", "a"]), {}, "2 WebSockets for calls could not be opened: a"),
        (tally(9, 1), {}, "1 WebSocket for calls came through, and no call on it"),
        (tally(1, 1), {"dropped_calls": 1}, "1 call came through and could not be written"),
        (
            tally(1, 1),
            {"dropped_calls": 1, "unreadable_calls": 1},
            "1 request came through, but the body is none of the route's protocol",
        ),
        (
            tally(2, 2),
            {"dropped_calls": 2, "unreadable_calls": 1},
            "2 calls came through and could not be written",
        ),
    ],
)
def test_what_came_through_tells_why_there_was_no_call(requests, change, line):
    end = ending(session(replace(EMPTY, **change), tally=requests))
    assert (end.lines[0], end.in_doubt) == (f"no call was recorded: {line}", True)


def test_requests_to_other_routes_that_failed_are_said_behind_the_hints():
    lines = ending(session(EMPTY, tally=tally(3, other_failures=["404 from /x"]))).lines
    assert lines[2:] == ("  1 of them failed: 404 from /x",)


def test_no_proxy_is_a_reason_in_forward_mode_alone():
    said = "  NO_PROXY keeps these away from the recorder: a; record an endpoint there with --upstream URL"
    assert ending(session(EMPTY, no_proxy="a")).lines[2] == said
    assert len(ending(session(EMPTY, no_proxy="a", mode="reverse")).lines) == 2


@pytest.mark.parametrize(
    ("hosts", "text"), [({"b": 1, "a": 2}, "a, b"), (dict.fromkeys("dcba", 1), "a, b, c and 1 more")]
)
def test_hosts_that_were_passed_on_unread_are_named(hosts, text):
    assert ending(session(GOOD, unread_hosts=hosts)).lines[2].endswith(f"certificate: {text}")


def test_errors_of_the_proxy_are_said():
    assert (
        ending(session(GOOD, proxy_errors=2, first_proxy_error="x")).lines[2]
        == "the proxy reported 2 errors, the first: x"
    )
