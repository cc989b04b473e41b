import re

import orjson
import pytest

from replayer.text import TextSource
from replayer.words import WORDS


def test_words_are_lower_case_ascii_with_a_leading_space():
    assert all(re.fullmatch(rb" [a-z]{2,7}", word) for word in WORDS)


def test_words_differ():
    assert 1024 == len(WORDS) == len(set(WORDS))


def test_a_block_has_one_word_for_each_token():
    text = TextSource(0, 1.0).block(7, 64)
    assert len(text.split()) == 64
    assert text.startswith(b" ")


def test_text_needs_no_escaping():
    text = TextSource(0, 1.0).block(7, 500)
    assert b'"' + text + b'"' == orjson.dumps(text.decode())


def test_the_same_key_and_seed_say_the_same():
    assert TextSource(5, 1.0).block(7, 64) == TextSource(5, 1.0).block(7, 64)


def test_another_seed_says_something_else():
    assert TextSource(5, 1.0).block(7, 4) != TextSource(6, 1.0).block(7, 4)


def test_another_seed_has_as_many_words():
    one, other = TextSource(5, 1.3), TextSource(6, 1.3)
    sizes = [(len(one.block(key, 16).split()), len(other.block(key, 16).split())) for key in range(1000)]
    assert {12, 13} == {count for pair in sizes for count in pair}
    assert all(left == right for left, right in sizes)


def test_a_shorter_block_begins_the_longer_one_of_its_key():
    source = TextSource(0, 1.0)
    assert source.block(9, 64).startswith(source.block(9, 10))


def test_keys_part_within_sixteen_words():
    source = TextSource(0, 1.0)
    assert len({source.block(key, 16) for key in range(20_000)}) == 20_000


def test_keys_part_within_four_words_but_for_rare_chance():
    """20,000 keys make 2e8 pairs, each alike with a chance of 2**-40."""
    source = TextSource(0, 1.0)
    assert len({source.block(key, 4) for key in range(20_000)}) == 20_000


def test_the_largest_key_has_text():
    assert len(TextSource(0, 1.0).block((1 << 64) - 1, 16).split()) == 16


@pytest.mark.parametrize(("tokens", "tokens_per_word"), [(16, 1.3), (64, 0.9), (0.4, 1.0), (3.7, 1.11)])
def test_rounding_is_not_biased_over_many_blocks(tokens, tokens_per_word):
    """Each block is off by less than a word; the mean of 20,000 by about 0.5 / sqrt(20,000) = 0.004."""
    source = TextSource(0, tokens_per_word)
    words = [len(source.block(key, tokens).split()) for key in range(20_000)]
    assert pytest.approx(tokens / tokens_per_word, abs=0.02) == sum(words) / len(words)
    assert max(words) - min(words) <= 1


def test_a_segment_is_the_text_of_its_blocks_in_order():
    source = TextSource(0, 1.0)
    expected = source.block(5, 64) + source.block(6, 64) + source.block(2, 30)
    assert expected == source.segment([(5, 2), (2, 1)], [64, 64, 30])


def test_a_segment_without_blocks_is_empty():
    assert TextSource(0, 1.0).segment([], []) == b""
