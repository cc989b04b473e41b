import pytest

from aitrace.testing import TraceBuilder
from reports.cache.paths import ROOT, PromptTree, TracePaths, shared_size, sized_runs

OWN = 1 << 40
"""Keys of blocks that one tree has, in its first playing."""


def test_a_prompt_that_goes_on_ends_below_the_one_it_continues():
    tree = PromptTree()
    first = tree.add(ROOT, [(0, 3, 16)])
    longer = tree.add(ROOT, [(0, 3, 16), (7, 2, 16)])
    assert tree.path(longer) == [first, longer]
    assert (tree.end(first), tree.end(longer)) == (48, 80)
    assert tree.parent(longer) == first


def test_where_prompts_part_inside_a_node_it_is_split_and_both_still_end_where_they_did():
    tree = PromptTree()
    one, other = tree.add(ROOT, [(0, 5, 16)]), tree.add(ROOT, [(0, 2, 16), (9, 1, 16)])
    assert (tree.end(one), tree.end(other)) == (80, 48)
    assert tree.common(one, other) == 32
    assert tree.path(one)[0] == tree.path(other)[0]


def test_prompts_that_part_between_runs_share_all_before():
    tree = PromptTree()
    one, other = (tree.add(ROOT, [(0, 2, 16), (key, 1, 16)]) for key in (7, 9))
    assert tree.common(one, other) == 32


def test_blocks_of_other_sizes_are_other_blocks():
    tree = PromptTree()
    assert tree.common(tree.add(ROOT, [(0, 1, 16)]), tree.add(ROOT, [(0, 1, 9)])) == 0


@pytest.mark.parametrize("runs", [[(0, 4, 16)], [(0, 1, 16), (1, 3, 16)]])
def test_equal_blocks_end_at_one_node_however_their_runs_are_cut(runs):
    tree = PromptTree()
    assert tree.add(ROOT, [(0, 4, 16)]) == tree.add(ROOT, runs)


def test_a_part_of_a_prompt_ends_at_a_node_of_its_own():
    tree = PromptTree()
    whole = tree.add(ROOT, [(0, 4, 16), (8, 1, 5)])
    part = tree.part_of(whole, 48)
    assert tree.path(whole) == [part, whole]
    assert (tree.part_of(whole, 0), tree.part_of(whole, 69)) == (ROOT, whole)


def test_what_all_trees_share_is_common_up_to_the_first_block_that_they_do_not():
    tree = PromptTree()
    nodes = tree.path(tree.add(ROOT, [(0, 2, 16), (OWN, 1, 16), (4, 1, 16)]))
    assert [(tree.end(node), tree.is_common(node)) for node in nodes] == [(32, True), (64, False)]


def test_prompts_of_a_trace_share_what_they_keep_and_trees_what_they_both_have():
    builder = TraceBuilder(block_size=16)
    main, other = builder.session(), builder.session()
    system = builder.segment(64, role="system", type="system")
    question = builder.segment(40)
    first = builder.call(main, [system, question])
    second = builder.call(main, [builder.segment(32)])
    rewritten = builder.call(main, [builder.segment(16)], base=first, keep=1)
    elsewhere = builder.call(other, [system, builder.segment(32)])
    paths = TracePaths(builder.trace(), share_system=False)
    # The last one asked for first: prompts that it continues are found on the way.
    ends = {call: paths.end_of(call) for call in (rewritten, second, first, elsewhere)}
    tree = paths.tree
    assert {call: tree.end(node) for call, node in ends.items()} == {
        first: 104,
        second: 136,
        rewritten: 80,
        elsewhere: 96,
    }
    assert tree.common(ends[second], ends[first]) == 104
    assert tree.common(ends[rewritten], ends[first]) == tree.common(ends[elsewhere], ends[first]) == 64
    assert [tree.is_common(node) for node in tree.path(ends[first])] == [True, False]
    assert tree.nodes > len(ends)


def test_the_last_block_of_a_segment_has_what_remains():
    assert sized_runs(((5, 3),), 40, 16) == ((5, 2, 16), (7, 1, 8))
    assert sized_runs(((5, 2), (99, 1)), 40, 16) == ((5, 2, 16), (99, 1, 8))
    assert sized_runs(((5, 2),), 32, 16) == ((5, 2, 16),)
    assert sized_runs((), 0, 16) == ()


def test_how_runs_are_cut_does_not_matter_to_what_two_share():
    one = [(0, 2, 16), (2, 2, 16), (4, 6, 16)]
    assert shared_size(one, [(0, 3, 16), (3, 5, 16), (50, 1, 16)]) == 8 * 16
    assert shared_size(one, [(1, 9, 16)]) == shared_size(one, []) == 0
