from dataclasses import replace

import orjson
import pytest

from aitrace.identity import BlockIdentity
from aitrace.protocols.anthropic import AnthropicProtocol
from aitrace.protocols.chat import ChatProtocol
from aitrace.protocols.responses import ResponsesProtocol
from aitrace.schema import Segment
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan
from replayer.requests import MAX_CACHE_BYTES, RequestBuilder, calibration_body, calibration_from_probes
from replayer.text import TextSource

PROTOCOLS = [AnthropicProtocol(), ResponsesProtocol(), ChatProtocol()]


class Case:
    """A plan and a builder for it."""

    def __init__(
        self, trace, *, protocol=None, tokens_per_word=1.0, cache=MAX_CACHE_BYTES, fields_of=None, **options
    ):
        load = LoadOptions(**options)
        self.protocol = protocol or ChatProtocol()
        self.plan = build_plan(trace, load)
        self.builder = RequestBuilder(
            trace,
            BlockIdentity(trace),
            TextSource(0, tokens_per_word),
            load,
            self.protocol,
            fields_of=fields_of,
            max_cache_bytes=cache,
        )

    def body(self, index, *, forced=False):
        return self.builder.build(self.plan.call(index), model="model-b", output_forced=forced)

    def json(self, index, **how):
        return orjson.loads(self.body(index, **how))

    def parts(self, index):
        """(role, type, text) of what the protocol reads back."""
        return [(p.role, p.type, p.text) for p in self.protocol.read_request(self.body(index)).parts]


def conversation(*segments, **header):
    """A trace of one call whose prompt is these (size, role, type)."""
    builder = TraceBuilder(**header)
    builder.call(builder.session(), [builder.segment(*segment) for segment in segments])
    return builder.trace()


def words(text):
    return len(text.split())


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_a_prompt_comes_out_in_its_size_and_order(protocol):
    trace = conversation(
        (30, "system", "tool_definition"),
        (100, "system", "system"),
        (70, "user", "text"),
        (50, "assistant", "text"),
        (60, "tool", "tool_result"),
    )
    texts = [text for _, _, text in Case(trace, protocol=protocol).parts(0)]
    assert [words(text) for text in texts[1:]] == [100, 70, 50, 60]
    assert 30 <= words(texts[0]) <= 32  # the tool's description, inside its JSON


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_the_request_asks_for_what_is_planned(protocol):
    request = protocol.read_request(Case(make_trace(1, 1), protocol=protocol).body(0))
    assert (request.model, request.stream, request.max_output_tokens) == ("model-b", True, 100)


def test_a_request_that_was_not_streamed_may_stay_so():
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(10)], streamed=False)
    assert Case(builder.trace(), stream="recorded").json(0)["stream"] is False


@pytest.mark.parametrize(("forced", "expected"), [(True, (True, 100)), (False, (None, None))])
def test_the_length_of_an_answer_is_forced_only_where_the_target_allows(forced, expected):
    body = Case(make_trace(1, 1)).json(0, forced=forced)
    assert expected == (body.get("ignore_eos"), body.get("min_tokens"))


def test_words_are_fewer_where_the_target_counts_more_for_each():
    """Blocks of 64 tokens at 1.6 tokens a word: 40 words each."""
    case = Case(conversation((640, "user", "text")), tokens_per_word=1.6)
    assert words(case.parts(0)[0][2]) == 400


def test_bytes_become_words_by_the_reported_ratio():
    """The builder reports 250 tokens for 1000 bytes; 3 full blocks of 64 words and one of 232 bytes, 58 words."""
    case = Case(conversation((1000, "user", "text"), unit="bytes", block_size=256))
    assert words(case.parts(0)[0][2]) == 250


def test_a_growing_prompt_begins_with_the_one_before():
    case = Case(make_trace(1, 3))
    first, second = case.parts(0), case.parts(1)
    assert first == second[: len(first)]


def test_trees_share_what_they_share_in_the_trace_and_nothing_else():
    case = Case(make_trace(2, 1))
    (system, question), (other_system, other_question) = case.parts(0), case.parts(1)
    assert system == other_system
    assert question[2].split()[:4] != other_question[2].split()[:4]


def test_another_playing_of_a_tree_says_something_else_but_for_what_trees_share():
    case = Case(make_trace(2, 1), trees=4)
    first, again = case.parts(0), case.parts(2)
    assert first[0] == again[0]
    assert first[1][2].split()[:4] != again[1][2].split()[:4]


def test_adjacent_segments_of_one_speaker_are_one_message():
    trace = conversation(
        (10, "user", "text"), (20, "tool", "tool_result"), (5, "assistant", "text"), (7, "user", "text")
    )
    messages = Case(trace).json(0)["messages"]
    assert [(m["role"], words(m["content"])) for m in messages] == [
        ("user", 30),
        ("assistant", 5),
        ("user", 7),
    ]


def test_thinking_is_text_of_the_assistant():
    trace = conversation(
        (10, "user", "text"), (20, "assistant", "thinking"), (5, "assistant", "text"), (7, "user", "text")
    )
    assert (
        Case(trace).json(0)["messages"][1]["role"],
        words(Case(trace).json(0)["messages"][1]["content"]),
    ) == ("assistant", 25)


def test_a_system_segment_inside_the_conversation_is_said_by_the_user():
    trace = conversation((10, "system", "system"), (20, "user", "text"), (5, "system", "system"))
    assert [(role, words(text)) for role, _, text in Case(trace).parts(0)] == [("system", 10), ("user", 25)]


def test_a_conversation_that_begins_with_the_assistant_is_opened_and_counted():
    case = Case(conversation((20, "assistant", "text"), (5, "user", "text")))
    assert [(r, words(t)) for r, _, t in case.parts(0)] == [("user", 1), ("assistant", 20), ("user", 5)]
    assert case.builder.counts["opened_with_user"] == 1


def test_a_conversation_that_ends_with_the_assistant_is_closed_and_counted():
    case = Case(conversation((20, "user", "text"), (5, "assistant", "text")))
    assert [(r, words(t)) for r, _, t in case.parts(0)] == [("user", 20), ("assistant", 5), ("user", 1)]
    assert case.builder.counts["closed_with_user"] == 1


def test_a_prompt_of_a_system_segment_alone_gets_a_user():
    case = Case(conversation((20, "system", "system")))
    assert [(r, words(t)) for r, _, t in case.parts(0)] == [("system", 20), ("user", 1)]


def test_segments_without_text_leave_no_empty_message():
    case = Case(conversation((20, "user", "text"), (0, "assistant", "text"), (5, "user", "text")))
    assert [(r, words(t)) for r, _, t in case.parts(0)] == [("user", 25)]


TOOL_TALK = (
    (30, "system", "tool_definition"),
    (20, "user", "text"),
    (5, "assistant", "text"),
    (6, "assistant", "tool_use"),
    (7, "assistant", "tool_use"),
    (8, "tool", "tool_result"),
    (9, "tool", "tool_result"),
)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_native_tool_messages_are_paired_in_order(protocol):
    case = Case(conversation(*TOOL_TALK), protocol=protocol, tool_messages="native")
    parts = protocol.read_request(case.body(0)).parts
    tools = [(p.type, p.tool_id) for p in parts if p.type in ("tool_use", "tool_result")]
    calls, results = tools[:2], tools[2:]
    assert [kind for kind, _ in tools] == ["tool_use", "tool_use", "tool_result", "tool_result"]
    assert [name for _, name in calls] == [name for _, name in results]
    assert calls[0] != calls[1]


def test_tool_messages_are_plain_text_unless_asked_for():
    case = Case(conversation(*TOOL_TALK))
    assert [kind for _, kind, _ in case.parts(0)] == ["tool_definition", "text", "text", "text"]
    assert case.builder.counts["tool_messages_as_text"] == 0


@pytest.mark.parametrize(
    ("segments", "native", "as_text"),
    [
        (TOOL_TALK[1:], 0, 4),  # protocols refuse tool messages without tools
        (TOOL_TALK[:-1], 2, 1),  # two calls, one result: the last call is answered
        ((*TOOL_TALK[:4], *TOOL_TALK[5:]), 2, 1),  # one call, two results
        ((*TOOL_TALK[:5], (3, "user", "text"), *TOOL_TALK[5:]), 0, 4),  # results must come first
        ((*TOOL_TALK[:5], (3, "assistant", "text"), *TOOL_TALK[5:]), 0, 4),  # calls must come last
        ((*TOOL_TALK[:2], (9, "tool", "tool_result")), 0, 1),  # a result of nothing
    ],
)
def test_tool_messages_without_a_partner_are_text_and_counted(segments, native, as_text):
    case = Case(conversation(*segments), tool_messages="native")
    kinds = [kind for _, kind, _ in case.parts(0)]
    assert (native, as_text) == (
        sum(kind in ("tool_use", "tool_result") for kind in kinds),
        case.builder.counts["tool_messages_as_text"],
    )


def holding_text(*texts, role="user"):
    builder = TraceBuilder(privacy="content", unit="bytes", block_size=16)
    for text in texts:
        builder.call(builder.session(), [builder.segment(len(text.encode()), role, text=text)])
    return builder.trace()


def test_a_trace_that_holds_its_text_says_it():
    text = 'a "quoted"\\ line\nand ünïcode \u2028'
    assert [("user", "text", text)] == Case(holding_text(text)).parts(0)


def test_another_playing_of_a_text_says_generated_words_of_its_size():
    """64 bytes at the builder's 4 bytes a token."""
    case = Case(holding_text("x" * 64), trees=2)
    assert words(case.parts(1)[0][2]) == 16


def test_another_playing_says_the_text_that_trees_share():
    trace = holding_text("shared by all tre", "other")
    segment = trace.segments[0]
    calls = (trace.calls[0], replace(trace.calls[1], prompt=trace.calls[0].prompt))
    case = Case(replace(trace, segments=(segment,), calls=calls), trees=4)
    assert case.parts(0) == case.parts(3)


def test_a_segment_of_unknown_text_in_such_a_trace_is_generated():
    trace = holding_text("x" * 64)
    image = Segment(id=0, role="user", type="image", size=64, blocks=trace.segments[0].blocks)
    assert words(Case(replace(trace, segments=(image,))).parts(0)[0][2]) == 16


def test_a_body_does_not_depend_on_what_the_cache_holds():
    case, tiny = Case(make_trace(2, 6), trees=4), Case(make_trace(2, 6), trees=4, cache=1000)
    for index in (5, 3, 11, 5, 0, 23):
        assert case.body(index) == tiny.body(index)


def live_case(trace=None, **options):
    return Case(trace or make_trace(1, 4), history="live", **options)


def test_live_answers_replace_the_recorded_ones_from_then_on():
    case = live_case()
    case.body(0)
    case.builder.note_answer(0, 'said "live"')
    second = case.parts(1)
    case.builder.note_answer(1, "and more")
    third = case.parts(2)
    assert second[2] == ("assistant", "text", 'said "live"')
    assert second == third[: len(second)]
    assert third[4] == ("assistant", "text", "and more")


def test_recorded_history_does_not_hear_the_target():
    case = Case(make_trace(1, 2))
    case.body(0)
    case.builder.note_answer(0, "ignored")
    assert words(case.parts(1)[2][2]) == 100


def test_of_several_recorded_answer_segments_the_first_carries_the_live_one():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, [builder.segment(10)])
    answer = [builder.segment(20, "assistant", kind) for kind in ("thinking", "text", "tool_use")]
    builder.call(main, [*answer, builder.segment(5)])
    case = live_case(builder.trace())
    case.body(0)
    case.builder.note_answer(0, "one text")
    assert [(r, words(t)) for r, _, t in case.parts(1)] == [("user", 10), ("assistant", 2), ("user", 5)]


def test_an_empty_live_answer_leaves_no_message_and_is_counted():
    case = live_case(make_trace(1, 2))
    case.body(0)
    case.builder.note_answer(0, "")
    assert [role for role, _, _ in case.parts(1)] == ["system", "user"]
    assert case.builder.counts["empty_live_answers"] == 1


def test_live_answers_belong_to_their_playing():
    case = live_case(make_trace(1, 2), trees=2)
    case.body(0)
    case.body(2)
    case.builder.note_answer(0, "first")
    case.builder.note_answer(2, "second")
    assert [case.parts(index)[2][2] for index in (1, 3)] == ["first", "second"]


def test_a_call_without_a_live_answer_keeps_the_recorded_one():
    case = live_case(make_trace(1, 2))
    case.body(0)
    assert words(case.parts(1)[2][2]) == 100


def test_a_new_history_does_not_contain_the_live_answer():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, [builder.segment(10)])
    summary = builder.segment(30, "assistant")
    builder.call(main, [builder.segment(8), summary, builder.segment(5)], base=None)
    case = live_case(builder.trace())
    case.body(0)
    case.builder.note_answer(0, "gone")
    assert [words(text) for _, _, text in case.parts(1)] == [8, 30, 5]


def test_a_forked_sub_agent_inherits_the_live_answers_of_its_parent():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, [builder.segment(10)])
    second = builder.call(main, [builder.segment(20, "assistant"), builder.segment(5)])
    builder.call(builder.session(parent=main), [builder.segment(6)], base=second)
    case = live_case(builder.trace())
    case.body(0)
    case.builder.note_answer(0, "heard")
    case.body(1)
    case.builder.note_answer(1, "not yet in the fork")
    assert [words(text) for _, _, text in case.parts(2)] == [10, 1, 11]


def test_a_tree_that_is_over_leaves_nothing_behind():
    case = live_case(make_trace(1, 3))
    case.body(0)
    case.builder.note_answer(0, "said")
    case.body(1)
    case.builder.forget_tree(0, 1)
    case.builder.forget_tree(0, 1)
    assert words(case.parts(2)[2][2]) == 100


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_a_calibration_request_has_its_words_and_a_short_answer(protocol):
    request = protocol.read_request(calibration_body(protocol, "model-b", words=300, output_forced=True))
    assert words(request.parts[0].text) == 300
    assert (request.max_output_tokens, request.body["min_tokens"]) == (2, 2)


def test_a_calibration_request_may_leave_the_answer_free():
    assert b"min_tokens" not in calibration_body(ChatProtocol(), "m", words=3, output_forced=False)


def test_two_probes_give_slope_and_overhead():
    assert calibration_from_probes((100, 136), (900, 1136)) == (1.25, 11.0)


@pytest.mark.parametrize(("small", "large"), [((100, 9), (900, 9)), ((100, 9), (900, 8)), ((9, 9), (9, 10))])
def test_counts_that_do_not_grow_with_the_words_give_nothing(small, large):
    assert calibration_from_probes(small, large) is None


def test_fields_of_a_call_are_part_of_its_body():
    case = Case(conversation((10,)), fields_of=lambda planned: {"user": f"u-{planned.index}"})
    assert case.json(0)["user"] == "u-0"


class CountingProtocol(ChatProtocol):
    """Counts the messages that it writes."""

    written = 0

    def write_messages(self, messages, first=0):
        self.written += len(messages)
        return super().write_messages(messages, first)


@pytest.mark.parametrize(("cache", "expected"), [(MAX_CACHE_BYTES, 4), (0, 21)])
def test_of_a_growing_prompt_only_the_last_messages_are_written_anew(cache, expected):
    """Two more than the call before, and the two that might have grown; 21 without anything kept."""
    protocol = CountingProtocol()
    case = Case(make_trace(1, 11), protocol=protocol, cache=cache)
    for index in range(10):
        case.body(index)
    before = protocol.written
    case.body(10)
    assert protocol.written - before == expected


def test_a_body_that_is_built_twice_is_the_same_and_leaves_nothing_behind():
    """As for a call that is tried again in another way."""
    case = live_case(make_trace(1, 4))
    for index in (0, 1, 2):
        case.body(index)
        case.builder.note_answer(index, "said")
    assert case.body(2) == case.body(2)
    case.builder.forget_tree(0, 1)
    assert words(case.parts(3)[2][2]) == 100
