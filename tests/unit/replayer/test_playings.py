"""The trees that a plan plays."""

import pytest

from aitrace.errors import InputError, UsageError
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.mid_start import StartRange
from replayer.planning.options import LoadOptions
from replayer.planning.planned import PlannedTree
from replayer.planning.playings import Playings

S = 1_000_000_000
ANYWHERE = StartRange(low=0.1, high=0.9)


def playings_of(trace, **options):
    return Playings(trace, LoadOptions(**options))


def tree(number, *, first=0, root=0, count=1):
    return PlannedTree(
        number=number, instance=1, root=root, start_ns=0, planned_ns=0, first=first, count=count, sessions=1
    )


def late_and_early(**header):
    builder = TraceBuilder(**header)
    late, early = builder.session(), builder.session()
    builder.call(late, at_ns=9 * S)
    builder.call(early, at_ns=4 * S)
    builder.call(early, at_ns=6 * S)
    return builder.trace()


def test_trees_are_in_order_of_their_starts():
    playings = playings_of(late_and_early())
    assert (playings.roots, playings.recorded_ns) == ([1, 0], [4 * S, 9 * S])
    assert [playings.facts(number).calls for number in range(4)] == [2, 1, 2, 1]
    assert [[one.call for one in playings.outline(number)] for number in (0, 1)] == [[1, 2], [0]]


def test_trees_whose_starts_cannot_be_compared_are_in_the_order_of_the_trace():
    playings = playings_of(late_and_early(clock_scope="tree"))
    assert playings.roots == [0, 1]
    assert [playings.facts(number).calls for number in (0, 1)] == [1, 2]


def test_calls_are_made_once_for_as_long_as_they_are_held():
    playings = playings_of(make_trace(1, 100))
    assert playings.held(0) is None
    calls = playings.calls(tree(0, count=100))
    for number in range(1, 200):
        playings.calls(tree(number, first=100 * number, count=100))
    assert playings.calls(tree(0, count=100)) is calls is playings.held(0)
    assert (playings.held(1), playings.held(199) is None) == (None, False)


def test_a_tree_larger_than_all_that_is_kept_is_kept_alone():
    playings = playings_of(make_trace(1, 2))
    playings.calls(tree(0, count=20_000))
    assert playings.held(0) is not None
    playings.calls(tree(1, count=20_000))
    assert (playings.held(0), playings.held(1) is None) == (None, False)


def test_playings_that_start_anywhere_differ_in_calls_facts_and_outline():
    playings = playings_of(make_trace(1, 50), start_at=ANYWHERE)
    counts = [playings.facts(number).calls for number in range(20)]
    assert playings.differ
    assert len(set(counts)) > 5
    assert [len(playings.outline(number)) for number in range(20)] == counts
    assert [len(playings.calls(tree(number)).calls) for number in range(20)] == counts


def test_facts_of_primed_playings_count_the_primed_calls_too():
    facts = playings_of(make_trace(1, 5), start_at=StartRange(low=0.5, high=0.5), prime=True).facts(0)
    assert (facts.calls, facts.primes) == (4, 1)


def test_a_trace_without_calls_to_play_is_refused():
    builder = TraceBuilder()
    builder.call(builder.session(), call_class="count_tokens")
    with pytest.raises(InputError, match="no call to play"):
        playings_of(builder.trace())


def test_a_trace_of_which_nothing_fits_is_refused():
    with pytest.raises(UsageError, match="no call fits into a context of 50 tokens"):
        playings_of(make_trace(1, 2), context_tokens=50)


def test_what_is_left_out_of_trees_that_are_not_played_is_told_apart():
    builder = TraceBuilder()
    builder.call(builder.session(), call_class="count_tokens")
    builder.call(builder.session())
    playings = playings_of(builder.trace())
    assert [left_out["counted"] for left_out in playings.left_out] == [0]
    assert [left_out["counted"] for left_out in playings.left_out_whole] == [1]
