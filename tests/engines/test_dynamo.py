"""`aitrace replay` against Dynamo's frontend with its mocker: what the run says is compared with the request trace that
the frontend writes, one line for each request. Tokenizer, routing, admission and tracing are real.
"""

import statistics
import time
from collections import Counter

import orjson
import pytest
from playing import agents, by_index, conversations, growth, play
from starting import counter, dynamo

from aitrace.outcomes import outcome_of
from aitrace.results import CallResult

PROTOCOLS = ["chat", "responses", "anthropic"]
REFUSAL = (529, "Service temporarily overloaded")


@pytest.fixture(scope="module")
def frontend(engines, model, tmp_path_factory):
    with dynamo(engines, model, tmp_path_factory.mktemp("dynamo")) as running:
        yield running


def traced(frontend, calls: list[CallResult]) -> dict[str, dict]:
    """What the frontend wrote of each call, by the id that its request carried."""
    return traced_ids(frontend, {call.request_id for call in calls})


def traced_ids(frontend, wanted: set[str]) -> dict[str, dict]:
    """What the frontend wrote of the requests that carried these ids."""
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:  # it writes a moment after the answer
        lines = frontend.request_trace.read_bytes().split(b"\n")[:-1]
        events = [orjson.loads(line)["event"] for line in lines]
        ends = [event for event in events if event["event_type"] == "request_end"]
        found = {event["request"].get("x_request_id"): event for event in ends}
        if wanted <= found.keys():
            return {name: found[name] for name in wanted}
        time.sleep(0.05)
    raise AssertionError(f"not in the trace: {wanted - found.keys()}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tokens_of_every_call_are_those_in_the_frontends_trace(frontend, tmp_path, protocol):
    run = play(agents(), tmp_path, frontend.url, "--protocol", protocol, "--time-scale", "0.1")
    theirs = traced(frontend, by_index(run))
    names = ("input_tokens", "cached_tokens", "output_tokens")
    told = [tuple(theirs[call.request_id]["request"][name] for name in names) for call in by_index(run)]
    usages = [call.usage for call in by_index(run)]
    # An Anthropic answer does not name what was cached if that was nothing.
    assert [(one.input_tokens, one.cache_read_tokens or 0, one.output_tokens) for one in usages] == told
    assert [cached > 600 for _, cached, _ in told] == [False] + [True] * 5
    assert [one.output_tokens for one in usages] == [call.output_tokens for call in by_index(run)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_time_to_first_token_is_that_of_the_frontends_trace(frontend, tmp_path, protocol):
    run = play(conversations(4, 6), tmp_path, frontend.url, "--protocol", protocol, "--time-scale", "0.05")
    theirs = traced(frontend, by_index(run))
    differences_ms = [
        (call.first_token_ns - call.sent_ns) / 1e6 - theirs[call.request_id]["request"]["ttft_ms"]
        for call in by_index(run)
    ]
    # Theirs is from the request's arrival to the token's departure, so ours holds it; the rest is the way there and back.
    assert min(differences_ms) > 0
    assert statistics.median(differences_ms) < 10
    # What comes before prefill (`message_start`, `response.created`) is no token: prefill here takes 20 ms and more.
    assert all(theirs[call.request_id]["request"]["ttft_ms"] > 15 for call in run.calls)


def test_sessions_their_parents_and_their_ends_arrive(frontend, tmp_path):
    options = ("--protocol", "chat", "--time-scale", "0", "--identity", "dynamo")
    calls = by_index(play(agents(), tmp_path, frontend.url, *options))
    last = {call.session: f"{call.request_id}-final" for call in calls}
    theirs = {
        name: event["agent_context"]
        for name, event in traced_ids(
            frontend, {*last.values(), *(call.request_id for call in calls)}
        ).items()
    }
    ids = {session: set() for session in (0, 1, 2)}
    for call in calls:
        ids[call.session].add(theirs[call.request_id]["session_id"])
    assert [len(names) for names in ids.values()] == [1, 1, 1]
    assert len(set.union(*ids.values())) == 3
    parents = {call.session: theirs[call.request_id].get("parent_session_id") for call in calls}
    assert parents == {0: None, 1: min(ids[0]), 2: min(ids[0])}
    final = {name: context["session_id"] for name, context in theirs.items() if context.get("session_final")}
    assert final == {name: min(ids[session]) for session, name in last.items()}


def test_what_nvext_tells_of_a_call_is_what_the_trace_tells(frontend, tmp_path):
    hints = tmp_path / "hints.json"
    hints.write_bytes(orjson.dumps([{"body": {"nvext": {"extra_fields": ["worker_id", "timing"]}}}]))
    run = play(
        agents(), tmp_path, frontend.url, "--protocol", "chat", "--time-scale", "0", "--hints", str(hints)
    )
    theirs = traced(frontend, by_index(run))
    for call in run.calls:
        request = theirs[call.request_id]["request"]
        assert call.signals["nvext.worker_id.decode_worker_id"] == str(request["worker"]["decode_worker_id"])
        assert call.signals["nvext.timing.ttft_ms"] == pytest.approx(request["ttft_ms"], rel=0.01)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_refusals_are_those_that_the_frontend_counted(engines, model, tmp_path, protocol):
    limits = {"DYN_ENGINE_REQUEST_LIMIT": "2", "DYN_DYNAMO_REQUEST_QUEUE_LIMIT": "2"}
    with dynamo(engines, model, tmp_path, limits=limits) as frontend:
        run = play(
            conversations(8, 2, output_tokens=100),
            tmp_path,
            frontend.url,
            *("--protocol", protocol),
            may_fail=True,
        )
        series = "dynamo_frontend_requests_total"
        counted = counter(frontend.metrics_url, series, error_type="overload")
    outcomes = Counter(outcome_of(call) for call in run.calls if call.error is not None)
    assert outcomes == {"refused": counted}
    assert counted >= 4  # it has places for four; one may be taken still when a session comes back
    assert {(call.status, call.error_text) for call in run.calls if call.error is not None} == {REFUSAL}
    assert growth(run, "rejections") == counted
