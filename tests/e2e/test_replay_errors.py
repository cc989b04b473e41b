"""`aitrace replay` where something is wrong: with the target before the run, or with calls while it goes on."""

import gzip
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from aitrace.cli import main
from aitrace.outcomes import OUTCOME_WORDS, outcome_of
from aitrace.runstore import Run, read_run
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder, make_trace
from reports.summary import report_from_facts
from reports.tables import facts_from_run


def has_played_all(result: Result) -> bool:
    """Whether every call is complete; runs as short as these are in doubt for it."""
    is_complete = re.search(r"^calls     (\d+) of \1 complete", result.stderr, re.MULTILINE) is not None
    return is_complete and result.exit_code in (0, 1)


def replay(directory: Path, url: str, *options: str, trace: Trace | None = None) -> Result:
    path = directory / "trace.aitrace"
    write_trace(path, make_trace(sessions=1, calls=3) if trace is None else trace)
    arguments = [
        "replay",
        str(path),
        "--url",
        url,
        "-o",
        str(directory / "run"),
        "--time-scale",
        "0",
        "--retries",
        "none",
        *options,
    ]
    if "--protocol" not in options:
        arguments += ["--protocol", "chat"]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


Answer = tuple[int, str, bytes]
"""Status, content type and body."""


class Server(ThreadingHTTPServer):
    """A server whose POSTs are answered by a function of their number and body, and whose GETs are not found.

    An answer is its parts, None for a cut before any, or an iterable of the bytes to be written, after which it is cut.
    """

    daemon_threads = True
    models: bytes | None = None
    metrics: bytes | None = None

    def __init__(self, answer, *, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), Handler)
        self.answer = answer
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_arguments):
        pass  # clients that left are what some tests are about


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self):
        body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.bodies)
            self.server.bodies.append(body)
            self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = self.server.answer(number, body)
        if answer is None:  # cut before a response
            self.close_connection = True
            return
        if isinstance(answer, tuple):
            self._write(*answer)
            return
        self.close_connection = True
        for piece in answer:
            self.wfile.write(piece)

    def do_GET(self):
        if self.path == "/metrics" and self.server.metrics is not None:
            self._write(200, "text/html", self.server.metrics)
        elif self.path == "/v1/models" and self.server.models is not None:
            self._write(200, "application/json", self.server.models)
        else:
            self._write(404, "text/html", b"<html><title>404</title></html>")

    def _write(self, status: int, content_type: str, body: bytes):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


@contextmanager
def server(answer) -> Iterator[Server]:
    running = Server(answer)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def always(status: int, body: bytes, content_type: str = "application/json"):
    return lambda _number, _body: (status, content_type, body)


def stream(body: dict, *, usage: bool = True) -> bytes:
    """A whole chat answer of as many tokens as were allowed; a word is a token."""
    words = sum(len(message["content"].split()) for message in body["messages"])
    chunks = [{"choices": [{"index": 0, "delta": {"content": " a"}}]}] * body["max_tokens"]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    if usage:
        chunks.append(
            {"choices": [], "usage": {"prompt_tokens": words + 9, "completion_tokens": body["max_tokens"]}}
        )
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def good(_number: int, body: dict) -> Answer:
    return 200, "text/event-stream", stream(body)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# Before the run: one sentence with what was tried, what came back and what to do; exit 4, and nothing is written.


def assert_unusable(result: Result, directory: Path, *words: str) -> None:
    assert result.exit_code == 4, result.output
    for word in ("Error: http://127.0.0.1:", "Hint: ", *words):
        assert word in result.stderr
    assert not (directory / "run").exists()


def test_nobody_listens(tmp_path):
    result = replay(tmp_path, f"http://127.0.0.1:{free_port()}")
    assert_unusable(result, tmp_path, "cannot be reached", "Connection refused", "Start the server")


def test_a_web_site_is_no_llm_api(tmp_path):
    with server(always(404, b"<html>Not Found</html>", "text/html")) as target:
        result = replay(tmp_path, target.url, "--model", "m")
    assert_unusable(result, tmp_path, "/v1/chat/completions answered with status 404: an HTML page", "--url")


def test_a_page_with_status_200_is_no_llm_api(tmp_path):
    with server(always(200, b"<html>Welcome</html>", "text/html")) as target:
        result = replay(tmp_path, target.url, "--model", "m")
    assert_unusable(result, tmp_path, "status 200, but not as expected (malformed)", "--protocol")


def test_a_server_that_is_not_http(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet_twice, args=(listener,))
        thread.start()
        result = replay(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}", "--model", "m")
        thread.join()
    assert_unusable(result, tmp_path, "not as expected (malformed): not HTTP")


def greet_twice(listener: socket.socket) -> None:
    for _ in range(2):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"220 mail.example ESMTP\r\n")


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("chat", b'{"error":{"message":"Invalid API key","type":"authentication_error"}}'),
        (
            "anthropic",
            b'{"type":"error","error":{"type":"authentication_error","message":"Invalid API key"}}',
        ),
    ],
)
def test_a_missing_key(tmp_path, protocol, body):
    with server(always(401, body)) as target:
        result = replay(tmp_path, target.url, "--protocol", protocol, "--model", "m")
    assert_unusable(result, tmp_path, "status 401: Invalid API key", "--api-key-env")


def test_a_model_the_server_does_not_have(tmp_path):
    with server(always(404, b'{"error":{"message":"model nope not found"}}')) as target:
        target.models = b'{"data":[{"id":"small"},{"id":"large"}]}'
        result = replay(tmp_path, target.url, "--model", "nope")
    assert_unusable(result, tmp_path, "model nope not found", "small, large")


def test_a_request_the_server_does_not_take(tmp_path):
    with server(always(400, b'{"error":{"message":"messages: too clever"}}')) as target:
        result = replay(tmp_path, target.url, "--model", "m")
        tried = len(target.bodies)
    assert_unusable(result, tmp_path, "status 400: messages: too clever")
    assert tried == 2  # with and without the fields that force an answer's length


def test_a_server_without_room(tmp_path):
    with server(always(503, b'{"error":{"message":"overloaded"}}')) as target:
        result = replay(tmp_path, target.url, "--model", "m")
    assert_unusable(result, tmp_path, "status 503: overloaded", "no room")


@pytest.mark.parametrize(
    "piece", [b": waiting\n\n", b'data: {"choices":[{"index":0,"delta":{"content":" a"}}]}\n\n']
)
def test_a_probe_whose_answer_has_no_end_is_given_up(tmp_path, piece):
    def without_end(_number: int, _body: dict) -> Iterator[bytes]:
        yield STREAMED
        for _ in range(500):
            yield piece
            time.sleep(0.01)

    with server(without_end) as target:
        result = replay(tmp_path, target.url, "--model", "m", "--timeout", "0.5")
    assert_unusable(result, tmp_path, "gave no answer: no end within 1 s", "--timeout")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (always(500, b'{"error":{"message":"\\u001b[31mred\\u0000"}}'), "status 500: \ufffd[31mred\ufffd"),
        (always(200, gzip.compress(b"{}")), "(malformed): a compressed body, which was not asked for"),
        (always(502, gzip.compress(b"{}")), "status 502: a compressed body, which was not asked for"),
        (always(200, b"", "text/event-stream"), "(cut): an empty answer"),
        (
            always(200, b'data: {"type":"ping"}\n\n', "text/event-stream"),
            "1 event, none of the chat protocol",
        ),
    ],
)
def test_what_a_probe_found_instead_of_an_answer_is_said(tmp_path, answer, words):
    with server(answer) as target:
        result = replay(tmp_path, target.url, "--model", "m")
    assert_unusable(result, tmp_path, words)


def test_a_server_that_speaks_plain_http_where_tls_was_asked_for(tmp_path):
    with server(good) as target:
        result = replay(tmp_path, target.url.replace("http:", "https:"), "--model", "m", "--timeout", "1")
    assert (result.exit_code, "plain HTTP (http://…)" in result.stderr) == (4, True)


def test_proxies_of_the_environment_are_not_used(tmp_path, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with server(good) as target:
        assert has_played_all(replay(tmp_path, target.url))


def test_a_server_on_an_ipv6_address_is_reached(tmp_path):
    class Server6(Server):
        address_family = socket.AF_INET6

    running = Server6(good, host="::1")
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        result = replay(tmp_path, f"http://[::1]:{running.server_port}/v1/")
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
    assert has_played_all(result), result.output


def test_a_server_that_says_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = replay(tmp_path, url, "--model", "m", "--timeout", "0.2")
    assert_unusable(result, tmp_path, "gave no answer: nothing came for 0.2 s", "--timeout")


def test_a_long_prompt_that_does_not_fit(tmp_path):
    def short(number: int, body: dict) -> Answer:
        if number == 0:
            return good(number, body)
        return 400, "application/json", b'{"error":{"message":"context is 2048 tokens"}}'

    with server(short) as target:
        result = replay(tmp_path, target.url, "--model", "m")
    assert_unusable(result, tmp_path, "context is 2048 tokens")


# Wrong use: exit 2, and the target is not even asked.


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--url", "localhost:8000"), "expected one like http://127.0.0.1:8000"),
        (("--url", "http://a:b@host"), "credentials"),
        (("--api-key-env", "NO_SUCH_VARIABLE"), "'NO_SUCH_VARIABLE' is not set"),
        (("--metrics", "http://host/metrics", "--no-metrics"), "exclude each other"),
        (("--timeout", "0"), "--timeout"),
        (("--timeout", "nan"), "--timeout"),
        (("--timeout", "inf"), "--timeout"),
        (("--tokens-per-word", "nan"), "--tokens-per-word"),
        (("--max-lateness", "nan"), "--max-lateness"),
        (("--metrics", "host/metrics"), "expected one like http://"),
        (("--metrics", "http://me:secret@host/metrics"), "credentials"),
        (("--metrics", "http://host/metrics?token=secret"), "looks like a credential"),
        (("--url", "http://host/v1?key=secret"), "--api-key-file"),
        (("--url", "http://me:secret@host:999999"), "'http://…' cannot be read"),
        (("--url", "http://host/\r\nX-Evil: 1"), "cannot be read"),
        (("--url", "http://..:8000"), "cannot be read"),
        (("--workers", "0"), "--workers"),
        (("--over-context", "drop"), "nothing to decide without --context"),
        (("--identity", "none", "--identity-faults", "missing=5%"), "no ids to spoil"),
        (("--identity-faults", "missing=60%,shared=60%"), "more than 100 %"),
        (("--ab", "identity=native"), "no two values to compare"),
        (("--ab", "identity=native,none", "--identity", "none"), "--identity is what --ab varies"),
        (("--header", "Content-Length: 5"), "written by the replay"),
        (("--header", "X-Request-Id: 5"), "written by the replay"),
        (("--router-token", "transfer-encoding"), "the replay writes itself"),
    ],
)
def test_wrong_use_is_told_before_anything_is_sent(tmp_path, options, word):
    result = replay(tmp_path, "http://127.0.0.1:1", *options)
    assert result.exit_code == 2
    assert word in result.stderr
    assert "secret" not in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--seed", "--text-seed"])
def test_a_seed_that_no_run_could_keep_is_refused(tmp_path, option):
    result = replay(tmp_path, "http://127.0.0.1:1", option, str(1 << 63))
    assert (result.exit_code, option in result.stderr) == (2, True)


def test_a_trace_from_stdin_is_refused(tmp_path):
    arguments = ["replay", "-", "--url", "http://h", "--protocol", "chat", "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "keeps a copy" in result.stderr) == (2, True)


def test_a_missing_trace_is_bad_input(tmp_path):
    arguments = ["replay", str(tmp_path / "none.aitrace"), "--url", "http://h", "--protocol", "chat"]
    result = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "run")])
    assert (result.exit_code, "none.aitrace: no such file" in result.stderr) == (3, True)


def test_without_any_model_the_user_is_asked_for_one(tmp_path):
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(10)], model=None)
    with server(good) as target:
        result = replay(tmp_path, target.url, trace=builder.trace())
    assert (result.exit_code, "--model" in result.stderr) == (2, True)


def test_a_directory_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious.txt").write_text("mine")
    with server(good) as target:
        result = replay(tmp_path, target.url)
    assert (result.exit_code, "is not empty" in result.stderr) == (2, True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["precious.txt"]


# While it runs: what goes wrong is data, the session is lost, and the exit code is 1.


def run_with_third(tmp_path: Path, answer, *options: str) -> tuple[Result, Run]:
    """Probes and the first call are answered well, whatever comes then as given."""
    with server(lambda number, body: answer(body) if number >= 3 else good(number, body)) as target:
        result = replay(tmp_path, target.url, *options)
    return result, read_run(tmp_path / "run")


SEE_OTHER = (
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://me:pw@login.example/sso?token=1\r\n"
    b"Content-Length: 0\r\n\r\n"
)
STREAMED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
LONG_HEADERS = "not HTTP: headers of more than 256 KiB"
ANTHROPIC_STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def without_end(start: bytes) -> Iterator[bytes]:
    """A line that goes on for 40 MiB, should the client take so much."""
    yield start
    for _ in range(40):
        yield b"x" * (1 << 20)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (lambda body: (503, "application/json", b'{"error":{"message":"full"}}'), "refused", "full"),
        (lambda body: (500, "text/plain", b"boom"), "http_error", "boom"),
        (
            lambda body: (200, "text/event-stream", stream(body)[:150]),
            "cut",
            "the stream ended before the answer did",
        ),
        (lambda body: None, "cut", "the connection was closed before a response"),
        (
            lambda body: (200, "text/html", b"<html></html>"),
            "malformed",
            "a body that is no stream of events",
        ),
        (
            lambda body: (200, "application/json", b'{"error":{"message":"full","code":503}}'),
            "error_event",
            "full (503)",
        ),
        (lambda body: [SEE_OTHER], "http_error", "redirected to https://login.example/sso"),
        (lambda body: [b"220 mail.example ESMTP\r\n"], "malformed", None),
        (lambda body: without_end(b"HTTP/1.1 200 OK\r\nX-A: "), "malformed", LONG_HEADERS),
        (lambda body: without_end(STREAMED + b"data: "), "malformed", "an event of more than 16 MiB"),
        (lambda body: without_end(STREAMED), "malformed", "an event of more than 16 MiB"),
        (lambda body: without_end(WHOLE), "malformed", "a body of more than 16 MiB"),
        (
            lambda body: (200, "text/event-stream", ANTHROPIC_STREAM),
            "malformed",
            "2 events, none of the chat protocol",
        ),
        (lambda body: (200, "text/event-stream", b""), "cut", "an empty answer"),
        (lambda body: [b"HTTP/1.1 204 No Content\r\n\r\n"], "malformed", "an empty answer"),
        (
            lambda body: (200, "application/json", gzip.compress(b"{}")),
            "malformed",
            "a compressed body, which was not asked for",
        ),
        (
            lambda body: (200, "text/event-stream", b'data: {"error":{"message":"late","code":503}}\n\n'),
            "error_event",
            "late (503)",
        ),
    ],
)
def test_a_call_that_fails_loses_its_session(tmp_path, answer, error, text):
    result, run = run_with_third(tmp_path, answer)
    first, second, third = sorted(run.calls, key=lambda call: call.index)
    assert (first.error, second.error, third.unsent) == (None, error, "session_lost")
    assert text is None or second.error_text == text
    assert result.exit_code == 1
    assert f"1 failed (1 {OUTCOME_WORDS[error]}), 1 not sent (its session was lost: 1)" in result.stderr


def test_an_answer_that_stalls_runs_into_the_timeout(tmp_path):
    release = threading.Event()

    def stall(body: dict) -> Answer:
        release.wait(10)
        return good(0, body)

    try:
        result, run = run_with_third(tmp_path, stall, "--timeout", "0.3")
    finally:
        release.set()
    failed = next(call for call in run.calls if call.error is not None)
    assert (failed.error, failed.error_text) == ("timeout", "nothing came for 0.3 s")
    assert 0.3e9 <= failed.end_ns - failed.dispatched_ns < 2e9
    assert result.exit_code == 1


def run_after(tmp_path: Path, before: list[bytes], *options: str) -> Run:
    """The second call gets these bytes, and then nothing."""
    release = threading.Event()

    def then_silence(_body: dict) -> Iterator[bytes]:
        yield from before
        release.wait(10)

    try:
        _, run = run_with_third(tmp_path, then_silence, *options)
    finally:
        release.set()
    return run


TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":" a"}}]}\n\n'


@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
@pytest.mark.parametrize(
    ("before", "outcome"),
    [
        ([], "timeout_headers"),
        ([STREAMED, b": waiting\n\n"], "timeout_first_token"),
        ([STREAMED, TOKEN], "timeout_stream"),
    ],
)
def test_a_timeout_is_told_by_what_had_come_before_it(tmp_path, before, outcome, transport):
    run = run_after(tmp_path, before, "--timeout", "0.3", "--transport", transport)
    failed = next(call for call in run.calls if call.error is not None)
    assert (failed.error, outcome_of(failed)) == ("timeout", outcome)


@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
def test_a_stream_that_never_ends_is_cut_at_the_limit(tmp_path, transport):
    def tokens(_body: dict) -> Iterator[bytes]:
        yield STREAMED
        for _ in range(500):
            yield TOKEN
            time.sleep(0.01)

    _, run = run_with_third(tmp_path, tokens, "--call-limit", "0.4", "--transport", transport)
    failed = next(call for call in run.calls if call.error is not None)
    assert (outcome_of(failed), failed.error_text) == ("timeout_stream", "no end within 0.4 s")


@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
@pytest.mark.parametrize("start", [STREAMED + b"data: ", WHOLE])
def test_an_answer_without_end_is_cut_by_either_transport(tmp_path, transport, start):
    result, run = run_with_third(tmp_path, lambda body: without_end(start), "--transport", transport)
    failed = next(call for call in run.calls if call.error is not None)
    assert (failed.error, result.exit_code) == ("malformed", 1)
    assert failed.response_bytes < 20 << 20


@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
def test_a_header_of_any_bytes_is_kept_as_iso_8859_1(tmp_path, transport):
    def odd(body: dict) -> Iterator[bytes]:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Session-Token: caf\xe9\xff\r\n\r\n"
        yield head + stream(body)

    result, run = run_with_third(tmp_path, odd, "--transport", transport)
    assert has_played_all(result), result.output
    assert {call.signals.get("x-session-token") for call in run.calls} == {None, "caf\xe9\xff"}


@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * (1 << 20) + b"\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        b"\x15\x03\x01\x00\x02",
    ],
    ids=["headers-of-1-mb", "mail", "tls-alert"],
)
def test_what_is_no_http_is_malformed_in_one_line_by_either_transport(tmp_path, transport, head):
    result, run = run_with_third(tmp_path, lambda _body: [head], "--transport", transport)
    failed = next(call for call in run.calls if call.error is not None)
    assert (failed.error, result.exit_code) == ("malformed", 1)
    assert failed.error_text.startswith("not HTTP: ")
    assert (failed.error_text.isprintable(), "b'" in failed.error_text) == (True, False)


@pytest.mark.parametrize(
    ("value", "wait_ns"),
    [
        (b"Wed, 21 Oct 2015 07:28:03 GMT", 3_000_000_000),
        (b"-5", 0),
        (b"nan", None),
        (b"1e400", None),
        (b"soon", None),
    ],
)
@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
def test_a_retry_after_of_any_kind_ends_no_run(tmp_path, transport, value, wait_ns):
    date = b"Date: Wed, 21 Oct 2015 07:28:00 GMT"
    lines = (
        b"HTTP/1.1 429 Too Many Requests",
        date,
        b"Retry-After: " + value,
        b"Content-Length: 0",
        b"",
        b"",
    )
    _, run = run_with_third(tmp_path, lambda _body: [b"\r\n".join(lines)], "--transport", transport)
    failed = next(call for call in run.calls if call.error is not None)
    assert (failed.error, failed.retry_after_ns) == ("refused", wait_ns)


def test_bytes_that_are_no_utf_8_are_passed_over_and_counted(tmp_path):
    def broken(body: dict) -> Answer:
        bad = b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe"}}]}\n\n'
        return 200, "text/event-stream", bad + stream(body)

    result, run = run_with_third(tmp_path, broken)
    assert [call.error for call in run.calls] == [None] * 3
    assert [call.unparsed_events for call in sorted(run.calls, key=lambda call: call.index)] == [0, 1, 1]
    assert has_played_all(result), result.output


def test_a_usage_that_contradicts_itself_is_kept_and_doubted(tmp_path):
    def boasting(body: dict) -> Answer:
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 50}}
        end = b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"
        return 200, "text/event-stream", stream(body, usage=False).removesuffix(b"data: [DONE]\n\n") + end

    _, run = run_with_third(tmp_path, boasting)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, None))
    found = [doubt.what for doubt in report.doubts if doubt.name == "usage_contradicts"]
    assert found == ["2 calls with usage that contradicts itself"]


def test_a_wait_may_be_asked_for_as_a_date(tmp_path):
    refusal = (
        b"HTTP/1.1 429 Too Many Requests\r\nDate: Tue, 01 Sep 2026 10:00:00 GMT\r\n"
        b"Retry-After: Tue, 01 Sep 2026 10:00:07 GMT\r\nContent-Length: 0\r\n\r\n"
    )
    _, run = run_with_third(tmp_path, lambda body: [refusal])
    failed = next(call for call in run.calls if call.error is not None)
    assert (failed.error, failed.retry_after_ns) == ("refused", 7_000_000_000)


@pytest.mark.parametrize("named", [True, False])
def test_a_metrics_page_for_people_is_told_as_one(tmp_path, named):
    with server(good) as target:
        target.metrics = b"<!doctype html><html><title>Grafana</title></html>"
        options = ("--metrics", f"{target.url}/metrics") if named else ()
        result = replay(tmp_path, target.url, *options)
    assert has_played_all(result), result.output
    assert f"no metrics from {target.url}/metrics: an HTML or XML page, no metrics" in result.stderr
    errors = {scrape.error for scrape in read_run(tmp_path / "run").scrapes}
    assert errors == ({"an HTML or XML page, no metrics"} if named else set())


def test_a_routers_token_goes_back_with_the_next_calls_of_the_session_and_its_children(tmp_path):
    def signed(number: int, body: dict) -> list[bytes]:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Session-Token: t%d\r\n\r\n"
        return [head % number, stream(body)]

    builder = TraceBuilder()
    parent = builder.session()
    first = builder.call(parent, [builder.segment(50)], output_tokens=2)
    builder.call(parent, [builder.segment(50)], output_tokens=2)
    child = builder.session(parent=parent)
    builder.call(child, [builder.segment(50)], after=[first], output_tokens=2)
    with server(signed) as target:
        result = replay(tmp_path, target.url, "--router-token", "X-Session-Token", trace=builder.trace())
        sent = [headers.get("x-session-token") for headers in target.headers]
    assert has_played_all(result), result.output
    # Two probes and the first call have none; the fifth may have come after the fourth was answered.
    assert (sent[:3], set(sent[3:]) <= {"t2", "t3"}) == ([None] * 3, True)
    signals = {call.signals.get("x-session-token") for call in read_run(tmp_path / "run").calls}
    assert signals == {"t2", "t3", "t4"}


def test_forced_lengths_are_given_up_where_the_server_does_not_know_them(tmp_path):
    def strict(number: int, body: dict) -> Answer:
        if "ignore_eos" in body or "min_tokens" in body:
            return 400, "application/json", b'{"error":{"message":"unknown field"}}'
        return good(number, body)

    with server(strict) as target:
        result = replay(tmp_path, target.url)
        forced = ["ignore_eos" in body for body in target.bodies]
    assert has_played_all(result), result.output
    assert not read_run(tmp_path / "run").header.calibration.output_forced
    assert "only limited, not forced" in result.stderr
    assert forced == [True] + [False] * 5


def test_forced_lengths_can_be_insisted_on(tmp_path):
    with server(always(400, b'{"error":{"message":"unknown field"}}')) as target:
        result = replay(tmp_path, target.url, "--force-output", "on")
        tried = len(target.bodies)
    assert_unusable(result, tmp_path, "unknown field")
    assert tried == 1


@pytest.mark.parametrize(
    ("usage", "source", "word"),
    [(True, "probe", None), (False, "assumed", "reports no prompt tokens")],
)
def test_a_server_that_reports_no_usage_is_assumed_to_count_words(tmp_path, usage, source, word):
    with server(lambda _number, body: (200, "text/event-stream", stream(body, usage=usage))) as target:
        result = replay(tmp_path, target.url)
    calibration = read_run(tmp_path / "run").header.calibration
    assert (calibration.source, calibration.tokens_per_word) == (source, 1.0)
    assert word is None or word in result.stderr


def test_the_traces_own_model_is_asked_for_where_the_server_lists_none(tmp_path):
    with server(good) as target:
        replay(tmp_path, target.url)
        asked = {body["model"] for body in target.bodies}
    assert asked == {"model-a"}


def test_a_server_without_metrics_is_played_without(tmp_path):
    with server(good) as target:
        result = replay(tmp_path, target.url)
    assert has_played_all(result), result.output
    assert f"no metrics from {target.url}/metrics: status 404" in result.stderr
    assert read_run(tmp_path / "run").scrapes == ()


def test_metrics_that_were_asked_for_are_missed_in_writing(tmp_path):
    with server(good) as target:
        result = replay(tmp_path, target.url, "--metrics", f"{target.url}/metrics")
    scrapes = read_run(tmp_path / "run").scrapes
    assert has_played_all(result), result.output
    assert {scrape.error for scrape in scrapes} == {"status 404"}
    assert len(scrapes) >= 2


def test_a_full_disk_is_told_as_one(tmp_path, monkeypatch):
    def no_space(_self, _result) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("replayer.commands.replay.RunWriter.write_call", no_space)
    with server(good) as target:
        result = replay(tmp_path, target.url)
    assert result.exit_code == 2
    assert "run: cannot be written: [Errno 28] No space left on device" in result.stderr


def replay_with_limit(tmp_path: Path, url: str, limit: int, value: int, *options: str) -> tuple[int, str]:
    """Exit code and stderr of a replay of 60 sessions at once in a process with a limit of its own."""
    write_trace(tmp_path / "trace.aitrace", make_trace(sessions=60, calls=1))
    target = ["--url", url, "--protocol", "chat", "-o", str(tmp_path / "run"), "--time-scale", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "aitrace", "replay", str(tmp_path / "trace.aitrace"), *target, *options],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(limit, (value, value)),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
def test_calls_without_a_file_to_open_fail_as_such_and_the_run_goes_on(tmp_path, transport):
    def slow(number: int, body: dict) -> Answer:
        time.sleep(0.3)
        return good(number, body)

    options = ("--arrival", "together", "--retries", "none", "--workers", "1", "--transport", transport)
    with server(slow) as target:
        exit_code, said = replay_with_limit(tmp_path, target.url, resource.RLIMIT_NOFILE, 80, *options)
    run = read_run(tmp_path / "run")
    failed = {(call.error, call.error_text) for call in run.calls if call.error is not None}
    assert (exit_code, failed) == (1, {("connect", "Too many open files here (ulimit -n)")}), said
    assert run.end is not None
    assert any(call.error is None for call in run.calls)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_file_that_may_not_grow_ends_the_run_with_what_it_has(tmp_path, workers):
    options = ("--trees", "2000", "--concurrency", "20", "--workers", workers)
    with server(good) as target:
        exit_code, said = replay_with_limit(tmp_path, target.url, resource.RLIMIT_FSIZE, 1_000_000, *options)
    assert (exit_code, "run: cannot be written: [Errno 27] File too large" in said) == (2, True), said
    assert "Traceback" not in said
    assert len(read_run(tmp_path / "run").calls) > 100
