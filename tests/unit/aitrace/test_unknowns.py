import pytest

from aitrace.formats.unknowns import Unknown, is_unknown_sentence


@pytest.mark.parametrize("sentence", Unknown)
def test_each_sentence_is_told_with_any_numbers(sentence):
    assert is_unknown_sentence(sentence.format(3, 1259))
    assert is_unknown_sentence(sentence.format("1e-06", "0.25"))


@pytest.mark.parametrize("text", ["", "7", "the password is hunter2", "end of calls", Unknown.TOOLS + "7"])
def test_anything_else_is_no_sentence_of_ours(text):
    assert not is_unknown_sentence(text)


def test_a_sentence_holds_no_digit_of_its_own():
    """A number in a text is looked at as a gap, so a digit would never match."""
    assert not any(character.isdigit() for sentence in Unknown for character in sentence)
