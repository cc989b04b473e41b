import orjson
import pytest

from aitrace.formats.claude_code import Transcript, calls_from_session
from aitrace.formats.claude_requests import message_hash
from aitrace.formats.history import HistoryReading
from aitrace.schema import Usage

T0 = 1_772_618_400 * 10**9
MS = 10**6
USAGE = {
    "input_tokens": 5,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 20},
    "output_tokens": 7,
}


def at(ms):
    return f"2026-03-04T10:00:{ms // 1000:02d}.{ms % 1000:03d}Z"


class Log:
    """Lines of a transcript, each the child of the one before."""

    def __init__(self, **common):
        self.rows = []
        self.common = common
        self.last = None

    def add(self, kind, ms=0, **fields):
        uuid = f"u{len(self.rows)}"
        row = {"type": kind, "uuid": uuid, "parentUuid": self.last, "timestamp": at(ms), "sessionId": "s"}
        self.rows.append((f"a.jsonl:{len(self.rows) + 1}", {**row, **self.common, **fields}))
        self.last = uuid
        return uuid

    def user(self, ms, content, **fields):
        return self.add("user", ms, message={"role": "user", "content": content}, promptId="p", **fields)

    def result(self, ms, tool_id, text="ok", **fields):
        return self.user(ms, [{"type": "tool_result", "tool_use_id": tool_id, "content": text}], **fields)

    def answer(self, ms, *blocks, key="m1", stop="end_turn", usage=USAGE, **fields):
        message = {"id": key, "role": "assistant", "model": "claude-opus-4-5", "content": list(blocks)}
        return self.add("assistant", ms, message={**message, "stop_reason": stop, "usage": usage}, **fields)


def said(text):
    return {"type": "text", "text": text}


def tool(tool_id, name="Bash", **given):
    return {"type": "tool_use", "id": tool_id, "name": name, "input": given}


def read(*logs, reading=None):
    transcripts = [
        log if isinstance(log, Transcript) else Transcript(agent_id=None, rows=log.rows) for log in logs
    ]
    return calls_from_session("s", transcripts, reading or HistoryReading())


def texts(call):
    return [part.text for part in call.parts]


def remarks(reading):
    return {r.kind: r.count for r in reading.tally.summary("claude-code").remarks}


def test_lines_of_one_answer_are_one_call_whose_last_usage_counts():
    log = Log(version="2.0.50")
    log.user(100, "hi")
    log.answer(900, said("a"), stop=None, usage={**USAGE, "output_tokens": 1})
    log.answer(1500, tool("t", command="ls"), stop="tool_use")
    (call,) = read(log)
    assert (call.request_ns - T0, call.end_ns - T0) == (100 * MS, 1500 * MS)
    assert (call.usage.input_tokens, call.usage.cache_write_1h_tokens, call.usage.output_tokens) == (
        125,
        20,
        7,
    )
    assert (call.outcome.finish, call.model, call.identity.version) == (
        "tool_use",
        "claude-opus-4-5",
        "2.0.50",
    )
    assert [(t.name, t.end_ns - T0) for t in call.tool_calls] == [("Bash", 1500 * MS)]
    assert (call.is_whole, call.is_request_told, call.max_output_tokens) == (False, False, None)


def test_the_prompt_is_the_conversation_before_the_answer():
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("hello"))
    log.user(200, "and now")
    log.answer(300, said("done"), key="m2")
    assert [texts(call) for call in read(log)] == [["hi"], ["hi", "hello", "and now"]]


def test_results_of_parallel_tools_follow_the_whole_answer():
    log = Log()
    log.user(0, "hi")
    log.answer(100, tool("a"), stop="tool_use")
    log.result(150, "a", "first")
    log.answer(200, tool("b"), stop="tool_use")
    log.result(300, "b", "second")
    log.answer(400, said("done"), key="m2")
    first, second = read(log)
    assert [part.tool_id for part in second.parts] == [None, "a", "b", "a", "b"]
    assert len(first.tool_calls) == 2


def test_a_call_without_new_input_starts_with_the_end_of_the_one_before():
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("a"))
    log.answer(300, said("b"), key="m2")
    assert [call.request_ns - T0 for call in read(log)] == [0, 100 * MS]


@pytest.mark.parametrize(
    ("fields", "expected_ms"),
    [
        ({"toolUseResult": {"durationMs": 42}}, 42),
        ({"toolUseResult": {"totalDurationMs": 43}}, 43),
        ({"permissionDecision": {"source": "config"}}, 500),
        ({"permissionDecision": {"source": "user"}}, None),
        ({"toolUseResult": "Error: no"}, None),
        ({"toolUseResult": {"isAsync": True, "totalDurationMs": 9}}, None),
    ],
)
def test_a_tool_has_a_run_time_where_it_is_told_or_nobody_was_asked(fields, expected_ms):
    log = Log()
    log.user(0, "hi")
    log.answer(100, tool("t"))
    log.result(600, "t", **fields)
    (call,) = read(log)
    assert [t.duration_ns for t in call.tool_calls] == [None if expected_ms is None else expected_ms * MS]


def test_a_result_of_an_unknown_call_has_no_run_time():
    log = Log()
    log.result(600, "t", permissionDecision={"source": "config"})
    log.answer(700, said("a"))
    assert read(log)[0].tool_calls == ()


def test_a_compaction_replaces_the_conversation_but_for_what_it_keeps():
    log = Log()
    log.user(0, "hi")
    kept = log.answer(100, said("kept"))
    log.add(
        "system", 200, subtype="compact_boundary", compactMetadata={"preservedMessages": {"uuids": [kept, 7]}}
    )
    log.user(300, "summary", isCompactSummary=True)
    log.answer(400, said("on"), key="m2")
    log.user(500, "more")
    log.answer(600, said("end"), key="m3")
    first, second, third = read(log)
    assert [texts(call) for call in (second, third)] == [
        ["summary", "kept"],
        ["summary", "kept", "on", "more"],
    ]
    assert [call.identity.is_window_start for call in (first, second, third)] == [False, True, False]


def test_a_prompt_that_continues_an_older_line_takes_back_what_followed():
    log = Log()
    log.user(0, "hi")
    before = log.answer(100, said("hello"))
    log.user(200, "wrong")
    log.answer(300, said("oh"), key="m2")
    log.user(400, "right", parentUuid=before)
    log.answer(500, said("yes"), key="m3")
    log.user(600, "anew", parentUuid=None)
    log.answer(700, said("yes"), key="m4")
    log.user(800, "lost", parentUuid="nobody")
    log.answer(900, said("yes"), key="m5")
    assert [texts(call) for call in read(log)[2:]] == [
        ["hi", "hello", "right"],
        ["anew"],
        ["anew", "yes", "lost"],
    ]


def test_an_answer_goes_on_after_the_conversation_was_taken_back():
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("a"))
    log.user(200, "again", parentUuid=None)
    log.answer(300, said("b"))
    log.answer(400, said("c"), key="m2")
    assert [texts(call) for call in read(log)] == [["hi"], ["again", "b"]]


def test_what_the_harness_wrote_itself_is_no_answer():
    log = Log()
    log.user(0, "hi")
    log.add(
        "assistant",
        100,
        message={"id": "x", "model": "<synthetic>", "content": [said("No response requested.")]},
    )
    log.answer(150, said("API Error"), key="y", isApiErrorMessage=True)
    log.answer(200, said("a"))
    assert [texts(call) for call in read(log)] == [["hi", "No response requested.", "API Error"]]


def test_an_answer_that_was_broken_off_is_an_abort_of_the_client():
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("a"), stop=None, isAbortedMidStream=True)
    (call,) = read(log)
    assert (call.outcome.error, call.outcome.ended_by) == ("client_abort", "client")


def test_a_copy_of_another_transcript_is_prompt_but_no_call():
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("a"), requestId="r")
    reading = HistoryReading()
    assert len(read(log, reading=reading)) == 1
    log.user(200, "fork")
    log.answer(300, said("b"), key="m2", requestId="r2")
    assert [texts(call) for call in read(log, reading=reading)] == [["hi", "a", "fork"]]


def test_additions_of_the_harness_are_prompt_where_the_line_has_their_words():
    log = Log()
    log.user(0, "hi")
    log.add(
        "attachment", rendered=[{"content": "<system-reminder>"}, 7], renderedRole="system", attachment={}
    )
    log.add("attachment", attachment={"type": "queued_command", "prompt": "also this"})
    log.add("attachment", attachment={"type": "model"})
    log.answer(100, said("a"))
    assert [(p.role, p.text) for p in read(log)[0].parts] == [
        ("user", "hi"),
        ("system", "<system-reminder>"),
        ("user", "also this"),
    ]


def logged(log, ms, request_id, *messages, **fields):
    for message in messages:
        log.add("api-request-blob", hash=message_hash(message), message=message)
    tail = [message_hash(message) for message in messages]
    row = {
        "id": request_id,
        "shapeHash": "x",
        "keep": 0,
        "tail": tail,
        "params": {"max_tokens": 9, "model": "m"},
    }
    log.add("api-request", ms, **{**row, **fields})


def shaped():
    log = Log()
    log.user(0, "hi")
    log.add("api-request-shape", shapeHash="x", shape={"system": "be kind", "tools": []})
    return log


def test_a_logged_request_gives_start_prompt_and_limit():
    log = shaped()
    logged(log, 40, "r", {"role": "user", "content": "<reminder> hi"})
    log.answer(100, said("a"), requestRef="r")
    (call,) = read(log)
    assert (texts(call), call.request_ns - T0) == (["be kind", "<reminder> hi"], 40 * MS)
    assert (call.is_whole, call.is_request_told, call.max_output_tokens) == (True, True, 9)


def test_a_logged_request_that_cannot_be_put_together_still_gives_the_start():
    log = shaped()
    logged(log, 40, "r", tail=["unknown"])
    log.answer(100, said("a"), requestRef="r")
    reading = HistoryReading()
    (call,) = read(log, reading=reading)
    assert (texts(call), call.request_ns - T0, call.is_whole) == (["hi"], 40 * MS, False)
    assert remarks(reading) == {"unresolved_request": 1}


def test_a_message_that_the_log_does_not_hold_is_taken_from_the_lines():
    log = shaped()
    logged(log, 40, "r1", {"role": "user", "content": "<reminder> hi"})
    log.answer(100, said("a"), requestRef="r1")
    log.user(150, "more")
    logged(log, 160, "r2", base="r1", keep=1, tail=["unknown"])
    log.answer(200, said("b"), key="m2", requestRef="r2")
    reading = HistoryReading()
    assert texts(read(log, reading=reading)[1]) == ["be kind", "<reminder> hi", "a", "more"]
    assert remarks(reading) == {"substituted_message": 1}


def test_refused_attempts_are_calls_where_their_request_is_logged():
    log = shaped()
    for number, ms in enumerate((40, 600)):
        logged(log, ms, f"r{number}", {"role": "user", "content": "hi"})
        log.add("system", ms + 5, subtype="api_error", error={"status": 529}, retryInMs=500)
    logged(log, 2000, "r2", {"role": "user", "content": "hi"})
    log.answer(2100, said("a"), requestRef="r2")
    calls = read(log)
    assert [(c.request_ns - T0, c.end_ns - T0, c.outcome.status) for c in calls] == [
        (40 * MS, 45 * MS, 529),
        (600 * MS, 605 * MS, 529),
        (2000 * MS, 2100 * MS, None),
    ]
    assert [(c.model, c.tool_calls) for c in calls[:1]] == [("m", None)]


def test_a_refused_attempt_of_an_older_version_is_left_out_and_noted():
    log = Log()
    log.user(0, "hi")
    log.add("system", 10, subtype="api_error", error={"status": 529})
    log.add("system", 20, subtype="turn_duration")
    log.answer(100, said("a"))
    reading = HistoryReading()
    assert len(read(log, reading=reading)) == 1
    assert remarks(reading) == {"refused_attempt": 1}


def test_a_request_that_nothing_answered_is_a_call_without_end():
    log = shaped()
    logged(log, 40, "r", {"role": "user", "content": "hi"})
    logged(log, 50, "lost", tail=["unknown"])
    (call,) = read(log)
    assert (call.end_ns, call.outcome.error, call.request_ns - T0) == (None, "unrecorded", 40 * MS)


def test_sub_agents_hang_below_the_agent_that_called_their_tool():
    main, child, inner = Log(), Log(isSidechain=True), Log(isSidechain=True)
    main.user(0, "hi")
    main.answer(100, tool("t1", "Agent"))
    child.user(150, "task")
    child.answer(200, tool("t2", "Agent"), key="m2")
    inner.user(250, "inner task")
    inner.answer(300, said("x"), key="m3")
    agents = [
        Transcript(agent_id="A", rows=child.rows, kind="Explore", tool_use_id="t1"),
        Transcript(agent_id="B", rows=inner.rows, tool_use_id="t2"),
        Transcript(agent_id="C", rows=inner.rows, is_workflow=True),
    ]
    calls = read(main, *agents)
    found = [(c.identity.session, c.identity.parent, c.identity.agent, c.identity.call_class) for c in calls]
    assert found == [
        ("s", None, None, "main"),
        ("s/A", "s", "Explore", "subagent"),
        ("s/B", "s/A", None, "subagent"),
    ]
    assert {c.identity.root for c in calls} == {"s"}
    other = read(main, Transcript(agent_id="C", rows=inner.rows, is_workflow=True))
    assert [(c.identity.parent, c.identity.call_class) for c in other[1:]] == [("s", "workflow")]


def test_sub_agents_between_the_lines_of_old_transcripts_are_split_off():
    log = Log()
    log.user(0, "hi")
    log.answer(100, tool("t1", "Task", prompt="look around", subagent_type="Explore"), stop="tool_use")
    first = log.user(150, "look around", isSidechain=True, parentUuid=None)
    log.answer(200, said("seen"), key="m2", isSidechain=True, parentUuid=first)
    log.user(210, [said("odd start")], isSidechain=True, parentUuid=None)
    log.result(300, "t1")
    log.answer(400, said("done"), key="m3")
    calls = read(log)
    assert [(texts(c)[0], c.identity.agent, c.identity.parent) for c in calls] == [
        ("hi", None, None),
        ("hi", None, None),
        ("look around", "Explore", "s"),
    ]


def test_kinds_of_line_that_are_not_known_are_noted():
    log = Log()
    log.user(0, "hi")
    log.add("queue-operation")
    log.add("hologram")
    log.answer(100, said("a"))
    reading = HistoryReading()
    read(log, reading=reading)
    assert remarks(reading) == {"unknown_line": 1}


@pytest.mark.parametrize("usage", [{"output_tokens": -1}, {"input_tokens": "many"}, {"output_tokens": 2**50}])
def test_a_number_that_cannot_be_is_not_known_and_noted(usage):
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("a"), usage=usage)
    reading = HistoryReading()
    (call,) = read(log, reading=reading)
    assert (call.usage, remarks(reading)) == (Usage(), {"odd_value": 1})


def test_a_line_without_a_possible_time_counts_as_written_with_the_one_before():
    log = Log()
    log.user(50, "hi")
    log.user(60, "more", timestamp="soon")
    log.answer(100, said("a"))
    log.answer(200, said("b"), timestamp="1970-01-01T00:00:00Z")
    reading = HistoryReading()
    (call,) = read(log, reading=reading)
    assert (texts(call), call.request_ns - T0, call.end_ns - T0) == (["hi", "more"], 50 * MS, 100 * MS)
    assert remarks(reading) == {"odd_time": 2}


def test_a_line_that_no_time_went_before_is_passed_over():
    log = Log()
    log.user(0, "hi", timestamp=None)
    log.user(10, "more")
    log.answer(100, said("a"))
    reading = HistoryReading()
    assert [texts(call) for call in read(log, reading=reading)] == [["more"]]
    assert remarks(reading) == {"odd_time": 1}


@pytest.mark.parametrize("odd", [{"type": ["user"]}, {"type": {}}, {"type": None}])
def test_a_kind_that_is_no_word_is_noted(odd):
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("a"))
    log.add("user", 200, **odd)
    reading = HistoryReading()
    assert (len(read(log, reading=reading)), remarks(reading)) == (1, {"unknown_line": 1})


def test_a_report_that_is_nested_too_deep_is_none():
    log = Log()
    log.user(0, "hi")
    log.answer(100, said("a"), usage={"x": orjson.loads(b"[" * 300 + b"]" * 300)})
    assert read(log)[0].usage == Usage()


def test_a_clock_that_is_set_back_does_not_put_the_calls_in_another_order():
    log = Log()
    log.user(20_000, "hi")
    log.answer(21_000, tool("t"))
    log.result(22_000, "t")
    log.answer(3_000, said("b"), key="m2")
    log.user(4_000, "more")
    log.answer(5_000, tool("u"), key="m3")
    log.user(40_000, "later")
    log.answer(41_000, said("d"), key="m4")
    reading = HistoryReading()
    calls = read(log, reading=reading)
    assert [(c.request_ns - T0) // MS for c in calls] == [20_000, 21_000, 22_000, 40_000]
    assert [(c.end_ns - T0) // MS for c in calls] == [21_000, 21_000, 23_000, 41_000]
    assert [(t.end_ns - T0) // MS for t in calls[2].tool_calls] == [23_000]
    assert remarks(reading) == {"clock_set_back": 1}


def test_a_sub_agents_own_id_is_told_apart_from_its_key():
    log = Log()
    log.user(0, "task")
    log.answer(100, said("a"))
    (call,) = read(Transcript(agent_id="a1", rows=log.rows))
    assert (call.identity.session, call.identity.more_ids) == ("s/a1", ("a1",))


def test_lines_without_an_id_are_read_as_well():
    log = Log(uuid=None)
    log.user(0, "hi")
    log.answer(100, said("a"))
    log.user(200, "more", parentUuid="x")
    log.answer(300, said("b"), key="m2")
    assert [texts(call) for call in read(log)] == [["hi"], ["hi", "a", "more"]]


def test_ids_of_tool_calls_and_the_one_that_started_a_sub_agent_are_told():
    log = Log()
    log.user(0, "hi")
    log.answer(100, tool("t1"), tool("t2"))
    main, child = read(log, Transcript(agent_id="a", rows=log_of_task().rows, tool_use_id="t1"))
    assert (main.tool_ids, main.spawned_by, child.spawned_by) == (("t1", "t2"), None, "t1")


def log_of_task():
    log = Log()
    log.user(150, "task")
    log.answer(200, said("a"), key="m9")
    return log
