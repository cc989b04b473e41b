import hashlib
import json

import pytest

from aitrace.formats.claude_requests import RequestLog, message_hash
from aitrace.formats.format import Tally
from aitrace.protocols.protocol import RequestPart

AT_NS = 1_772_618_400 * 10**9
SHAPE = {
    "shapeHash": "shape",
    "shape": {"system": [{"type": "text", "text": "be kind"}], "tools": [{"name": "Bash"}]},
}


ROW = {"id": "r", "shapeHash": "shape", "keep": 0, "tail": [], "params": {}}


def user(text):
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def log(*messages):
    tally = Tally()
    found = RequestLog(tally)
    found.add_shape(SHAPE, "p")
    for message in messages:
        found.add_blob({"hash": message_hash(message), "message": message}, "p")
    return found, tally


def request(found, tail, **fields):
    names = [name if isinstance(name, str) else message_hash(name) for name in tail]
    return found.request({**ROW, "tail": names, **fields}, AT_NS, "a.jsonl:9")


def texts(made):
    return [part.text for part in made.history[: made.length]]


def test_a_message_is_named_by_the_hash_of_its_sorted_json():
    message = {"role": "user", "content": "hä"}
    expected = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert message_hash(message) == hashlib.sha256(expected.encode()).hexdigest()
    assert message_hash({"role": "user", "content": 2**70}) is None


def test_a_prompt_is_tools_system_prompt_and_messages():
    found, tally = log(user("one"))
    made = request(found, [user("one")], params={"model": "claude-opus-4-5", "max_tokens": 7})
    assert texts(made) == ['{"name":"Bash"}', "be kind", "one"]
    assert (made.model, made.max_output_tokens, tally.summary("claude-code").remarks) == (
        "claude-opus-4-5",
        7,
        (),
    )


def test_the_billing_block_of_the_system_prompt_is_left_out():
    found, _ = log(user("one"))
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
        {"type": "text", "text": "be kind"},
    ]
    found.add_shape({"shapeHash": "billed", "shape": {"system": blocks}}, "p")
    assert texts(request(found, [user("one")], shapeHash="billed")) == ["be kind", "one"]


def test_a_request_continues_its_base_and_shares_its_history():
    found, _ = log(user("one"), user("two"))
    first = request(found, [user("one")], id="first")
    second = request(found, [user("two")], id="second", base="first", keep=1)
    assert (texts(first)[2:], texts(second)[2:]) == (["one"], ["one", "two"])
    assert first.history is second.history


def test_a_request_that_keeps_less_leaves_the_base_as_it_was():
    found, _ = log(user("one"), user("two"), user("three"))
    first = request(found, [user("one"), user("two")], id="first")
    second = request(found, [user("three")], id="second", base="first", keep=1)
    third = request(found, [user("three")], id="third", base="first", keep=2)
    assert [texts(made)[2:] for made in (first, second, third)] == [
        ["one", "two"],
        ["one", "three"],
        ["one", "two", "three"],
    ]


def test_other_tools_keep_the_messages():
    found, _ = log(user("one"), user("two"))
    request(found, [user("one")], id="first")
    found.add_shape({"shapeHash": "other", "shape": {"system": "be quick"}}, "p")
    made = request(found, [user("two")], base="first", keep=1, shapeHash="other")
    assert texts(made) == ["be quick", "one", "two"]


def test_messages_of_the_transcript_are_found_by_their_hash():
    found, _ = log()
    found.add_message("user", "typed", "p")
    found.add_message("assistant", [{"type": "text", "text": "said"}], "p")
    tail = [
        {"role": "user", "content": "typed"},
        user("typed"),
        {"role": "assistant", "content": user("said")["content"]},
    ]
    assert texts(request(found, tail))[2:] == ["typed", "typed", "said"]


def test_results_that_came_one_by_one_answer_the_calls_before_them_as_one_message():
    found, _ = log()
    calls = [{"type": "tool_use", "id": name, "name": "Bash", "input": {}} for name in ("a", "b")]
    found.add_message("assistant", calls, "p")
    for name in ("b", "a"):
        found.add_message(
            "user", [{"type": "tool_result", "tool_use_id": name, "content": f"result {name}"}], "p"
        )
    made = request(found, [{"role": "assistant", "content": calls}, "unknown"])
    assert texts(made)[-2:] == ["result a", "result b"]
    again = request(found, ["unknown"], keep=1, base="r")
    assert texts(again)[-2:] == ["result a", "result b"]


def test_what_the_transcript_added_stands_for_a_message_that_is_in_no_line():
    found, tally = log(user("one"), user("two"))
    request(found, [user("one")], id="first")
    added = [
        RequestPart(role="assistant", type="text", text="said"),
        RequestPart(role="user", type="text", text="two"),
    ]
    names = ["unknown", message_hash(user("two")), "another"]
    row = {**ROW, "id": "second", "base": "first", "keep": 1, "tail": names}
    assert texts(found.request(row, AT_NS, "a.jsonl:9", added))[2:] == ["one", "said", "two"]
    assert [r.kind for r in tally.summary("claude-code").remarks] == ["substituted_message"]
    third = request(found, [user("one"), *names], id="third")
    assert texts(third)[2:] == ["one", "said", "two"]


@pytest.mark.parametrize(
    ("tail", "fields"),
    [
        (["unknown"], {}),
        ([], {"shapeHash": "unknown"}),
        ([], {"keep": 1}),
        ([], {"keep": 1, "base": "unknown"}),
        ([], {"keep": 2, "base": "first"}),
    ],
)
def test_a_request_that_cannot_be_put_together_has_no_prompt_and_is_noted(tail, fields):
    found, tally = log(user("one"))
    first = request(found, [user("one")], id="first")
    made = request(found, tail, **fields)
    assert (made.history, made.length, made.at_ns) == (None, 0, first.at_ns)
    assert [r.kind for r in tally.summary("claude-code").remarks] == ["unresolved_request"]
    assert texts(first)[2:] == ["one"]


def test_a_shape_out_of_shape_is_noted():
    found, tally = log(user("one"))
    found.add_shape({"shapeHash": "odd", "shape": {"tools": 7}}, "p")
    assert request(found, [user("one")], shapeHash="odd").history is None
    assert [r.kind for r in tally.summary("claude-code").remarks] == ["odd_message", "unresolved_request"]


@pytest.mark.parametrize("fields", [{"keep": -1}, {"keep": "1"}, {"tail": 7}])
def test_a_request_whose_messages_are_not_told_has_no_prompt_and_is_noted(fields):
    found, tally = log(user("one"))
    assert found.request({**ROW, **fields}, AT_NS, "a.jsonl:9").history is None
    assert [(r.kind, r.first_place) for r in tally.remarks] == [("unresolved_request", "a.jsonl:9")]


def test_names_and_numbers_that_cannot_be_are_not_known():
    found, tally = log(user("one"))
    made = request(found, [user("one")], params={"model": "as Jane said", "max_tokens": -1})
    assert (made.model, made.max_output_tokens) == (None, None)
    assert [r.kind for r in tally.remarks] == ["odd_value"]
