import pytest

from aitrace.errors import InputError
from aitrace.formats.weka import conversation_from_json


def conversation(*requests, **fields):
    return {"id": "trace_0001", "block_size": 64, "requests": list(requests), **fields}


def test_a_full_row_is_read():
    row = {
        "t": 5.0, "type": "s", "model": "m", "in": 130, "out": 9, "hash_ids": [1, 2], "input_types": ["tool_result"],
        "output_types": ["text"], "stop": "end_turn", "api_time": 1.5, "think_time": 3.0, "ttft": 0.25,
    }  # fmt: skip
    call = conversation_from_json(conversation(row), "f").main.calls[0]
    assert (call.t_ns, call.api_ns, call.ttft_ns) == (5_000_000_000, 1_500_000_000, 250_000_000)
    assert (call.input_tokens, call.output_tokens, call.hash_ids) == (130, 9, (1, 2))
    assert (call.model, call.streamed, call.stop) == ("m", True, "end_turn")
    assert (call.input_types, call.output_types) == ({"tool_result"}, {"text"})


def test_what_a_row_lacks_is_not_known():
    row = {"t": 0, "in": 70, "model": None, "stop": "", "output_types": [], "input_types": None}
    call = conversation_from_json(conversation(row), "f").main.calls[0]
    assert (call.api_ns, call.ttft_ns, call.output_tokens, call.model) == (None, None, None, None)
    assert (call.streamed, call.stop, call.input_types, call.output_types) == (None, None, None, None)
    assert call.hash_ids == ()


def test_sub_agents_are_apart_from_the_main_agent():
    child = {
        "t": 3.5, "type": "subagent", "agent_id": "agent_001", "subagent_type": "Explore", "duration_ms": 2000,
        "tool_tokens": 64, "system_tokens": 32, "requests": [{"t": 0, "in": 1}],
    }  # fmt: skip
    idle = {"t": 4, "type": "subagent", "requests": None}
    read = conversation_from_json(conversation({"t": 0, "in": 1}, child, idle, tool_tokens=10), "f")
    agent = read.children[0]
    assert (len(read.main.calls), len(read.children), read.idle_children) == (1, 1, 1)
    assert (agent.label, agent.kind, agent.t_ns, agent.duration_ns) == (
        "agent_001",
        "Explore",
        3_500_000_000,
        2_000_000_000,
    )
    assert (agent.tool_tokens, agent.system_tokens, read.main.tool_tokens) == (64, 32, 10)
    assert [call.place for call in read.calls()] == ["f: requests[0]", "f: requests[1]: requests[0]"]


def test_times_are_in_seconds_if_all_of_them_are_whole():
    whole, odd = {"t": 1.0, "in": 1}, {"t": 1.25, "in": 1}
    child = {"t": 3.5, "type": "subagent", "requests": [odd]}
    assert conversation_from_json(conversation(whole), "f").resolution_ns == 1_000_000_000
    assert conversation_from_json(conversation(whole, child), "f").resolution_ns == 1_000_000


def test_calls_are_put_in_order_of_time_and_that_is_counted():
    rows = [{"t": 4, "in": 1}, {"t": 2, "in": 2}, {"t": 2, "in": 3}]
    main = conversation_from_json(conversation(*rows), "f").main
    assert [call.input_tokens for call in main.calls] == [2, 3, 1]
    assert main.reordered == 1


def test_the_scope_of_block_ids_is_local_unless_told():
    scopes = [
        conversation_from_json(conversation(hash_id_scope=s), "f").block_scope
        for s in (None, "local", "global")
    ]
    assert scopes == ["tree", "tree", "trace"]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "f: expected an object with 'requests', got list"),
        ({"requests": []}, "f: 'block_size' is None, expected a whole number from 0 to 1099511627776"),
        (conversation(block_size=0), "f: 'block_size' is 0, expected the tokens of a block"),
        (conversation(hash_id_scope="both"), "f: 'hash_id_scope' is 'both', expected 'local' or 'global'"),
        ({"block_size": 64, "requests": {}}, "f: 'requests' is dict, expected a list"),
        (conversation(3), "f: requests[0]: expected an object, got int"),
        (conversation({"in": 1}), "f: requests[0]: 't' is None, expected a number from 0 to 4611686018"),
        (
            conversation({"t": 1}),
            "f: requests[0]: 'in' is None, expected a whole number from 0 to 1099511627776",
        ),
        (
            conversation({"t": 1, "in": 1, "input_types": "text"}),
            "f: requests[0]: 'input_types' is 'text', expected a list of words",
        ),
        (
            conversation({"t": 1, "in": 1, "api_time": "x"}),
            "f: requests[0]: 'api_time' is 'x', expected a number from 0 to 4611686018",
        ),
        (
            conversation({"t": 1, "type": "subagent", "requests": [{"type": "subagent"}]}),
            "f: requests[0]: requests[0]: a sub-agent inside a sub-agent, expected a flat list of requests",
        ),
    ],
)
def test_what_is_not_of_the_format_is_refused_with_place_and_expectation(document, text):
    with pytest.raises(InputError) as caught:
        conversation_from_json(document, "f")
    assert str(caught.value) == text


def test_a_conversation_without_requests_is_empty():
    assert conversation_from_json({"block_size": 64}, "f").main.calls == ()
