"""What real engines do that a client may take for something else, one trap each, played by a server with a script.

vLLM, SGLang, llama.cpp, Dynamo and SMG differ in when headers come, in what comes before the first token, in how many
tokens an event has, and in how a stream ends; docs/engines-real.md says who does what.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.outcomes import outcome_of
from aitrace.results import CallResult
from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import make_trace
from tests.e2e.http_server import Quiet, served

Piece = bytes | float
"""What is written, or how long nothing is, s."""
Script = Callable[[str], Iterable[Piece]]
"""All of an answer to a call, from its status line on, in one protocol."""

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
PROMPT_TOKENS = 300
GUESS_TOKENS = 480
OUTPUT_TOKENS = 30
EVENTS = 10
PAUSE_S = 0.3
LONG_NS = 150_000_000
"""So long nothing takes here but a pause; half of one, so that a busy machine fails no test."""
PROTOCOLS = ["chat", "responses", "anthropic"]


def events(*payloads: dict) -> bytes:
    return b"".join(b"data: " + orjson.dumps(payload) + b"\n\n" for payload in payloads)


def named(*payloads: dict) -> bytes:
    """Events with their type as name, as Responses and Messages have them."""
    return b"".join(b"event: " + one["type"].encode() + b"\n" + events(one) for one in payloads)


def preface(protocol: str) -> bytes:
    """What engines send without a token: at once, or with the first one."""
    match protocol:
        case "chat":
            return events({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        case "responses":
            kinds = ("response.created", "response.in_progress")
            return named(
                *({"type": kind, "response": {"id": "r", "status": "in_progress"}} for kind in kinds)
            )
        case _:
            usage = {"input_tokens": GUESS_TOKENS, "output_tokens": 0}
            block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            return named({"type": "message_start", "message": {"usage": usage}}, block)


def tokens(protocol: str) -> bytes:
    """An answer in fewer events than tokens."""
    text = " a b c"
    match protocol:
        case "chat":
            return events({"choices": [{"index": 0, "delta": {"content": text}}]}) * EVENTS
        case "responses":
            return named({"type": "response.output_text.delta", "item_id": "m", "delta": text}) * EVENTS
        case _:
            delta = {"type": "text_delta", "text": text}
            return named({"type": "content_block_delta", "index": 0, "delta": delta}) * EVENTS


def finish(protocol: str) -> bytes:
    """The end that the protocol demands, with the usage."""
    counted = {"input_tokens": PROMPT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    match protocol:
        case "chat":
            usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": OUTPUT_TOKENS}
            last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
            return events(last, {"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
        case "responses":
            response = {"id": "r", "status": "completed", "usage": counted}
            return named({"type": "response.completed", "response": response})
        case _:
            delta = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": counted}
            return named({"type": "content_block_stop", "index": 0}, delta, {"type": "message_stop"})


def whole(protocol: str) -> list[Piece]:
    return [HEADERS, preface(protocol), tokens(protocol), finish(protocol)]


@contextmanager
def server(protocol: str, script: Script) -> Iterator[str]:
    """Answers the probe well and every call by the script, then closes the connection."""
    lock = threading.Lock()
    asked = []

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                asked.append(self.path)
                is_probe = len(asked) == 1
            for piece in whole(protocol) if is_probe else script(protocol):
                if isinstance(piece, float):
                    time.sleep(piece)
                else:
                    self.wfile.write(piece)

    with served(Handler) as url:
        yield url


def played(tmp_path, protocol: str, script: Script) -> CallResult:
    """The result of a call that is answered so."""
    trace = tmp_path / "trace.aitrace"
    write_trace(trace, make_trace(sessions=1, calls=1))
    with server(protocol, script) as url:
        options = ["--protocol", protocol, "--tokens-per-word", "1", "--retries", "none"]
        target = ["--url", url, "-o", str(tmp_path / "run")]
        result = CliRunner().invoke(main, ["replay", str(trace), *target, *options], catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    (call,) = read_run(tmp_path / "run").calls
    return call


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_before_the_queue_are_no_token(tmp_path, protocol):
    def early(protocol: str) -> list[Piece]:
        return [HEADERS, PAUSE_S, *whole(protocol)[1:]]

    call = played(tmp_path, protocol, early)
    assert call.first_token_ns - call.headers_ns > LONG_NS
    assert call.error is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_after_the_queue_show_the_wait_and_the_first_token_holds_it(tmp_path, protocol):
    def late(protocol: str) -> list[Piece]:
        return [PAUSE_S, *whole(protocol)]

    call = played(tmp_path, protocol, late)
    assert call.headers_ns - call.sent_ns > LONG_NS
    assert call.first_token_ns >= call.headers_ns


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_comes_before_prefill_is_an_event_and_no_token(tmp_path, protocol):
    def before_prefill(protocol: str) -> list[Piece]:
        return [HEADERS, preface(protocol), PAUSE_S, tokens(protocol), finish(protocol)]

    call = played(tmp_path, protocol, before_prefill)
    assert call.first_token_ns - call.first_event_ns > LONG_NS
    assert call.first_visible_ns == call.first_token_ns


@pytest.mark.parametrize(
    ("protocol", "mark"),
    [
        *((protocol, mark) for protocol in PROTOCOLS for mark in (b":\n\n", b": ping\n\n")),
        ("anthropic", b'event: ping\ndata: {"type": "ping"}\n\n'),
    ],
)
def test_what_keeps_a_connection_alive_is_no_token_and_no_error(tmp_path, protocol, mark):
    def waiting(protocol: str) -> list[Piece]:
        kept = [HEADERS, mark, PAUSE_S, mark, preface(protocol)]
        return [*kept, tokens(protocol), mark, finish(protocol)]

    call = played(tmp_path, protocol, waiting)
    assert call.first_token_ns - call.first_byte_ns > LONG_NS
    assert (call.error, call.token_events, call.unparsed_events) == (None, EVENTS, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tokens_are_those_of_the_usage_and_not_the_events(tmp_path, protocol):
    call = played(tmp_path, protocol, whole)
    assert (call.usage.output_tokens, call.token_events) == (OUTPUT_TOKENS, EVENTS)


def test_prompt_tokens_guessed_at_the_start_of_a_message_give_way_to_those_at_its_end(tmp_path):
    assert str(GUESS_TOKENS).encode() in preface("anthropic")
    assert played(tmp_path, "anthropic", whole).usage.input_tokens == PROMPT_TOKENS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_inside_a_stream_of_status_200_is_a_refusal(tmp_path, protocol):
    def burst(_protocol: str) -> list[Piece]:
        error = {"message": "too many requests in queue", "type": "Service Unavailable", "code": 503}
        return [HEADERS, events({"error": error}), b"data: [DONE]\n\n"]

    call = played(tmp_path, protocol, burst)
    assert (call.status, call.error, outcome_of(call)) == (200, "error_event", "refused_in_stream")
    assert call.error_text == "too many requests in queue (503)"


def test_a_refusal_that_another_error_quotes_is_a_refusal(tmp_path):
    # What vLLM 0.32.0 sends in the stream of a message, since it cannot read its own refusal.
    text = "2 validation errors\nmodel\n  Field required [input_value={'error': {'message': 'Th...am': None, 'code': 503}}]"

    def quoted(_protocol: str) -> list[Piece]:
        return [HEADERS, named({"type": "error", "error": {"type": "internal_error", "message": text}})]

    assert outcome_of(played(tmp_path, "anthropic", quoted)) == "refused_in_stream"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stream_that_ends_without_its_finish_is_cut_however_cleanly_it_ends(tmp_path, protocol):
    call = played(tmp_path, protocol, lambda protocol: whole(protocol)[:-1])
    assert (call.error, call.finish, call.token_events) == ("cut", None, EVENTS)


@pytest.mark.parametrize("protocol", ["responses", "anthropic"])
def test_an_end_mark_of_another_protocol_after_the_end_changes_nothing(tmp_path, protocol):
    call = played(tmp_path, protocol, lambda protocol: [*whole(protocol), b"data: [DONE]\n\n"])
    assert (call.error, call.unparsed_events, call.token_events) == (None, 0, EVENTS)
    assert call.usage.output_tokens == OUTPUT_TOKENS


@pytest.mark.parametrize("protocol", ["responses", "anthropic"])
def test_such_a_mark_alone_ends_no_stream(tmp_path, protocol):
    call = played(tmp_path, protocol, lambda protocol: [*whole(protocol)[:-1], b"data: [DONE]\n\n"])
    assert call.error == "cut"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("other", PROTOCOLS)
def test_an_answer_in_another_protocol_is_malformed_and_says_so(tmp_path, protocol, other):
    call = played(tmp_path, protocol, lambda _protocol: whole(other))
    if other == protocol:
        assert call.error is None
        return
    assert (call.error, call.token_events) == ("malformed", 0)
    assert call.error_text.endswith(f"events, none of the {protocol} protocol")
