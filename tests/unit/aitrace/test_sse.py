"""Server-sent events under every cut of their bytes."""

from time import process_time

import pytest

from aitrace.sse import MAX_EVENT_BYTES, SseEvent, SseParser

STREAM = (
    b"\xef\xbb\xbf: hello\n"
    b"event: start\r\n"
    b"data: one\r\n"
    b"\r\n"
    b"data:two\r"
    b"data:  three\r"
    b"\r"
    b"id: 7\nretry: 10\n\n"
    b"data\n\n"
    b"event: end\ndata: \xc3\xa9\n\n"
)
EVENTS = [
    ("start", b"one"),
    ("message", b"two\n three"),
    ("message", b""),
    ("end", "é".encode()),
]


def read(chunks):
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    parser.close()
    return events, parser


def pairs(events):
    return [(event.type, event.data) for event in events]


def test_a_whole_stream_gives_all_events():
    events, parser = read([STREAM])
    assert pairs(events) == EVENTS
    assert (parser.comments, parser.unparsed_lines, parser.leftover) == (1, 0, b"")


def test_byte_by_byte_gives_the_same_events():
    assert read([STREAM[i : i + 1] for i in range(len(STREAM))])[0] == read([STREAM])[0]


@pytest.mark.parametrize("split", range(len(STREAM) + 1))
def test_every_split_gives_the_same_events(split):
    assert read([STREAM[:split], STREAM[split:]])[0] == read([STREAM])[0]


def test_an_event_comes_out_with_its_last_byte_and_not_before():
    parser = SseParser()
    assert parser.feed(b"data: x\n") == []
    assert parser.feed(b"\n") == [SseEvent("message", b"x", 9)]


def test_a_carriage_return_ends_a_line_without_waiting_for_the_line_feed():
    parser = SseParser()
    assert pairs(parser.feed(b"data: x\r\n\r")) == [("message", b"x")]
    assert pairs(parser.feed(b"\ndata: y\r\n\r\n")) == [("message", b"y")]


def test_empty_chunks_change_nothing():
    assert pairs(read([b"", b"data: x\r", b"", b"\n\n", b""])[0]) == [("message", b"x")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_size_counts_each_line_end_as_one_byte(end):
    events, _ = read([end.join([b"event: a", b"data: bc", b"", b""])])
    assert [event.size_bytes for event in events] == [len(b"event: a") + len(b"data: bc") + 3]


def test_only_one_leading_space_is_dropped():
    assert pairs(read([b"data:   x \n\n"])[0]) == [("message", b"  x ")]


def test_events_without_data_are_not_dispatched_and_do_not_name_the_next():
    assert pairs(read([b"event: ghost\n\ndata: x\n\n"])[0]) == [("message", b"x")]


def test_the_last_event_field_counts_and_an_empty_one_means_message():
    assert pairs(read([b"event: a\nevent: b\ndata: x\n\nevent: a\nevent:\ndata: y\n\n"])[0]) == [
        ("b", b"x"),
        ("message", b"y"),
    ]


def test_a_name_that_is_not_utf8_is_replaced():
    assert pairs(read([b"event: \xff\ndata: x\n\n"])[0]) == [("�", b"x")]


def test_an_unfinished_event_is_kept_and_not_dispatched():
    events, parser = read([b"data: whole\n\nevent: half\ndata: on", b"e\ndata: tw"])
    assert pairs(events) == [("message", b"whole")]
    assert parser.leftover == b"event: half\ndata: one\ndata: tw"


def test_an_event_that_lacks_only_its_blank_line_is_unfinished():
    events, parser = read([b"data: x\n"])
    assert events == []
    assert parser.leftover == b"data: x\n"


def test_unknown_fields_are_counted_and_the_first_is_shown():
    _, parser = read([b"Data: x\n<html>" + b"y" * 100 + b"\nerror: {}\n\n"])
    assert parser.unparsed_lines == 3
    assert parser.unparsed_sample == b"Data: x"


def test_the_sample_of_an_unknown_line_is_short():
    _, parser = read([b"<html>" + b"y" * 1000 + b"\n"])
    assert parser.unparsed_sample == b"<html>" + b"y" * 58


@pytest.mark.parametrize(
    "chunks", [[b"\xef\xbb\xbfdata: x\n\n"], [b"\xef", b"\xbb", b"\xbf", b"data: x\n\n"]]
)
def test_a_byte_order_mark_at_the_start_is_dropped(chunks):
    assert pairs(read(chunks)[0]) == [("message", b"x")]


def test_a_byte_order_mark_later_is_part_of_the_line():
    _, parser = read([b"data: x\n\n\xef\xbb\xbfdata: y\n\n"])
    assert parser.unparsed_lines == 1


def test_half_a_byte_order_mark_is_left_over():
    assert read([b"\xef\xbb"])[1].leftover == b"\xef\xbb"


def test_bytes_that_only_begin_like_a_byte_order_mark_stay():
    _, parser = read([b"\xef", b"\xbbx\n"])
    assert parser.unparsed_sample == b"\xef\xbbx"


def test_a_long_event_byte_by_byte_takes_linear_time():
    """A copy per byte would move 45 GB here, which takes several seconds of processor time; this takes about 0.1."""
    size = 300_000
    parser = SseParser()
    parser.feed(b"data: ")
    start_s = process_time()
    for _ in range(size):
        parser.feed(b"x")
    (event,) = parser.feed(b"\n\n")
    assert len(event.data) == size
    assert process_time() - start_s < 2


def test_an_event_without_end_is_given_up_and_its_bytes_are_let_go():
    parser = SseParser()
    assert parser.feed(b"data: first\n\ndata: ") == [SseEvent("message", b"first", 13)]
    for _ in range(MAX_EVENT_BYTES >> 20):
        assert parser.feed(b"x" * (1 << 20)) == []
    assert parser.is_overlong
    assert parser.feed(b"\n\ndata: more\n\n") == []
    parser.close()
    assert parser.leftover == b""


def test_lines_of_one_event_are_counted_together():
    parser = SseParser()
    for _ in range(17):
        parser.feed(b"data: " + b"x" * (1 << 20) + b"\n")
    assert parser.is_overlong


def test_a_long_event_with_an_end_is_read():
    parser = SseParser()
    long = b"x" * (MAX_EVENT_BYTES - 100)
    assert [event.data for event in parser.feed(b"data: " + long + b"\n\n")] == [long]
    assert not parser.is_overlong


def test_pieces_of_whole_events_are_read_as_their_lines_would_be():
    pieces = [
        b"data: a\n\n",
        b"data: b\n\nevent: end\ndata: c\n\n",
        b"id: 7\ndata: d\n\n",
        b"event: x\ndata:e\n\n",
    ]
    one_by_one = [bytes([byte]) for byte in b"".join(pieces)]
    assert read(pieces)[0] == read(one_by_one)[0]
    assert pairs(read(pieces)[0])[1:] == [("message", b"b"), ("end", b"c"), ("message", b"d"), ("x", b"e")]
