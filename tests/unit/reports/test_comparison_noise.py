import math

import pytest

from aitrace.errors import InputError
from reports.comparison.differences import Setting, compare_ways
from reports.comparison.intervals import Variance, tree_weights
from reports.comparison.measures import measures_from_names
from reports.comparison.noise import json_from_noise, noise_from_differences, noise_from_json
from reports.comparison.testing import matched_calls

FACTORS = (1.0, 1.02, 0.99)


def noise_of(*names, count=8):
    runs = [[100.0 * factor] * count for factor in FACTORS]
    matched = matched_calls({"ttft_value": runs}, range(count))
    differences = compare_ways(
        matched, [0], [[1], [2]], measures_from_names(names), tree_weights(matched.trees, seed=0), Setting()
    )
    return noise_from_differences(differences)


def test_noise_is_the_spread_between_runs_of_one_way():
    (noise,) = noise_of("ttft_p50")
    assert noise.values == (100, 102, 99)
    mean = 301 / 3
    assert noise.noise.absolute.value == pytest.approx(sum((x - mean) ** 2 for x in (100, 102, 99)) / 2)
    assert noise.noise.absolute.freedom == 2
    logs = [math.log(factor) for factor in FACTORS]
    assert noise.noise.relative.value == pytest.approx(sum((x - sum(logs) / 3) ** 2 for x in logs) / 2)


def test_two_runs_stay_within_what_student_says_of_their_difference():
    (noise,) = noise_of("ttft_p50")
    assert noise.floor == pytest.approx(4.303 * math.sqrt(2 * noise.noise.absolute.value), rel=1e-3)
    assert noise.floor_ratio == pytest.approx(
        math.exp(4.303 * math.sqrt(2 * noise.noise.relative.value)) - 1, rel=1e-3
    )


def test_noise_of_too_few_calls_is_not_told():
    (noise,) = noise_of("ttft_p95")
    assert (noise.values, noise.floor, noise.floor_ratio, noise.reason) == (
        (),
        None,
        None,
        "8 pairs, 40 needed",
    )


def test_what_is_written_is_what_is_read():
    noise = noise_of("ttft_p50", "ttft_p95")
    read = noise_from_json({"version": 1, "noise": json_from_noise(noise)}, "noise.json")
    assert read["ttft_p50"].relative.value == pytest.approx(noise[0].noise.relative.value)
    assert read["ttft_p50"].absolute == Variance(
        value=pytest.approx(noise[0].noise.absolute.value), freedom=2
    )
    assert (read["ttft_p95"].absolute, read["ttft_p95"].relative) == (None, None)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"noise": None},
        {"noise": {"ttft_p50": {}}},
        {"noise": {"ttft_p50": 3}},
        {"noise": {"ttft_p50": {"absolute": {"sd": -1, "freedom": 2}, "relative": None}}},
        {"noise": {"ttft_p50": {"absolute": {"sd": "a", "freedom": 2}, "relative": None}}},
    ],
)
def test_what_is_no_noise_is_refused(content):
    versioned = {"version": 1} | content if isinstance(content, dict) else content
    with pytest.raises(InputError, match=r"noise\.json: (holds no noise|noise cannot be read)"):
        noise_from_json(versioned, "noise.json")


@pytest.mark.parametrize("version", [{}, {"version": 2}])
def test_noise_of_another_version_is_refused(version):
    with pytest.raises(InputError, match=r"noise\.json: holds noise of version (None|2), expected 1"):
        noise_from_json(version | {"noise": json_from_noise(noise_of("ttft_p50"))}, "noise.json")
