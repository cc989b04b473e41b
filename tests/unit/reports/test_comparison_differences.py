"""Differences by hand, and over many made-up comparisons: how often there is a false alarm, and how often 10 % is found."""

import math

import numpy as np
import pytest

from reports.comparison.differences import RunNoise, Setting, compare_ways
from reports.comparison.intervals import Variance, tree_weights
from reports.comparison.measures import measures_from_names
from reports.comparison.testing import matched_calls

NAMES = (
    "ttft_p50", "ttft_p95", "ttft_paired", "call_p50", "call_p95", "call_paired", "speed_p50", "itl_p50", "hit_ratio",
    "complete_calls",
)  # fmt: skip
NAN = math.nan


def differences(matched, *names, first=(0,), second=(1,), **setting):
    weights = tree_weights(matched.trees, seed=0)
    (found,) = compare_ways(
        matched, list(first), [list(second)], measures_from_names(names), weights, Setting(**setting)
    )
    return found


def difference(matched, name, **options):
    return differences(matched, name, **options)[0]


def ttft(*runs, trees=None):
    return matched_calls({"ttft_value": runs}, trees or range(len(runs[0])))


def test_a_median_and_its_difference_are_those_of_the_pairs():
    found = difference(
        ttft([100, 200, 300, 400, NAN, 600], [110, 220, 330, 440, 550, NAN], trees=[0, 1, 2, 3, 4, 5]),
        "ttft_p50",
    )
    assert (found.pairs, found.only_first, found.only_second, found.trees) == (4, 1, 1, 4)
    assert (found.finding, found.reason) == ("too_few", "pairs of 4 trees, 5 needed")
    one = difference(ttft([100, 200], [110, 220], trees=[0, 0]), "ttft_p50")
    assert one.reason == "pairs of 1 tree, 5 needed"
    five = difference(ttft([100, 200, 300, 400, 500], [110, 220, 330, 440, 550]), "ttft_p50")
    assert (five.first.value, five.second.value) == (300, 330)
    assert five.absolute.point == pytest.approx(30)
    assert five.relative.point == pytest.approx(0.1)


def test_a_change_by_one_factor_is_found_whatever_the_sizes():
    before = np.random.default_rng(0).lognormal(5, 1, 40)
    found = difference(ttft(before, before * 1.1), "ttft_paired")
    assert found.finding == "more"
    assert found.relative.low == pytest.approx(0.1)
    assert found.absolute.point == pytest.approx(0.1 * np.sort(before)[19])
    assert (found.first.value, found.second.value) == (None, None)


def test_the_difference_of_two_runs_each_is_that_of_their_means():
    runs = [[100.0] * 6, [104.0] * 6, [120.0] * 6, [124.0] * 6]
    found = difference(ttft(*runs), "ttft_p50", first=(0, 1), second=(2, 3))
    assert (found.first.values, found.first.value, found.second.value) == ((100, 104), 102, 122)
    assert found.absolute.point == 20
    # Standard deviation 2 √2 within each way, twice two runs: √(8 (1/2 + 1/2)), with t of 2 degrees of freedom.
    assert found.absolute.high - 20 == pytest.approx(4.303 * math.sqrt(8), rel=1e-3)
    assert found.relative.point == pytest.approx(20 / 102)
    # The same on the logarithmic scale, where either way's two runs are log(1.04) and log(124 / 120) apart.
    variance = (math.log(1.04) ** 2 + math.log(124 / 120) ** 2) / 4
    reach = math.log1p(found.relative.high) - math.log(122 / 102)
    assert reach == pytest.approx(4.303 * math.sqrt(variance), rel=1e-3)
    assert found.knows_runs


def test_a_relative_difference_is_the_share_of_the_first_ways_value():
    """Also of runs that lie so far apart that their geometric mean, 17.3, is below the other way's."""
    size = np.random.default_rng(0).uniform(0.9, 1.1, 41)
    matched = ttft(10 * size, 30 * size, 19 * size, 19 * size)
    for found in differences(matched, "ttft_mean", "ttft_p50", "ttft_p95", first=(0, 1), second=(2, 3)):
        assert found.relative.point == pytest.approx(-0.05)
        assert found.relative.point == pytest.approx(found.absolute.point / found.first.value)
        assert found.absolute.point == pytest.approx(found.second.value - found.first.value)
        assert found.relative.low < found.relative.point < found.relative.high


def test_paired_differences_of_repeats_are_those_of_their_means_call_by_call():
    matched = ttft(
        [10.0, 20, 30, 40, 50], [30.0, 60, 90, 120, 150], [19.0, 38, 57, 76, 100], [19.0, 38, 57, 76, 98]
    )
    found = difference(matched, "ttft_paired", first=(0, 1), second=(2, 3))
    # Means are 20, 40, 60, 80, 100 and 19, 38, 57, 76, 99.
    assert found.absolute.point == -2
    assert found.relative.point == pytest.approx(-0.05)


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_difference_and_relative_difference_have_one_sign(repeats):
    rng = np.random.default_rng(repeats)
    for _ in range(40):
        values = (
            rng.lognormal(5, 0.5, (1, 21))
            * rng.lognormal(0, 0.6, (2 * repeats, 1))
            * rng.lognormal(0, 0.3, (2 * repeats, 21))
        )
        ways = {"first": range(repeats), "second": range(repeats, 2 * repeats)}
        for found in differences(ttft(*values), "ttft_mean", "ttft_p50", "ttft_p90", "ttft_paired", **ways):
            assert found.relative.point * found.absolute.point > 0


def test_a_call_is_a_pair_if_every_run_of_both_ways_has_it():
    runs = [[100.0, NAN, 100, 100, 100, 100, NAN], [NAN, 100.0, 100, 100, 100, 100, NAN], [110.0] * 6 + [NAN]]
    found = difference(ttft(*runs), "ttft_p50", first=(0, 1), second=(2,))
    assert (found.pairs, found.in_part, found.only_first, found.only_second) == (4, 2, 0, 0)


def test_calls_that_single_repeats_lost_are_in_no_run_of_the_comparison():
    """Each repeat of the second way lost two thirds of the slow calls, another two thirds each time."""
    place = np.arange(120)
    before = np.where(place % 2 == 0, 100.0, 500.0) + place / 100
    after = [np.where((place % 2 == 1) & (place // 2 % 3 != lost), NAN, before) for lost in range(3)]
    for found in differences(
        ttft(before, before, before, *after),
        "ttft_mean",
        "ttft_p50",
        "ttft_paired",
        first=(0, 1, 2),
        second=(3, 4, 5),
    ):
        assert (found.pairs, found.in_part, found.finding) == (60, 60, "none")
        assert found.absolute.point == 0


def test_runs_beside_the_two_ways_can_have_a_say_in_what_is_a_pair():
    matched = ttft([1.0, 2, 3, 4, 5, 6], [1.0, 2, 3, 4, 5, 6], [1.0, 2, 3, 4, 5, NAN])
    ((found,), _) = compare_ways(
        matched,
        [0],
        [[1], [2]],
        measures_from_names(["ttft_mean"]),
        tree_weights(6, seed=0),
        Setting(),
        also=[2],
    )
    assert (found.pairs, found.in_part, found.first.value) == (5, 1, 3)


def test_a_share_is_that_of_sums_and_its_difference_is_judged_in_points():
    part = [[50.0] * 8, [40.0] * 8]
    matched = matched_calls({"hit_ratio_part": part, "hit_ratio_whole": [[100.0] * 8] * 2}, range(8))
    found = difference(matched, "hit_ratio")
    assert (found.first.value, found.second.value, found.finding) == (0.5, 0.4, "less")
    assert found.absolute.point == pytest.approx(-0.1)
    assert found.relative.point == pytest.approx(-0.2)
    assert found.floor == 0.01


def test_a_share_of_nothing_has_no_relative_difference():
    columns = {"refused_tries_part": [[0.0] * 8, [1.0] * 8], "refused_tries_whole": [[2.0] * 8] * 2}
    found = difference(matched_calls(columns, range(8)), "refused_tries")
    assert (found.relative, found.absolute.point, found.finding) == (None, 0.5, "more")


def test_without_repeats_a_difference_below_the_floor_is_none():
    before = np.full(20, 100.0)
    assert difference(ttft(before, before * 1.02), "ttft_p50").finding == "floor"
    assert difference(ttft(before, before * 1.04), "ttft_p50").finding == "more"
    assert difference(ttft(before, before * 1.04), "ttft_p50", floor_ratio=0.05).finding == "floor"
    assert difference(ttft(before, before / 1.04), "ttft_p50").finding == "less"


def test_what_the_clients_clock_cannot_tell_is_no_difference():
    assert difference(ttft([2.0] * 9, [2.8] * 9), "ttft_p50").finding == "floor"
    assert difference(ttft([2.0] * 9, [3.2] * 9), "ttft_p50").finding == "more"


def test_noise_of_earlier_runs_goes_into_the_interval_and_the_floor_remains():
    before = np.full(20, 100.0)
    noise = {"ttft_p50": RunNoise(absolute=None, relative=Variance(value=0.005**2, freedom=4))}
    found = difference(ttft(before, before * 1.06), "ttft_p50", noise=noise)
    assert (found.knows_runs, found.floor, found.finding) == (True, 0.03, "more")
    reach = math.log1p(found.relative.high) - math.log(1.06)
    assert reach == pytest.approx(2.776 * 0.005 * math.sqrt(2), rel=1e-3)
    assert difference(ttft(before, before * 1.04), "ttft_p50", noise=noise).finding == "floor"
    assert difference(ttft(before, before * 1.01), "ttft_p50", noise=noise).finding == "none"


def test_noise_of_paired_differences_of_repeats_is_that_in_units():
    """They have no level of which it could be a share."""
    noise = {
        "ttft_paired": RunNoise(
            absolute=Variance(value=4.0, freedom=1e9), relative=Variance(value=1e-9, freedom=1e9)
        )
    }
    matched = ttft([100.0] * 9, [100.5] * 9, [110.0] * 9, [110.5] * 9)
    found = difference(matched, "ttft_paired", first=(0, 1), second=(2, 3), noise=noise)
    assert found.absolute.high - 10 == pytest.approx(1.96 * 2, rel=1e-2)


def test_a_share_of_nothing_in_a_run_is_not_told():
    columns = {"hit_ratio_part": [[0.0] * 8, [1.0] * 8], "hit_ratio_whole": [[0.0] * 8, [2.0] * 8]}
    found = difference(matched_calls(columns, range(8)), "hit_ratio")
    assert (found.first.value, found.second.value, found.reason) == (None, 0.5, "no value")


def test_a_percentile_of_too_few_calls_is_not_told():
    found = difference(ttft([100.0] * 39, [200.0] * 39), "ttft_p95")
    assert (found.finding, found.absolute, found.reason) == ("too_few", None, "39 pairs, 40 needed")
    assert difference(ttft([100.0] * 40, [200.0] * 40), "ttft_p95").finding == "more"


def test_what_disturbed_a_part_of_the_run_is_no_difference():
    """Ten trees side by side, and for a tenth of the time everything took twice as long."""
    rng = np.random.default_rng(0)
    before = rng.lognormal(5, 0.3, 200)
    disturbed = before * np.where((np.arange(200) >= 40) & (np.arange(200) < 60), 2.0, 1.0)
    found = difference(ttft(before, disturbed, trees=[n % 10 for n in range(200)]), "ttft_mean")
    assert found.absolute.point > 0.05 * found.first.value
    assert found.finding == "none"


def test_what_no_run_has_is_not_told():
    assert difference(ttft([100.0] * 9, [100.0] * 9), "itl_p50").reason == "no pairs"
    assert difference(ttft([100.0] * 9, [NAN] * 9), "ttft_p50").reason == "no pairs"
    lopsided = ttft([100.0] * 9, [100.0] * 9, [NAN] * 9)
    assert difference(lopsided, "ttft_p50", second=(1, 2)).reason == "no pair that every run has"


def test_more_measures_make_wider_intervals_but_not_those_that_cannot_err():
    rng = np.random.default_rng(1)
    values = rng.lognormal(5, 0.5, (2, 30))
    columns = {
        "ttft_value": values,
        "call_value": rng.lognormal(8, 0.5, (2, 30)),
        "itl_value": [[5.0] * 30] * 2,
    }
    matched = matched_calls(columns, range(30))
    alone, two, with_equal = (
        differences(matched, *names)[0].relative
        for names in (("ttft_p50",), ("ttft_p50", "call_p50"), ("ttft_p50", "itl_p50"))
    )
    assert two.high > alone.high
    assert with_equal == alone


def test_values_of_0_have_no_relative_difference():
    found = difference(ttft([0.0, 0, 0, 5, 5, 5, 5], [9.0] * 7), "ttft_paired")
    assert found.relative is None
    assert found.absolute.point == 4


def test_a_mean_is_that_of_all_pairs():
    matched = ttft([1.0, 2, 3, 4, 5], [2.0, 3, 4, 5, 6])
    found = difference(matched, "ttft_mean")
    assert (found.first.value, found.absolute.point) == (3, 1)
    assert found.absolute.low == pytest.approx(1)


def made_up(rng, *, trees, calls, runs, effect, run_spread):
    """Latencies with spread between trees, calls and runs, and a factor on the TTFT of the second way."""
    of = np.repeat(np.arange(trees), calls)
    count, ways = of.size, 2 * runs
    common = rng.normal(0, 0.5, trees)[of] + rng.normal(0, 0.8, count)
    drift = rng.normal(0, run_spread, ways)[:, None]

    def times(level):
        return level * np.exp(common + drift + rng.normal(0, 0.05, (ways, count)))

    ttft = times(100.0)
    ttft[runs:] *= 1 + effect
    whole = rng.integers(1000, 9000, count).astype(float)
    cached = (rng.random((ways, count)) < np.clip(0.6 + 0.1 * rng.normal(0, 1, trees)[of], 0, 1)) * whole
    columns = {
        "ttft_value": ttft,
        "call_value": times(3000.0),
        "speed_value": 1 / times(0.02),
        "itl_value": times(20.0),
        "hit_ratio_part": cached,
        "hit_ratio_whole": np.stack([whole] * ways),
        "complete_calls_part": (rng.random((ways, count)) < 0.97).astype(float),
        "complete_calls_whole": np.ones((ways, count)),
    }
    return matched_calls(columns, of)


@pytest.mark.parametrize(
    ("runs", "run_spread", "setting"),
    [(1, 0.0, {"floor_ratio": 0.0}), (1, 0.008, {}), (2, 0.02, {}), (3, 0.02, {})],
    ids=["one-run-no-floor", "one-run-floor", "two-runs", "three-runs"],
)
def test_false_alarms_are_rarer_than_stated(runs, run_spread, setting):
    """Of 60 comparisons of equal ways at 95 % at most 3 may have a finding in any measure."""
    alarms = 0
    for seed in range(60):
        matched = made_up(
            np.random.default_rng(seed), trees=15, calls=8, runs=runs, effect=0, run_spread=run_spread
        )
        ways = {"first": range(runs), "second": range(runs, 2 * runs)}
        alarms += any(
            each.finding in ("more", "less") for each in differences(matched, *NAMES, **ways, **setting)
        )
    assert alarms <= 3


@pytest.mark.parametrize(("runs", "run_spread"), [(1, 0.008), (3, 0.008)])
def test_a_change_of_10_percent_is_found(runs, run_spread):
    found = 0
    for seed in range(40):
        matched = made_up(
            np.random.default_rng(seed), trees=30, calls=8, runs=runs, effect=0.1, run_spread=run_spread
        )
        ways = {"first": range(runs), "second": range(runs, 2 * runs)}
        found += difference(matched, "ttft_paired", **ways).finding == "more"
    assert found >= 36


def test_intervals_hold_the_true_difference_as_often_as_stated():
    held = 0
    for seed in range(200):
        matched = made_up(np.random.default_rng(seed), trees=20, calls=6, runs=1, effect=0.1, run_spread=0)
        effect = difference(matched, "ttft_paired", confidence=0.9).relative
        held += effect.low <= 0.1 <= effect.high
    assert held >= 0.87 * 200
