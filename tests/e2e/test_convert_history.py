"""`aitrace convert` on the local histories of Claude Code, Codex and OpenCode."""

import gzip
import hashlib
import os
import shutil
import sqlite3
import stat
from collections import Counter
from contextlib import closing
from pathlib import Path

import orjson
import pytest
import zstandard
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.formats.format import Tally
from aitrace.formats.opencode_store import OpenCodeStore
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
    assert (result.exit_code, "codex: 2 trees in 3 files; other files passed over: 1" in result.stderr) == (
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


def test_a_history_without_calls_says_what_was_passed_over(tmp_path):
    log = tmp_path / "s.jsonl"
    log.write_text('{"type": "user", "sessionId": "s", "timestamp": "soon", "message": {}}\n')
    result = run("convert", log, "-o", tmp_path / "out.aitrace")
    assert result.exit_code == 3
    assert (
        f"holds no call; a line without a possible time (2020 to 2100) counts as written with the one before it (first: {log}:1)"
        in result.stderr
    )
    assert not (tmp_path / "out.aitrace").exists()


# One odd file among many


def remarks(summary):
    return {r["kind"]: (r["count"], r["first_place"]) for r in summary["remarks"]}


def copied(tmp_path, source):
    folder = tmp_path / "history"
    shutil.copytree(source, folder)
    return folder, sorted(folder.rglob("*.jsonl"))


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:15] + b"\xff" * 99])
@pytest.mark.parametrize("source", [CLAUDE, CODEX])
def test_a_damaged_file_costs_only_what_is_in_it_and_the_exit_code_tells(tmp_path, source, damage):
    folder, (first, *_) = copied(tmp_path, source)
    whole, _ = converted(tmp_path, source)
    cut = first.with_name(f"{first.name}.gz")
    cut.write_bytes(damage(gzip.compress(first.read_bytes())))
    first.unlink()
    result = run("convert", folder, "-o", tmp_path / "out.aitrace", "--json", "--force")
    assert (result.exit_code, remarks(orjson.loads(result.stdout))["unreadable"][0]) == (1, 1)
    assert f"first at {cut}: damaged compression" in result.stderr
    assert 0 < len(read_trace(tmp_path / "out.aitrace").calls) <= len(whole.calls)


def test_a_directory_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    folder, _ = copied(tmp_path, CODEX)
    (folder / "closed").mkdir()
    scan = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)  # a test may run as root, for whom nothing is closed
    result = run("convert", folder, "-o", tmp_path / "out.aitrace")
    assert result.exit_code == 1
    assert f"first at {folder / 'closed'}: cannot be read: Permission denied" in result.stderr


def test_odd_values_cost_neither_the_line_nor_the_file(tmp_path):
    folder, files = copied(tmp_path, CLAUDE)
    for file in files:
        text = file.read_text()
        file.write_text(text.replace('"output_tokens":', '"output_tokens":-', 1) + '{"type": ["user"]}\n')
    whole, _ = converted(tmp_path, CLAUDE)
    found, summary = converted(tmp_path, folder)
    assert len(found.calls) == len(whole.calls)
    assert {kind: count for kind, (count, _) in remarks(summary).items()} == {
        "odd_value": 4,
        "unknown_line": 4,
    }


def test_a_first_line_of_some_megabytes_does_not_hide_a_file(tmp_path):
    folder, files = copied(tmp_path, CLAUDE)
    for file in files:
        first, rest = file.read_text().split("\n", 1)
        row = orjson.loads(first)
        row["message"]["content"] = [{"type": "text", "text": "x" * (3 << 20)}]
        file.write_bytes(orjson.dumps(row) + b"\n" + rest.encode())
    whole, _ = converted(tmp_path, CLAUDE)
    assert len(converted(tmp_path, folder)[0].calls) == len(whole.calls)


def test_a_rollout_without_its_first_line_is_told(tmp_path):
    folder, (first, *_) = copied(tmp_path, CODEX)
    first.write_bytes(first.read_bytes().split(b"\n", 1)[1])
    _, summary = converted(tmp_path, folder)
    assert remarks(summary) == {"no_first_line": (1, str(first))}


@pytest.mark.parametrize("name", ["archived", "1"])
def test_of_a_thread_in_two_files_the_longer_one_is_read(tmp_path, name):
    folder, (first, *_) = copied(tmp_path, CODEX)
    whole, _ = converted(tmp_path, CODEX)
    copy = folder / name / first.name
    copy.parent.mkdir()
    copy.write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[:20]))
    found, summary = converted(tmp_path, folder)
    assert len(found.calls) == len(whole.calls)
    assert remarks(summary)["copied_file"][0] == 1


# The same in two places


def test_a_project_that_was_copied_under_another_name_is_read_once(tmp_path):
    folder, files = copied(tmp_path, CLAUDE)
    shutil.copytree(
        files[0].parents[0 if files[0].parent.name.startswith("-") else 2], folder / "-home-jane-new"
    )
    whole, _ = converted(tmp_path, CLAUDE)
    found, _ = converted(tmp_path, folder)
    assert found.calls == whole.calls
    assert len(found.sessions) == len(whole.sessions)


def test_a_session_that_went_on_in_a_renamed_project_is_one_session(tmp_path):
    folder, _ = copied(tmp_path, CLAUDE)
    session = next(path for path in folder.rglob("*.jsonl") if path.with_suffix("").is_dir())
    rows = session.read_bytes().splitlines(keepends=True)
    (folder / "-home-jane-new").mkdir()
    (folder / "-home-jane-new" / session.name).write_bytes(b"".join(rows))
    session.write_bytes(b"".join(rows[: len(rows) // 2]))
    whole, _ = converted(tmp_path, CLAUDE)
    found, summary = converted(tmp_path, folder)
    assert (len(found.sessions), len(found.calls)) == (len(whole.sessions), len(whole.calls))
    assert (summary["forks"], summary["joins"]) == (1, 1)
    assert run("check", tmp_path / "out.aitrace").exit_code == 0


@pytest.mark.parametrize(
    "branch", ["00000000-0000-4000-8000-000000000018", "ffffffff-0000-4000-8000-000000000019"]
)
def test_a_branch_of_a_session_has_only_its_own_calls(tmp_path, branch):
    """Whatever the names of the files, so that sub-agents stay with the call that started them."""
    folder, _ = copied(tmp_path, CLAUDE)
    session = next(path for path in folder.rglob("*.jsonl") if path.with_suffix("").is_dir())
    rows = [orjson.loads(row) for row in session.read_bytes().splitlines()]
    for row in rows:
        row["forkedFrom"] = {"sessionId": row["sessionId"], "messageUuid": row.get("uuid")}
        row["sessionId"] = branch
    session.with_name(f"{branch}.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)) + b"\n")
    whole, _ = converted(tmp_path, CLAUDE)
    found, summary = converted(tmp_path, folder)
    assert found.calls == whole.calls
    assert (summary["forks"], summary["joins"]) == (1, 1)


def test_a_database_that_is_named_twice_is_read_once(tmp_path, database):
    whole, _ = converted(tmp_path, database)
    (tmp_path / "link.db").symlink_to(database)
    twice, _ = converted(tmp_path, database, database.parent, tmp_path / "link.db")
    assert twice.calls == whole.calls


def test_a_broken_database_beside_another_is_told(tmp_path, database):
    (database.parent / "opencode-dev.db").write_bytes(b"SQLite format 3\0 and then nothing")
    whole, _ = converted(tmp_path, database)
    result = run("convert", database.parent, "-o", tmp_path / "both.aitrace")
    assert (result.exit_code, "opencode-dev.db: cannot be read" in result.stderr) == (1, True)
    assert read_trace(tmp_path / "both.aitrace").calls == whole.calls


def test_a_sub_agent_comes_after_the_session_that_started_it_whatever_its_id(database):
    """What it belongs to is told there; ids of OpenCode's sessions run backwards."""
    with closing(sqlite3.connect(database)) as connection:
        ((child,),) = connection.execute("SELECT id FROM session WHERE parent_id IS NOT NULL")
        connection.execute("INSERT INTO session VALUES ('0', ?, '', '', '1.18.33', 0)", (child,))
        connection.commit()
    (tree,) = [tree for tree in OpenCodeStore(database).trees(Tally()) if child in tree]
    assert tree[1:] == (child, "0")


# What must not be in a trace that is shared


def planted(tmp_path, model):
    folder, files = copied(tmp_path, CLAUDE)
    for file in files:
        file.write_text(file.read_text().replace("claude-opus-5-5", model))
    return folder


SECRET = "-".join(("sk", "ant", "0123456789abcdef" * 2))


def test_a_trace_with_a_secret_is_not_given_its_name(tmp_path):
    result = run("convert", planted(tmp_path, SECRET), "-o", tmp_path / "out.aitrace")
    partial = tmp_path / "out.aitrace.partial"
    assert (result.exit_code, (tmp_path / "out.aitrace").exists()) == (1, False)
    assert f"DO NOT SHARE {partial}" in result.stderr
    assert "an API key of 39 bytes" in result.stderr
    assert SECRET not in result.stderr
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["history", "out.aitrace.partial"]


def test_what_a_recording_left_is_not_replaced_by_a_trace_with_a_secret(tmp_path):
    (tmp_path / "out.aitrace.partial").write_text("mine")
    result = run("convert", planted(tmp_path, SECRET), "-o", tmp_path / "out.aitrace")
    assert (result.exit_code, "was not written" in result.stderr) == (1, True)
    assert (tmp_path / "out.aitrace.partial").read_text() == "mine"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["history", "out.aitrace.partial"]


def test_a_trace_with_a_secret_does_not_go_to_stdout(tmp_path):
    result = run("convert", planted(tmp_path, SECRET), "-o", "-")
    assert (result.exit_code, result.stdout_bytes, "was not written" in result.stderr) == (1, b"", True)


def test_an_agent_named_after_its_model_is_no_leak(tmp_path):
    folder = planted(tmp_path, "acme-coder-7b")
    for file in folder.rglob("*.json*"):
        file.write_text(file.read_text().replace("general-purpose", "acme-coder"))
    trace, _ = converted(tmp_path, folder)
    assert {call.model for call in trace.calls} == {"acme-coder-7b"}


def test_a_tool_named_like_a_word_of_our_own_sentences_is_no_leak(tmp_path):
    folder, files = copied(tmp_path, CLAUDE)
    for file in files:
        file.write_text(file.read_text().replace('"Bash"', '"connections"'))
    trace, _ = converted(tmp_path, folder)
    assert any("connections" in sentence for sentence in trace.header.unknown)


def test_a_block_size_is_not_for_histories(tmp_path):
    result = run("convert", CODEX, "-o", tmp_path / "out.aitrace", "--block-size", "16")
    assert (result.exit_code, "--block-size is for mooncake" in result.stderr) == (2, True)


def test_a_history_becomes_a_plan(tmp_path):
    converted(tmp_path, CLAUDE)
    result = run("plan", tmp_path / "out.aitrace")
    assert (result.exit_code, "3, 4 sessions" in result.output) == (0, True)
