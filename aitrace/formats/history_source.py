"""I/O: finds the local histories of harnesses below paths, tells whose they are, and what of them is one tree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from aitrace.errors import InputError, UsageError
from aitrace.formats.claude_code import Transcript, calls_from_session
from aitrace.formats.codex import Thread, calls_from_threads, root_of, thread_from_rows
from aitrace.formats.format import HISTORIES, FormatName, Tally, history_of_row
from aitrace.formats.history import HistoryCall, HistoryReading
from aitrace.formats.history_fields import (
    text_in,
)
from aitrace.formats.opencode import calls_from_conversations
from aitrace.formats.opencode_store import SQLITE_MAGIC, OpenCodeStore, find_store
from aitrace.formats.source import SourceFile

_AGENT = "agent-"
_SUBAGENTS = "subagents"
_NOTHING_HINT = (
    "Claude Code keeps its history in ~/.claude/projects, Codex in ~/.codex/sessions, OpenCode in "
    "~/.local/share/opencode"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTree:
    """The log of one tree."""

    read: Callable[[HistoryReading], list[HistoryCall]]
    """Its calls; may be asked for more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that was found."""

    format: FormatName
    """Whose it is."""
    trees: tuple[HistoryTree, ...]
    """In no order."""
    sources: int
    """Files and databases read."""
    others: int
    """Files of the directories that are no such history."""


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
    for source in sources:
        here, rest = _found_in(source, chosen)
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
    paths = list(dict.fromkeys(item.path for item in found))
    trees: dict[FormatName, Callable[[Sequence[str]], list[HistoryTree]]] = {
        "claude-code": _claude_trees,
        "codex": _codex_trees,
        "opencode": _opencode_trees,
    }
    return History(format=kind, trees=tuple(trees[kind](paths)), sources=len(paths), others=others)


def _found_in(source: str, chosen: FormatName | None) -> tuple[list[_Found], int]:
    """Histories at a path, and how many files there are none."""
    path = Path(source)
    if not path.is_dir():
        kind = _format_of_file(source) if path.is_file() else None
        kind = kind if chosen is None or kind is None else chosen
        return ([_Found(format=kind, path=source)] if kind is not None else []), 0
    stores = find_store(path) if chosen in (None, "opencode") else []
    if stores:
        return [_Found(format="opencode", path=str(store)) for store in stores], 0
    files = sorted(file for file in path.rglob("*.jsonl*") if file.is_file())
    found = [(str(file), _format_of_file(str(file))) for file in files]
    kept = [
        _Found(format=kind, path=name)
        for name, kind in found
        if kind is not None and (chosen is None or kind == chosen)
    ]
    return kept, len(found) - len(kept)


def _format_of_file(source: str) -> FormatName | None:
    file = SourceFile(source)
    if file.starts_with(SQLITE_MAGIC):
        return "opencode"
    kinds = (history_of_row(row) for _, row in file.first_rows())
    return next((kind for kind in kinds if kind is not None), None)


def _claude_trees(paths: Sequence[str]) -> list[HistoryTree]:
    sessions: dict[tuple[str, str], list[str]] = {}
    for path in _with_agents(paths):
        sessions.setdefault(_session_of(path), []).append(path)
    return [HistoryTree(read=_claude_reader(key[1], files)) for key, files in sessions.items()]


def _with_agents(paths: Sequence[str]) -> list[str]:
    """The files, and those of the sub-agents that belong to a session among them."""
    found = list(paths)
    for path in paths:
        folder = Path(path).with_suffix("") / _SUBAGENTS
        if folder.is_dir():
            found += sorted(str(file) for file in folder.rglob(f"{_AGENT}*.jsonl"))
    return list(dict.fromkeys(str(path) for path in found))


def _session_of(path: str) -> tuple[str, str]:
    """Directory and id of the session that a file belongs to."""
    file = Path(path)
    parts = file.parts
    if _SUBAGENTS in parts[1:]:
        place = len(parts) - 1 - parts[::-1].index(_SUBAGENTS)
        return str(Path(*parts[: place - 1])), parts[place - 1]
    told = (text_in(row, "sessionId") for _, row in SourceFile(path).first_rows())
    session = next((name for name in told if name is not None), path)
    return str(file.parent), session if file.name.startswith(_AGENT) else file.name.split(".")[0]


def _claude_reader(session: str, files: Sequence[str]) -> Callable[[HistoryReading], list[HistoryCall]]:
    def read(reading: HistoryReading) -> list[HistoryCall]:
        # The main agent first: what sub-agents repeat of it is a copy.
        ordered = sorted(files, key=lambda file: (Path(file).name.startswith(_AGENT), file))
        return calls_from_session(session, [_transcript(file, reading.tally) for file in ordered], reading)

    return read


def _transcript(path: str, tally: Tally) -> Transcript:
    file = Path(path)
    rows = list(SourceFile(path).rows(tally))
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


def _codex_trees(paths: Sequence[str]) -> list[HistoryTree]:
    heads = {path: thread_from_rows(SourceFile(path).first_rows()[:2]) for path in paths}
    by_id = {thread.id: thread for thread in heads.values() if thread is not None}
    path_of = {thread.id: path for path, thread in heads.items() if thread is not None}
    trees: dict[str, list[str]] = {}
    for thread in by_id.values():
        trees.setdefault(root_of(thread, by_id), []).append(thread.id)
    found = []
    for root, ids in trees.items():
        ordered = sorted(ids, key=lambda key, root=root: (key != root, path_of[key]))  # type: ignore[misc]
        origins = {by_id[key].origin or "" for key in ids} & (by_id.keys() - set(ids))
        found.append(
            HistoryTree(
                read=_codex_reader([path_of[key] for key in ordered], [path_of[key] for key in origins])
            )
        )
    return found


def _codex_reader(
    files: Sequence[str], origins: Sequence[str]
) -> Callable[[HistoryReading], list[HistoryCall]]:
    def read(reading: HistoryReading) -> list[HistoryCall]:
        copied = _threads(origins, Tally())
        return calls_from_threads(_threads(files, reading.tally), copied, reading)

    return read


def _threads(paths: Iterable[str], tally: Tally) -> list[Thread]:
    threads = (thread_from_rows(list(SourceFile(path).rows(tally))) for path in paths)
    return [thread for thread in threads if thread is not None]


def _opencode_trees(paths: Sequence[str]) -> list[HistoryTree]:
    stores = [OpenCodeStore(Path(path)) for path in paths]
    return [HistoryTree(read=_opencode_reader(store, ids)) for store in stores for ids in store.trees()]


def _opencode_reader(
    store: OpenCodeStore, ids: tuple[str, ...]
) -> Callable[[HistoryReading], list[HistoryCall]]:
    def read(reading: HistoryReading) -> list[HistoryCall]:
        return calls_from_conversations(store.conversations(ids, reading.tally), reading)

    return read
