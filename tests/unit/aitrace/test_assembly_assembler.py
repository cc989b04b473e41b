"""Shapes of real clients: times and orders as they were seen on the wire, texts made up."""

import dataclasses

import pytest

from aitrace.assembly import Answer, Ask, Assembler
from aitrace.codec import decode_line, encode_line
from aitrace.harnesses.detector import Identity
from aitrace.no_text import find_text
from aitrace.prompts import PromptResolver
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import (
    Call,
    CallTimes,
    Dependency,
    Events,
    Footer,
    Header,
    Outcome,
    Prompt,
    Segment,
    Session,
    ToolCall,
    Update,
    Usage,
    Wire,
)
from aitrace.updates import updated_call
from aitrace.validate import TraceRules

OWN = {field.name for field in dataclasses.fields(Ask)}


def part(written):
    """A part from `kind:text`; `use:id/name` and `got:id` are a tool call and its result."""
    kind, _, text = written.partition(":")
    match kind:
        case "tools":
            return RequestPart(role="system", type="tool_definition", text=text)
        case "sys":
            return RequestPart(role="system", type="system", text=text)
        case "ask" | "auto":
            return RequestPart(role="user", type="text", text=text)
        case "say":
            return RequestPart(role="assistant", type="text", text=text)
        case "use":
            tool_id, _, name = text.partition("/")
            return RequestPart(role="assistant", type="tool_use", text=text, tool_id=tool_id, tool_name=name)
        case "got":
            return RequestPart(role="tool", type="tool_result", text=text, tool_id=text)
    raise AssertionError(kind)


class Recording:
    """Drives an assembler and checks every line that comes out; times are numbers that mean nothing."""

    def __init__(self, **options):
        self.assembler = Assembler(b"key", **options)
        self.rules = TraceRules()
        self.lines = []
        self.calls = []
        self._check(
            [Header(producer="test", unit="bytes", block_size=256, privacy="hash")],
        )

    def begin(self, at_ns, session, prompt, **fields):
        """Asks; fields of an `Ask` or of an `Identity`."""
        written = prompt.split()
        identity = {
            "harness": "claude-code",
            "session": session,
            "root": None if session is None else session.split("/")[0],
            "parent": None if session is None or "/" not in session else session.rpartition("/")[0],
            **{name: value for name, value in fields.items() if name not in OWN},
        }
        ask = {
            "identity": Identity(**identity),
            "protocol": "anthropic",
            "model": "opus",
            "parts": tuple(part(text) for text in written),
            "typed": tuple(place for place, text in enumerate(written) if text.startswith("ask:")),
            "streamed": True,
            "request_ns": at_ns,
            **{name: value for name, value in fields.items() if name in OWN},
        }
        call, lines = self.assembler.begin(Ask(**ask))
        assert isinstance(lines[-1], Call)
        self._check(lines)
        return call

    def end(self, call, at_ns, *tools, error=None, ids=None, **fields):
        """Answers; tools as `id/name`."""
        pairs = [tool.partition("/") for tool in tools]
        answer = {
            "outcome": Outcome(status=200, error=error),
            "times": CallTimes(request_ns=self.calls[call].times.request_ns, end_ns=at_ns),
            "tool_calls": None if error else tuple(ToolCall(name=name) for _, _, name in pairs),
            "tool_ids": tuple(tool_id for tool_id, _, _ in pairs) if ids is None else ids,
            **fields,
        }
        lines = self.assembler.end(call, Answer(**answer))
        self._check(lines)
        return lines

    def call(self, at_ns, session, prompt, end_ns, *tools, error=None, **fields):
        """A whole call."""
        call = self.begin(at_ns, session, prompt, **fields)
        self.end(call, end_ns, *tools, error=error)
        return call

    def after(self, call):
        return [
            (wait.call, wait.relation, wait.trigger, wait.gap_ns, wait.cause)
            for wait in self.calls[call].after
        ]

    def of(self, kind):
        return [line for line in self.lines if isinstance(line, kind)]

    def _check(self, lines):
        for line in lines:
            number = len(self.lines) + 1
            assert [f for f in self.rules.check(number, line) if f.severity == "error"] == []
            assert list(find_text(number, encode_line(line))) == []
            self.lines.append(line)
            if isinstance(line, Call):
                self.calls.append(line)
            elif isinstance(line, Update):
                self.calls[line.call] = updated_call(self.calls[line.call], line)


def test_a_call_is_written_when_it_begins_and_completed_when_it_ends():
    recording = Recording()
    call = recording.begin(
        5,
        "s1",
        "sys:s ask:hi",
        max_output_tokens=9,
        wire=Wire(transport="h2", connection=0),
        version="2.1",
        evidence=("claude-code/session-header",),
    )
    begun = recording.calls[call]
    assert begun == Call(
        id=0,
        session=0,
        turn=0,
        call_class="main",
        protocol="anthropic",
        model="opus",
        prompt=Prompt(add=(0, 1)),
        max_output_tokens=9,
        streamed=True,
        tool_results=0,
        outcome=Outcome(error="unrecorded", ended_by="recorder"),
        times=CallTimes(request_ns=5),
        wire=Wire(transport="h2", connection=0),
    )
    (update,) = recording.end(
        call,
        9,
        "t1/Bash",
        usage=Usage(input_tokens=3),
        events=Events(at_ns=(7,), size_bytes=(1,)),
        wire=Wire(transport="h2", connection=0, response_bytes=4),
    )
    assert update == Update(
        call=0,
        usage=Usage(input_tokens=3),
        tool_calls=(ToolCall(name="Bash"),),
        outcome=Outcome(status=200),
        times=CallTimes(request_ns=5, end_ns=9),
        events=Events(at_ns=(7,), size_bytes=(1,)),
        wire=Wire(transport="h2", connection=0, response_bytes=4),
    )
    assert recording.of(Session) == [
        Session(
            id=0,
            root=0,
            harness="claude-code",
            harness_version="2.1",
            evidence=("claude-code/session-header",),
        )
    ]


@pytest.mark.parametrize(("limit", "written"), [(2**40, 2**40), (2**40 + 1, None), (2**70, None)])
def test_a_limit_that_no_trace_can_hold_is_none(limit, written):
    recording = Recording()
    call = recording.begin(0, "s1", "ask:hi", max_output_tokens=limit)
    assert decode_line(encode_line(recording.calls[call]), place="line").max_output_tokens == written


def test_the_times_of_an_answer_begin_with_the_request():
    recording = Recording()
    call = recording.begin(5, "s1", "ask:hi")
    (update,) = recording.assembler.end(
        call, Answer(outcome=Outcome(), times=CallTimes(request_ns=0, end_ns=7))
    )
    assert (update.times, update.usage, update.tool_calls) == (
        CallTimes(request_ns=5, end_ns=7),
        None,
        None,
    )


@pytest.mark.parametrize("call", [-1, 0, 1], ids=["negative", "ended", "not begun"])
def test_the_end_of_a_call_that_is_not_in_flight_is_our_error(call):
    recording = Recording()
    recording.call(0, "s1", "ask:hi", 1)
    answer = Answer(outcome=Outcome(), times=CallTimes(request_ns=0))
    with pytest.raises(ValueError, match=f"got {call}"):
        recording.assembler.end(call, answer)


def test_text_is_kept_only_where_asked_for():
    ask = Ask(
        identity=Identity(),
        protocol=None,
        model=None,
        parts=(RequestPart(role="user", type="text", text="hi"),),
        request_ns=0,
    )
    _, lines = Assembler(b"key", keep_text=True).begin(ask)
    assert [line.text for line in lines if isinstance(line, Segment)] == ["hi"]
    _, lines = Assembler(b"key").begin(ask)
    assert [line.text for line in lines if isinstance(line, Segment)] == [None]


def test_an_empty_prompt_of_nobody_is_a_call():
    recording = Recording()
    call = recording.begin(0, None, "", harness=None)
    assert recording.calls[call].prompt == Prompt()


# Chains


def test_a_tool_loop_is_a_chain_of_completions():
    recording = Recording()
    recording.call(0, "s1", "tools:a sys:s ask:go", 10, "t1/Bash")
    second = recording.call(25, "s1", "tools:a sys:s ask:go use:t1/Bash got:t1", 30, "t2/Read", "t3/Read")
    third = recording.call(
        40, "s1", "tools:a sys:s ask:go use:t1/Bash got:t1 use:t2/Read use:t3/Read got:t2 got:t3", 50
    )
    assert recording.after(second) == [(0, "sequence", "completion", 15, "tool")]
    assert recording.after(third) == [(1, "sequence", "completion", 10, "tool")]
    assert [call.tool_results for call in recording.calls] == [0, 1, 2]
    assert recording.calls[third].prompt == Prompt(base=1, keep=5, add=(5, 6, 7, 8))


def test_a_next_prompt_is_the_users_gap_and_a_new_turn():
    recording = Recording()
    recording.call(0, "s1", "auto:reminder ask:go", 10)
    second = recording.call(500, "s1", "auto:reminder ask:go say:done ask:more", 510)
    assert recording.after(second) == [(0, "sequence", "completion", 490, "user")]
    assert [call.turn for call in recording.calls] == [0, 1]


def test_a_message_sent_while_tools_ran_is_neither_a_turn_nor_the_users_gap():
    """Claude Code puts it beside the results, with a line of its own before it; Codex keeps the turn's id."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Bash")
    second = recording.call(9000, "s1", "ask:go use:t1/Bash got:t1 auto:hurry", 9010)
    assert recording.after(second) == [(0, "sequence", "completion", 8990, "tool")]
    recording.call(0, "s2", "ask:go", 10, "t2/exec", harness="codex", prompt_id="p1")
    fourth = recording.call(9000, "s2", "ask:go use:t2/exec got:t2 ask:hurry", 9010, prompt_id="p1")
    assert recording.after(fourth) == [(2, "sequence", "completion", 8990, "tool")]
    assert [call.turn for call in recording.calls] == [0, 0, 0, 0]


def test_a_prompt_typed_after_tools_were_stopped_is_the_users_gap():
    """Claude Code and Codex after Ctrl-C while a tool runs: what became of it comes with the next prompt."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Bash")
    second = recording.call(9000, "s1", "ask:go use:t1/Bash got:t1 auto:interrupted say:none ask:more", 9010)
    assert recording.after(second) == [(0, "sequence", "completion", 8990, "user")]
    assert [call.turn for call in recording.calls] == [0, 1]


def test_what_an_unknown_client_says_beside_results_is_not_typed():
    recording = Recording()
    recording.call(0, None, "ask:go", 10, harness=None, typed=None)
    second = recording.call(20, None, "ask:go use:t1/x got:t1 ask:remember", 30, harness=None, typed=None)
    assert recording.after(second) == [(0, "sequence", "completion", 10, "tool")]
    assert recording.calls[second].turn == 0


def test_turns_go_by_the_harness_own_ids_where_it_tells_them():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Agent", prompt_id="p-one")
    recording.call(11, "s1/c", "ask:child", 12, prompt_id="p-one")
    recording.call(20, "s1", "ask:go use:t1/Agent got:t1", 30, prompt_id="p-one")
    recording.call(40, "s1", "ask:go use:t1/Agent got:t1 say:x ask:b", 50, prompt_id="p-two")
    recording.call(45, "s1", "ask:title", 47, prompt_id="p-two", call_class="auxiliary")
    recording.call(60, "s1", "ask:go use:t1/Agent got:t1 say:x ask:b", 70, prompt_id="p-one")
    assert [call.turn for call in recording.calls] == [0, 0, 0, 1, 1, 0]
    assert {"p-one", "p-two"} <= recording.assembler.names


def test_a_notification_begins_no_turn_though_the_harness_gives_it_an_id_of_its_own():
    """Claude Code in a terminal, when an agent in the background is done; without the ids it says the same."""
    added = ["ask:go", "use:t1/Agent got:t1", "say:x auto:done", "use:t2/Bash got:t2", "say:y ask:more"]
    for ids in (("p1", "p1", "p2", "p2", "p3"), (None,) * 5):
        recording = Recording()
        for number, prompt_id in enumerate(ids):
            prompt = " ".join(added[: number + 1])
            recording.call(100 * number, "s1", prompt, 100 * number + 10, prompt_id=prompt_id)
        assert [call.turn for call in recording.calls] == [0, 0, 0, 0, 1]


def test_a_summary_that_the_next_prompt_made_necessary_is_of_its_turn():
    """Codex compacts before it sends the prompt; the summary has the new turn's id."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, prompt_id="p1", harness="codex")
    recording.call(500, "s1", "ask:go say:x auto:summarise", 510, prompt_id="p2", call_class="compaction")
    recording.call(520, "s1", "auto:summary ask:more", 530, prompt_id="p2")
    assert [call.turn for call in recording.calls] == [0, 1, 1]
    assert [recording.after(call)[0][4] for call in (1, 2)] == ["user", "harness"]


def test_a_call_sent_before_the_answer_came_waits_for_the_dispatch():
    recording = Recording()
    recording.begin(0, "s1", "ask:go")
    second = recording.begin(7, "s1", "ask:go ask:more")
    assert recording.after(second) == [(0, "sequence", "dispatch", 7, "user")]


def test_an_answer_whose_end_is_not_known_is_timed_from_its_dispatch():
    """As histories of clients have it, which tell only when an answer was stored."""
    recording = Recording()
    first = recording.begin(0, "s1", "ask:go")
    recording.end(first, None, "t1/Bash")
    second = recording.begin(7, "s1", "ask:go use:t1/Bash got:t1")
    assert recording.after(second) == [(0, "sequence", "dispatch", 7, "tool")]


def test_an_unknown_client_has_unknown_gaps_but_for_tools_and_texts():
    recording = Recording()
    recording.call(0, None, "ask:go", 10, harness=None, typed=None)
    recording.call(20, None, "ask:go use:t1/x got:t1", 30, harness=None, typed=None)
    recording.call(40, None, "ask:go use:t1/x got:t1 say:y", 50, harness=None, typed=None)
    recording.call(60, None, "ask:go use:t1/x got:t1 say:y ask:z", 70, harness=None, typed=None)
    assert [call.after[0].cause for call in recording.calls[1:]] == ["tool", "unknown", "user"]
    assert [call.session for call in recording.calls] == [0, 0, 0, 0]


# Retries, cuts and aborts


def test_a_refused_call_is_repeated_after_its_backoff():
    """Claude Code after 529: 0.62 s, 1.07 s, the same body."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Bash")
    prompt = "ask:go use:t1/Bash got:t1"
    recording.call(20, "s1", prompt, 21, error="refused")
    recording.call(640, "s1", prompt, 641, error="refused")
    last = recording.call(1710, "s1", prompt, 1750)
    assert recording.after(2) == [(1, "retry", "completion", 619, "backoff")]
    assert recording.after(last) == [(2, "retry", "completion", 1069, "backoff")]
    assert [(call.attempt, call.retry_of) for call in recording.calls] == [
        (1, None),
        (1, None),
        (2, 1),
        (3, 2),
    ]
    assert [call.tool_results for call in recording.calls[1:]] == [1, 1, 1]
    assert {call.turn for call in recording.calls} == {0}
    assert {call.window for call in recording.calls} == {0}
    following = recording.begin(1760, "s1", prompt + " use:t2/Bash got:t2")
    assert recording.after(following) == [(last, "sequence", "completion", 10, "tool")]


def test_the_fallback_without_streaming_is_a_retry_that_nobody_backed_off_for():
    """Claude Code after an error event: at once, `stream: false`, a smaller limit."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, error="error_event", max_output_tokens=128000)
    second = recording.call(12, "s1", "ask:go", 30, streamed=False, max_output_tokens=64000)
    assert recording.after(second) == [(0, "retry", "completion", 2, "harness")]


def test_the_same_prompt_after_an_abort_is_a_retry():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, error="client_abort")
    second = recording.call(900, "s1", "ask:go", 910)
    assert recording.after(second) == [(0, "retry", "completion", 890, "harness")]


def test_the_same_prompt_after_a_good_answer_is_no_retry():
    """Claude Code asks for a summary a second time if the first one lacks its tags."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10)
    recording.call(20, "s1", "ask:go say:x auto:summarise", 30, call_class="compaction")
    again = recording.call(31, "s1", "ask:go say:x auto:summarise", 40, call_class="compaction")
    assert recording.after(1) == [(0, "sequence", "completion", 10, "user")]
    assert recording.after(again) == [(1, "sequence", "completion", 1, "harness")]
    assert recording.calls[again].attempt == 1


def test_the_same_prompt_while_the_first_is_in_flight_is_no_retry():
    recording = Recording()
    recording.begin(0, "s1", "ask:go")
    second = recording.begin(5, "s1", "ask:go")
    assert recording.after(second) == [(0, "sequence", "dispatch", 5, "harness")]


def test_a_cut_answer_that_stays_in_the_history_is_gone_on_with():
    """OpenCode keeps the partial text and asks again with it after 2.3 s."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, error="cut")
    second = recording.call(2310, "s1", "ask:go say:part", 2320)
    assert recording.after(second) == [(0, "sequence", "completion", 2300, "backoff")]
    assert (recording.calls[second].window, recording.calls[second].turn) == (0, 0)


def test_a_prompt_after_an_abort_is_the_users():
    """Claude Code resumes with the partial text and two lines of its own, then the new prompt."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, error="client_abort")
    second = recording.call(900, "s1", "ask:go say:part auto:interrupted say:none ask:again", 910)
    assert recording.after(second) == [(0, "sequence", "completion", 890, "user")]
    assert recording.calls[second].window == 0


def test_a_session_that_gave_up_goes_on_with_the_next_prompt():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, error="refused")
    recording.call(20, "s1", "ask:go", 30, error="refused")
    third = recording.call(900, "s1", "ask:go ask:again", 910)
    assert recording.after(third) == [(1, "sequence", "completion", 870, "user")]
    assert recording.calls[third].attempt == 1


def test_a_resumed_session_continues_its_chain():
    """A new process of Codex sends the whole history with the new prompt."""
    recording = Recording()
    recording.call(0, "s1", "sys:s auto:env ask:go", 10)
    second = recording.call(5000, "s1", "sys:s auto:env ask:go say:x ask:more", 5010)
    assert recording.after(second) == [(0, "sequence", "completion", 4990, "user")]
    assert recording.calls[second].window == 0


# Windows


def test_a_compaction_belongs_to_the_old_window_and_what_follows_to_a_new_one():
    """Claude Code: the history and an instruction; then five messages in its place, whose last pair is kept."""
    recording = Recording()
    recording.call(0, "s1", "sys:s ask:go", 10, "t1/Bash")
    summary = recording.call(
        20, "s1", "sys:s ask:go use:t1/Bash got:t1 auto:summarise", 30, call_class="compaction"
    )
    after = recording.call(31, "s1", "sys:s auto:summary use:t1/Bash got:t1", 40, "t2/Bash")
    recording.call(50, "s1", "sys:s auto:summary use:t1/Bash got:t1 use:t2/Bash got:t2", 60)
    assert recording.after(summary) == [(0, "sequence", "completion", 10, "tool")]
    assert recording.after(after) == [(1, "sequence", "completion", 1, "harness")]
    assert [call.window for call in recording.calls] == [0, 0, 1, 1]
    assert [call.tool_results for call in recording.calls] == [0, 1, 0, 1]
    assert [call.turn for call in recording.calls] == [0, 0, 0, 0]


def test_the_tools_before_a_compaction_that_does_not_carry_their_results_ran_before_it():
    """Claude Code: the summary is asked without the last answer; what follows tells how long its tools ran."""
    recording = Recording()
    first = recording.call(0, "s1", "sys:s ask:go", 10, "t1/Bash")
    summary = recording.call(20, "s1", "sys:s ask:go auto:summarise", 30, call_class="compaction")
    told = (("Bash", 7),)
    after = recording.call(31, "s1", "sys:s auto:summary use:t1/Bash got:t1", 40, tool_durations=told)
    assert recording.after(summary) == [(first, "sequence", "completion", 10, "tool")]
    assert recording.after(after) == [(summary, "sequence", "completion", 1, "harness")]
    assert [tool.duration_ns for tool in recording.calls[first].tool_calls] == [7]
    assert [call.tool_results for call in recording.calls] == [0, 0, 1]


def test_a_prompt_that_the_harness_says_again_after_a_compaction_is_not_the_users():
    """Codex repeats the user's words in the new history, in a message with others."""
    recording = Recording()
    recording.call(0, "s1", "sys:s ask:go", 10, prompt_id="p1")
    again = recording.call(20, "s1", "sys:s ask:summary-and-go", 30, prompt_id="p1")
    new = recording.call(40, "s1", "sys:s ask:summary-and-go say:x ask:next", 50, prompt_id="p2")
    assert recording.after(again) == [(0, "sequence", "completion", 10, "harness")]
    assert recording.after(new) == [(1, "sequence", "completion", 10, "user")]


def test_a_compaction_with_a_prompt_of_its_own_replaces_nothing_by_itself():
    """OpenCode flattens the history into one text; if that fails, the old history goes on."""
    recording = Recording()
    recording.call(0, "s1", "sys:s ask:go", 10)
    recording.call(20, "s1", "sys:other auto:all", 30, call_class="compaction", error="http_error")
    third = recording.call(40, "s1", "sys:s ask:go say:x ask:more", 50)
    assert [call.window for call in recording.calls] == [0, 0, 0]
    assert recording.after(third) == [(1, "sequence", "completion", 10, "user")]


def test_the_harness_word_on_a_new_window_counts_where_the_history_before_was_not_seen():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, is_window_start=True, unseen_start=True)
    recording.call(20, "s1", "ask:more", 30, is_window_start=True, unseen_start=True, error="refused")
    recording.call(40, "s1", "ask:more", 50, is_window_start=True, unseen_start=True)
    recording.call(60, "s1", "ask:new", 70, is_window_start=True)
    recording.call(80, "s1", "ask:newer", 90, is_window_start=True)
    assert [call.window for call in recording.calls] == [1, 2, 2, 3, 4]


def test_a_history_that_goes_on_is_no_new_window_whatever_the_harness_says():
    """Codex: the first answer after a compaction was stopped, so the next prompt has no answer in its history either."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10)
    recording.call(20, "s1", "auto:summary", 30, is_window_start=True, error="client_abort")
    recording.call(40, "s1", "auto:summary auto:aborted ask:more", 50, is_window_start=True)
    assert [call.window for call in recording.calls] == [0, 1, 1]


def test_a_compaction_seen_first_has_no_turn():
    recording = Recording()
    call = recording.call(0, "s1", "ask:go auto:summarise", 10, call_class="compaction")
    assert recording.calls[call].turn is None
    later = recording.call(20, "s1", "auto:summary ask:next", 30)
    assert (recording.calls[later].turn, recording.calls[later].window) == (0, 0)


def test_a_prompt_without_its_start_is_marked_and_continued():
    """Codex on a WebSocket that was open before the recording: `previous_response_id` names an answer nobody saw."""
    recording = Recording()
    recording.call(0, "s1", "got:t1", 10, unseen_start=True)
    second = recording.call(20, "s1", "got:t1 use:t2/exec got:t2", 30, unseen_start=True)
    assert [call.prompt.unseen_start for call in recording.calls] == [True, True]
    assert recording.calls[second].prompt == Prompt(base=0, keep=1, add=(1, 2), unseen_start=True)
    assert [call.window for call in recording.calls] == [0, 0]


# Auxiliary calls


def test_a_title_starts_the_tree_and_stays_beside_the_chain():
    """OpenCode: the title first, then the turn, in one session."""
    recording = Recording()
    title = recording.begin(0, "s1", "sys:title ask:go", call_class="auxiliary")
    first = recording.begin(3, "s1", "sys:s ask:go")
    recording.end(title, 20)
    recording.end(first, 30, "t1/bash")
    second = recording.begin(40, "s1", "sys:s ask:go use:t1/bash got:t1")
    assert recording.after(title) == []
    assert recording.after(first) == [(title, "sequence", "dispatch", 3, "harness")]
    assert recording.after(second) == [(first, "sequence", "completion", 10, "tool")]
    assert [call.call_class for call in recording.calls] == ["auxiliary", "main", "main"]
    assert [call.turn for call in recording.calls] == [0, 0, 0]
    assert [call.window for call in recording.calls] == [0, 0, 0]
    assert recording.calls[title].tool_results is None


@pytest.mark.parametrize("prompt_id", [None, "p1"])
def test_the_turn_of_a_title_is_that_of_the_first_prompt(prompt_id):
    recording = Recording()
    recording.call(0, "s1", "sys:title ask:go", 1, call_class="auxiliary")
    recording.call(2, "s1", "sys:s ask:go", 3, prompt_id=prompt_id)
    recording.call(4, "s1", "sys:title ask:again", 5, call_class="auxiliary")
    recording.call(6, "s1", "sys:s ask:go say:x ask:more", 7, prompt_id=prompt_id and "p2")
    assert [call.turn for call in recording.calls] == [0, 0, 0, 1]


def test_a_title_may_tell_the_prompt_that_it_is_about():
    """OpenCode towards its own provider."""
    recording = Recording()
    recording.call(0, "s1", "sys:title ask:go", 1, call_class="auxiliary", prompt_id="p1")
    recording.call(2, "s1", "sys:s ask:go", 3, prompt_id="p1")
    recording.call(4, "s1", "sys:title ask:more", 5, call_class="auxiliary", prompt_id="p2")
    recording.call(6, "s1", "sys:s ask:go say:x ask:more", 7, prompt_id="p2")
    assert [call.turn for call in recording.calls] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "fields",
    [{"call_class": "auxiliary", "max_output_tokens": 1}, {"call_class": "count_tokens"}],
    ids=["probe", "count"],
)
def test_a_probe_may_come_long_before_the_first_prompt(fields):
    """Claude Code asks for one token when it starts, to see whether the account may."""
    recording = Recording()
    probe = recording.call(0, "s1", "ask:quota", 5, **fields)
    first = recording.begin(9000, "s1", "sys:s ask:go")
    assert recording.after(first) == [(probe, "sequence", "dispatch", 9000, "user")]
    assert [call.turn for call in recording.calls] == [None, 0]


@pytest.mark.parametrize("head", ["", "tools:a"], ids=["nothing", "tools"])
def test_a_prompt_that_goes_on_from_a_warm_up_waits_for_it(head):
    """Codex on a WebSocket: the first request of a process names the empty answer to the one that warmed it up."""
    recording = Recording()
    warm = recording.call(0, "s1", head, 4, call_class="auxiliary")
    first = recording.call(5, "s1", f"{head} ask:go", 10)
    again = recording.call(500, "s1", head, 504, call_class="auxiliary")
    second = recording.call(505, "s1", f"{head} ask:go say:x ask:more", 510)
    third = recording.call(600, "s1", f"{head} ask:go say:x ask:more say:y ask:z", 610)
    assert recording.after(first) == [(warm, "sequence", "completion", 1, "user")]
    assert recording.after(again) == [(first, "sequence", "completion", 490, "user")]
    assert recording.after(second) == [
        (first, "sequence", "completion", 495, "user"),
        (again, "sequence", "completion", 1, "user"),
    ]
    assert recording.after(third) == [(second, "sequence", "completion", 90, "user")]


def test_counting_tokens_hangs_on_the_latest_call():
    """Claude Code `/context`: many at once."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10)
    one = recording.begin(20, "s1", "tools:a", call_class="count_tokens")
    two = recording.begin(21, "s1", "ask:go", call_class="count_tokens")
    recording.end(one, 25)
    main = recording.begin(50, "s1", "ask:go say:x ask:y")
    assert recording.after(one) == [(0, "sequence", "completion", 10, "user")]
    assert recording.after(two) == [(one, "sequence", "dispatch", 1, "harness")]
    assert recording.after(main) == [(0, "sequence", "completion", 40, "user")]


def test_an_auxiliary_call_that_failed_is_repeated_whatever_came_between():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10)
    title = recording.call(11, "s1", "ask:title", 12, call_class="auxiliary", error="refused")
    recording.call(15, "s1", "ask:go say:x ask:y", 20)
    again = recording.call(700, "s1", "ask:title", 710, call_class="auxiliary", error="refused")
    third = recording.call(900, "s1", "ask:title", 910, call_class="auxiliary")
    fourth = recording.call(950, "s1", "ask:title", 960, call_class="auxiliary")
    assert recording.after(again) == [(title, "retry", "completion", 688, "backoff")]
    assert recording.after(third) == [(again, "retry", "completion", 190, "backoff")]
    assert recording.after(fourth) == [(third, "sequence", "completion", 40, "harness")]


def test_a_prewarm_of_a_child_is_not_the_start_of_its_chain():
    """Codex on WebSockets opens one for each agent and warms it."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/spawn_agent")
    prewarm = recording.call(12, "s1/c", "tools:a", 14, call_class="auxiliary")
    first = recording.call(15, "s1/c", "tools:a ask:child", 30)
    assert recording.after(prewarm) == [(0, "spawn", "completion", 2, "harness")]
    assert recording.after(first) == [
        (0, "spawn", "completion", 5, "harness"),
        (prewarm, "sequence", "completion", 1, "harness"),
    ]


# Children


def test_two_blocking_children_and_a_grandchild():
    """Claude Code: two `Agent` calls in one answer, the second child asks a third agent."""
    recording = Recording()
    main = "sys:s ask:go"
    recording.call(0, "s1", main, 10, "t1/Agent", "t2/Agent")
    one = recording.begin(13, "s1/a", "sys:c ask:one", agent="general-purpose")
    two = recording.begin(14, "s1/b", "sys:c ask:two", agent="general-purpose")
    recording.end(one, 20, "t3/Bash")
    recording.end(two, 21, "t4/Agent")
    inner = recording.begin(23, "s1/b/d", "sys:c ask:three", root="s1")
    one_last = recording.call(30, "s1/a", "sys:c ask:one use:t3/Bash got:t3", 35)
    recording.end(inner, 40)
    two_last = recording.call(42, "s1/b", "sys:c ask:two use:t4/Agent got:t4", 50)
    back = recording.call(53, "s1", main + " use:t1/Agent use:t2/Agent got:t1 got:t2", 60)
    assert recording.after(one) == [(0, "spawn", "completion", 3, "harness")]
    assert recording.after(two) == [(0, "spawn", "completion", 4, "harness")]
    assert recording.after(inner) == [(two, "spawn", "completion", 2, "harness")]
    assert recording.after(two_last) == [
        (two, "sequence", "completion", 21, "tool"),
        (inner, "join", "completion", 2, "tool"),
    ]
    assert recording.after(back) == [
        (0, "sequence", "completion", 43, "tool"),
        (one_last, "join", "completion", 18, "tool"),
        (two_last, "join", "completion", 3, "tool"),
    ]
    assert [(s.id, s.parent, s.root) for s in recording.of(Session)] == [
        (0, None, 0),
        (1, 0, 0),
        (2, 0, 0),
        (3, 2, 0),
    ]
    assert [c.call_class for c in recording.calls] == ["main", *["subagent"] * 5, "main"]
    assert {call.turn for call in recording.calls} == {0}


def test_a_child_begins_while_the_answer_that_asks_for_it_streams():
    recording = Recording()
    main = recording.begin(0, "s1", "ask:go")
    child = recording.begin(8, "s1/a", "ask:one")
    recording.end(main, 10, "t1/Agent", "t2/Bash")
    assert recording.after(child) == [(main, "spawn", "completion", None, "harness")]
    recording.end(child, 20)
    back = recording.begin(22, "s1", "ask:go use:t1/Agent use:t2/Bash got:t1 got:t2")
    assert (child, "join", "completion", 2, "tool") in recording.after(back)


def test_a_child_that_goes_on_after_a_compaction_is_not_joined_by_it():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Agent")
    recording.call(12, "s1/a", "ask:one", 20)
    recording.call(22, "s1/a", "ask:one auto:summarise", 30, call_class="compaction")
    back = recording.begin(40, "s1", "ask:go use:t1/Agent got:t1 auto:reminder")
    assert recording.after(back) == [(0, "sequence", "completion", 30, "tool")]


def test_a_child_in_the_background_is_joined_by_the_wait():
    """Codex, as measured: `spawn_agent` comes back at once, and the parent's next call is sent before the child's
    first. The child's prompt begins with all of the parent's. `wait_agent` returns when the child is done.
    """
    recording = Recording()
    ask = "sys:s ask:go"
    spawn = recording.call(4492, "s1", ask, 4815, "t1/spawn_agent", harness="codex")
    ask += " use:t1/spawn_agent got:t1"
    parent = recording.begin(4962, "s1", ask, harness="codex")
    child = recording.begin(4977, "s1/c", "sys:s ask:go auto:task", harness="codex")
    recording.end(child, 5248, "t2/exec")
    recording.end(parent, 5279, "t3/wait_agent")
    recording.call(6333, "s1/c", "sys:s ask:go auto:task use:t2/exec got:t2", 6597, "t4/exec")
    last = recording.call(6723, "s1/c", "sys:s ask:go auto:task use:t2/exec got:t2 use:t4/exec got:t4", 6987)
    ask += " use:t3/wait_agent got:t3 auto:done"
    waited = recording.begin(7060, "s1", ask, harness="codex")
    assert recording.after(parent) == [(spawn, "sequence", "completion", 147, "tool")]
    assert recording.after(child) == [(spawn, "spawn", "completion", 162, "harness")]
    assert recording.calls[child].prompt == Prompt(base=0, keep=2, add=(4,))
    assert recording.after(waited) == [
        (parent, "sequence", "completion", 1781, "tool"),
        (last, "join", "completion", 73, "tool"),
    ]


def test_a_child_in_the_background_is_joined_by_a_notification():
    """Claude Code in a terminal: the turn ends, and the child's end comes as a prompt that nobody typed."""
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Agent")
    recording.begin(12, "s1/a", "ask:one")
    parent = recording.call(13, "s1", "ask:go use:t1/Agent got:t1", 20)
    recording.end(1, 30)
    typed = recording.call(40, "s1", "ask:go use:t1/Agent got:t1 say:x ask:y", 50)
    told = recording.call(60, "s1", "ask:go use:t1/Agent got:t1 say:x ask:y say:z auto:done", 70)
    assert recording.after(parent) == [(0, "sequence", "completion", 3, "tool")]
    assert recording.after(typed) == [(parent, "sequence", "completion", 20, "user")]
    assert recording.after(told) == [
        (typed, "sequence", "completion", 10, "harness"),
        (1, "join", "completion", 30, "harness"),
    ]
    assert recording.calls[told].turn == 1


def test_a_child_that_is_asked_again_is_joined_again():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Agent")
    recording.call(12, "s1/a", "ask:one", 20)
    recording.call(22, "s1", "ask:go use:t1/Agent got:t1", 30, "t2/SendMessage")
    again = recording.call(35, "s1/a", "ask:one say:x auto:more", 40)
    prompt = "ask:go use:t1/Agent got:t1 use:t2/SendMessage got:t2"
    recording.call(45, "s1", prompt, 50)
    told = recording.call(60, "s1", prompt + " say:y auto:done", 70)
    assert recording.after(again) == [(1, "sequence", "completion", 15, "harness")]
    assert recording.after(told)[1:] == [(again, "join", "completion", 20, "harness")]


def test_a_child_that_failed_is_joined_all_the_same():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Agent")
    recording.call(12, "s1/a", "ask:one", 20, error="refused")
    lost = recording.call(25, "s1/a", "ask:one", 30, error="refused")
    back = recording.begin(40, "s1", "ask:go use:t1/Agent got:t1")
    assert recording.after(back)[1:] == [(lost, "join", "completion", 10, "tool")]


def test_a_retry_of_the_call_that_joins_waits_for_the_failure_alone():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Agent")
    recording.call(12, "s1/a", "ask:one", 20)
    recording.call(22, "s1", "ask:go use:t1/Agent got:t1", 23, error="refused")
    again = recording.call(50, "s1", "ask:go use:t1/Agent got:t1", 60)
    assert recording.after(again) == [(2, "retry", "completion", 27, "backoff")]


def test_a_child_whose_parent_makes_no_call_starts_the_tree():
    recording = Recording()
    child = recording.call(0, "s1/a", "ask:one", 10)
    parent = recording.call(20, "s1", "ask:go", 30)
    assert (recording.after(child), recording.after(parent)) == (
        [],
        [(child, "join", "completion", 10, "user")],
    )
    assert recording.calls[child].turn is None
    assert [(s.id, s.parent) for s in recording.of(Session)] == [(0, None), (1, 0)]


def test_ids_that_keys_are_made_of_are_remembered_too():
    recording = Recording()
    recording.call(0, "s1/agent-7", "ask:one", 10, more_ids=("agent-7",))
    assert {"s1/agent-7", "s1", "agent-7"} <= recording.assembler.names


def test_the_source_may_tell_which_tool_call_started_a_child():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, "t1/Agent", "t2/Agent")
    recording.call(12, "s1", "ask:go use:t1/Agent use:t2/Agent got:t1 got:t2", 20, "t3/Agent")
    child = recording.call(30, "s1/a", "ask:one", 40, spawned_by="t1")
    assert recording.after(child) == [(0, "spawn", "completion", 20, "harness")]
    assert "t1" in recording.assembler.names


def test_the_prompt_tells_the_tools_where_the_answer_did_not():
    recording = Recording()
    first = recording.begin(0, "s1", "ask:go")
    recording.end(first, 10, tool_calls=None)
    recording.call(12, "s1", "ask:go use:t1/Agent got:t1", 20)
    child = recording.begin(25, "s1/a", "ask:one")
    assert recording.after(child) == [(0, "spawn", "completion", 15, "harness")]


def test_a_summary_that_failed_did_not_start_the_children_of_the_answer_before():
    recording = Recording()
    first = recording.begin(0, "s1", "ask:go")
    recording.end(first, 10, tool_calls=None)
    recording.call(20, "s1", "ask:go auto:summarise", 30, call_class="compaction", error="cut")
    recording.call(40, "s1", "ask:go use:t1/Agent got:t1", 50)
    child = recording.begin(60, "s1/a", "ask:one", spawned_by="t1")
    assert recording.after(child) == [(first, "spawn", "completion", 50, "harness")]


# Tools


def test_run_times_in_headers_go_to_the_call_that_asked_for_the_tools():
    """Claude Code lists tools as they end: `Read=11;Bash=1015;mcp=1200;Bash=2027`."""
    recording = Recording()
    first = recording.begin(0, "s1", "ask:go")
    tools = tuple(ToolCall(name=name, end_ns=5) for name in ("Bash", "Read", "mcp__acme__do", "Bash"))
    recording.end(first, 10, tool_calls=tools)
    prompt = "ask:go use:t0/Bash use:t1/Read use:t2/mcp__acme__do use:t3/Bash got:t0 got:t1 got:t2 got:t3"
    durations = (("Read", 11), ("gone", 3), ("Bash", 1015), ("mcp__acme__do", 1200), ("Bash", 2027))
    second = recording.begin(60, "s1", prompt, tool_durations=durations)
    assert [tool.duration_ns for tool in recording.calls[first].tool_calls] == [1015, 11, 1200, 2027]
    assert [tool.end_ns for tool in recording.calls[first].tool_calls] == [5, 5, 5, 5]
    assert isinstance(recording.lines[-2], Update)
    assert recording.calls[first].outcome.error is None
    assert {"mcp__acme__do", "t0"} <= recording.assembler.names
    recording.end(second, 70, error="refused")
    before = len(recording.of(Update))
    recording.begin(80, "s1", prompt, tool_durations=durations)
    assert len(recording.of(Update)) == before


@pytest.mark.parametrize("told", [1, 3], ids=["one was refused", "one too many"])
def test_run_times_of_a_tool_that_do_not_number_its_calls_are_nobodys(told):
    recording = Recording()
    first = recording.call(0, "s1", "ask:go", 10, "t1/Bash", "t2/Bash", "t3/Read")
    durations = (*(("Bash", 7 + number) for number in range(told)), ("Read", 3))
    recording.begin(60, "s1", "ask:go use:t1/Bash use:t2/Bash use:t3/Read", tool_durations=durations)
    assert [tool.duration_ns for tool in recording.calls[first].tool_calls] == [None, None, 3]


@pytest.mark.parametrize("ids", [("t1", "t2"), ()], ids=["from the answer", "from the prompt"])
def test_run_times_in_results_are_joined_by_tool_id(ids):
    """Codex: `Wall time: 1.8665 seconds` in the output."""
    recording = Recording()
    first = recording.begin(0, "s1", "ask:go")
    recording.end(first, 10, "t1/exec_command", "t2/exec_command", ids=ids)
    recording.begin(
        60,
        "s1",
        "ask:go use:t1/exec_command use:t2/exec_command got:t1 got:t2",
        result_durations={"t2": 18, "other": 4, "t1": -1},
    )
    assert [tool.duration_ns for tool in recording.calls[first].tool_calls] == [None, 18]


def test_run_times_without_an_answer_go_nowhere():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10, error="cut")
    recording.begin(20, "s1", "ask:go say:x", tool_durations=(("Bash", 4),), result_durations={"t": 1})
    assert len(recording.of(Update)) == 1


def test_a_late_end_of_an_earlier_call_does_not_pass_for_the_last_answer():
    recording = Recording()
    first = recording.begin(0, "s1", "ask:go")
    second = recording.begin(5, "s1", "ask:go ask:more")
    recording.end(second, 10)
    recording.end(first, 12, "t1/Bash")
    recording.begin(20, "s1", "ask:go ask:more say:x ask:y", tool_durations=(("Bash", 4),))
    assert recording.calls[first].tool_calls == (ToolCall(name="Bash"),)
    assert recording.calls[second].tool_calls == ()


# All of it


def test_a_long_session_costs_what_its_new_segments_cost():
    recording = Recording()
    prompt = "ask:go"
    for number in range(120):
        recording.call(10 * number, "s1", prompt, 10 * number + 5)
        prompt += f" say:{number}"
    assert len(recording.of(Segment)) == 120
    assert all(len(call.prompt.add) == 1 for call in recording.calls)
    resolver = PromptResolver(recording.calls)
    assert len(resolver.segment_ids(119)) == 120


def test_a_finished_trace_has_its_counts():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10)
    footer = Footer(sessions=1, segments=1, calls=1, blocks=1)
    assert recording.rules.check(99, footer) == []
    assert recording.rules.finish() == []


def test_dependencies_are_plain_values():
    recording = Recording()
    recording.call(0, "s1", "ask:go", 10)
    call = recording.begin(20, "s1", "ask:go say:x")
    assert recording.calls[call].after == (
        Dependency(call=0, relation="sequence", trigger="completion", gap_ns=10, cause="harness"),
    )
