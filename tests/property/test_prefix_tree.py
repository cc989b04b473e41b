"""The tree of prompts says the same as comparing every prompt with every earlier one."""

from hypothesis import given
from hypothesis import strategies as st

from aitrace.assembly.prefix_tree import START, UNSEEN_START, PrefixTree

prompts = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=7), st.sampled_from((START, UNSEEN_START))), max_size=40
)


def shared(one, other):
    return next(
        (i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other))
    )


@given(prompts)
def test_base_and_keep_are_those_of_the_first_call_that_shares_most(drawn):
    tree = PrefixTree()
    for call, (segments, start) in enumerate(drawn):
        lengths = [shared(segments, old) if start == side else 0 for old, side in drawn[:call]]
        keep = max(lengths, default=0)
        place = tree.insert(segments, call, start=start)
        assert (place.keep, place.base) == (keep, lengths.index(keep) if keep else None)


@given(prompts)
def test_equal_prompts_have_one_node_for_good_and_others_have_others(drawn):
    tree = PrefixTree()
    nodes = {}
    for call, (segments, start) in enumerate(drawn):
        node = tree.insert(segments, call, start=start).node
        assert nodes.setdefault((start, *segments), node) == node
    assert len(set(nodes.values())) == len(nodes)


@given(prompts)
def test_every_prompt_that_is_extended_is_among_the_starts(drawn):
    tree = PrefixTree()
    nodes = {}
    for call, (segments, start) in enumerate(drawn):
        nodes[start, *segments] = tree.insert(segments, call, start=start).node
    for (start, *segments), node in nodes.items():
        starts = list(tree.starts(node))
        lengths = [length for _, length in starts]
        assert lengths == sorted(set(lengths), reverse=True)
        assert all(0 < length < len(segments) for length in lengths)
        extended = [
            (nodes[start, *segments[:length]], length)
            for length in range(1, len(segments))
            if (start, *segments[:length]) in nodes
        ]
        assert set(extended) <= set(starts)
