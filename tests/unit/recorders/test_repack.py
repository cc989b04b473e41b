"""Full frames in place of small ones: the same lines, whatever happens."""

import os
import stat

import pytest

from aitrace.schema import Call, CallTimes, Header, Prompt, Session
from aitrace.store import TraceReader, TraceWriter, read_trace
from recorders.repack import repack


@pytest.fixture
def loose(tmp_path):
    """A trace of which each call is a frame of its own."""
    path = tmp_path / "x.aitrace"
    with TraceWriter(path) as writer:
        writer.write(Header(producer="aitrace 0 record", unit="bytes", block_size=256))
        writer.write(Session(id=0, root=0))
        for number in range(3000):
            writer.write(Call(id=number, session=0, prompt=Prompt(), times=CallTimes(request_ns=number)))
            writer.flush()
    return path


def frames(path):
    return path.read_bytes().count(b"\x28\xb5\x2f\xfd")


def test_the_lines_stay_and_the_file_gets_smaller(loose):
    before = list(TraceReader(loose).raw_lines())
    size, count = loose.stat().st_size, frames(loose)
    repack(loose)
    assert list(TraceReader(loose).raw_lines()) == before
    assert read_trace(loose).footer is not None
    assert (count, frames(loose), loose.stat().st_size < size / 4) == (3001, 1, True)
    assert [file.name for file in loose.parent.iterdir()] == [loose.name]


def test_a_frame_holds_a_mebibyte_at_most_and_one_line(tmp_path):
    path = tmp_path / "x.aitrace"
    with TraceWriter(path) as writer:
        writer.write(Header(producer="aitrace 0 record", unit="bytes", block_size=256))
        for number in range(5):
            writer.write(Session(id=number, root=number, label=f"trace_{number:0600000}"))
    before = list(TraceReader(path).raw_lines())
    repack(path)
    assert (list(TraceReader(path).raw_lines()), frames(path)) == (before, 3)


def test_who_may_read_it_stays(loose):
    loose.chmod(0o600)
    repack(loose)
    assert stat.S_IMODE(loose.stat().st_mode) == 0o600


def test_what_an_attempt_that_was_killed_left_does_not_matter(loose):
    loose.with_name("x.aitrace.tmp").write_bytes(b"half")
    repack(loose)
    assert [file.name for file in loose.parent.iterdir()] == [loose.name]


def test_a_disk_that_is_full_leaves_the_file_as_it_was(loose, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    before = loose.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        repack(loose)
    assert loose.read_bytes() == before
    assert [file.name for file in loose.parent.iterdir()] == [loose.name]
