"""Server-sent events: no bytes raise, and cuts between chunks change nothing."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.sse import SseParser

LINES = st.sampled_from(
    [
        b"data: x",
        b"data:",
        b"data",
        b"event: a",
        b"id: 1",
        b": ping",
        b"",
        b"",
        b"oops",
        b"\xef\xbb\xbf",
        b"data:\xff",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.lists(st.tuples(LINES, ENDS)).map(lambda lines: b"".join(line + end for line, end in lines))


def cut(data, cuts):
    points = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(points)]


def read(chunks):
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    parser.close()
    return events, parser.leftover, parser.comments, parser.unparsed_lines, parser.unparsed_sample


@settings(max_examples=300)
@given(STREAMS, st.lists(st.integers(0, 100)))
def test_cuts_change_nothing(data, cuts):
    assert read(cut(data, cuts)) == read([data])


@settings(max_examples=300)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_random_bytes_raise_nothing_and_cuts_change_nothing(data, cuts):
    assert read(cut(data, cuts)) == read([data])


@given(st.lists(st.binary().filter(lambda text: b"\r" not in text), min_size=1))
def test_data_written_as_lines_comes_back(texts):
    stream = b"".join(b"data: " + text.replace(b"\n", b"\ndata: ") + b"\n\n" for text in texts)
    parser = SseParser()
    assert [event.data for event in parser.feed(stream)] == texts


@given(STREAMS)
def test_finished_events_do_not_depend_on_what_follows(data):
    events = read([data + b"\n\n"])[0]
    assert read([data + b"\n\n", b"data: tail"])[0] == events
