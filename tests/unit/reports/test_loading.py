"""Facts of a run directory; what the command says of damaged ones stands in tests/e2e/test_report.py."""

import pytest

from aitrace.errors import InputError
from aitrace.runstore import RunWriter
from aitrace.store import write_trace
from reports.call_lines import rows_from_lines
from reports.loading import facts_of_run
from reports.tables import facts_from_run
from reports.testing import make_up_run

FRAMES = ("calls", "sessions", "trees", "every_call", "every_session", "every_tree", "tries", "scrapes")
RUN = make_up_run(trees=3, calls=6, refused_ratio=0.1)


@pytest.fixture
def run_dir(tmp_path):
    write_trace(tmp_path / "made-up.aitrace", RUN.trace)
    with RunWriter(tmp_path / "run", RUN.header, tmp_path / "made-up.aitrace") as writer:
        for call in RUN.calls:
            writer.write_call(call)
        for scrape in RUN.scrapes:
            writer.write_scrape(scrape)
        writer.finish(RUN.end)
    return tmp_path / "run"


def refuse(error):
    raise AssertionError(error)


def test_a_directory_gives_the_facts_of_the_run_that_was_written(run_dir):
    expected = facts_from_run(RUN.header, RUN.end, RUN.calls, RUN.scrapes, RUN.trace)
    with facts_of_run(run_dir, warn=refuse) as facts:
        for name in FRAMES:
            assert getattr(expected, name).equals(getattr(facts, name)), name
        assert (facts.header, facts.end, facts.lines_lost) == (RUN.header, RUN.end, 0)
        assert tuple(facts.trace.calls) == RUN.trace.calls


def test_lines_that_come_in_many_parts_are_the_same_run(run_dir, monkeypatch):
    with facts_of_run(run_dir, warn=refuse) as whole:
        monkeypatch.setattr("aitrace.runstore._PART_BYTES", 700)
        with facts_of_run(run_dir, warn=refuse) as facts:
            assert all(getattr(whole, name).equals(getattr(facts, name)) for name in FRAMES)


def test_a_cut_last_line_is_passed_over_and_counted(run_dir):
    path = run_dir / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    with facts_of_run(run_dir, warn=refuse) as facts:
        assert (facts.every_call.height, facts.lines_lost) == (len(RUN.calls) - 1, 1)


def test_a_run_without_a_call_has_its_columns(run_dir):
    (run_dir / "calls.jsonl").write_bytes(b"")
    with facts_of_run(run_dir, warn=refuse) as facts:
        assert facts.every_call.height == facts.tries.height == 0
        assert (
            facts.every_call.schema == facts_from_run(RUN.header, None, RUN.calls, [], RUN.trace).calls.schema
        )


def test_damage_names_its_line_in_whatever_part_it_is(run_dir, monkeypatch):
    path = run_dir / "calls.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[20] = lines[20].replace(b'"index":', b'"index":-0.5,"was":')
    path.write_bytes(b"".join(lines))
    for part_bytes in (1 << 25, 2000, 100):
        monkeypatch.setattr("aitrace.runstore._PART_BYTES", part_bytes)
        message = r"calls.jsonl:21: index: expected an integer, got -0.5$"
        with pytest.raises(InputError, match=message) as caught, facts_of_run(run_dir, warn=refuse):
            pass
        assert "remove this line" in caught.value.hint


def test_a_line_that_only_a_look_at_it_alone_can_tell_is_taken(run_dir):
    """A field of a later program with more digits than the fast reader takes."""
    path = run_dir / "calls.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"{", b'{"new":' + b"9" * 60 + b",", 1)
    assert rows_from_lines(lines[3]) is None
    path.write_bytes(b"".join(lines))
    with facts_of_run(run_dir, warn=refuse) as facts:
        assert facts.every_call["index"].to_list() == [call.index for call in RUN.calls]


def test_without_its_trace_or_with_a_damaged_one_there_are_facts_all_the_same(run_dir):
    said = []
    (run_dir / "trace.aitrace").write_bytes(b"nonsense")
    with facts_of_run(run_dir, warn=said.append) as facts:
        assert (facts.trace, facts.every_call.height) == (None, len(RUN.calls))
    (run_dir / "trace.aitrace").unlink()
    with facts_of_run(run_dir, warn=said.append) as facts:
        assert facts.trace is None
    assert [str(error).startswith(str(run_dir / "trace.aitrace")) for error in said] == [True]


def test_what_goes_wrong_with_the_facts_later_is_not_taken_for_a_damaged_trace(run_dir):
    with pytest.raises(InputError, match="later"), facts_of_run(run_dir, warn=refuse):
        raise InputError("later")
