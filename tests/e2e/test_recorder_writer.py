"""The writer as a process of its own, fed with frames as the proxy feeds it."""

import os
import pickle
import resource
import signal
import stat
import subprocess
import sys
import time

import orjson
import pytest

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK, EXIT_WRONG_USE
from aitrace.store import read_trace, read_trace_reported
from recorders.notes import Answered, Asked, Chunk, Ended, Stopped

MS = 1_000_000
HEADERS = {"user-agent": "curl/8", "content-type": "application/json"}
PATIENCE_S = 30


def body(number, model="gpt-5.5"):
    messages = [{"role": "user", "content": f"question {i} " * 40} for i in range(number + 1)]
    return orjson.dumps({"model": model, "stream": True, "messages": messages})


def call_notes(number, **fields):
    at_ns = time.monotonic_ns()
    delta = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}
    chunk = b"data: " + orjson.dumps(delta) + b"\n\ndata: [DONE]\n\n"
    return [
        Asked(number, at_ns, "POST", "/v1/chat/completions", HEADERS, body(number, **fields), "http/1.1", 0),
        Answered(number, at_ns + MS, 200, {"content-type": "text/event-stream"}),
        Chunk(number, at_ns + 2 * MS, chunk),
        Ended(number, at_ns + 3 * MS, "complete", ""),
    ]


def frame(notes):
    return pickle.dumps(list(notes), protocol=5)


def stopped(**counts):
    return frame([Stopped(time.monotonic_ns(), counts)])


def start(path, *, limit_bytes=None, **options):
    chosen = orjson.dumps({"path": str(path), "capture": "reverse", **options}).decode()

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))

    return subprocess.Popen(
        [sys.executable, "-P", "-m", "recorders.writer", chosen],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=limited if limit_bytes is not None else None,  # noqa: PLW1509 # no threads here
    )


def finished(writer, data=b""):
    """Report, standard error and exit code once the writer was fed this and its pipe was closed."""
    said, complaints = writer.communicate(data, timeout=PATIENCE_S)
    return orjson.loads(said), complaints.decode(), writer.returncode


def until(condition):
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.02)


def test_a_whole_recording_is_a_trace(tmp_path):
    path = tmp_path / "x.aitrace"
    frames = b"".join(frame(call_notes(number)) for number in range(5))
    report, complaints, code = finished(start(path), frames + stopped(queue_high_water_bytes=7))
    trace = read_trace(path)
    assert (code, complaints, report["error"], report["leaks"]) == (EXIT_OK, "", None, [])
    assert (report["path"], report["calls"], report["sessions"], report["trees"]) == (str(path), 5, 1, 1)
    assert report["trace_bytes"] == path.stat().st_size
    assert report["traffic_bytes"] == trace.footer.notes["traffic_bytes"] > 5000
    assert trace.footer.notes["queue_high_water_bytes"] == 7
    assert [call.outcome.error for call in trace.calls] == [None] * 5
    assert not path.with_name("x.aitrace.partial").exists()


def test_a_recording_without_calls_leaves_no_file(tmp_path):
    report, _, code = finished(start(tmp_path / "x.aitrace"), stopped())
    assert (code, report["calls"], report["error"], report["trace_bytes"]) == (EXIT_OK, 0, None, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_request_that_is_none_of_its_protocol_is_counted_and_leaves_no_file(tmp_path):
    asked = Asked(0, time.monotonic_ns(), "POST", "/v1/messages", HEADERS, b"{}", "http/1.1", 0)
    report, _, _ = finished(start(tmp_path / "x.aitrace"), frame([asked]) + stopped())
    assert (report["calls"], report["dropped_calls"], report["unreadable_calls"]) == (0, 1, 1)
    assert list(tmp_path.iterdir()) == []


def test_calls_that_failed_are_counted_by_how(tmp_path):
    refused = [note._replace(how="connect") if isinstance(note, Ended) else note for note in call_notes(0)]
    notes = [note for note in refused if isinstance(note, (Asked, Ended))]
    unauthorised = [
        note._replace(status=401) if isinstance(note, Answered) else note for note in call_notes(1)
    ]
    left = [*call_notes(2)[:2], call_notes(2)[3]._replace(how="client")]
    frames = frame(notes) + frame(unauthorised) + frame(left) + frame(call_notes(3)) + stopped()
    report, _, _ = finished(start(tmp_path / "x.aitrace"), frames)
    assert (report["calls"], report["failures"]) == (4, {"connect": 1, "http_error": 1})


def test_a_disk_that_was_full_from_the_start_leaves_no_file(tmp_path):
    report, _, code = finished(
        start(tmp_path / "x.aitrace", limit_bytes=100), frame(call_notes(0)) + stopped()
    )
    assert (code, report["calls"], report["dropped_calls"]) == (EXIT_IN_DOUBT, 0, 1)
    assert "File too large" in report["error"]
    assert list(tmp_path.iterdir()) == []


def test_no_time_lies_before_the_start_though_the_proxy_began_first(tmp_path):
    finished(start(tmp_path / "x.aitrace"), frame(call_notes(0)) + stopped())
    trace = read_trace(tmp_path / "x.aitrace")
    assert trace.calls[0].times.request_ns == 0
    assert abs(trace.header.clock_unix_ns - time.time_ns()) < PATIENCE_S * 1000 * MS


def test_calls_are_on_disk_while_the_recording_runs(tmp_path):
    writer = start(tmp_path / "x.aitrace")
    writer.stdin.write(frame(call_notes(0)))
    writer.stdin.flush()
    partial = tmp_path / "x.aitrace.partial"
    until(lambda: partial.exists() and partial.stat().st_size > 0)
    assert len(read_trace(partial).calls) == 1
    assert finished(writer, stopped())[2] == EXIT_OK


def test_a_finished_trace_is_in_full_frames_though_each_second_was_one(tmp_path):
    path, partial = tmp_path / "x.aitrace", tmp_path / "x.aitrace.partial"
    writer = start(path)
    sizes = [0]
    for number in range(3):
        writer.stdin.write(frame(call_notes(number)))
        writer.stdin.flush()
        until(lambda: partial.exists() and partial.stat().st_size > sizes[-1])
        sizes.append(partial.stat().st_size)
    assert frames_in(partial) == 3
    assert finished(writer, stopped())[2] == EXIT_OK
    assert (frames_in(path), len(read_trace(path).calls)) == (1, 3)
    assert [file.name for file in tmp_path.iterdir()] == ["x.aitrace"]


def frames_in(path):
    return path.read_bytes().count(b"\x28\xb5\x2f\xfd")


def test_a_proxy_that_is_killed_leaves_a_finished_trace(tmp_path):
    (tmp_path / "frames").write_bytes(frame(call_notes(0)) + frame(call_notes(1)[:2]) + stopped()[:-4])
    writer = start(tmp_path / "x.aitrace")
    script = "import sys, time; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read()); sys.stdout.flush(); time.sleep(60)"
    proxy = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "frames")], stdout=writer.stdin)
    writer.stdin.close()
    writer.stdin = None
    until((tmp_path / "x.aitrace.partial").exists)
    proxy.kill()
    proxy.wait(PATIENCE_S)
    report, _, code = finished(writer, None)
    first, second = read_trace(tmp_path / "x.aitrace").calls
    assert (first.outcome.error, second.outcome.error) == (None, "unrecorded")
    assert (code, report["unrecorded_calls"]) == (EXIT_IN_DOUBT, 1)
    assert report["error"] is not None


def test_a_pipe_that_closes_without_an_end_says_so(tmp_path):
    report, _, code = finished(start(tmp_path / "x.aitrace"), frame(call_notes(0)))
    assert (code, report["error"]) == (EXIT_IN_DOUBT, "the proxy went away before the recording ended")
    assert read_trace(tmp_path / "x.aitrace").footer is not None


def test_damaged_notes_end_the_recording_with_what_came_before(tmp_path):
    report, _, code = finished(start(tmp_path / "x.aitrace"), frame(call_notes(0)) + b"garbage" + stopped())
    assert (code, report["calls"]) == (EXIT_IN_DOUBT, 1)
    assert "cannot be read any further" in report["error"]
    assert len(read_trace(tmp_path / "x.aitrace").calls) == 1


def test_a_note_that_makes_the_writer_fail_costs_its_exchange_and_is_told(tmp_path):
    odd = [note._replace(headers=None) if isinstance(note, Answered) else note for note in call_notes(0)]
    report, complaints, code = finished(start(tmp_path / "x.aitrace"), frame(odd + call_notes(1)) + stopped())
    assert [call.outcome.error for call in read_trace(tmp_path / "x.aitrace").calls] == ["unrecorded", None]
    assert (code, report["unrecorded_calls"]) == (EXIT_IN_DOUBT, 1)
    assert report["error"] == "1 of its notes made the writer fail"
    assert "Traceback" in complaints


# Disk


def test_a_full_disk_leaves_what_fits_and_is_told(tmp_path):
    writer = start(tmp_path / "x.aitrace", limit_bytes=4096)
    for number in range(60):
        writer.stdin.write(frame(call_notes(number)))
        writer.stdin.flush()
        if number == 5:
            until((tmp_path / "x.aitrace.partial").exists)
            until(lambda: (tmp_path / "x.aitrace.partial").stat().st_size > 0)
    report, _, code = finished(writer, stopped())
    trace, how = read_trace_reported(tmp_path / "x.aitrace.partial")
    assert (code, report["path"]) == (EXIT_IN_DOUBT, str(tmp_path / "x.aitrace.partial"))
    assert "File too large" in report["error"]
    assert 0 < len(trace.calls) == report["calls"] < 60
    assert report["dropped_calls"] == 60 - report["calls"]
    assert (how.damage, how.cut) == (None, False)


def test_lines_that_waited_for_space_are_written_when_there_is_some(tmp_path):
    path = tmp_path / "x.aitrace"
    writer = start(path, limit_bytes=100)
    writer.stdin.write(b"".join(frame(call_notes(number)) for number in range(20)))
    writer.stdin.flush()
    until((tmp_path / "x.aitrace.partial").exists)
    writer.stdin.write(frame(call_notes(20)))
    writer.stdin.flush()
    resource.prlimit(writer.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    report, _, code = finished(writer, frame(call_notes(21)) + stopped())
    assert (code, report["calls"], report["error"]) == (EXIT_OK, 22, None)
    assert len(read_trace(path).calls) == 22


def test_an_existing_file_is_not_replaced(tmp_path):
    (tmp_path / "x.aitrace").write_text("mine")
    report, _, code = finished(start(tmp_path / "x.aitrace"), frame(call_notes(0)) + stopped())
    assert (code, (tmp_path / "x.aitrace").read_text()) == (EXIT_WRONG_USE, "mine")
    assert "exists already" in report["error"]


def test_what_an_earlier_recording_left_is_not_replaced(tmp_path):
    (tmp_path / "x.aitrace.partial").write_text("mine")
    report, _, code = finished(start(tmp_path / "x.aitrace"), frame(call_notes(0)) + stopped())
    assert (code, (tmp_path / "x.aitrace.partial").read_text()) == (EXIT_WRONG_USE, "mine")
    assert "left by a recording" in report["error"]


def test_a_folder_that_does_not_exist_is_told(tmp_path):
    report, _, code = finished(start(tmp_path / "no" / "x.aitrace"), frame(call_notes(0)) + stopped())
    assert (code, report["calls"]) == (EXIT_WRONG_USE, 0)
    assert "cannot be written" in report["error"]


# Privacy


def test_a_secret_that_reaches_the_file_keeps_it_from_being_finished(tmp_path):
    secret = "-".join(("sk", "dummy", "0123456789abcdef" * 2))
    frames = frame(call_notes(0)) + frame(call_notes(1, model=secret)) + stopped()
    report, _, code = finished(start(tmp_path / "x.aitrace"), frames)
    partial = tmp_path / "x.aitrace.partial"
    assert (code, report["path"]) == (EXIT_IN_DOUBT, str(partial))
    assert not (tmp_path / "x.aitrace").exists()
    assert any("API key" in leak for leak in report["leaks"])
    assert secret not in orjson.dumps(report).decode()
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600


@pytest.mark.parametrize(("privacy", "mode"), [("content", 0o600), ("hash", 0o644)])
def test_a_trace_with_text_is_for_its_owner_only(tmp_path, privacy, mode):
    before = os.umask(0o022)
    try:
        writer = start(tmp_path / "x.aitrace", privacy=privacy)
    finally:
        os.umask(before)
    report, _, code = finished(writer, frame(call_notes(0)) + stopped())
    assert (code, report["leaks"]) == (EXIT_OK, [])
    assert stat.S_IMODE((tmp_path / "x.aitrace").stat().st_mode) == mode
    text = read_trace(tmp_path / "x.aitrace").segments[0].text
    assert (text is None) == (privacy == "hash")


def test_names_of_the_recording_are_not_in_the_file(tmp_path):
    finished(start(tmp_path / "x.aitrace"), frame(call_notes(0)) + stopped())
    checked = subprocess.run(
        [sys.executable, "-m", "aitrace", "check", "--no-text", str(tmp_path / "x.aitrace")],
        capture_output=True,
        check=False,
    )
    assert checked.returncode == EXIT_OK, checked.stdout


# Signals


def test_an_interrupt_does_not_end_the_writer_and_a_termination_finishes_the_trace(tmp_path):
    writer = start(tmp_path / "x.aitrace")
    writer.stdin.write(frame(call_notes(0)) + frame(call_notes(1)[:2]))
    writer.stdin.flush()
    until((tmp_path / "x.aitrace.partial").exists)
    writer.send_signal(signal.SIGINT)
    writer.stdin.write(frame(call_notes(2)))
    writer.stdin.flush()
    partial = tmp_path / "x.aitrace.partial"
    until(lambda: partial.stat().st_size > 0 and len(read_trace(partial).calls) == 3)
    writer.send_signal(signal.SIGTERM)
    writer.wait(PATIENCE_S)
    report = orjson.loads(writer.stdout.read())
    writer.communicate()
    assert (report["calls"], report["unrecorded_calls"]) == (3, 1)
    assert read_trace(tmp_path / "x.aitrace").footer is not None


def test_the_writer_loads_no_network_or_table_library():
    script = "import sys, recorders.writer; print([m for m in ('mitmproxy', 'aiohttp', 'polars', 'plotly', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
