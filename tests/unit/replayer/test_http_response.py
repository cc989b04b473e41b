"""One HTTP response from bytes, cut in every way."""

import contextlib
import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayer.http.http_response import HttpResponse, MalformedHttpError

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\none\r\n5;x=y\r\nthree\r\n0\r\nTrailer: t\r\n\r\n"
)
SIZED = b"HTTP/1.1 429 No room\r\nretry-after: 3\r\nContent-Length: 4\r\n\r\nbusy"
UNSIZED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + SIZED
WHOLE = {
    CHUNKED: (200, b"onethree", True),
    SIZED: (429, b"busy", True),
    UNSIZED: (200, b"until the end", False),
    INTERIM: (429, b"busy", True),
}


class Sink:
    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.body = b""
        self.times: list[int] = []

    def on_headers(self, status, headers, at_ns) -> None:
        self.statuses.append(status)
        self.headers = dict(headers)
        self.times.append(at_ns)

    def on_chunk(self, data, at_ns) -> None:
        self.body += data
        self.times.append(at_ns)


def fed(pieces) -> tuple[HttpResponse, Sink]:
    sink = Sink()
    response = HttpResponse(sink)
    for at_ns, piece in enumerate(pieces):
        response.feed(piece, at_ns)
    return response, sink


def seen(response: HttpResponse, sink: Sink) -> tuple[int, bytes, bool]:
    response.close()
    assert response.is_complete
    assert len(sink.statuses) == 1
    return sink.statuses[0], sink.body, response.can_be_followed


@pytest.mark.parametrize("data", WHOLE)
def test_a_response_is_the_same_at_every_split(data):
    for cut in range(len(data) + 1):
        assert seen(*fed([data[:cut], data[cut:]])) == WHOLE[data]


@pytest.mark.parametrize("data", WHOLE)
def test_a_response_may_come_byte_by_byte(data):
    response, sink = fed(data[i : i + 1] for i in range(len(data)))
    assert seen(response, sink) == WHOLE[data]
    assert sink.times == sorted(sink.times)


@pytest.mark.parametrize("data", [CHUNKED, SIZED])
def test_a_response_cut_anywhere_is_not_complete(data):
    for cut in range(len(data)):
        response, _ = fed([data[:cut]])
        response.close()
        assert not response.is_complete


def test_header_names_are_lower_case_and_repeated_ones_joined():
    _, sink = fed([b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 0\r\n\r\n"])
    assert sink.headers["x-a"] == "1, 2"


def test_parts_carry_the_time_of_the_bytes_that_completed_them():
    _, sink = fed([SIZED[:30], SIZED[30:-4], SIZED[-4:-1], SIZED[-1:]])
    assert sink.times == [1, 2, 3]


def test_an_answer_that_asks_to_close_cannot_be_followed():
    response, _ = fed([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"])
    assert (response.is_complete, response.can_be_followed) == (True, False)


@pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n", b"HTTP/9 x\r\n\r\n", b"\0"])
def test_what_is_no_response_is_malformed(data):
    with pytest.raises(MalformedHttpError):
        fed([data])


@pytest.mark.parametrize("pieces", [[SIZED + SIZED], [SIZED, SIZED], [SIZED + b"x"]])
def test_what_follows_the_end_leaves_the_answer_alone_and_spoils_the_connection(pieces):
    response, sink = fed(pieces)
    assert seen(response, sink) == (429, b"busy", False)


def test_a_switch_to_another_protocol_is_malformed():
    with pytest.raises(MalformedHttpError, match="another protocol"):
        fed([b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"])


def test_headers_without_an_end_are_given_up():
    sink = Sink()
    response = HttpResponse(sink)
    response.feed(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000, 0)
    with pytest.raises(MalformedHttpError, match="256 KiB"):
        response.feed(b"y", 1)


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_random_bytes_give_a_response_or_one_kind_of_error(pieces):
    with contextlib.suppress(MalformedHttpError):
        response, _ = fed(pieces)
        response.close()


def test_a_response_whose_parser_was_let_go_leaves_no_work_to_the_garbage_collector():
    gc.disable()
    try:
        response = HttpResponse(Sink())
        response.feed(SIZED, 1)
        response.release()
        gone = weakref.ref(response)
        del response
        assert gone() is None
    finally:
        gc.enable()
