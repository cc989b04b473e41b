"""I/O: finds the local histories of harnesses below paths, tells whose they are, and what of them is one tree."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson

from aitrace.errors import InputError, UsageError
from aitrace.formats.claude_code import Transcript, calls_from_session
from aitrace.formats.codex import Thread, calls_from_threads, root_of, thread_from_rows
from aitrace.formats.format import HISTORIES, FormatName, Tally, history_of_row
from aitrace.formats.history import HistoryCall, HistoryReading
from aitrace.formats.history_fields import object_in, text_in
from aitrace.formats.opencode import calls_from_conversations
from aitrace.formats.opencode_store import SQLITE_MAGIC, OpenCodeStore, find_store
from aitrace.formats.source import SourceFile, note_unreadable

_AGENT = "agent-"
_SUBAGENTS = "subagents"
_ROWS_OF_A_COPY = 20
"""Lines among which one tells that it is a copy, if the file begins with one."""
_NO_FIRST_LINE = "a rollout without the line that says whose it is was left out"
_COPIED_FILE = "a thread is in two files; the smaller one was left out"
_NOTHING_HINT = (
    "Claude Code keeps its history in ~/.claude/projects, Codex in ~/.codex/sessions, OpenCode in "
    "~/.local/share/opencode"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTree:
    """The log of one tree."""

    read: Callable[[HistoryReading], list[HistoryCall]]
    """Its calls; may be asked for more than once. What cannot be read is left out and noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that was found."""

    format: FormatName
    """Whose it is."""
    trees: tuple[HistoryTree, ...]
    """In no order, but what others begin with a copy of comes before them."""
    sources: int
    """Files and databases read."""
    others: int
    """Files of the directories that are no such history."""
    tally: Tally
    """What was not plain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One file or database."""

    format: FormatName
    """Whose it is."""
    path: str
    """Where it is."""


def find_history(sources: Sequence[str], chosen: FormatName | None) -> History | None:
    """The history that the paths hold; None if they are files of another kind.

    Args:
        chosen: The format as the user named it; None to tell it from the content.

    Raises:
        InputError: They hold none of `chosen`.
        UsageError: The paths hold histories of different harnesses.
    """
    if chosen is not None and chosen not in HISTORIES:
        return None
    found: list[_Found] = []
    plain: list[str] = []
    others = 0
    tally = Tally()
    for source in sources:
        here, rest = _found_in(source, chosen, tally)
        found += here
        others += rest
        if not here:
            plain.append(source)
    if not found and chosen is not None:
        raise InputError(f"{plain[0]}: holds no history of {chosen}", hint=_NOTHING_HINT)
    if not found:
        return None
    formats = {item.format: item.path for item in found}
    if len(formats) > 1 or plain:
        told = ", ".join(f"{path} is {name}" for name, path in formats.items())
        rest_told = "".join(f", {path} is something else" for path in plain[:1])
        raise UsageError(
            f"the inputs are of different formats: {told}{rest_told}",
            hint="convert each format on its own, or choose among histories with --from",
        )
    kind = found[0].format
    paths = list({os.path.realpath(item.path): item.path for item in reversed(found)}.values())[::-1]
    trees: dict[FormatName, Callable[[Sequence[str], Tally], list[HistoryTree]]] = {
        "claude-code": _claude_trees,
        "codex": _codex_trees,
        "opencode": _opencode_trees,
    }
    return History(
        format=kind, trees=tuple(trees[kind](paths, tally)), sources=len(paths), others=others, tally=tally
    )


def _found_in(source: str, chosen: FormatName | None, tally: Tally) -> tuple[list[_Found], int]:
    """Histories at a path, and how many files there are none."""
    path = Path(source)
    if not path.is_dir():
        kind = _format_of_file(source) if path.is_file() else None
        kind = kind if chosen is None or kind is None else chosen
        return ([_Found(format=kind, path=source)] if kind is not None else []), 0
    stores = find_store(path) if chosen in (None, "opencode") else []
    if stores:
        return [_Found(format="opencode", path=str(store)) for store in stores], 0
    found = [(name, _format_of_file(name, tally)) for name in sorted(_logs_below(source, tally))]
    kept = [
        _Found(format=kind, path=name)
        for name, kind in found
        if kind is not None and (chosen is None or kind == chosen)
    ]
    return kept, len(found) - len(kept)


def _logs_below(directory: str, tally: Tally) -> Iterator[str]:
    def note(error: OSError) -> None:
        note_unreadable(InputError(f"{error.filename}: cannot be read: {error.strerror}"), tally)

    for folder, _, names in os.walk(directory, onerror=note):
        for name in names:
            # Opening a pipe would wait for ever.
            if ".jsonl" in name and Path(folder, name).is_file():
                yield str(Path(folder, name))


def _format_of_file(source: str, tally: Tally | None = None) -> FormatName | None:
    file = SourceFile(source)
    if file.starts_with(SQLITE_MAGIC):
        return "opencode"
    kinds = (history_of_row(row) for _, row in file.first_rows(tally))
    return next((kind for kind in kinds if kind is not None), None)


def _claude_trees(paths: Sequence[str], _: Tally) -> list[HistoryTree]:
    # By the session alone: a project that was renamed or copied has the same ones in two directories.
    sessions: dict[str, list[str]] = {}
    for path in _with_agents(paths):
        sessions.setdefault(_session_of(path), []).append(path)
    origins = {session: _origin_of(files) for session, files in sessions.items()}
    ordered = sorted(sessions, key=lambda session: _copies_above(session, origins))
    return [HistoryTree(read=_claude_reader(session, sessions[session])) for session in ordered]


def _with_agents(paths: Sequence[str]) -> list[str]:
    """The files, and those of the sub-agents that belong to a session among them."""
    found = list(paths)
    for path in paths:
        folder = Path(path).with_suffix("") / _SUBAGENTS
        if folder.is_dir():
            found += sorted(str(file) for file in folder.rglob(f"{_AGENT}*.jsonl"))
    return list(dict.fromkeys(found))


def _session_of(path: str) -> str:
    """Id of the session that a file belongs to."""
    file = Path(path)
    parts = file.parts
    if _SUBAGENTS in parts[1:]:
        return parts[len(parts) - 2 - parts[::-1].index(_SUBAGENTS)]
    if not file.name.startswith(_AGENT):
        return file.name.split(".")[0]
    told = (text_in(row, "sessionId") for _, row in SourceFile(path).first_rows())
    return next((name for name in told if name is not None), path)


def _origin_of(files: Sequence[str]) -> str | None:
    """The session that one was branched off, of which it begins with a copy; None if it begins anew."""
    for file in files:
        for _, row in islice(SourceFile(file).first_rows(), _ROWS_OF_A_COPY):
            origin = text_in(object_in(row, "forkedFrom"), "sessionId")
            if origin is not None:
                return origin
    return None


def _copies_above(session: str, origins: Mapping[str, str | None]) -> int:
    """How many sessions this one goes back to."""
    seen = {session}
    while (origin := origins.get(session)) is not None and origin not in seen:
        seen.add(origin)
        session = origin
    return len(seen)


def _claude_reader(session: str, files: Sequence[str]) -> Callable[[HistoryReading], list[HistoryCall]]:
    def read(reading: HistoryReading) -> list[HistoryCall]:
        # The main agent first: what sub-agents repeat of it is a copy.
        ordered = sorted(files, key=lambda file: (Path(file).name.startswith(_AGENT), file))
        return calls_from_session(session, (_transcript(file, reading.tally) for file in ordered), reading)

    return read


def _transcript(path: str, tally: Tally) -> Transcript:
    file = Path(path)
    rows = SourceFile(path).rows(tally)
    name = file.name.split(".")[0]
    if not name.startswith(_AGENT):
        return Transcript(agent_id=None, rows=rows)
    meta = _meta(file.with_name(f"{name}.meta.json"))
    below = file.parts[file.parts.index(_SUBAGENTS) + 1 :] if _SUBAGENTS in file.parts else ()
    return Transcript(
        agent_id=name.removeprefix(_AGENT),
        rows=rows,
        kind=text_in(meta, "agentType"),
        tool_use_id=text_in(meta, "toolUseId"),
        is_workflow=len(below) > 1,
    )


def _meta(file: Path) -> object:
    try:
        return orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None  # older versions have none


def _codex_trees(paths: Sequence[str], tally: Tally) -> list[HistoryTree]:
    path_of: dict[str, str] = {}
    by_id: dict[str, Thread] = {}
    for path in paths:
        thread = thread_from_rows(list(islice(SourceFile(path).first_rows(), 2)), SourceFile(path).rows)
        if thread is None:
            tally.remark("no_first_line", _NO_FIRST_LINE, path)
            continue
        if thread.id in by_id:
            tally.remark("copied_file", _COPIED_FILE, path)
            if Path(path).stat().st_size <= Path(path_of[thread.id]).stat().st_size:
                continue
        by_id[thread.id], path_of[thread.id] = thread, path
    trees: dict[str, list[str]] = {}
    for thread in by_id.values():
        trees.setdefault(root_of(thread, by_id), []).append(thread.id)
    return [_codex_tree(root, ids, by_id, path_of) for root, ids in trees.items()]


def _codex_tree(
    root: str, ids: Sequence[str], by_id: Mapping[str, Thread], path_of: Mapping[str, str]
) -> HistoryTree:
    ordered = sorted(ids, key=lambda key: (key != root, path_of[key]))
    origins = sorted({by_id[key].origin or "" for key in ids} & (by_id.keys() - set(ids)))
    threads, others = [by_id[key] for key in ordered], [by_id[key] for key in origins]
    return HistoryTree(read=lambda reading: calls_from_threads(threads, others, reading))


def _opencode_trees(paths: Sequence[str], tally: Tally) -> list[HistoryTree]:
    found: list[HistoryTree] = []
    for path in paths:
        store = OpenCodeStore(Path(path))
        try:
            found += [HistoryTree(read=_opencode_reader(store, ids)) for ids in store.trees(tally)]
        except InputError as error:
            if len(paths) == 1:
                raise
            note_unreadable(error, tally)
    return found


def _opencode_reader(
    store: OpenCodeStore, ids: tuple[str, ...]
) -> Callable[[HistoryReading], list[HistoryCall]]:
    def read(reading: HistoryReading) -> list[HistoryCall]:
        try:
            return calls_from_conversations(store.conversations(ids, reading.tally), reading)
        except InputError as error:
            note_unreadable(error, reading.tally)
            return []

    return read
