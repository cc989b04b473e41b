"""When a session of a run is over, and the request that says so."""

import orjson
import pytest

from aitrace.protocols import PROTOCOLS
from aitrace.testing import make_call_result, make_trace
from replayer.identity.session_ends import FinalRequests, SessionEnds, final_body
from replayer.identity.wire_identity import WireIdentity, caller_of
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan


def results(*sessions, unsent=()):
    """One result for each, by instance and session."""
    return [
        make_call_result(
            index, instance=instance, session=session, unsent="session_lost" if index in unsent else None
        )
        for index, (instance, session) in enumerate(sessions)
    ]


def test_a_session_is_over_with_the_last_of_its_results_in_whatever_order_they_come():
    first, other, last = results((1, 0), (1, 1), (1, 0))
    ends = SessionEnds()
    assert [ends.note(last, 2), ends.note(other, 1), ends.note(first, 2)] == [False, True, True]


def test_playings_of_a_session_end_each_for_itself():
    one, other, again = results((1, 0), (2, 0), (1, 0))
    ends = SessionEnds()
    assert [ends.note(one, 2), ends.note(other, 1), ends.note(again, 2)] == [False, True, True]


def test_a_session_that_was_lost_is_over_and_one_that_sent_nothing_has_nobody_to_tell():
    sent, lost, spared = results((1, 0), (1, 0), (1, 1), unsent=(1, 2))
    ends = SessionEnds()
    assert [ends.note(sent, 2), ends.note(lost, 2), ends.note(spared, 1)] == [False, True, False]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_request_asks_for_one_token_in_one_piece(name):
    body = orjson.loads(final_body(PROTOCOLS[name], "model-a"))
    limits = {
        body[key] for key in ("max_tokens", "max_completion_tokens", "max_output_tokens") if key in body
    }
    assert (limits, body["model"], body.get("stream", False)) == ({1}, "model-a", False)


def told(name):
    """What follows each of the two calls of a session, and the ids of its calls."""
    trace = make_trace(sessions=1, calls=2)
    plan = build_plan(trace, LoadOptions())
    identity = WireIdentity(trace.sessions, name, run_id="run")
    finals = FinalRequests(identity, PROTOCOLS["chat"], model="model-a", run_id="run")
    answers = [
        finals.after(make_call_result(index, request_id=f"run-{index}"), plan.call(index))
        for index in range(2)
    ]
    return answers, identity.headers(caller_of(plan.call(1), "run"))


def test_the_request_follows_the_last_result_with_the_ids_of_its_session():
    (first, last), ids = told("dynamo")
    assert first is None
    assert last.headers == {**ids, "X-Request-Id": "run-1-final", "X-Dynamo-Session-Final": "true"}
    assert last.body == final_body(PROTOCOLS["chat"], "model-a")


def test_an_endpoint_that_takes_no_word_of_an_end_gets_none():
    assert told("native")[0] == [None, None]
