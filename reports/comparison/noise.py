"""Pure: how far runs of one way are apart, measure by measure, and the JSON in which that is kept for later."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aitrace.errors import InputError
from reports.comparison.differences import Difference, RunNoise
from reports.comparison.intervals import Variance, run_variance, student_quantile
from reports.comparison.measures import Measure

COMPARISON_VERSION = 1
"""Of the JSON that `aitrace compare` prints, noise among it; raised when a field changes its meaning."""
_SHARE = 0.95
_WRITE_AGAIN = "write the file again with --aa --json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureNoise:
    """One measure of runs of one way."""

    measure: Measure
    """What was measured."""
    values: tuple[float, ...]
    """By run; empty if it could not be told of all of them."""
    noise: RunNoise
    """Variance between the runs."""
    reason: str
    """Why it cannot be told; empty if it can."""

    @property
    def floor_ratio(self) -> float | None:
        """What the relative difference of two runs stays below in 95 of 100 pairs; None if not known."""
        reach = _reach(self.noise.relative)
        return None if reach is None else math.expm1(min(reach, 700.0))

    @property
    def floor(self) -> float | None:
        """The same in the measure's unit."""
        return _reach(self.noise.absolute)


def noise_from_differences(differences: Sequence[Sequence[Difference]]) -> tuple[MeasureNoise, ...]:
    """Noise of each measure, from the differences of each further run to the first one.

    Args:
        differences: By run, from the second on; each in all measures, and of pairs that all the runs have.
    """
    return tuple(_noise([of_run[place] for of_run in differences]) for place in range(len(differences[0])))


def json_from_noise(noise: Sequence[MeasureNoise]) -> dict[str, Any]:
    """As `--aa --json` prints it, and `--noise` reads it."""
    return {
        each.measure.name: {
            "unit": each.measure.basis.unit,
            "values": list(each.values),
            "absolute": _json_from_variance(each.noise.absolute),
            "relative": _json_from_variance(each.noise.relative),
            "floor": each.floor,
            "floor_ratio": each.floor_ratio,
            "reason": each.reason,
        }
        for each in noise
    }


def noise_from_json(content: Any, place: str) -> dict[str, RunNoise]:
    """What `json_from_noise` wrote, in the JSON of its comparison.

    Raises:
        InputError: It is something else.
    """
    rows = content.get("noise") if isinstance(content, Mapping) else None
    if not isinstance(rows, Mapping):
        raise InputError(
            f"{place}: holds no noise of runs",
            hint="aitrace compare --aa RUN RUN RUN --json prints what --noise reads",
        )
    if content.get("version") != COMPARISON_VERSION:
        raise InputError(
            f"{place}: holds noise of version {content.get('version')!r}, expected {COMPARISON_VERSION}",
            hint=_WRITE_AGAIN,
        )
    try:
        return {
            str(name): RunNoise(
                absolute=_variance_from_json(row["absolute"]), relative=_variance_from_json(row["relative"])
            )
            for name, row in rows.items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{place}: noise cannot be read", hint=_WRITE_AGAIN) from error


def _noise(differences: Sequence[Difference]) -> MeasureNoise:
    measure = differences[0].measure
    reason = next((each.reason for each in differences if each.reason), "")
    values = [differences[0].first.values[0], *(each.second.values[0] for each in differences)]
    known = tuple(value for value in values if value is not None)
    if reason or len(known) < len(values):
        return MeasureNoise(
            measure=measure,
            values=(),
            noise=RunNoise(absolute=None, relative=None),
            reason=reason or "no value",
        )
    relative = None
    ratios = [each.relative.point for each in differences if each.relative is not None]
    if len(ratios) == len(differences):
        relative = run_variance([0.0, *(math.log1p(ratio) for ratio in ratios)])
    return MeasureNoise(
        measure=measure,
        values=known,
        noise=RunNoise(absolute=run_variance(known), relative=relative),
        reason="",
    )


def _reach(variance: Variance | None) -> float | None:
    if variance is None:
        return None
    return student_quantile((1 + _SHARE) / 2, variance.freedom) * math.sqrt(2 * variance.value)


def _json_from_variance(variance: Variance | None) -> dict[str, float] | None:
    return None if variance is None else {"sd": math.sqrt(variance.value), "freedom": variance.freedom}


def _variance_from_json(row: Any) -> Variance | None:
    if row is None:
        return None
    sd, freedom = float(row["sd"]), float(row["freedom"])
    if not (math.isfinite(sd) and sd >= 0 and freedom > 0):
        raise ValueError("no standard deviation")
    return Variance(value=sd**2, freedom=freedom)
