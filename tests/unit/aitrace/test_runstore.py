import subprocess
import sys
from dataclasses import fields

import orjson
import polars as pl
import pytest

from aitrace.codec import encode_record
from aitrace.errors import InputError, UsageError
from aitrace.results import NO_COLUMNS, CallResult, Scrape
from aitrace.runstore import RunReader, RunWriter, read_run
from aitrace.schema import Usage
from aitrace.store import read_trace, write_trace
from aitrace.testing import make_call_result, make_run_end, make_run_header, make_trace

HEADER = make_run_header(options={"rate": 2.5})
CALLS = (
    make_call_result(0),
    make_call_result(1, at_ns=5, status=None, error="connect", usage=Usage()),
    make_call_result(2, unsent="interrupted", new_connection=None),
)
SCRAPES = (
    Scrape(at_ns=1, url="http://h/metrics", values={"running": 3.0}),
    Scrape(at_ns=2, url="http://h/metrics", error="timeout"),
)


@pytest.fixture
def trace_path(tmp_path):
    write_trace(tmp_path / "small.aitrace", make_trace())
    return tmp_path / "small.aitrace"


@pytest.fixture
def run_dir(tmp_path, trace_path):
    with RunWriter(tmp_path / "run", HEADER, trace_path) as writer:
        for call in CALLS:
            writer.write_call(call)
        for scrape in SCRAPES:
            writer.write_scrape(scrape)
        writer.finish(make_run_end())
    return tmp_path / "run"


def test_a_run_comes_back_as_it_was(run_dir):
    run = read_run(run_dir)
    assert (HEADER, make_run_end(), CALLS, SCRAPES, 0) == (
        run.header,
        run.end,
        run.calls,
        run.scrapes,
        run.lines_lost,
    )
    assert make_trace() == read_trace(run.trace_path)
    assert sorted(path.name for path in run_dir.iterdir()) == [
        "calls.jsonl",
        "calls.parquet",
        "run.json",
        "scrapes.jsonl",
        "trace.aitrace",
    ]


def test_a_call_is_on_disk_as_soon_as_it_is_written(tmp_path, trace_path):
    with RunWriter(tmp_path / "run", HEADER, trace_path) as writer:
        writer.write_call(CALLS[0])
        writer.write_scrape(SCRAPES[0])
        run = read_run(tmp_path / "run")
    assert (None, CALLS[:1], SCRAPES[:1]) == (run.end, run.calls, run.scrapes)


def test_the_table_has_the_columns_of_the_calls(run_dir):
    table = pl.read_parquet(run_dir / "calls.parquet")
    names = [f.name for f in fields(CallResult) if f.name not in NO_COLUMNS]
    tries = ["earlier_tries", "backoff_ns", "worker", "signals"]
    assert [*names, *(f"usage_{f.name}" for f in fields(Usage)), *tries] == table.columns
    assert {pl.Int64, pl.Boolean, pl.String} == {
        type(t) if not isinstance(t, type) else t for t in table.dtypes
    }
    assert table["status"].to_list() == [200, None, 200]
    assert table["usage_input_tokens"].to_list() == [1000, None, 1000]
    assert table["new_connection"].to_list() == [True, False, None]
    assert table["unsent"].to_list() == [None, None, "interrupted"]


def test_a_run_without_calls_has_a_table_of_the_same_types(tmp_path, trace_path, run_dir):
    with RunWriter(tmp_path / "empty", HEADER, trace_path) as writer:
        writer.finish(make_run_end(sent_calls=0))
    table = pl.read_parquet(tmp_path / "empty" / "calls.parquet")
    assert (0, pl.read_parquet(run_dir / "calls.parquet").schema) == (table.height, table.schema)


def test_the_table_of_a_run_written_in_parts_is_the_same(tmp_path, trace_path, run_dir, monkeypatch):
    monkeypatch.setattr("aitrace.runstore._PART_CALLS", 2)
    with RunWriter(tmp_path / "run[1]*", HEADER, trace_path) as writer:
        for call in CALLS:
            writer.write_call(call)
        writer.finish(make_run_end())
    table = pl.read_parquet(run_dir / "calls.parquet")
    assert table.equals(pl.read_parquet(tmp_path / "run[1]*" / "calls.parquet", glob=False))
    assert len(CALLS) == table.height == 3
    assert {"run.json", "calls.jsonl", "calls.parquet", "scrapes.jsonl", "trace.aitrace"} == {
        path.name for path in (tmp_path / "run[1]*").iterdir()
    }


def test_a_cut_last_line_is_counted(run_dir):
    path = run_dir / "calls.jsonl"
    data = path.read_bytes()
    for lost in range(1, len(encode_record(CALLS[2]))):
        path.write_bytes(data[:-lost])
        run = read_run(run_dir)
        assert (CALLS[:2], 1) == (run.calls, run.lines_lost)


def test_cut_lines_of_both_files_are_counted(run_dir):
    for name in ("calls.jsonl", "scrapes.jsonl"):
        path = run_dir / name
        path.write_bytes(path.read_bytes() + b'{"ind')
    assert read_run(run_dir).lines_lost == 2


def test_a_damaged_line_names_its_place(run_dir):
    path = run_dir / "calls.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"index":1', b'"index":"one"'))
    with pytest.raises(InputError, match=r"calls.jsonl:2: index: expected an integer, got 'one'$"):
        read_run(run_dir)


def test_a_directory_that_is_missing_or_no_run_is_told(tmp_path):
    with pytest.raises(InputError, match=r"run: no such directory, expected a run directory$"):
        read_run(tmp_path / "run")
    with pytest.raises(InputError, match=r"run.json: no such file$"):
        read_run(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"file: is a file, expected a run directory$"):
        read_run(tmp_path / "file")


def test_an_incomplete_directory_is_told(run_dir):
    (run_dir / "calls.jsonl").unlink()
    with pytest.raises(InputError, match=r"calls.jsonl: no such file$"):
        read_run(run_dir)
    (run_dir / "calls.jsonl").mkdir()
    with pytest.raises(InputError, match=r"calls.jsonl: cannot be read: Is a directory$"):
        read_run(run_dir)


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        ({}, "run.json: header: expected an object, got None", "again"),
        ({"header": {}}, "run.json: header.version: expected 1, got None", "again"),
        ({"header": {"version": 2}}, "run.json: header.version: expected 1, got 2", "use a newer aitrace"),
        ({"header": {"version": 1}}, "run.json: header: producer: missing", "again"),
    ],
)
def test_a_wrong_header_is_told(run_dir, content, message, hint):
    (run_dir / "run.json").write_bytes(orjson.dumps(content))
    with pytest.raises(InputError) as error:
        read_run(run_dir)
    assert str(error.value).endswith(message)
    assert hint in error.value.hint


@pytest.mark.parametrize("name", ["calls.jsonl", "scrapes.jsonl"])
def test_a_damaged_line_is_told_with_what_to_do(run_dir, name):
    (run_dir / name).write_bytes(b"{}\n" + (run_dir / name).read_bytes())
    with pytest.raises(InputError, match=rf"{name}:1: \w+: missing$") as error:
        read_run(run_dir)
    assert "remove this line" in error.value.hint


def test_a_wrong_end_is_told(run_dir):
    content = orjson.loads((run_dir / "run.json").read_bytes())
    (run_dir / "run.json").write_bytes(orjson.dumps({**content, "end": {"ended_ns": "x"}}))
    with pytest.raises(InputError, match=r"run.json: end: ended_ns: expected an integer, got 'x'$"):
        read_run(run_dir)


def test_a_run_is_not_written_over_another(run_dir, trace_path):
    with pytest.raises(UsageError, match=r"run: is not empty$"):
        RunWriter(run_dir, HEADER, trace_path)
    assert read_run(run_dir).calls == CALLS


def test_the_trace_of_a_run_is_not_written_over_by_its_replay(run_dir):
    with pytest.raises(UsageError, match="is not empty"):
        RunWriter(run_dir, HEADER, run_dir / "trace.aitrace")
    assert make_trace() == read_trace(run_dir / "trace.aitrace")


def test_places_that_cannot_be_used_are_told(tmp_path, trace_path):
    with pytest.raises(UsageError, match=r"small.aitrace: cannot be written: Not a directory$"):
        RunWriter(trace_path, HEADER, tmp_path / "other" / "x.aitrace")
    with pytest.raises(UsageError, match=r"cannot be copied to .*run: No such file or directory$"):
        RunWriter(tmp_path / "run", HEADER, tmp_path / "missing.aitrace")


def test_the_copy_of_a_private_trace_is_private(tmp_path, trace_path):
    trace_path.chmod(0o600)
    with RunWriter(tmp_path / "run", HEADER, trace_path):
        pass
    assert (tmp_path / "run" / "trace.aitrace").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_no_half_line(tmp_path, trace_path):
    with RunWriter(tmp_path / "run", HEADER, trace_path) as writer:
        writer.write_call(CALLS[0])
        calls = writer._calls
        writer._calls = FullDisk(calls, room=20)
        with pytest.raises(OSError, match="no space"):
            writer.write_call(CALLS[1])
        run = read_run(tmp_path / "run")
        assert (run.calls, run.lines_lost) == (CALLS[:1], 0)
        writer._calls = calls
        writer.write_call(CALLS[2])
    assert (CALLS[::2], 0) == (read_run(tmp_path / "run").calls, read_run(tmp_path / "run").lines_lost)


class FullDisk:
    """A file on a disk that has only so much room."""

    def __init__(self, stream, room):
        self._stream = stream
        self._room = room

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, data):
        if not self._room:
            raise OSError("no space")
        taken = self._stream.write(bytes(data)[: self._room])
        self._room -= taken
        return taken


def test_reading_a_run_needs_no_data_frame_library():
    code = "import sys, aitrace.runstore; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_trace_that_was_changed_is_written_in_place_of_the_copy(tmp_path, trace_path):
    with RunWriter(tmp_path / "other", HEADER, trace_path, played=make_trace(sessions=3)):
        pass
    assert read_trace(tmp_path / "other" / "trace.aitrace") == make_trace(sessions=3)


def test_line_by_line_a_run_says_the_same(run_dir):
    reader = RunReader(run_dir)
    assert (reader.header, reader.end) == (HEADER, make_run_end())
    assert (tuple(reader.calls()), tuple(reader.scrapes())) == (CALLS, SCRAPES)
    assert (tuple(reader.calls()), reader.lines_lost) == (CALLS, 0)
    assert reader.trace_path == read_run(run_dir).trace_path


def test_line_by_line_a_cut_last_line_is_counted_once(run_dir):
    path = run_dir / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    reader = RunReader(run_dir)
    assert (tuple(reader.calls()), tuple(reader.calls())) == (CALLS[:2], CALLS[:2])
    assert reader.lines_lost == 1


@pytest.mark.parametrize("part_bytes", [1, 500, 1 << 20])
def test_lines_of_calls_come_whole_whatever_the_size_of_parts(run_dir, monkeypatch, part_bytes):
    monkeypatch.setattr("aitrace.runstore._PART_BYTES", part_bytes)
    path = run_dir / "calls.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"ind')
    reader = RunReader(run_dir)
    parts = list(reader.call_lines())
    assert b"".join(parts) == whole
    assert all(lines.endswith(b"\n") for lines in parts)
    assert tuple(call for lines in parts for call in reader.calls_from_lines(lines, 1)) == CALLS
    assert reader.lines_lost == 1


def test_line_by_line_damage_is_told_as_for_the_whole(run_dir):
    path = run_dir / "calls.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"index":1', b'"index":"one"'))
    for read in (lambda: list(RunReader(run_dir).calls()), lambda: read_run(run_dir)):
        with pytest.raises(
            InputError, match=r"calls.jsonl:2: index: expected an integer, got 'one'$"
        ) as caught:
            read()
        assert caught.value.hint is not None
    path.unlink()
    with pytest.raises(InputError, match=r"calls.jsonl: no such file$"):
        list(RunReader(run_dir).calls())
    with pytest.raises(InputError, match=r"nowhere: no such directory, expected a run directory$"):
        RunReader(run_dir / "nowhere")


def test_a_directory_that_holds_runs_is_answered_with_one_of_them(tmp_path, run_dir):
    found = tmp_path / "found"
    for name in ("step-01", "step-02"):
        (found / name).mkdir(parents=True)
        (found / name / "run.json").write_bytes((run_dir / "run.json").read_bytes())
    with pytest.raises(InputError, match=r"run.json: no such file$") as caught:
        read_run(found)
    hint = f"the runs are inside of it: name one, as {found / 'step-02'}, and 1 more"
    assert caught.value.hint == hint
    (found / "search.json").touch()
    with pytest.raises(InputError) as caught:
        read_run(found)
    assert caught.value.hint == f"{hint}; what the search found is in {found / 'search.json'}"


def test_a_directory_of_ways_is_answered_with_the_command_that_compares_them(tmp_path, run_dir):
    root = tmp_path / "ways"
    for name in ("a/1", "a/2", "b/1"):
        (root / name).mkdir(parents=True)
        (root / name / "run.json").write_bytes((run_dir / "run.json").read_bytes())
    with pytest.raises(InputError) as caught:
        read_run(root)
    assert caught.value.hint == (
        f"the runs are inside of it: name one, as {root / 'b/1'}, and 2 more; set them side by side with "
        f"aitrace compare {root / 'a'} {root / 'b'}"
    )
