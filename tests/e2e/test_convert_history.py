"""`aitrace convert` on the local histories of Claude Code, Codex and OpenCode."""

import hashlib
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import orjson
import pytest
import zstandard
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.store import read_trace
from aitrace.units import NS_PER_MS

ROOT = Path(__file__).parents[2]
HISTORY = ROOT / "tests" / "data" / "history"
CLAUDE = HISTORY / "claude-code"
CODEX = HISTORY / "codex"
SEEN = orjson.loads((HISTORY / "expected.json").read_bytes())


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin, catch_exceptions=False)


def converted(tmp_path, *inputs):
    result = run("convert", *inputs, "-o", tmp_path / "out.aitrace", "--json", "--force")
    assert result.exit_code == 0, result.stderr
    return read_trace(tmp_path / "out.aitrace"), orjson.loads(result.stdout)


def decompressed(path):
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()


@pytest.fixture
def database(tmp_path):
    """OpenCode's database, with its latest writes still in the log beside it, as OpenCode leaves it."""
    path = tmp_path / "opencode" / "opencode.db"
    path.parent.mkdir()
    made = tmp_path / "made.db"
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.executescript((HISTORY / "opencode.sql").read_text())
        connection.commit()
        shutil.copy(made, path)
        shutil.copy(f"{made}-wal", f"{path}-wal")
    return path


def inputs(name, database):
    return {"claude-code": CLAUDE, "codex": CODEX, "opencode": database.parent}[name]


def trees(trace):
    """Calls by the start of their tree, in the order of the trees."""
    found = {}
    for call in trace.calls:
        found.setdefault(trace.sessions[call.session].root, []).append(call)
    return list(found.values())


def closest(times, at):
    return min(abs(at - time) for time in times)


# How far the history may be from what the endpoint saw, ms: the log of Claude Code has the request itself, the others
# the last input before it (for OpenCode, the record of the answer to come, made up to 1.2 s earlier).
TOLERANCE_MS = {"claude-code": 20, "codex": 80, "opencode": 1200}


@pytest.mark.parametrize(
    ("name", "unlogged"),
    # Claude Code's call for a summary is in no line; OpenCode's for a title neither.
    [("claude-code", {"compaction": 1}), ("codex", {}), ("opencode", {"session": 1, "compaction": 1})],
)
def test_the_calls_are_those_that_the_endpoint_saw(tmp_path, database, name, unlogged):
    trace, _ = converted(tmp_path, inputs(name, database))
    zero_ms = trace.header.clock_unix_ns / NS_PER_MS
    seen = {
        run_name.split("/")[1]: rows for run_name, rows in SEEN.items() if run_name.startswith(f"{name}/")
    }
    assert len(trees(trace)) == len(seen)
    for calls in trees(trace):
        starts = [zero_ms + call.times.request_ns / NS_PER_MS for call in calls]
        run_name = min(seen, key=lambda key: abs(seen[key][0]["request_ms"] - starts[0]))
        rows = seen[run_name]
        assert len(calls) == len(rows) - unlogged.get(run_name, 0)
        assert max(closest([row["request_ms"] for row in rows], at) for at in starts) <= TOLERANCE_MS[name]
        ends = [zero_ms + call.times.end_ns / NS_PER_MS for call in calls]
        assert max(closest([row["end_ms"] for row in rows], at) for at in ends) <= 60
        agents = Counter(row["agent"] for row in rows)
        children = Counter(c.session for c in calls if trace.sessions[c.session].parent is not None)
        assert list(children.values()) == [n for agent, n in agents.items() if agent == "child"]


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode"])
def test_the_trace_is_valid_and_holds_no_text(tmp_path, database, name):
    trace, _ = converted(tmp_path, inputs(name, database))
    result = run("check", "--no-text", tmp_path / "out.aitrace")
    assert (result.exit_code, "0 errors, 0 warnings" in result.output) == (0, True)
    data = decompressed(tmp_path / "out.aitrace")
    assert not [word for word in (b"jane", b"payroll", b"Jane", b"text ", b"00000000-") if word in data]
    assert (trace.header.source, trace.header.privacy) == (f"{name}-history", "hash")
    assert {session.harness for session in trace.sessions} == {name}


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode"])
def test_names_that_somebody_made_up_are_not_written(tmp_path, database, name):
    folder = tmp_path / "named"
    if name == "opencode":
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("""UPDATE message SET data = replace(data, '"general"', '"acme-payroll"')""")
            connection.execute("""UPDATE part SET data = replace(data, '"bash"', '"acme_payroll"')""")
            connection.commit()
        folder = database
    else:
        shutil.copytree(inputs(name, database), folder)
        for path in folder.rglob("*.json*"):
            text = (
                path.read_text()
                .replace("general-purpose", "acme-payroll")
                .replace('"Bash"', '"mcp__acme__payroll"')
            )
            text = text.replace('"exec"', '"acme_payroll"').replace("claude-opus-5-5", "/home/jane/model")
            path.write_text(text.replace("end_turn", "as jane said").replace("2.1.332", "payroll of jane"))
    converted(tmp_path, folder)
    assert run("check", "--no-text", tmp_path / "out.aitrace").exit_code == 0
    data = decompressed(tmp_path / "out.aitrace")
    assert not [word for word in (b"acme", b"payroll", b"jane") if word in data]


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode"])
def test_a_sub_agent_is_spawned_and_joined_and_tools_fill_the_gaps(tmp_path, database, name):
    trace, summary = converted(tmp_path, inputs(name, database))
    assert (summary["forks"], summary["joins"]) == (1, 1)
    waits = [wait for call in trace.calls for wait in call.after]
    assert {wait.cause for wait in waits if wait.relation == "join"} == {"tool"}
    # Each scripted session sleeps 2 s in its first tool, and 2 s in the last one.
    tree = next(
        calls for calls in trees(trace) if any(trace.sessions[c.session].parent is not None for c in calls)
    )
    gaps = [
        w.gap_ns / NS_PER_MS for c in tree for w in c.after if (w.relation, w.cause) == ("sequence", "tool")
    ]
    assert len([gap for gap in gaps if 1950 <= gap <= 2350]) >= 2
    durations = [t.duration_ns for c in tree for t in c.tool_calls or () if t.duration_ns is not None]
    assert len([d for d in durations if 1_900 <= d / NS_PER_MS <= 2_200]) >= 2


def test_a_prompt_of_claude_code_has_its_tools_and_system_prompt(tmp_path):
    trace, summary = converted(tmp_path, CLAUDE)
    first = trace.calls[0]
    kinds = [trace.segments[i].type for i in first.prompt.add]
    assert kinds[:3] == ["tool_definition", "tool_definition", "system"]
    assert not any(call.prompt.unseen_start for call in trace.calls)
    assert (summary["retries"], summary["resets"], summary["remarks"]) == (4, 1, [])
    refused = [call.outcome.status for call in trace.calls if call.outcome.error == "refused"]
    assert refused == [529] * 4
    backoff = [wait.cause for call in trace.calls for wait in call.after if wait.relation == "retry"]
    assert backoff == ["backoff"] * 4


def test_a_session_brings_its_sub_agents_and_a_file_alone_does(tmp_path):
    session = next(path for path in CLAUDE.rglob("*.jsonl") if path.with_suffix("").is_dir())
    trace, _ = converted(tmp_path, session)
    assert [s.agent for s in trace.sessions] == [None, "general-purpose"]
    agent = next((session.with_suffix("") / "subagents").glob("*.jsonl"))
    alone, _ = converted(tmp_path, agent)
    assert {call.call_class for call in alone.calls} == {"subagent"}


def test_several_paths_become_one_trace_in_the_order_of_time(tmp_path):
    files = sorted(CODEX.rglob("*.jsonl"), reverse=True)
    trace, _ = converted(tmp_path, *files)
    whole, _ = converted(tmp_path, CODEX)
    assert len(trace.calls) == len(whole.calls)
    starts = [calls[0].times.request_ns for calls in trees(trace)]
    assert starts == sorted(starts)


def test_the_database_is_only_read(tmp_path, database):
    def state():
        files = [database, Path(f"{database}-wal")]
        return [(file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]

    before = state()
    with_log, _ = converted(tmp_path, database)
    assert state() == before
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = {file.name: file.stat().st_mtime_ns for file in database.parent.iterdir()}
    without_log, _ = converted(tmp_path, database)
    assert {file.name: file.stat().st_mtime_ns for file in database.parent.iterdir()} == before
    assert len(with_log.calls) == len(without_log.calls) == 14


def test_the_json_files_of_older_versions_give_the_same_calls(tmp_path, database):
    storage = tmp_path / "data" / "storage"

    def put(*names, **fields):
        path = storage.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(fields))

    with closing(sqlite3.connect(database)) as connection:
        for key, parent, version in connection.execute("SELECT id, parent_id, version FROM session"):
            put(
                "session",
                "global",
                f"{key}.json",
                id=key,
                version=version,
                **({"parentID": parent} if parent else {}),
            )
        for key, session, data in connection.execute("SELECT id, session_id, data FROM message"):
            put("message", session, f"{key}.json", **{"id": key, **orjson.loads(data)})
        for key, message, data in connection.execute("SELECT id, message_id, data FROM part"):
            put("part", message, f"{key}.json", **orjson.loads(data))
    expected, _ = converted(tmp_path, database)
    for place in (storage, storage.parent):
        found, _ = converted(tmp_path, place)
        assert [(c.times, c.usage, c.tool_calls, c.session) for c in found.calls] == [
            (c.times, c.usage, c.tool_calls, c.session) for c in expected.calls
        ]


def test_a_log_that_is_being_written_is_read_as_far_as_it_is_whole(tmp_path):
    source = next(path for path in CODEX.rglob("*.jsonl"))
    log = tmp_path / "rollout-cut.jsonl"
    log.write_bytes(source.read_bytes() + b"[1]\n\n" + b'{"timestamp": "2026-11-30T03:0')
    _, summary = converted(tmp_path, log)
    lines = source.read_bytes().count(b"\n")
    found = [(r["kind"], r["count"], r["first_place"]) for r in summary["remarks"]]
    assert found == [("damaged_line", 2, f"{log}:{lines + 1}")]


def test_packed_logs_are_read(tmp_path):
    source = next(path for path in CODEX.rglob("*.jsonl"))
    packed = tmp_path / "logs" / "rollout.jsonl.zst"
    packed.parent.mkdir()
    packed.write_bytes(zstandard.compress(source.read_bytes()))
    trace, _ = converted(tmp_path, packed.parent)
    assert len(trace.calls) > 0


def test_files_of_another_kind_are_passed_over_and_told(tmp_path):
    folder = tmp_path / "sessions"
    shutil.copytree(CODEX, folder)
    (folder / "history.jsonl").write_text('{"session_id": "x", "text": "typed"}\n')
    result = run("convert", folder, "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "codex: 2 trees in 3 files; 1 other files passed over" in result.stderr) == (
        0,
        True,
    )


def test_one_harness_may_be_chosen_from_a_mixed_directory(tmp_path):
    folder = tmp_path / "mixed"
    shutil.copytree(CODEX, folder / "codex")
    shutil.copytree(CLAUDE, folder / "claude")
    result = run("convert", folder, "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "--from" in result.stderr) == (2, True)
    assert run("convert", folder, "-o", tmp_path / "out.aitrace", "--from", "codex").exit_code == 0
    assert read_trace(tmp_path / "out.aitrace").header.source == "codex-history"


def weka(tmp_path):
    path = tmp_path / "weka.json"
    path.write_bytes(orjson.dumps({"id": "trace_0001", "block_size": 64, "requests": []}))
    return path


def test_a_history_beside_another_trace_is_refused(tmp_path):
    result = run("convert", CODEX, weka(tmp_path), "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "different formats" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode"])
def test_what_is_no_such_history_is_refused_with_its_name(tmp_path, name):
    result = run("convert", weka(tmp_path), "-o", tmp_path / "out.aitrace", "--from", name)
    assert (result.exit_code, f"weka.json: holds no history of {name}" in result.stderr) == (3, True)


def test_a_directory_without_history_is_refused_with_where_there_may_be_one(tmp_path):
    (tmp_path / "empty").mkdir()
    result = run("convert", tmp_path / "empty", "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "is a directory" in result.stderr) == (3, True)


def test_a_history_without_calls_is_refused(tmp_path):
    log = tmp_path / "s.jsonl"
    log.write_text('{"type": "mode", "sessionId": "s"}\n')
    result = run("convert", log, "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "holds no call" in result.stderr) == (3, True)


@pytest.mark.parametrize("content", [b"SQLite format 3\0 and then nothing", None])
def test_another_database_is_refused_as_such(tmp_path, content):
    path = tmp_path / "other.db"
    if content is None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE contacts (name text)")
    else:
        path.write_bytes(content)
    result = run("convert", path, "-o", tmp_path / "out.aitrace")
    assert result.exit_code == 3
    assert "cannot be read as OpenCode's database" in result.stderr
    assert "Hint: " in result.stderr


def test_an_absurd_value_is_refused_with_file_and_line(tmp_path):
    log = tmp_path / "s.jsonl"
    log.write_text('{"type": "user", "sessionId": "s", "timestamp": "soon", "message": {}}\n')
    result = run("convert", log, "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, f"{log}:1: 'timestamp' is 'soon'" in result.stderr) == (3, True)
    assert not (tmp_path / "out.aitrace").exists()


def test_a_block_size_is_not_for_histories(tmp_path):
    result = run("convert", CODEX, "-o", tmp_path / "out.aitrace", "--block-size", "16")
    assert (result.exit_code, "--block-size is for mooncake" in result.stderr) == (2, True)


def test_a_history_becomes_a_plan(tmp_path):
    converted(tmp_path, CLAUDE)
    result = run("plan", tmp_path / "out.aitrace")
    assert (result.exit_code, "3, 4 sessions" in result.output) == (0, True)
