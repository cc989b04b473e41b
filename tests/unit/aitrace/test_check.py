from pathlib import Path

import orjson
import pytest
import zstandard
from click.testing import CliRunner

from aitrace.cli import SUMMARIES, main
from aitrace.codec import encode_line
from aitrace.commands.check import check
from aitrace.schema import Outcome, Update, Wire
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder, make_trace, recorded_lines

TRACE = make_trace(2, 3)
LINES = [TRACE.header, *TRACE.sessions, *TRACE.segments, *TRACE.calls, TRACE.footer]
ROWS = [encode_line(line) for line in LINES]


def run(tmp_path, data, *options):
    path = tmp_path / "x.aitrace"
    path.write_bytes(data)
    return CliRunner().invoke(main, ["check", str(path), *options])


def findings(tmp_path, data, *options):
    result = run(tmp_path, data, "--json", *options)
    return result.exit_code, [(f["line"], f["rule"]) for f in orjson.loads(result.stdout)["findings"]]


def test_the_summary_is_that_of_the_help_page():
    assert SUMMARIES["check"] == check.help.splitlines()[0]


def test_a_good_trace_is_fine(tmp_path):
    write_trace(tmp_path / "x.aitrace", TRACE)
    result = CliRunner().invoke(main, ["check", str(tmp_path / "x.aitrace"), "--no-text"])
    assert result.exit_code == 0
    assert f"{tmp_path}/x.aitrace: ok: {len(LINES)} lines, 0 errors, 0 warnings" in result.stdout
    assert f"{tmp_path}/x.aitrace: holds no text" in result.stdout


def test_the_shape_of_the_json_is_stable(tmp_path):
    result = run(tmp_path, b"".join(ROWS[:-1]) + b'{"kind":', "--json")
    assert result.exit_code == 1
    assert {
        "file": str(tmp_path / "x.aitrace"),
        "verdict": "warnings",
        "lines": len(ROWS) - 1,
        "bytes_lost": 8,
        "clean_end": False,
        "no_text": None,
        "attribution": None,
        "findings": [
            {
                "severity": "warning",
                "line": len(ROWS) - 1,
                "rule": "cut-tail",
                "message": f"the end is cut: 8 bytes after {len(ROWS) - 1} whole lines are lost",
            },
            {
                "severity": "warning",
                "line": len(ROWS) - 1,
                "rule": "no-footer",
                "message": "the file has no footer: its writer did not end cleanly",
            },
        ],
    } == orjson.loads(result.stdout)


def test_a_broken_rule_is_an_error_with_its_place(tmp_path):
    lost = ROWS[:5] + ROWS[6:]
    result = run(tmp_path, b"".join(lost))
    assert result.exit_code == 3
    assert f"{tmp_path}/x.aitrace:6: error: id: segment.id: expected 2, got 3\n" in result.stdout


def test_a_damaged_line_does_not_end_the_check(tmp_path):
    bad = [*ROWS[:4], b'{"kind":"segment","id":"x"}\n', b"not json\n", *ROWS[5:]]
    code, found = findings(tmp_path, b"".join(bad))
    assert (code, found[:3]) == (3, [(5, "line"), (6, "line"), (7, "id")])


def test_a_damaged_frame_ends_the_check_with_what_was_good(tmp_path):
    data = zstandard.compress(b"".join(ROWS[:6])) + b"garbage"
    assert findings(tmp_path, data) == (3, [(7, "damage")])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\x89PNG", "not an aitrace trace: it holds neither zstd frames nor JSON lines"),
        (b'{"requests":[]}\n', "not an aitrace trace: its first line is not a header"),
    ],
)
def test_what_is_no_trace_is_bad_input(tmp_path, data, message):
    result = run(tmp_path, data)
    assert result.exit_code == 3
    assert f"Error: {tmp_path}/x.aitrace: {message}\n" in result.stderr
    assert result.stdout == ""


def refused(tmp_path, segment_fields, call_fields, *command):
    """Exit code, text of the error and exception of a command on a trace of which every line has these fields."""
    changes = {"segment": segment_fields, "call": call_fields}
    rows = [orjson.loads(row) for row in ROWS]
    path = tmp_path / "x.aitrace"
    path.write_bytes(b"".join(orjson.dumps({**row, **changes.get(row["kind"], {})}) + b"\n" for row in rows))
    result = CliRunner().invoke(main, [command[0], str(path), *command[1:]])
    return result.exit_code, result.stdout + result.stderr, type(result.exception)


@pytest.mark.parametrize("command", [("check",), ("inspect", "--json"), ("inspect",), ("plan", "--json")])
@pytest.mark.parametrize(
    ("segment_fields", "call_fields", "message"),
    [
        ({"size": 2**63}, {}, f"segment.size: expected an integer up to {2**40}, got {2**63}"),
        ({"size": 2**40 + 1}, {}, f"segment.size: expected an integer up to {2**40}, got {2**40 + 1}"),
        ({}, {"turn": 2**63}, f"call.turn: expected an integer of 64 bits, got {2**63}"),
        (
            {},
            {"usage": {"input_tokens": 2**62}},
            f"call.usage.input_tokens: expected an integer up to {2**40}, got {2**62}",
        ),
        (
            {},
            {"events": {"at_ns": [2**62, 2**62], "size_bytes": [1, 1]}},
            "call.events.at_ns: expected differences that add up to integers of 64 bits",
        ),
    ],
)
def test_numbers_that_could_not_be_written_back_or_added_up_are_bad_input(
    tmp_path, segment_fields, call_fields, message, command
):
    code, said, exception = refused(tmp_path, segment_fields, call_fields, *command)
    assert (code, exception) == (3, SystemExit)
    assert message in said


def test_gaps_that_add_up_to_more_than_64_bits_are_told_in_one_sentence(tmp_path):
    after = [{"call": 0, "relation": "sequence", "gap_ns": 2**63 - 1}]
    rows = [orjson.loads(row) for row in ROWS]
    for row in rows:
        if row["kind"] == "call" and row["id"] > 0:
            row["after"] = after
    (tmp_path / "x.aitrace").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    result = CliRunner().invoke(main, ["inspect", "--json", str(tmp_path / "x.aitrace")])
    assert result.exit_code == 3
    assert "x.aitrace: its times add up to more than 64 bits hold\nHint: " in result.stderr


def test_text_is_found(tmp_path):
    builder = TraceBuilder(privacy="content")
    builder.call(builder.session(agent="acme payroll"), [builder.segment(64, text="fix the bug")])
    trace = builder.trace()
    write_trace(tmp_path / "x.aitrace", trace)
    data = (tmp_path / "x.aitrace").read_bytes()
    assert findings(tmp_path, data) == (0, [])
    assert findings(tmp_path, data, "--no-text") == (3, [(1, "text"), (2, "text"), (3, "text")])
    result = run(tmp_path, data, "--no-text")
    assert f"{tmp_path}/x.aitrace: may hold text" in result.stdout


def test_a_leak_is_found_and_not_said(tmp_path):
    """In the attribution, which the closed rules let through."""
    builder = TraceBuilder(attribution="Ann Example, see /home/ann/data")
    builder.call(builder.session(), [builder.segment(64)])
    write_trace(tmp_path / "x.aitrace", builder.trace())
    data = (tmp_path / "x.aitrace").read_bytes()
    assert findings(tmp_path, data) == (0, [])
    assert findings(tmp_path, data, "--no-text") == (3, [(1, "leak")])
    result = run(tmp_path, data, "--no-text")
    assert f"{tmp_path}/x.aitrace:1: error: leak: a home path of 9 bytes\n" in result.stdout
    assert f"{tmp_path}/x.aitrace: may hold text" in result.stdout


def test_a_recording_with_a_call_that_is_still_open_is_in_doubt(tmp_path):
    lines = recorded_lines(make_trace())
    whole = b"".join(map(encode_line, lines))
    assert findings(tmp_path, whole, "--no-text") == (0, [])
    last = max(i for i, line in enumerate(lines) if isinstance(line, Update))
    code, found = findings(
        tmp_path, b"".join(map(encode_line, [*lines[:last], *lines[last + 1 :]])), "--no-text"
    )
    assert (1, [(last, "unrecorded")]) == (code, found)


def inspected(tmp_path, trace, *options):
    write_trace(tmp_path / "x.aitrace", trace)
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "x.aitrace"), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_shows_how_a_trace_was_recorded(tmp_path):
    builder = TraceBuilder(capture="forward")
    main_agent = builder.session(harness="codex", harness_version="0.46.0", evidence=["codex/thread-id"])
    wire = Wire(transport="h2", response_encoding="br")
    builder.call(main_agent, [builder.segment(64)], wire=wire, unseen_start=True)
    refused = builder.call(main_agent, outcome=Outcome(status=429, error="refused"))
    builder.call(main_agent, attempt=2, retry_of=refused, outcome=Outcome(error="unrecorded"))
    said = inspected(tmp_path, builder.trace()).splitlines()
    for line in (
        "recorded as a forward proxy, with a certificate authority of its own",
        "sessions: 1 codex 0.46.0",
        "told by: codex/thread-id (1)",
        "failed: 1 refused",
        "retries: 1 of these calls",
        "still open when the recording ended, or lost to it: 1 calls",
        "prompts that began before the recording: 3",
        "carried by: h2 (1)",
    ):
        assert line in said
    assert any(line.startswith("compressed answers: br (1); ") for line in said)
    facts = orjson.loads(inspected(tmp_path, builder.trace(), "--json"))
    assert (facts["version"], facts["retries"], facts["compressed_answers"]) == (1, 1, {"br": 1})


def test_inspect_says_nothing_of_a_recording_where_there_was_none(tmp_path):
    said = inspected(tmp_path, TraceBuilder().trace())
    assert not any(
        word in said for word in ("recorded", "retries", "open", "carried", "compressed", "told by")
    )


def test_a_short_line_cannot_stand_for_more_blocks_than_can_be_listed(tmp_path):
    segment = {
        "kind": "segment",
        "id": 0,
        "role": "user",
        "type": "text",
        "size": 2**40,
        "blocks": [0, 2**40],
    }
    rows = [
        ROWS[0].replace(b'"block_size":64', b'"block_size":1'),
        ROWS[1],
        orjson.dumps(segment) + b"\n",
        ROWS[-1],
    ]
    (tmp_path / "x.aitrace").write_bytes(b"".join(rows))
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "x.aitrace")])
    assert result.exit_code == 3
    assert f"segment.blocks: expected at most {2**20} blocks, got {2**40}" in result.stderr


def test_a_cut_end_cannot_be_cleared_of_text(tmp_path):
    code, found = findings(tmp_path, b"".join(ROWS) + b'{"text":"fix the bu', "--no-text")
    assert (3, [(len(ROWS), "cut-tail"), (len(ROWS), "text")]) == (code, found)


def test_a_frame_that_is_cut_between_two_lines_cannot_be_cleared_of_text(tmp_path):
    """No byte of a line is lost, but the rest of the frame holds what no reader can see."""
    compressor = zstandard.ZstdCompressor().compressobj()
    data = compressor.compress(b"".join(ROWS)) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    compressor.compress(b'{"text":"fix the bug"}\n' * 9)
    hidden = compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)[:-1]
    result = run(tmp_path, data + hidden, "--no-text", "--json")
    facts = orjson.loads(result.stdout)
    assert (result.exit_code, facts["no_text"], facts["bytes_lost"]) == (3, False, 0)


def test_what_lies_behind_damage_cannot_be_cleared_of_text(tmp_path):
    result = run(tmp_path, zstandard.compress(b"".join(ROWS)) + b"garbage", "--no-text", "--json")
    assert orjson.loads(result.stdout)["no_text"] is False


def test_a_flood_of_findings_is_cut_and_said(tmp_path):
    many = b"".join(ROWS[:1]) + b"x\n" * 150
    result = run(tmp_path, many)
    assert result.stdout.count(": error: line: not JSON") == 100
    assert "... and 52 more; --json lists all\n" in result.stdout


def test_standard_input_is_checked():
    result = CliRunner().invoke(main, ["check", "-"], input=b"".join(ROWS))
    assert (0, f"stdin: ok: {len(ROWS)} lines, 0 errors, 0 warnings\n") == (result.exit_code, result.stdout)


DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    "source", ["weka/trace_0291.json.zst", "weka/trace_0274.json.zst", "mooncake/conversation_600.jsonl.zst"]
)
def test_what_the_importers_write_keeps_all_rules_and_is_cleared_of_text(tmp_path, source):
    target = str(tmp_path / "x.aitrace")
    converted = CliRunner().invoke(main, ["convert", str(DATA / source), "-o", target])
    result = CliRunner().invoke(main, ["check", target, "--no-text"])
    assert (converted.exit_code, result.exit_code) == (0, 0), result.stdout
    assert result.stdout.endswith(": holds no text\n")
