import gc
import io
import stat
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import zstandard

from aitrace import stored_trace as module
from aitrace.codec import encode_line
from aitrace.columns import call_columns, segment_columns
from aitrace.errors import InputError, UsageError
from aitrace.schema import Call, Outcome, Usage
from aitrace.store import read_trace, write_trace
from aitrace.stored_trace import stored_trace, trace_in_spool
from aitrace.testing import TraceBuilder, make_call, make_trace, make_update, recorded_lines

VERSIONS = Path(__file__).parents[2] / "golden" / "versions"
TRACE = make_trace(3, 4)
ROWS = [
    encode_line(line) for line in (TRACE.header, *TRACE.sessions, *TRACE.segments, *TRACE.calls, TRACE.footer)
]


@pytest.fixture(autouse=True)
def spools(tmp_path, monkeypatch):
    """Where spools of this test are."""
    directory = tmp_path / "spools"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.aitrace"


def written(path, rows):
    path.write_bytes(zstandard.compress(b"".join(rows)))
    return path


def assert_same(one, other):
    assert (one.header, one.sessions, one.footer) == (other.header, other.sessions, other.footer)
    assert (list(one.segments), list(one.calls)) == (list(other.segments), list(other.calls))
    for columns in (call_columns, segment_columns):
        ours, theirs = columns(one), columns(other)
        for field in fields(ours):
            assert np.array_equal(getattr(ours, field.name), getattr(theirs, field.name)), field.name


def recording():
    builder = TraceBuilder()
    main = builder.session(harness="claude-code")
    first = builder.call(main, [builder.segment(100)])
    child = builder.session(main)
    builder.call(child, [builder.segment(100)], outcome=Outcome(error="cut", ended_by="client"))
    builder.call(main, [builder.segment(100)], after=[first], usage=Usage(input_tokens=3))
    return builder.trace()


@pytest.mark.parametrize("batch", [1, 3, 2000])
def test_a_stored_trace_is_the_trace(batch, path, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_LINES", batch)
    with stored_trace(written(path, ROWS)) as stored:
        assert_same(stored.trace, TRACE)


@pytest.mark.parametrize("batch", [1, 2, 2000])
def test_updates_are_merged(batch, path, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_LINES", batch)
    rows = [encode_line(line) for line in recorded_lines(recording())]
    with stored_trace(written(path, rows)) as stored:
        assert_same(stored.trace, recording())


@pytest.mark.parametrize("name", ["v1.aitrace", "v2.aitrace"])
def test_every_version_is_read(name):
    with stored_trace(VERSIONS / name) as stored:
        assert_same(stored.trace, read_trace(VERSIONS / name))


@pytest.mark.parametrize("batch", [1, 3, 2000])
def test_unknown_fields_are_kept(batch, path, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_LINES", batch)
    rows = [row.replace(b'"model"', b'"x_new":[1],"model"') for row in ROWS]
    with stored_trace(written(path, rows)) as stored:
        assert_same(stored.trace, read_trace(path))
        assert stored.trace.calls[5].extra == {"x_new": [1]}


def test_a_trace_comes_from_standard_input(path, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"".join(ROWS)))
    monkeypatch.setattr("sys.stdin", stdin)
    with stored_trace("-") as stored:
        assert_same(stored.trace, TRACE)


def test_a_cut_trace_has_no_footer(path):
    with stored_trace(written(path, ROWS[:-2])) as stored:
        assert (stored.trace.footer, len(stored.trace.calls)) == (None, len(TRACE.calls) - 1)
    path.write_bytes(b"".join(ROWS)[:-5])
    with stored_trace(path) as stored:
        assert_same(stored.trace, read_trace(path))


FIRST_CALL = next(number for number, row in enumerate(ROWS) if b'"kind":"call"' in row)
BAD_ROWS = [
    b"{\n",
    b"5\n",
    b'{"kind":"call"}\n',
    b'{"kind":["call"]}\n',
    encode_line(make_call(99)),
    encode_line(make_update(99)),
    encode_line(make_call(1, session=77)),
    ROWS[0],
    ROWS[-1],
]


@pytest.mark.parametrize("batch", [1, 4, 2000])
@pytest.mark.parametrize("place", [2, FIRST_CALL, FIRST_CALL + 1, len(ROWS) - 1, len(ROWS)])
@pytest.mark.parametrize("bad", BAD_ROWS)
def test_what_is_wrong_is_told_as_when_it_is_read_into_memory(bad, place, batch, path, spools, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_LINES", batch)
    written(path, [*ROWS[:place], b"\n", bad, *ROWS[place:]])
    with pytest.raises(InputError) as expected:
        read_trace(path)
    with pytest.raises(InputError) as got, stored_trace(path):
        pass
    assert (str(expected.value), expected.value.hint) == (str(got.value), got.value.hint)
    assert list(spools.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"{",
        ROWS[1],
        ROWS[0].replace(b'"block_size":64', b'"block_size":0'),
        ROWS[0].replace(b'"unit"', b'"x"'),
        zstandard.compress(ROWS[0] + ROWS[1]) + b"junk",
        zstandard.compress(b"".join(ROWS[: FIRST_CALL + 2])) + b"junk",
        zstandard.compress(b"".join(ROWS[: FIRST_CALL + 2]) + b"{\n") + b"junk",
    ],
)
def test_a_file_that_is_no_trace_is_told_as_when_it_is_read_into_memory(data, path):
    path.write_bytes(data)
    with pytest.raises(InputError) as expected:
        read_trace(path)
    with pytest.raises(InputError) as got, stored_trace(path):
        pass
    assert (str(expected.value), expected.value.hint) == (str(got.value), got.value.hint)


def test_a_missing_file_leaves_no_spool(path, spools):
    with pytest.raises(InputError, match="no such file"), stored_trace(path):
        pass
    assert list(spools.iterdir()) == []


def test_the_spool_can_be_read_by_its_user_only(path, spools):
    with stored_trace(written(path, ROWS)) as stored:
        assert stored.spool.parent == spools
        modes = [stat.S_IMODE(file.stat().st_mode) for file in (stored.spool, *stored.spool.iterdir())]
    assert modes == [0o700, *[0o600] * (len(modes) - 1)]
    assert len(modes) > 3


def test_the_spool_goes_with_its_owner_whatever_happens(path, spools):
    def fail():
        assert len(list(spools.iterdir())) == 1
        raise RuntimeError

    with pytest.raises(RuntimeError), stored_trace(written(path, ROWS)):
        fail()
    assert list(spools.iterdir()) == []


def test_no_descriptor_stays_open(path):
    def opened():
        return len(list(Path("/dev/fd").iterdir()))

    gc.collect()
    before = opened()
    with stored_trace(written(path, ROWS)):
        assert opened() > before
    assert opened() == before


def test_another_process_opens_the_spool(path):
    text = (
        "import sys; from pathlib import Path; from aitrace.stored_trace import trace_in_spool;"
        "trace = trace_in_spool(Path(sys.argv[1]));"
        "print(len(trace.calls), trace.calls[7].times.request_ns, len(trace.sessions))"
    )
    with stored_trace(written(path, ROWS)) as stored:
        path.unlink()
        assert_same(trace_in_spool(stored.spool), TRACE)
        command = [sys.executable, "-c", text, str(stored.spool)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["12", str(TRACE.calls[7].times.request_ns), "3"]


def test_what_a_killed_process_left_goes_with_the_next_spool(path, spools):
    written(path, ROWS)
    text = (
        "import os, sys, tempfile; from aitrace.stored_trace import stored_trace; tempfile.tempdir = sys.argv[2]\n"
        "with stored_trace(sys.argv[1]): os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", text, str(path), str(spools)], check=True)
    [left] = spools.iterdir()
    (spools / "aitrace-spool-just-begun").mkdir()
    with stored_trace(path) as held, stored_trace(path) as stored:
        assert not left.exists()
        assert held.spool.exists()
        assert len(stored.trace.calls) == len(TRACE.calls)
    assert [one.name for one in spools.iterdir()] == ["aitrace-spool-just-begun"]


def test_a_full_disk_is_told_with_the_place(path, monkeypatch):
    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write_array", no_room)
    with pytest.raises(UsageError, match="No space left") as error, stored_trace(written(path, ROWS)):
        pass
    assert "TMPDIR" in error.value.hint


def test_a_place_that_cannot_be_written_is_told(path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(path.parent / "missing"))
    with pytest.raises(UsageError, match="missing"), stored_trace(written(path, ROWS)):
        pass


def test_a_trace_that_is_written_from_a_spool_is_the_same(path, tmp_path):
    with stored_trace(written(path, ROWS)) as stored:
        write_trace(tmp_path / "copy", stored.trace)
    assert read_trace(tmp_path / "copy") == TRACE


def test_a_trace_without_calls_is_stored(path):
    with stored_trace(written(path, ROWS[:2])) as stored:
        assert (len(stored.trace.calls), len(stored.trace.segments)) == (0, 0)
        assert list(stored.trace.calls) == []
        assert all(isinstance(call, Call) for call in stored.trace.calls)
