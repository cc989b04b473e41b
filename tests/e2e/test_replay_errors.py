"""`aitrace replay` where something is wrong: with the target before the run, or with calls while it goes on."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from aitrace.cli import main
from aitrace.runstore import Run, read_run
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder, make_trace


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
        *options,
    ]
    if "--protocol" not in options:
        arguments += ["--protocol", "chat"]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


Answer = tuple[int, str, bytes]
"""Status, content type and body."""


class Server(ThreadingHTTPServer):
    """A server whose POSTs are answered by a function of their number and body, and whose GETs are not found."""

    daemon_threads = True
    models: bytes | None = None

    def __init__(self, answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.bodies: list[dict] = []
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
        answer = self.server.answer(number, body)
        if answer is None:  # cut before a response
            self.close_connection = True
            return
        self._write(*answer)

    def do_GET(self):
        if self.path == "/v1/models" and self.server.models is not None:
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
    ],
)
def test_wrong_use_is_told_before_anything_is_sent(tmp_path, options, word):
    result = replay(tmp_path, "http://127.0.0.1:1", *options)
    assert result.exit_code == 2
    assert word in result.stderr
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


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (lambda body: (503, "application/json", b'{"error":{"message":"full"}}'), "refused", "full"),
        (lambda body: (500, "text/plain", b"boom"), "http_error", "boom"),
        (lambda body: (200, "text/event-stream", stream(body)[:150]), "cut", None),
        (lambda body: None, "cut", "the connection was closed before a response"),
        (lambda body: (200, "text/html", b"<html></html>"), "malformed", None),
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
    assert f"calls failed: 1 {error}; calls not sent: 1 session_lost" in result.stderr


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


def test_forced_lengths_are_given_up_where_the_server_does_not_know_them(tmp_path):
    def strict(number: int, body: dict) -> Answer:
        if "ignore_eos" in body or "min_tokens" in body:
            return 400, "application/json", b'{"error":{"message":"unknown field"}}'
        return good(number, body)

    with server(strict) as target:
        result = replay(tmp_path, target.url)
        forced = ["ignore_eos" in body for body in target.bodies]
    assert result.exit_code == 0
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
    assert result.exit_code == 0
    assert f"no metrics from {target.url}/metrics: status 404" in result.stderr
    assert read_run(tmp_path / "run").scrapes == ()


def test_metrics_that_were_asked_for_are_missed_in_writing(tmp_path):
    with server(good) as target:
        result = replay(tmp_path, target.url, "--metrics", f"{target.url}/metrics")
    scrapes = read_run(tmp_path / "run").scrapes
    assert result.exit_code == 0
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
