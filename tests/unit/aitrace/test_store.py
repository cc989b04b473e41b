import errno
import io
import os
import stat
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import zstandard

from aitrace.codec import encode_line
from aitrace.errors import InputError, UsageError
from aitrace.no_text import _PATHS
from aitrace.schema import (
    FORMAT_VERSION,
    Call,
    CallTimes,
    Footer,
    Header,
    Outcome,
    Segment,
    Session,
    Update,
    Usage,
    Wire,
)
from aitrace.store import (
    DamagedTraceError,
    TraceReader,
    TraceWriter,
    read_trace,
    read_trace_reported,
    write_trace,
)
from aitrace.testing import (
    TraceBuilder,
    find_problems,
    make_call,
    make_segment,
    make_trace,
    make_update,
    recorded_lines,
)

TRACE = make_trace(2, 3)


def lines_of(trace):
    return [trace.header, *trace.sessions, *trace.segments, *trace.calls, trace.footer]


LINES = lines_of(TRACE)
PLAIN = b"".join(encode_line(line) for line in LINES)


def frames(*parts):
    return b"".join(zstandard.compress(part) for part in parts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.aitrace"


def iter_lines(path):
    return (line for _, line in TraceReader(path))


def written(path, data):
    path.write_bytes(data)
    return path


def test_a_trace_comes_back_as_it_was(path):
    footer = write_trace(path, TRACE)
    assert read_trace(path) == TRACE
    assert TRACE.footer == footer
    assert list(iter_lines(path)) == LINES
    assert [path] == list(path.parent.iterdir())


def test_a_trace_without_end_gets_one_when_written_again(path):
    write_trace(path, replace(TRACE, footer=None))
    assert read_trace(path) == TRACE


def test_dropped_calls_and_notes_survive_rewriting(path, tmp_path):
    with TraceWriter(path) as writer:
        writer.write(TRACE.header)
        writer.finish(dropped_calls=3, notes={"parse_errors": 2})
    write_trace(tmp_path / "copy", read_trace(path))
    assert (
        read_trace(tmp_path / "copy").footer.dropped_calls,
        read_trace(tmp_path / "copy").footer.notes,
    ) == (3, {"parse_errors": 2})


def test_plain_json_lines_are_read(path):
    assert read_trace(written(path, PLAIN)) == TRACE


def test_plain_lines_from_an_editor_are_read(path):
    """No newline at the end, blank lines between, carriage returns."""
    data = b"\n" + PLAIN.replace(b"\n", b"\r\n\n").rstrip()
    trace, report = read_trace_reported(written(path, data))
    assert trace == TRACE
    assert len(LINES) == report.lines


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(frames(PLAIN))))
    reader = TraceReader("-")
    assert [line for _, line in reader] == LINES
    assert reader.name == "stdin"
    assert not sys.stdin.buffer.closed


def test_a_line_may_span_frames(path):
    assert read_trace(written(path, frames(*(PLAIN[i : i + 7] for i in range(0, len(PLAIN), 7))))) == TRACE


def test_a_file_larger_than_one_read_is_read(path, monkeypatch):
    monkeypatch.setattr("aitrace.store._READ_BYTES", 5)
    assert read_trace(written(path, frames(PLAIN[:1000], PLAIN[1000:]))) == TRACE
    assert read_trace(written(path, PLAIN)) == TRACE


def test_the_end_is_reported_as_clean(path):
    write_trace(path, TRACE)
    report = read_trace_reported(path)[1]
    assert (len(LINES), 0, False, True) == (report.lines, report.bytes_lost, report.cut, report.clean_end)
    assert (report.damage, report.lines_lost) == (None, 0)


def test_a_missing_footer_is_reported(path):
    trace, report = read_trace_reported(written(path, frames(b"".join(PLAIN.splitlines(keepends=True)[:-1]))))
    assert trace.footer is None
    assert (report.clean_end, report.cut, report.bytes_lost) == (False, False, 0)


def test_a_plain_file_cut_anywhere_gives_its_whole_lines(tmp_path):
    first = len(encode_line(LINES[0]))
    for keep in range(first, len(PLAIN)):
        good = PLAIN[:keep].count(b"\n")
        rest = keep - (PLAIN[:keep].rfind(b"\n") + 1)
        if PLAIN[keep : keep + 1] == b"\n":
            good, rest = good + 1, 0  # whole but for its newline
        reader = TraceReader(written(tmp_path / "x", PLAIN[:keep]))
        assert LINES[:good] == [line for _, line in reader]
        assert (good, rest, rest > 0) == (reader.report.lines, reader.report.bytes_lost, reader.report.cut)


def test_a_file_cut_in_its_first_line_is_no_trace(tmp_path):
    for keep in range(1, len(encode_line(LINES[0])) - 1):
        with pytest.raises(InputError, match="holds no whole line of a trace"):
            read_trace(written(tmp_path / "x", PLAIN[:keep]))


def test_a_framed_file_cut_anywhere_loses_at_most_the_last_frame(tmp_path):
    rows = PLAIN.splitlines(keepends=True)
    groups = [rows[:4], rows[4:9], rows[9:]]
    sealed = [frames(b"".join(group)) for group in groups]
    data = b"".join(sealed)
    ends = [(0, 0), (len(sealed[0]), 4), (len(sealed[0] + sealed[1]), 9), (len(data), len(rows))]
    for keep in range(ends[1][0], len(data)):
        reader = TraceReader(written(tmp_path / "x", data[:keep]))
        got = [line for _, line in reader]
        at_a_frame_end = keep in [end for end, _ in ends]
        assert LINES[: len(got)] == got
        assert len(got) >= max(lines for end, lines in ends if end <= keep)
        assert (not at_a_frame_end, False) == (reader.report.cut, reader.report.clean_end)


def test_a_cut_frame_is_read_as_far_as_it_is_good(tmp_path):
    """One frame of several zstd blocks: what is lost is at most one block of 128 KiB and what follows."""
    calls = [make_call(i) for i in range(20_000)]
    head = [TRACE.header, TRACE.sessions[0]]
    text = b"".join(encode_line(line) for line in (*head, *calls))
    data = frames(text)
    reader = TraceReader(written(tmp_path / "x", data[: len(data) * 3 // 4]))
    got = [line for _, line in reader]
    assert [*head, *calls][: len(got)] == got
    assert len(got) > 10_000
    assert reader.report.cut


@pytest.mark.parametrize("start", ["frame", "plain"])
def test_a_tail_of_zeros_is_a_cut_tail(start, path):
    data = frames(PLAIN) if start == "frame" else PLAIN
    trace, report = read_trace_reported(written(path, data + bytes(200_000)))
    assert TRACE.calls == trace.calls
    assert trace.footer is None
    assert (report.bytes_lost, report.cut, report.clean_end) == (200_000, True, False)


def test_a_frame_that_breaks_off_into_zeros_is_a_cut_tail(path):
    good = frames(PLAIN)
    report = read_trace_reported(written(path, good + frames(PLAIN)[:100] + bytes(4096)))[1]
    assert (len(LINES), True) == (report.lines, report.cut)


@pytest.mark.parametrize(
    "tail", [b"garbage that is no frame", bytes(100) + b"x", b"\x50\x2a\x4d\x18\x05\0\0\0hello"]
)
def test_anything_else_between_frames_is_damage(tail, path, monkeypatch):
    monkeypatch.setattr("aitrace.store._READ_BYTES", 64)
    data = frames(b"".join(PLAIN.splitlines(keepends=True)[:5])) + tail
    with pytest.raises(DamagedTraceError, match=r"x.aitrace:6: damaged after 5 good lines: ") as error:
        read_trace(written(path, data))
    assert "aitrace check" in error.value.hint


def test_a_flipped_bit_in_a_written_frame_is_damage(path):
    with TraceWriter(path) as writer:
        for line in LINES[:5]:
            writer.write(line)
        writer.flush()
        for line in LINES[5:-1]:
            writer.write(line)
    data = bytearray(path.read_bytes())
    data[-30] ^= 4
    with pytest.raises(DamagedTraceError, match=r"x.aitrace:6: damaged after 5 good lines: a damaged frame"):
        read_trace(written(path, bytes(data)))


def test_a_few_zeros_do_not_excuse_a_damaged_frame(path):
    write_trace(path, TRACE)
    data = bytearray(path.read_bytes())
    data[-30] ^= 4
    with pytest.raises(DamagedTraceError):
        read_trace(written(path, bytes(data) + bytes(10)))


def test_a_damaged_line_names_its_place_and_the_next_step(path):
    rows = PLAIN.splitlines(keepends=True)
    with pytest.raises(
        InputError, match=r"x.aitrace:4: segment.size: expected an integer, got 'big'$"
    ) as error:
        read_trace(
            written(path, b"".join(rows[:3]) + rows[3].replace(b"1000", b'"big"') + b"".join(rows[4:]))
        )
    assert f"aitrace check {path} lists what is wrong" == error.value.hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "not an aitrace trace: it holds neither zstd frames nor JSON lines"),
        (b"\x28\xb5", "holds no whole line of a trace"),
        (b"\x89PNG\r\n\x1a\n....", "not an aitrace trace: it holds neither zstd frames nor JSON lines"),
        (b'{"id":"trace_1","requests":[]}\n', "not an aitrace trace: its first line is not a header"),
        (b'{\n "id": 5\n}\n', "not an aitrace trace: its first line is not a JSON object"),
        (frames(b'{"timestamp":0}\n'), "not an aitrace trace: its first line is not a header"),
        (frames(b"hello\n"), "not an aitrace trace: its first line is not a JSON object"),
        (encode_line(TRACE.sessions[0]), "not an aitrace trace: its first line is not a header"),
    ],
)
def test_what_is_no_trace_is_told_in_one_sentence(data, message, path):
    with pytest.raises(InputError) as error:
        read_trace(written(path, data))
    assert f"{path}: {message}" == str(error.value)
    assert error.value.hint
    if message.startswith("not"):
        assert f"aitrace convert {path} -o NEW.aitrace reads the formats of other tools" == error.value.hint


def test_a_missing_file_is_told_in_one_sentence(path, tmp_path):
    with pytest.raises(InputError, match=r"x.aitrace: no such file$"):
        read_trace(path)
    with pytest.raises(InputError, match=r"is a directory, expected a trace file$"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match=r"cannot be read: Not a directory$"):
        read_trace(written(path, b"x") / "y")


def test_a_newer_version_is_refused(path):
    with pytest.raises(InputError, match=r"x.aitrace:1: written by a newer aitrace"):
        read_trace(written(path, PLAIN.replace(b'"version":%d' % FORMAT_VERSION, b'"version":99')))


FIRST_CALL = LINES.index(TRACE.calls[0])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{\n", "not JSON"),
        (encode_line(make_call(9)), "call.id: expected 1, got 9"),
        (encode_line(TRACE.header), "a second header"),
    ],
)
def test_a_damaged_trace_is_reported_as_far_as_it_is_good(bad, reason, path):
    rows = PLAIN.splitlines(keepends=True)
    good = FIRST_CALL + 1
    trace, report = read_trace_reported(written(path, b"".join([*rows[:good], bad, *rows[good:]])))
    assert (TRACE.calls[:1], None, good) == (trace.calls, trace.footer, report.lines)
    assert (len(rows) - good + 1, 0) == (report.lines_lost, report.bytes_lost)
    assert f"{path}:{good + 1}: {reason}" in str(report.damage)


def test_a_damaged_frame_gives_none_of_its_lines(path):
    """What a frame says before its checksum is compared may be wrong and still look right."""
    rows = PLAIN.splitlines(keepends=True)
    good = b"".join(rows[: FIRST_CALL + 1])
    with TraceWriter(path) as writer:
        for line in LINES[:-1]:
            writer.write(line)
    sealed = bytearray(path.read_bytes())
    sealed[-30] ^= 4
    trace, report = read_trace_reported(written(path, frames(good) + sealed + frames(b"x")))
    assert (TRACE.calls[:1], FIRST_CALL + 1) == (trace.calls, report.lines)
    assert (0, len(sealed) + len(frames(b"x"))) == (report.lines_lost, report.bytes_lost)
    assert (report.cut, report.clean_end) == (False, False)


def test_a_damaged_trace_is_not_loaded_and_the_way_to_its_good_part_is_told(path):
    rows = PLAIN.splitlines(keepends=True)
    written(path, b"".join([*rows[: FIRST_CALL + 1], b"{\n", *rows[FIRST_CALL + 1 :]]))
    with pytest.raises(InputError, match=rf":{FIRST_CALL + 2}: not JSON") as error:
        read_trace(path)
    assert f"aitrace inspect {path} shows what is good before it" in error.value.hint


def test_a_header_that_lacks_a_field_leads_to_the_page_that_lists_them(path):
    with pytest.raises(InputError, match=r"x.aitrace:1: header.unit: missing$") as error:
        read_trace(written(path, b'{"kind":"header","version":1,"producer":"me","block_size":64}\n'))
    assert "docs/format.md" in error.value.hint


def test_a_trace_damaged_before_its_first_call_is_refused(path):
    with pytest.raises(InputError, match=r"x.aitrace:3: not JSON"):
        read_trace_reported(written(path, b"".join(PLAIN.splitlines(keepends=True)[:2]) + b"{\n" + PLAIN))


def test_zeros_that_begin_at_a_read_boundary_are_a_cut_tail(path, monkeypatch):
    data = frames(PLAIN) + frames(PLAIN)[:80]
    monkeypatch.setattr("aitrace.store._READ_BYTES", len(data) + 10)
    assert read_trace_reported(written(path, data + bytes(4096)))[1].cut


@pytest.mark.parametrize(
    ("extra", "message"),
    [(LINES[0], "a second header"), (LINES[1], "a line after the footer")],
)
def test_one_file_holds_one_trace(extra, message, path):
    with pytest.raises(InputError, match=rf"x.aitrace:{len(LINES) + 1}: {message}$"):
        read_trace(written(path, PLAIN + encode_line(extra)))


def test_what_the_memory_model_needs_is_verified(path):
    with pytest.raises(InputError, match=r"x.aitrace:3: call.id: expected 0, got 4$"):
        read_trace(written(path, encode_line(LINES[0]) + encode_line(LINES[1]) + encode_line(make_call(4))))


def recorded():
    """A main agent that runs a sub-agent, as a recorder writes it."""
    builder = TraceBuilder()
    main = builder.session(harness="claude-code", harness_version="2.1.332", evidence=["inferred/prefix"])
    wire = Wire(transport="h2", connection=0, response_encoding="br")
    first = builder.call(main, [builder.segment(100)], wire=wire, unseen_start=True)
    child = builder.session(main)
    inner = builder.call(child, [builder.segment(100)], after=[first], duration_ns=5 * 10**9, tool_calls=())
    builder.call(child, [builder.segment(100)], outcome=Outcome(error="cut", ended_by="client"))
    builder.call(main, [builder.segment(100)], after=[first, inner])
    return builder.trace()


def test_updates_are_merged_into_the_calls(path):
    trace = recorded()
    lines = recorded_lines(trace)
    report = read_trace_reported(written(path, frames(b"".join(map(encode_line, lines)))))[1]
    assert read_trace(path) == trace
    assert (report.lines, report.clean_end) == (len(lines), True)
    assert sum(isinstance(line, Update) for line in lines) == len(trace.calls)


def test_a_recording_that_is_written_again_has_whole_calls(path, tmp_path):
    trace = recorded()
    write_trace(
        tmp_path / "copy", read_trace(written(path, b"".join(map(encode_line, recorded_lines(trace)))))
    )
    assert list(iter_lines(tmp_path / "copy")) == lines_of(trace)


@pytest.mark.parametrize(("size", "states"), [(1, {(1, 0), (4, 2), (4, 4)}), (3, {(3, 2), (4, 4)})])
def test_a_recording_cut_at_any_byte_has_every_call_that_was_begun(tmp_path, size, states):
    """Frames of so many lines. What has no update yet is `unrecorded`; what has one is whole."""
    trace = recorded()
    lines = recorded_lines(trace)
    rows = [encode_line(line) for line in lines]
    sealed = [frames(b"".join(rows[start : start + size])) for start in range(0, len(rows), size)]
    data = b"".join(sealed)
    ends = [sum(map(len, sealed[:count])) for count in range(len(sealed) + 1)]
    first = next(i for i, line in enumerate(lines) if isinstance(line, Call))
    seen = set()
    for keep in range(ends[first // size + 1], len(data) + 1):
        got, report = read_trace_reported(written(tmp_path / "x", data[:keep]))
        whole = min(size * max(i for i, end in enumerate(ends) if end <= keep), len(lines))
        assert report.lines >= whole
        good = lines[: report.lines]
        begun = [line for line in good if isinstance(line, Call)]
        ended = {line.call for line in good if isinstance(line, Update)}
        expected = [trace.calls[c.id] if c.id in ended else c for c in begun]
        assert list(got.calls) == expected
        assert {c.id for c in got.calls if c.outcome.error == "unrecorded"} == {c.id for c in begun} - ended
        seen.add((len(begun), len(ended)))
    assert states <= seen


def test_updates_hold_in_their_order_and_replace_only_what_they_tell(path):
    updates = [
        make_update(0, usage=Usage(output_tokens=5)),
        Update(call=0, wire=Wire(request_bytes=7), extra={"x_new": 1}),
        Update(call=0, usage=Usage(output_tokens=6)),
    ]
    lines = [TRACE.header, TRACE.sessions[0], make_call(0, turn=3, usage=Usage(input_tokens=9)), *updates]
    [call] = read_trace(written(path, b"".join(map(encode_line, lines)))).calls
    assert (Usage(output_tokens=6), Wire(request_bytes=7), 3) == (call.usage, call.wire, call.turn)
    assert call.extra == {"x_new": 1}


def test_an_update_of_a_call_that_is_not_there_is_refused(path):
    with pytest.raises(InputError, match=r"x.aitrace:3: update.call: call 0 comes later or never$"):
        read_trace(written(path, b"".join(map(encode_line, [*LINES[:2], make_update(0)]))))


def test_a_version_1_file_has_what_it_had():
    trace = read_trace(VERSIONS / "v1.aitrace")
    assert (len(trace.calls), trace.header.version, trace.header.capture) == (4, FORMAT_VERSION, None)
    assert [call.prompt.unseen_start for call in trace.calls] == [False] * 4


def break_off(writer, lines):
    for line in lines:
        writer.write(line)
    raise RuntimeError


class TestTraceWriter:
    def test_lines_are_readable_as_soon_as_they_are_flushed(self, path):
        with TraceWriter(path, keep_partial=True) as writer:
            writer.write(LINES[0])
            writer.write(LINES[1])
            writer.flush()
            writer.flush()
            assert LINES[:2] == list(iter_lines(path.with_name("x.aitrace.partial")))
            assert not path.exists()
        assert path.exists()

    def test_a_frame_is_closed_when_it_is_full(self, path, monkeypatch):
        monkeypatch.setattr("aitrace.store._FRAME_LINES", 3)
        with TraceWriter(path) as writer:
            for line in LINES[:4]:
                writer.write(line)
            assert LINES[:3] == list(iter_lines(writer.temporary_path))

    def test_a_frame_is_closed_when_it_is_large(self, path, monkeypatch):
        monkeypatch.setattr("aitrace.store._FRAME_BYTES", 100)
        with TraceWriter(path) as writer:
            for line in LINES[:2]:
                writer.write(line)
            assert LINES[:2] == list(iter_lines(writer.temporary_path))

    def test_the_footer_counts_what_was_written(self, path):
        with TraceWriter(path) as writer:
            for line in LINES[:-1]:
                writer.write(line)
            footer = writer.finish(dropped_calls=2, notes={"parse_errors": 1})
        segments = 1 + 2 * (1 + 2 * 2)
        blocks = 16 + 2 * (4 + 2 * (2 + 5))
        assert footer == Footer(
            sessions=2, segments=segments, calls=6, blocks=blocks, dropped_calls=2, notes={"parse_errors": 1}
        )

    def test_updates_are_written_and_counted_in_nothing(self, path):
        call = make_call(0, times=CallTimes(request_ns=0), outcome=Outcome(error="unrecorded"))
        lines = [TRACE.header, TRACE.sessions[0], call, make_update(0)]
        with TraceWriter(path) as writer:
            for line in lines:
                writer.write(line)
            footer = writer.finish()
        assert footer == Footer(sessions=1, segments=0, calls=1, blocks=0)
        assert list(iter_lines(path)) == [*lines, footer]

    def test_an_exception_leaves_nothing_behind(self, path):
        with pytest.raises(RuntimeError), TraceWriter(path) as writer:
            break_off(writer, LINES[:1])
        assert list(path.parent.iterdir()) == []

    def test_a_disk_that_is_full_at_the_end_leaves_nothing_behind(self, path, monkeypatch):
        """All lines of a small trace are written at its end."""

        def write(descriptor, data):
            raise OSError(errno.ENOSPC, "no space left on device")

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(OSError, match="no space"):
            write_trace(path, TRACE)
        assert list(path.parent.iterdir()) == []

    def test_an_exception_before_the_first_line_leaves_nothing_behind(self, path):
        with pytest.raises(RuntimeError), TraceWriter(path):
            raise RuntimeError
        assert list(path.parent.iterdir()) == []

    def test_an_exception_leaves_the_earlier_file_as_it_was(self, path):
        write_trace(path, TRACE)
        with pytest.raises(RuntimeError), TraceWriter(path) as writer:
            break_off(writer, LINES[:1])
        assert read_trace(path) == TRACE

    def test_a_recorder_keeps_what_it_has(self, path):
        with pytest.raises(RuntimeError), TraceWriter(path, keep_partial=True) as writer:
            break_off(writer, LINES[:2])
        assert LINES[:2] == list(iter_lines(writer.temporary_path))
        assert not path.exists()

    def test_a_recorder_does_not_write_over_an_earlier_recording(self, path):
        partial = written(path.with_name("x.aitrace.partial"), PLAIN)
        with pytest.raises(UsageError, match=r"x.aitrace.partial: left by a recording that did not end"):
            TraceWriter(path, keep_partial=True).write(LINES[0])
        assert partial.read_bytes() == PLAIN

    def test_a_converter_writes_over_what_a_crash_left(self, path):
        written(path.with_name("x.aitrace.tmp"), b"rest")
        write_trace(path, TRACE)
        assert read_trace(path) == TRACE

    def test_a_place_that_cannot_be_written_is_wrong_use(self, tmp_path):
        with pytest.raises(UsageError, match=r"/x\.aitrace: cannot be written: No such file or directory$"):
            write_trace(tmp_path / "missing" / "x.aitrace", TRACE)

    def test_the_header_comes_first(self, path):
        with pytest.raises(TypeError, match="first line of a trace is its header, got Session"):
            TraceWriter(path).write(LINES[1])

    @pytest.mark.parametrize(("privacy", "shared"), [("content", 0), ("hash", stat.S_IRGRP | stat.S_IROTH)])
    def test_a_file_with_text_is_for_its_owner_only(self, path, privacy, shared):
        old = os.umask(0o022)
        try:
            with TraceWriter(path) as writer:
                writer.write(Header(producer="p", unit="bytes", block_size=64, privacy=privacy))
                writer.write(make_segment(0, 5, 0))
        finally:
            os.umask(old)
        assert shared == path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)

    def test_a_full_disk_costs_no_line_and_no_order(self, path, monkeypatch):
        """Half a frame is written, then the disk is full; later there is room again."""
        real_write = os.write
        budget = [40]

        def write(descriptor, data):
            taken = min(budget[0], len(data))
            if taken == 0:
                raise OSError(errno.ENOSPC, "no space left on device")
            budget[0] -= taken
            return real_write(descriptor, bytes(data[:taken]))

        monkeypatch.setattr(os, "write", write)
        with TraceWriter(path, keep_partial=True) as writer:
            for line in LINES[:-1]:
                writer.write(line)
            with pytest.raises(OSError, match="no space"):
                writer.flush()
            assert writer.temporary_path.stat().st_size == 0
            with pytest.raises(OSError, match="no space"):
                writer.finish()
            budget[0] = 10**6
            writer.finish()
        assert read_trace(path) == TRACE

    def test_a_full_disk_does_not_hide_the_reason_for_the_end(self, path, monkeypatch):
        def write(descriptor, data):
            raise OSError(errno.ENOSPC, "no space left on device")

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(RuntimeError), TraceWriter(path, keep_partial=True) as writer:
            break_off(writer, LINES[:1])


VERSIONS = Path(__file__).parents[2] / "golden" / "versions"


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_a_file_of_every_version_is_read_for_ever(version):
    """These files are never written anew: they are what older programs left behind."""
    lines = list(iter_lines(VERSIONS / f"v{version}.aitrace"))
    assert list(find_problems(enumerate(lines, 1))) == []
    assert {type(line) for line in lines} - {Update} == {Header, Session, Segment, Call, Footer}
    assert (Update in map(type, lines)) == (version >= 2)


def test_the_file_of_this_version_is_written_as_it_was():
    name = f"v{FORMAT_VERSION}"
    expected = (VERSIONS / f"{name}.jsonl").read_bytes()
    assert b"".join(encode_line(line) for line in iter_lines(VERSIONS / f"{name}.aitrace")) == expected
    assert list(iter_lines(VERSIONS / f"{name}.jsonl")) == list(iter_lines(VERSIONS / f"{name}.aitrace"))


def test_the_file_of_this_version_uses_every_field():
    def used(value, path):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from used(inner, f"{path}.{key}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for inner in value:
                yield from used(inner, f"{path}.*")
        else:
            yield path

    rows = [orjson.loads(row) for row in (VERSIONS / f"v{FORMAT_VERSION}.jsonl").read_bytes().splitlines()]
    found = {path for row in rows for path in used(row, row.pop("kind"))}
    assert no_text_leaves() - found == {"header.privacy"}  # its default, and the other value would need text


def no_text_leaves():
    """Every field that a trace without text may hold and that holds no other."""
    paths = {path for path in _PATHS if not path.endswith(".*")}
    return {path for path in paths if not any(other.startswith(f"{path}.") for other in paths)} - {
        "footer.notes"
    }


def test_no_flipped_bit_turns_into_a_wrong_line(path):
    """The frame's checksum is compared, so a line is as it was written or not there."""
    lines = LINES[:2]
    with TraceWriter(path) as writer:
        for line in lines:
            writer.write(line)
    lines.append(Footer(sessions=1, segments=0, calls=0, blocks=0))
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        got = []
        with suppress(InputError):
            got.extend(line for _, line in TraceReader(path))
        assert got == lines[: len(got)]
