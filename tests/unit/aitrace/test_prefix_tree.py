from aitrace.prefix_tree import START, UNSEEN_START, Place, PrefixTree


def test_the_first_prompt_has_no_base():
    assert PrefixTree().insert([5, 6], 0) == Place(node=3, base=None, keep=0)


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


def test_starts_are_the_prompts_that_are_extended_the_longest_first():
    tree = PrefixTree()
    one = tree.insert([1], 0).node
    two = tree.insert([1, 2], 1).node
    three = tree.insert([1, 2, 3], 2).node
    assert list(tree.starts(three)) == [two, one]
    assert list(tree.starts(one)) == []
    assert list(tree.starts(START)) == []


def test_nodes_grow_with_new_segments_only():
    tree = PrefixTree()
    prompt = []
    for call in range(50):
        prompt.append(call)
        tree.insert(prompt, call)
        tree.insert(prompt, call)
    assert len(tree._parents) == 2 + 50
