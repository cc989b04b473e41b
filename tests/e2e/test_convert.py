"""`aitrace convert` and `aitrace inspect` on files."""

import gzip
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import zstandard
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.schema import Dependency, Outcome
from aitrace.store import TraceReader, read_trace, write_trace
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
        gzip.compress(ONE, mtime=0),
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
        (gzip.compress(ONE, mtime=0)[:-20], r"in\.json: damaged compression: "),
        (gzip.compress(ONE, mtime=0)[:-8] + bytes(8), r"in\.json: cannot be read: "),
        (b'{"kind": "header"}', r"in\.json: not a known trace format"),
        (b"[]", r"in\.json: not a known trace format"),
        (b"\x89PNG\r\n\x1a\n", r"in\.json: holds neither a JSON object nor a list"),
        (b'{"block_size": 64, "requests": []}', r"the input holds no call"),
        (
            b'{"block_size": 64, "requests": [{"t": 1e300, "in": 1}]}',
            r"in\.json: requests\[0\]: 't' is 1e\+300, expected a number from 0 to",
        ),
        (
            b'{"block_size": 64, "requests": [{"t": 0, "in": 1e20}]}',
            r"in\.json: requests\[0\]: 'in' is 1\d+, expected a whole number from 0 to",
        ),
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
    assert "\nHint: " in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


@pytest.mark.parametrize("text", ["", " ", "two\nlines", "\x1b[31mred", "a" * 201])
def test_an_attribution_is_one_line_of_bounded_length(tmp_path, text):
    result = convert(tmp_path, ONE, "--attribution", text)
    assert (result.exit_code, "--attribution" in result.stderr) == (2, True)
    assert not (tmp_path / "out.aitrace").exists()


@pytest.mark.parametrize("text", ["Ann Example & Söhne, CC-BY-4.0 <ann@example.org>", "a" * 200])
def test_any_attribution_that_convert_takes_is_shown_by_the_proof(tmp_path, text):
    convert(tmp_path, ONE, "--attribution", text)
    result = run("check", tmp_path / "out.aitrace", "--no-text")
    assert result.exit_code == 0
    assert result.stdout.endswith(f"as written by whoever converted it:\n  {text}\n")
    facts = orjson.loads(run("check", tmp_path / "out.aitrace", "--no-text", "--json").stdout)
    assert (facts["no_text"], facts["attribution"]) == (True, text)


def test_a_dash_as_output_is_stdout(tmp_path):
    convert(tmp_path, ONE)
    result = run("convert", tmp_path / "in.json", "-o", "-")
    assert (result.exit_code, result.stdout_bytes) == (0, (tmp_path / "out.aitrace").read_bytes())
    assert result.stderr.startswith("stdout: 2 calls in ")


def test_an_input_is_not_replaced_by_its_trace(tmp_path):
    source = tmp_path / "in.json"
    source.write_bytes(ONE)
    result = run("convert", source, "-o", source, "--force")
    assert (result.exit_code, "in.json: is also an input" in result.stderr) == (2, True)
    assert source.read_bytes() == ONE


def test_what_is_no_file_is_not_replaced_by_a_trace(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "in.json").write_bytes(ONE)
    result = run("convert", tmp_path / "in.json", "-o", pipe, "--force")
    assert (result.exit_code, "pipe: is no regular file" in result.stderr) == (2, True)
    assert pipe.is_fifo()


def test_an_output_in_no_directory_is_refused_under_its_own_name(tmp_path):
    (tmp_path / "in.json").write_bytes(ONE)
    output = tmp_path / "missing" / "one.aitrace"
    result = run("convert", tmp_path / "in.json", "-o", output)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"Error: {output}: cannot be written: there is no directory '{output.parent}'",
        "Hint: make it first",
    ]


@pytest.mark.parametrize(
    ("data", "wrong", "right"), [(ONE, "mooncake", "weka"), (REQUEST, "weka", "mooncake")]
)
def test_a_file_of_the_other_format_is_named_with_the_way_to_read_it(tmp_path, data, wrong, right):
    content = data if isinstance(data, bytes) else orjson.dumps(data)
    result = convert(tmp_path, content, "--from", wrong)
    assert result.exit_code == 3
    assert f"in.json: looks like {right}, expected {wrong}" in result.stderr
    assert f"Hint: name the format with --from {right}" in result.stderr
    assert convert(tmp_path, content, "--from", right).exit_code == 0


def test_several_inputs_are_one_trace_for_the_formats_that_the_help_names(tmp_path):
    help_text = " ".join(run("convert", "--help").stdout.split())
    assert "Several weka inputs become one trace; of mooncake, each file is a trace of its own." in help_text
    files = sorted(MOONCAKE.glob("*.zst"))
    result = run("convert", *files, "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "2 mooncake files, expected one" in result.stderr) == (2, True)


def test_a_long_tail_is_one_run_of_blocks(tmp_path):
    document = {"block_size": 64, "requests": [{"t": 0, "in": 64 * 2**20, "hash_ids": [1]}]}
    assert convert(tmp_path, orjson.dumps(document)).exit_code == 0
    [block, tail] = read_trace(tmp_path / "out.aitrace").segments
    assert block.blocks == ((0, 1),)
    assert tail.blocks == ((1, 2**20 - 1),)


def test_a_tail_that_no_reader_could_list_is_refused(tmp_path):
    document = {"block_size": 64, "requests": [{"t": 0, "in": 10**12, "hash_ids": [1]}]}
    result = convert(tmp_path, orjson.dumps(document))
    assert result.exit_code == 3
    assert (
        "a prompt of 1000000000000 tokens: expected pieces of at most 1048576 blocks of 64" in result.stderr
    )
    assert not (tmp_path / "out.aitrace").exists()


def test_a_full_disk_is_told_in_one_sentence(tmp_path):
    """Of a program with a limit on the size of its files, which the kernel reports as it does a full disk."""
    command = f"ulimit -f 1; exec {sys.executable} -m aitrace convert {MOONCAKE}/conversation_600.jsonl.zst -o out.aitrace"
    result = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (
        2,
        "Error: out.aitrace: cannot be written: File too large\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", ["inspect", "check", "inspect --json"])
def test_output_that_cannot_be_written_is_told_in_one_sentence(command):
    line = f"{sys.executable} -m aitrace {command} {ROOT}/examples/claude-code.aitrace > /dev/full"
    result = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "Error: output: cannot be written: No space left on device\n"


def test_a_reader_who_leaves_is_no_failure():
    line = f"{sys.executable} -m aitrace inspect {ROOT}/examples/claude-code.aitrace --limit 0; echo $? >&2"
    result = subprocess.run(["sh", "-c", f"({line}) | true"], capture_output=True, text=True, check=False)
    assert result.stderr == "0\n"


def test_a_format_that_is_named_is_not_guessed(tmp_path):
    result = convert(tmp_path, ONE, "--from", "mooncake")
    assert (result.exit_code, "looks like weka, expected mooncake" in result.stderr) == (3, True)


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
        "lines_lost": 0,
        "clean_end": True,
        "damage": None,
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


def test_inspect_shows_what_is_good_of_a_damaged_file(tmp_path):
    lines = zstandard.decompress((ROOT / "examples" / "claude-code.aitrace").read_bytes()).splitlines(
        keepends=True
    )
    damaged = tmp_path / "damaged.aitrace"
    damaged.write_bytes(b"".join([*lines[:200], b"{\n", *lines[201:]]))
    result = run("inspect", damaged, "--json")
    facts = orjson.loads(result.stdout)
    good = sum(b'"kind":"call"' in line for line in lines[:200])
    assert (result.exit_code, facts["calls"], facts["dropped_calls"]) == (1, good, None)
    assert (facts["file"]["lines"], facts["file"]["lines_lost"]) == (200, len(lines) - 200)
    assert facts["file"]["damage"] in result.stderr
    assert f"Hint: shown are the 200 whole lines before it, {len(lines) - 200} lines" in result.stderr


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
    header, *lines = [line for _, line in TraceReader(tmp_path / "again.aitrace")]
    shipped_header, *shipped_lines = [line for _, line in TraceReader(shipped)]
    assert lines == shipped_lines
    assert replace(header, producer="") == replace(shipped_header, producer="")
