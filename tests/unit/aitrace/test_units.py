import pytest

from aitrace.errors import UsageError
from aitrace.units import (
    counted,
    duration_from_ns,
    ns_from_duration,
    per_s_from_rate,
    ratio_text,
    size_from_count,
    text_from_ms,
    text_from_seconds,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        ("90", 90_000_000_000),
        (" 2 m ", 120_000_000_000),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1d", 86_400_000_000_000),
        (".5us", 500),
        ("7ns", 7),
        ("0", 0),
    ],
)
def test_durations_are_read_in_ns(text, ns):
    assert ns_from_duration(text) == ns


@pytest.mark.parametrize("text", ["", "-1s", "5 parsecs", "1s2", "s", "1e3", "nan", "1.2.3s"])
def test_what_is_no_duration_is_refused_with_the_text(text):
    with pytest.raises(UsageError, match="is not a duration") as caught:
        ns_from_duration(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "per_s"), [("0.2/s", 0.2), ("12/min", 0.2), ("12 / m", 0.2), ("3600/h", 1.0), ("0/s", 0.0)]
)
def test_rates_are_read_per_second(text, per_s):
    assert per_s_from_rate(text) == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["0.2", "/s", "-1/s", "1/week", "1/s/s"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(UsageError, match="is not a rate"):
        per_s_from_rate(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 s"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (999_999, "1 ms"),
        (250_000_000, "250 ms"),
        (999_600_000, "1 s"),
        (1_234_000_000, "1.23 s"),
        (59_900_000_000, "59.9 s"),
        (59_960_000_000, "1 min"),
        (300_000_000_000, "5 min"),
        (125_000_000_000, "2 min 05 s"),
        (3_599_600_000_000, "1 h"),
        (12_000_000_000_000, "3 h 20 min"),
        (-1_500_000_000, "-1.5 s"),
    ],
)
def test_durations_are_written_to_three_digits(ns, text):
    assert duration_from_ns(ns) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (950, "950"),
        (999.7, "1 k"),
        (8_192, "8.19 k"),
        (99_990, "100 k"),
        (999_999, "1 M"),
        (118_492_342, "118 M"),
        (6_890_000_000, "6.89 G"),
        (-8_192, "-8.19 k"),
    ],
)
def test_sizes_are_written_to_three_digits(count, text):
    assert size_from_count(count) == text


def test_a_ratio_of_nothing_is_a_dash():
    assert ratio_text(0, 0) == "–"
    assert ratio_text(1, 3) == "33.3 %"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (0.4, "400 µs"),
        (99.94, "99.9 ms"),
        (12_345.0, "12.3 s"),
        (300_000, "5 min"),
    ],
)
def test_lengths_are_written_whatever_their_unit(ms, text):
    assert (text_from_ms(ms), text_from_seconds(None if ms is None else ms / 1000)) == (text, text)


def test_one_has_no_plural():
    assert [counted(number, "call") for number in (1, 2000, 0, None)] == [
        "1 call",
        "2,000 calls",
        "0 calls",
        "0 calls",
    ]
