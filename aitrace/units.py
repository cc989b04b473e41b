"""Pure: durations, sizes and rates as text, the one place that reads and writes them.

Reading:  `250ms`, `1.5s`, `2m`, `1h`, `90` (seconds); `0.2/s`, `12/min`, `100/h`.
Not read: `5 parsecs` (unknown unit), `-1s` (below 0), `0.2` as a rate (per what?).

A duration without a unit is in seconds, wherever it is given; a rate always says per what, since no unit of it is usual.
Sizes are written with decimal multiples, as tokens and rates are counted everywhere.
"""

import re

from aitrace.errors import UsageError

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
NS_PER_MIN = 60 * NS_PER_S
NS_PER_H = 60 * NS_PER_MIN
NOT_KNOWN = "–"
"""Stands for a number that is not known."""

_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_DURATION = re.compile(_NUMBER + r"\s*(ns|us|ms|s|m|min|h|d)?")
_RATE = re.compile(_NUMBER + r"\s*/\s*(s|min|m|h)")
_NS_OF_UNIT = {
    "ns": 1,
    "us": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": NS_PER_MIN,
    "min": NS_PER_MIN,
    "h": NS_PER_H,
    "d": 24 * NS_PER_H,
}


def ns_from_duration(text: str) -> int:
    """Nanoseconds of `250ms`, `1.5s`, `2m`; a bare number is seconds.

    Raises:
        UsageError: If it is not a duration of 0 or more.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration, expected a number with ns, us, ms, s, m, h or d")
    return round(float(match[1]) * _NS_OF_UNIT[match[2] or "s"])


def per_s_from_rate(text: str) -> float:
    """Events per second of `0.2/s`, `12/min`, `100/h`.

    Raises:
        UsageError: If it is not a rate.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a rate, expected a number with /s, /min or /h")
    return float(match[1]) * NS_PER_S / _NS_OF_UNIT[match[2]]


def duration_from_ns(length_ns: int) -> str:
    """A length for people, to three digits: `250 ms`, `1.5 s`, `5 min`, `2 min 05 s`, `3 h 20 min`."""
    if length_ns < 0:
        return "-" + duration_from_ns(-length_ns)
    if length_ns == 0:
        return "0 s"
    for unit, unit_ns, limit_ns in (
        ("ns", 1, NS_PER_US),
        ("µs", NS_PER_US, NS_PER_MS),
        ("ms", NS_PER_MS, NS_PER_S),
    ):
        if length_ns < limit_ns:
            text = _three_digits(length_ns / unit_ns)
            return f"{text} {unit}" if text != "1000" else duration_from_ns(limit_ns)
    if length_ns < NS_PER_MIN - NS_PER_S // 20:
        return f"{_three_digits(length_ns / NS_PER_S)} s"
    seconds = round(length_ns / NS_PER_S)
    if seconds < 3600:
        return f"{seconds // 60} min" + (f" {seconds % 60:02d} s" if seconds % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60:02d} min" if minutes % 60 else "")


def text_from_seconds(length_s: float | None) -> str:
    """The same of a length in s; `–` if it is not known."""
    return NOT_KNOWN if length_s is None else duration_from_ns(round(length_s * NS_PER_S))


def text_from_ms(length_ms: float | None) -> str:
    """The same of a length in ms."""
    return NOT_KNOWN if length_ms is None else duration_from_ns(round(length_ms * NS_PER_MS))


def counted(count: float | None, noun: str) -> str:
    """`1 call`, `2,000 calls`; the plural of the noun ends in s."""
    return f"{count or 0:,} {noun}{'' if count == 1 else 's'}"


def size_from_count(count: float) -> str:
    """A count for people, to three digits: `950`, `8.19 k`, `118 M`."""
    for unit, limit in (("", 1_000), ("k", 1_000_000), ("M", 1_000_000_000)):
        text = _three_digits(count / (limit / 1_000))
        if abs(count) < limit and text not in ("1000", "-1000"):
            return f"{text} {unit}".rstrip()
    return f"{_three_digits(count / 1_000_000_000)} G"


def ratio_text(part: float, whole: float) -> str:
    """A share for people, `95.4 %`; `–` if there is no whole."""
    return NOT_KNOWN if whole == 0 else f"{100 * part / whole:.1f} %"


def _three_digits(value: float) -> str:
    """Rounded to three significant digits, whole numbers unrounded, without trailing zeros."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".")
