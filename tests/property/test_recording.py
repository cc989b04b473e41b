"""Whatever the proxy notes, in whatever order: no exception comes out, and the trace has no error."""

import gzip
import random

import orjson
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.codec import encode_line
from aitrace.no_text import find_text
from aitrace.schema import Footer
from aitrace.testing import find_problems
from recorders.notes import Answered, Asked, Chunk, Connected, Ended, Message, Stopped
from recorders.options import RecordOptions
from recorders.recording import Recording

ODD = [None, True, -1, 0, 2**40, 2**63, 1.5, "", "text", "\x00é😀", [], {}, [[]], {"type": "text", "text": 7}]
PATHS = ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/chat/completions", "/other", ""]
HEADERS = {
    "user-agent": [
        "claude-cli/2.1.332 (external, sdk-cli)",
        "codex_exec/0.171.0",
        "opencode/1.18.33",
        "\udc80",
        "",
    ],
    "x-claude-code-session-id": ["5f0c1c9e-0b5a-4a53-8a44-9b1d36b1a111", "x"],
    "x-claude-code-agent-id": ["a1", "a2"],
    "x-claude-code-prev-tool-durations": ["Bash=742;Read=9", "Bash=;=1;Bash=99999999999999999999", "jane=1"],
    "x-session-affinity": ["s1", "s2"],
    "x-parent-session-id": ["s1", "s3"],
    "session-id": ["t1", "t2", "t" * 999],
    "x-codex-turn-metadata": ['{"turn_id":"u"}', "{", "[]"],
    "content-type": ["text/event-stream", "application/json", "x"],
    "content-encoding": ["gzip", "zstd", "br", "deflate", "gzip, zstd", "rot13", ""],
    "retry-after": ["3", "-1", "1e400", "nan", "Wed, 21 Oct 2015 07:28:00 GMT", "soon"],
    "retry-after-ms": ["3", "-7", "x"],
    "date": ["Wed, 21 Oct 2015 07:27:00 GMT", "x"],
}
ENCODERS = {"gzip": gzip.compress, "zstd": zstandard.compress}
TEXT = [{"type": "text", "text": "jane said"}]
MESSAGES = [
    {"role": "user", "content": "jane said"},
    {"role": "user", "content": TEXT},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"a": 1}}],
    },
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_2", "name": "payroll", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": TEXT}]},
    {"role": "tool", "tool_call_id": "c", "content": "jane"},
]
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "jane"}]},
    {"type": "function_call", "name": "exec", "arguments": "{}", "call_id": "c"},
    {"type": "function_call_output", "call_id": "c", "output": "Wall time: 2.5 seconds"},
    {"type": "reasoning", "encrypted_content": "x"},
]
EVENTS = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 9}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "payroll"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "jane"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "as jane said"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
    {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "jane"},
        "status": 529,
        "headers": {"a": 1},
    },
    {"type": "response.output_item.done", "output_index": 0, "item": ITEMS[1]},
    {"type": "response.output_text.delta", "delta": "jane", "output_index": 1},
    {"type": "response.completed", "response": {"id": "r1", "output": [], "usage": {"input_tokens": 4}}},
    {"type": "response.failed", "response": {"id": "r1", "error": {"code": "x"}}},
    {"choices": [{"delta": {"content": "jane", "tool_calls": [{"index": 0, "function": {"name": "x"}}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}},
    {"id": "r2", "object": "response", "output": ITEMS, "usage": {}, "status": "completed"},
]


class Notes:
    """Draws notes."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def odd(self, value):
        """The value, now and then with something odd in it."""
        value = orjson.loads(orjson.dumps(value))
        while self.rng.random() < 0.2:
            owner, key = self.rng.choice(list(places(value)) or [({}, "")])
            owner[key] = orjson.loads(orjson.dumps(self.rng.choice(ODD)))
        return value

    def body(self):
        pick = self.rng.random()
        if pick < 0.1:
            return self.rng.choice([b"", b"{", b"\xff" * 9, b"[]", b"null", b"[" * 3000])
        turns = self.rng.randint(0, 5)
        fields = {
            "type": "response.create",
            "model": self.rng.choice(["claude-opus-5-5", "gpt-5.5", "/home/jane/m", "jane said"]),
            "stream": True,
            "system": TEXT,
            "tools": [{"name": "Bash"}, {"type": "function", "function": {"name": "payroll"}}],
            "messages": [self.rng.choice(MESSAGES) for _ in range(turns)],
            "input": [self.rng.choice(ITEMS) for _ in range(turns)],
            "metadata": {"user_id": "user_x_account__session_y"},
            "client_metadata": {"x-codex-turn-metadata": "{}"},
        }
        if self.rng.random() < 0.3:
            fields["previous_response_id"] = self.rng.choice(["r1", "r2", "nobody"])
        for name in self.rng.sample(sorted(fields), self.rng.randint(0, 3)):
            del fields[name]
        return orjson.dumps(self.odd(fields))

    def answer(self):
        pick = self.rng.random()
        if pick < 0.1:
            return self.rng.choice([b"", b"\n\n", b"data: {\n\n", b":\n\n", b"\xff\x00", b"data: [DONE]\n\n"])
        data = orjson.dumps(self.odd(self.rng.choice(EVENTS)))
        return b"data: " + data + b"\n\n" if pick < 0.8 else data

    def headers(self):
        chosen = self.rng.sample(sorted(HEADERS), self.rng.randint(0, 4))
        return {name: self.rng.choice(HEADERS[name]) for name in chosen}

    def coded(self, data, headers):
        encode = ENCODERS.get(headers.get("content-encoding", ""))
        return encode(data) if encode is not None and self.rng.random() < 0.8 else data

    def one(self):
        rng, number = self.rng, self.rng.randint(0, 4)
        at_ns = rng.choice([rng.randint(0, 10**10), 5 * 10**9, -1, 2**62])
        headers = self.headers()
        match rng.choice(["asked", "asked", "connected", "answered", "chunk", "chunk", "message", "ended"]):
            case "asked":
                transport = rng.choice(["http/1.1", "h2", "websocket"])
                method = "GET" if transport == "websocket" else rng.choice(["POST", "POST", "GET"])
                body = self.coded(self.body(), headers)
                return Asked(
                    number, at_ns, method, rng.choice(PATHS), headers, body, transport, rng.randint(0, 3)
                )
            case "connected":
                return Connected(number, at_ns, rng.choice([0, 5]))
            case "answered":
                return Answered(number, at_ns, rng.choice([200, 200, 101, 400, 429, 529, 0, 999]), headers)
            case "chunk":
                return Chunk(
                    number, at_ns, self.coded(self.answer(), {"content-encoding": rng.choice(["", "gzip"])})
                )
            case "message":
                from_client = rng.random() < 0.4
                return Message(number, at_ns, from_client, self.body() if from_client else self.answer())
            case _:
                how = rng.choice(["complete", "client", "server", "connect", "unrecorded"])
                return Ended(number, at_ns, how, "jane said")


def places(value):
    """All containers in a value with their keys."""
    if isinstance(value, (dict, list)):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places(inner)


def recorded(notes, privacy="hash"):
    options = RecordOptions(path="x", capture="reverse", privacy=privacy)
    recording = Recording(options, b"k" * 32, 10**9, 0, producer="aitrace 0 record")
    lines = [line for note in notes for line in recording.take(note)]
    lines += recording.stop()
    return recording, lines


@given(st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_no_notes_make_an_exception_or_a_trace_with_an_error(seed, count):
    draw = Notes(seed)
    recording, lines = recorded([draw.one() for _ in range(count)])
    # A crash may come between any two lines.
    kept = lines[: draw.rng.randint(1, len(lines))]
    found = [finding for part in (lines, kept) for finding in find_problems(enumerate(part, 1))]
    assert [finding for finding in found if finding.severity == "error"] == []
    assert recording.first_trouble is None
    assert [finding for line in lines for finding in find_text(1, encode_line(line).rstrip())] == []


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_lines_with_text_can_be_written(seed):
    draw = Notes(seed)
    _, lines = recorded([draw.one() for _ in range(20)], "content")
    assert all(encode_line(line) for line in lines)


def test_the_footer_may_hold_the_counts():
    recording, _ = recorded([Stopped(10**9, {"queue_high_water_bytes": 1, "dropped_exchanges": 2})])
    footer = Footer(sessions=0, segments=0, calls=0, blocks=0, notes=recording.notes)
    assert list(find_text(1, encode_line(footer).rstrip())) == []
