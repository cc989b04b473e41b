"""Whatever a history holds, what is converted is a trace without an error and without text."""

import copy
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.assembly import Assembler
from aitrace.codec import encode_line
from aitrace.formats.claude_code import Transcript, calls_from_session
from aitrace.formats.codex import calls_from_threads, thread_from_rows
from aitrace.formats.history import HistoryImporter, HistoryReading, HistorySurvey
from aitrace.formats.opencode import Message, calls_from_conversations, conversation_from_fields
from aitrace.no_text import find_text
from aitrace.testing import find_problems

HISTORY = Path(__file__).parents[1] / "data" / "history"
ODD = [
    None,
    True,
    -1,
    0,
    7,
    2**40,
    2**63,
    1.5,
    1e300,
    "",
    "text 1",
    "user",
    "soon",
    "\x00é😀",
    [],
    {},
    [[]],
    {"type": 7},
    "2026-11-30T03:08:00Z",
    "2001-01-01",
    "2026-11-30T03:09:59.999999999+23:59",
    "99999999-01-01",
    1796008155666,
    orjson.loads(b"[" * 300 + b"]" * 300),
]


def samples(folder):
    files = sorted((HISTORY / folder).rglob("*.jsonl"))
    return [[orjson.loads(line) for line in file.read_bytes().splitlines()] for file in files]


CLAUDE = samples("claude-code")
CODEX = samples("codex")


def opencode():
    with closing(sqlite3.connect(":memory:")) as base:
        base.executescript((HISTORY / "opencode.sql").read_text())
        rows = []
        for key, session, data in base.execute("SELECT id, session_id, data FROM message ORDER BY id"):
            found = base.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (key,))
            parts = [orjson.loads(part) for (part,) in found]
            rows.append({"session": session, "message": {"id": key, **orjson.loads(data)}, "parts": parts})
        sessions = [
            {"id": key, "parent_id": parent, "version": version}
            for key, parent, version in base.execute("SELECT id, parent_id, version FROM session")
        ]
    return sessions, rows


SESSIONS, MESSAGES = opencode()


def places(value):
    """All containers in a value with their keys."""
    found = []
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += [(value, key), *places(inner)]
    return found


def damaged(rng, rows):
    """Rows of which some are odd, missing, repeated or in another order."""
    rows = list(rows)
    for _ in range(rng.randint(0, 6)):
        index = rng.randrange(len(rows))
        match rng.choice(["odd", "odd", "odd", "out", "twice", "moved"]):
            case "odd":
                rows[index] = copy.deepcopy(rows[index])
                owner, key = rng.choice(places(rows[index]))
                owner[key] = rng.choice(ODD)
            case "out" if len(rows) > 1:
                del rows[index]
            case "moved":
                rows.append(rows.pop(index))
            case _:
                rows.insert(rng.randrange(len(rows)), rows[index])
    return rows


def with_one_damaged(rng, files):
    chosen = rng.randrange(len(files))
    return [damaged(rng, rows) if number == chosen else rows for number, rows in enumerate(files)]


def numbered(name, rows):
    return [(f"{name}:{number}", row) for number, row in enumerate(rows, 1)]


def demand_valid(source, calls):
    survey = HistorySurvey(source)
    for call in calls:
        survey.add(call)
    if not calls:
        return
    assembler = Assembler(b"k" * 32)
    importer = HistoryImporter(source, assembler, origin_ns=survey.origin_ns, reading=HistoryReading())
    lines = [survey.header(producer="aitrace 0 convert", attribution=None), *importer.lines(calls)]
    assert [finding for finding in find_problems(enumerate(lines, 1)) if finding.severity == "error"] == []
    texts = [finding for line in lines for finding in find_text(1, encode_line(line).rstrip())]
    assert texts == []


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_transcripts_of_claude_code(seed):
    files = with_one_damaged(random.Random(seed), CLAUDE)
    transcripts = [
        Transcript(agent_id=f"a{number}" if number else None, rows=numbered(f"f{number}", rows))
        for number, rows in enumerate(files)
    ]
    demand_valid("claude-code", calls_from_session("s", transcripts, HistoryReading()))


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_rollouts_of_codex(seed):
    files = with_one_damaged(random.Random(seed), CODEX)
    threads = []
    for number, rows in enumerate(files):
        lines = numbered(f"f{number}", rows)
        thread = thread_from_rows(lines[:2], lambda _, lines=lines: lines)
        threads += [thread] if thread is not None else []
    demand_valid("codex", calls_from_threads(threads, [], HistoryReading()))


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_conversations_of_opencode(seed):
    rng = random.Random(seed)
    sessions, messages = damaged(rng, SESSIONS), damaged(rng, MESSAGES)
    conversations = [
        conversation_from_fields(
            fields,
            [
                Message(place=f"m{number}", data=row["message"], parts=row["parts"])
                for number, row in enumerate(messages)
                if row.get("session") == fields.get("id")
                and isinstance(row.get("message"), dict)
                and isinstance(row.get("parts"), list)
                and all(isinstance(part, dict) for part in row["parts"])
            ],
            "db",
        )
        for fields in sessions
    ]
    if conversations:
        demand_valid("opencode", calls_from_conversations(conversations, HistoryReading()))
