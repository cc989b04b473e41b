"""`aitrace record` as its user meets it: a client in a terminal or a pipe, an endpoint behind TLS, the trace at the end."""

import os
import pty
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import orjson
import pytest

from aitrace.store import read_trace

HERE = Path(__file__).parent
AITRACE = [sys.executable, "-m", "aitrace"]
CLIENT = [sys.executable, str(HERE / "fake_client.py")]
LIMIT_S = 60


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """Ports of an endpoint, and its folder."""
    folder = tmp_path_factory.mktemp("upstream")
    process = subprocess.Popen(
        [sys.executable, str(HERE / "scripted_upstream.py"), str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield {**orjson.loads(process.stdout.readline()), "folder": folder}
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home without any configuration; the authority made in it serves all tests."""
    return tmp_path_factory.mktemp("home")


def environment(home, **more):
    """No proxy and no certificates of whoever runs the tests."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "COVERAGE_PROCESS_START") if name in os.environ
    }
    return {**kept, "HOME": str(home), "PYTHONPATH": str(HERE.parent.parent), **more}


def forward(upstream, *names):
    places = [f"{name}:443=127.0.0.1:{upstream['tls']}" for name in names or ("api.example.test",)]
    options = [word for place in places for word in ("--connect-to", place)]
    return [*options, "--upstream-ca", str(upstream["folder"] / "ca.pem")]


def record(folder, home, options, *client, **more):
    """The ended command; the trace, if there is one, is `t.aitrace`."""
    command = [*AITRACE, "record", "-o", str(folder / "t.aitrace"), *options]
    return subprocess.run(
        [*command, *(["--", *client] if client else [])],
        env=environment(home, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
        check=False,
    )


def log_of(upstream):
    return [orjson.loads(line) for line in (upstream["folder"] / "log.jsonl").read_bytes().splitlines()]


# Both modes


def test_forward_mode_records_what_goes_to_a_host_with_tls(tmp_path, home, upstream):
    done = record(tmp_path, home, [*forward(upstream), "--client", "claude"], *CLIENT, "calls", "3")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    trace = read_trace(tmp_path / "t.aitrace")
    assert trace.header.capture == "forward"
    assert [call.session for call in trace.calls] == [0, 0, 0]
    assert [len(call.tool_calls) for call in trace.calls] == [1, 1, 0]
    assert {call.outcome.status for call in trace.calls} == {200}


def test_a_good_recording_ends_with_two_lines_and_the_next_command(tmp_path, home, upstream):
    done = record(tmp_path, home, forward(upstream), *CLIENT, "calls", "2")
    _, first, second = done.stderr.splitlines()
    assert first.startswith("aitrace: recorded 2 calls of 1 session in 1 tree: ")
    assert second == f"aitrace: next: aitrace inspect {tmp_path / 't.aitrace'}"
    shown = subprocess.run([*AITRACE, *second.split()[3:]], capture_output=True, text=True, check=False)
    assert (shown.returncode, "2 calls in 1 sessions" in shown.stdout) == (0, True)


def test_reverse_mode_is_the_clients_base_url(tmp_path, home, upstream):
    options = ["--upstream", f"http://127.0.0.1:{upstream['plain']}/v1", "--client", "claude"]
    done = record(tmp_path, home, options, *CLIENT, "calls", "2")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    trace = read_trace(tmp_path / "t.aitrace")
    assert (trace.header.capture, len(trace.calls)) == ("reverse", 2)
    assert log_of(upstream)[-1]["headers"]["host"] == f"127.0.0.1:{upstream['plain']}"


def test_reverse_mode_speaks_tls_to_the_endpoint(tmp_path, home, upstream):
    options = ["--upstream", "https://api.example.test", *forward(upstream)]
    done = record(tmp_path, home, options, *CLIENT, "calls", "2")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert log_of(upstream)[-1]["headers"]["host"] == "api.example.test"


def test_calls_that_follow_each_other_share_the_connection_to_the_endpoint(tmp_path, home, upstream):
    """Also with --connect-to, so that tests see what users get."""
    record(tmp_path, home, forward(upstream), *CLIENT, "calls", "3")
    waits = [call.wire.connect_ns for call in read_trace(tmp_path / "t.aitrace").calls]
    assert waits[0] > 0
    assert waits[1:] == [0, 0]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            [],
            "recording python as generic (no client is known by that name: --client says which it is) in forward",
        ),
        (["--client", "generic"], "recording python as generic in forward"),
        (["--client", "claude"], "recording python as claude in forward"),
    ],
)
def test_it_is_said_first_as_what_the_client_is_recorded(tmp_path, home, options, line):
    python = tmp_path / "python"
    python.symlink_to("/bin/true")
    done = record(tmp_path, home, options, str(python))
    assert done.stderr.splitlines()[0] == f"aitrace: {line} mode to {tmp_path / 't.aitrace'}"


def test_an_endpoint_whose_authority_is_not_trusted_is_refused(tmp_path, home, upstream):
    options = forward(upstream)[:-2]
    script = f"{' '.join(CLIENT)} calls 1; true"
    done = record(tmp_path, home, options, "sh", "-c", script)
    assert (done.returncode, done.stdout) == (1, "")
    words = "the only call failed: api.example.test:443: certificate not trusted (--upstream-ca FILE)"
    assert words in done.stderr
    [call] = read_trace(tmp_path / "t.aitrace").calls
    assert (call.outcome.error, call.outcome.status) == ("connect", None)


def test_an_endpoint_on_loopback_is_recorded_in_forward_mode(tmp_path, home, upstream):
    more = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{upstream['plain']}", "NO_PROXY": "localhost,127.0.0.1"}
    done = record(tmp_path, home, [], *CLIENT, "calls", "2", **more)
    assert "NO_PROXY of the client leaves out localhost, 127.0.0.1" in done.stderr
    assert "keeps its own base URL (ANTHROPIC_BASE_URL=http://127.0.0.1:" in done.stderr
    assert len(read_trace(tmp_path / "t.aitrace").calls) == 2


def test_other_servers_on_loopback_are_reached_without_the_recorder(tmp_path, home):
    """A tool that waits for a server has to see a refused connection, not an error page of a proxy."""
    done = record(tmp_path, home, [], *CLIENT, "get", "http://127.0.0.1:1/")
    assert "ClientConnectorError" in done.stderr
    assert "nothing came through the recorder" in done.stderr


# A proxy of the user's


def test_a_corporate_proxy_is_gone_through_with_its_credentials_which_nobody_sees(tmp_path, home, upstream):
    more = {"HTTPS_PROXY": f"http://me:s3cret@127.0.0.1:{upstream['proxy']}"}
    options = ["--upstream-ca", str(upstream["folder"] / "ca.pem")]
    done = record(tmp_path, home, options, *CLIENT, "calls", "2", **more)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "endpoints are reached through the proxy of HTTPS_PROXY" in done.stderr
    assert "s3cret" not in done.stderr
    connects = [line for line in log_of(upstream) if "connect" in line]
    assert connects[-1] == {"connect": "api.example.test:443", "auth": ["Basic bWU6czNjcmV0"]}
    assert not any("proxy-authorization" in line.get("headers", {}) for line in log_of(upstream))


def test_a_corporate_proxy_is_gone_through_in_reverse_mode_too(tmp_path, home, upstream):
    more = {"HTTPS_PROXY": f"http://me:s3cret@127.0.0.1:{upstream['proxy']}"}
    options = [
        "--upstream",
        "https://other.example.test",
        "--upstream-ca",
        str(upstream["folder"] / "ca.pem"),
    ]
    done = record(tmp_path, home, options, *CLIENT, "calls", "2", **more)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    connects = [line for line in log_of(upstream) if "connect" in line]
    assert connects[-1] == {"connect": "other.example.test:443", "auth": ["Basic bWU6czNjcmV0"]}
    assert log_of(upstream)[-1]["headers"]["x-api-key"].startswith("sk-")


def test_what_no_proxy_names_is_connected_to_directly(tmp_path, home, upstream):
    """The endpoint is in the list, which its client does not see: the recorder keeps to it."""
    more = {
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "NO_PROXY": ".example.test",
        "ANTHROPIC_BASE_URL": "https://api.example.test",
    }
    done = record(tmp_path, home, forward(upstream), *CLIENT, "calls", "1", **more)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert len(read_trace(tmp_path / "t.aitrace").calls) == 1


# Programs beside the client


def test_a_program_that_does_not_trust_the_recorder_is_left_alone_from_its_second_try(
    tmp_path, home, upstream
):
    get = f"{sys.executable} {HERE / 'fake_client.py'} get https://other.example.test/"
    own = f"SSL_CERT_FILE={upstream['folder'] / 'ca.pem'}"
    script = f"{own} {get} 2>/dev/null; {own} {get}; {' '.join(CLIENT)} calls 1"
    options = forward(upstream, "other.example.test", "api.example.test")
    done = record(tmp_path, home, options, "sh", "-c", script)
    assert done.stdout == "200 a page that is no call\ndone\n"
    assert "passed on unread, since a program did not trust the recorder's certificate: other" in done.stderr
    assert len(read_trace(tmp_path / "t.aitrace").calls) == 1


# How it ends


@pytest.mark.parametrize(
    ("what", "status"),
    [
        (("exit", "3"), 3),
        (("kill", str(signal.SIGTERM)), 128 + 15),
        (("kill", "9"), 128 + 9),
    ],
)
def test_the_exit_status_is_the_clients(tmp_path, home, what, status):
    assert record(tmp_path, home, [], *CLIENT, *what).returncode == status


def test_a_session_without_a_call_says_so_and_why_that_may_be(tmp_path, home, upstream):
    page = "https://api.example.test/page"
    done = record(tmp_path, home, [*forward(upstream), "--client", "claude"], *CLIENT, "get", page)
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []
    assert "no call was recorded: 1 request came through, none of them to /v1/messages" in done.stderr
    assert "Claude Code looks at HTTPS_PROXY" in done.stderr


ASK = "curl -s -o /dev/null -d"
HELLO = orjson.dumps({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}).decode()


def asking(path, body=HELLO):
    """A client in reverse mode that is content with any answer."""
    url = f"$ANTHROPIC_BASE_URL{path}"
    return "sh", "-c", f"{ASK} '{body}' {url}; {ASK} '{body}' {url}; true"


def closed_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.mark.parametrize(
    ("scheme", "host", "said"),
    [
        ("http", "closed", "all 2 calls failed: 127.0.0.1:PORT: connection refused"),
        ("https", "plain", "all 2 calls failed: 127.0.0.1:PORT: speaks no TLS (http:// instead of https://)"),
        ("http", "no-such-host.invalid", "no-such-host.invalid:PORT: name cannot be resolved"),
    ],
)
def test_calls_that_all_failed_are_said_with_the_reason_and_put_the_recording_in_doubt(
    tmp_path, home, upstream, scheme, host, said
):
    port = upstream["plain"] if host == "plain" else closed_port()
    name = host if "." in host else "127.0.0.1"
    done = record(tmp_path, home, ["--upstream", f"{scheme}://{name}:{port}"], *asking("/v1/messages"))
    assert done.returncode == 1
    assert said.replace("PORT", str(port)) in done.stderr.splitlines()[1]
    assert len(read_trace(tmp_path / "t.aitrace").calls) == 2


def test_an_endpoint_without_the_route_is_said_with_status_and_path(tmp_path, home, upstream):
    options = ["--upstream", f"http://127.0.0.1:{upstream['plain']}/missing"]
    done = record(tmp_path, home, options, *asking("/v1/messages?key=secret"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == "aitrace: all 2 calls failed: 404 from /missing/v1/messages"


def test_websockets_that_could_not_be_opened_are_no_requests_to_other_routes(tmp_path, home):
    more = "-H Connection:Upgrade -H Upgrade:websocket -H Sec-WebSocket-Version:13 -H Sec-WebSocket-Key:eA=="
    port = closed_port()
    script = f"curl -s {more} $ANTHROPIC_BASE_URL/v1/responses; true"
    done = record(tmp_path, home, ["--upstream", f"http://127.0.0.1:{port}"], "sh", "-c", script)
    words = f"1 WebSocket for calls could not be opened: 127.0.0.1:{port}: connection refused"
    assert done.stderr.splitlines()[1:] == [f"aitrace: no call was recorded: {words}"]


def test_hosts_that_cannot_be_reached_are_the_reason_and_not_the_routes(tmp_path, home):
    done = record(tmp_path, home, ["--client", "claude"], *CLIENT, "get", "https://no-such-host.invalid/x")
    words = "1 request came through and failed: no-such-host.invalid:443: name cannot be resolved"
    assert f"no call was recorded: {words}" in done.stderr
    assert "Bedrock" not in done.stderr


def test_a_request_that_is_none_of_its_protocol_has_one_coherent_end(tmp_path, home, upstream):
    options = ["--upstream", f"http://127.0.0.1:{upstream['plain']}"]
    done = record(tmp_path, home, options, *asking("/missing/v1/messages", "{}"))
    words = "2 requests came through, but the body is none of the route's protocol"
    assert done.stderr.splitlines()[1:] == [f"aitrace: no call was recorded: {words}"]
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])


def test_a_recording_without_a_call_is_not_in_the_way_of_the_next(tmp_path, home):
    assert [record(tmp_path, home, [], "true").returncode for _ in range(2)] == [1, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_recording_that_cannot_be_written_is_in_doubt_though_the_client_was_fine(tmp_path, home, upstream):
    """Nothing of the writer's can be put on disk; the client must not notice."""
    script = f"rm -rf {tmp_path}/gone; {' '.join(CLIENT)} calls 2"
    (tmp_path / "gone").mkdir()
    options = ["-o", str(tmp_path / "gone" / "t.aitrace"), *forward(upstream)]
    done = record(tmp_path, home, options, "sh", "-c", script)
    assert done.stdout == "done\n"
    assert done.returncode == 1
    assert "aitrace: " in done.stderr


def test_a_call_that_the_queue_has_no_room_for_is_said_and_puts_the_recording_in_doubt(
    tmp_path, home, upstream
):
    options = [*forward(upstream), "--queue-size", "1"]
    done = record(tmp_path, home, options, *CLIENT, "calls", "1", FAKE_SYSTEM_BYTES="1500000")
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert "no call was recorded: 1 call came through and could not be written" in done.stderr


def test_something_like_a_key_in_the_trace_is_loud_and_keeps_the_file_from_its_name(tmp_path, home, upstream):
    """Names of models are written as they are."""
    key = "-".join(("sk", "ant", "api03", "planted" * 6))
    done = record(tmp_path, home, forward(upstream), *CLIENT, "calls", "1", FAKE_MODEL=key)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert f"DO NOT SHARE {tmp_path / 't.aitrace.partial'}" in done.stderr
    assert key not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.aitrace.partial"]


def test_a_client_that_failed_keeps_its_status_whatever_became_of_the_recording(tmp_path, home, upstream):
    (tmp_path / "gone").mkdir()
    script = f"rm -rf {tmp_path}/gone; {' '.join(CLIENT)} calls 1; exit 9"
    options = ["-o", str(tmp_path / "gone" / "t.aitrace"), *forward(upstream)]
    assert record(tmp_path, home, options, "sh", "-c", script).returncode == 9


# Before it begins


@pytest.mark.parametrize("name", ["t.aitrace", "t.aitrace.partial"])
def test_an_existing_file_is_refused_before_the_client_starts(tmp_path, home, name):
    (tmp_path / name).write_text("mine")
    done = record(tmp_path, home, [], "touch", str(tmp_path / "started"))
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert "--force" in done.stderr
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / "started").exists()


def test_an_existing_file_is_replaced_with_force(tmp_path, home, upstream):
    for name in ("t.aitrace", "t.aitrace.partial"):
        (tmp_path / name).write_text("mine")
    done = record(tmp_path, home, [*forward(upstream), "--force"], *CLIENT, "calls", "1")
    assert done.returncode == 0, done.stderr
    assert len(read_trace(tmp_path / "t.aitrace").calls) == 1
    assert not (tmp_path / "t.aitrace.partial").exists()


@pytest.mark.parametrize(
    ("options", "client", "text"),
    [
        ([], ["no-such-client"], "'no-such-client' is not a program that can be found"),
        (["--upstream", "127.0.0.1:8000"], ["true"], "upstream '127.0.0.1:8000' cannot be read"),
        (["--connect-to", "a=b"], ["true"], "expected HOST:PORT=ADDR:PORT"),
        (["--upstream-ca", "/nowhere/ca.pem"], ["true"], "/nowhere/ca.pem: cannot be read"),
        (["-o", "-"], ["true"], "a recording cannot be written to standard output"),
        (["-o", "/nowhere/t.aitrace"], ["true"], "/nowhere/t.aitrace: cannot be written"),
        (["--ca-dir", "/dev/null/ca"], ["true"], "no certificate authority can be kept here"),
        (["--upstream", "http://h", "--client", "opencode"], ["true"], "-m PROVIDER/MODEL"),
    ],
)
def test_wrong_use_is_refused_with_what_was_wrong(tmp_path, home, options, client, text):
    done = record(tmp_path, home, options, *client)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_that_cannot_be_gone_through_is_refused(tmp_path, home):
    done = record(tmp_path, home, [], "true", ALL_PROXY="socks5://me:s3cret@127.0.0.1:1")
    assert (done.returncode, "s3cret" in done.stderr) == (2, False)
    assert "ALL_PROXY names a proxy that the recorder cannot go through" in done.stderr


def test_a_port_in_use_is_an_error_of_ours(tmp_path, home, upstream):
    done = record(tmp_path, home, ["--port", str(upstream["plain"])], "true")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first == f"Error: cannot listen on port {upstream['plain']} of 127.0.0.1: address already in use"
    assert second == "Hint: leave out --port for a free one"


def test_the_name_of_the_addon_can_be_asked_for():
    done = subprocess.run([*AITRACE, "record", "--addon-path"], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).name == "addon.py"
    assert Path(done.stdout.strip()).is_file()


# Files


def test_content_is_written_only_when_asked_for_with_a_warning_and_for_the_user_alone(
    tmp_path, home, upstream
):
    done = record(tmp_path, home, [*forward(upstream), "--privacy", "content"], *CLIENT, "calls", "1")
    assert "will hold the whole text" in done.stderr
    trace = tmp_path / "t.aitrace"
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    assert any("word" in (segment.text or "") for segment in read_trace(trace).segments)


def test_the_authority_is_kept_for_the_user_alone_and_nothing_else_is_left(tmp_path, home, upstream):
    state = tmp_path / "state"
    (tmp_path / "tmp").mkdir()
    more = {"XDG_STATE_HOME": str(state), "TMPDIR": str(tmp_path / "tmp")}
    script = f"ls -l $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS >&2; {' '.join(CLIENT)} calls 1"
    assert record(tmp_path, home, forward(upstream), "sh", "-c", script, **more).returncode == 0
    authority = state / "aitrace" / "ca"
    assert stat.S_IMODE(authority.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in authority.iterdir()} == {0o600}
    assert sorted(path.name for path in (state / "aitrace").iterdir()) == ["ca"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_recording_gets_a_name_of_its_own_in_the_current_folder(tmp_path, home, upstream):
    command = [*AITRACE, "record", *forward(upstream), "--", *CLIENT, "calls", "1"]
    subprocess.run(command, env=environment(home), cwd=tmp_path, capture_output=True, check=True)
    [path] = tmp_path.iterdir()
    assert path.match("session-????????-??????.aitrace")


# Without a client


@contextmanager
def started(command, env, folder) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def exports_of(process):
    """The variables for every client, and Claude Code's own."""
    found = {}
    for line in process.stdout:
        if line.startswith("# codex"):
            return found
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").strip().partition("=")
            assert name not in found
            found[name] = value
    return found


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_client_the_recorder_says_what_to_export_and_records_until_it_is_stopped(
    tmp_path, home, upstream, mode, number
):
    options = (
        forward(upstream) if mode == "forward" else ["--upstream", f"http://127.0.0.1:{upstream['plain']}"]
    )
    command = [*AITRACE, "record", "-o", str(tmp_path / "t.aitrace"), *options]
    with started(command, environment(home), tmp_path) as process:
        exports = exports_of(process)
        done = subprocess.run(
            [*CLIENT, "calls", "2"],
            env=environment(home, **exports),
            capture_output=True,
            text=True,
            check=False,
        )
        process.send_signal(number)
        _, said = process.communicate(timeout=LIMIT_S)
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert process.returncode == 0
    assert "recorded 2 calls" in said
    assert read_trace(tmp_path / "t.aitrace").header.capture == mode


def test_a_second_ctrl_c_ends_the_recorder_at_once_and_the_trace_is_finished_all_the_same(
    tmp_path, home, upstream
):
    options = ["-o", str(tmp_path / "t.aitrace"), "--upstream", f"http://127.0.0.1:{upstream['plain']}"]
    (folder := tmp_path / "tmp").mkdir()
    with started([*AITRACE, "record", *options], environment(home, TMPDIR=folder), tmp_path) as process:
        exports = exports_of(process)
        subprocess.run(
            [*CLIENT, "calls", "1"], env=environment(home, **exports), check=True, capture_output=True
        )
        connection = HTTPConnection(exports["ANTHROPIC_BASE_URL"].removeprefix("http://"))
        # The recorder gives an open connection a second to end: time for the second signal.
        assert len(list(folder.iterdir())) == 1
        with closing(connection):
            connection.request("GET", "/page")
            connection.getresponse().read()
            until_s = time.monotonic() + LIMIT_S
            while process.poll() is None and time.monotonic() < until_s:
                process.send_signal(signal.SIGINT)
                time.sleep(0.05)
        said = process.stderr.read()
    assert process.returncode == -signal.SIGINT
    words = f"aitrace: ended at once; the writer finishes {tmp_path / 't.aitrace'} on its own\n"
    assert (said, list(folder.iterdir())) == (words, [])
    until_s = time.monotonic() + LIMIT_S
    while not (tmp_path / "t.aitrace").exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert len(read_trace(tmp_path / "t.aitrace").calls) == 1


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_a_call_that_is_open_at_ctrl_c_is_said_and_leaves_no_traceback(tmp_path, home, upstream, mode):
    options = ["--upstream", f"http://127.0.0.1:{upstream['plain']}"]
    command = [
        *AITRACE, "record", "-o", str(tmp_path / "t.aitrace"), *(options if mode == "reverse" else forward(upstream)),
    ]  # fmt: skip
    with started(command, environment(home), tmp_path) as process:
        exports = exports_of(process)
        client = [*CLIENT, "calls", "1"]
        variables = environment(home, **exports, FAKE_PAUSE_S="20")
        with started(client, variables, tmp_path):
            until_s = time.monotonic() + LIMIT_S
            while time.monotonic() < until_s and not has_call(tmp_path / "t.aitrace.partial"):
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert [line.partition(":")[0] for line in said.splitlines()] == ["aitrace"] * 3, said
    assert said.endswith("aitrace: 1 call had not ended when the recording did\n")


def has_call(partial):
    return partial.exists() and partial.stat().st_size > 0 and len(read_trace(partial).calls) > 0


def test_a_traceback_of_ours_is_not_lost(tmp_path, home, upstream):
    """The writer cannot start: what it says is for whoever mends it."""
    options = ["-o", str(tmp_path / "t.aitrace"), *forward(upstream)]
    (bad := tmp_path / "bad").mkdir()
    (bad / "sitecustomize.py").write_text(
        "import sys\nif sys.orig_argv[1:4] == ['-P', '-m', 'recorders.writer']:\n    sys.exit('planted')\n"
    )
    path = f"{bad}:{HERE.parent.parent}"
    done = record(tmp_path, home, options, *CLIENT, "calls", "1", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert done.stderr.splitlines()[-1] == "aitrace: SystemExit: planted"


def test_an_endpoint_on_this_machine_that_goes_past_the_recorder_is_explained(tmp_path, home):
    command = [*AITRACE, "record", "-o", str(tmp_path / "t.aitrace")]
    with started(command, environment(home), tmp_path) as process:
        printed = ""
        while "record those with --upstream URL" not in printed:
            printed += (line := process.stdout.readline())
            assert line, printed
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "NO_PROXY keeps endpoints on this machine away from the recorder" in printed
    assert "NO_PROXY keeps these away from the recorder: localhost,127.0.0.1,::1; record an endpoint" in said


def test_each_client_is_told_how_to_be_recorded(tmp_path, home):
    with started([*AITRACE, "record", "--upstream", "http://h:1"], environment(home), tmp_path) as process:
        lines = []
        while "OPENAI_API_BASE" not in (line := process.stdout.readline()):
            lines.append(line)
            assert line, process.stderr.read()
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
    said = "".join(lines)
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:" in said
    assert "codex -c features.daemon_auto_start=false -c 'openai_base_url=" in said
    assert "# OpenCode's base URL belongs to a provider" in said


# A terminal


class Terminal:
    """A command on a terminal of its own, in which it is the foreground job."""

    def __init__(self, command, env, folder):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(command[0], command, env)  # noqa: S606 - a new program on the terminal
        self.seen = ""

    def read_until(self, text):
        until_s = time.monotonic() + LIMIT_S
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, until_s - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.seen!r}"
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                pytest.fail(f"{text!r} did not come before the end: {self.seen!r}")

    def read_to_end(self):
        """The exit status; what was printed is in `seen`."""
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data.decode(errors="replace")
        os.close(self.master)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def on_terminal(folder, home, *client):
    command = [*AITRACE, "record", "-o", str(folder / "t.aitrace"), "--", *client]
    return Terminal(command, environment(home), folder)


def test_the_client_has_the_terminal(tmp_path, home):
    terminal = on_terminal(tmp_path, home, *CLIENT, "tty")
    assert terminal.read_to_end() == 1
    assert "\nTrue True True" in terminal.seen


def test_the_client_has_the_files_that_a_shell_opened_for_it_and_none_of_the_recorders(tmp_path, home):
    script = f"{sys.executable} -m aitrace record -o t.aitrace -- sh -c 'cat <&9; ls /proc/self/fd' 9< given"
    (tmp_path / "given").write_text("from the shell\n")
    done = subprocess.run(
        ["sh", "-c", script], env=environment(home), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    # The last one is that of ls itself.
    assert done.stdout.split() == ["from", "the", "shell", "0", "1", "2", "3", "9"]


def test_ctrl_c_is_for_the_client_and_the_recording_is_still_ended(tmp_path, home):
    terminal = on_terminal(tmp_path, home, *CLIENT, "wait")
    terminal.read_until("ready")
    os.write(terminal.master, b"\x03")
    assert terminal.read_to_end() == 7
    assert "interrupted" in terminal.seen
    assert "aitrace: no call was recorded" in terminal.seen
    assert "Traceback" not in terminal.seen


def test_what_ends_the_recorder_ends_the_client_first(tmp_path, home):
    command = [*AITRACE, "record", "-o", str(tmp_path / "t.aitrace"), "--", *CLIENT, "wait"]
    with started(command, environment(home), tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 8


def test_a_client_that_stops_itself_gives_the_terminal_back_to_the_shell(tmp_path, home):
    """An interactive shell sees the job stopped, and its `fg` goes on with client and recorder."""
    shell = Terminal(["/bin/bash", "--norc", "-i"], environment(home, PS1="$ ", TERM="dumb"), tmp_path)
    line = f"{sys.executable} -m aitrace record -o t.aitrace -- {' '.join(CLIENT)} stop\n"
    os.write(shell.master, line.encode())
    shell.read_until("Stopped")
    os.write(shell.master, b"fg\n")
    shell.read_until("continued")
    shell.read_until("no call was recorded")
    os.write(shell.master, b"exit\n")
    assert shell.read_to_end() == 1
