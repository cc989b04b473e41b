import pytest

from reports.answers import spread_of
from reports.metric import Sample
from reports.words import (
    counted,
    gap_label,
    printable,
    quantile_texts,
    text_from_float,
    text_from_ms,
    text_from_ratio,
    text_from_seconds,
    text_from_value,
)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.01234, "0.0123"), (2.345, "2.35"), (45.67, "45.7"), (1234.5, "1,234")]
)
def test_floats_have_three_digits_that_matter(value, text):
    assert text_from_float(value) == text


def test_values_carry_their_unit_and_unknown_ones_a_dash():
    assert text_from_value(12345, "tokens") == "12,345 tokens"
    assert text_from_value(0.5, "") == "0.500".rstrip("0")
    assert text_from_value(None, "ms") == "–"


def test_one_has_no_plural():
    assert (counted(1, "call"), counted(2000, "call"), counted(None, "call")) == (
        "1 call",
        "2,000 calls",
        "0 calls",
    )


def test_a_count_of_one_has_no_plural_in_its_unit():
    assert [text_from_value(count, "calls") for count in (0, 1, 2)] == ["0 calls", "1 call", "2 calls"]
    assert [text_from_value(1, unit) for unit in ("prefill tokens", "ms", "tokens/s", "")] == [
        "1 prefill token", "1 ms", "1 tokens/s", "1",
    ]  # fmt: skip


def test_ratios_are_percent():
    assert text_from_ratio(0.1234) == "12.3 %"
    assert text_from_ratio(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.02, "20 ms"), (10, "10 s"), (60, "1 min"), (300, "5 min")]
)
def test_lengths_of_time_choose_their_unit(seconds, text):
    assert (text_from_seconds(seconds), text_from_ms(1000 * seconds)) == (text, text)


def test_lengths_of_time_that_are_not_known_are_a_dash():
    assert (text_from_seconds(None), text_from_ms(None)) == ("–", "–")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, None, "–"),
        (0, None, "any"),
        (0, 1, "under 1 s"),
        (1, 10, "1 s – 10 s"),
        (300, None, "5 min and over"),
    ],
)
def test_gap_buckets_have_names(low, high, text):
    assert gap_label(low, high) == text


def test_a_gap_bucket_of_words_is_a_fault():
    with pytest.raises(ValueError, match="not made of numbers"):
        gap_label("a", None)


def test_too_few_values_say_so_and_none_say_nothing():
    import numpy as np

    one = spread_of(Sample(values=np.array([5.0]), sessions=np.array([1])), with_intervals=False)
    none = spread_of(Sample(values=np.array([]), sessions=np.array([])), with_intervals=True)
    assert quantile_texts(one) == ["1", "5.00", "n < 20", "n < 40", "n < 200", "5.00"]
    assert quantile_texts(none) == ["0", "–", "–", "–", "–", "–"]


def test_control_characters_do_not_reach_a_terminal():
    assert printable("a\x1b[31mb\nc") == "a [31mb c"
