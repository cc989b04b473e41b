"""Notes to lines, with notes as the addon makes them of what Claude Code and Codex send, and no proxy."""

import gzip

import orjson
import pytest
import zstandard

from aitrace.protocols.protocol import MalformedRequestError
from aitrace.schema import Call, Header, Session, Update
from aitrace.updates import updated_call
from recorders.notes import Answered, Asked, Chunk, Connected, Ended, Message, Stopped
from recorders.options import RecordOptions
from recorders.recording import Recording

MS = 1_000_000
START = 5_000 * MS
CLAUDE = {
    "user-agent": "claude-cli/2.1.332 (external, sdk-cli)",
    "x-claude-code-session-id": "5f0c1c9e-0b5a-4a53-8a44-9b1d36b1a111",
    "x-claude-code-request-class": "main",
    "content-type": "application/json",
}
CHILD = {"x-claude-code-agent-id": "a0123456789abcdef", "x-claude-code-request-class": "subagent"}
TOOLS = [{"name": name, "description": name * 50, "input_schema": {}} for name in ("Agent", "Bash")]
SYSTEM = [{"type": "text", "text": "You are a coding agent. " * 20, "cache_control": {"type": "ephemeral"}}]
THREAD = "01a22948-583f-7f11-aab9-d9babd29d68e"


def recording(**options):
    chosen = RecordOptions(**{"path": "x.aitrace", "capture": "reverse", **options})
    return Recording(chosen, b"k" * 32, START, 1_700_000_000_000_000_000, producer="aitrace 0 record")


def user(text):
    return {
        "role": "user",
        "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}],
    }


def used(call_id, name="Bash"):
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": call_id, "name": name, "input": {"a": call_id}}],
    }


def result(call_id, text="ok"):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}


def body(messages, **fields):
    asked = {"model": "claude-opus-5-5", "max_tokens": 128_000, "stream": True, "system": SYSTEM}
    return orjson.dumps({**asked, "tools": TOOLS, "messages": messages, **fields})


def event(payload):
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def stream(*tools):
    return [
        event({"type": "message_start", "message": {"usage": {"input_tokens": 900}}}),
        event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}),
        *(
            event(
                {
                    "type": "content_block_start",
                    "index": 1,
                    "content_block": {"type": "tool_use", "name": name},
                }
            )
            + event({"type": "content_block_stop", "index": 1})
            for name in tools
        ),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}})
        + event({"type": "message_stop"}),
    ]


def ms(at):
    return START + at * MS


def call_notes(number, at, data, chunks, *, headers=CLAUDE, path="/v1/messages", how="complete", answer=None):
    """One exchange: asked at `at`, headers 20 ms later, a chunk each 10 ms, the end with the last of them."""
    notes = [
        Asked(number, ms(at), "POST", path, headers, data, "http/1.1", 0),
        Connected(number, ms(at + 1), 0),
        Answered(number, ms(at + 20), 200, answer or {"content-type": "text/event-stream"}),
        *(Chunk(number, ms(at + 20 + 10 * place), data) for place, data in enumerate(chunks)),
    ]
    return [*notes, Ended(number, notes[-1].at_ns, how, "")]


def lines_of(one, notes):
    return [line for note in notes for line in one.take(note)]


def calls_of(lines):
    calls = {}
    for line in lines:
        if isinstance(line, Call):
            calls[line.id] = line
        elif isinstance(line, Update):
            calls[line.call] = updated_call(calls[line.call], line)
    return [calls[number] for number in sorted(calls)]


def sessions_of(lines):
    return [line for line in lines if isinstance(line, Session)]


FIRST = [user("one")]
SECOND = [*FIRST, used("toolu_1"), result("toolu_1")]


# The header


def test_the_first_line_is_the_header():
    [header] = recording().take(Stopped(START, {}))
    assert isinstance(header, Header)
    assert (header.source, header.capture, header.privacy) == ("recorder", "reverse", "hash")
    assert (header.clock_unix_ns, header.unit, header.block_size) == (1_700_000_000_000_000_000, "bytes", 256)
    assert {"anthropic/cache-control", "claude-code/billing-block"} <= set(header.normalised)


def test_there_is_one_header():
    one = recording()
    lines = lines_of(one, [Stopped(START, {})]) + one.stop()
    assert [type(line) for line in lines] == [Header]


# Calls over HTTP


def test_a_call_is_written_when_it_begins_and_again_when_it_ends():
    one = recording()
    notes = call_notes(0, 10, body(FIRST), stream("Bash"))
    begun = [line for line in one.take(notes[0]) if isinstance(line, Call)]
    assert (begun[0].outcome.error, begun[0].outcome.ended_by) == ("unrecorded", "recorder")
    assert one.unrecorded_calls == 1
    [call] = calls_of([*begun, *lines_of(one, notes[1:])])
    assert call.outcome.error is None
    assert (one.calls, one.unrecorded_calls) == (1, 0)


def test_times_count_from_the_start_of_the_recording():
    [call] = calls_of(lines_of(recording(), call_notes(0, 10, body(FIRST), stream("Bash"))))
    times = call.times
    assert (times.request_ns, times.forwarded_ns, times.headers_ns) == (10 * MS, 11 * MS, 30 * MS)
    assert (times.first_token_ns, times.end_ns) == (40 * MS, 60 * MS)
    assert call.tool_calls[0].end_ns == 50 * MS


def test_turns_extend_each_other_and_know_their_tool():
    one = recording()
    timed = {**CLAUDE, "x-claude-code-prev-tool-durations": "Bash=70"}
    lines = lines_of(
        one,
        [
            *call_notes(0, 10, body(FIRST), stream("Bash")),
            *call_notes(1, 150, body(SECOND), stream(), headers=timed),
            *call_notes(2, 900, body([*SECOND, used("toolu_2"), user("two")]), stream()),
        ],
    )
    first, second, third = calls_of(lines)
    assert (second.prompt.base, second.prompt.keep) == (first.id, len(first.prompt.add))
    assert [(wait.call, wait.gap_ns, wait.cause) for wait in second.after] == [(0, 90 * MS, "tool")]
    assert first.tool_calls[0].duration_ns == 70 * MS
    assert third.after[0].cause == "user"
    assert [session.harness for session in sessions_of(lines)] == ["claude-code"]


def test_a_client_that_goes_on_before_the_exchange_is_over_has_its_answer_before_it():
    first = call_notes(0, 0, body(FIRST), stream("Bash"))
    second = call_notes(
        1, 300, body(SECOND), stream(), headers={**CLAUDE, "x-claude-code-prev-tool-durations": "Bash=200"}
    )
    late = first.pop()._replace(at_ns=ms(310))
    lines = lines_of(recording(), [*first, second[0], late, *second[1:]])
    one, two = calls_of(lines)
    (wait,) = two.after
    assert one.times.end_ns == first[-1].at_ns - START
    assert (wait.trigger, wait.cause, wait.gap_ns) == ("completion", "tool", 300 * MS - one.times.end_ns)
    assert [tool.duration_ns for tool in one.tool_calls] == [200 * MS]
    assert (one.outcome.error, one.outcome.ended_by) == (None, "server")


def test_a_sub_agent_has_its_parent():
    one = recording()
    lines = lines_of(
        one,
        [
            *call_notes(0, 10, body(FIRST), stream("Agent")),
            *call_notes(
                1, 100, body([user("look")], system="Explore."), stream(), headers={**CLAUDE, **CHILD}
            ),
        ],
    )
    main, child = sessions_of(lines)
    assert (child.parent, child.root) == (main.id, main.id)
    assert [(wait.call, wait.relation) for wait in calls_of(lines)[1].after] == [(0, "spawn")]
    assert (one.sessions, one.trees) == (2, 1)


def test_a_retry_names_what_it_repeats():
    refused = {"content-type": "application/json", "retry-after": "1"}
    notes = call_notes(0, 10, body(FIRST), [b'{"error":{}}'], answer=refused)
    notes[2] = notes[2]._replace(status=529)
    lines = lines_of(recording(), [*notes, *call_notes(1, 1100, body(FIRST), stream())])
    first, second = calls_of(lines)
    assert (first.outcome.error, second.retry_of, second.after[0].cause) == ("refused", 0, "backoff")


def test_compressed_bodies_say_the_same():
    plain = calls_of(lines_of(recording(), call_notes(0, 10, body(FIRST), stream())))
    packed = call_notes(
        0,
        10,
        zstandard.compress(body(FIRST)),
        [gzip.compress(b"".join(stream()))],
        headers={**CLAUDE, "content-encoding": "zstd"},
        answer={"content-type": "text/event-stream", "content-encoding": "gzip"},
    )
    one = recording()
    lines = lines_of(one, packed)
    assert calls_of(lines)[0].usage == plain[0].usage
    assert calls_of(lines)[0].prompt == plain[0].prompt
    assert one.notes["traffic_bytes"] == sum(
        len(note.body if isinstance(note, Asked) else note.data)
        for note in packed
        if isinstance(note, (Asked, Chunk))
    )


def test_a_count_of_tokens_is_a_call_of_its_class():
    data = orjson.dumps({"model": "claude-opus-5-5", "messages": FIRST})
    notes = call_notes(
        0,
        10,
        data,
        [b'{"input_tokens":42}'],
        path="/v1/messages/count_tokens",
        answer={"content-type": "application/json"},
    )
    [call] = calls_of(lines_of(recording(), notes))
    assert (call.call_class, call.usage.input_tokens, call.outcome.error) == ("count_tokens", 42, None)


def test_other_routes_are_not_recorded():
    one = recording()
    lines = lines_of(one, call_notes(0, 10, b"{}", [b"{}"], path="/api/event_logging/v2/batch"))
    assert [type(line) for line in lines] == [Header]
    assert one.dropped_calls == 0


def test_a_client_that_is_not_known_has_a_session_by_its_prompt():
    headers = {"user-agent": "curl/8"}
    lines = lines_of(
        recording(),
        [
            *call_notes(0, 10, body(FIRST), stream("Bash"), headers=headers),
            *call_notes(1, 150, body(SECOND), stream(), headers=headers),
        ],
    )
    assert [call.session for call in calls_of(lines)] == [0, 0]
    assert sessions_of(lines)[0].harness is None


# Privacy


def lines_with_model(model, **options):
    return calls_of(lines_of(recording(**options), call_notes(0, 10, body(FIRST, model=model), stream())))


def test_a_model_that_is_a_path_is_written_only_with_content():
    assert lines_with_model("/home/ann/models/llama")[0].model is None
    assert lines_with_model("/home/ann/models/llama", privacy="content")[0].model == "/home/ann/models/llama"
    assert lines_with_model("claude-opus-5-5")[0].model == "claude-opus-5-5"


def test_segments_carry_their_text_only_with_content():
    def texts(**options):
        lines = lines_of(recording(**options), call_notes(0, 10, body(FIRST), stream()))
        return {line.text for line in lines if type(line).__name__ == "Segment"}

    assert texts() == {None}
    assert "one" in texts(privacy="content")


def test_what_must_not_be_written_is_known():
    one = recording()
    lines_of(one, call_notes(0, 10, body(FIRST), stream("my_own_tool")))
    assert CLAUDE["x-claude-code-session-id"] in "".join(one.names)
    assert "my_own_tool" in one.names


# Calls on a WebSocket

CODEX = {
    "user-agent": "codex_exec/0.171.0",
    "originator": "codex_exec",
    "thread-id": THREAD,
    "session-id": THREAD,
}


def create(number, items, **fields):
    message = {"type": "response.create", "model": "gpt-6.2-sol", "stream": True, "store": False}
    metadata = {"thread_id": THREAD, "session_id": THREAD, "x-codex-window-id": f"{THREAD}:0"}
    data = orjson.dumps({**message, "input": items, "client_metadata": metadata, **fields})
    return Message(number, 0, True, data)


def server(number, *payloads):
    return [Message(number, 0, False, orjson.dumps(payload)) for payload in payloads]


def codex_answer(number, response_id, *items):
    done = [
        {"type": "response.output_item.done", "output_index": place, "item": item}
        for place, item in enumerate(items)
    ]
    end = {"id": response_id, "status": "completed", "usage": {"input_tokens": 9, "output_tokens": 1}}
    return server(
        number, {"type": "response.created"}, *done, {"type": "response.completed", "response": end}
    )


def said(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


CALLED = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "exec", "input": "ls"}
RESULT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Wall time 0.2 seconds\nok"}


def timed(notes, start=0):
    """The notes, each 10 ms after the one before."""
    return [note._replace(at_ns=ms(start + 10 * place)) for place, note in enumerate(notes)]


def handshake(number=0):
    return [
        Asked(number, 0, "GET", "/v1/responses", CODEX, b"", "websocket", number),
        Connected(number, 0, 7),
        Answered(number, 0, 101, {}),
    ]


SOCKET = [
    *handshake(),
    create(0, [], generate=False),
    *codex_answer(0, "resp_0"),
    create(0, [said("one")], previous_response_id="resp_0"),
    *codex_answer(0, "resp_1", CALLED),
    create(0, [RESULT], previous_response_id="resp_1"),
    *codex_answer(0, "resp_2"),
]


def test_a_socket_has_one_call_for_each_question_and_their_prompts_are_whole():
    lines = lines_of(recording(), timed([*SOCKET, Ended(0, 0, "client", "1006")]))
    prewarm, first, second = calls_of(lines)
    assert [call.outcome.error for call in (prewarm, first, second)] == [None] * 3
    assert (prewarm.prompt.add, len(first.prompt.add)) == ((), 1)
    assert (second.prompt.base, second.prompt.keep, len(second.prompt.add)) == (first.id, 1, 2)
    assert not second.prompt.unseen_start
    assert (first.wire.transport, first.wire.connect_ns) == ("websocket", 0)
    assert first.tool_calls[0].duration_ns == 200 * MS
    assert [session.harness for session in sessions_of(lines)] == ["codex"]


def test_a_recording_that_starts_within_a_chain_says_so():
    one = recording()
    lines = lines_of(one, timed([*handshake(), *SOCKET[-4:]]))
    [call] = calls_of(lines)
    assert call.prompt.unseen_start
    assert one.notes["unchained_messages"] == 1


@pytest.mark.parametrize(
    ("how", "error"),
    [("client", "client_abort"), ("server", "cut"), ("complete", "cut"), ("unrecorded", "unrecorded")],
)
def test_a_socket_that_closes_ends_the_running_call(how, error):
    one = recording()
    lines = lines_of(one, timed([*handshake(), create(0, [said("one")]), Ended(0, 0, how, "")]))
    [call] = calls_of(lines)
    assert call.outcome.error == error
    assert one.unrecorded_calls == (how == "unrecorded")


def test_a_refused_handshake_is_no_call():
    notes = [handshake()[0], Answered(0, 0, 426, {}), Chunk(0, 0, b"no"), Ended(0, 0, "complete", "")]
    assert [type(line) for line in lines_of(recording(), timed(notes))] == [Header]


# Losses


@pytest.mark.parametrize(
    ("data", "headers", "undecodable"),
    [(b"{", {}, 0), (b'{"model":3}', {}, 0), (body(FIRST), {"content-encoding": "br"}, 1)],
)
def test_a_request_that_cannot_be_read_is_counted_and_not_written(data, headers, undecodable):
    one = recording()
    lines = lines_of(one, call_notes(0, 10, data, stream(), headers={**CLAUDE, **headers}))
    assert calls_of(lines) == []
    assert (one.notes["unreadable_requests"], one.notes["undecodable_bodies"]) == (1, undecodable)
    assert (one.dropped_calls, one.notes["writer_errors"]) == (1, 0)


def test_a_question_on_a_socket_that_cannot_be_read_is_counted_and_the_next_one_written():
    one = recording()
    odd = Message(0, 0, True, b'{"type":"response.create"}')
    lines = lines_of(one, timed([*handshake(), odd, *SOCKET[3:6]]))
    assert len(calls_of(lines)) == 1
    assert (one.notes["unreadable_requests"], one.dropped_calls) == (1, 1)


def test_an_answer_that_cannot_be_decoded_or_read_is_counted():
    one = recording()
    packed = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    lines_of(one, call_notes(0, 10, body(FIRST), [b"no gzip"], answer=packed))
    lines_of(one, call_notes(1, 100, body(FIRST), [b"data: {\n\n", *stream()]))
    assert (one.notes["undecodable_bodies"], one.notes["parse_errors"]) == (1, 1)


def test_calls_that_are_open_at_the_end_are_unrecorded_with_what_is_known():
    one = recording()
    notes = call_notes(0, 10, body(FIRST), stream("Bash"))[:-2]
    lines = lines_of(one, [*notes, *timed([*handshake(1), create(1, [said("one")])], 200)])
    lines += lines_of(one, [Stopped(ms(500), {})])
    http, socket = calls_of(lines)
    assert (http.outcome.error, http.outcome.status, http.times.end_ns) == ("unrecorded", 200, None)
    assert (http.usage.input_tokens, http.tool_calls[0].name) == (900, "Bash")
    assert socket.outcome.error == "unrecorded"
    assert (one.calls, one.unrecorded_calls) == (2, 2)


def test_the_addons_counts_are_in_the_notes_and_its_drops_are_drops():
    one = recording()
    one.take(Stopped(ms(1), {"queue_high_water_bytes": 7, "dropped_exchanges": 3}))
    assert (one.notes["queue_high_water_bytes"], one.dropped_calls) == (7, 3)


def test_calls_that_begin_while_lines_cannot_be_taken_are_dropped():
    one = recording()
    one.is_accepting = False
    lines = lines_of(one, [*call_notes(0, 10, body(FIRST), stream()), *timed(handshake(1), 200)])
    lines += lines_of(one, timed([note._replace(exchange=1) for note in SOCKET[3:10]], 300))
    assert [type(line) for line in lines] == [Header]
    assert one.dropped_calls == 3
    one.is_accepting = True
    lines = lines_of(one, timed([note._replace(exchange=1) for note in SOCKET[10:]], 500))
    [call] = calls_of(lines)
    assert not call.prompt.unseen_start
    assert call.id == 0


def test_notes_of_an_exchange_that_was_not_seen_to_begin_are_passed_over():
    one = recording()
    notes = [*call_notes(0, 10, body(FIRST), stream())[1:], *timed(SOCKET[1:5], 200)]
    assert [type(line) for line in lines_of(one, notes)] == [Header]
    assert one.notes["writer_errors"] == 0


class Faulty(Recording):
    """A recording whose n-th call raises at the n-th use of the assembler."""

    def break_at(self, name, times, error):
        inner = getattr(self._assembler, name)
        left = iter(times)

        def broken(*arguments):
            if next(left, False):
                raise error
            return inner(*arguments)

        self._assembler = type("Broken", (), {**_parts_of(self._assembler), name: staticmethod(broken)})()


def _parts_of(assembler):
    return {
        "begin": staticmethod(assembler.begin),
        "end": staticmethod(assembler.end),
        "names": assembler.names,
    }


def faulty(name, times):
    chosen = RecordOptions(path="x.aitrace", capture="reverse")
    one = Faulty(chosen, b"k" * 32, START, 0, producer="aitrace 0 record")
    one.break_at(name, times, RuntimeError("ours"))
    return one


@pytest.mark.parametrize("name", ["begin", "end"])
def test_an_exception_costs_its_exchange_only(name):
    one = faulty(name, [True])
    lines = lines_of(
        one,
        [
            *call_notes(0, 10, body(FIRST), stream()),
            *call_notes(1, 100, body(FIRST), stream()),
        ],
    )
    assert calls_of(lines)[-1].outcome.error is None
    assert one.notes["writer_errors"] == 1
    assert "RuntimeError: ours" in one.first_trouble
    assert (one.dropped_calls, one.unrecorded_calls) == ((1, 0) if name == "begin" else (0, 1))


def test_an_exception_on_a_socket_costs_its_call_only():
    one = faulty("begin", [False, True])
    lines = lines_of(one, timed(SOCKET))
    assert len(calls_of(lines)) == 2
    assert (one.notes["writer_errors"], one.dropped_calls) == (1, 1)


def test_a_note_that_is_none_costs_nothing_else():
    one = recording()
    odd = Chunk(0, ms(30), None)
    notes = call_notes(0, 10, body(FIRST), stream())
    lines = lines_of(one, [*notes[:3], odd, *notes[3:], *call_notes(1, 100, body(FIRST), stream())])
    first, second = calls_of(lines)
    assert (first.outcome.error, second.outcome.error) == ("unrecorded", None)
    assert one.unrecorded_calls == 1


def test_no_line_is_given_out_that_refers_to_a_lost_one():
    one = recording()
    lines_of(one, call_notes(0, 10, body(FIRST), stream()))
    one._assembler.begin(one._ask(_requested(body([user("lost")]))))
    lines = lines_of(one, call_notes(1, 100, body(SECOND), stream()))
    lines += lines_of(one, call_notes(2, 200, body(SECOND), stream()))
    assert calls_of(lines) == []
    assert (one.notes["writer_errors"], one.dropped_calls, one.calls) == (1, 2, 1)


def _requested(data):
    from aitrace.harnesses.routes import recorded_route
    from recorders.chains import ResponseChains
    from recorders.exchange import read_http_request

    asked = Asked(9, ms(50), "POST", "/v1/messages", CLAUDE, data, "http/1.1", 0)
    return read_http_request(asked, recorded_route("POST", "/v1/messages"), 50 * MS, ResponseChains())


def test_an_unreadable_request_is_an_error_of_its_own_kind():
    with pytest.raises(MalformedRequestError):
        _requested(b"{}")


def test_times_never_run_backwards_whatever_the_order_of_the_notes():
    one = recording()
    asked, connected, answered, *rest = call_notes(0, 10, body(FIRST), stream())
    odd = [
        asked,
        connected._replace(at_ns=START - 5),
        answered,
        *(note._replace(at_ns=ms(1)) for note in rest),
    ]
    [call] = calls_of(lines_of(one, odd))
    assert (call.times.forwarded_ns, call.times.end_ns) == (call.times.request_ns, call.times.headers_ns)
