from dataclasses import replace
from pathlib import Path

import orjson
import zstandard

from aitrace.formats.weka import conversation_from_json
from aitrace.formats.weka_lines import WekaImporter, WekaSurvey
from aitrace.inspection import inspect_trace
from aitrace.schema import Call, Dependency, Outcome, Segment, Session, Trace, Usage, Wire
from aitrace.testing import TraceBuilder, make_trace

S = 1_000_000_000
DATA = Path(__file__).parents[2] / "data" / "weka"


def test_counts_and_sums_are_those_of_the_calls():
    inspection = inspect_trace(make_trace(sessions=2, calls=3))
    assert (inspection.calls, inspection.sessions, len(inspection.trees)) == (6, 2, 2)
    assert inspection.prompt_sizes.total == 2 * (1200 + 1600 + 2000) == inspection.input_tokens
    assert (inspection.output_tokens, inspection.models) == (600, {"model-a": 6})
    assert (inspection.dropped_calls, inspection.calls_by_error) == (0, {})


def test_an_empty_trace_has_no_numbers_rather_than_zeros():
    inspection = inspect_trace(TraceBuilder().trace())
    assert (inspection.prompt_sizes, inspection.input_tokens, inspection.gaps) == (None, None, ())
    assert (inspection.blocks, inspection.sharing.prompt_units) == (0, 0)


def test_without_a_footer_dropped_calls_are_not_known():
    inspection = inspect_trace(replace(make_trace(), footer=None))
    assert inspection.dropped_calls is None


def test_failed_calls_are_counted_by_kind():
    builder = TraceBuilder()
    builder.call(builder.session(), [], outcome=Outcome(status=429, error="refused"), usage=Usage())
    inspection = inspect_trace(builder.trace())
    assert inspection.calls_by_error == {"refused": 1}
    assert (inspection.output_tokens, inspection.trees[0].sessions[0].output_tokens) == (None, None)


def test_how_a_trace_was_recorded_is_counted():
    builder = TraceBuilder(capture="reverse")
    main = builder.session(
        harness="codex", harness_version="0.46.0", evidence=["codex/thread-id", "codex/user-agent"]
    )
    builder.session(harness="codex", evidence=["codex/thread-id"])
    builder.session()
    wire = Wire(transport="websocket", response_encoding="br")
    builder.call(main, [builder.segment(10)], wire=wire, unseen_start=True)
    lost = builder.call(main, wire=Wire(), outcome=Outcome(error="unrecorded", ended_by="recorder"))
    builder.call(main, attempt=2, retry_of=lost)
    inspection = inspect_trace(builder.trace())
    assert inspection.header.capture == "reverse"
    assert inspection.sessions_by_harness == {"codex 0.46.0": 1, "codex": 1}
    assert inspection.sessions_by_evidence == {"codex/thread-id": 2, "codex/user-agent": 1}
    assert (inspection.calls_by_transport, inspection.compressed_answers) == ({"websocket": 1}, {"br": 1})
    assert (inspection.retries, inspection.calls_with_unseen_start) == (1, 3)
    assert inspection.calls_by_error == {"unrecorded": 1}


# --- sharing ---


def shared_by(trace):
    sharing = inspect_trace(trace).sharing
    parts = (sharing.within_session, sharing.between_agents, sharing.between_trees, sharing.new)
    assert sum(part or 0 for part in parts) == sharing.prompt_units
    return parts


def test_a_continued_prompt_is_shared_within_its_session():
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [builder.segment(128)])
    builder.call(session, [builder.segment(70)])
    assert shared_by(builder.trace()) == (128, 0, 0, 198)


def test_a_prompt_repeated_in_other_segments_is_shared_as_well():
    builder = TraceBuilder()
    session = builder.session()
    first = builder.segment(192)
    builder.call(session, [first])
    builder.call(session, [builder.segment(150, like=first)], base=None, keep=0)
    assert shared_by(builder.trace()) == (128, 0, 0, 192 + 22)


def test_the_same_segment_after_another_prefix_is_not_shared():
    builder = TraceBuilder()
    session = builder.session()
    first = builder.segment(128)
    builder.call(session, [first])
    builder.call(session, [builder.segment(64), first], base=None, keep=0)
    assert shared_by(builder.trace()) == (0, 0, 0, 320)


def test_prefixes_of_other_agents_and_other_trees_are_told_apart():
    builder = TraceBuilder()
    main = builder.session()
    system = builder.segment(128, role="system", type="system")
    opening = builder.call(main, [system, builder.segment(64)])
    child = builder.session(parent=main)
    builder.call(child, [builder.segment(64)], base=opening, keep=1)
    builder.call(builder.session(), [system, builder.segment(30)])
    assert shared_by(builder.trace()) == (0, 128, 128, 192 + 64 + 30)


def test_what_an_agent_takes_back_from_another_is_shared_within_if_it_had_sent_it_itself():
    builder = TraceBuilder()
    main = builder.session()
    opening = builder.call(main, [builder.segment(64)])
    child = builder.session(parent=main)
    grown = builder.call(child, [builder.segment(64)], base=opening, keep=1)
    builder.call(main, [builder.segment(64)], base=grown, keep=2)
    assert shared_by(builder.trace()) == (64, 64 + 64, 0, 64 * 3)


def test_a_prompt_with_an_unseen_start_shares_only_with_those_that_continue_it():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.segment(128)
    builder.call(main, [first])
    builder.call(builder.session(), [first], unseen_start=True)
    cut = builder.call(main, [first], base=None, keep=0, unseen_start=True)
    builder.call(main, [builder.segment(64)])
    child = builder.session(parent=main)
    builder.call(child, [builder.segment(64)], base=cut, keep=1)
    builder.call(child, [first], base=0, keep=1, unseen_start=True)
    assert shared_by(builder.trace()) == (128, 128, 0, 128 * 3 + 64 * 2 + 256)


def test_sharing_between_trees_is_not_known_where_ids_are_local():
    assert shared_by(make_trace(sessions=2, calls=1, block_scope="tree"))[2] is None


# --- gaps ---


def test_gaps_are_summed_by_cause_the_most_time_first():
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [])
    for at, cause in ((3, "tool"), (6, "tool"), (17, "user")):
        builder.call(session, [], at_ns=at * S, cause=cause)
    user, tool = inspect_trace(builder.trace()).gaps
    assert (user.cause, user.count, user.total_ns) == ("user", 1, 10 * S)
    assert (tool.cause, tool.count, tool.p50_ns, tool.max_ns, tool.total_ns) == (
        "tool",
        2,
        2 * S,
        2 * S,
        4 * S,
    )


def test_a_call_that_waits_for_several_has_the_gap_after_the_last():
    builder = TraceBuilder()
    main = builder.session()
    opening = builder.call(main, [])
    child = builder.session(parent=main)
    inner = builder.call(child, [], at_ns=5 * S, after=[])
    builder.call(main, [], after=[opening, inner], at_ns=9 * S, cause="tool")
    (gap,) = inspect_trace(builder.trace()).gaps
    assert (gap.count, gap.total_ns, gap.negative) == (1, 3 * S, 0)


def test_gaps_below_0_are_counted():
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [])
    builder.call(session, [], at_ns=S // 2)
    assert [(gap.negative, gap.p50_ns) for gap in inspect_trace(builder.trace()).gaps] == [(1, -S // 2)]


def test_calls_timed_from_a_start_and_calls_without_a_time_are_in_no_gap():
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [])
    builder.call(session, [], after=[Dependency(call=0, relation="sequence", trigger="dispatch", gap_ns=5)])
    builder.call(session, [], after=[Dependency(call=1, relation="sequence", gap_ns=None)])
    inspection = inspect_trace(builder.trace())
    assert (inspection.gaps, inspection.start_to_start, inspection.unknown_gaps) == ((), 1, 1)


# --- trees ---


def test_sub_agents_follow_their_parents_with_their_depth():
    builder = TraceBuilder()
    main = builder.session(label="trace_0001")
    other = builder.session()
    child = builder.session(parent=main, agent="Explore")
    builder.session(parent=child)
    builder.session(parent=main)
    builder.call(child, [builder.segment(10)], model="m", turn=0)
    tree, second = inspect_trace(builder.trace()).trees
    assert [(s.id, s.depth) for s in tree.sessions] == [(main, 0), (child, 1), (3, 2), (4, 1)]
    assert (tree.sessions[0].first_prompt, tree.sessions[1].first_prompt, tree.sessions[1].models) == (
        None,
        10,
        ("m",),
    )
    assert (second.root, second.duration_ns, second.calls, second.turns) == (other, None, 0, 0)


def test_turns_and_windows_are_counted():
    builder = TraceBuilder()
    session = builder.session()
    for turn, window in ((0, 0), (0, 1), (1, 1)):
        builder.call(session, [builder.segment(10)], turn=turn, window=window)
    tree = inspect_trace(builder.trace()).trees[0]
    assert (tree.turns, tree.sessions[0].windows, tree.duration_ns) == (2, 2, 5 * S)


def test_turns_are_not_known_if_no_call_says():
    assert inspect_trace(make_trace()).trees[0].turns is None


def test_a_call_that_does_not_say_its_turn_hides_none():
    builder = TraceBuilder()
    session = builder.session()
    builder.call(session, [builder.segment(10)])
    builder.call(session, [builder.segment(10)], turn=0)
    assert inspect_trace(builder.trace()).trees[0].turns == 1


# --- the real set, counted independently over its raw JSON ---


def test_sharing_of_the_real_set_is_that_of_its_raw_ids():
    """Ids are chained and local: an id seen before is a prefix seen before, and each id is new once in its tree."""
    documents = [
        orjson.loads(zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read())
        for path in sorted(DATA.glob("*.json.zst"))
    ]
    inspection = inspect_trace(converted(documents))
    within = known = total = 0
    for document in documents:
        rows = document["requests"]
        agents = [
            [r for r in rows if r["type"] != "subagent"],
            *(r["requests"] for r in rows if r["type"] == "subagent"),
        ]
        ids = [i for agent in agents for r in agent for i in r["hash_ids"]]
        known += len(ids) - len(set(ids))
        total += sum(r["in"] for agent in agents for r in agent)
        for agent in agents:
            own = [i for r in agent for i in r["hash_ids"]]
            within += len(own) - len(set(own))
    sharing = inspection.sharing
    assert sharing.prompt_units == total == 118_492_342
    assert sharing.within_session == 64 * within
    assert sharing.between_agents == 64 * (known - within) > 0
    assert sharing.new == total - 64 * known


def converted(documents):
    survey = WekaSurvey()
    conversations = [conversation_from_json(d, "f") for d in documents]
    for conversation in conversations:
        survey.add(conversation)
    importer = WekaImporter(survey.header(producer="test", attribution=None))
    lines = [line for conversation in conversations for line in importer.lines(conversation)]
    return Trace(
        header=survey.header(producer="test", attribution=None),
        sessions=tuple(line for line in lines if isinstance(line, Session)),
        segments=tuple(line for line in lines if isinstance(line, Segment)),
        calls=tuple(line for line in lines if isinstance(line, Call)),
    )
