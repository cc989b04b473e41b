import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replayer.text import TextSource

keys = st.integers(0, (1 << 63) - 1)
sources = st.builds(TextSource, st.integers(0, 1000), st.floats(0.2, 5))
sizes = st.floats(0, 600)


@settings(max_examples=200, deadline=None)
@given(sources, keys, sizes, sizes)
def test_of_one_key_the_shorter_text_begins_the_longer(source, key, one, other):
    shorter, longer = sorted([source.block(key, one), source.block(key, other)], key=len)
    assert longer.startswith(shorter)


@settings(max_examples=200, deadline=None)
@given(sources, keys, keys)
def test_two_keys_part_within_eight_words(source, one, other):
    if one != other:
        assert source.block(one, 60).split()[:8] != source.block(other, 60).split()[:8]


@settings(max_examples=200, deadline=None)
@given(sources, st.lists(st.tuples(keys, st.integers(1, 4)), max_size=6))
def test_where_runs_are_cut_does_not_matter(source, runs):
    sizes = [16] * sum(count for _, count in runs)
    single = [(first + offset, 1) for first, count in runs for offset in range(count)]
    assert source.segment(single, sizes) == source.segment(runs, sizes)


@settings(max_examples=200, deadline=None)
@given(sources, st.lists(st.tuples(keys, sizes), min_size=1, max_size=8))
def test_a_small_text_is_the_one_that_arrays_make(source, blocks):
    expected = source._blocks(
        np.array([key for key, _ in blocks], dtype=np.uint64),
        np.array([size * source._words_per_token for _, size in blocks]),
    )
    assert b"".join(source._small_block(key, size) for key, size in blocks) == expected
