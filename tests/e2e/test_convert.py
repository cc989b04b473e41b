"""`aitrace convert` and `aitrace inspect` on files."""

import gzip
import re
import shlex
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import zstandard
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.schema import Dependency, Outcome
from aitrace.store import iter_lines, read_trace, write_trace
from aitrace.testing import TraceBuilder

ROOT = Path(__file__).parents[2]
WEKA = ROOT / "tests" / "data" / "weka"
MOONCAKE = ROOT / "tests" / "data" / "mooncake"
CONVERSATION = {
    "id": "trace_0001",
    "block_size": 64,
    "requests": [
        {
            "t": 0.25,
            "in": 200,
            "out": 9,
            "hash_ids": [1, 2, 3, 4],
            "api_time": 1.0,
            "type": "s",
            "model": "m",
        },
        {
            "t": 3.5,
            "in": 300,
            "out": 9,
            "hash_ids": [1, 2, 3, 5, 6],
            "api_time": 1.0,
            "type": "s",
            "model": "m",
        },
    ],
}
ONE = orjson.dumps(CONVERSATION)
REQUEST = {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin, catch_exceptions=False)


def convert(tmp_path, data, *options, stdin=None):
    source = tmp_path / "in.json"
    source.write_bytes(data)
    return run("convert", source, "-o", tmp_path / "out.aitrace", *options, stdin=stdin)


@pytest.mark.parametrize(
    "data",
    [
        ONE,
        b"\n" + ONE + b"\n\n",
        orjson.dumps(CONVERSATION, option=orjson.OPT_INDENT_2),
        orjson.dumps([CONVERSATION]),
        gzip.compress(ONE),
        zstandard.compress(ONE),
        zstandard.compress(ONE[:70]) + zstandard.compress(ONE[70:]),
    ],
    ids=["plain", "blank lines", "indented", "list", "gzip", "zstd", "two zstd frames"],
)
def test_a_conversation_is_read_however_it_is_packed(tmp_path, data):
    result = convert(tmp_path, data)
    assert result.exit_code == 0
    assert [c.usage.input_tokens for c in read_trace(tmp_path / "out.aitrace").calls] == [200, 300]


def test_json_lines_hold_one_conversation_each(tmp_path):
    convert(tmp_path, ONE + b"\n\n" + ONE + b"\n")
    assert len(read_trace(tmp_path / "out.aitrace").sessions) == 2


def test_a_dash_is_stdin(tmp_path):
    result = run("convert", "-", "-o", tmp_path / "out.aitrace", stdin=zstandard.compress(ONE))
    assert (result.exit_code, len(read_trace(tmp_path / "out.aitrace").calls)) == (0, 2)


def test_several_inputs_become_trees_in_their_order(tmp_path):
    inputs = [WEKA / "trace_0693.json.zst", WEKA / "trace_0102.json.zst"]
    assert run("convert", *inputs, "-o", tmp_path / "out.aitrace").exit_code == 0
    assert [s.label for s in read_trace(tmp_path / "out.aitrace").sessions] == ["trace_0693", "trace_0102"]


def test_mooncake_is_told_from_the_content_and_its_block_size_is_an_option(tmp_path):
    small = orjson.dumps(REQUEST | {"input_length": 20})
    assert convert(tmp_path, small, "--block-size", "16").exit_code == 0
    assert read_trace(tmp_path / "out.aitrace").header.block_size == 16
    result = convert(tmp_path, small, "--force")
    assert (result.exit_code, "--block-size" in result.stderr) == (3, True)


def test_the_real_mooncake_trace_arrives(tmp_path):
    source = MOONCAKE / "conversation_600.jsonl.zst"
    result = run(
        "convert", source, "-o", tmp_path / "m.aitrace", "--json", "--attribution", "Mooncake, Apache-2.0"
    )
    summary = orjson.loads(result.stdout)
    assert (summary["version"], summary["source"], summary["calls"]) == (1, "mooncake", 600)
    assert read_trace(tmp_path / "m.aitrace").header.attribution == "Mooncake, Apache-2.0"


def test_an_existing_trace_is_kept_unless_forced(tmp_path):
    (tmp_path / "out.aitrace").write_bytes(b"precious")
    result = convert(tmp_path, ONE)
    assert (result.exit_code, (tmp_path / "out.aitrace").read_bytes()) == (2, b"precious")
    assert "--force" in result.stderr
    assert convert(tmp_path, ONE, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (ONE[:-30], r"in\.json:1: damaged JSON at column \d+"),
        (ONE + b"\n" + ONE[:50] + b"\n" + ONE, r"in\.json:2: damaged JSON at column \d+"),
        (b'{\n "requests": [\n  {"t": }\n]}', r"in\.json:3: damaged JSON at column \d+"),
        (b"", r"in\.json: is empty"),
        (b" \n\n", r"in\.json: is empty"),
        (zstandard.compress(ONE)[:-20], r"in\.json: damaged compression: the last zstd frame is cut"),
        (zstandard.compress(ONE)[:20] + bytes(40), r"in\.json: damaged compression: "),
        (gzip.compress(ONE)[:-20], r"in\.json: damaged compression: "),
        (gzip.compress(ONE)[:-8] + bytes(8), r"in\.json: cannot be read: "),
        (b'{"kind": "header"}', r"in\.json: not a known trace format"),
        (b"[]", r"in\.json: not a known trace format"),
        (b'{"block_size": 64, "requests": [{"t": 0}]}', r"in\.json: requests\[0\]: 'in' is None"),
        (
            b'{"block_size": 64, "requests": []}\n{"block_size": 32, "requests": []}',
            r"in\.json:2: 'block_size' is 32",
        ),
    ],
)
def test_bad_input_gives_the_place_and_leaves_nothing_behind(tmp_path, data, place):
    result = convert(tmp_path, data)
    assert result.exit_code == 3
    assert re.search(f"^Error: .*{place}", result.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


def test_a_format_that_is_named_is_not_guessed(tmp_path):
    result = convert(tmp_path, ONE, "--from", "mooncake")
    assert (result.exit_code, "'timestamp' is None" in result.stderr) == (3, True)


def test_a_missing_file_is_named(tmp_path):
    result = run("convert", tmp_path / "none.json", "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "none.json: cannot be read: No such file" in result.stderr) == (3, True)


def test_a_directory_is_not_expanded_silently(tmp_path):
    result = run("convert", WEKA, "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "is a directory" in result.stderr, "*.json" in result.stderr) == (3, True, True)


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    result = run("convert", WEKA / "trace_0693.json.zst", "-o", tmp_path / "none" / "out.aitrace")
    assert (result.exit_code, "none/out.aitrace" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("inputs", "options", "text"),
    [
        (["-", "-"], [], "stdin can be read only once"),
        (["a", "b"], [], "different formats: a is weka, b is mooncake"),
        (["a"], ["--block-size", "64"], "--block-size is for mooncake"),
        (["b", "b"], [], "2 mooncake files, expected one"),
    ],
)
def test_options_that_cannot_be_applied_are_wrong_use(tmp_path, monkeypatch, inputs, options, text):
    monkeypatch.chdir(tmp_path)
    Path("a").write_bytes(ONE)
    Path("b").write_bytes(orjson.dumps(REQUEST))
    result = run("convert", *inputs, "-o", "out.aitrace", *options)
    assert result.exit_code == 2
    assert text in result.stderr


def test_the_summary_explains_its_warnings(tmp_path):
    result = run("convert", WEKA / "trace_0291.json.zst", "-o", tmp_path / "out.aitrace", "--json")
    summary = orjson.loads(result.stdout)
    assert [remark["kind"] for remark in summary["remarks"]] == ["agent_end_given"]
    assert "warning   the time of sub-agents is that of their end" in result.stderr
    assert (summary["calls"], summary["forks"], summary["joins"]) == (32, 2, 2)


# --- inspect ---


def test_inspect_shows_trees_gaps_and_sharing(tmp_path):
    result = run("inspect", ROOT / "examples" / "claude-code.aitrace")
    assert result.exit_code == 0
    for text in (
        "trace_0291",
        "  7      Explore",
        "gaps by cause",
        "of 5082196",
        "not known: where messages end",
    ):
        assert text in result.stdout


def test_inspect_limits_the_trees_it_lists():
    example = ROOT / "examples" / "claude-code.aitrace"
    result = run("inspect", example, "--limit", "1")
    assert "and 2 more trees" in result.stdout
    assert "trace_0693" not in result.stdout
    assert "trace_0693" in run("inspect", example, "--limit", "0").stdout


def test_inspect_json_has_every_tree_and_its_version():
    example = ROOT / "examples" / "claude-code.aitrace"
    facts = orjson.loads(run("inspect", example, "--json", "--limit", "1").stdout)
    assert (facts["version"], len(facts["trees"]), facts["calls"]) == (1, 3, 93)
    assert facts["file"] == {
        "lines": 1 + 9 + 287 + 93 + 1,
        "bytes_lost": 0,
        "lines_lost_at_least": 0,
        "clean_end": True,
    }


def test_inspect_reports_the_loss_of_a_cut_file(tmp_path):
    lines = zstandard.decompress((ROOT / "examples" / "claude-code.aitrace").read_bytes()).splitlines(
        keepends=True
    )
    cut = tmp_path / "cut.aitrace"
    cut.write_bytes(b"".join(lines[:200]) + lines[200][:9])
    result = run("inspect", cut)
    assert (result.exit_code, "cut after 200 whole lines: 9 bytes" in result.stderr) == (1, True)
    cut.write_bytes(b"".join(lines[:-1]))
    result = run("inspect", cut)
    assert (result.exit_code, "has no footer" in result.stderr) == (1, True)


def test_inspect_names_failures_drops_and_unknown_waits(tmp_path):
    builder = TraceBuilder(attribution="ours")
    session = builder.session()
    builder.call(session, [], outcome=Outcome(status=429, error="refused"), model=None)
    builder.call(session, [], after=[Dependency(call=0, relation="sequence", gap_ns=None)], model=None)
    trace = builder.trace()
    write_trace(tmp_path / "t.aitrace", replace(trace, footer=replace(trace.footer, dropped_calls=3)))
    shown = run("inspect", tmp_path / "t.aitrace").stdout
    for text in (
        "ours",
        "failed: 1 refused",
        "dropped by the recorder: 3 calls",
        "1 calls waited for an unknown time",
    ):
        assert text in shown
    assert "models" not in shown


def test_inspect_shows_an_empty_trace(tmp_path):
    write_trace(tmp_path / "t.aitrace", TraceBuilder().trace())
    result = run("inspect", tmp_path / "t.aitrace")
    assert (result.exit_code, "0 calls in 0 sessions of 0 trees" in result.stdout) == (0, True)


def test_inspect_shows_a_trace_without_gaps(tmp_path):
    run("convert", MOONCAKE / "conversation_600.jsonl.zst", "-o", tmp_path / "m.aitrace")
    result = run("inspect", tmp_path / "m.aitrace", "--limit", "2")
    assert "gaps by cause" not in result.stdout
    assert "70 calls are timed from the start of another one" in result.stdout


# --- the shipped example ---


def test_the_example_is_what_its_command_makes(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (line,) = re.findall(r"^aitrace convert .*$", (ROOT / "examples" / "README.md").read_text(), re.MULTILINE)
    words = shlex.split(line)[1:]
    output = words.index("-o") + 1
    shipped = words[output]
    words[output] = str(tmp_path / "again.aitrace")
    assert run(*words).exit_code == 0
    header, *lines = iter_lines(tmp_path / "again.aitrace")
    shipped_header, *shipped_lines = iter_lines(shipped)
    assert lines == shipped_lines
    assert replace(header, producer="") == replace(shipped_header, producer="")
