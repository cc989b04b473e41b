"""One HTTP call from request to end. Times are small numbers, so that each can be told from every other."""

import gc
import gzip
import weakref
import zlib

import brotli
import orjson
import pytest
import zstandard

from aitrace.harnesses.routes import recorded_route
from aitrace.protocols.protocol import MalformedRequestError
from aitrace.schema import Outcome, ToolCall, Usage, Wire
from recorders.chains import ResponseChains
from recorders.content_coding import ContentCodingError
from recorders.exchange import WatchedCall, read_http_request
from recorders.notes import Asked

PACKERS = {
    None: bytes,
    "gzip": gzip.compress,
    "br": brotli.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "gzip, zstd": lambda data: zstandard.compress(gzip.compress(data, mtime=0)),
}
MESSAGES = {
    "model": "m",
    "stream": True,
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
}
INPUT = {"model": "m", "input": [{"role": "user", "content": "hi"}]}


def asked(body, path="/v1/messages", headers=(), **fields):
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return Asked(0, 10, "POST", path, dict(headers), data, fields.get("transport", "http/1.1"), 3)


def read(note):
    return read_http_request(note, recorded_route("POST", note.path), 10, ResponseChains())


def watched(body=MESSAGES, path="/v1/messages"):
    return WatchedCall(read(asked(body, path)))


def event(payload):
    return b"data: " + orjson.dumps(payload) + b"\n\n"


EVENTS = [
    event({"type": "message_start", "message": {"usage": {"input_tokens": 7}}}),
    event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hel"}}),
    event(
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "name": "Bash", "input": {}},
        }
    ),
    event({"type": "content_block_stop", "index": 1}),
    event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}}),
    event({"type": "message_stop"}),
]
SSE = {"content-type": "text/event-stream"}
REPLY = orjson.dumps(
    {
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 4},
    }
)
JSON = {"content-type": "application/json"}


def answer_to(call, chunks, *, headers=SSE, status=200, how="complete", end=100):
    call.on_connected(5, 11)
    call.on_headers(status, headers, 12)
    for at_ns, chunk in enumerate(chunks, 20):
        call.on_chunk(chunk, at_ns)
    return call.on_end(how, end)


# Requests


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_request_is_read_in_every_coding(encoding):
    body = PACKERS[encoding](orjson.dumps(MESSAGES))
    requested = read(asked(body, headers={"content-encoding": encoding} if encoding else {}))
    assert [part.text for part in requested.prompt.parts] == ["hi"]
    assert requested.wire == Wire(
        transport="http/1.1", connection=3, request_bytes=len(body), request_encoding=encoding
    )


@pytest.mark.parametrize(
    ("body", "encoding", "error"),
    [
        (b"{", None, MalformedRequestError),
        (b"{}", None, MalformedRequestError),
        (orjson.dumps(MESSAGES), "gzip", ContentCodingError),
        (gzip.compress(orjson.dumps(MESSAGES), mtime=0)[:-3], "gzip", ContentCodingError),
        (orjson.dumps(MESSAGES), "snappy", ContentCodingError),
    ],
)
def test_a_request_that_cannot_be_read_is_an_error(body, encoding, error):
    with pytest.raises(error):
        read(asked(body, headers={"content-encoding": encoding} if encoding else {}))


# Answers


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_stream_says_the_same_in_every_coding_at_every_split(encoding):
    body = PACKERS[encoding](b"".join(EVENTS))
    headers = {**SSE, "content-encoding": encoding} if encoding else SSE
    for place in range(len(body)):
        answer = answer_to(watched(), [body[:place], body[place:]], headers=headers)
        assert answer.outcome == Outcome(status=200, finish="tool_use")
        assert answer.usage == Usage(input_tokens=7, output_tokens=4)
        assert [call.name for call in answer.tool_calls] == ["Bash"]
        assert len(answer.events.at_ns) == len(EVENTS)
        assert answer.wire.response_bytes == len(body)
        assert answer.wire.response_encoding == encoding


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_whole_answer_says_the_same_in_every_coding_at_every_split(encoding):
    body = PACKERS[encoding](REPLY)
    headers = {**JSON, "content-encoding": encoding} if encoding else JSON
    for place in range(len(body)):
        answer = answer_to(watched(), [body[:place], body[place:]], headers=headers)
        assert answer.outcome == Outcome(status=200, finish="end_turn")
        assert answer.usage == Usage(input_tokens=7, output_tokens=4)
        assert (answer.times.first_token_ns, answer.times.first_visible_ns, answer.events) == (100, 100, None)


def test_events_have_the_time_of_the_chunk_that_completed_them():
    packer = zlib.compressobj(wbits=31)
    chunks = [packer.compress(one) + packer.flush(zlib.Z_SYNC_FLUSH) for one in EVENTS]
    answer = answer_to(watched(), chunks, headers={**SSE, "content-encoding": "gzip"})
    assert answer.events.at_ns == (20, 21, 22, 23, 24, 25)
    assert answer.tool_calls == (ToolCall(name="Bash", end_ns=23),)


def test_times_are_those_of_the_wire():
    times = answer_to(watched(), EVENTS).times
    assert (times.request_ns, times.forwarded_ns, times.headers_ns) == (10, 11, 12)
    assert (times.first_byte_ns, times.first_event_ns, times.first_token_ns) == (20, 20, 21)
    assert (times.first_visible_ns, times.last_token_ns, times.end_ns) == (21, 21, 100)


def test_the_first_byte_is_that_of_the_wire_though_nothing_can_be_decoded_yet():
    body = gzip.compress(b"".join(EVENTS), mtime=0)
    times = answer_to(watched(), [b"", body[:1], body[1:]], headers={**SSE, "content-encoding": "gzip"}).times
    assert (times.first_byte_ns, times.first_event_ns) == (21, 22)


def test_how_long_connecting_took_is_kept():
    assert answer_to(watched(), EVENTS).wire.connect_ns == 5


# Ends


@pytest.mark.parametrize(
    ("how", "error", "ended_by", "end_ns"),
    [
        ("complete", "cut", "server", 100),
        ("server", "cut", "server", 100),
        ("client", "client_abort", "client", 100),
        ("unrecorded", "unrecorded", "recorder", None),
    ],
)
def test_the_end_of_half_a_stream_is_told(how, error, ended_by, end_ns):
    answer = answer_to(watched(), EVENTS[:2], how=how)
    assert answer.outcome == Outcome(status=200, error=error, ended_by=ended_by)
    assert answer.times.end_ns == end_ns
    assert answer.usage.input_tokens == 7


@pytest.mark.parametrize(
    ("how", "ended_by", "end_ns"),
    [("client", "client", 100), ("server", "server", 100), ("unrecorded", "server", 25)],
)
def test_after_the_protocols_own_end_an_answer_is_complete_whoever_hangs_up(how, ended_by, end_ns):
    answer = answer_to(watched(), EVENTS, how=how)
    assert answer.outcome == Outcome(status=200, finish="tool_use", ended_by=ended_by)
    assert answer.times.end_ns == end_ns


@pytest.mark.parametrize(
    ("how", "error", "ended_by"),
    [
        ("connect", "connect", "server"),
        ("client", "client_abort", "client"),
        ("server", "cut", "server"),
        ("unrecorded", "unrecorded", "recorder"),
    ],
)
def test_an_exchange_without_headers_has_its_end_only(how, error, ended_by):
    answer = watched().on_end(how, 50)
    assert answer.outcome == Outcome(error=error, ended_by=ended_by)
    assert answer.times.headers_ns is None


def test_an_error_event_is_told_from_a_cut():
    answer = answer_to(
        watched(), [*EVENTS[:2], event({"type": "error", "error": {"message": "no"}})], how="server"
    )
    assert answer.outcome.error == "error_event"


@pytest.mark.parametrize(
    ("status", "error"), [(429, "refused"), (503, "refused"), (529, "refused"), (400, "http_error")]
)
def test_a_status_of_error_is_the_outcome_and_its_wait_is_kept(status, error):
    answer = answer_to(watched(), [b'{"error":{}}'], headers={**JSON, "retry-after": "3"}, status=status)
    assert answer.outcome == Outcome(status=status, error=error, retry_after_ns=3_000_000_000)
    assert (answer.tool_calls, answer.times.first_token_ns) == ((), None)


def test_what_nothing_is_known_of_has_unknown_tool_calls():
    assert watched().on_end("unrecorded", 50).tool_calls is None


@pytest.mark.parametrize("body", [b"not gzip at all", gzip.compress(b"".join(EVENTS), mtime=0)[:-40]])
def test_an_answer_that_cannot_be_decoded_is_unrecorded(body):
    call = watched()
    answer = answer_to(call, [body], headers={**SSE, "content-encoding": "gzip"})
    assert (answer.outcome.error, answer.outcome.ended_by) == ("unrecorded", "recorder")
    assert call.is_undecodable
    assert answer.times.end_ns == 100


def test_an_unknown_coding_leaves_the_status():
    answer = answer_to(watched(), [b"??"], headers={**JSON, "content-encoding": "snappy"}, status=429)
    assert answer.outcome == Outcome(status=429, error="refused")
    assert answer.wire.response_encoding is None


def test_a_finish_that_is_no_word_is_not_kept():
    last = event({"type": "message_delta", "delta": {"stop_reason": "because I said so"}})
    assert answer_to(watched(), [*EVENTS[:4], last, EVENTS[5]]).outcome.finish is None


def test_events_that_cannot_be_read_are_counted():
    call = watched()
    answer_to(call, [b"data: {\n\n", *EVENTS])
    assert call.unparsed == 1


# Routes of their own


def test_a_count_of_tokens_has_usage_and_no_tokens_of_its_own():
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    call = watched(body, "/v1/messages/count_tokens")
    answer = answer_to(call, [b'{"input_tokens":42}'], headers=JSON)
    assert answer.outcome == Outcome(status=200)
    assert answer.usage == Usage(input_tokens=42)
    assert (answer.times.first_token_ns, answer.times.last_token_ns, answer.times.end_ns) == (None, None, 100)


def test_a_compacted_history_is_an_answer():
    reply = {
        "output": [{"type": "compaction", "encrypted_content": "s"}],
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    answer = answer_to(watched(INPUT, "/v1/responses/compact"), [orjson.dumps(reply)], headers=JSON)
    assert answer.outcome == Outcome(status=200)
    assert answer.usage == Usage(input_tokens=5, output_tokens=2)


# Answers that may be continued

ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
DONE = event({"type": "response.output_item.done", "output_index": 0, "item": ITEM})
COMPLETED = event({"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}})
STORED_REPLY = orjson.dumps({"id": "resp_1", "status": "completed", "output": [ITEM, "?"]})


def continued(body, chunks, headers):
    call = watched(body, "/v1/responses")
    answer_to(call, chunks, headers=headers)
    return call.continued_by()


def test_a_stored_answer_may_be_continued():
    assert continued({**INPUT, "stream": True}, [DONE, COMPLETED], SSE) == ("resp_1", [ITEM])
    assert continued(INPUT, [STORED_REPLY], JSON) == ("resp_1", [ITEM])


def test_an_answer_that_is_not_stored_is_not_continued():
    body = {**INPUT, "store": False}
    assert continued({**body, "stream": True}, [DONE, COMPLETED], SSE) is None
    assert continued(body, [STORED_REPLY], JSON) is None


def test_a_cut_answer_and_one_without_id_are_not_continued():
    assert continued({**INPUT, "stream": True}, [DONE], SSE) is None
    assert continued(INPUT, [orjson.dumps({"output": []})], JSON) is None


@pytest.mark.parametrize("answer", [b"".join(EVENTS), b"{", b'{"content": []}'])
def test_a_call_that_is_over_is_gone_at_once(answer):
    """It holds a prompt of megabytes, and cycles of references are looked for seldom."""
    call = watched()
    call.on_headers(
        200, {"content-type": "application/json" if answer[:1] == b"{" else "text/event-stream"}, 30
    )
    call.on_chunk(answer, 40)
    call.on_end("complete", 50)
    left = weakref.ref(call)
    gc.disable()
    try:
        del call
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("status", "expected"), [(99, None), (1000, None), (100, 100), (999, 999)])
def test_a_status_that_is_none_is_not_known(status, expected):
    call = watched()
    call.on_headers(status, {}, 30)
    assert call.on_end("complete", 50).outcome.status == expected


def test_headers_behind_the_first_byte_are_passed_over():
    call = watched()
    call.on_chunk(b"x", 20)
    call.on_headers(200, {}, 30)
    assert call.on_end("server", 40).times.headers_ns is None
