import tracemalloc

import pytest

from reports.cache.paths import ROOT, PromptTree
from reports.cache.reuse import Use, reuse_of

OWN = 1 << 40
"""Keys of blocks that one tree has."""


def used(prompts, runs, at, *, until=None, **fields):
    options = {"tree": 0, "instance": 1, "first_token_ns": at, "end_ns": until, **fields}
    return Use(node=prompts.add(ROOT, runs), sent_ns=at, started_ns=at, **options)


def pieces(reuse):
    columns = (reuse.use, reuse.start, reuse.end, reuse.before, reuse.age_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_distance_is_what_others_used_since_and_age_the_time_since_the_last_use_ended():
    """Prompts of 100 and 30; then 20 and 60 of others; then the first again: 80 of others and an answer of 7 lie between."""
    tree = PromptTree()
    uses = [
        used(tree, [(0, 10, 10)], 0, until=5, answer_size=4),
        used(tree, [(50, 2, 10)], 6, until=7),
        used(tree, [(60, 6, 10)], 8, until=9, answer_size=7),
        used(tree, [(0, 10, 10), (80, 1, 10)], 20),
    ]
    # Nothing reuses an answer, so the first one's own answer has become the tail of what is in between: it lies below.
    assert pieces(reuse_of(tree, uses)) == [(3, 0, 100, 87.0, 15)]


def test_a_prompt_falls_into_pieces_by_who_used_them_last():
    tree = PromptTree()
    uses = [
        used(tree, [(0, 10, 10)], 0, until=1),
        used(tree, [(0, 4, 10), (50, 2, 10)], 2, until=3),
        used(tree, [(0, 10, 10)], 10),
    ]
    # Of the first prompt the head was used again, so before its tail lie the 60 of the second one.
    assert pieces(reuse_of(tree, uses)) == [(1, 0, 40, 0.0, 1), (2, 0, 40, 0.0, 7), (2, 40, 100, 60.0, 9)]


def test_what_is_in_use_needs_but_the_room_of_the_prompt():
    tree = PromptTree()
    uses = [
        used(tree, [(0, 10, 10)], 0, until=100),
        used(tree, [(50, 9, 10)], 1, until=2),
        used(tree, [(0, 10, 10)], 3),
    ]
    assert pieces(reuse_of(tree, uses)) == [(2, 0, 100, 0.0, 0)]


def test_what_was_turned_away_is_looked_up_and_leaves_nothing():
    tree = PromptTree()
    uses = [used(tree, [(0, 10, 10)], at, is_stored=at != 0) for at in range(3)]
    reuse = reuse_of(tree, uses)
    assert pieces(reuse) == [(2, 0, 100, 0.0, 1)]
    assert reuse.known_size.tolist() == [0, 0, 100]


def test_ready_is_what_had_its_first_token_when_the_prompt_was_sent():
    tree = PromptTree()
    uses = [
        used(tree, [(0, 3, 10)], 0, until=50, first_token_ns=4),
        used(tree, [(0, 6, 10)], 1, until=50, first_token_ns=9),
        used(tree, [(0, 6, 10)], 5, until=50, first_token_ns=None),
        used(tree, [(0, 6, 10)], 9, until=50),
    ]
    reuse = reuse_of(tree, uses)
    assert reuse.ready_size.tolist() == [0, 0, 30, 60]
    assert reuse.known_size.tolist() == [0, 30, 60, 60]


def test_playings_of_a_tree_share_what_is_common_and_nothing_else():
    tree = PromptTree()
    runs = [(0, 2, 10), (OWN, 3, 10)]
    uses = [used(tree, runs, at, until=at, instance=at + 1) for at in range(2)]
    assert reuse_of(tree, uses).known_size.tolist() == [0, 20]


def test_of_a_sample_what_other_playings_own_counts_for_those_left_out():
    """A quarter was drawn: 30 of another playing stand for 120; 20 that all share, and 40 of its own, for themselves."""
    tree = PromptTree()
    uses = [
        used(tree, [(0, 2, 10), (OWN, 1, 10)], 0, until=1),
        used(tree, [(0, 2, 10), (OWN + 50, 3, 10)], 2, until=3, tree=1),
        used(tree, [(0, 2, 10), (OWN + 90, 4, 10)], 4, until=5),
        used(tree, [(0, 2, 10), (OWN, 1, 10)], 6),
    ]
    assert pieces(reuse_of(tree, uses, rate=0.25))[-2:] == [
        (3, 0, 20, 0.0, 1),
        (3, 20, 30, 20 + 40 + 120.0, 5),
    ]


def test_an_end_that_came_before_the_sending_counts_for_nothing():
    tree = PromptTree()
    uses = [used(tree, [(0, 1, 10)], 5, until=2), used(tree, [(0, 1, 10)], 8)]
    assert pieces(reuse_of(tree, uses)) == [(1, 0, 10, 0.0, 3)]


@pytest.mark.parametrize("runs", [[], [(0, 1, 10)]])
def test_a_prompt_without_blocks_has_no_pieces(runs):
    tree = PromptTree()
    uses = [used(tree, runs, 0, until=1), used(tree, [], 2)]
    assert pieces(reuse_of(tree, uses)) == []
    assert pieces(reuse_of(tree, [])) == []


def most_memory(prompts, replaced):
    """Bytes that the pass takes at most over one session, whose prompts each go on with the one before.

    Args:
        replaced: Blocks at the end of each prompt that the next one has not.
    """
    tree = PromptTree()
    uses, node = [], ROOT
    for number in range(prompts):
        node = tree.add(node, [(OWN + 10 * number, 2, 10)])
        end = tree.add(node, [(2 * OWN + 10 * number, replaced, 10)] if replaced else [])
        uses.append(
            Use(
                node=end,
                tree=0,
                instance=1,
                sent_ns=number,
                started_ns=number,
                first_token_ns=number,
                end_ns=number,
            )
        )
    tracemalloc.start()
    try:
        reuse_of(tree, uses)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("replaced", [0, 1])
def test_memory_grows_with_the_calls_of_a_session_and_not_with_their_square(replaced):
    assert most_memory(1600, replaced) < 3 * most_memory(800, replaced)


def test_what_was_computed_only_while_a_prompt_waited_was_not_ready():
    """An estimate of its begin that comes too late must not turn what was in flight into what was lost."""
    prompts = PromptTree()
    end = prompts.add(ROOT, [(0, 4, 16)])
    first = Use(node=end, tree=0, instance=1, sent_ns=0, started_ns=0, first_token_ns=5, end_ns=9)
    waited = Use(node=end, tree=0, instance=1, sent_ns=3, started_ns=7, first_token_ns=8, end_ns=9)
    reuse = reuse_of(prompts, [first, waited])
    assert (reuse.known_size.tolist(), reuse.ready_size.tolist()) == ([0, 64], [0, 0])
