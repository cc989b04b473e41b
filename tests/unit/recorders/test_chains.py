"""Prompts that are stated in increments, against the same prompts stated whole."""

import orjson
import pytest

from aitrace.protocols import PROTOCOLS
from recorders.chains import KEPT_ANSWERS, KEPT_PER_CONNECTION, ResponseChains

TOOLS = [{"type": "function", "name": "shell", "parameters": {}}, {"type": "custom", "name": "patch"}]


def request(items, previous=None, **fields):
    body = {"type": "response.create", "model": "m", "input": items, **fields}
    if previous is not None:
        body["previous_response_id"] = previous
    return PROTOCOLS["responses"].read_request(orjson.dumps(body))


def said(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answered(text):
    block = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{text}",
        "role": "assistant",
        "status": "completed",
        "content": [block],
    }


def called(call_id):
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": call_id,
        "name": "shell",
        "arguments": '{"a":1}',
    }


def result(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": f"done {call_id}"}


def thought(text):
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": text}


TURNS = [
    ([said("one")], [thought("h1"), answered("two"), called("c1")]),
    ([result("c1")], [called("c2"), called("c3")]),
    ([result("c2"), result("c3"), said("three")], [{"type": "compaction", "encrypted_content": "s"}]),
    ([said("four")], [answered("five")]),
]


def test_increments_give_the_prompts_that_a_client_without_chaining_sends():
    chains = ResponseChains()
    history = []
    previous = None
    for number, (new, answer) in enumerate(TURNS):
        history += new
        prompt = chains.whole_prompt(request(new, previous))
        assert prompt.parts == request(history).parts
        assert (prompt.unseen_start, prompt.is_unchained) == (False, False)
        previous = f"resp_{number}"
        chains.remember(0, prompt, previous, answer)
        history += answer


@pytest.mark.parametrize(
    "head", [{"tools": TOOLS}, {"instructions": "be kind"}, {"tools": TOOLS, "instructions": "be kind"}]
)
def test_tools_and_instructions_are_as_this_request_states_them(head):
    chains = ResponseChains()
    first = chains.whole_prompt(request([said("one")], tools=TOOLS[:1], instructions="old"))
    chains.remember(0, first, "resp_0", [answered("two")])
    whole = request([said("one"), answered("two"), said("three")], **head)
    assert chains.whole_prompt(request([said("three")], "resp_0", **head)).parts == whole.parts


def test_a_chain_without_its_start_says_so_to_its_end():
    chains = ResponseChains()
    first = chains.whole_prompt(request([said("late")], "resp_before"))
    assert (first.parts, first.unseen_start, first.is_unchained) == (
        request([said("late")]).parts,
        True,
        True,
    )
    chains.remember(0, first, "resp_0", [answered("two")])
    second = chains.whole_prompt(request([said("three")], "resp_0"))
    assert second.parts == request([said("late"), answered("two"), said("three")]).parts
    assert (second.unseen_start, second.is_unchained) == (True, False)


def test_an_answer_may_be_continued_on_another_connection():
    chains = ResponseChains()
    chains.remember(0, chains.whole_prompt(request([said("one")])), "resp_0", [answered("two")])
    prompt = chains.whole_prompt(request([said("three")], "resp_0"))
    chains.remember(1, prompt, "resp_1", [])
    assert not chains.whole_prompt(request([], "resp_1")).unseen_start


def test_an_answer_with_a_malformed_item_is_not_continued():
    chains = ResponseChains()
    chains.remember(0, chains.whole_prompt(request([])), "resp_0", [{"type": "function_call", "name": 3}])
    assert chains.whole_prompt(request([said("x")], "resp_0")).is_unchained


def test_the_last_answers_of_a_connection_are_kept():
    chains = ResponseChains()
    prompt = chains.whole_prompt(request([said("one")]))
    for number in range(10):
        chains.remember(0, prompt, f"resp_{number}", [])
    known = [n for n in range(10) if not chains.whole_prompt(request([], f"resp_{n}")).is_unchained]
    assert known == list(range(10 - KEPT_PER_CONNECTION, 10))


def test_a_busy_connection_does_not_push_out_a_quiet_one():
    chains = ResponseChains()
    prompt = chains.whole_prompt(request([said("one")]))
    chains.remember(0, prompt, "resp_quiet", [])
    for number in range(1000):
        chains.remember(1, prompt, f"resp_{number}", [])
    assert not chains.whole_prompt(request([], "resp_quiet")).is_unchained
    assert chains.kept == KEPT_PER_CONNECTION + 1


def test_many_connections_keep_the_answers_used_last():
    chains = ResponseChains()
    prompt = chains.whole_prompt(request([said("one")]))
    for number in range(KEPT_ANSWERS):
        chains.remember(number, prompt, f"resp_{number}", [])
    chains.whole_prompt(request([], "resp_0"))
    chains.remember(1000, prompt, "resp_new", [])
    assert chains.kept == KEPT_ANSWERS
    assert not chains.whole_prompt(request([], "resp_0")).is_unchained
    assert chains.whole_prompt(request([], "resp_1")).is_unchained


def test_an_id_given_twice_means_the_later_answer():
    chains = ResponseChains()
    prompt = chains.whole_prompt(request([said("one")]))
    chains.remember(0, prompt, "resp_0", [answered("old")])
    chains.remember(1, prompt, "resp_0", [answered("new")])
    assert chains.whole_prompt(request([], "resp_0")).parts == request([said("one"), answered("new")]).parts
    assert chains.kept == 1
