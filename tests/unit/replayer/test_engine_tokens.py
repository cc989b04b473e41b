"""Tokens without a tokenizer."""

import pytest

from aitrace.protocols.protocol import RequestPart
from replayer.engine.answers import WORDS
from replayer.engine.tokens import PIECE_BYTES, Digest, continue_digest, digest_steps, render_prompt


def digest(text: bytes, block_size: int, piece_bytes: int = PIECE_BYTES) -> Digest:
    steps = digest_steps(text, block_size, piece_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (b"", 0),
        (b" \n\t ", 0),
        (b"a", 1),
        (b"12345678", 1),
        (b"123456789", 2),
        (b"1234567890123456", 2),
        (b"12345678901234567", 3),
        (b"  two\twords\n", 2),
        ("häuser ".encode(), 1),  # 7 bytes
        ("häusern1 x".encode(), 3),  # 9 bytes are two tokens
    ],
)
def test_a_word_is_a_token_for_each_8_bytes_begun(text, tokens):
    assert tokens == digest(text, 4).tokens


def test_only_full_blocks_have_a_key():
    counts = [len(digest(b"w " * tokens, 4).blocks) for tokens in (3, 4, 7, 8)]
    assert counts == [0, 1, 1, 2]


def test_a_change_changes_its_block_and_all_after_it():
    words = [b"w%d" % i for i in range(12)]
    changed = [*words[:5], b"other", *words[6:]]
    before, after = digest(b" ".join(words), 4).blocks, digest(b" ".join(changed), 4).blocks
    assert before[0] == after[0]
    assert all(a != b for a, b in zip(before[1:], after[1:], strict=True))


def test_equal_blocks_at_different_places_differ():
    blocks = digest(b"a b c d " * 3, 4).blocks
    assert len(set(blocks)) == 3


def test_a_block_can_end_inside_a_long_word():
    whole = digest(b"x" * 8 * 10, 4)
    assert (whole.tokens, len(whole.blocks)) == (10, 2)
    assert digest(b"x" * 8 * 4, 4).blocks == whole.blocks[:1]


def test_texts_that_differ_only_after_the_last_block_have_different_keys_of_the_whole():
    one, other = digest(b"a b c d e", 4), digest(b"a b c d f", 4)
    assert one.blocks == other.blocks
    assert one.key != other.key


def test_a_text_continued_is_the_digest_of_both():
    start, rest = b"a bb ccc\ndddd eeeee\n", b"ff g h i j kk"
    assert digest(start + rest, 4) == continue_digest(digest(start, 4), rest, 4)
    assert digest(b"x\n" + rest, 4) == continue_digest(digest(b"x\n", 4), rest, 4)


def test_a_long_text_yields_between_pieces():
    steps = list(digest_steps(b"word " * 1000, 4, piece_bytes=500))
    assert len(steps) >= 8


def test_a_piece_too_small_for_a_block_grows():
    text = b" " * 300 + b"a b c d e f g h"
    assert digest(text, 4) == digest(text, 4, piece_bytes=8)


def test_a_conversation_is_rendered_as_an_extension_of_its_start():
    """Up to the mark that opens the answer, and the answer itself where the engine's own comes back."""
    user = RequestPart(role="user", type="text", text="hello")
    answer = RequestPart(role="assistant", type="text", text="good day")
    more = RequestPart(role="user", type="text", text="and?")
    start = render_prompt([user])
    assert render_prompt([user, answer, more]).startswith(start + b"good day\n")


@pytest.mark.parametrize(
    "other",
    [
        RequestPart(role="user", type="tool_result", text="same"),
        RequestPart(role="assistant", type="text", text="same"),
        RequestPart(role="assistant", type="tool_use", text="same", tool_name="Read"),
    ],
)
def test_role_type_and_tool_are_part_of_the_text(other):
    assert render_prompt([RequestPart(role="user", type="text", text="same")]) != render_prompt([other])


def test_ids_of_tool_calls_are_not_part_of_the_text():
    one, other = (
        RequestPart(role="tool", type="tool_result", text="same", tool_id=id_)
        for id_ in ("toolu_1", "toolu_2")
    )
    assert render_prompt([one]) == render_prompt([other])


def test_every_word_of_the_vocabulary_is_one_token_with_its_space():
    assert len(WORDS) > 400
    assert len(WORDS) == len(set(WORDS))
    assert len(WORDS) == digest(b" ".join(WORDS), 16).tokens
    assert all(word.isalpha() and word.islower() for word in WORDS)
