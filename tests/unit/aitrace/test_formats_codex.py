import pytest

from aitrace.formats.codex import calls_from_threads, root_of, thread_from_rows, turns_of
from aitrace.formats.history import HistoryReading

T0 = 1_772_618_400 * 10**9
MS = 10**6


class Log:
    """Lines of a rollout."""

    def __init__(self, thread="root", **meta):
        self.rows = []
        self.add("session_meta", 0, id=thread, session_id="root", cli_version="0.171.0", **meta)

    def add(self, kind, ms, row=None, **payload):
        stamp = f"2026-03-04T10:00:{ms // 1000:02d}.{ms % 1000:03d}Z"
        line = {
            "timestamp": stamp,
            "type": kind,
            "payload": payload,
            "ordinal": len(self.rows),
            **(row or {}),
        }
        self.rows.append((f"a.jsonl:{len(self.rows) + 1}", line))

    def say(self, ms, role, text, **row):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        self.add("response_item", ms, row, type="message", role=role, content=content)

    def tool(self, ms, call_id, name="exec", **row):
        self.add("response_item", ms, row, type="function_call", name=name, arguments="{}", call_id=call_id)

    def output(self, ms, call_id, text="ok"):
        self.add("response_item", ms, type="function_call_output", call_id=call_id, output=text)

    def turn(self, ms, turn_id, **payload):
        self.add("event_msg", ms, type="task_started", turn_id=turn_id)
        self.add("turn_context", ms, turn_id=turn_id, model="gpt-5.5", **payload)

    def record(self, ms, tokens=100, **usage):
        told = {
            "input_tokens": tokens,
            "cached_input_tokens": 40,
            "output_tokens": 7,
            "reasoning_output_tokens": 3,
        }
        self.add("token_usage_record", ms, usage={**told, **usage})

    def count(self, ms, total, tokens=100):
        last = {"input_tokens": tokens, "output_tokens": 7}
        self.add(
            "event_msg", ms, type="token_count", info={"total_token_usage": total, "last_token_usage": last}
        )


def thread(rows):
    return thread_from_rows(rows[:2], lambda _: rows)


def read(*logs, origins=(), reading=None):
    threads = [thread(log.rows) for log in logs]
    return calls_from_threads(threads, [thread(log.rows) for log in origins], reading or HistoryReading())


def texts(call):
    return [part.text for part in call.parts]


def test_a_report_of_usage_ends_an_answer():
    log = Log()
    log.turn(5, "t1")
    log.say(10, "user", "hi")
    log.say(200, "assistant", "a")
    log.tool(300, "c")
    log.record(310)
    log.output(900, "c", "Wall time: 0.5000 seconds\nOutput:\nok")
    log.say(1200, "assistant", "done")
    log.record(1210, 150)
    first, second = read(log)
    assert [(c.request_ns - T0, c.end_ns - T0) for c in (first, second)] == [
        (10 * MS, 310 * MS),
        (900 * MS, 1210 * MS),
    ]
    assert texts(first) == ["hi"]
    assert [part.type for part in second.parts] == ["text", "text", "tool_use", "tool_result"]
    assert [(t.name, t.end_ns - T0, t.duration_ns) for t in first.tool_calls] == [
        ("exec", 300 * MS, 500 * MS)
    ]
    usage = first.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.reasoning_tokens) == (
        100,
        40,
        7,
        3,
    )
    assert (first.model, first.protocol, first.identity.version) == ("gpt-5.5", "responses", "0.171.0")
    assert (first.is_whole, first.is_request_told) == (False, False)


def test_older_versions_tell_the_same_total_more_than_once():
    log = Log()
    log.say(10, "user", "hi")
    log.add("event_msg", 15, type="token_count", info=None)
    log.tool(300, "c")
    log.output(400, "c")
    log.count(410, {"n": 1})
    log.count(420, {"n": 1})
    log.say(600, "assistant", "done")
    log.count(610, {"n": 2})
    log.count(620, {"n": 3})
    calls = read(log)
    assert [(c.usage.input_tokens, c.end_ns - T0) for c in calls] == [(100, 300 * MS), (100, 600 * MS)]


def test_counts_are_passed_over_where_there_are_records():
    log = Log()
    log.say(10, "user", "hi")
    log.say(20, "assistant", "a")
    log.count(25, {"n": 1}, tokens=999)
    log.record(30)
    assert [c.usage.input_tokens for c in read(log)] == [100]


def test_an_answer_that_read_more_is_another_one():
    log = Log()
    log.say(10, "user", "hi")
    log.say(20, "assistant", "a", metadata={"sampled_through_sequence": 1})
    log.say(30, "assistant", "b", metadata={"sampled_through_sequence": 1})
    log.say(40, "assistant", "c", metadata={"sampled_through_sequence": 3})
    log.record(50)
    first, second = read(log)
    assert (texts(second), first.usage.input_tokens, second.usage.input_tokens) == (
        ["hi", "a", "b"],
        None,
        100,
    )
    assert second.request_ns - T0 == 30 * MS


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("hi", ["You are Codex, base", "hi"]),
        ("You are Codex, base", ["You are Codex, base"]),
    ],
)
def test_base_instructions_stand_first_unless_the_conversation_has_them(first, expected):
    log = Log(base_instructions={"text": "You are Codex, base"})
    log.say(10, "developer", first)
    log.say(20, "assistant", "a")
    log.record(30)
    assert texts(read(log)[0]) == expected


def test_a_conversation_that_lists_its_tools_is_whole():
    log = Log(base_instructions={"text": "base"})
    log.add("response_item", 5, type="additional_tools", role="developer", tools=[{"name": "exec"}])
    log.say(20, "assistant", "a")
    log.record(30)
    (call,) = read(log)
    assert (call.is_whole, [part.type for part in call.parts]) == (True, ["tool_definition"])


@pytest.mark.parametrize("kind", ["exec_command_end", "item_completed"])
def test_run_times_of_commands_are_told_by_events(kind):
    log = Log()
    log.say(10, "user", "hi")
    log.tool(20, "c")
    log.record(25)
    length = {"secs": 1, "nanos": 5}
    item = {"type": "CommandExecution", "id": "c", "duration": length}
    log.add("event_msg", 30, type=kind, call_id="c", duration=length, item=item)
    log.add(
        "event_msg", 31, type="item_completed", item={"type": "AgentMessage", "id": "c", "duration": length}
    )
    log.add("event_msg", 32, type="exec_command_end", call_id="c", duration={"secs": "1"})
    log.output(40, "c", "Wall time: 9.0 seconds")
    assert [t.duration_ns for t in read(log)[0].tool_calls] == [10**9 + 5]


def test_a_compaction_replaces_the_conversation_and_its_call_is_the_one_before():
    log = Log()
    log.say(10, "user", "hi")
    log.say(20, "assistant", "a")
    log.record(25)
    log.say(30, "assistant", "the summary")
    log.record(35)
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "short"}]}, 7]
    log.add("compacted", 40, message="short", replacement_history=items)
    log.say(50, "assistant", "b")
    log.record(55)
    calls = read(log)
    assert [c.identity.call_class for c in calls] == ["main", "compaction", "main"]
    assert [c.identity.is_window_start for c in calls] == [False, False, True]
    assert (texts(calls[2]), calls[2].request_ns - T0) == (["short"], 40 * MS)


def test_a_summary_that_is_kept_elsewhere_is_a_call_by_its_usage_alone():
    log = Log()
    log.say(10, "user", "hi")
    log.say(20, "assistant", "a")
    log.record(25)
    log.record(35, 90)
    log.add("compacted", 40, message="short")
    log.say(50, "assistant", "b")
    log.record(55)
    calls = read(log)
    assert [c.identity.call_class for c in calls] == ["main", "compaction", "main"]
    assert (texts(calls[1]), texts(calls[2])) == (["hi", "a"], ["short"])


def test_a_compaction_long_after_an_answer_is_not_its_work():
    log = Log()
    log.say(10, "user", "hi")
    log.say(20, "assistant", "a")
    log.record(25)
    log.say(30, "user", "compact please")
    log.add("compacted", 40, message="short")
    assert [c.identity.call_class for c in read(log)] == ["main"]


def test_the_calls_of_one_prompt_share_the_root_turn():
    log = Log()
    log.turn(5, "t1", root_turn_id="r1")
    log.say(10, "user", "hi")
    log.say(20, "assistant", "a")
    log.record(25)
    log.add("event_msg", 30, type="task_complete")
    log.add("event_msg", 40, type="task_started", turn_id="t2", turn_attribution={"root_turn_id": "r2"})
    log.say(50, "assistant", "b")
    log.add("event_msg", 60, type="turn_aborted", turn_id="t2")
    log.add("event_msg", 61, type="turn_aborted", turn_id="t2")
    calls = read(log)
    assert [c.identity.prompt_id for c in calls] == ["r1", "r2"]
    assert [(c.outcome.error, c.outcome.ended_by) for c in calls] == [
        (None, "server"),
        ("client_abort", "client"),
    ]


def copied(child):
    """What a forked sub-agent repeats of its parent."""
    child.add("session_meta", 100, id="root")
    child.turn(100, "t1")
    child.say(100, "user", "hi")
    child.say(100, "assistant", "go")
    child.tool(100, "c1", "spawn_agent")


def family(**meta):
    root = Log()
    root.turn(5, "t1")
    root.say(10, "user", "hi")
    root.say(20, "assistant", "go")
    root.tool(30, "c1", "spawn_agent")
    root.record(35)
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "root", "agent_role": "explorer"}}}
    child = Log("child", source=spawn, **meta)
    copied(child)
    child.turn(110, "t2", root_turn_id="t1")
    child.say(120, "user", "task")
    child.say(200, "assistant", "done")
    child.record(210)
    return root, child


@pytest.mark.parametrize(
    "meta", [{"forked_from_id": "root", "subagent_history_start_ordinal": 7}, {"forked_from_id": "root"}, {}]
)
def test_a_sub_agent_that_begins_with_a_copy_has_calls_of_its_own_only(meta):
    calls = read(*family(**meta))
    assert [(c.identity.session, c.identity.parent, c.identity.root, c.identity.agent) for c in calls] == [
        ("root", None, "root", None),
        ("child", "root", "root", "explorer"),
    ]
    assert [c.identity.call_class for c in calls] == ["main", "subagent"]
    # Codex answers a tool call that its copy leaves open.
    assert [part.text for part in calls[1].parts if part.type != "tool_use"] == [
        "hi",
        "go",
        "aborted",
        "task",
    ]
    assert calls[1].identity.prompt_id == "t1"


def test_a_fork_of_another_tree_is_told_by_the_turns_of_its_origin():
    root, _ = family()
    fork = Log("fork", forked_from_id="root")
    copied(fork)
    fork.add("compacted", 105, message="short")
    fork.turn(110, "t2")
    fork.say(200, "assistant", "done")
    fork.record(210)
    calls = read(fork, origins=[root])
    assert [(c.identity.session, c.identity.parent, texts(c)) for c in calls] == [("fork", None, ["short"])]


def test_usage_inside_a_copy_is_no_call():
    log = Log("child", subagent_history_start_ordinal=3, source={"subagent": "review"})
    log.say(10, "assistant", "a", ordinal=None)
    log.record(20)
    log.say(30, "assistant", "b")
    log.record(40)
    calls = read(log)
    assert [(texts(c), c.identity.call_class) for c in calls] == [(["a"], "subagent")]


def test_threads_beside_the_conversation_are_auxiliary():
    log = Log(thread_source="thread_title")
    log.say(20, "assistant", "a")
    log.record(30)
    assert [c.identity.call_class for c in read(log)] == ["auxiliary"]


def test_the_root_is_found_through_the_parents_as_far_as_they_are_known():
    def thread(key, parent, **meta):
        spawn = {"subagent": {"thread_spawn": {"parent_thread_id": parent}}} if parent else "cli"
        row = {"type": "session_meta", "timestamp": "", "payload": {"id": key, "source": spawn, **meta}}
        return thread_from_rows([("p", row)], lambda _: ())

    threads = {
        t.id: t
        for t in (thread("a", None), thread("b", "a"), thread("c", "b"), thread("x", "y"), thread("l", "l"))
    }
    assert [root_of(threads[key], threads) for key in "abcxl"] == ["a", "a", "a", "y", "l"]
    assert root_of(thread("z", "y", session_id="top"), {}) == "top"


@pytest.mark.parametrize(
    "rows", [[], [("p", {"type": "event_msg"})], [("p", {"type": "session_meta", "payload": {}})]]
)
def test_a_file_without_its_first_line_is_no_rollout(rows):
    assert thread_from_rows(rows, lambda _: rows) is None


def test_turns_are_all_that_a_file_names():
    root, child = family()
    assert (turns_of(thread(root.rows)), turns_of(thread(child.rows))) == (
        {"t1"},
        {"t1", "t2"},
    )


def test_kinds_of_line_that_are_not_known_are_noted():
    log = Log()
    log.add("world_state", 5)
    log.add("hologram", 6)
    log.add("event_msg", 7, type="hologram")
    reading = HistoryReading()
    read(log, reading=reading)
    assert [(r.kind, r.count) for r in reading.tally.summary("codex").remarks] == [("unknown_line", 1)]


def noted(reading):
    return {r.kind: r.count for r in reading.tally.remarks}


def test_a_number_that_cannot_be_is_not_known_and_noted():
    log = Log()
    log.tool(20, "c")
    log.record(30, tokens=-5)
    log.add("event_msg", 40, type="exec_command_end", call_id="c", duration={"secs": 2**40, "nanos": 0})
    log.add("event_msg", 40, type="exec_command_end", call_id="c", duration={"secs": 1, "nanos": -1})
    reading = HistoryReading()
    (call,) = read(log, reading=reading)
    assert (call.usage.input_tokens, call.usage.output_tokens) == (None, 7)
    assert call.tool_calls[0].duration_ns is None
    assert noted(reading) == {"odd_value": 3}


def test_a_line_without_a_possible_time_counts_as_written_with_the_one_before():
    log = Log()
    log.say(10, "user", "hi")
    log.say(20, "user", "more", timestamp="soon")
    log.say(100, "assistant", "a")
    log.record(110)
    reading = HistoryReading()
    (call,) = read(log, reading=reading)
    assert (texts(call), call.request_ns - T0, noted(reading)) == (["hi", "more"], 10 * MS, {"odd_time": 1})


def test_a_line_that_no_time_went_before_is_passed_over():
    log = Log()
    log.rows[0][1]["timestamp"] = None
    log.say(10, "user", "hi", timestamp=None)
    log.say(20, "user", "more")
    log.say(100, "assistant", "a")
    reading = HistoryReading()
    assert [texts(call) for call in read(log, reading=reading)] == [["more"]]
    assert noted(reading) == {"odd_time": 2}


def test_kinds_that_are_no_words_are_noted():
    log = Log(thread_source=["x"])
    log.say(10, "user", "hi")
    log.add(["response_item"], 20)
    log.say(100, "assistant", "a")
    reading = HistoryReading()
    assert ([c.identity.call_class for c in read(log, reading=reading)], noted(reading)) == (
        ["main"],
        {"unknown_line": 1},
    )


def test_a_clock_that_is_set_back_does_not_put_the_calls_in_another_order():
    log = Log()
    for ms in (20_000, 3_000):
        log.say(ms, "user", "hi")
        log.say(ms + 1000, "assistant", "a")
        log.record(ms + 1000)
    reading = HistoryReading()
    assert [(c.request_ns - T0) // MS for c in read(log, reading=reading)] == [20_000, 21_000]
    assert noted(reading) == {"clock_set_back": 1}


def test_ids_of_tool_calls_are_told_where_there_are_any():
    log = Log()
    log.tool(20, "c")
    log.add("response_item", 30, type="web_search_call")
    log.record(40)
    (call,) = read(log)
    assert (call.tool_ids, [tool.name for tool in call.tool_calls]) == (
        ("c", None),
        ["exec", "web_search_call"],
    )
