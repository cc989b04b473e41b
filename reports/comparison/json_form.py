"""Pure: a comparison as JSON; docs/compare.md describes the shape."""

from dataclasses import asdict
from typing import Any

from aitrace.doubts import is_fine, reasons_of
from reports.comparison.comparison import Comparison, Way, verdict
from reports.comparison.conditions import Checked
from reports.comparison.differences import Difference, Side
from reports.comparison.intervals import Effect
from reports.comparison.noise import COMPARISON_VERSION, json_from_noise
from reports.comparison.wording import finding_text, is_worse


def json_from_comparison(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON values."""
    setting = comparison.setting
    return {
        "version": COMPARISON_VERSION,
        "verdict": {
            "fine": comparison.is_fine,
            "line": verdict(comparison),
            "doubts": [asdict(doubt) for doubt in comparison.doubts],
        },
        "ways": [_json_from_way(way) for way in comparison.ways],
        "plan_differences": [asdict(each) for each in comparison.plan],
        "differs": [asdict(each) for each in comparison.setup],
        "confidence": setting.confidence,
        "family": comparison.family,
        "seed": setting.seed,
        "comparisons": [
            {
                "first": comparison.ways[0].name,
                "second": way.name,
                "measures": [_json_from_difference(each) for each in of_way],
            }
            for way, of_way in zip(comparison.ways[1:], comparison.differences, strict=True)
        ],
        "conditions": [_json_from_checked(each) for each in comparison.checked],
        "noise": json_from_noise(comparison.noise) if comparison.noise else None,
    }


def _json_from_way(way: Way) -> dict[str, Any]:
    return {
        "name": way.name,
        "recorded": way.is_recorded,
        "runs": [
            {
                "name": run.name,
                "fine": is_fine(run.doubts),
                "doubts": list(reasons_of(run.doubts)),
            }
            for run in way.runs
        ],
        "left_out": list(way.left_out),
    }


def _json_from_difference(each: Difference) -> dict[str, Any]:
    return {
        "name": each.measure.name,
        "title": each.measure.title,
        "unit": each.measure.basis.unit,
        "pairs": each.pairs,
        "only_first": each.only_first,
        "only_second": each.only_second,
        "in_part": each.in_part,
        "trees": each.trees,
        "first": _json_from_side(each.first),
        "second": _json_from_side(each.second),
        "difference": _json_from_effect(each.absolute),
        "relative": _json_from_effect(each.relative),
        "floor": each.floor,
        "knows_runs": each.knows_runs,
        "finding": each.finding,
        "worse": is_worse(each),
        "text": finding_text(each),
        "reason": each.reason,
    }


def _json_from_side(side: Side) -> dict[str, Any]:
    return {"value": side.value, "runs": list(side.values)}


def _json_from_effect(effect: Effect | None) -> dict[str, float] | None:
    return None if effect is None else asdict(effect)


def _json_from_checked(checked: Checked) -> dict[str, Any]:
    return {
        "condition": checked.condition.text,
        "measure": checked.condition.measure.name,
        "second": checked.other,
        "outcome": checked.outcome,
        "found": _json_from_effect(checked.effect),
        "reason": checked.reason,
    }
