"""Makes the samples beside this file from histories that real clients wrote while a scripted endpoint answered them.

    python tests/data/history/redact.py RUNS tests/data/history

RUNS holds one directory per run, with the client's `home` and the endpoint's `log/requests.jsonl`. Only fields of the
lists below are taken over. Every text becomes another one, equal texts equal ones; so do ids and paths. What the
endpoint saw goes into `expected.json`: that is what tests compare with.
"""

import hashlib
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import orjson


def _words(text):
    return frozenset(text.split())


PLAIN = re.compile(r"[A-Za-z][A-Za-z_.-]{0,31}|[0-9][0-9A-Za-z.:-]{0,31}Z?|gpt-[0-9.a-z-]+|claude-[a-z0-9-]+")
KEPT = _words(
    """
    type role subtype name stop_reason model status timestamp version subagent_type agentType source thread_source
    cli_version reason finish tool modelID agent mode kind speed trigger querySource requestShape namespace
    """
)
IDS = re.compile(r"(^|_)ids?$|Id$|Uuid$|^uuid$|ID$|Ref$|^base$|^hash$|Hash$|^uuids$|^tail$|^allUuids$")
DROPPED = _words(
    """
    cwd gitBranch slug runtime_workspace_roots git originator base_url signature betas cacheControl requestDigest
    thread rowSource promptSource turnOrigin turnPosition userType entrypoint permissionMode sandboxed effort stop_details
    perTurnEffort madeBy requestedModel promptCacheRequested attributionAgent inference_geo iterations fallback_credit
    service_tier server_tool_use sentAtMs context_management output_config thinking thinkingDisplay title directory path
    internal_chat_message_metadata_passthrough retained_source content_item_metadata runningTurnPrompt summary_diffs
    permission cost user_input_order model_search_state client_authored fallback annotations url
    rate_limits turn_token_usage thread_token_usage account_scoped model_provider context_window collaboration_mode
    formatted rateLimits agent_nickname agent_path toolStats harnessSectionHash
    """
)
ROWS = _words(
    """
    user assistant system api-request api-request-shape api-request-blob last-prompt cost-state session_meta
    response_item turn_context token_usage_record event_msg compacted world_state
    """
)
EVENTS = frozenset({"task_started", "token_count", "task_complete", "turn_aborted", "item_completed"})


class Redactor:
    """Replaces texts and ids; the same one gives the same for the same."""

    def __init__(self):
        self.texts = {}
        self.ids = {}
        self.messages = {}

    def text(self, value):
        wall = re.search(r"Wall time:? [0-9.]+ seconds", value[:300])
        number = self.texts.setdefault(value, len(self.texts))
        return f"{wall[0] if wall else 'text'} {number}"

    def id(self, value):
        return self.ids.setdefault(value, f"00000000-0000-4000-8000-{len(self.ids):012d}")

    def value(self, key, value):
        if isinstance(value, dict):
            return {name: self.value(name, item) for name, item in value.items() if name not in DROPPED}
        if isinstance(value, list):
            return [self.value(key, item) for item in value]
        if not isinstance(value, str):
            return value
        if key in KEPT and PLAIN.fullmatch(value):
            return value
        return self.id(value) if IDS.search(key) else self.text(value)


def digest(message):
    return hashlib.sha256(orjson.dumps(message, option=orjson.OPT_SORT_KEYS)).hexdigest()


def lines_of(path):
    return [orjson.loads(line) for line in Path(path).read_bytes().splitlines()]


def note_messages(rows, redactor):
    """Give the names of messages, which are hashes of what they hold, those of the redacted messages."""
    answers = {}
    found = []
    for row in rows:
        message = row.get("message", {})
        if row["type"] == "api-request-blob":
            found.append((row["hash"], message))
        elif row["type"] == "assistant":
            answers.setdefault(message["id"], []).extend(message["content"])
            pieces = (message["content"], list(answers[message["id"]]))
            found += [(None, {"role": "assistant", "content": content}) for content in pieces]
        elif row["type"] == "user":
            content = message["content"]
            found.append((None, {"role": "user", "content": content}))
            if isinstance(content, str):
                found.append((None, {"role": "user", "content": [{"type": "text", "text": content}]}))
    for name, message in found:
        redactor.ids[name or digest(message)] = digest(redactor.value("message", message))


def claude(run, target, redactor):
    for path in sorted(Path(run, "home/.claude/projects").rglob("*.jsonl")):
        rows = [row for row in lines_of(path) if row["type"] in ROWS]
        note_messages(rows, redactor)
        out = []
        for row in rows:
            if row["type"] == "api-request-shape":
                shape = row["shape"]
                row["shape"] = {
                    "system": shape["system"],
                    "tools": [{"name": t["name"]} for t in shape["tools"][:2]],
                }
            new = redactor.value("", row)
            if "cwd" in row:
                new |= {"cwd": "/home/jane/acme", "gitBranch": "fix-payroll-of-jane"}
            out.append(new)
        session = path.parts[path.parts.index("subagents") - 1] if "subagents" in path.parts else path.stem
        folder = target / "claude-code" / "-home-jane-acme"
        name = f"{redactor.id(session)}.jsonl"
        if "subagents" in path.parts:
            folder = folder / redactor.id(session) / "subagents"
            agent = redactor.id(path.stem.removeprefix("agent-"))
            name = f"agent-{agent}.jsonl"
            meta = orjson.loads(path.with_name(f"{path.stem}.meta.json").read_bytes())
            write(folder / f"agent-{agent}.meta.json", [redactor.value("", meta)])
        write(folder / name, out)


def codex(run, target, redactor):
    for path in sorted(Path(run, "home/.codex/sessions").rglob("*.jsonl")):
        out = []
        for row in lines_of(path):
            payload = row["payload"]
            if row["type"] not in ROWS or (row["type"] == "event_msg" and payload.get("type") not in EVENTS):
                continue
            if row["type"] in ("world_state", "turn_context"):
                row["payload"] = {
                    k: v for k, v in payload.items() if k in ("turn_id", "root_turn_id", "model")
                }
            if payload.get("type") == "item_completed":
                item = payload["item"]
                payload["item"] = {k: v for k, v in item.items() if k in ("type", "id", "duration", "status")}
            for item in [payload, *payload.get("replacement_history", ())]:
                if item.get("type") == "additional_tools":
                    item["tools"] = [{"type": "custom", "name": "exec"}]
            new = redactor.value("", row)
            if row["type"] == "session_meta":
                new["payload"] |= {"cwd": "/home/jane/acme", "git": {"branch": "fix-payroll-of-jane"}}
            out.append(new)
        write(target / "codex" / "2026" / "11" / "30" / f"rollout-{redactor.id(path.stem)}.jsonl", out)


def opencode(runs, target, redactor):
    lines = [
        "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, title text, version text, time_created integer);",
        "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);",
        "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_created integer, data text);",
    ]
    for run in runs:
        file = Path(run, "home/.local/share/opencode/opencode.db")
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            for key, parent, version, at in database.execute(
                "SELECT id, parent_id, version, time_created FROM session ORDER BY time_created"
            ):
                row = [
                    redactor.id(key),
                    parent and redactor.id(parent),
                    "/home/jane/acme",
                    "fix payroll of Jane",
                ]
                lines.append(insert("session", [*row, version, at]))
            for key, session, at, data in database.execute(
                "SELECT id, session_id, time_created, data FROM message ORDER BY id"
            ):
                new = orjson.dumps(redactor.value("", orjson.loads(data))).decode()
                lines.append(insert("message", [redactor.id(key), redactor.id(session), at, new]))
            for key, message, session, at, data in database.execute(
                "SELECT id, message_id, session_id, time_created, data FROM part ORDER BY id"
            ):
                fields = orjson.loads(data)
                state = fields.get("state")
                if state:
                    child = state.get("metadata", {}).get("sessionId")
                    state["metadata"] = {"sessionId": child} if child else {}
                new = orjson.dumps(redactor.value("", fields)).decode()
                ids = [redactor.id(key), redactor.id(message), redactor.id(session)]
                lines.append(insert("part", [*ids, at, new]))
    (target / "opencode.sql").write_text("\n".join(lines) + "\n")


def insert(table, values):
    told = ", ".join(
        "NULL" if v is None else str(v) if isinstance(v, int) else "'" + v.replace("'", "''") + "'"
        for v in values
    )
    return f"INSERT INTO {table} VALUES ({told});"  # noqa: S608 - the values are quoted above


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def seen_by_endpoint(run):
    """Each request in order: agent, start and end in ms since 1970, status."""
    found = []
    for row in lines_of(Path(run, "log/requests.jsonl")):
        if row.get("method") == "POST" and "agent" in row:
            zero = row["wall"] - row["t_head"]
            end = row.get("t_end")
            found.append(
                {
                    "agent": row["agent"],
                    "status": row.get("status"),
                    "request_ms": round(1000 * (zero + row["t_body"])),
                    "end_ms": None if end is None else round(1000 * (zero + end)),
                }
            )
    return found


def main(runs, target):
    redactor = Redactor()
    expected = {}
    for name in ("session", "http529", "compaction"):
        run = f"{runs}/claude-api-direct-{name}"
        claude(run, target, redactor)
        expected[f"claude-code/{name}"] = seen_by_endpoint(run)
    for name in ("codex-http-direct-session-sol", "codex-http-direct-compaction"):
        codex(f"{runs}/{name}", target, redactor)
        expected[f"codex/{name.split('-')[3]}"] = seen_by_endpoint(f"{runs}/{name}")
    names = ("session", "compaction")
    opencode([f"{runs}/opencode-compat-direct-{name}" for name in names], target, redactor)
    for name in names:
        expected[f"opencode/{name}"] = seen_by_endpoint(f"{runs}/opencode-compat-direct-{name}")
    (target / "expected.json").write_bytes(orjson.dumps(expected, option=orjson.OPT_INDENT_2) + b"\n")
    for path in target.rglob("*"):
        is_sample = path.suffix in {".jsonl", ".sql"}
        assert not is_sample or not any(word in path.read_bytes() for word in (b"scripted", b"/tmp")), path


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
