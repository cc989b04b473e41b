"""Events told apart by their bytes; tests/property/test_same_shape.py compares this with decoding."""

import pytest

from aitrace.protocols.same_shape import shape_of

CHAT = b'{"created":17,"system_fingerprint":"fp1","choices":[{"index":0,"delta":{"content":" Hi"}}]}'


def test_an_event_with_another_text_has_the_same_shape():
    assert shape_of(CHAT, " Hi").text_in(CHAT.replace(b" Hi", " wörld".encode())) == " wörld"


def test_fields_that_nobody_reads_may_differ():
    other = CHAT.replace(b":17", b":1800").replace(b"fp1", b"fp-other")
    assert shape_of(CHAT, " Hi").text_in(other) == " Hi"


@pytest.mark.parametrize(
    "data",
    [
        CHAT.replace(b" Hi", b""),
        CHAT.replace(b" Hi", b"\\n"),
        CHAT.replace(b" Hi", b"\xff"),
        CHAT.replace(b" Hi", b"\x01"),
        CHAT.replace(b" Hi", b'","refusal":"no'),
        CHAT.replace(b"0", b"1"),
        CHAT.replace(b"17", b"017"),
        CHAT.replace(b"17", b"1e5"),
        CHAT.replace(b"17", b"9" * 30),
        CHAT.replace(b"fp1", b""),
        CHAT[:-1],
        CHAT + b" ",
        b"[DONE]",
        b"",
    ],
)
def test_what_may_mean_something_else_is_to_be_decoded(data):
    assert shape_of(CHAT, " Hi").text_in(data) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"delta":""}', ""),
        (b'{"delta":"delta"}', "delta"),
        (b'{"delta":"x\\n"}', "x\n"),
        (b'{"created":1.5,"delta":"x"}', "x"),
        (b'{"delta":"\\u0078","other":"x"}', "x"),
    ],
)
def test_no_shape_is_told_where_the_place_of_the_text_is_not_certain(data, text):
    assert shape_of(data, text) is None
