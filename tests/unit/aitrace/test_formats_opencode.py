import orjson
import pytest

from aitrace.formats.history import HistoryReading
from aitrace.formats.opencode import Conversation, Message, calls_from_conversations, conversation_from_fields

T0 = 1_772_618_400 * 10**9
MS = 10**6
START_MS = 1_772_618_400_000


def user(key, *parts, ms=0):
    return message(key, "user", ms, *parts)


def message(key, role, ms, *parts, **data):
    return Message(
        place=f"db: {key}",
        data={"id": key, "role": role, "time": {"created": START_MS + ms}, **data},
        parts=parts,
    )


def answer(key, ms, *parts, parent="u1", **data):
    return message(key, "assistant", ms, *parts, parentID=parent, modelID="m", agent="build", **data)


def text(words, start=None, end=None, **fields):
    times = {} if start is None else {"time": {"start": START_MS + start, "end": START_MS + end}}
    return {"type": "text", "text": words, **times, **fields}


def tool(call_id, start, end=None, name="bash", **state):
    times = {"start": START_MS + start, **({} if end is None else {"end": START_MS + end})}
    done = {"status": "running"} if end is None else {"status": "completed", "output": "ok"}
    return {
        "type": "tool",
        "tool": name,
        "callID": call_id,
        "state": {"input": {}, "time": times, **done, **state},
    }


def finish(reason="stop", **tokens):
    told = {"input": 10, "output": 5, "reasoning": 0, "cache": {"read": 90, "write": 0}, **tokens}
    return {"type": "step-finish", "reason": reason, "tokens": told}


def conversation(*messages, key="s", parent=None):
    return Conversation(id=key, parent=parent, version="1.18.33", messages=messages)


def read(*conversations, reading=None):
    return calls_from_conversations(conversations, reading or HistoryReading())


def texts(call):
    return [part.text for part in call.parts]


def test_a_step_is_a_call_that_ends_with_its_last_piece():
    first = answer(
        "a1",
        100,
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm", "time": {"start": START_MS + 200, "end": START_MS + 250}},
        text("a", 260, 300),
        tool("c", 310, 900),
        finish("tool-calls"),
    )
    second = answer("a2", 910, {"type": "step-start"}, text("done", 1000, 1100), finish())
    calls = read(conversation(user("u1", text("hi")), first, second))
    assert [(c.request_ns - T0, c.end_ns - T0, c.outcome.finish) for c in calls] == [
        (100 * MS, 310 * MS, "tool_calls"),
        (910 * MS, 1100 * MS, "stop"),
    ]
    assert [(t.name, t.end_ns - T0, t.duration_ns) for t in calls[0].tool_calls] == [
        ("bash", 310 * MS, 590 * MS)
    ]
    assert [part.type for part in calls[1].parts] == ["text", "thinking", "text", "tool_use", "tool_result"]
    assert (calls[0].model, calls[0].protocol, calls[0].is_whole) == ("m", None, False)
    assert {c.identity.prompt_id for c in calls} == {"u1"}


def test_steps_of_one_message_follow_each_other():
    parts = [
        tool("c", 300, 900),
        finish("tool-calls"),
        {"type": "step-start"},
        text("done", 1000, 1100),
        finish(),
    ]
    calls = read(conversation(user("u1", text("hi")), answer("a1", 100, *parts)))
    assert [(c.request_ns - T0, len(c.parts)) for c in calls] == [(100 * MS, 1), (900 * MS, 3)]


def test_usage_adds_up_what_was_cached_and_what_was_thought():
    told = [
        {"total": 107, "output": 5, "reasoning": 2},
        {"total": 105, "output": 5, "reasoning": 2},
        {"input": None, "output": None},
    ]
    messages = [answer(f"a{n}", n, text("a", n, n + 1), finish(**tokens)) for n, tokens in enumerate(told)]
    usages = [call.usage for call in read(conversation(*messages))]
    assert [(u.input_tokens, u.cache_read_tokens, u.output_tokens) for u in usages] == [
        (100, 90, 7),
        (100, 90, 5),
        (None, 90, None),
    ]


def test_what_the_user_gave_is_text_and_files():
    parts = [
        text("hi"),
        text("not sent", ignored=True),
        text(""),
        {"type": "file", "mime": "image/png", "url": "data:x"},
        {"type": "file", "mime": "text/plain", "url": "file:y"},
        {"type": "compaction"},
    ]
    (call,) = read(conversation(user("u1", *parts), answer("a1", 10, text("a", 20, 30), finish())))
    assert [part.type for part in call.parts] == ["text", "image", "opaque"]


def test_a_summary_replaces_the_conversation_and_was_made_from_one_text():
    messages = [
        user("u1", text("hi")),
        answer("a1", 10, text("a", 20, 30), finish()),
        user("u2", {"type": "compaction", "auto": True}),
        answer("a2", 40, text("short", 50, 60), finish(), summary=True),
        user("u3", text("go on", synthetic=True)),
        answer("a3", 70, text("b", 80, 90), finish()),
        user("u4", text("next")),
        answer("a4", 95, text("c", 96, 97), finish()),
    ]
    calls = read(conversation(*messages))
    assert [texts(call) for call in calls] == [
        ["hi"],
        ["hi\na"],
        ["short", "go on"],
        ["short", "go on", "b", "next"],
    ]
    assert [c.identity.call_class for c in calls] == ["main", "compaction", "main", "main"]
    assert [c.identity.is_window_start for c in calls] == [False, False, True, False]
    assert [c.identity.prompt_id for c in calls] == ["u1", "u1", "u1", "u4"]


def test_a_sub_agent_belongs_to_the_prompt_that_led_to_it():
    spawn = tool("c", 30, 500, "task", metadata={"sessionId": "child"})
    inner = tool("d", 60, 90, "task", metadata={"sessionId": "grandchild"})
    calls = read(
        conversation(user("u1", text("hi")), answer("a1", 10, spawn, finish("tool-calls"))),
        conversation(
            user("v1", text("task")), answer("b1", 50, inner, finish(), parent="v1"), key="child", parent="s"
        ),
        conversation(
            user("w1", text("deep")),
            answer("c1", 70, text("x", 80, 85), finish(), parent="w1"),
            key="grandchild",
            parent="child",
        ),
    )
    found = [(c.identity.session, c.identity.parent, c.identity.agent, c.identity.prompt_id) for c in calls]
    assert found == [
        ("s", None, None, "u1"),
        ("child", "s", "build", "u1"),
        ("grandchild", "child", "build", "u1"),
    ]
    assert {c.identity.root for c in calls} == {"s"}
    assert [c.identity.call_class for c in calls] == ["main", "subagent", "subagent"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"name": "MessageAbortedError"}, ("client_abort", None)),
        ({"name": "APIError", "data": {"statusCode": 529}}, ("refused", 529)),
        ({"name": "APIError", "data": {"statusCode": 400}}, ("http_error", 400)),
        ({"name": "UnknownError"}, ("unrecorded", None)),
        (None, ("unrecorded", None)),
    ],
)
def test_a_step_without_end_failed(error, expected):
    broken = answer("a1", 10, {"type": "step-start"}, text("a", 20, 30), error=error, tokens={"input": 0})
    (call,) = read(conversation(broken))
    assert (call.outcome.error, call.outcome.status) == expected
    assert (call.end_ns - T0, call.usage.input_tokens) == (30 * MS, None)


@pytest.mark.parametrize(("times", "expected"), [({"completed": START_MS + 40}, 40 * MS), ({}, None)])
def test_a_message_without_pieces_ends_when_it_was_completed(times, expected):
    broken = answer("a1", 10, error={"name": "MessageAbortedError"}, time={"created": START_MS + 10, **times})
    (call,) = read(conversation(broken))
    assert (None if call.end_ns is None else call.end_ns - T0) == expected


def test_a_tool_that_did_not_end_has_no_run_time_and_no_result():
    pieces = [tool("c", 20), {"type": "tool", "tool": "bash", "callID": "d", "state": {"status": "pending"}}]
    first, second = read(
        conversation(answer("a1", 10, *pieces, finish()), answer("a2", 50, text("b", 60, 70), finish()))
    )
    assert [(t.end_ns is None, t.duration_ns) for t in first.tool_calls] == [(False, None), (True, None)]
    assert [part.type for part in second.parts] == ["tool_use", "tool_use"]


def test_the_error_of_a_tool_is_its_result():
    failed = tool("c", 20, 30, status="error", output=None, error="no such file")
    calls = read(
        conversation(answer("a1", 10, failed, finish()), answer("a2", 50, text("b", 60, 70), finish()))
    )
    assert texts(calls[1])[-1] == "no such file"


def test_pieces_without_text_are_not_in_later_prompts():
    silent = answer("a1", 10, text("", 20, 30), {"type": "reasoning", "text": ""}, finish())
    calls = read(conversation(silent, answer("a2", 50, text("b", 60, 70), finish())))
    assert calls[1].parts == ()


def test_kinds_that_are_not_known_are_noted():
    reading = HistoryReading()
    odd = answer("a1", 10, {"type": "hologram"}, {"type": "file"}, text("a", 20, 30), finish())
    read(conversation(message("x", "oracle", 0), odd), reading=reading)
    assert [(r.kind, r.count) for r in reading.tally.summary("opencode").remarks] == [("unknown_line", 2)]


def test_a_session_names_its_parent_in_either_way():
    found = [
        conversation_from_fields(fields, (), "db")
        for fields in (
            {"id": "a", "parent_id": "b", "version": "1.2"},
            {"id": "a", "parentID": "b"},
            {"version": 7},
        )
    ]
    assert [(c.id, c.parent, c.version) for c in found] == [
        ("a", "b", "1.2"),
        ("a", "b", None),
        ("db", None, None),
    ]


def noted(reading):
    return {r.kind: r.count for r in reading.tally.remarks}


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([text("a", 20, -START_MS), finish()], (20, 5)),
        ([tool("c", -START_MS, 30), text("a", 20, 25), finish()], (30, 5)),
        ([text("a", 20, 30), finish(output=-1)], (30, None)),
    ],
)
def test_a_value_that_cannot_be_is_not_known_and_noted(pieces, expected):
    reading = HistoryReading()
    (call,) = read(conversation(answer("a1", 10, *pieces)), reading=reading)
    assert ((call.end_ns - T0) // MS, call.usage.output_tokens) == expected
    assert noted(reading) == {"odd_value": 1}


def test_a_message_without_a_possible_time_counts_as_made_with_the_one_before():
    messages = [
        answer("a1", -START_MS, text("lost", 1, 2), finish()),
        answer("a2", 10, text("a", 20, 30), finish()),
        answer("a3", -START_MS, text("b", 40, 50), finish()),
    ]
    reading = HistoryReading()
    calls = read(conversation(*messages), reading=reading)
    assert [(c.request_ns - T0) // MS for c in calls] == [10, 10]
    assert noted(reading) == {"odd_time": 2}


def test_a_tool_call_that_is_nested_too_deep_is_noted():
    deep = orjson.loads(b"[" * 300 + b"]" * 300)
    reading = HistoryReading()
    (call,) = read(conversation(answer("a1", 10, tool("c", 20, 30, input=deep), finish())), reading=reading)
    assert (len(call.tool_calls), noted(reading)) == (1, {"odd_message": 1})


def test_kinds_that_are_no_words_are_noted():
    odd = answer("a1", 10, {"type": ["text"]}, tool("c", 20, 30, status=["completed"]), finish())
    reading = HistoryReading()
    read(conversation(odd), reading=reading)
    assert noted(reading) == {"unknown_line": 1}


def test_a_message_that_was_met_before_is_prompt_but_no_call():
    reading = HistoryReading()
    first = [user("u1", text("hi")), answer("a1", 10, text("a", 20, 30), finish())]
    assert len(read(conversation(*first), reading=reading)) == 1
    more = answer("a2", 50, text("b", 60, 70), finish())
    assert [texts(call) for call in read(conversation(*first, more), reading=reading)] == [["hi", "a"]]


@pytest.mark.parametrize(
    ("error", "pieces", "is_kept"),
    [
        ({"name": "APIError"}, [text("a", 20, 30)], False),
        ({"name": "MessageAbortedError"}, [text("a", 20, 30)], True),
        (
            {"name": "MessageAbortedError"},
            [{"type": "step-start"}, {"type": "reasoning", "text": "hm"}],
            False,
        ),
    ],
)
def test_a_failed_answer_is_in_later_prompts_only_if_it_was_broken_off_with_something_said(
    error, pieces, is_kept
):
    failed = answer("a1", 10, *pieces, error=error)
    calls = read(conversation(failed, answer("a2", 50, text("b", 60, 70), finish())))
    assert texts(calls[1]) == (["a"] if is_kept else [])


def test_a_summary_that_failed_replaces_nothing():
    failed = answer("a1", 10, text("sho", 20, 30), summary=True, error={"name": "APIError"})
    calls = read(conversation(user("u1", text("hi")), failed, answer("a2", 50, text("b", 60, 70), finish())))
    assert (texts(calls[1]), calls[1].identity.is_window_start) == (["hi"], False)


def test_ids_of_tool_calls_and_the_first_that_named_a_sub_agent_are_told():
    tasks = [tool(key, 30, 500, "task", metadata={"sessionId": "child"}) for key in ("c", "d")]
    main, child = read(
        conversation(user("u1", text("hi")), answer("a1", 10, *tasks, finish("tool-calls"))),
        conversation(answer("b1", 50, text("x", 60, 70), finish()), key="child", parent="s"),
    )
    assert (main.tool_ids, main.spawned_by, child.spawned_by) == (("c", "d"), None, "c")


def test_messages_without_an_id_are_no_copies_of_each_other():
    messages = [answer(None, ms, text("a", ms + 10, ms + 20), finish()) for ms in (0, 50)]
    assert len(read(conversation(*messages))) == 2
