"""Pure: which part of a plan each of several processes plays.

Trees are dealt out in turn, since a tree's calls wait for each other. So are lanes: each process has its own, and the
trees of its part go through them, which is why the last trees of a run may not be spread as evenly as in one process.
"""

from dataclasses import replace

from replayer.planning.plan import Plan


def shard_of(plan: Plan, part: int, parts: int) -> Plan:
    """Part `part`, counted from 0, of a plan that is played in `parts`; its calls keep their places in the whole."""
    trees = plan.trees[part::parts]
    return replace(
        plan,
        trees=trees,
        lanes=None if plan.lanes is None else plan.lanes // parts + (part < plan.lanes % parts),
        call_count=sum(tree.count for tree in trees),
        sessions=sum(tree.sessions for tree in trees),
    )


def most_parts(plan: Plan) -> int:
    """Into how many parts a plan can be cut at most, each with something to do."""
    return max(1, min(len(plan.trees), plan.lanes or len(plan.trees)))
