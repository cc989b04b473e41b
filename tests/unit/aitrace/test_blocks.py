import pytest

from aitrace.errors import InputError
from aitrace.formats.blocks import (
    BlockNumbers,
    Cut,
    PromptWriter,
    common_prefix,
    cut_to_size,
    runs_from_blocks,
)
from aitrace.validate import MAX_SEGMENT_BLOCKS

SYSTEM = Cut(upto_block=2, role="system", type="system")
USER = Cut(upto_block=99, role="user", type="text")


def writer_of_tens():
    return PromptWriter(block_size=10, numbers=BlockNumbers(), block_of_source_id={})


def shapes(written):
    return [(s.type, s.size, s.blocks) for s in written.segments]


def test_a_first_prompt_is_cut_where_it_is_told_and_its_tail_is_its_own():
    written = writer_of_tens().write(0, (1, 2, 3), 37, None, [SYSTEM, USER])
    assert shapes(written) == [("system", 20, ((0, 2),)), ("text", 10, ((2, 1),)), ("text", 7, ((3, 1),))]
    assert (written.prompt.base, written.prompt.keep, written.prompt.add) == (None, 0, (0, 1, 2))


def test_a_longer_prompt_keeps_whole_segments_but_never_the_tail():
    writer = writer_of_tens()
    first = writer.write(0, (1, 2, 3), 37, None, [SYSTEM, USER])
    second = writer.write(1, (1, 2, 3, 4), 40, first.held, [USER])
    assert (second.prompt.base, second.prompt.keep) == (0, 2)
    assert shapes(second) == [("text", 10, ((4, 1),))]


def test_a_segment_in_which_the_prefix_ends_is_cut_once_more():
    writer = writer_of_tens()
    first = writer.write(0, (1, 2, 3, 4, 5), 50, None, [SYSTEM, USER])
    second = writer.write(1, (1, 2, 3, 8, 9), 50, first.held, [USER])
    assert second.prompt.keep == 1
    assert shapes(second) == [("text", 10, ((2, 1),)), ("text", 20, ((5, 2),))]


def test_a_partial_last_block_has_what_remains():
    written = writer_of_tens().write(0, (1, 2, 3, 4), 32, None, [USER])
    assert shapes(written) == [("text", 32, ((0, 4),))]


def test_a_partial_block_is_not_kept_where_it_has_become_full():
    writer = writer_of_tens()
    first = writer.write(0, (1, 2), 12, None, [USER])
    second = writer.write(1, (1, 2, 3), 30, first.held, [USER])
    assert writer.shared_blocks(first.held, (1, 2, 3), 30) == 1
    assert sum(s.size for s in second.segments) == 30


def test_an_identical_prompt_keeps_its_partial_block():
    writer = writer_of_tens()
    first = writer.write(0, (1, 2), 12, None, [USER])
    second = writer.write(1, (1, 2), 12, first.held, [USER])
    assert (second.prompt.keep, second.segments) == (1, ())


@pytest.mark.parametrize(("beyond", "is_right"), [(0, True), (1, False)])
def test_a_piece_has_no_more_blocks_than_a_segment_may_have(beyond, is_right):
    size = 10 + 10 * MAX_SEGMENT_BLOCKS + beyond
    if is_right:
        [_, tail] = writer_of_tens().write(0, (1,), size, None, [USER]).segments
        assert tail.blocks == ((1, MAX_SEGMENT_BLOCKS),)
    else:
        with pytest.raises(InputError, match=f"a prompt of {size} tokens: .* got one of {size - 10} tokens$"):
            writer_of_tens().write(0, (1,), size, None, [USER])


def test_a_tail_longer_than_a_block_has_several_blocks():
    written = writer_of_tens().write(0, (1,), 35, None, [USER])
    assert shapes(written) == [("text", 10, ((0, 1),)), ("text", 25, ((1, 3),))]


def test_an_empty_prompt_has_no_segments():
    written = writer_of_tens().write(0, (), 0, None, [USER])
    assert (written.prompt.add, written.segments) == ((), ())


def test_the_previous_prompt_is_the_base_unless_another_shares_more():
    writer = writer_of_tens()
    long = writer.write(0, (1, 2, 3, 4), 40, None, [USER]).held
    other = writer.write(1, (1, 7), 20, long, [USER]).held
    assert writer.best_base((1, 2, 3, 9), 40, other) is long
    assert writer.best_base((1, 7, 8), 30, other) is other
    assert writer.best_base((9, 9), 20, other) is other


def test_a_base_is_found_for_a_first_prompt_and_there_may_be_none():
    writer = writer_of_tens()
    assert writer.best_base((1, 2), 20, None) is None
    held = writer.write(0, (1, 2, 3), 30, None, [USER]).held
    assert writer.best_base((1, 2, 8), 30, None) is held
    assert writer.best_base((), 0, None) is None


def test_ids_that_are_not_chained_do_not_make_a_base():
    writer = writer_of_tens()
    held = writer.write(0, (1, 2, 3, 4), 40, None, [USER]).held
    assert writer.best_base((3, 8, 9, 9), 40, None) is None
    assert writer.best_base((3, 8, 9, 9), 40, held) is held
    assert writer.shared_blocks(held, (3, 8), 20) == 0


def test_the_common_prefix_ends_at_the_first_difference():
    longest = list(range(50))
    for at in range(50):
        other = [*longest[:at], -1, *longest[at + 1 :]]
        assert common_prefix(longest, other) == at
    assert common_prefix(longest, longest[:7]) == 7
    assert common_prefix([], longest) == 0


def test_runs_join_consecutive_ids():
    assert runs_from_blocks([4, 5, 6, 9, 3, 4]) == ((4, 3), (9, 1), (3, 2))
    assert runs_from_blocks([]) == ()


def test_ids_beyond_the_size_are_left_out():
    assert cut_to_size((1, 2, 3, 4), 21, 10) == (1, 2, 3)
    assert cut_to_size((1, 2), 99, 10) == (1, 2)
