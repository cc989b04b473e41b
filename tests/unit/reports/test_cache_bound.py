"""The bound of all calls at once; tests/property holds it against looking prompts up one by one."""

import numpy as np

from aitrace.columns import call_columns
from aitrace.testing import TraceBuilder
from reports.cache.bound import SentCalls, bound_sizes
from reports.cache.paths import TracePaths


def sizes(trace, played, *, share_system=False):
    """(session, tree, other) of each; `played` are call, instance and whether it is stored, in order of sending."""
    call, instance, is_stored = zip(*played, strict=True) if played else ((), (), ())
    sent = SentCalls(
        call=np.array(call, np.int64),
        instance=np.array(instance, np.int64),
        is_stored=np.array(is_stored, bool),
    )
    bound = bound_sizes(sent, call_columns(trace), TracePaths(trace, share_system=share_system))
    return list(zip(bound.session.tolist(), bound.tree.tolist(), bound.other.tolist(), strict=True))


def agents():
    """A main agent with two calls and a sub-agent whose call begins with the same system prompt, and another tree."""
    builder = TraceBuilder(block_size=10)
    system = builder.segment(100, role="system", type="system")
    main = builder.session()
    builder.call(main, [system, builder.segment(50)])
    builder.call(main, [builder.segment(30)])
    builder.call(builder.session(parent=main), [system, builder.segment(20)])
    builder.call(builder.session(), [system, builder.segment(40)])
    return builder.trace()


def test_no_calls_have_no_bound():
    assert sizes(agents(), []) == []


def test_each_call_has_what_its_session_its_tree_and_other_trees_sent_before():
    played = [(0, 1, True), (1, 1, True), (2, 1, True), (3, 1, True)]
    assert sizes(agents(), played) == [(0, 0, 0), (150, 0, 0), (0, 100, 0), (0, 0, 100)]


def test_the_order_is_that_of_sending():
    played = [(3, 1, True), (2, 1, True), (1, 1, True), (0, 1, True)]
    assert sizes(agents(), played) == [(0, 0, 0), (0, 0, 100), (0, 100, 0), (150, 0, 0)]


def test_another_playing_has_only_what_all_trees_share():
    played = [(1, 1, True), (1, 2, True), (0, 2, True), (0, 1, True), (2, 2, True)]
    assert sizes(agents(), played) == [(0, 0, 0), (0, 0, 100), (150, 0, 0), (150, 0, 0), (0, 100, 0)]


def test_what_was_turned_away_is_looked_up_and_not_stored():
    played = [(0, 1, False), (1, 1, True), (0, 1, True)]
    assert sizes(agents(), played) == [(0, 0, 0), (0, 0, 0), (150, 0, 0)]


def test_a_call_that_is_played_twice_finds_itself():
    assert sizes(agents(), [(1, 1, True), (1, 1, True)]) == [(0, 0, 0), (180, 0, 0)]


def test_prompts_of_nothing_share_nothing():
    builder = TraceBuilder(block_size=10)
    session = builder.session()
    builder.call(session, [])
    builder.call(session, [builder.segment(25)])
    assert sizes(builder.trace(), [(0, 1, True), (1, 1, True), (0, 1, True)]) == [(0, 0, 0)] * 3


def test_prompts_that_part_share_what_is_before():
    """Three that go on from one prompt in different ways; the second drops its last segment."""
    builder = TraceBuilder(block_size=10)
    session = builder.session()
    first = builder.call(session, [builder.segment(100), builder.segment(40)])
    builder.call(session, [builder.segment(30)], base=first, keep=1)
    builder.call(session, [builder.segment(20)], base=first, keep=2)
    played = [(0, 1, True), (1, 1, True), (2, 1, True)]
    assert sizes(builder.trace(), played) == [(0, 0, 0), (100, 0, 0), (140, 0, 0)]
    played = [(1, 1, True), (2, 1, False), (2, 1, True), (0, 1, True)]
    assert sizes(builder.trace(), played) == [(0, 0, 0), (100, 0, 0), (100, 0, 0), (140, 0, 0)]
