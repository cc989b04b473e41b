"""Handwritten conversations of both dialects, and all real ones against counts over their raw JSON."""

import re
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
import zstandard

from aitrace.codec import encode_line
from aitrace.errors import InputError
from aitrace.formats.weka import conversation_from_json
from aitrace.formats.weka_lines import WekaImporter, WekaSurvey
from aitrace.no_text import find_text
from aitrace.prompts import PromptResolver, block_sizes
from aitrace.schema import Call, Segment, Session, Trace

DATA = Path(__file__).parents[2] / "data" / "weka"
REAL = sorted(DATA.glob("*.json.zst"))


def converted(*documents, attribution=None):
    """The trace and the summary of these conversations."""
    conversations = [conversation_from_json(d, f"f{i}") for i, d in enumerate(documents)]
    survey = WekaSurvey()
    for conversation in conversations:
        survey.add(conversation)
    header = survey.header(producer="test", attribution=attribution)
    importer = WekaImporter(header)
    lines = [line for conversation in conversations for line in importer.lines(conversation)]
    trace = Trace(
        header=header,
        sessions=tuple(line for line in lines if isinstance(line, Session)),
        segments=tuple(line for line in lines if isinstance(line, Segment)),
        calls=tuple(line for line in lines if isinstance(line, Call)),
    )
    return trace, importer.summary()


def conversation(*requests, block_size=10, **fields):
    return {"id": "trace_0001", "block_size": block_size, "requests": list(requests), **fields}


def row(t, size, ids, out=5, **fields):
    return {"t": t, "in": size, "out": out, "hash_ids": list(ids), "api_time": 1.0, **fields}


def prompt(trace, call_id):
    """(role, type, size) of the segments of a prompt."""
    ids = PromptResolver(trace.calls).segment_ids(call_id)
    return [(trace.segments[i].role, trace.segments[i].type, trace.segments[i].size) for i in ids]


def prompt_blocks(trace, resolver, call_id):
    """(block id, size) of a whole prompt."""
    pairs = []
    for segment_id in resolver.segment_ids(call_id):
        segment = trace.segments[segment_id]
        blocks = [b for first, n in segment.blocks for b in range(first, first + n)]
        pairs += zip(blocks, block_sizes(segment, trace.header.block_size), strict=True)
    return pairs


def kinds(summary):
    return {remark.kind: remark.count for remark in summary.remarks}


TOOLS = {"tool_tokens": 25, "system_tokens": 16}
USING = {"input_types": ["text"], "output_types": ["text", "tool_use"], "stop": "tool_use"}
RESULT = {"input_types": ["tool_result"], "output_types": ["thinking"], "stop": "tool_use"}


def test_the_first_prompt_is_tools_system_text_and_a_tail_of_the_last_kind():
    trace, _ = converted(conversation(row(0, 67, range(1, 7), **USING), **TOOLS))
    assert prompt(trace, 0) == [
        ("system", "tool_definition", 20),
        ("system", "system", 20),
        ("user", "text", 20),
        ("user", "text", 7),
    ]


def test_the_next_prompt_adds_the_answer_and_then_the_input():
    rows = row(0, 67, range(1, 7), out=31, **USING), row(2, 128, range(1, 13), **RESULT)
    trace, _ = converted(conversation(*rows, **TOOLS))
    assert trace.calls[1].prompt.keep == 3
    assert prompt(trace, 1)[3:] == [
        ("assistant", "tool_use", 30),
        ("tool", "tool_result", 30),
        ("tool", "tool_result", 8),
    ]


@pytest.mark.parametrize(
    ("out", "output_types", "answer"),
    [
        (2, ["text"], ("assistant", "text", 10)),
        (900, ["thinking"], ("assistant", "thinking", 20)),
        (10, ["thinking", "text"], ("assistant", "text", 10)),
        (None, None, ("assistant", "text", 10)),
    ],
)
def test_an_answer_has_at_least_one_block_and_leaves_one(out, output_types, answer):
    first = row(0, 20, [1, 2], out=out, output_types=output_types)
    trace, _ = converted(conversation(first, row(2, 50, [1, 2, 3, 4, 5], input_types=["text"])))
    assert prompt(trace, 1)[1:] == [answer, ("user", "text", 30 - answer[2])]


def test_a_single_new_block_is_input():
    trace, _ = converted(conversation(row(0, 20, [1, 2], **USING), row(2, 35, [1, 2, 3], **RESULT)))
    assert prompt(trace, 1)[1:] == [("tool", "tool_result", 10), ("tool", "tool_result", 5)]


def test_a_changed_end_of_the_history_is_cut_once_more_and_counted():
    rows = row(0, 40, [1, 2, 3, 4], **USING), row(2, 60, [1, 2, 3, 8, 9, 10], **RESULT)
    trace, summary = converted(conversation(*rows, tool_tokens=20))
    assert prompt(trace, 1) == [
        ("system", "tool_definition", 20),
        ("user", "text", 10),
        ("user", "text", 10),
        ("assistant", "tool_use", 10),
        ("tool", "tool_result", 10),
    ]
    assert (summary.retokenised_tails, summary.resets, trace.calls[1].window) == (1, 0, 0)


@pytest.mark.parametrize(("before", "lost", "windows"), [(20, 4, 0), (20, 5, 1), (100, 10, 0), (100, 11, 1)])
def test_a_loss_of_more_than_4_blocks_and_10_percent_is_a_new_window(before, lost, windows):
    kept = list(range(1, before - lost + 1))
    rows = row(0, 10 * before, range(1, before + 1)), row(2, 10 * before, [*kept, *range(900, 900 + lost)])
    trace, summary = converted(conversation(*rows))
    assert (trace.calls[1].window, summary.resets) == (windows, windows)
    assert summary.retokenised_tails == 1 - windows


def test_after_a_reset_the_new_text_is_the_users():
    rows = row(0, 100, range(1, 11), **USING), row(2, 50, [1, 2, 13, 14, 15], **RESULT)
    trace, _ = converted(conversation(*rows, **TOOLS))
    assert prompt(trace, 1) == [
        ("system", "tool_definition", 20),
        ("system", "system", 20),
        ("user", "text", 10),
    ]


def test_going_back_to_an_earlier_history_is_a_return_to_its_window():
    long = list(range(1, 11))
    rows = row(0, 100, long), row(2, 20, [1, 99]), row(4, 120, [*long, 11, 12]), row(6, 20, [1, 98])
    trace, summary = converted(conversation(*rows))
    assert [c.window for c in trace.calls] == [0, 1, 0, 2]
    assert (trace.calls[2].prompt.base, summary.returns, summary.resets) == (0, 1, 2)


def test_a_last_block_may_be_partial():
    rows = row(0.25, 32, [1, 2, 3, 4]), row(2.5, 55, [1, 2, 3, 5, 6, 7])
    trace, summary = converted(conversation(*rows))
    assert prompt(trace, 0) == [("user", "text", 32)]
    assert prompt(trace, 1) == [("user", "text", 30), ("assistant", "text", 10), ("user", "text", 15)]
    assert (summary.retokenised_tails, trace.header.clock_resolution_ns) == (0, 1_000_000)


def test_tokens_far_beyond_the_blocks_are_a_tail_and_explained():
    trace, summary = converted(conversation(row(0, 47, [1, 2])))
    assert prompt(trace, 0) == [("user", "text", 20), ("user", "text", 27)]
    assert kinds(summary) == {"long_tail": 1}


def test_blocks_beyond_the_tokens_are_left_out_and_explained():
    trace, summary = converted(conversation(row(0, 15, [1, 2, 3])))
    assert prompt(trace, 0) == [("user", "text", 15)]
    assert (kinds(summary), summary.block_references) == ({"ids_beyond_input": 1}, 2)


def test_without_optional_columns_nothing_is_made_up():
    trace, _ = converted(conversation({"t": 0, "in": 20}, {"t": 4.5, "in": 30}))
    call = trace.calls[1]
    assert (call.model, call.streamed, call.tool_calls, call.tool_results) == (None, None, None, None)
    assert (call.usage.output_tokens, call.outcome.finish, call.times.end_ns) == (None, None, None)
    assert (call.after[0].trigger, call.after[0].cause, call.turn) == ("dispatch", "unknown", None)


def test_what_is_told_of_a_call_is_kept():
    told = row(2, 20, [1, 2], out=7, model="m", type="s", ttft=0.5, **USING)
    trace, _ = converted(
        conversation(told, row(4, 30, [1, 2, 3], type="n", output_types=["text"], stop="end_turn"))
    )
    first, second = trace.calls
    assert (first.model, first.streamed, first.outcome.finish) == ("m", True, "tool_use")
    assert (first.times.request_ns, first.times.first_token_ns, first.times.end_ns) == (
        2_000_000_000,
        2_500_000_000,
        3_000_000_000,
    )
    assert (first.usage.input_tokens, first.usage.output_tokens, first.tool_results) == (20, 7, 0)
    assert (second.tool_calls, second.streamed, first.protocol) == ((), False, None)


def test_sub_agents_are_sessions_that_share_blocks_with_each_other():
    one = {"t": 1.5, "type": "subagent", "agent_id": "agent_001", "subagent_type": "Explore"}
    two = {"t": 1.75, "type": "subagent", "agent_id": "x@y", "subagent_type": "Plan"}
    document = conversation(
        row(0, 20, [1, 2], **USING),
        {**one, "tool_tokens": 10, "system_tokens": 10, "requests": [row(0, 40, [5, 6, 7, 8])]},
        {**two, "tool_tokens": 10, "system_tokens": 10, "requests": [row(0, 40, [5, 6, 7, 9])]},
        row(9, 30, [1, 2, 3], **RESULT),
    )
    trace, summary = converted(document)
    assert [(s.parent, s.root, s.agent, s.label, s.harness) for s in trace.sessions] == [
        (None, 0, None, "trace_0001", "claude-code"),
        (0, 0, "Explore", "agent_001", "claude-code"),
        (0, 0, "Plan", None, "claude-code"),
    ]
    assert [(c.session, c.call_class, c.prompt.base) for c in trace.calls] == [
        (0, "main", None),
        (1, "subagent", None),
        (2, "subagent", 1),
        (0, "main", 0),
    ]
    assert [(d.call, d.relation, d.cause) for d in trace.calls[3].after] == [
        (0, "sequence", "tool"),
        (1, "join", "tool"),
        (2, "join", "tool"),
    ]
    assert (trace.calls[1].after[0].relation, trace.calls[1].after[0].cause) == ("spawn", "harness")
    assert (summary.forks, summary.joins, summary.background_children) == (2, 2, 0)


def test_everything_that_is_not_plain_is_explained():
    document = conversation(
        {"t": 0, "type": "subagent", "requests": [row(0, 10, [1])]},
        {"t": 3, "type": "subagent", "requests": []},
        {"t": 4, "type": "subagent", "requests": [row(0, 10, [1], api_time=2.5)]},
        row(8, 10, [1]),
        row(3, 10, [1], api_time=None),
        row(5, 10, [1], api_time=9.0),
        {"t": 19.5, "type": "subagent", "requests": [row(0, 10, [1])]},
    )
    _, summary = converted(document)
    assert kinds(summary) == {
        "idle_agent": 1,
        "no_spawn": 1,
        "background_agent": 1,
        "overtaken_agent": 1,
        "out_of_order": 1,
        "no_end": 1,
        "overlap": 1,
    }


def test_a_negative_gap_and_an_end_given_for_a_start_are_explained():
    child = {"t": 30.5, "type": "subagent", "duration_ms": 28000, "requests": [row(0, 10, [1])]}
    document = conversation(row(0, 10, [1], api_time=2.5), child, row(32, 10, [1]), row(32, 10, [1]))
    trace, summary = converted(document)
    assert kinds(summary) == {"agent_end_given": 1, "negative_gap": 1}
    assert any("1 of 1 conversations" in sentence for sentence in trace.header.unknown)


def test_local_ids_of_two_conversations_are_different_blocks():
    trace, summary = converted(conversation(row(0, 20, [1, 2])), conversation(row(0, 20, [1, 2])))
    assert [s.blocks for s in trace.segments] == [((0, 2),), ((2, 2),)]
    assert (trace.header.block_scope, trace.header.clock_scope) == ("tree", "tree")
    assert (summary.trees, summary.blocks, [s.root for s in trace.sessions]) == (2, 4, [0, 1])


def test_global_ids_of_two_conversations_are_the_same_blocks():
    documents = [conversation(row(0, 20, [1, 2]), hash_id_scope="global")] * 2
    trace, _ = converted(*documents)
    assert [s.blocks for s in trace.segments] == [((0, 2),), ((0, 2),)]
    assert trace.header.block_scope == "trace"
    assert not any("local to a conversation" in sentence for sentence in trace.header.unknown)


def test_conversations_that_cannot_share_a_header_are_refused():
    with pytest.raises(InputError, match="f1: 'block_size' is 16, but 10 in f0"):
        converted(conversation(), conversation(block_size=16))
    with pytest.raises(InputError, match="f1: 'hash_id_scope' differs from that of f0"):
        converted(conversation(), conversation(hash_id_scope="global"))


@pytest.mark.parametrize("documents", [(), (conversation(),), (conversation(), conversation())])
def test_input_without_a_call_is_refused(documents):
    with pytest.raises(InputError, match="the input holds no call"):
        converted(*documents)


def test_a_conversation_without_calls_gives_no_lines():
    trace, summary = converted(conversation(), conversation(row(0, 20, [1, 2])))
    assert (len(trace.sessions), len(trace.calls), summary.trees) == (1, 1, 1)


def test_the_header_says_what_the_source_could_not_tell():
    trace, _ = converted(conversation(row(0, 20, [1, 2], **USING)), attribution="ours")
    told = "\n".join(trace.header.unknown)
    for words in ("where messages end", "after the last block", "finer than 1 s", "wire protocol"):
        assert words in told
    assert "first token of 1 of 1 calls" in told
    assert not re.search(r"^(end|output types|input types) of", told, re.MULTILINE)
    assert (trace.header.attribution, trace.header.source) == ("ours", "weka")


def test_no_line_holds_text_whatever_the_source_lacks_or_says():
    bare = {"t": 0.5, "in": 20}
    chatty = row(3, 30, [1, 2, 3], model="Jane's model", stop="she said stop")
    child = {
        "t": 2.5,
        "type": "subagent",
        "agent_id": "for Jane",
        "subagent_type": "payroll",
        "duration_ms": 1,
    }
    documents = [
        conversation(bare, chatty, {**child, "requests": [bare]}, id="Jane's session"),
        conversation(
            row(0, 20, [1], **USING), {**child, "t": 20.5, "duration_ms": 19000, "requests": [bare]}
        ),
    ]
    for scope in ("local", "global"):
        trace, _ = converted(*({**document, "hash_id_scope": scope} for document in documents))
        lines = [trace.header, *trace.sessions, *trace.segments, *trace.calls]
        assert [f for number, line in enumerate(lines) for f in find_text(number, encode_line(line))] == []
        assert trace.sessions[1].agent == "custom"


# --- all real conversations, counted independently over the raw JSON ---


def raw(path):
    return orjson.loads(zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read())


def raw_agents(document):
    main = [r for r in document["requests"] if r["type"] != "subagent"]
    return [main, *(r["requests"] for r in document["requests"] if r["type"] == "subagent")]


@pytest.fixture(scope="module")
def real():
    """Raw documents with the trace and summary they give together."""
    documents = [raw(path) for path in REAL]
    return documents, *converted(*documents)


def test_all_real_calls_and_tokens_arrive(real):
    documents, trace, summary = real
    rows = [r for d in documents for agent in raw_agents(d) for r in agent]
    assert len(trace.calls) == len(rows) == 1259
    assert [sum(c.call_class == k for c in trace.calls) for k in ("main", "subagent")] == [1101, 158]
    assert (
        sum(c.usage.input_tokens for c in trace.calls) == sum(r["in"] for r in rows) == summary.input_tokens
    )
    assert sum(c.usage.output_tokens or 0 for c in trace.calls) == sum(r["out"] for r in rows)


def test_all_real_block_sequences_are_rebuilt_exactly(real):
    documents, trace, _ = real
    resolver = PromptResolver(trace.calls)
    calls_of_session = {s.id: [c for c in trace.calls if c.session == s.id] for s in trace.sessions}
    used = set()
    for document, tree in zip(documents, trees(trace), strict=True):
        identity = {}
        matched = 0
        for agent in raw_agents(document):
            session = matching_session(agent, tree, calls_of_session)
            for call, source in zip(calls_of_session[session], agent, strict=True):
                blocks = prompt_blocks(trace, resolver, call.id)
                ids = source["hash_ids"]
                mapped = [block for block, _ in blocks[: len(ids)]]
                assert [identity.setdefault(i, b) for i, b in zip(ids, mapped, strict=True)] == mapped
                assert sum(size for _, size in blocks) == source["in"]
                matched += 1
        assert matched == sum(len(agent) for agent in raw_agents(document))
        # One id, one block; and no block of another conversation.
        assert len(set(identity.values())) == len(identity)
        assert used.isdisjoint(identity.values())
        used |= set(identity.values())


def trees(trace):
    return [
        [s.id for s in trace.sessions if s.root == root.id] for root in trace.sessions if root.parent is None
    ]


def matching_session(agent, tree, calls_of_session):
    """The session of the tree with the same sizes in the same order."""
    sizes = [(r["in"], r["out"]) for r in agent]
    found = [
        s
        for s in tree
        if [(c.usage.input_tokens, c.usage.output_tokens) for c in calls_of_session[s]] == sizes
    ]
    assert len(found) == 1
    return found[0]


def test_all_real_shared_prefixes_are_those_of_the_raw_ids(real):
    """Per call: blocks shared with the previous call of its agent, or for a sub-agent's first with any sibling."""
    documents, trace, summary = real
    shared = 0
    for document in documents:
        agents = raw_agents(document)
        for agent in agents:
            history = [r["hash_ids"] for r in agent]
            shared += sum(raw_shared(a, b) for a, b in pairwise(history))
    firsts = shared_of_firsts(trace)
    returned = shared_of_returns(trace)
    assert summary.shared_blocks == shared + firsts + returned
    assert summary.block_references == sum(
        len(r["hash_ids"]) for d in documents for agent in raw_agents(d) for r in agent
    )


def raw_shared(a, b):
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def shared_of_firsts(trace):
    """Blocks that sub-agents' first prompts keep from others."""
    first = {}
    for call in trace.calls:
        first.setdefault(call.session, call)
    return sum(repeated_blocks(trace, call) for call in first.values())


def shared_of_returns(trace):
    """What the calls that go back to an older prompt share beyond the one before them."""
    previous, more = {}, 0
    resolver = PromptResolver(trace.calls)
    for call in trace.calls:
        before = previous.get(call.session)
        if before is not None and call.prompt.base not in (None, before.id):
            own = [b for b, _ in prompt_blocks(trace, resolver, call.id)]
            last = [b for b, _ in prompt_blocks(trace, resolver, before.id)]
            more += repeated_blocks(trace, call) - raw_shared(own, last)
        previous[call.session] = call
    return more


def repeated_blocks(trace, call):
    """Blocks of the prompt that are a prefix of its base's prompt."""
    if call.prompt.base is None:
        return 0
    resolver = PromptResolver(trace.calls)
    return raw_shared(
        [b for b, _ in prompt_blocks(trace, resolver, call.id)],
        [b for b, _ in prompt_blocks(trace, resolver, call.prompt.base)],
    )


def test_siblings_share_what_the_raw_ids_of_the_four_trees_with_sub_agents_show(real):
    """The numbers were read off the raw files: first prompts of sub-agents against those of earlier siblings."""
    _, trace, summary = real
    assert shared_of_firsts(trace) == (206 + 206) + (180 + 180 + 116) + (138 + 138) + 174
    assert (summary.resets, summary.retokenised_tails, summary.returns) == (14, 53, 1)


def test_real_sub_agents_start_within_a_second_of_the_call_that_created_them(real):
    _, trace, summary = real
    spawns = [d for c in trace.calls for d in c.after if d.relation == "spawn"]
    joins = [d for c in trace.calls for d in c.after if d.relation == "join"]
    assert len(spawns) == len(joins) == summary.forks == 12
    assert all(d.trigger == "completion" and 0 <= d.gap_ns < 1_000_000_000 for d in spawns)
    assert all(d.gap_ns >= 0 for d in joins)


def test_real_calls_refer_only_to_earlier_ones(real):
    _, trace, _ = real
    references = [(c.id, d.call) for c in trace.calls for d in c.after]
    bases = [(c.id, c.prompt.base) for c in trace.calls if c.prompt.base is not None]
    assert all(earlier < later for later, earlier in references + bases)
    assert len(references) > 1200
