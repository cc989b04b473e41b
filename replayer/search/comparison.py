"""Pure: the same plan played in two or more ways, side by side, from the summaries of the runs.

Ways are written `OPTION=VALUE,VALUE`:

    good: `identity=native,none`, `hints=hints.json,off`
    bad:  `identity=native` (nothing to compare), `seed=1,2` (not the same plan)

A difference is that of the means over the repeats, to the first way. One run of each tells no spread, so whether a
difference is more than noise is only said of repeats: `apart` if every run of one way lies beyond every run of the other,
and how often that comes about by chance: with two runs of each in one comparison of three, with four in one of 35.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never, get_args

from aitrace.errors import UsageError
from aitrace.units import NS_PER_MS, duration_from_ns

WayOption = Literal["identity", "hints", "retries"]
Unit = Literal["ms", "s", "ratio", "count"]
Summary = Mapping[str, Any]
"""What `aitrace replay --json` prints."""
_NOT_KNOWN = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Values of one option, each of them a way to play."""

    option: WayOption
    """Which option."""
    values: tuple[str, ...]
    """Its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measure of all ways."""

    name: str
    """What is compared."""
    unit: Unit
    """Unit of the values."""
    values: tuple[tuple[float | None, ...], ...]
    """By way and repeat; None if not known."""
    counts: tuple[tuple[int, ...], ...] | None
    """Sizes of the samples behind them; None if it is no percentile."""
    differences: tuple[float | None, ...]
    """Of each way's mean to that of the first; 0 of the first itself, None if one is not known."""
    are_apart: tuple[bool | None, ...]
    """Whether every run of a way lies beyond every run of the first; None where repeats do not tell."""


def ways_from_text(text: str) -> Ways:
    """The ways to play that `identity=native,none` names.

    Raises:
        UsageError: It cannot be read, or names fewer than two.
    """
    option, equals, rest = text.partition("=")
    values = tuple(value.strip() for value in rest.split(","))
    if not equals or option not in get_args(WayOption):
        known = ", ".join(get_args(WayOption))
        raise UsageError(
            f"ways {text!r} cannot be read, expected OPTION=VALUE,VALUE with an option of {known}"
        )
    if len(values) < 2 or not all(values) or len(set(values)) < len(values):
        raise UsageError(f"ways {text!r} name no two values to compare")
    return Ways(option=option, values=values)  # type: ignore[arg-type] # it is one of them


def turns(ways: int, repeats: int) -> list[tuple[int, int]]:
    """Way and repeat of each run in turn, both from 0: A B, then B A, so that what drifts with time favours none."""
    return [
        (way, repeat)
        for repeat in range(repeats)
        for way in (range(ways) if repeat % 2 == 0 else reversed(range(ways)))
    ]


def compare(summaries: Sequence[Sequence[Summary]]) -> tuple[Compared, ...]:
    """Measures side by side.

    Args:
        summaries: Of the runs, by way and repeat; each way has at least one.
    """
    return tuple(_compared(name, unit, read, size, summaries) for name, unit, read, size in _MEASURES)


def table_lines(compared: Sequence[Compared], names: Sequence[str]) -> list[str]:
    """The comparison as lines for a terminal.

    Args:
        names: Of the ways.
    """
    heads = ["", *names, *(f"{name} − {names[0]}" for name in names[1:])]
    rows = [heads, *(_cells(each) for each in compared)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    repeats = min(len(values) for values in compared[0].values)
    if repeats == 1:
        lines.append(
            "One run of each: nothing is known of their spread, and a difference may be noise (--repeat 2)."
        )
    else:
        chance = math.comb(2 * repeats, repeats) // 2
        lines.append(
            f"apart: no run of one lies among those of the other; of ways that do not differ, one measure in {chance:,} "
            "looks so by chance."
        )
    return lines


def comparison_json(
    compared: Sequence[Compared], ways: Ways, runs: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The comparison as the JSON object of `aitrace replay --ab … --json`."""
    return {
        "option": ways.option,
        "ways": [
            {"value": value, "runs": list(of_way)} for value, of_way in zip(ways.values, runs, strict=True)
        ],
        "measures": [
            {
                "name": each.name,
                "unit": each.unit,
                "values": [list(values) for values in each.values],
                "counts": None if each.counts is None else [list(counts) for counts in each.counts],
                "differences": list(each.differences),
                "are_apart": list(each.are_apart),
            }
            for each in compared
        ],
    }


def _compared(
    name: str,
    unit: Unit,
    read: Callable[[Summary], float | None],
    size: Callable[[Summary], int] | None,
    summaries: Sequence[Sequence[Summary]],
) -> Compared:
    values = tuple(tuple(read(summary) for summary in of_way) for of_way in summaries)
    counts = (
        None if size is None else tuple(tuple(size(summary) for summary in of_way) for of_way in summaries)
    )
    return Compared(
        name=name,
        unit=unit,
        values=values,
        counts=counts,
        differences=tuple(_difference(values[0], of_way) for of_way in values),
        are_apart=tuple(_are_apart(values[0], of_way) for of_way in values),
    )


def _known(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _difference(first: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    one, two = _known(first), _known(other)
    return None if not (one and two) else sum(two) / len(two) - sum(one) / len(one)


def _are_apart(first: Sequence[float | None], other: Sequence[float | None]) -> bool | None:
    one, two = _known(first), _known(other)
    if not (one and two) or min(len(one), len(two)) < 2:
        return None
    return max(one) < min(two) or max(two) < min(one)


def _cells(each: Compared) -> list[str]:
    nothing = tuple((None,) * len(values) for values in each.values)
    sizes: Sequence[Sequence[int | None]] = each.counts or nothing
    values = [
        " / ".join(_value_text(value, each.unit, size) for value, size in zip(values, of_way, strict=True))
        for values, of_way in zip(each.values, sizes, strict=True)
    ]
    return [each.name, *values, *(_difference_text(each, way) for way in range(1, len(values)))]


def _difference_text(each: Compared, way: int) -> str:
    difference, is_apart = each.differences[way], each.are_apart[way]
    if difference is None:
        return _NOT_KNOWN
    # Of two shares a difference in percent could be taken for one relative to the first.
    text = f"{100 * difference:.1f} points" if each.unit == "ratio" else _value_text(difference, each.unit)
    sign = "+" if difference > 0 else ""
    spread = "" if is_apart is None else " (apart)" if is_apart else " (within the spread)"
    return f"{sign}{text}{spread}"


def _value_text(value: float | None, unit: Unit, size: int | None = None) -> str:
    if value is None:
        return _NOT_KNOWN
    match unit:
        case "ms":
            text = duration_from_ns(round(value * NS_PER_MS))
        case "s":
            text = duration_from_ns(round(value * 1000 * NS_PER_MS))
        case "ratio":
            text = f"{100 * value:.1f} %"
        case "count":
            text = f"{value:g}"
        case _:
            assert_never(unit)
    return text if size is None else f"{text} (n={size})"


def _at(*names: str) -> Callable[[Summary], float | None]:
    def read(summary: Summary) -> float | None:
        value: Any = summary
        for name in names:
            value = value[name]
        return None if value is None else float(value)

    return read


def _size(group: str) -> Callable[[Summary], int]:
    return lambda summary: int(summary["ttft"][group]["count"])


def _failed(summary: Summary) -> float:
    return float(sum(summary["calls"]["failed"].values()))


def _refused_tries(summary: Summary) -> float:
    calls = summary["calls"]
    return float(calls["failed"].get("refused", 0) + calls["earlier_tries"].get("refused", 0))


_Measure = tuple[str, Unit, Callable[[Summary], float | None], Callable[[Summary], int] | None]
_MEASURES: tuple[_Measure, ...] = (
    ("calls complete", "count", _at("calls", "complete"), None),
    ("calls failed", "count", _failed, None),
    ("tries refused", "count", _refused_tries, None),
    ("time in backoff", "s", _at("calls", "backoff_s"), None),
    ("sessions lost", "count", _at("sessions", "lost"), None),
    *(
        (f"TTFT {title} {name}", "ms", _at("ttft", group, f"{name}_ms"), _size(group))
        for group, title in (("service", "from sent"), ("user", "from due"))
        for name in ("p50", "p95", "p99")
    ),
    ("prompt tokens cached", "ratio", _at("cache", "cached_ratio"), None),
    ("duration", "s", _at("client", "elapsed_s"), None),
    ("lateness p99", "ms", _at("lateness", "client", "p99_ms"), None),
)
