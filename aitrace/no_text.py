"""Pure: proves that a trace holds no text of anybody's prompts, for `aitrace check --no-text`.

The rule is an allow-list: every string of every line, and every name of a field, must be on a closed list or match a
pattern too narrow for prose; the attribution alone is free, one line which `aitrace check` shows. The lines are looked
at as they stand in the file, before anything is decoded, so a field that this version does not know is a finding and
not a hiding place. Numbers are not looked at.

    {"kind": "session", "id": 0, "root": 0, "agent": "Explore"}           allowed: a well-known kind of agent
    {"kind": "session", "id": 0, "root": 0, "agent": "4c1d0e8a77b2f3a9"}  allowed: a keyed hash
    {"kind": "session", "id": 0, "root": 0, "agent": "acme-payroll"}      finding: a name that someone made up
    {"kind": "session", "id": 0, "root": 0, "note": "acme"}               finding: an unknown field
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

import orjson

from aitrace.codec import KINDS
from aitrace.errors import shown
from aitrace.formats.unknowns import is_unknown_sentence
from aitrace.schema import (
    BlockScope,
    CallClass,
    CaptureMode,
    ClockScope,
    EndedBy,
    ErrorKind,
    GapCause,
    Privacy,
    ProtocolName,
    Relation,
    Role,
    SegmentType,
    Transport,
    Trigger,
    Unit,
)
from aitrace.updates import UPDATED
from aitrace.validate import Finding


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WELL_KNOWN_TOOLS = _words(
    """
    Agent AgentOutputTool AskUserQuestion Bash BashOutput Edit EnterPlanMode EnterWorktree ExitPlanMode ExitWorktree
    Glob Grep KillBash KillShell LS LSP ListMcpResourcesTool MultiEdit NotebookEdit NotebookRead Read
    ReadMcpResourceTool SendMessage Skill SlashCommand StructuredOutput Task TaskCreate TaskGet TaskList TaskOutput
    TaskStop TaskUpdate TeamCreate TeamDelete TodoRead TodoWrite ToolSearch WebFetch WebSearch Workflow Write

    apply_patch close_agent exec exec_command grep_files image_gen list_dir local_shell read_file request_user_input
    resume_agent send_input shell shell_command spawn_agent tool_search update_plan view_image wait wait_agent
    web_search write_stdin

    bash batch codesearch edit glob grep invalid list lsp multiedit patch question read skill task todoread todowrite
    webfetch websearch write
    """
)
"""Names of tools that Claude Code, Codex and OpenCode bring along; any other may say something about its user."""

WELL_KNOWN_AGENTS = _words(
    """
    Explore Plan claude-code-guide custom fork general-purpose output-style-setup statusline-setup teammate
    awaiter compact default explorer guardian memory_consolidation review worker
    build compaction explore general plan summary title
    """
)
"""Kinds of agent that harnesses bring along, and the words they use for those of the user."""

ATTRIBUTION_CHARS = 200

_Check = Callable[[str], bool]


def find_text(number: int, data: bytes) -> Iterator[Finding]:
    """Every string of one line that might be text.

    Args:
        number: Place of the line in the file, from 1.
        data: The line as it stands in the file.
    """
    for path, message in _problems(data):
        yield Finding(severity="error", line=number, rule="text", message=f"{path}: {message}")


def _problems(data: bytes) -> Iterator[tuple[str, str]]:
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        yield "line", "cannot be read, so it cannot be cleared"
        return
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str) or fields["kind"] not in KINDS:
        yield "line", "is of no known kind"
        return
    if _as_written(fields) != data.strip():
        # A name given twice would hide its first value from every reader but a person's eye.
        yield "line", "is not written as aitrace writes it: a repeated field, spaces or escapes"
    kind = fields.pop("kind")
    if kind == "header" and fields.get("privacy", "hash") != "hash":
        yield "header.privacy", "says that segments carry their text"
    yield from _walk(kind, kind, fields)


def _as_written(fields: Mapping[str, Any]) -> bytes | None:
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError:
        return None  # nested deeper than any line of ours


def _walk(path: str, pattern: str, value: Any) -> Iterator[tuple[str, str]]:
    """Strings and names below one value; `pattern` is its path with `*` for an index."""
    match value:
        case str():
            check = _STRINGS.get(pattern)
            if check is None or not check(value):
                yield path, f"might be text: {shown(value)}"
        case dict():
            yield from _walk_object(path, pattern, value)
        case list():
            if pattern not in _LISTS:
                yield path, "is a list where none belongs"
                return
            if all(type(item) is int for item in value):
                return
            for index, item in enumerate(value):
                yield from _walk(f"{path}.{index}", f"{pattern}.*", item)
        case _:
            return


def _walk_object(path: str, pattern: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        inner = f"{pattern}.{name}"
        if pattern == "footer.notes":
            inner = f"{pattern}.*"
            if not _is_count_name(name):
                yield f"{path}.{shown(name)}", "is no name of a count"
                continue
        elif inner not in _PATHS:
            yield f"{path}.{shown(name)}", "is an unknown field"
            continue
        yield from _walk(f"{path}.{name}", inner, value)


def _matches(expression: str) -> _Check:
    pattern = re.compile(expression)
    return lambda text: pattern.fullmatch(text) is not None


_is_hash = _matches(r"[0-9a-f]{8,64}")
_is_count_name = _matches(r"(?=.{1,48}$)[a-z][a-z0-9]*(_[a-z0-9]+){0,6}")
is_rule_name = _matches(r"(?=.{1,64}$)[a-z0-9]+([._:/@-][a-z0-9]+){0,7}")
is_harness_version = _matches(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}([.+-]?[a-z]{1,8}([.-]?[0-9]{1,14})?)?")
"""`2.1.332`, `0.46.0-alpha.3`: digits and dots, at most one short word behind them."""
is_encoding = _matches(r"(gzip|br|deflate|zstd|identity)(, ?(gzip|br|deflate|zstd|identity)){0,3}")
is_label = _matches(
    r"[a-z]{1,16}_[0-9]{1,9}(_s[0-9]{1,4})?|[0-9a-f]{8,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""`trace_0015`, hexadecimal digits or a UUID: what says no more than a number does."""
# No spaces, no leading slash, at most four parts: `org/name`, `bedrock/us.vendor.model-v1:0`, never a path or prose.
is_model = _matches(r"(?=.{1,100}$)[A-Za-z0-9][A-Za-z0-9._:@+-]*(/[A-Za-z0-9][A-Za-z0-9._:@+-]*){0,3}")
is_finish = _matches(r"(?=.{1,40}$)[A-Za-z]+(_[A-Za-z]+){0,5}")


def is_attribution(text: str) -> bool:
    """Whether this may stand as an attribution: one line that a person can take in at a glance.

    It is the one text in a trace that somebody writes freely, so it is bounded here and shown by `aitrace check`.
    """
    return text.isprintable() and text.strip() != "" and len(text) <= ATTRIBUTION_CHARS


def _is_tool(text: str) -> bool:
    return text in WELL_KNOWN_TOOLS or _is_hash(text)


def _is_agent(text: str) -> bool:
    return text in WELL_KNOWN_AGENTS or _is_hash(text)


_CLOSED: dict[str, frozenset[str]] = {
    "header.clock_scope": frozenset(get_args(ClockScope)),
    "header.unit": frozenset(get_args(Unit)),
    "header.block_scope": frozenset(get_args(BlockScope)),
    "header.privacy": frozenset(get_args(Privacy)),
    "header.capture": frozenset(get_args(CaptureMode)),
    "segment.role": frozenset(get_args(Role)),
    "segment.type": frozenset(get_args(SegmentType)),
    "call.class": frozenset(get_args(CallClass)),
    "call.protocol": frozenset(get_args(ProtocolName)),
    "call.outcome.error": frozenset(get_args(ErrorKind)),
    "call.outcome.ended_by": frozenset(get_args(EndedBy)),
    "call.after.*.relation": frozenset(get_args(Relation)),
    "call.after.*.trigger": frozenset(get_args(Trigger)),
    "call.after.*.cause": frozenset(get_args(GapCause)),
    "call.wire.transport": frozenset(get_args(Transport)),
}
"""Strings that are one word of a set."""

_STRINGS_BUT_UPDATES: dict[str, _Check] = {
    **{path: words.__contains__ for path, words in _CLOSED.items()},
    "header.producer": _matches(r"[a-z][a-z0-9._-]{0,31}( v?[0-9][A-Za-z0-9.+-]{0,31})?( [a-z]{1,16})?"),
    "header.source": _matches(r"[a-z][a-z0-9_.-]{0,31}"),
    "header.attribution": is_attribution,
    "header.normalised.*": is_rule_name,
    "header.unknown.*": is_unknown_sentence,
    "session.harness": _matches(r"[a-z]{1,16}(-[a-z]{1,16}){0,2}"),
    "session.harness_version": is_harness_version,
    "session.evidence.*": is_rule_name,
    "session.agent": _is_agent,
    "session.label": is_label,
    "call.model": is_model,
    "call.tool_calls.*.name": _is_tool,
    "call.outcome.finish": is_finish,
    "call.wire.request_encoding": is_encoding,
    "call.wire.response_encoding": is_encoding,
}


def _of_updates(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Paths below fields of a call that an update may replace, with what they are in an update."""
    for path in paths:
        kind, _, inner = path.partition(".")
        if kind == "call" and inner.split(".")[0] in UPDATED:
            yield path, f"update.{inner}"


_STRINGS = _STRINGS_BUT_UPDATES | {
    new: _STRINGS_BUT_UPDATES[path] for path, new in _of_updates(_STRINGS_BUT_UPDATES)
}
"""Strings that a trace without text may hold, and what each must be."""

_PATHS_BUT_UPDATES = frozenset(_STRINGS_BUT_UPDATES) | _words(
    """
    header.version header.created_unix_ns header.clock_unix_ns header.clock_resolution_ns header.block_size
    header.normalised header.unknown
    session.id session.parent session.root session.evidence
    segment.id segment.size segment.blocks
    call.id call.session call.turn call.window call.prompt call.prompt.base call.prompt.keep call.prompt.add
    call.prompt.unseen_start call.max_output_tokens call.streamed
    call.usage call.usage.input_tokens call.usage.cache_read_tokens call.usage.cache_write_5m_tokens
    call.usage.cache_write_1h_tokens call.usage.output_tokens call.usage.reasoning_tokens
    call.tool_calls call.tool_calls.*.end_ns call.tool_calls.*.duration_ns call.tool_results
    call.outcome call.outcome.status call.outcome.retry_after_ns call.attempt call.retry_of
    call.times call.times.request_ns call.times.forwarded_ns call.times.headers_ns call.times.first_byte_ns
    call.times.first_event_ns call.times.first_token_ns call.times.first_visible_ns call.times.last_token_ns
    call.times.end_ns
    call.events call.events.at_ns call.events.size_bytes
    call.after call.after.*.call call.after.*.gap_ns
    call.wire call.wire.connection call.wire.connect_ns call.wire.request_bytes call.wire.response_bytes
    update.call
    footer.sessions footer.segments footer.calls footer.blocks footer.dropped_calls footer.notes footer.notes.*
    """
)

_PATHS = _PATHS_BUT_UPDATES | {new for _, new in _of_updates(_PATHS_BUT_UPDATES)}
"""Fields that it may have at all; `segment.text` is not among them."""

_LISTS_BUT_UPDATES = _words(
    """
    header.normalised header.unknown session.evidence segment.blocks call.prompt.add call.tool_calls
    call.events.at_ns call.events.size_bytes call.after
    """
)
_LISTS = _LISTS_BUT_UPDATES | {new for _, new in _of_updates(_LISTS_BUT_UPDATES)}
"""Fields that are lists."""

_VALUES = _words(
    """
    aitrace recorder claude-code codex opencode
    end_turn max_tokens stop_sequence tool_use pause_turn refusal length content_filter tool_calls function_call
    completed incomplete failed cancelled
    """
)
"""Words that stand in fields with a pattern: what writes traces, harnesses, and finish reasons."""

FORMAT_WORDS = (
    frozenset().union(*_CLOSED.values(), *(path.split(".") for path in _PATHS))
    | WELL_KNOWN_TOOLS
    | WELL_KNOWN_AGENTS
    | _VALUES
)
"""Names of fields, words of closed sets and usual values: what a trace says whatever was recorded."""
