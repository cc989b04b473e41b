from dataclasses import replace

import pytest

from aitrace.identity import BlockIdentity, is_own_key
from aitrace.schema import Prompt
from aitrace.testing import TraceBuilder, make_call, make_segment, make_trace

INSTANCES = range(1, 4)


def keys(identity, segment, instance):
    return [first + offset for first, count in identity.runs(segment, instance) for offset in range(count)]


def two_trees(first=(), second=(), harness="claude-code", **header):
    """Two trees of one call each; tells the ids of their segments. A segment is (size, type)."""
    builder = TraceBuilder(**header)
    ids = []
    for segments in (first, second):
        role = {"system": "system", "tool_definition": "system"}
        ids.append([builder.segment(size, role.get(kind, "user"), kind) for size, kind in segments])
        builder.call(builder.session(harness=harness), ids[-1])
    return builder.trace(), ids


def test_a_segment_has_one_key_for_each_block():
    identity = BlockIdentity(make_trace(2, 2))
    assert [len(keys(identity, segment, 1)) for segment in (0, 1)] == [16, 4]


def test_a_block_that_trees_share_has_one_key_in_all_playings():
    identity = BlockIdentity(make_trace(2, 2))
    assert len({identity.runs(0, instance) for instance in INSTANCES}) == 1


def test_a_key_tells_whether_its_block_is_of_one_tree():
    identity = BlockIdentity(make_trace(2, 2))
    for instance in INSTANCES:
        assert [is_own_key(keys(identity, segment, instance)[0], instance) for segment in (0, 1)] == [
            False,
            True,
        ]


def test_a_block_of_one_tree_has_a_key_of_its_own_in_each_playing():
    identity = BlockIdentity(make_trace(2, 2))
    seen = [key for instance in INSTANCES for key in keys(identity, 1, instance)]
    assert len(set(seen)) == 12


def test_no_two_blocks_of_a_playing_have_the_same_key():
    trace = make_trace(3, 4)
    identity = BlockIdentity(trace)
    all_keys = [key for segment in range(len(trace.segments)) for key in keys(identity, segment, 2)]
    assert len(all_keys) == len(set(all_keys))


def test_a_segment_shared_in_part_is_shared_as_far_as_the_trace_says():
    """1000 and 900 have 14 full blocks of 64 in common; the second is in another tree."""
    builder = TraceBuilder()
    system = builder.segment(1000, "system", "system")
    shorter = builder.segment(900, "system", "system", like=system)
    builder.call(builder.session(), [system])
    builder.call(builder.session(), [shorter])
    identity = BlockIdentity(builder.trace())
    one, other = keys(identity, system, 1), keys(identity, shorter, 2)
    assert one[:14] == other[:14]
    assert not set(one[14:]) & set(other[14:])


def test_a_segment_that_a_tree_takes_over_with_a_fork_of_another_tree_is_shared():
    builder = TraceBuilder()
    segment = builder.segment(64)
    first = builder.call(builder.session(), [segment])
    builder.call(builder.session(), base=first)
    identity = BlockIdentity(builder.trace())
    assert identity.runs(segment, 1) == identity.runs(segment, 2)


def test_sessions_of_one_tree_do_not_make_a_block_shared():
    builder = TraceBuilder()
    segment = builder.segment(64)
    main = builder.session()
    builder.call(main, [segment])
    builder.call(builder.session(parent=main), [segment])
    identity = BlockIdentity(builder.trace())
    assert identity.runs(segment, 1) != identity.runs(segment, 2)


def test_ids_that_are_local_to_a_tree_share_nothing():
    identity = BlockIdentity(make_trace(2, 2, block_scope="tree"))
    assert identity.runs(0, 1) != identity.runs(0, 2)


def test_runs_are_as_long_as_they_can_be():
    identity = BlockIdentity(make_trace(2, 2))
    assert [len(identity.runs(segment, 1)) for segment in (0, 1)] == [1, 1]


@pytest.mark.parametrize("kind", ["system", "tool_definition"])
def test_shared_system_prompts_have_the_same_keys_up_to_the_shorter_one(kind):
    """640 and 1000 at blocks of 64: the first ten blocks are full in both."""
    trace, ((one,), (other,)) = two_trees([(640, kind)], [(1000, kind)], block_scope="tree")
    identity = BlockIdentity(trace, share_system=True)
    assert keys(identity, one, 1) == keys(identity, other, 5)[:10]
    assert len(set(keys(identity, other, 5))) == 16


def test_the_partial_end_of_a_shared_system_prompt_is_not_the_full_block_of_a_longer_one():
    trace, ((one,), (other,)) = two_trees([(650, "system")], [(1000, "system")], block_scope="tree")
    identity = BlockIdentity(trace, share_system=True)
    assert keys(identity, one, 1)[10] not in keys(identity, other, 1)


def test_a_system_prompt_smaller_than_a_block_can_be_shared():
    trace, ((one,), (other,)) = two_trees([(10, "system")], [(10, "system")], block_scope="tree")
    identity = BlockIdentity(trace, share_system=True)
    assert keys(identity, one, 1) == keys(identity, other, 2)
    assert len(keys(identity, one, 1)) == 1


def test_sharing_system_prompts_leaves_the_conversation_alone():
    trace, ((_, one), (_, other)) = two_trees(*[[(640, "system"), (200, "text")]] * 2, block_scope="tree")
    identity = BlockIdentity(trace, share_system=True)
    assert not set(keys(identity, one, 1)) & set(keys(identity, other, 1))


def test_tools_and_system_prompts_do_not_share_with_each_other():
    trace, ((one,), (other,)) = two_trees([(640, "tool_definition")], [(640, "system")], block_scope="tree")
    identity = BlockIdentity(trace, share_system=True)
    assert not set(keys(identity, one, 1)) & set(keys(identity, other, 1))


def test_system_prompts_of_another_harness_or_agent_kind_are_other_ones():
    builder = TraceBuilder(block_scope="tree")
    segments = []
    for fields in ({"harness": "codex"}, {"harness": "opencode"}, {"harness": "codex", "agent": "Explore"}):
        segments.append(builder.segment(640, "system", "system"))
        builder.call(builder.session(**fields), [segments[-1]])
    identity = BlockIdentity(builder.trace(), share_system=True)
    assert len({key for segment in segments for key in keys(identity, segment, 1)}) == 30


def test_a_system_segment_inside_the_conversation_is_not_shared():
    trace, ((_, one), (_, other)) = two_trees(*[[(200, "text"), (640, "system")]] * 2, block_scope="tree")
    identity = BlockIdentity(trace, share_system=True)
    assert not set(keys(identity, one, 1)) & set(keys(identity, other, 1))


def test_two_system_prompts_of_one_session_stay_two_when_shared():
    builder = TraceBuilder(block_scope="tree")
    first, second = (builder.segment(640, "system", "system") for _ in range(2))
    session = builder.session(harness="codex")
    builder.call(session, [first])
    builder.call(session, [second])
    identity = BlockIdentity(builder.trace(), share_system=True)
    assert not set(keys(identity, first, 1)) & set(keys(identity, second, 1))


def test_blocks_that_a_tree_shares_between_agents_stay_shared_with_shared_system_prompts():
    """The sub-agent's prompt repeats the first ten blocks of the main agent's."""
    builder = TraceBuilder(block_scope="tree")
    main = builder.session(harness="codex")
    child = builder.session(parent=main, harness="codex", agent="Explore")
    longer = builder.segment(1000, "system", "system")
    shorter = builder.segment(640, "system", "system", like=longer)
    builder.call(main, [longer])
    builder.call(child, [shorter])
    identity = BlockIdentity(builder.trace(), share_system=True)
    assert keys(identity, shorter, 1) == keys(identity, longer, 1)[:10]


def test_system_prompts_of_an_unknown_harness_are_not_shared():
    trace, ((one,), (other,)) = two_trees(
        [(640, "system")], [(640, "system")], harness=None, block_scope="tree"
    )
    identity = BlockIdentity(trace, share_system=True)
    assert not set(keys(identity, one, 1)) & set(keys(identity, other, 2))


def test_partial_ends_of_prompts_of_different_length_differ():
    """650 and 74 both end in a block of 10."""
    trace, ((one,), (other,)) = two_trees([(650, "system")], [(74, "system")], block_scope="tree")
    identity = BlockIdentity(trace, share_system=True)
    assert keys(identity, one, 1)[-1] != keys(identity, other, 1)[-1]


@pytest.mark.parametrize("shared", [range(2, 5), range(3), range(5, 8), range(8), range(0)])
def test_blocks_of_a_segment_are_shared_wherever_they_stand_in_it(shared):
    blocks = tuple((block, 1) for block in shared)
    lines = make_trace(2, 1)
    segments = (
        make_segment(0, 8 * 64, 0),
        make_segment(1, 64 * len(blocks), 0, blocks=blocks),
    )
    calls = tuple(make_call(number, number, prompt=Prompt(add=(number,))) for number in range(2))
    trace = replace(lines, sessions=lines.sessions[:2], segments=segments, calls=calls, footer=None)
    identity = BlockIdentity(trace)
    one, other = keys(identity, 0, 1), keys(identity, 0, 2)
    assert [place for place in range(8) if one[place] == other[place]] == list(shared)
    assert len(set(one)) == 8
    assert identity.have_common().tolist() == [bool(blocks)] * 2
