import dataclasses
import typing

import orjson
import pytest

from aitrace import no_text
from aitrace.codec import KINDS, _plan, encode_line
from aitrace.formats.unknowns import Unknown
from aitrace.no_text import find_text
from aitrace.testing import make_trace

BASE = {
    "header": {
        "kind": "header",
        "version": 1,
        "producer": "aitrace 0.1.0",
        "unit": "bytes",
        "block_size": 256,
    },
    "session": {"kind": "session", "id": 0, "root": 0},
    "segment": {"kind": "segment", "id": 0, "role": "user", "type": "text", "size": 3, "blocks": [0, 1]},
    "call": {"kind": "call", "id": 0, "session": 0, "prompt": {}, "times": {"request_ns": 0}},
    "update": {"kind": "update", "call": 0},
    "footer": {"kind": "footer", "sessions": 1, "segments": 1, "calls": 1, "blocks": 1},
}
HASH = "4c1d0e8a77b2f3a94c1d0e8a77b2f3a9"


def findings(kind, **changes):
    return [(f.rule, f.message) for f in find_text(7, orjson.dumps({**BASE[kind], **changes}))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_line_holds_no_text(kind):
    assert findings(kind) == []


def test_a_built_trace_holds_no_text():
    trace = make_trace(2)
    lines = [trace.header, *trace.sessions, *trace.segments, *trace.calls, trace.footer]
    assert [finding for line in lines for finding in find_text(1, encode_line(line))] == []


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("header", {"producer": "aitrace 0.1.dev3+g1234", "source": "claude-code", "privacy": "hash"}),
        ("header", {"attribution": "Mooncake, Apache License 2.0"}),
        ("header", {"attribution": "Ann Example & Söhne, see <https://example.org>"}),
        (
            "header",
            {"unknown": [Unknown.WIRE, "times of calls finer than 1e-06 s", "end of 17 of 1259 calls"]},
        ),
        ("header", {"normalised": ["claude-code/billing-block@1", "signatures"]}),
        ("header", {"clock_scope": "tree", "block_scope": "tree"}),
        ("session", {"harness": "claude-code", "agent": "Explore", "label": "trace_0015"}),
        ("session", {"agent": HASH, "label": "conversation_12_s3"}),
        ("session", {"label": "0a1b2c3d-0000-4000-8000-0123456789ab"}),
        ("header", {"capture": "forward"}),
        (
            "session",
            {"harness_version": "2.1.332", "evidence": ["claude-code/session-header", "inferred/prefix"]},
        ),
        ("session", {"harness_version": "0.46.0-alpha.3"}),
        ("session", {"harness_version": "1.0.0-dev-202511301200"}),
        ("call", {"prompt": {"unseen_start": True}}),
        ("call", {"wire": {"transport": "http/1.1", "connection": 3, "request_encoding": "zstd"}}),
        ("call", {"wire": {"response_encoding": "gzip, br,identity"}}),
        ("update", {"outcome": {"error": "cut"}, "tool_calls": [{"name": "Bash"}, {"name": HASH}]}),
        (
            "update",
            {"usage": {}, "times": {"request_ns": 1}, "events": {"at_ns": [1]}, "wire": {"transport": "h2"}},
        ),
        ("call", {"class": "main", "protocol": "chat", "model": "claude-opus-4-5-20251101"}),
        ("call", {"model": "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"}),
        ("call", {"model": "bedrock/us.anthropic.claude-sonnet-4-v1:0"}),
        ("call", {"tool_calls": [{"name": "Bash"}, {"name": HASH}, {"name": "apply_patch", "end_ns": 5}]}),
        ("call", {"outcome": {"status": 200, "finish": "tool_use", "error": "cut", "ended_by": "client"}}),
        ("call", {"after": [{"call": 0, "relation": "join", "trigger": "dispatch", "cause": "tool"}]}),
        ("call", {"events": {"at_ns": [1, 2], "size_bytes": [3, 4]}, "usage": {"input_tokens": 5}}),
        ("footer", {"notes": {"queue_high_water_calls": 3, "parse_errors": 0}}),
    ],
)
def test_known_words_and_narrow_patterns_are_allowed(kind, changes):
    assert findings(kind, **changes) == []


@pytest.mark.parametrize(
    ("kind", "changes", "path"),
    [
        ("header", {"producer": "written by Ann Example"}, "header.producer"),
        ("header", {"source": "/home/ann/traces"}, "header.source"),
        ("header", {"attribution": ""}, "header.attribution"),
        ("header", {"attribution": " "}, "header.attribution"),
        ("header", {"attribution": "a" * 201}, "header.attribution"),
        ("header", {"attribution": "the first line\nand a second one"}, "header.attribution"),
        ("header", {"unknown": [Unknown.WIRE + " of Ann"]}, "header.unknown.0"),
        ("header", {"unknown": ["end of seventeen of 1259 calls"]}, "header.unknown.0"),
        ("header", {"unknown": ["end of " + "7" * 50 + " of 1259 calls"]}, "header.unknown.0"),
        ("header", {"unknown": ["end of 1 of 2 calls", "the password is hunter2"]}, "header.unknown.1"),
        ("header", {"normalised": ["please fix the bug in billing"]}, "header.normalised.0"),
        ("session", {"harness": "Ann's harness"}, "session.harness"),
        ("header", {"capture": "by Ann"}, "header.capture"),
        ("session", {"harness_version": "2.1.332 of Ann"}, "session.harness_version"),
        ("session", {"harness_version": "acme"}, "session.harness_version"),
        ("session", {"harness_version": "1.0-acme-payroll"}, "session.harness_version"),
        ("session", {"evidence": ["inferred/prefix", "Ann said so"]}, "session.evidence.1"),
        ("call", {"wire": {"transport": "pigeon"}}, "call.wire.transport"),
        ("call", {"wire": {"request_encoding": "rot13"}}, "call.wire.request_encoding"),
        ("call", {"wire": {"response_encoding": "gzip " * 3}}, "call.wire.response_encoding"),
        ("update", {"tool_calls": [{"name": "mcp__acme__pay"}]}, "update.tool_calls.0.name"),
        ("update", {"outcome": {"finish": "because the user said so"}}, "update.outcome.finish"),
        ("session", {"agent": "acme-payroll-reviewer"}, "session.agent"),
        ("session", {"label": "refactor the billing service"}, "session.label"),
        ("session", {"label": "ann"}, "session.label"),
        ("segment", {"role": "fix the bug"}, "segment.role"),
        ("segment", {"blocks": ["fix the bug"]}, "segment.blocks.0"),
        ("call", {"class": "secret"}, "call.class"),
        ("call", {"model": "/home/ann/models/llama"}, "call.model"),
        ("call", {"model": "fix the bug"}, "call.model"),
        ("call", {"tool_calls": [{"name": "Bash"}, {"name": "mcp__acme__pay"}]}, "call.tool_calls.1.name"),
        ("call", {"outcome": {"finish": "because the user said so"}}, "call.outcome.finish"),
        ("call", {"outcome": {"error": "no such file /home/ann"}}, "call.outcome.error"),
        ("call", {"times": {"request_ns": "noon"}}, "call.times.request_ns"),
        ("call", {"prompt": {"add": [1, "text"]}}, "call.prompt.add.1"),
    ],
)
def test_any_other_string_is_a_finding(kind, changes, path):
    [(rule, message)] = findings(kind, **changes)
    assert rule == "text"
    assert message.startswith(f"{path}: might be text: ")


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("segment", {"text": "fix the bug"}, "segment.'text': is an unknown field"),
        ("call", {"note": 5}, "call.'note': is an unknown field"),
        ("update", {"model": "m"}, "update.'model': is an unknown field"),
        ("call", {"usage": {"fix the bug": 1}}, "call.usage.'fix the bug': is an unknown field"),
        ("call", {"prompt": {"messages": []}}, "call.prompt.'messages': is an unknown field"),
        (
            "call",
            {"after": [{"call": 0, "relation": "join", "x": 1}]},
            "call.after.0.'x': is an unknown field",
        ),
        ("footer", {"notes": {"fix the bug": 1}}, "footer.notes.'fix the bug': is no name of a count"),
        ("call", {"events": {"at_ns": [1, ["text"]]}}, "call.events.at_ns.1: is a list where none belongs"),
        ("call", {"after": [[[[]]]]}, "call.after.0: is a list where none belongs"),
        ("session", {"id": []}, "session.id: is a list where none belongs"),
        ("header", {"privacy": "content"}, "header.privacy: says that segments carry their text"),
        ("session", {"x" * 90: 1}, f"session.'{'x' * 59}…: is an unknown field"),
    ],
)
def test_names_of_fields_are_looked_at_too(kind, changes, message):
    assert [("text", message)] == findings(kind, **changes)


def test_a_count_may_not_hide_a_string():
    assert findings("footer", notes={"errors": "fix the bug"}) == [
        ("text", "footer.notes.errors: might be text: 'fix the bug'")
    ]


def test_a_number_of_the_line_is_reported():
    [finding] = find_text(7, orjson.dumps({**BASE["session"], "agent": "x y"}))
    assert (finding.line, finding.severity) == (7, "error")


@pytest.mark.parametrize(
    "data",
    [
        b'{"kind":"session","label":"fix the bug","id":0,"root":0,"label":"t_1"}',
        b'{"kind":"session", "id":0,"root":0}',
        b'{"kind":"session","id":0,"root":0,"agent":"\\u0045xplore"}',
    ],
)
def test_a_line_in_another_form_cannot_be_cleared(data):
    [finding] = find_text(1, data)
    assert finding.message.startswith("line: is not written as aitrace writes it")


def test_a_line_nested_deeper_than_any_of_ours_cannot_be_cleared():
    data = b'{"kind":"call","after":' + b"[" * 900 + b"]" * 900 + b"}"
    assert [finding.message for finding in find_text(1, data)] == [
        "line: is not written as aitrace writes it: a repeated field, spaces or escapes",
        "call.after.0: is a list where none belongs",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"kind":"session"', "line: cannot be read, so it cannot be cleared"),
        (b"[]", "line: is of no known kind"),
        (b'{"kind":"prompt"}', "line: is of no known kind"),
        (b'{"kind":["call"]}', "line: is of no known kind"),
        (b'{"id":5}', "line: is of no known kind"),
    ],
)
def test_what_is_no_line_cannot_be_cleared(data, message):
    assert [message] == [finding.message for finding in find_text(1, data)]


def test_the_allowed_fields_are_those_of_the_schema_without_text():
    """A new field is refused until somebody has thought about it; this test says so at once."""
    schema = {f"{kind}.{path}" for kind, cls in KINDS.items() for path in paths(cls)}
    allowed = {path for path in no_text._PATHS if not path.endswith(".*")}
    assert len(schema) > 60
    assert schema - {"segment.text"} == allowed


def paths(cls):
    """Paths of all fields below a dataclass, `*` for an index; from its type hints alone."""
    for field in _plan(cls).fields:
        hint = typing.get_type_hints(cls)[field.name]
        yield field.key
        options = (hint,) if typing.get_origin(hint) is tuple else (hint, *typing.get_args(hint))
        for option in options:
            is_list = typing.get_origin(option) is tuple
            inner = typing.get_args(option)[0] if is_list else option
            if dataclasses.is_dataclass(inner):
                yield from (f"{field.key}{'.*' if is_list else ''}.{path}" for path in paths(inner))
