"""Parts of a plan: together they are the plan, and each is one of its own."""

import pytest

from aitrace.testing import make_trace
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan
from replayer.planning.shards import most_parts, shard_of


def plan_of(trees=5, **options):
    return build_plan(make_trace(sessions=3, calls=4), LoadOptions(trees=trees, **options))


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_each_call_is_in_one_part_as_it_is_in_the_whole(parts):
    plan = plan_of()
    calls = [call for part in range(parts) for call in shard_of(plan, part, parts).every_call()]
    assert sorted(calls, key=lambda call: call.index) == [*plan.every_call()]


def test_a_part_holds_every_nth_tree_and_counts_its_calls():
    plan = plan_of()
    shard = shard_of(plan, 1, 2)
    assert [tree.number for tree in shard.trees] == [1, 3]
    assert shard.call_count == len([*shard.every_call()]) == sum(tree.count for tree in shard.trees)


def test_lanes_sessions_and_calls_add_up():
    plan = plan_of(concurrency=4)
    shards = [shard_of(plan, part, 3) for part in range(3)]
    assert [shard.lanes for shard in shards] == [2, 1, 1]
    assert sum(shard.sessions for shard in shards) == plan.sessions
    assert sum(shard.call_count for shard in shards) == plan.call_count


def test_no_part_is_without_a_tree_or_a_lane():
    assert most_parts(plan_of()) == 5
    assert most_parts(plan_of(concurrency=2)) == 2
    assert most_parts(plan_of(trees=1, concurrency=8)) == 1
