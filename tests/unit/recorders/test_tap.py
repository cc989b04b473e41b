"""The way of notes to the writer: nothing blocks, nothing is lost unseen."""

import os
import pickle
import sys

import orjson

from recorders.notes import Asked, Chunk, Ended, Message, Stopped
from recorders.options import RecordOptions
from recorders.tap import LoopLag, Tap

REPORT = {
    "path": "x.aitrace", "calls": 2, "sessions": 1, "trees": 1, "dropped_calls": 0, "unrecorded_calls": 0,
    "trace_bytes": 10, "traffic_bytes": 1000, "leaks": ["one"], "error": None,
}  # fmt: skip
READ_ALL = """
import pickle, signal, sys
notes = []
try:
    while True:
        notes += pickle.load(sys.stdin.buffer)
except EOFError:
    pass
"""
SAY_REPORT = f"print({orjson.dumps(REPORT).decode()!r})"


def options(tmp_path, **changes):
    return RecordOptions(path=str(tmp_path / "x.aitrace"), capture="reverse", **changes)


def program(*lines):
    return [sys.executable, "-c", "\n".join(lines)]


def asked(number, body=b""):
    return Asked(number, 1, "POST", "/v1/messages", {}, body, "http/1.1", 0)


def queued(tap):
    return list(tap._queue)


def started(tmp_path, *lines, patience_s=30.0, **changes):
    tap = Tap(options(tmp_path, **changes), command=program(*lines), patience_s=patience_s)
    tap.start()
    return tap


def test_notes_reach_the_writer_in_order_and_the_counts_come_last(tmp_path):
    copy = tmp_path / "notes"
    tap = started(tmp_path, READ_ALL, f"open({str(copy)!r}, 'wb').write(pickle.dumps(notes))", SAY_REPORT)
    notes = [asked(0, b"a" * 3_000_000), Chunk(0, 2, b"b"), Ended(0, 3, "complete", "")]
    for note in notes:
        tap.put(note)
    tap.stop(9, {"loop_lag_max_us": 5})
    *first, stopped = pickle.loads(copy.read_bytes())  # noqa: S301
    assert first == notes
    assert (type(stopped), stopped.at_ns, stopped.counts["loop_lag_max_us"]) == (Stopped, 9, 5)
    assert stopped.counts["queue_high_water_bytes"] >= 3_000_000


def test_the_writers_report_is_the_last_line_that_it_says(tmp_path):
    report = started(tmp_path, READ_ALL, "print('hello')", SAY_REPORT).stop(9, {})
    assert (report.calls, report.leaks, report.error) == (2, ("one",), None)


def test_the_writer_gets_the_options_as_its_last_argument(tmp_path):
    copy = tmp_path / "arguments"
    tap = started(tmp_path, READ_ALL, f"open({str(copy)!r}, 'w').write(sys.argv[-1])", SAY_REPORT)
    tap.stop(9, {})
    assert RecordOptions(**orjson.loads(copy.read_bytes())) == options(tmp_path)


def test_a_process_that_ends_at_once_hands_over_what_waits(tmp_path):
    """The report is not waited for: whoever asks has no time for it."""
    tap = started(tmp_path, READ_ALL, SAY_REPORT)
    tap.put(asked(0))
    tap.hurry(30)
    assert (queued(tap), tap.report) == ([], None)
    assert tap.stop(9, {}).calls == 2


def test_an_empty_file_of_a_writer_that_died_is_not_left_in_the_way(tmp_path):
    partial = tmp_path / "x.aitrace.partial"
    tap = started(tmp_path, READ_ALL, f"open({str(partial)!r}, 'w')", "raise SystemExit(1)")
    assert tap.stop(9, {}).error.endswith("; nothing was written")
    assert not partial.exists()


def test_a_second_stop_gives_the_same_report(tmp_path):
    tap = started(tmp_path, READ_ALL, SAY_REPORT)
    assert tap.stop(9, {}) is tap.stop(10, {}) is tap.report


def test_data_beyond_the_bound_is_dropped_with_the_rest_of_its_exchange(tmp_path):
    tap = Tap(options(tmp_path, queue_bytes=1000))
    tap.put(asked(0))
    tap.put(Chunk(0, 2, b"a" * 100))
    tap.put(Chunk(0, 3, b"b" * 1000))
    tap.put(Chunk(0, 4, b"c"))
    tap.put(Ended(0, 5, "complete", ""))
    assert queued(tap) == [
        asked(0),
        Chunk(0, 2, b"a" * 100),
        Ended(0, 3, "unrecorded", "the writer did not keep up"),
    ]
    assert (tap.counts["unrecorded_exchanges"], tap.counts["dropped_exchanges"]) == (1, 0)


def test_a_request_beyond_the_bound_leaves_nothing_but_a_count(tmp_path):
    tap = Tap(options(tmp_path, queue_bytes=1000))
    tap.put(asked(0, b"a" * 1000))
    tap.put(Chunk(0, 2, b"a"))
    tap.put(Ended(0, 3, "complete", ""))
    assert queued(tap) == []
    assert (tap.counts["unrecorded_exchanges"], tap.counts["dropped_exchanges"]) == (0, 1)


def test_another_exchange_is_recorded_beside_a_lost_one(tmp_path):
    tap = Tap(options(tmp_path, queue_bytes=1000))
    tap.put(asked(0, b"a" * 1000))
    tap.put(asked(1))
    assert queued(tap) == [asked(1)]


def test_an_end_finds_room_in_a_full_queue(tmp_path):
    tap = Tap(options(tmp_path, queue_bytes=1000))
    tap.put(asked(0, b"a" * 700))
    tap.put(Ended(0, 2, "complete", ""))
    assert queued(tap)[-1] == Ended(0, 2, "complete", "")


def test_messages_count_with_their_bytes(tmp_path):
    tap = Tap(options(tmp_path))
    tap.put(asked(0))
    tap.put(Message(0, 2, True, b"a" * 5000))
    assert 5000 < tap.counts["queue_high_water_bytes"] < 6000


def test_an_exception_of_ours_costs_its_exchange_once(tmp_path):
    tap = Tap(options(tmp_path))
    tap.put(asked(0))
    for at_ns in (2, 3):
        tap.fail(KeyError("x"), 0, at_ns)
    tap.put(Chunk(0, 4, b"a"))
    assert queued(tap)[1:] == [Ended(0, 2, "unrecorded", "KeyError in the recorder")]
    assert (tap.counts["addon_errors"], tap.counts["unrecorded_exchanges"]) == (2, 1)
    assert tap.complaints[-1] == "KeyError: 'x'"


def test_an_exception_outside_any_exchange_is_only_counted(tmp_path):
    tap = Tap(options(tmp_path))
    tap.fail(KeyError("x"), None, 2)
    assert (queued(tap), tap.counts["addon_errors"]) == ([], 1)


def test_a_writer_that_does_not_start_is_reported_with_all_that_it_missed(tmp_path):
    tap = Tap(options(tmp_path), command=[str(tmp_path / "none")])
    tap.start()
    tap.put(asked(0))
    tap.put(Ended(0, 2, "complete", ""))
    report = tap.stop(9, {})
    assert report.error.startswith("the writer did not start: [Errno 2]")
    assert (report.calls, report.dropped_calls, queued(tap)[:-1]) == (0, 1, [])


def test_a_tap_that_was_never_started_reports_that(tmp_path):
    assert Tap(options(tmp_path)).stop(9, {}).error == "the writer was not started; nothing was written"


def test_a_writer_that_fails_is_reported_with_its_status_and_last_words(tmp_path):
    tap = started(tmp_path, READ_ALL, "sys.exit('no space left')")
    tap.put(asked(0))
    report = tap.stop(9, {})
    assert report.error == "the writer ended with status 1 (no space left); nothing was written"
    assert (report.dropped_calls, tap.complaints) == (1, ("no space left",))


def test_what_a_failed_writer_left_is_named_with_its_size(tmp_path):
    partial = tmp_path / "x.aitrace.partial"
    report = started(tmp_path, f"open({str(partial)!r}, 'w').write('12345'); raise SystemExit(3)").stop(9, {})
    assert (report.path, report.trace_bytes) == (str(partial), 5)
    assert report.error.endswith(f"; {partial} holds what it had written")


def test_a_writer_that_is_gone_early_loses_what_comes_later(tmp_path):
    tap = started(tmp_path, "raise SystemExit(3)")
    tap._writer.wait()
    tap.put(asked(0, b"a" * 1_000_000))
    tap._threads[-1].join()  # the feeder has noticed
    tap.put(asked(1))
    report = tap.stop(9, {})
    assert report.error == "the writer ended before the recording did; nothing was written"
    assert (report.dropped_calls, tap.counts["dropped_exchanges"]) == (2, 1)


def test_the_report_of_a_writer_that_left_early_names_what_it_did_not_hear_of(tmp_path):
    tap = started(tmp_path, SAY_REPORT)
    tap._writer.wait()
    tap.put(asked(0))
    tap._threads[-1].join()
    tap.put(asked(1))
    report = tap.stop(9, {})
    assert (report.calls, report.dropped_calls) == (2, 1)
    assert report.error == "the writer ended before the recording did"


def test_a_writer_that_stops_reading_is_killed(tmp_path):
    tap = started(tmp_path, "import signal", "signal.pause()", patience_s=0.2)
    tap.put(asked(0, b"a" * 4_000_000))
    report = tap.stop(9, {})
    assert report.error.startswith("the writer did not take what it was sent within 0.2 s and was killed; ")
    assert (tap._writer.returncode, report.dropped_calls) == (-9, 1)


def test_a_writer_that_does_not_finish_is_killed(tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    tap = started(tmp_path, f"open({str(ready)!r}, 'w').close()", READ_ALL, "signal.pause()", patience_s=2.0)
    ready.read_bytes()  # returns when the writer runs
    report = tap.stop(9, {})
    assert report.error.startswith("the writer did not finish within 2 s and was killed; ")
    assert tap._writer.returncode == -9


def test_a_hanging_writer_only_fills_the_queue(tmp_path):
    tap = started(tmp_path, "import signal", "signal.pause()", patience_s=0.1, queue_bytes=5_000_000)
    for number in range(100):
        tap.put(asked(number, b"a" * 1_000_000))
    assert tap.counts["queue_high_water_bytes"] <= 5_000_000
    # What fits into the pipe is out of the queue.
    assert 93 <= tap.counts["dropped_exchanges"] <= 96
    assert tap.stop(9, {}).dropped_calls == 100


def test_loop_lag_gives_its_worst_and_a_bound_on_99_percent():
    lag = LoopLag()
    for _ in range(99):
        lag.add(250)
    lag.add(70_000)
    assert lag.counts == {"loop_lag_p99_us": 300, "loop_lag_max_us": 70_000}


def test_the_bound_is_never_above_the_worst():
    lag = LoopLag()
    lag.add(120)
    assert lag.counts == {"loop_lag_p99_us": 120, "loop_lag_max_us": 120}


def test_without_samples_there_is_no_lag():
    assert LoopLag().counts == {"loop_lag_p99_us": 0, "loop_lag_max_us": 0}
