"""The API key of `aitrace replay` goes to the endpoint and nowhere else, whatever the endpoint does with it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import make_trace

KEY = "sk-planted-4f9d8e7c6b5a"
CHUNKS = [
    {"choices": [{"index": 0, "delta": {"content": " a"}, "finish_reason": "length"}]},
    {"choices": [], "usage": {"prompt_tokens": 300, "completion_tokens": 1}},
]
GOOD = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in CHUNKS) + b"data: [DONE]\n\n"


class Gossip(ThreadingHTTPServer):
    """Answers the probes, then repeats the key in all that it says, and notes what /proc tells of the client meanwhile."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.keys: list[str | None] = []
        self.client: int | None = None
        self.seen: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def look(self) -> None:
        if self.client is None or not Path("/proc/self/task").exists():
            return
        own = Path(f"/proc/{self.client}")
        children = (own / f"task/{self.client}/children").read_text().split()
        files = [
            own / "cmdline",
            *(Path(f"/proc/{pid}/{name}") for pid in children for name in ("cmdline", "environ")),
        ]
        self.seen |= {str(path): path.read_bytes() for path in files}


class Handler(BaseHTTPRequestHandler):
    server: Gossip

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            number = len(self.server.keys)
            self.server.keys.append(self.headers["Authorization"])
            self.server.look()
        if number < 2:
            self._write(200, "text/event-stream", GOOD)
        elif number % 3 == 0:
            self._write(401, "application/json", orjson.dumps({"error": {"message": f"bad key {KEY}"}}))
        elif number % 3 == 1:
            self._write(500, "text/plain", b"x" * (200 - 12) + KEY.encode())  # cut in the middle of the key
        else:
            event = {"error": {"message": f"of {KEY}: overloaded", "code": KEY}}
            self._write(200, "text/event-stream", b"data: " + orjson.dumps(event) + b"\n\n")

    def do_GET(self):
        self.send_error(404, KEY)

    def _write(self, status: int, content_type: str, body: bytes):
        self.send_response(status, KEY)
        self.send_header("Content-Type", content_type)
        self.send_header("x-session-token", f"for-{KEY}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


@contextmanager
def gossip() -> Iterator[Gossip]:
    running = Gossip()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def key_file(directory: Path, text: str = KEY + "\n", mode: int = 0o600) -> Path:
    path = directory / "key.txt"
    path.write_text(text)
    path.chmod(mode)
    return path


def arguments_for(directory: Path, url: str, *options: str) -> list[str]:
    trace = directory / "trace.aitrace"
    write_trace(trace, make_trace(sessions=6, calls=1))
    target = ["--url", url, "--protocol", "chat", "-o", str(directory / "run"), "--time-scale", "0"]
    return ["replay", str(trace), *target, "--model", "m", "--retries", "none", *options]


def replay(directory: Path, url: str, *options: str):
    return CliRunner().invoke(main, arguments_for(directory, url, *options), catch_exceptions=False)


@pytest.mark.parametrize("source", ["file", "variable"])
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("transport", ["socket", "aiohttp"])
def test_the_key_is_in_no_file_no_output_and_no_process_but_goes_to_the_endpoint(
    tmp_path, source, workers, transport
):
    named = ("--api-key-env", "PLANTED_KEY")
    environment = {**os.environ, "PLANTED_KEY": KEY}
    if source == "file":
        named = ("--api-key-file", str(key_file(tmp_path)))
        environment = dict(os.environ)
    with gossip() as target:
        options = [*named, "--workers", workers, "--transport", transport, "--json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "aitrace", *arguments_for(tmp_path, target.url, *options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        target.client = process.pid
        out, err = process.communicate()
        assert process.returncode == 1, err.decode()
        assert set(target.keys) == {f"Bearer {KEY}"}
        assert any("environ" in name for name in target.seen) is (workers == "2")
    files = {str(path): path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    everything = {"stdout": out, "stderr": err, **files, **target.seen}
    assert [name for name, data in everything.items() if KEY[:10].encode() in data] == []
    texts = [call.error_text for call in read_run(tmp_path / "run").calls]
    assert any("(the API key)" in (text or "") for text in texts)


def test_a_report_of_such_a_run_holds_no_key_either(tmp_path):
    with gossip() as target:
        replay(tmp_path, target.url, "--api-key-file", str(key_file(tmp_path)))
    page = tmp_path / "page.html"
    result = CliRunner().invoke(main, ["report", str(tmp_path / "run"), "-o", str(page)])
    assert KEY[:10] not in result.output + page.read_text()


def test_a_probe_that_fails_repeats_no_key(tmp_path):
    with gossip() as target:
        target.keys += [None, None, None]
        result = replay(tmp_path, target.url, "--api-key-file", str(key_file(tmp_path)))
    assert (result.exit_code, "bad key (the API key)" in result.stderr) == (4, True)
    assert KEY[:10] not in result.output


def test_a_key_file_that_others_can_read_is_told(tmp_path):
    with gossip() as target:
        result = replay(tmp_path, target.url, "--api-key-file", str(key_file(tmp_path, mode=0o644)))
    assert "key.txt: others may read the API key (mode 644); chmod 600" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "key.txt holds no key"),
        ("\n\n", "key.txt holds no key"),
        (f"{KEY}\n{KEY}\n", "key.txt holds 2 lines"),
        (f"Bearer {KEY}", "key.txt holds something that is no key"),
        (f"{KEY}é", "key.txt holds something that is no key"),
    ],
)
def test_a_file_without_one_key_is_refused_before_anything_is_sent(tmp_path, text, message):
    result = replay(tmp_path, "http://127.0.0.1:1", "--api-key-file", str(key_file(tmp_path, text)))
    assert (result.exit_code, message in result.stderr) == (2, True)
    assert KEY[:10] not in result.output


def test_a_key_file_that_is_not_there_is_bad_input(tmp_path):
    result = replay(tmp_path, "http://127.0.0.1:1", "--api-key-file", str(tmp_path / "none"))
    assert (result.exit_code, "none: the API key cannot be read: No such file" in result.stderr) == (3, True)


def test_two_places_of_the_key_exclude_each_other(tmp_path):
    options = ("--api-key-file", str(key_file(tmp_path)), "--api-key-env", "HOME")
    result = replay(tmp_path, "http://127.0.0.1:1", *options)
    assert (result.exit_code, "exclude each other" in result.stderr) == (2, True)


def test_a_key_in_place_of_the_name_of_its_variable_is_not_repeated(tmp_path):
    result = replay(tmp_path, "http://127.0.0.1:1", "--api-key-env", KEY)
    assert (result.exit_code, "that --api-key-env names is not set" in result.stderr) == (2, True)
    assert KEY not in result.output


def test_a_key_of_two_lines_in_a_variable_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_KEY", f"{KEY}\r\nX-Evil: 1")
    result = replay(tmp_path, "http://127.0.0.1:1", "--api-key-env", "PLANTED_KEY")
    assert (result.exit_code, "'PLANTED_KEY' holds 2 lines" in result.stderr) == (2, True)
    assert KEY not in result.output
