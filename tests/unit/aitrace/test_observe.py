"""What an exchange shows about a call. Times are small numbers, so that each can be told from every other."""

from dataclasses import replace

import orjson
import pytest

from aitrace.observe import ResponseObserver, retry_after_ns
from aitrace.protocols import PROTOCOLS
from aitrace.protocols.anthropic import read_token_count
from aitrace.schema import Events, ToolCall, Usage

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"Content-Type": "application/json"}


def data(payload):
    return b"data: " + (payload if isinstance(payload, bytes) else orjson.dumps(payload)) + b"\n\n"


def observe(name, chunks, *, status=200, headers=SSE, streamed=True, end=None, **keep):
    """Headers at 10, chunks at their times, the end at 1000 unless `end` says otherwise."""
    observer = ResponseObserver(PROTOCOLS[name], streamed=streamed, **keep)
    observer.on_headers(status, headers, 10)
    for at_ns, chunk in chunks:
        observer.on_chunk(chunk, at_ns)
    return observer.on_end(*(end or (1000,)))


def text(text):
    return data({"choices": [{"delta": {"content": text}}]})


def thought(text):
    return data({"choices": [{"delta": {"reasoning": text}}]})


FINISH = data({"choices": [{"delta": {}, "finish_reason": "stop"}]})
USAGE = data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
DONE = data(b"[DONE]")


# Points in time


CHAT = [
    (20, b": keep-alive\n\n"),
    (30, data({"choices": [{"delta": {"role": "assistant", "content": ""}}]})),
    (40, thought("hm")),
    (50, text("Hel")),
    (90, text("lo")),
    (100, FINISH),
    (110, USAGE + DONE),
]
ANTHROPIC = [
    (20, b"event: ping\n"),
    (30, data({"type": "ping"}) + data({"type": "message_start", "message": {"usage": {"input_tokens": 9}}})),
    (40, data({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}})),
    (50, data({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hel"}})),
    (90, data({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "lo"}})),
    (
        100,
        data({"type": "message_delta", "delta": {"stop_reason": "stop"}, "usage": {"output_tokens": 3}}),
    ),
    (110, data({"type": "message_stop"})),
]
RESPONSES = [
    (20, b"event: response.created\n"),
    (30, data({"type": "response.created", "response": {}})),
    (40, data({"type": "response.reasoning_text.delta", "delta": "hm"})),
    (50, data({"type": "response.output_text.delta", "delta": "Hel"})),
    (90, data({"type": "response.output_text.delta", "delta": "lo"})),
    (
        110,
        data(
            {
                "type": "response.completed",
                "response": {"status": "stop", "usage": {"input_tokens": 9, "output_tokens": 3}},
            }
        ),
    ),
]
STREAMS = {"chat": CHAT, "anthropic": ANTHROPIC, "responses": RESPONSES}
by_protocol = pytest.mark.parametrize("name", STREAMS)


@by_protocol
def test_first_byte_event_token_and_visible_token_are_four_times(name):
    seen = observe(name, STREAMS[name])
    firsts = (seen.first_byte_ns, seen.first_event_ns, seen.first_token_ns, seen.first_visible_ns)
    assert firsts == (20, 30, 40, 50)
    assert (seen.headers_ns, seen.last_token_ns, seen.end_ns) == (10, 90, 1000)


@by_protocol
def test_a_whole_stream_has_no_error(name):
    seen = observe(name, STREAMS[name], keep_text=True)
    assert (seen.status, seen.error, seen.error_text, seen.finish) == (200, None, None, "stop")
    assert (seen.usage, seen.text, seen.token_events) == (
        Usage(input_tokens=9, output_tokens=3),
        "Hello",
        3,
    )


@by_protocol
def test_chunks_of_one_byte_change_no_count(name):
    whole = b"".join(chunk for _, chunk in STREAMS[name])
    seen = observe(name, [(7, whole[i : i + 1]) for i in range(len(whole))], keep_timeline=True)
    assert seen == observe(name, [(7, whole)], keep_timeline=True)
    assert seen.response_bytes == len(whole)


@by_protocol
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_stream_that_just_stops_is_cut(name, part):
    whole = b"".join(chunk for _, chunk in STREAMS[name])
    stop = whole.index(b"Hel") + int((whole.rindex(b"stop") - whole.index(b"Hel")) * part)
    seen = observe(name, [(20, whole[:stop])])
    assert seen.error == "cut"


def test_empty_chunks_are_no_first_byte():
    assert observe("chat", [(15, b""), *CHAT]).first_byte_ns == 20


# Counts


def test_events_tokens_and_bytes_are_counted():
    seen = observe("chat", [*CHAT[:-1], (105, data(b"{")), (106, b"error: x\n"), CHAT[-1]])
    assert (seen.events, seen.token_events, seen.unparsed_events, seen.unparsed_lines) == (8, 3, 1, 1)
    assert seen.response_bytes == sum(len(chunk) for _, chunk in CHAT) + len(data(b"{")) + len(b"error: x\n")


def test_the_longest_stall_is_the_longest_silence_between_tokens():
    assert observe("chat", CHAT, end=(120,)).longest_stall_ns == 40


def test_keep_alives_do_not_break_a_stall():
    chunks = [(20, text("a")), (50, b": ping\n\n"), (80, text("b")), (90, FINISH)]
    assert observe("chat", chunks, end=(100,)).longest_stall_ns == 60


def test_silence_before_a_late_end_is_a_stall():
    assert observe("chat", [(20, text("a"))], end=(500, "timeout")).longest_stall_ns == 480


def test_without_a_token_there_is_no_stall():
    assert observe("chat", [(20, FINISH)]).longest_stall_ns is None


def test_the_timeline_has_time_and_data_size_of_every_event():
    chunks = [(20, text("a") + b": ping\n\n"), (30, DONE)]
    seen = observe("chat", chunks, keep_timeline=True)
    assert seen.timeline == Events(at_ns=(20, 30), size_bytes=(len(text("a")) - len(b"data: \n\n"), 6))


def test_timeline_and_text_are_kept_only_if_asked_for():
    seen = observe("chat", CHAT)
    assert (seen.timeline, seen.text) == (None, None)
    assert observe("chat", [(20, b"{}")], headers=JSON, keep_timeline=True).timeline is None


def test_tool_calls_have_the_time_their_block_ended():
    def call(index, name):
        return data({"choices": [{"delta": {"tool_calls": [{"index": index, "function": {"name": name}}]}}]})

    seen = observe("chat", [(20, call(0, "bash")), (30, call(1, "")), (40, FINISH)])
    assert seen.tool_calls == (ToolCall(name="bash", end_ns=30), ToolCall(name=None, end_ns=40))


def test_a_tool_call_in_the_stream_of_messages_ends_with_its_block():
    start = {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "name": "Bash"},
    }
    seen = observe("anthropic", [(20, data(start)), (30, data({"type": "content_block_stop", "index": 1}))])
    assert seen.tool_calls == (ToolCall(name="Bash", end_ns=30),)


# How it ended


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, "refused"),
        (503, "refused"),
        (529, "refused"),
        (400, "http_error"),
        (404, "http_error"),
        (500, "http_error"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_error_statuses_are_refusals_or_http_errors(status, error, streamed):
    body = b'{"error":{"message":"full"}}'
    seen = observe("chat", [(20, body[:9]), (21, body[9:])], status=status, headers=JSON, streamed=streamed)
    assert (seen.status, seen.error, seen.error_text) == (status, error, "full")
    assert (seen.first_byte_ns, seen.first_token_ns, seen.finish) == (20, None, None)


def test_an_error_status_outranks_a_broken_connection():
    assert observe("chat", [], status=503, end=(50, "cut", "reset")).error == "refused"
    assert observe("chat", [], status=503, end=(50, "cut", "reset")).error_text == "reset"


def test_an_error_page_that_never_ends_is_kept_only_at_its_start():
    observer = ResponseObserver(PROTOCOLS["chat"], streamed=True)
    observer.on_headers(500, SSE, 10)
    for at_ns in range(100):
        observer.on_chunk(b"x" * 10_000, at_ns)
    assert sum(map(len, observer._body)) == 70_000
    seen = observer.on_end(200)
    assert (seen.error_text, seen.response_bytes) == ("x" * 200, 1_000_000)


def test_an_error_event_is_an_error_although_the_status_was_200():
    refused = data({"error": {"message": "full", "code": 503}})
    seen = observe("chat", [(20, refused), (21, DONE)])
    assert (seen.status, seen.error, seen.error_text) == (200, "error_event", "full (503)")


def test_error_texts_are_cut_to_200_characters():
    seen = observe("chat", [(20, data({"error": {"message": "x" * 300}}))])
    assert seen.error_text == "x" * 200


def test_an_error_event_outranks_the_break_that_follows_it():
    error = data({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    seen = observe("anthropic", [(20, error)], end=(30, "cut", "reset"))
    assert (seen.error, seen.error_text) == ("error_event", "Overloaded (overloaded_error)")


@pytest.mark.parametrize("error", ["cut", "timeout", "client_abort"])
def test_what_the_caller_saw_is_the_error_of_an_unfinished_stream(error):
    seen = observe("anthropic", ANTHROPIC[:-1], end=(120, error, "why"))
    assert (seen.error, seen.error_text) == (error, "why")


@by_protocol
def test_a_client_that_leaves_after_the_protocols_end_had_it_all(name):
    seen = observe(name, STREAMS[name], end=(120, "client_abort", "gone"))
    assert (seen.error, seen.error_text) == (None, None)


def test_a_chat_stream_may_end_cleanly_after_its_finish_reason():
    chunks = [(20, text("a")), (30, FINISH)]
    assert observe("chat", chunks).error is None
    assert observe("chat", chunks, end=(40, "cut", None)).error == "cut"


def test_messages_need_their_own_end_even_after_a_stop_reason():
    seen = observe("anthropic", ANTHROPIC[:-1])
    assert (seen.error, seen.finish) == ("cut", "stop")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("chat", b"<html>\nnot found\n</html>"),
        ("chat", b"".join(chunk for _, chunk in ANTHROPIC)),
        ("anthropic", b"".join(chunk for _, chunk in RESPONSES)),
        ("responses", b"".join(chunk for _, chunk in ANTHROPIC[1:])),
        ("anthropic", data({"choices": []})),
    ],
)
def test_a_stream_of_something_else_is_malformed(name, body):
    body = body.replace(b'"ping"', b'"pong"')
    assert observe(name, [(20, body)], headers={"content-type": "text/html"}).error == "malformed"


def test_a_malformed_stream_shows_its_first_line():
    seen = observe("chat", [(20, b"<html>\nnot found\n")], headers={})
    assert seen.error_text == "<html>"


def test_an_answer_without_a_byte_is_cut():
    assert observe("chat", []).error == "cut"
    assert observe("chat", [], headers=JSON).error == "cut"


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([], "an empty answer"),
        ([b'data: {"type":"ping"}\n\n'], "1 event, none of the chat protocol"),
        ([b'data: {"type":"ping"}\n\n'] * 2, "2 events, none of the chat protocol"),
        ([b"<html></html>"], "a body that is no stream of events"),
        ([b"\x1f\x8b\x08\n\n"], "a compressed body, which was not asked for"),
        ([text("a")], "the stream ended before the answer did"),
    ],
)
def test_what_came_instead_of_an_answer_is_said(chunks, said):
    assert observe("chat", [(20, chunk) for chunk in chunks]).error_text == said


@pytest.mark.parametrize("name", ["anthropic", "responses"])
def test_a_stream_of_the_chat_protocol_is_none_of_another_for_all_its_end_mark(name):
    seen = observe(name, [(20, text("a") + b"data: [DONE]\n\n")])
    assert (seen.error, seen.error_text) == ("malformed", f"2 events, none of the {name} protocol")


def test_an_event_that_cannot_be_read_makes_no_other_answer_of_a_cut_one():
    assert observe("chat", [(20, text("a") + data(b"5"))]).error == "cut"


@pytest.mark.parametrize("status", [200, 502])
def test_a_compressed_body_is_named_and_not_shown(status):
    seen = observe("chat", [(20, b"\x1f\x8b\x08")], status=status, headers=JSON, streamed=False)
    assert seen.error_text == "a compressed body, which was not asked for"


@pytest.mark.parametrize("headers", [SSE, JSON])
def test_a_status_that_answers_nothing_is_malformed(headers):
    assert observe("chat", [], status=204, headers=headers).error == "malformed"


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("https://me:pw@login.example:8443/in?token=1#x", "redirected to https://login.example:8443/in"),
        ("/v1/other?key=1", "redirected to /v1/other"),
        ("http://[", "redirected to a URL that cannot be read"),
    ],
)
def test_a_redirect_says_where_it_leads_without_what_may_be_a_secret(location, text):
    seen = observe("chat", [(20, b"<html>")], status=302, headers={**SSE, "Location": location})
    assert (seen.error, seen.error_text) == ("http_error", text)


def test_a_redirect_to_nowhere_shows_its_body():
    seen = observe("chat", [(20, b"Moved")], status=301)
    assert (seen.error, seen.error_text) == ("http_error", "Moved")


def feed_without_end(observer, first):
    """Pieces of 1 MiB until the observer has had enough; at most 20."""
    observer.on_chunk(first, 20)
    for pieces in range(20):
        if observer.is_spoilt:
            return pieces
        observer.on_chunk(b"x" * (1 << 20), 30)
    raise AssertionError("never enough")


@pytest.mark.parametrize(("headers", "what"), [(SSE, "an event"), (JSON, "a body")])
def test_an_answer_without_end_is_malformed_and_its_memory_bounded(headers, what):
    observer = ResponseObserver(PROTOCOLS["chat"], streamed=True)
    observer.on_headers(200, headers, 10)
    assert 15 <= feed_without_end(observer, b"data: ") <= 17
    seen = observer.on_end(1000, "malformed", "the answer has no end")
    assert (seen.error, seen.error_text) == ("malformed", f"{what} of more than 16 MiB")


def test_a_stream_of_short_events_is_never_too_long():
    observer = ResponseObserver(PROTOCOLS["chat"], streamed=True)
    observer.on_headers(200, SSE, 10)
    for _ in range(20):
        observer.on_chunk(b"data: " + b" " * (1 << 20) + b"\n\n", 20)
    assert not observer.is_spoilt


SIGNALS = frozenset({"x-smg-routed-worker-id"})
NVEXT = {"nvext": {"worker_id": {"decode_worker_id": 4}}}


def test_signals_come_from_headers_and_events():
    chunks = [(20, text("Hi")), (30, FINISH), (40, data({"choices": [], **NVEXT}) + DONE)]
    headers = {**SSE, "X-SMG-Routed-Worker-Id": "w1", "X-Other": "2"}
    seen = observe("chat", chunks, headers=headers, signal_headers=SIGNALS)
    assert seen.signals == {"x-smg-routed-worker-id": "w1", "nvext.worker_id.decode_worker_id": "4"}


def test_signals_come_from_a_body_in_one_piece():
    body = orjson.dumps({**orjson.loads(REPLY), **NVEXT})
    seen = observe("chat", [(20, body)], headers=JSON, signal_headers=SIGNALS)
    assert (seen.error, seen.signals) == (None, {"nvext.worker_id.decode_worker_id": "4"})


def test_signals_are_kept_only_if_asked_for():
    seen = observe("chat", [(20, data(NVEXT))], headers={**SSE, "X-SMG-Routed-Worker-Id": "w1"})
    assert seen.signals == {}


def test_headers_are_kept_in_full_for_who_wants_to_send_them_back():
    observer = ResponseObserver(PROTOCOLS["chat"], streamed=True, signal_headers=SIGNALS)
    observer.on_headers(429, {"X-SMG-Routed-Worker-Id": "w" * 900}, 10)
    assert observer.kept_headers == {"x-smg-routed-worker-id": "w" * 900}
    assert observer.on_end(20).signals == {"x-smg-routed-worker-id": "w" * 200}


def test_without_headers_the_callers_error_stands():
    observer = ResponseObserver(PROTOCOLS["chat"], streamed=True)
    seen = observer.on_end(50, "connect", "refused")
    assert (seen.status, seen.headers_ns, seen.error, seen.error_text) == (None, None, "connect", "refused")
    assert ResponseObserver(PROTOCOLS["chat"], streamed=False).on_end(50).error == "cut"


# Answers without a stream


REPLY = orjson.dumps(
    {
        "choices": [
            {
                "message": {"content": "Hello", "tool_calls": [{"function": {"name": "bash"}}]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
    }
)


@pytest.mark.parametrize(
    ("headers", "streamed"), [(JSON, True), ({}, False), ({"content-type": "application/x+JSON"}, True)]
)
def test_an_answer_in_one_body_has_its_tokens_at_the_end(headers, streamed):
    seen = observe("chat", [(20, REPLY[:30]), (30, REPLY[30:])], headers=headers, streamed=streamed)
    assert (seen.error, seen.finish, seen.first_byte_ns, seen.first_event_ns) == (None, "stop", 20, None)
    assert (seen.first_token_ns, seen.first_visible_ns, seen.last_token_ns) == (1000, 1000, 1000)
    assert (seen.events, seen.token_events, seen.longest_stall_ns) == (0, 0, None)


def test_an_answer_in_one_body_gives_usage_tools_and_text():
    seen = observe("chat", [(20, REPLY)], headers=JSON, keep_text=True)
    assert seen.usage == Usage(input_tokens=9, output_tokens=3)
    assert (seen.tool_calls, seen.text) == ((ToolCall(name="bash"),), "Hello")


def test_an_answer_of_tool_calls_alone_shows_nothing():
    body = orjson.dumps({"content": [{"type": "tool_use", "name": "Bash"}]})
    seen = observe("anthropic", [(20, body)], headers=JSON)
    assert (seen.first_token_ns, seen.first_visible_ns) == (1000, None)


def test_the_content_type_outranks_what_was_asked_for():
    seen = observe("chat", CHAT, streamed=False)
    assert (seen.first_token_ns, seen.token_events) == (40, 3)


@pytest.mark.parametrize(
    ("body", "end", "error", "text"),
    [
        (REPLY, (50, "client_abort", "gone"), None, None),
        (REPLY[:-1], (50, "cut", "reset"), "cut", "reset"),
        (b"{}", (50,), "malformed", "choices: expected a list, got None"),
        (b'{"error":{"message":"broken"}}', (50,), "error_event", "broken"),
        (b'{"error":{"message":"full","code":503}}', (50,), "error_event", "full (503)"),
        (b'{"error":true}', (50,), "error_event", "an error without a message"),
    ],
)
def test_a_body_is_whole_broken_off_or_malformed(body, end, error, text):
    seen = observe("chat", [(20, body)], headers=JSON, end=end)
    assert (seen.error, seen.error_text) == (error, text)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("x" * 194, "x" * 194 + " (503)"),
        ("x" * 195, "x" * 194 + " (503)"),
        ("x" * 5000, "x" * 194 + " (503)"),
    ],
)
def test_the_code_of_an_error_in_a_stream_outlasts_the_cut_of_its_message(message, expected):
    event = data({"error": {"message": message, "code": 503}})
    assert observe("chat", [(20, event)]).error_text == expected


def test_the_text_of_an_error_without_a_code_is_cut_at_200_characters():
    body = orjson.dumps({"error": {"message": "x" * 300}})
    assert observe("chat", [(20, body)], status=500, headers=JSON).error_text == "x" * 200


# Retry-After

NOW = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("value", "date", "wait_ns"),
    [
        (None, None, None),
        ("3", None, 3_000_000_000),
        ("0.5", None, 500_000_000),
        ("0", None, 0),
        ("-3", None, 0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", NOW, 30_000_000_000),
        ("Wed, 21 Oct 2026 07:28:30 -0000", NOW, 30_000_000_000),
        ("Wed, 21 Oct 2026 07:27:00 GMT", NOW, 0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", None, None),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "soon", None),
        ("soon", NOW, None),
        ("", NOW, None),
        ("nan", NOW, None),
        ("inf", NOW, None),
        ("1e300", NOW, None),
        ("Wed, 21 Oct 2026 99999999999999999999:28:30 GMT", NOW, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value, date, wait_ns):
    assert retry_after_ns(value, date) == wait_ns


def test_retry_after_is_read_from_headers_in_any_case():
    seen = observe("chat", [], status=429, headers={"RETRY-AFTER": "3", "X-Other": "4"})
    assert seen.retry_after_ns == 3_000_000_000
    dated = observe("chat", [], status=429, headers={"retry-after": NOW, "DATE": NOW})
    assert dated.retry_after_ns == 0


def test_two_observations_differ_only_in_what_was_asked_for():
    kept = observe("chat", CHAT, keep_text=True, keep_timeline=True)
    assert replace(kept, text=None, timeline=None) == observe("chat", CHAT)


@pytest.mark.parametrize(
    ("value_ms", "value", "wait_ns"),
    [
        ("250", "3", 250_000_000),
        ("0.5", None, 500_000),
        ("soon", "3", 3_000_000_000),
        ("soon", None, None),
        (None, "3", 3_000_000_000),
    ],
)
def test_a_wait_in_milliseconds_comes_first(value_ms, value, wait_ns):
    assert retry_after_ns(value, None, value_ms) == wait_ns


def test_a_wait_in_milliseconds_is_read_from_headers():
    seen = observe("chat", [], status=429, headers={"Retry-After-Ms": "250", "Retry-After": "1"})
    assert seen.retry_after_ns == 250_000_000


# Answers of other carriers


def test_messages_of_a_websocket_are_events():
    observer = ResponseObserver(PROTOCOLS["responses"], streamed=True, keep_timeline=True)
    delta = orjson.dumps({"type": "response.output_text.delta", "output_index": 0, "delta": "x"})
    end = orjson.dumps({"type": "response.completed", "response": {"id": "r", "status": "completed"}})
    observer.on_event(delta, 20)
    observer.on_event(end, 30)
    seen = observer.on_end(31)
    assert (seen.error, seen.status, seen.headers_ns, seen.finish) == (None, None, None, "completed")
    assert (seen.first_byte_ns, seen.first_token_ns, seen.events) == (20, 20, 2)
    assert seen.timeline == Events(at_ns=(20, 30), size_bytes=(len(delta), len(end)))
    assert seen.response_bytes == len(delta) + len(end)


def test_an_answer_that_is_no_stream_may_be_read_in_another_way():
    seen = observe(
        "anthropic",
        [(20, b'{"input_tokens":42}')],
        headers=JSON,
        streamed=False,
        read_reply=read_token_count,
    )
    assert (seen.error, seen.usage) == (None, Usage(input_tokens=42))


def test_what_the_events_said_can_be_asked_for():
    observer = ResponseObserver(PROTOCOLS["chat"], streamed=True)
    observer.on_chunk(text("Hel"), 20)
    assert observer.reader.text == ["Hel"]
