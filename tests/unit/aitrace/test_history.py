from itertools import chain

import pytest

from aitrace.assembly import Assembler
from aitrace.errors import InputError
from aitrace.formats.format import Tally
from aitrace.formats.history import (
    HistoryCall,
    HistoryImporter,
    HistoryReading,
    HistorySurvey,
    moments,
    without_steps_back,
)
from aitrace.harnesses.detector import Identity
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import Call, Outcome, Segment, Session, ToolCall, Update, Usage
from aitrace.testing import find_problems

T0 = 1_772_618_400 * 10**9
S = 10**9


def part(text, role="user", kind="text", tool_id=None):
    name = "Agent" if kind == "tool_use" else None
    return RequestPart(role=role, type=kind, text=text, tool_id=tool_id, tool_name=name)


def call(start, end, history=None, session="s", **fields):
    history = [part("hi")] if history is None else history
    defaults = {
        "place": "a:1",
        "identity": Identity(harness="claude-code", session=session, root="s", call_class="main"),
        "protocol": "anthropic",
        "model": "claude-opus-4-5",
        "history": history,
        "length": len(history),
        "is_whole": True,
        "request_ns": T0 + start,
        "is_request_told": True,
        "end_ns": None if end is None else T0 + end,
        "outcome": Outcome(finish="end_turn"),
        "usage": Usage(input_tokens=100, output_tokens=9),
        "max_output_tokens": 1000,
    }
    return HistoryCall(**{**defaults, **fields})


def converted(calls, source="claude-code"):
    survey = HistorySurvey(source)
    for one in calls:
        survey.add(one)
    importer = HistoryImporter(
        source, Assembler(b"k" * 32, block_size=256), origin_ns=survey.origin_ns, reading=HistoryReading()
    )
    header = survey.header(producer="aitrace 0 convert", attribution=None)
    return [header, *importer.lines(calls)], importer.summary()


def calls_of(lines):
    return [line for line in lines if isinstance(line, Call)]


def test_the_prompt_is_the_start_of_a_history_that_grows_on():
    history = [part("a"), part("b")]
    one = call(0, S, history, length=1)
    history.append(part("c"))
    assert [p.text for p in one.parts] == ["a"]


def test_at_one_moment_ends_go_before_beginnings():
    assert moments([call(0, S), call(S, 2 * S)]) == [(0, False), (0, True), (1, False), (1, True)]


def test_a_call_without_length_begins_before_it_ends_and_one_without_answer_has_no_end():
    assert moments([call(0, 0), call(0, None)]) == [(0, False), (0, True), (1, False)]
    assert moments([call(S, 0)]) == [(0, False), (0, True)]


def test_the_lines_are_whole_calls_in_a_valid_trace():
    history = [part("hi"), part("{}", "assistant", "tool_use", "t"), part("ok", "tool", "tool_result", "t")]
    tool = ToolCall(name="Bash", end_ns=T0 + S, duration_ns=S // 2)
    lines, summary = converted([call(0, S, history[:1], tool_calls=(tool,)), call(2 * S, 3 * S, history)])
    assert not any(isinstance(line, Update) for line in lines)
    first, second = calls_of(lines)
    assert (first.outcome.finish, first.times.end_ns, first.tool_calls[0].end_ns) == ("end_turn", S, S)
    assert [(wait.gap_ns, wait.cause) for wait in second.after] == [(S, "tool")]
    assert [f for f in find_problems(enumerate(lines, 1)) if f.severity == "error"] == []
    assert (summary.calls, summary.sessions, summary.trees, summary.input_tokens) == (2, 1, 1, 200)


def test_the_clock_starts_with_the_first_call():
    lines, _ = converted([call(5 * S, 6 * S), call(2 * S, 3 * S, session="other")])
    assert lines[0].clock_unix_ns == T0 + 2 * S
    assert sorted(c.times.request_ns for c in calls_of(lines)) == [0, 3 * S]


def test_a_call_that_nothing_answered_stays_unrecorded():
    lines, _ = converted([call(0, None, outcome=Outcome(error="unrecorded", ended_by="recorder"))])
    assert [(c.outcome.error, c.times.end_ns) for c in calls_of(lines)] == [("unrecorded", None)]


def test_an_answer_that_ends_before_its_request_ends_with_it_and_is_noted():
    lines, summary = converted([call(S, 0)])
    assert [c.times.end_ns for c in calls_of(lines)] == [0]
    assert [(r.kind, r.first_place) for r in summary.remarks] == [("end_before_start", "a:1")]


@pytest.mark.parametrize("at", [-S, 2 * S, None])
def test_a_tool_call_that_ended_outside_of_its_answer_has_no_time(at):
    tool = ToolCall(name="Bash", end_ns=None if at is None else T0 + at)
    lines, _ = converted([call(0, S, tool_calls=(tool,))])
    assert calls_of(lines)[0].tool_calls[0].end_ns is None


def test_a_prompt_without_system_prompt_has_an_unseen_start():
    lines, _ = converted([call(0, S, is_whole=False)])
    assert calls_of(lines)[0].prompt.unseen_start


def test_the_header_says_what_is_not_known():
    known, _ = converted([call(0, S)])
    less, _ = converted(
        [
            call(0, S),
            call(S, 2 * S, is_whole=False, is_request_told=False, max_output_tokens=None, usage=Usage()),
        ]
    )
    assert known[0].source == "claude-code-history"
    extra = [sentence for sentence in less[0].unknown if "1 of 2" in sentence]
    assert len(extra) == 4
    assert set(known[0].unknown) - {"first token of 1 of 1 calls"} < set(less[0].unknown)
    assert any("refused attempts" in sentence for sentence in less[0].unknown)


def test_rules_of_the_protocol_and_the_harness_are_named():
    codex, _ = converted([call(0, S)], "codex")
    opencode, _ = converted([call(0, S)], "opencode")
    claude, _ = converted([call(0, S)])
    assert all(rule.startswith("responses/") for rule in codex[0].normalised)
    assert opencode[0].normalised == ()
    assert {rule.split("/")[0] for rule in claude[0].normalised} == {"anthropic", "claude-code"}


def test_no_call_is_refused():
    with pytest.raises(InputError, match="holds no call"):
        HistorySurvey("codex").header(producer="aitrace 0", attribution=None)


def test_sub_agents_resets_and_retries_are_counted():
    child = Identity(harness="claude-code", session="c", parent="s", root="s", call_class="subagent")
    spawn = ToolCall(name="Agent", end_ns=T0 + S)
    history = [part("hi"), part("{}", "assistant", "tool_use", "t"), part("done", "tool", "tool_result", "t")]
    again = Identity(harness="claude-code", session="s", root="s", call_class="main", is_window_start=True)
    calls = [
        call(0, S, history[:1], tool_calls=(spawn,)),
        call(S, 2 * S, [part("task")], identity=child),
        call(3 * S, 4 * S, history, outcome=Outcome(status=529, error="refused")),
        call(5 * S, 6 * S, history),
        call(7 * S, 8 * S, [part("summary")], identity=again),
    ]
    lines, summary = converted(calls)
    assert [line.parent for line in lines if isinstance(line, Session)] == [None, 0]
    assert (summary.forks, summary.joins, summary.background_children) == (1, 1, 0)
    assert (summary.resets, summary.retries) == (1, 1)


def test_blocks_and_segments_are_those_of_the_lines():
    lines, summary = converted([call(0, S, [part("x" * 600), part("y")])])
    segments = [line for line in lines if isinstance(line, Segment)]
    assert (summary.segments, summary.blocks) == (2, 4)
    assert max(first + count for first, count in chain(*(s.blocks for s in segments))) == summary.blocks


def test_what_the_harness_says_in_the_users_name_was_not_typed():
    one = Identity(harness="claude-code", session="s", root="s", call_class="main")
    history = [part("hi"), part("ok", "assistant"), part("<system-reminder>now</system-reminder>")]
    calls = [call(0, S, history[:1], identity=one), call(2 * S, 3 * S, history, identity=one)]
    first, second = calls_of(converted(calls)[0])
    assert (first.turn, second.turn, [wait.cause for wait in second.after]) == (0, 0, ["harness"])


def test_typed_texts_are_those_of_each_prompt_though_the_history_is_shared():
    one = Identity(harness="claude-code", session="s", root="s", call_class="main")
    history = [part("hi"), part("ok", "assistant"), part("more")]
    calls = [call(4 * S, 5 * S, history, identity=one), call(0, S, history, length=1, identity=one)]
    later, earlier = sorted(calls_of(converted(calls)[0]), key=lambda c: -c.times.request_ns)
    assert (earlier.turn, later.turn, [wait.cause for wait in later.after]) == (0, 1, ["user"])


def moved(*times):
    tally = Tally()
    calls = without_steps_back([call(*pair, tool_calls=(ToolCall(name="x"),)) for pair in times], tally)
    found = [((c.request_ns - T0) // S, None if c.end_ns is None else (c.end_ns - T0) // S) for c in calls]
    return found, [(r.kind, r.count) for r in tally.remarks]


def test_calls_in_order_stay_where_they_are():
    times = [(0, S), (2 * S, 3 * S), (3 * S, 3 * S - S // 2), (4 * S, None)]
    assert moved(*times) == ([(0, 1), (2, 3), (3, 2), (4, None)], [])


def test_after_a_step_back_calls_follow_each_other_until_the_clock_is_right_again():
    times = [(50 * S, 60 * S), (10 * S, 20 * S), (25 * S, 30 * S), (31 * S, None), (90 * S, 95 * S)]
    expected = [(50, 60), (60, 70), (75, 80), (81, None), (90, 95)]
    assert moved(*times) == (expected, [("clock_set_back", 1)])


def test_two_steps_back_are_two():
    assert moved((50 * S, 60 * S), (30 * S, 40 * S), (10 * S, 12 * S)) == (
        [(50, 60), (60, 70), (70, 72)],
        [("clock_set_back", 2)],
    )


def test_that_there_is_no_call_comes_with_what_was_passed_over():
    tally = Tally()
    tally.remark("damaged_line", "a line is cut", "a:7")
    with pytest.raises(InputError, match=r"holds no call; a line is cut \(first: a:7\)"):
        HistorySurvey("codex").header(producer="aitrace 0", attribution=None, remarks=tally.remarks)


def test_a_sub_agent_is_started_by_the_call_whose_tool_call_the_source_names():
    def spawning(start, tool_id, *history):
        answer = {"tool_calls": (ToolCall(name="Agent", end_ns=T0 + start),), "tool_ids": (tool_id,)}
        return call(start, start + S, [part("hi"), *history], **answer)

    def child(start, key, tool_id):
        one = Identity(harness="claude-code", session=key, parent="s", root="s", call_class="subagent")
        return call(start, start + S, [part("task")], identity=one, spawned_by=tool_id)

    said = [part("{}", "assistant", "tool_use", "t1"), part("on its way", "tool", "tool_result", "t1")]
    calls = [
        spawning(0, "t1"),
        spawning(2 * S, "t2", *said),
        child(4 * S, "a", "t1"),
        child(6 * S, "b", "t2"),
    ]
    found = {c.id: c for c in calls_of(converted(calls)[0])}
    assert [[(w.relation, w.call) for w in found[number].after] for number in (2, 3)] == [
        [("spawn", 0)],
        [("spawn", 1)],
    ]


def test_a_call_that_is_moved_may_have_no_tool_calls_told():
    calls = [call(50 * S, 60 * S), call(10 * S, 20 * S, tool_calls=None)]
    assert [c.tool_calls for c in without_steps_back(calls, Tally())][1] is None
