"""Trees of a plan as a few bytes each, and the calls of one."""

import pytest

from aitrace.testing import TraceBuilder
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan
from replayer.planning.planned import PlannedTrees, TreeTable


def table_of(*trees, roots=(7, 9), is_open_loop=True, warm_up_trees=0):
    """Trees by start and number of calls, each of one session."""
    table = TreeTable(roots, is_open_loop=is_open_loop, warm_up_trees=warm_up_trees)
    for planned_ns, count in trees:
        table.add(planned_ns, count=count, sessions=1)
    return table


def test_trees_of_a_trace_come_in_turn_and_are_numbered_by_playing():
    trees = PlannedTrees(table_of((0, 2), (5, 3), (9, 2)))
    assert [(tree.number, tree.root, tree.instance) for tree in trees] == [(0, 7, 1), (1, 9, 1), (2, 7, 2)]
    assert [(tree.first, tree.count, tree.start_ns) for tree in trees] == [(0, 2, 0), (2, 3, 5), (5, 2, 9)]


def test_lanes_have_planned_starts_alone_which_may_not_be_known():
    trees = PlannedTrees(table_of((4, 1), (None, 1), is_open_loop=False))
    assert [(tree.start_ns, tree.planned_ns) for tree in trees] == [(None, 4), (None, None)]


def test_the_first_trees_are_the_warm_up():
    trees = PlannedTrees(table_of((0, 1), (1, 1), (2, 1), warm_up_trees=2))
    assert [tree.is_warm_up for tree in trees] == [True, True, False]


def test_a_call_is_found_by_its_index():
    trees = PlannedTrees(table_of((0, 2), (5, 3), (9, 2)))
    assert [trees.number_of(index) for index in range(7)] == [0, 0, 1, 1, 1, 2, 2]


def test_some_of_the_trees_keep_their_numbers_and_know_of_the_others():
    trees = PlannedTrees(table_of(*[(number, 1) for number in range(7)]))
    some = trees[1::3]
    assert ([tree.number for tree in some], len(some), some[-1].number) == ([1, 4], 2, 4)
    assert [tree.number for tree in some[1:]] == [4]
    assert (some.tree(6).number, some.number_of(6)) == (6, 6)


def test_there_is_no_tree_beyond_the_last():
    with pytest.raises(IndexError):
        PlannedTrees(table_of((0, 1)))[1]


def test_a_call_knows_those_that_wait_for_it():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    inner = builder.call(builder.session(parent=main), after=[first])
    builder.call(main, after=[first, inner])
    plan = build_plan(builder.trace(), LoadOptions(trees=2))
    calls = plan.calls_of(plan.trees[1])
    assert [[index for index, _ in calls.followers(call.index)] for call in calls.calls] == [[4, 5], [5], []]
    assert calls.call(4) is calls.calls[1]
