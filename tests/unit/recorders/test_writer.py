"""The parts of the writer that need no process: reading of frames, and what happens to lines on a full disk."""

import io
import pickle

from aitrace.schema import Call, CallTimes, Header, Prompt, Session
from aitrace.store import TraceWriter, read_trace
from aitrace.testing import ManualClock
from aitrace.units import NS_PER_S
from recorders.notes import Chunk, Stopped
from recorders.writer import WAITING_BYTES, LineSink, NoteReader

HEADER = Header(producer="aitrace 0 record", unit="bytes", block_size=256)
SESSION = Session(id=0, root=0)


def call(number):
    return Call(id=number, session=0, prompt=Prompt(), times=CallTimes(request_ns=number))


class FullDisk(TraceWriter):
    """A trace on a disk that can be full."""

    is_full = False

    def flush(self):
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().flush()


def batches(data):
    reader = NoteReader(io.BytesIO(data))
    reader.start()
    read = []
    while (batch := reader.batch(timeout_s=10)) is not None:
        read.append(batch)
    return read, reader.trouble


def frame(*notes):
    return pickle.dumps(list(notes), protocol=5)


CHUNK = Chunk(0, 5, b"x")
STOPPED = Stopped(9, {"queue_high_water_bytes": 1})


def test_frames_are_read_to_the_end_of_the_pipe():
    assert batches(frame(CHUNK, CHUNK) + frame(STOPPED)) == ([[CHUNK, CHUNK], [STOPPED]], None)
    assert batches(b"") == ([], None)


def test_many_batches_are_read_though_few_are_read_ahead():
    assert len(batches(frame(CHUNK) * 500)[0]) == 500


def test_what_comes_before_damage_is_read():
    for end in (frame(STOPPED)[:-3], b"garbage", pickle.dumps({"no": "list"}), pickle.dumps([1])):
        read, trouble = batches(frame(CHUNK) + end)
        assert read == [[CHUNK]]
        assert "cannot be read any further" in trouble


def test_a_pickle_that_would_act_is_refused(tmp_path):
    class Act:
        def __reduce__(self):
            return open, (str(tmp_path / "made"), "w")

    assert batches(pickle.dumps([Act()]))[0] == []
    assert not (tmp_path / "made").exists()


def test_time_passes_where_no_notes_come():
    class Silence(io.BytesIO):
        def readable(self):
            return True

    reader = NoteReader(Silence())
    assert reader.batch(timeout_s=0) == ()


def test_lines_are_on_disk_a_second_after_they_were_written(tmp_path):
    clock = ManualClock()
    trace = TraceWriter(tmp_path / "x.aitrace", keep_partial=True)
    sink = LineSink(trace, clock)
    sink.write([HEADER, SESSION, call(0)])
    sink.tick()
    assert trace.temporary_path.stat().st_size == 0
    clock.advance(NS_PER_S)
    sink.tick()
    assert len(read_trace(trace.temporary_path).calls) == 1


def test_lines_wait_while_the_disk_is_full_and_are_written_when_it_is_not(tmp_path):
    clock = ManualClock()
    trace = FullDisk(tmp_path / "x.aitrace", keep_partial=True)
    sink = LineSink(trace, clock)
    sink.write([HEADER, SESSION])
    trace.is_full = True
    for number in range(100):
        sink.write([call(number)])
        clock.advance(NS_PER_S)
        sink.tick()
    assert sink.trouble == "No space left on device"
    assert (sink.failures, sink.has_room) == (100, True)
    trace.is_full = False
    sink.flush()
    assert sink.trouble is None
    assert len(read_trace(trace.temporary_path).calls) == 100
    sink.write([call(100)])
    trace.finish()
    assert len(read_trace(tmp_path / "x.aitrace").calls) == 101


def test_a_disk_that_fills_up_while_waiting_lines_are_written_keeps_the_rest(tmp_path):
    trace = FullDisk(tmp_path / "x.aitrace", keep_partial=True)
    sink = LineSink(trace, ManualClock())
    sink.write([HEADER, SESSION])
    trace.is_full = True
    sink.flush()
    sink.write([call(number) for number in range(5000)])  # more than a frame
    trace.is_full = False
    full_after = iter([False, True])
    flush = TraceWriter.flush

    def sometimes(self):
        if next(full_after, True):
            raise OSError(28, "No space left on device")
        flush(self)

    FullDisk.flush, kept = sometimes, FullDisk.flush
    sink.flush()
    assert sink.trouble == "No space left on device"
    FullDisk.flush = kept
    sink.flush()
    assert len(read_trace(trace.temporary_path).calls) == 5000


def test_there_is_no_room_once_too_much_waits(tmp_path):
    trace = FullDisk(tmp_path / "x.aitrace", keep_partial=True)
    sink = LineSink(trace, ManualClock())
    sink.write([HEADER])
    trace.is_full = True
    sink.flush()
    big = Session(id=0, root=0, label="x" * (WAITING_BYTES // 4))
    room = []
    for _ in range(5):
        sink.write([big])
        room.append(sink.has_room)
    assert room == [True, True, True, False, False]
    trace.is_full = False
    sink.flush()
    assert sink.has_room
