"""The trees of a trace, one at a time."""

import pytest

from aitrace.errors import UsageError
from aitrace.schema import Dependency, Outcome
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.options import LoadOptions
from replayer.planning.trace_trees import TraceTrees
from replayer.planning.tree_filter import tree_condition

S = 1_000_000_000


def trees_of(trace, **options):
    trees = TraceTrees(trace, LoadOptions(**options))
    return [trees.tree(place) for place in range(len(trees))]


def ids(tree):
    return [one.call.id for one in tree.calls]


def test_interleaved_trees_are_told_apart():
    builder = TraceBuilder()
    one, two = builder.session(), builder.session()
    for _ in range(2):
        builder.call(two)
        builder.call(one)
    assert [(tree.root, ids(tree)) for tree in trees_of(builder.trace())] == [(0, [1, 3]), (1, [0, 2])]


def test_a_tree_starts_with_its_first_request():
    assert [tree.recorded_start_ns for tree in trees_of(make_trace(3, 2))] == [0, S, 2 * S]


def test_what_is_left_out_of_a_tree_is_counted():
    builder = TraceBuilder()
    main = builder.session()
    refused = builder.call(main, outcome=Outcome(status=429, error="refused"))
    retry = Dependency(call=refused, relation="retry", gap_ns=S, cause="backoff")
    builder.call(main, after=[retry], retry_of=refused, attempt=2)
    builder.call(main, call_class="count_tokens")
    builder.call(builder.session())
    one, other = trees_of(builder.trace())
    assert (one.left_out["retried"], one.left_out["counted"], ids(one)) == (1, 1, [1])
    assert (other.left_out["retried"], other.left_out["counted"], ids(other)) == (0, 0, [3])


def test_a_tree_without_a_call_to_play_is_told_as_empty():
    builder = TraceBuilder()
    builder.call(builder.session(), call_class="count_tokens")
    builder.call(builder.session())
    assert [ids(tree) for tree in trees_of(builder.trace())] == [[], [1]]


def test_trees_that_do_not_meet_the_conditions_are_left_out_and_counted():
    builder = TraceBuilder()
    for harness in ("codex", "claude-code", "codex"):
        builder.call(builder.session(harness=harness))
    builder.call(builder.session(harness="codex"), call_class="count_tokens")
    trees = TraceTrees(builder.trace(), LoadOptions(select=(tree_condition("harness=codex"),)))
    assert ([trees.tree(place).root for place in range(len(trees))], trees.unmet) == ([0, 2], 1)


def test_conditions_that_no_tree_meets_are_refused():
    with pytest.raises(UsageError, match="no tree of 2 meets calls>9"):
        trees_of(make_trace(2, 2), select=(tree_condition("calls>9"),))


@pytest.mark.parametrize(("policy", "played"), [("stop", [1, 1]), ("drop", [0, 0]), ("compact", [3, 3])])
def test_trees_are_fitted_into_the_window_one_by_one(policy, played):
    """Prompts of 1200, 1600 and 2000 tokens."""
    trace = make_trace(2, 3)
    trees = TraceTrees(trace, LoadOptions(context_tokens=1500, over_context=policy))
    found = [trees.tree(place) for place in range(2)]
    assert [len(tree.calls) for tree in found] == played
    assert [tree.left_out["over_sessions"] for tree in found] == [1, 1]
    assert [tree.left_out["over_calls"] for tree in found] == [3 - calls for calls in played]
    assert (trees.trace is trace) == (policy != "compact")
