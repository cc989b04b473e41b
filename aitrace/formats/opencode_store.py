"""I/O: the sessions of OpenCode where it keeps them: a SQLite database, or the JSON files of older versions.

The database is only read. Where nothing is left in its write-ahead log it is opened as a file that cannot change, so
that SQLite makes no file beside it; else as read-only, which a running OpenCode bears.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from aitrace.errors import InputError
from aitrace.formats.format import Tally
from aitrace.formats.history_fields import object_in
from aitrace.formats.opencode import Conversation, Message, conversation_from_fields
from aitrace.formats.source import note_unreadable

SQLITE_MAGIC = b"SQLite format 3\0"
_DAMAGED = "a message or part is no JSON object; passed over"
_DATABASE_HINT = "name OpenCode's own database (opencode.db), with the files beside it"


class OpenCodeStore:
    """Where sessions are read from; give it the database, or the directory that holds `session` and `message`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_database = path.is_file()

    def trees(self, tally: Tally) -> list[tuple[str, ...]]:
        """Ids of the sessions of each tree, the main agent's first, and each one's before those of its sub-agents."""
        parents: dict[str, str | None] = {}
        for fields in self._session_fields(tally):
            key = fields.get("id")
            parent = fields.get("parent_id") or fields.get("parentID")
            if isinstance(key, str):
                parents[key] = parent if isinstance(parent, str) else None
        trees: dict[str, list[tuple[int, str]]] = {}
        for key in parents:
            root, depth = _root(key, parents)
            trees.setdefault(root, []).append((depth, key))
        return [tuple(key for _, key in sorted(keys)) for keys in trees.values()]

    def conversations(self, ids: Sequence[str], tally: Tally) -> list[Conversation]:
        """The sessions with their messages, in the order of `ids`.

        Raises:
            InputError: The database cannot be read.
        """
        if self._is_database:
            with closing(self._connect()) as database:
                return [
                    self._conversation(fields, self._stored_messages(database, key, tally))
                    for key in ids
                    for fields in self._query(database, "SELECT * FROM session WHERE id = ?", key)
                ]
        by_id = {fields.get("id"): fields for fields in self._session_fields(Tally())}
        return [
            self._conversation(by_id[key], list(self._message_files(key, tally)))
            for key in ids
            if key in by_id
        ]

    def _conversation(self, fields: Mapping[str, Any], messages: Sequence[Message]) -> Conversation:
        return conversation_from_fields(fields, messages, str(self._path))

    def _session_fields(self, tally: Tally) -> Iterator[Mapping[str, Any]]:
        if self._is_database:
            with closing(self._connect()) as database:
                yield from self._query(database, "SELECT * FROM session ORDER BY time_created, id")
            return
        for file in sorted((self._path / "session").rglob("*.json")):
            fields = self._json_file(file, tally)
            if fields is not None:
                yield fields

    def _connect(self) -> sqlite3.Connection:
        log = self._path.with_name(self._path.name + "-wal")
        has_log = log.exists() and log.stat().st_size > 0
        how = "mode=ro" if has_log else "mode=ro&immutable=1"
        try:
            database = sqlite3.connect(f"file:{quote(str(self._path.absolute()))}?{how}", uri=True)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        database.row_factory = sqlite3.Row
        database.text_factory = _text
        return database

    def _query(self, database: sqlite3.Connection, text: str, *values: str) -> Iterator[Mapping[str, Any]]:
        try:
            for row in database.execute(text, values):
                yield dict(row)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.Error) -> InputError:
        return InputError(
            f"{self._path}: cannot be read as OpenCode's database: {error}", hint=_DATABASE_HINT
        )

    def _stored_messages(self, database: sqlite3.Connection, session: str, tally: Tally) -> list[Message]:
        parts: dict[str, list[Mapping[str, Any]]] = {}
        text = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id"
        for row in self._query(database, text, session):
            part = self._decoded(row["data"], f"{self._path}: part {row['id']}", tally)
            if part is not None:
                parts.setdefault(row["message_id"], []).append(part)
        text = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
        messages = []
        for row in self._query(database, text, session):
            place = f"{self._path}: message {row['id']}"
            data = self._decoded(row["data"], place, tally)
            if data is not None:
                # The id is a column of its own, not a field of the message.
                fields = {"id": row["id"], **data}
                messages.append(Message(place=place, data=fields, parts=parts.get(row["id"], ())))
        return messages

    def _message_files(self, session: str, tally: Tally) -> Iterator[Message]:
        found = []
        for file in (self._path / "message" / session).glob("*.json"):
            data = self._json_file(file, tally)
            if data is not None:
                created = object_in(data, "time").get("created")
                found.append((created if isinstance(created, int) else 0, file, data))
        for _, file, data in sorted(found, key=lambda item: (item[0], item[1])):
            parts = [
                self._json_file(part, tally)
                for part in sorted((self._path / "part" / file.stem).glob("*.json"))
            ]
            yield Message(place=str(file), data=data, parts=[part for part in parts if part is not None])

    def _json_file(self, file: Path, tally: Tally) -> Mapping[str, Any] | None:
        try:
            data = file.read_bytes()
        except OSError as error:
            note_unreadable(InputError(f"{file}: cannot be read: {error.strerror}"), tally)
            return None
        return self._decoded(data, str(file), tally)

    def _decoded(self, data: str | bytes, place: str, tally: Tally) -> Mapping[str, Any] | None:
        value = _object(data)
        if value is None:
            tally.remark("damaged_line", _DAMAGED, place)
        return value


def find_store(directory: Path) -> list[Path]:
    """What `OpenCodeStore` takes in a directory: its databases, or else itself if it holds JSON files."""
    databases = sorted(directory.glob("opencode*.db"))
    if databases:
        return databases
    return [path for path in (directory, directory / "storage") if _has_files(path)][:1]


def _has_files(path: Path) -> bool:
    return (path / "session").is_dir() and (path / "message").is_dir()


def _root(key: str, parents: Mapping[str, str | None]) -> tuple[str, int]:
    """The session at the top of a session's tree, and how far it is."""
    seen = {key}
    while (parent := parents.get(key)) is not None and parent in parents and parent not in seen:
        key = parent
        seen.add(key)
    return key, len(seen) - 1


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _object(data: Any) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
