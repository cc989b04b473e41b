from aitrace.assembly.prefix_tree import START, UNSEEN_START, Place, PrefixTree


def test_the_first_prompt_has_no_base():
    assert PrefixTree().insert([5, 6], 0) == Place(node=2, base=None, keep=0)


def test_the_longest_shared_start_with_any_earlier_call_is_kept():
    tree = PrefixTree()
    tree.insert([1, 2, 3], 0)
    tree.insert([1, 9], 1)
    tree.insert([1, 9, 8, 7], 2)
    place = tree.insert([1, 9, 8, 6], 3)
    assert (place.base, place.keep) == (2, 3)
    other = tree.insert([1, 2, 4], 4)
    assert (other.base, other.keep) == (0, 2)


def test_identical_prompts_have_one_node():
    tree = PrefixTree()
    first = tree.insert([1, 2], 0)
    again = tree.insert([1, 2], 1)
    shorter = tree.insert([1], 2)
    assert again == Place(node=first.node, base=0, keep=2)
    assert (shorter.base, shorter.keep) == (0, 1)
    assert shorter.node != first.node


def test_an_empty_prompt_is_the_start():
    assert PrefixTree().insert([], 0) == Place(node=START, base=None, keep=0)


def test_a_prompt_without_its_start_shares_nothing_with_a_whole_one():
    tree = PrefixTree()
    whole = tree.insert([1, 2], 0)
    tail = tree.insert([1, 2], 1, start=UNSEEN_START)
    assert (tail.base, tail.node != whole.node) == (None, True)
    assert tree.insert([1, 2, 3], 2, start=UNSEEN_START).base == 1


def test_starts_are_what_is_extended_with_their_lengths_the_longest_first():
    tree = PrefixTree()
    one = tree.insert([1], 0).node
    two = tree.insert([1, 2, 3], 1).node
    three = tree.insert([1, 2, 3, 4], 2).node
    assert list(tree.starts(three)) == [(two, 3), (one, 1)]
    assert list(tree.starts(one)) == []
    assert list(tree.starts(START)) == []


def test_a_prompt_that_branches_off_leaves_the_nodes_of_the_others_as_they_are():
    tree = PrefixTree()
    long = tree.insert([1, 2, 3, 4], 0).node
    branch = tree.insert([1, 2, 9], 1)
    assert (branch.base, branch.keep) == (0, 2)
    assert tree.insert([1, 2, 3, 4], 2) == Place(node=long, base=0, keep=4)
    assert tree.insert([1, 2, 9], 3) == Place(node=branch.node, base=1, keep=3)
    assert [length for _, length in tree.starts(long)] == [2]


def test_a_prompt_that_is_a_start_of_an_earlier_one_gets_a_node_between():
    tree = PrefixTree()
    long = tree.insert([1, 2, 3], 0).node
    short = tree.insert([1, 2], 1)
    assert (short.base, short.keep) == (0, 2)
    assert list(tree.starts(long)) == [(short.node, 2)]
    assert tree.insert([1, 2, 5], 2) == Place(node=long + 2, base=0, keep=2)


def test_a_call_adds_two_nodes_at_most_whatever_its_prompt():
    """A client that writes the time into its system prompt shares nothing with its own calls before."""
    tree = PrefixTree()
    for call in range(50):
        tree.insert([1000 + call, *range(500)], call)
        tree.insert([7, *range(call), 1000 + call], call)
    assert len(tree._nodes) <= 2 + 4 * 50
