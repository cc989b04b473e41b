"""Rules of the body helpers that no single protocol's tests state; the adapters' own tests cover the rest."""

import orjson
import pytest

from aitrace.protocols import PROTOCOLS
from aitrace.protocols.bodies import (
    blocks,
    ended,
    error_text,
    escaped_twice,
    expect_one_of,
    frame,
    joined_texts,
    optional_limit,
    sorted_json,
    write_openai_error,
    write_request,
)
from aitrace.protocols.protocol import MalformedRequestError, RequestSpec, WirePart


def test_head_fields_stand_before_the_prompt_and_extra_ones_after_it():
    written = frame({"model": "m", "stream": True}, {"seed": 1}, frozenset())
    assert written == (b'{"model":"m","stream":true,', b'],"seed":1}')


def test_without_extra_fields_the_body_ends_with_the_prompt():
    assert frame({"model": "m"}, {}, frozenset()) == (b'{"model":"m",', b"]}")


def test_an_extra_field_replaces_a_head_field_in_its_place():
    written = frame({"model": "m", "n": 1}, {"model": "other"}, frozenset())
    assert written == (b'{"model":"other","n":1,', b"]}")


def test_an_extra_field_may_not_replace_the_prompt():
    with pytest.raises(ValueError, match="'messages' is written from the prompt"):
        frame({"model": "m"}, {"messages": []}, frozenset({"messages"}))


def test_items_have_a_comma_behind_them():
    assert ended([b"1", b"2"]) == b"1,2,"
    assert ended([]) == b""


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_empty_prompt_fields_are_left_out(protocol):
    """Each protocol has its list of messages under another name, and nothing else of the prompt."""
    body = orjson.loads(write_request(protocol, RequestSpec(model="m", max_output_tokens=1)))
    assert body.keys() & {"tools", "system", "instructions", "messages", "input"} in ({"messages"}, {"input"})


def test_text_escaped_twice_is_read_back_by_two_decodings():
    text = 'a "quoted" \\ back\nslash'
    once = orjson.dumps(text)[1:-1]
    assert orjson.loads(orjson.loads(b'"' + escaped_twice(b'"' + once + b'"') + b'"')) == text


def test_adjacent_texts_are_joined_up_to_the_next_tool_part():
    texts = [WirePart(kind="text", text=text) for text in (b"a", b"b", b"c")]
    call = WirePart(kind="tool_use", text=b"{}", tool_id="1", tool_name="t")
    joined = [part.text for part in joined_texts([texts[0], texts[1], call, texts[2]])]
    assert joined == [b"ab", b"{}", b"c"]


def test_equal_values_have_equal_json_whatever_their_order():
    assert sorted_json({"b": 1, "a": 2}, "x") == sorted_json({"a": 2, "b": 1}, "x") == '{"a":2,"b":1}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":{"message":"no such model","type":"x"}}', "no such model"),
        (b'{"message":"overloaded","code":529}', "overloaded"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'"plain"', "plain"),
        (b"<html>", "<html>"),
        (b'{"error":{}}', '{"error":{}}'),
    ],
)
def test_the_message_is_found_in_every_shape_of_error(body, text):
    assert error_text(body) == text


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (500, "server_error"), (429, "rate_limit_error")]
)
def test_openai_errors_have_the_type_of_their_status(status, kind):
    assert orjson.loads(write_openai_error(status, "why"))["error"]["type"] == kind


@pytest.mark.parametrize("value", [True, -1, "8", 1.5])
def test_a_limit_is_a_whole_number_of_at_least_0(value):
    with pytest.raises(MalformedRequestError, match="max_tokens: expected an integer of at least 0, got "):
        optional_limit({"max_tokens": value}, "max_tokens")


def test_the_first_limit_that_is_set_counts():
    assert optional_limit({"a": None, "b": 5, "c": 7}, "a", "b", "c") == 5
    assert optional_limit({}, "a") is None


def test_content_is_a_string_or_typed_blocks():
    assert list(blocks("hi", "content")) == [("hi", "content")]
    assert list(blocks("", "content")) == []
    with pytest.raises(MalformedRequestError, match=r"content\[0\].type: expected a string, got None"):
        list(blocks([{}], "content"))


def test_long_wrong_values_are_shown_in_part():
    with pytest.raises(MalformedRequestError) as caught:
        expect_one_of("x" * 500, ("a", "b"), "role")
    assert len(str(caught.value)) < 100
